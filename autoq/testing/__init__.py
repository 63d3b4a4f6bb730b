"""Tools for testing code that uses autoq: gradient checks, through rounding too, and the bytes' oracle."""

from . import reference as reference
from .checks import check_fused as check_fused
from .checks import check_layout as check_layout
from .checks import check_same_on as check_same_on
from .checks import check_saved_bytes as check_saved_bytes
from .checks import check_type_rule as check_type_rule
from .failures import BitsDiffer as BitsDiffer
from .failures import CheckError as CheckError
from .failures import ControlFlowDiverged as ControlFlowDiverged
from .failures import GradientMismatch as GradientMismatch
from .failures import VacuousCheck as VacuousCheck
from .grads import check_grads as check_grads
from .injected import Framework as Framework
from .injected import check_injected as check_injected
from .production import check_production as check_production
