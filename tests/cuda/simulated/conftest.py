"""Blocks of the simulator run by turns."""

from __future__ import annotations

from .turns import install

install()
