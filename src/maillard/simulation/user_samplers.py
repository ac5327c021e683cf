"""The samplers of `Custom` problems, as engines call them.

A sampler that numba compiled runs inside the compiled loop. A vectorised one fills a block of rewards for an
arm whenever the arm has none left. Any other one is called from the loop in every round. No exception can
pass through compiled code: the loop ends when it gets a reward that is NaN, and `raise_error` says why.
"""

from __future__ import annotations

import ctypes
import functools
import math
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import types
from numba.core.dispatcher import Dispatcher

from maillard.errors import InvalidValue
from maillard.problems import Custom, Problem, codes
from maillard.simulation.engines.reward_sampling import BAD_ARM, BAD_REWARD, FILLED, HIGH, LOW
from maillard.simulation.numba_errors import reason_of
from maillard.simulation.sampler_calls import C_SAMPLER, compile_sampler

if TYPE_CHECKING:
    from maillard.array_types import Floats

_FIRST_BLOCK, _MAX_BLOCK, _MAX_REWARDS = 16, 1024, 1 << 22  # rewards; the last in the blocks of all arms
_LARGEST = sys.float_info.max
_ATTEMPTS = 1000  # calls of a compiled sampler that returned NaN, to find the exception that it raised


class NoSampler:
    """Stands for the sampler of a problem that has none."""

    code: int | None = None  # of the reward distribution, if it differs from the problem's
    address = 0
    values: Floats = np.zeros((0, 0))
    ends: Floats = np.zeros((0, 0))
    one_trial_per_call = False

    def start_trial(self, rng: np.random.Generator) -> None:
        """Take the generator of the next trial."""

    def raise_error(self) -> None:
        """Raise the error because of which a loop ended, if there is one."""


class PythonSampler(NoSampler):
    """A Python function as a C callback, with the generator of the current trial."""

    one_trial_per_call = True

    def __init__(self, problem: Custom) -> None:
        self.problem = problem
        self.rng: Any = None
        self.error: BaseException | None = None
        low, high = problem.limits
        self.least, self.most = max(low, -_LARGEST), min(high, _LARGEST)  # infinity is no reward
        self._callback = C_SAMPLER(self.make_callback())
        self.address = ctypes.cast(self._callback, ctypes.c_void_p).value or 0

    def make_callback(self) -> Callable[[int | None, int], float]:
        """Return a function that samples a reward of an arm, and returns NaN after an exception."""
        sampler, least, most = self.problem.sampler, self.least, self.most

        def sample(_generator: int | None, arm: int) -> float:
            try:
                given = sampler(self.rng, arm)
                try:
                    reward = float(given)
                except (TypeError, ValueError):
                    reward = math.nan
                if least <= reward <= most:
                    return reward
                self.error = self.error or invalid_reward(self.problem, arm, given)
            except BaseException as error:  # noqa: BLE001  # compiled code cannot pass it on
                self.error = self.error or error
            return math.nan

        return sample

    def start_trial(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def raise_error(self) -> None:
        if self.error:
            raise self.error


class BlockSampler(PythonSampler):
    """A vectorised Python function: fills a block of rewards of an arm, twice as long as the one before."""

    code = codes.OWN_BLOCKS

    def __init__(self, problem: Custom) -> None:
        self.longest = max(1, min(_MAX_BLOCK, _MAX_REWARDS // problem.arms))
        self.values, self.ends = np.empty((problem.arms, self.longest)), np.zeros((problem.arms, 2))
        super().__init__(problem)

    def start_trial(self, rng: np.random.Generator) -> None:
        super().start_trial(rng)
        self.ends[:] = 0.0

    def make_callback(self) -> Callable[[int | None, int], float]:
        def fill(_generator: int | None, arm: int) -> float:
            try:
                size = min(max(2 * int(self.ends[arm, FILLED]), _FIRST_BLOCK), self.longest)
                self.values[arm, :size] = self._checked(self.problem.sampler(self.rng, arm, size), arm, size)
                self.ends[arm] = 0, size
            except BaseException as error:  # noqa: BLE001  # compiled code cannot pass it on
                self.error = self.error or error
                return math.nan
            return 0.0

        return fill

    def _checked(self, given: Any, arm: int, size: int) -> Floats:
        where, allowed = f"sampler's rewards for arm {arm} and size {size}", f"an array of {size} numbers"
        try:
            rewards = np.asarray(given, np.float64)
        except (TypeError, ValueError):
            raise InvalidValue(where, given, allowed) from None
        if rewards.shape != (size,):
            raise InvalidValue(where, f"an array of shape {rewards.shape}", allowed)
        valid = (rewards >= self.least) & (rewards <= self.most)
        if not valid.all():
            raise invalid_reward(self.problem, arm, float(rewards[np.argmin(valid)]))
        return rewards


class CompiledSampler(NoSampler):
    """A function that numba compiled, called inside the compiled loop with the generator of each trial."""

    code = codes.OWN_COMPILED

    def __init__(self, problem: Custom) -> None:
        self.problem, self.address = problem, compiled_function(problem.sampler).address
        # A reward is within the limits if it is within these; both are finite.
        self.values, self.ends = np.zeros((1, 2)), np.zeros((1, 2))
        low, high = problem.limits
        self.values[0, LOW], self.values[0, HIGH] = max(low, -_LARGEST), min(high, _LARGEST)
        self.ends[0, BAD_ARM] = -1.0

    def start_trial(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def raise_error(self) -> None:
        arm, reward = int(self.ends[0, BAD_ARM]), float(self.ends[0, BAD_REWARD])
        if arm < 0:
            return
        if math.isnan(reward):  # or an exception, which compiled code hides: a call from Python raises it
            for _ in range(_ATTEMPTS):
                self.problem.sampler(self.rng, arm)
        raise invalid_reward(self.problem, arm, reward)


def invalid_reward(problem: Custom, arm: int, given: object) -> InvalidValue:
    """Return the error of a sampler whose reward is not a finite number within the limits."""
    low, high = problem.limits
    return InvalidValue(f"sampler's reward for arm {arm}", given, f"a finite number from {low:g} to {high:g}")


@functools.lru_cache(maxsize=64)
def compiled_function(sampler: Any) -> Any:
    """Return a sampler that numba compiled as a C function; `address` is its address."""
    arguments = (types.npy_rng, types.int64)
    try:
        sampler.compile(arguments)
        returned = sampler.overloads[arguments].signature.return_type
    # Numba raises many types: the function of a user may contain anything.
    except Exception as error:
        allowed = (
            f"a function that numba compiles for (Generator, int), but: {reason_of(error)}. "
            "Without @njit, it runs as Python"
        )
        raise InvalidValue("sampler", sampler.__name__, allowed) from error
    if not isinstance(returned, types.Float | types.Integer | types.Boolean):
        allowed = f"a function that returns one number, but it returns {returned}"
        raise InvalidValue("sampler", sampler.__name__, allowed)
    return compile_sampler(sampler)


def is_compiled(problem: Custom) -> bool:
    """Return whether the loop calls the sampler without Python."""
    return isinstance(problem.sampler, Dispatcher) and not problem.is_vectorised


def sampler_of(problem: Problem, *, in_python: bool) -> NoSampler:
    """Return the sampler of a problem for a compiled loop, or for one that runs in Python."""
    if not isinstance(problem, Custom):
        return NoSampler()
    if problem.is_vectorised:
        return BlockSampler(problem)
    return CompiledSampler(problem) if is_compiled(problem) and not in_python else PythonSampler(problem)
