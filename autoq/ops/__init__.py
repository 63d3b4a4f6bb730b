"""The operations: importing this package registers every record."""

from __future__ import annotations

import importlib

from autoq.ops import activation as activation
from autoq.ops import adaptive_pooling as adaptive_pooling
from autoq.ops import arrange as arrange
from autoq.ops import attention as attention
from autoq.ops import bitwise as bitwise
from autoq.ops import channel_norm as channel_norm
from autoq.ops import compare as compare
from autoq.ops import convolution as convolution
from autoq.ops import convolution_form as convolution_form
from autoq.ops import convolution_transpose as convolution_transpose
from autoq.ops import data_types as data_types
from autoq.ops import elementwise as elementwise
from autoq.ops import embedding as embedding
from autoq.ops import estimators as estimators
from autoq.ops import extended as extended
from autoq.ops import gated as gated
from autoq.ops import hadamard as hadamard
from autoq.ops import index as index
from autoq.ops import interchange as interchange
from autoq.ops import join as join
from autoq.ops import layout as layout
from autoq.ops import loss as loss
from autoq.ops import matmul as matmul
from autoq.ops import norm as norm
from autoq.ops import normalization as normalization
from autoq.ops import order as order
from autoq.ops import pooling as pooling
from autoq.ops import powers as powers
from autoq.ops import probability_loss as probability_loss
from autoq.ops import products as products
from autoq.ops import quant as quant
from autoq.ops import random as random
from autoq.ops import reduce as reduce
from autoq.ops import regression_loss as regression_loss
from autoq.ops import rotary as rotary
from autoq.ops import rounding as rounding
from autoq.ops import scan as scan
from autoq.ops import scatter as scatter
from autoq.ops import searching as searching
from autoq.ops import sets as sets
from autoq.ops import several as several
from autoq.ops import softmax as softmax
from autoq.ops import trigonometric as trigonometric
from autoq.ops import windows as windows
from autoq.ops.public import public as public
from autoq.tape.accelerated import bind_loader

bind_loader(lambda: importlib.import_module("autoq.ops.on_device"))
