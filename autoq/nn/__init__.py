"""Modules: layers with parameters, their containers, losses, initializers and the dtype policy."""

from autoq.nn import init as init
from autoq.nn.activation import GELU as GELU
from autoq.nn.activation import Activation as Activation
from autoq.nn.activation import LeakyReLU as LeakyReLU
from autoq.nn.activation import ReLU as ReLU
from autoq.nn.activation import Sigmoid as Sigmoid
from autoq.nn.activation import SiLU as SiLU
from autoq.nn.activation import Softplus as Softplus
from autoq.nn.activation import Tanh as Tanh
from autoq.nn.containers import ModuleDict as ModuleDict
from autoq.nn.containers import ModuleList as ModuleList
from autoq.nn.containers import Sequential as Sequential
from autoq.nn.dropout import Dropout as Dropout
from autoq.nn.flatten import Flatten as Flatten
from autoq.nn.linear import Linear as Linear
from autoq.nn.loss import CrossEntropyLoss as CrossEntropyLoss
from autoq.nn.loss import MSELoss as MSELoss
from autoq.nn.loss import cross_entropy as cross_entropy
from autoq.nn.loss import mse_loss as mse_loss
from autoq.nn.module import Module as Module
from autoq.nn.normalization import LayerNorm as LayerNorm
from autoq.nn.normalization import RMSNorm as RMSNorm
from autoq.nn.policy import policy as policy
from autoq.tape.parameter import Parameter as Parameter
