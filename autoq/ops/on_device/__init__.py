"""Forwards of ops by kernels for CUDA; imported when an operand on a GPU is first seen."""
