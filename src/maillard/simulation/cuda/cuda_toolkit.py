"""numba-cuda: found and imported, or an error that says what is missing."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from typing import Any

import numpy as np

from maillard.simulation.backends import NoDevice

__all__ = ["cuda", "jit", "require_device", "simulated"]


@functools.cache
def cuda() -> Any:
    """The module `numba.cuda`, as the package numba-cuda has it."""
    if importlib.util.find_spec("numba_cuda") is None:
        raise NoDevice("device 'cuda' needs the package numba-cuda: pip install 'maillard[cuda]'")
    # numba-cuda 0.30 registers a form of numpy.row_stack, which numpy 2.5 no longer has. It reads the name once, on import.
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
    """A function compiled with these options, of which the simulator knows one."""
    known = {name: value for name, value in options.items() if name == "device" or not simulated()}
    return cuda().jit(**known)(function)


def simulated() -> bool:
    """Whether kernels run in numba's simulator of a GPU (NUMBA_ENABLE_CUDASIM=1): as Python, to test them."""
    return bool(cuda().config.ENABLE_CUDASIM)


def require_device() -> None:
    """Refuse to go on without a GPU."""
    if not cuda().is_available():
        reason = " ".join(str(cuda().cuda_error() or "no CUDA device was found").split())
        raise NoDevice(f"device 'cuda': {reason} (device='auto' runs on the CPU where there is no GPU)")
