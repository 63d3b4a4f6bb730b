"""Quantization schemes: data only, no arithmetic on tensors."""

from .catalog import CATALOG as CATALOG
from .catalog import register_scheme as register_scheme
from .catalog import scheme as scheme
from .element import ELEMENTS as ELEMENTS
from .element import ElementFormat as ElementFormat
from .element import element as element
from .element import register_element as register_element
from .scale import SCALES as SCALES
from .scale import ScaleFormat as ScaleFormat
from .scale import register_scale as register_scale
from .scale import scale as scale
from .scheme import QuantScheme as QuantScheme
