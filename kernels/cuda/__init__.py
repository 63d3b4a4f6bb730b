"""Kernels for CUDA devices: Numba compiles them to PTX, CuPy loads them, the driver launches them."""
