"""Charts of formats and of training runs. matplotlib is loaded when the first one is drawn."""

from autoq.viz.error import TensorError as TensorError
from autoq.viz.error import tensor_error as tensor_error
from autoq.viz.formats import representable_values as representable_values
from autoq.viz.formats import scale_rules as scale_rules
from autoq.viz.training import loss_curves as loss_curves
from autoq.viz.training import quantization_error as quantization_error
from autoq.viz.training import weight_histogram as weight_histogram
