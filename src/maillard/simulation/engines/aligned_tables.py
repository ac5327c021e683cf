"""Tables whose rows begin at cache lines: vectors that cross them are slow."""

from __future__ import annotations

from typing import Any

import numpy as np


def aligned_table(rows: int, width: int) -> Any:
    """Return an uninitialised table of doubles; its rows are aligned if `width` is a multiple of 8."""
    memory = np.empty(rows * width + 8)
    skipped = -(memory.ctypes.data // 8) % 8
    return memory[skipped : skipped + rows * width].reshape((rows, width))
