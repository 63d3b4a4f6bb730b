"""The commands of ``python -m autoq``."""
