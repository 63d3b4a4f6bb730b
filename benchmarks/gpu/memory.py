"""Peak memory of a call: what CuPy's pool, or torch's allocator, had handed out at most.

Workspaces of cuBLAS count on both sides: ours come from the pool for each product, torch takes its own from its allocator
once and keeps them.
"""

from __future__ import annotations

import gc
from collections.abc import Callable


def cupy_peak(make: Callable[[], Callable[[], object]], calls: int = 3) -> float:
    """Bytes in use at most during the calls, over what was in use before ``make`` set everything up.

    Args:
        make: Builds model and data and returns the call, a training step.
        calls: How often it is called.
    """
    import cupy

    class Peak(cupy.cuda.MemoryHook):
        name = "peak"

        def __init__(self) -> None:
            self.live = self.most = 0

        def malloc_postprocess(self, **event: int) -> None:
            self.live += event["mem_size"] if event["mem_ptr"] else 0
            self.most = max(self.most, self.live)

        def free_postprocess(self, **event: int) -> None:
            self.live -= event["mem_size"]

    gc.collect()
    with Peak() as peak:
        step = make()
        for _ in range(calls):
            step()
        return float(peak.most)


def torch_peak(make: Callable[[], Callable[[], object]], calls: int = 3) -> float:
    """The same of torch."""
    import torch

    gc.collect()
    torch.cuda.synchronize()
    torch._C._cuda_clearCublasWorkspaces()  # of what ran before; the step takes new ones
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    step = make()
    for _ in range(calls):
        step()
    torch.cuda.synchronize()
    return float(torch.cuda.max_memory_allocated() - before)
