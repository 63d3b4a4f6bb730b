"""autoq: automatic differentiation around really packed quantized tensors."""

from __future__ import annotations

import math as _math
from typing import Any

from autoq import dtypes as dtypes
from autoq import errors as errors
from autoq import ops as _ops
from autoq import schemes as _schemes
from autoq.capture import capture as capture
from autoq.context import set_default_dtype_resolution as set_default_dtype_resolution
from autoq.custom import ResolvedOutput as ResolvedOutput
from autoq.custom import custom_op as custom_op
from autoq.devices import cuda as cuda
from autoq.devices import default_device as default_device
from autoq.devices import set_default_device as set_default_device
from autoq.explain import Explanation as Explanation
from autoq.explain import explain as explain
from autoq.modes import dtype_resolution as dtype_resolution
from autoq.modes import no_grad as no_grad
from autoq.modes import precision as precision
from autoq.ops.estimators import learned_clip as learned_clip
from autoq.ops.estimators import learned_step as learned_step
from autoq.ops.namespace import VERSION as __array_api_version__
from autoq.ops.namespace import array_namespace_info as __array_namespace_info__
from autoq.random import Generator as Generator
from autoq.schemes import CATALOG as CATALOG
from autoq.schemes import QuantScheme as QuantScheme
from autoq.schemes import scheme as scheme
from autoq.storage import QTensor as QTensor
from autoq.tape.anomaly import detect_anomaly as detect_anomaly
from autoq.tape.casts import quantize as quantize
from autoq.tape.casts import quantize_grad as quantize_grad
from autoq.tape.checkpoint import checkpoint as checkpoint
from autoq.tape.forward import hvp as hvp
from autoq.tape.forward import jvp as jvp
from autoq.tape.jacobians import hessian as hessian
from autoq.tape.jacobians import jacobian as jacobian
from autoq.tape.parameter import Parameter as Parameter
from autoq.tape.tensor import AutodiffQTensor as AutodiffQTensor
from autoq.tape.tensor import AutodiffTensor as AutodiffTensor
from autoq.tape.tensor import Tensor as Tensor
from autoq.tape.tensor import tensor as tensor
from autoq.tape.transforms import grad as grad
from autoq.tape.transforms import stop_gradient as stop_gradient
from autoq.tape.transforms import value_and_grad as value_and_grad
from autoq.tape.transforms import vjp as vjp
from autoq.tape.view import Tape as Tape
from autoq.types import Propagation as Propagation
from autoq.types import TensorType as TensorType
from autoq.types import bfloat16 as bfloat16
from autoq.types import bool_ as bool
from autoq.types import bool_ as bool_
from autoq.types import combine as combine
from autoq.types import float16 as float16
from autoq.types import float32 as float32
from autoq.types import float64 as float64
from autoq.types import int16 as int16
from autoq.types import int32 as int32
from autoq.types import int64 as int64
from autoq.types import uint8 as uint8
from autoq.types import uint16 as uint16
from autoq.types import uint32 as uint32
from autoq.types import uint64 as uint64

e, pi, inf, nan, newaxis = _math.e, _math.pi, _math.inf, _math.nan, None

for _name, _scheme in _schemes.CATALOG.items():
    globals()[_name] = _scheme
for _name, _function in _ops.public().items():
    globals().setdefault(_name, _function)
__version__ = "0.1.0"
_PACKAGES = ("data", "io", "nn", "optim", "testing", "viz")


def __getattr__(name: str) -> Any:
    """Sub-packages are imported when they are first named, which keeps ``import autoq`` quick."""
    if name in _PACKAGES:
        from importlib import import_module

        return import_module(f"autoq.{name}")
    raise AttributeError(f"module 'autoq' has no attribute {name!r}")
