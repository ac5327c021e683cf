"""Caches compiled kernels on disk, so that a new process loads them in milliseconds.

numba-cuda's own cache identifies a kernel by its bytecode and the pickled content of its closure. Our kernels
close over device functions, which differ in every process. So the key is a fingerprint of all source code
that the kernel is compiled from.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any


def cache_on_disk(kernel: Any, fingerprint: str) -> Any:
    """Let a kernel that is not compiled yet be loaded from disk, or compiled and saved there; return it."""
    kernel._cache = _cache_class()(kernel.py_func, fingerprint)
    return kernel


@functools.cache
def _cache_class() -> Any:
    numba_cuda = importlib.import_module("numba_cuda")
    base = importlib.import_module("numba.cuda.dispatcher").CUDACache

    class KernelCache(base):  # type: ignore[misc, valid-type]  # of an untyped package
        """A cache with a fingerprint in place of the bytecode and the closure."""

        def __init__(self, function: Any, fingerprint: str) -> None:
            self._fingerprint = fingerprint
            super().__init__(function)

        def _index_key(self, signature: Any, codegen: Any) -> Any:
            return signature, codegen.magic_tuple(), numba_cuda.__version__, self._fingerprint

    return KernelCache
