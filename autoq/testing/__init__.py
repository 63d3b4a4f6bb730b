"""Tools for testing code that uses autoq: gradient checks, through rounding too, and the bytes' oracle."""

from . import reference as reference
from .failures import BitsDiffer as BitsDiffer
from .failures import CheckError as CheckError
from .failures import ControlFlowDiverged as ControlFlowDiverged
from .failures import GradientMismatch as GradientMismatch
from .failures import VacuousCheck as VacuousCheck
from .grads import check_grads as check_grads
