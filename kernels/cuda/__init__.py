"""Kernels for CUDA devices: Numba compiles them to PTX, CuPy loads and launches them."""
