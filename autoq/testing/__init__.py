"""Tools for testing code that uses autoq: the oracle of every byte it writes."""

from . import reference as reference
