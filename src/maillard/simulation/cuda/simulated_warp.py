"""The exchange between the threads of a warp in numba's simulator of a GPU, which has no such functions.

There, a block is one warp or less.
"""

from __future__ import annotations

from typing import Any

from maillard.simulation.cuda import cuda_toolkit

cuda = cuda_toolkit.cuda()
_BOARD: list[Any] = [None] * 32


def values(value: Any) -> list[Any]:
    """Return the values of all threads."""
    if cuda.blockDim.x == 1:  # waiting takes long in the simulator
        return [value]
    _BOARD[cuda.threadIdx.x] = value
    cuda.syncthreads()
    found = _BOARD[: cuda.blockDim.x]
    cuda.syncthreads()
    return found


def exchange(value: Any, distance: int) -> Any:
    """Return the value of the thread whose number differs in one bit."""
    return values(value)[cuda.threadIdx.x ^ distance]


def read_thread(value: Any, thread: int) -> Any:
    """Return the value of a thread."""
    return values(value)[thread]


def any_thread(yes: bool) -> bool:
    """Return whether this is true for a thread."""
    return any(values(yes))


def threads_with(yes: bool) -> int:
    """Return the threads for which this is true, as bits."""
    return sum(1 << place for place, each in enumerate(values(yes)) if each)


def sync_warp() -> None:
    """Wait for all threads: here only kernels with one thread per block call this."""


def lowest_place(bits: int) -> int:
    """Return the position of the lowest bit; the simulator's own function handles 32 bits only."""
    return (bits & -bits).bit_length() - 1
