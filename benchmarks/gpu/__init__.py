"""Sections of the GPU benchmark, one a file with ``run(report)``; ``benchmarks/gpu.py`` runs them."""
