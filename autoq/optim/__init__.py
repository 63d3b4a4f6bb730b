"""Optimizers, learning-rate schedules, gradient clipping and loss scaling."""

from autoq.optim.adam import Adam as Adam
from autoq.optim.adam import AdamW as AdamW
from autoq.optim.clip import clip_grad_norm as clip_grad_norm
from autoq.optim.optimizer import Optimizer as Optimizer
from autoq.optim.scaler import GradScaler as GradScaler
from autoq.optim.schedule import CosineSchedule as CosineSchedule
from autoq.optim.schedule import LinearWarmup as LinearWarmup
from autoq.optim.schedule import Schedule as Schedule
from autoq.optim.sgd import SGD as SGD
