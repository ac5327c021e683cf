"""Imports numba-cuda, or raises an error that says what is missing."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from typing import Any

import numpy as np

from maillard.simulation.backends import NoDevice


@functools.cache
def cuda() -> Any:
    """Return the module `numba.cuda` of the package numba-cuda."""
    if importlib.util.find_spec("numba_cuda") is None:
        raise NoDevice("device 'cuda' needs the package numba-cuda: pip install 'maillard[cuda]'")
    # numba-cuda 0.30 reads numpy.row_stack on import, which numpy 2.5 no longer has.
    lacking = not hasattr(np, "row_stack")
    if lacking:
        np.row_stack = np.vstack  # noqa: NPY201
    try:
        module = importlib.import_module("numba.cuda")
        if not module.config.ENABLE_CUDASIM:
            importlib.import_module("numba.cuda.np.arrayobj")
    except ImportError as error:
        raise NoDevice(f"device 'cuda': numba-cuda cannot be imported ({error})") from error
    finally:
        if lacking:
            del np.row_stack  # noqa: NPY201
    return module


def jit(function: Any, **options: Any) -> Any:
    """Compile a function with these options; the simulator accepts only `device`."""
    known = {name: value for name, value in options.items() if name == "device" or not simulated()}
    return cuda().jit(**known)(function)


def simulated() -> bool:
    """Return whether kernels run in numba's simulator of a GPU (NUMBA_ENABLE_CUDASIM=1), for tests."""
    return bool(cuda().config.ENABLE_CUDASIM)


def require_device() -> None:
    """Raise `NoDevice` without a GPU."""
    if not cuda().is_available():
        reason = " ".join(str(cuda().cuda_error() or "no CUDA device was found").split())
        raise NoDevice(f"device 'cuda': {reason} (device='auto' runs on the CPU where there is no GPU)")
