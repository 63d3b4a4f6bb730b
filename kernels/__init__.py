"""Compiled kernels of autoq. Reached as ``autoq.kernels`` only: see README.md in this folder."""

if __name__ != "autoq.kernels":
    raise ImportError(f"{__name__}: import autoq.kernels instead; this folder is a part of autoq.")
