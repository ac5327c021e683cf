"""What the threads of a warp tell each other. In numba's simulator, `simulated_warp` replaces these."""

from __future__ import annotations

from typing import Any

from maillard.simulation.cuda import cuda_toolkit

cuda = cuda_toolkit.cuda()
FULL_WARP = 0xFFFFFFFF
WARP_SIZE = 32


def sync_warp() -> None:
    """Wait for all threads of the warp, so that they continue in step and see each other's memory."""
    cuda.syncwarp(FULL_WARP)


def lowest_place(bits: int) -> int:
    """Return the position of the lowest bit."""
    return cuda.ffs(bits) - 1


def exchange(value: Any, distance: int) -> Any:
    """Return the value of the thread whose number differs in one bit."""
    return cuda.shfl_xor_sync(FULL_WARP, value, distance)


def read_thread(value: Any, thread: int) -> Any:
    """Return the value of a thread of the warp."""
    return cuda.shfl_sync(FULL_WARP, value, thread)


def any_thread(yes: bool) -> bool:
    """Return whether this is true for a thread of the warp."""
    return cuda.any_sync(FULL_WARP, yes)


def threads_with(yes: bool) -> int:
    """Return the threads of the warp for which this is true, as bits."""
    return cuda.ballot_sync(FULL_WARP, yes) & FULL_WARP
