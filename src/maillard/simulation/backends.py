"""The interface that every simulation backend implements, and the table of backends.

A backend runs trials on one device. The CPU backend is `maillard.simulation.cpu_backend`; the CUDA backend is
`maillard.simulation.cuda.cuda_backend`. Both are modules with the functions of the `Backend` protocol. They
are imported when they are first used, so that a simulation on the CPU needs no CUDA packages.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

from maillard.errors import InvalidValue, MaillardError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from maillard.simulation.plans import Plan
    from maillard.simulation.summary import PartialSummary

CPU, CUDA, AUTO = "cpu", "cuda", "auto"
_MODULES = {CPU: "maillard.simulation.cpu_backend", CUDA: "maillard.simulation.cuda.cuda_backend"}


class NoDevice(MaillardError):
    """No GPU can be used here; the message says what is missing."""


class Stopped(MaillardError):
    """The run was asked to stop."""


@dataclass(frozen=True, eq=False)
class TrialBatch:
    """The results of consecutive trials of one plan."""

    regret: NDArray[np.float64]  # trial x checkpoint
    pulls: NDArray[np.int64]  # trial x arm


class Backend(Protocol):
    """What the runner uses of a backend."""

    @property
    def SERIAL(self) -> bool:  # noqa: N802  # a constant of the module
        """Whether batches run one after the other on one thread, instead of on all workers."""

    def check(self, plan: Plan) -> None:
        """Raise `InvalidValue` if the backend cannot run the plan, and `NoDevice` without its device."""

    def prepare(self, plan: Plan) -> None:
        """Compile the code that the plan needs."""

    def batch_size(self, plan: Plan, trials: int, workers: int) -> int:
        """Return how many trials to run in one call of `run`."""

    def run(
        self, plan: Plan, first: int, count: int, *, summarize: bool, stop: NDArray[np.int64] | None
    ) -> TrialBatch | PartialSummary:
        """Run the trials `first`, ..., `first + count - 1`.

        Raise `Stopped` soon after `stop[0]` becomes 1.
        """

    def device_name(self) -> str:
        """Return the name of the device for provenance."""


def check_device(device: str) -> None:
    """Raise `InvalidValue` unless `device` names a backend or is "auto"."""
    if device not in (*_MODULES, AUTO):
        raise InvalidValue("device", device, " or ".join((*_MODULES, AUTO)))


def backend_for(device: str) -> Backend:
    """Return the backend of a device."""
    return cast("Backend", importlib.import_module(_MODULES[device]))
