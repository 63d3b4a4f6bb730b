"""Saving and loading state dicts as safetensors files."""

from autoq.io.state import load as load
from autoq.io.state import load_into as load_into
from autoq.io.state import load_metadata as load_metadata
from autoq.io.state import save as save
