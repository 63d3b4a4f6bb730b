"""Kernels for the CPU: Numba loops over lines, tiles and threads."""
