"""The base class of problems with contexts, and the blocks of rounds that simulations read."""

from __future__ import annotations

import dataclasses
import math
import zlib
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

import numpy as np

from maillard.array_types import Floats, Ints
from maillard.errors import InvalidValue
from maillard.feature_grid import MAX_DIMENSION, to_grid
from maillard.problems.problem import Problem, RewardDistribution
from maillard.short_reprs import fields_repr

MODELS = DISJOINT, SHARED = ("disjoint", "shared")
_CELLS, _ROUNDS = 1 << 17, 1024  # the most numbers and rounds of a block


class ContextBlock(NamedTuple):
    """The contexts and reward distributions of consecutive rounds.

    Tables are separate from the numbers of their rows in each round, so that rounds can share rows.

    >>> import numpy as np
    >>> from maillard.problems import problem
    >>> found = problem("linear:arms=3,dim=4")
    >>> (block,) = found.contexts(np.random.default_rng(1), horizon=10)
    >>> block.rows[block.row].shape, block.means[block.mean].shape
    ((10, 4), (10, 3))
    """

    rows: Floats
    "Encoded features: one row per context (m, d), or one row for each arm of a context (m, K, d)."
    row: Ints
    "The context of each round."
    means: Floats
    "Mean rewards of all arms (m, K)."
    rewards: RewardDistribution
    "The reward distribution of each arm of each row of `means`: K consecutive numbers per row."
    mean: Ints
    "The row of `means` of each round."
    segment: Ints
    "The segment of each round: a position in the problem's `segments`, or 0."

    def __repr__(self) -> str:
        return fields_repr("ContextBlock", self._asdict().items())


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ContextualProblem(Problem):
    """Mean rewards depend on a context that is drawn in every round. Regret is against its best arm.

    A subclass defines `contexts` and the fields or properties `arms`, `dim` and `model`. With a disjoint
    model a context has one feature row; with a shared model it has one for each arm.

    >>> import numpy as np
    >>> from maillard.problems import problem
    >>> found = problem("linear:arms=3,dim=4")
    >>> found.arms, found.dim, found.model
    (3, 4, 'disjoint')
    >>> sum(len(block.row) for block in found.contexts(np.random.default_rng(1), horizon=100))
    100
    """

    contextual: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.is_delayed:
            raise InvalidValue("delay", str(self.delay), "None: rewards of contexts are observed at once")
        if self.threshold is not None:
            raise InvalidValue("threshold", self.threshold, "None: the means depend on the context")

    @property
    def dim(self) -> int:
        """The number of features."""
        raise NotImplementedError

    @property
    def model(self) -> str:
        """Whether the arms have "disjoint" coefficients or "shared" ones, with a feature row for each arm."""
        raise NotImplementedError

    @property
    def segments(self) -> tuple[str, ...]:
        """The names of the segments; empty without segments."""
        return ()

    @property
    def shared(self) -> bool:
        """Whether each arm has its own feature row and all arms share one model."""
        return self.model == SHARED

    @property
    def true_means(self) -> Floats:
        """Raise an error: there is no single mean of an arm."""
        raise InvalidValue("problem", str(self)[:60], "a problem without contexts, as in bernoulli:0.1,0.05")

    @property
    def centre(self) -> float:
        """The estimate without data of policies that are given by name; the midpoint of the rewards."""
        low, high = self.support
        return 0.5 * low + 0.5 * high if math.isfinite(high - low) else 0.0

    def contexts(self, rng: np.random.Generator, horizon: int) -> Iterator[ContextBlock]:
        """Yield the contexts of one trial, in blocks of consecutive rounds that add up to the horizon."""
        raise NotImplementedError

    def reward_distribution(self) -> RewardDistribution:
        """Raise an error: the distribution depends on the context."""
        raise InvalidValue("problem", str(self)[:60], "a problem without contexts, as in bernoulli:0.1,0.05")

    def _values(self) -> tuple[Any, ...]:
        fields = (each.name for each in dataclasses.fields(self) if each.compare)
        return tuple(_comparable(getattr(self, name)) for name in fields)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._values() == other._values()

    def __hash__(self) -> int:
        return hash((type(self), self._values()))


def _comparable(value: Any) -> Any:
    return (value.shape, value.dtype.str, value.tobytes()) if isinstance(value, np.ndarray) else value


def block_sizes(horizon: int, cells: int) -> Iterator[int]:
    """Yield the numbers of rounds of consecutive blocks, given the numbers that a round generates."""
    most = max(1, min(_ROUNDS, _CELLS // max(cells, 1)))
    for start in range(0, horizon, most):
        yield min(most, horizon - start)


def check_dimension(name: str, value: Any) -> int:
    """Check a number of features."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 1 <= value <= MAX_DIMENSION:
        allowed = (
            f"a whole number from 1 to {MAX_DIMENSION}, because the cost of a round grows with its square"
        )
        raise InvalidValue(name, value, allowed)
    return int(value)


def checked_rows(name: str, given: Any, bound: float | None, shapes: tuple[str, ...]) -> Floats:
    """Return rows of features, divided by the bound; refuse others than numbers from -1 to 1.

    `shapes` are the shapes that are allowed, such as "contexts x features".
    """
    allowed = "an array of numbers: " + ", or ".join(shapes)
    try:
        rows = np.array(given, np.float64)
    except (TypeError, ValueError):
        raise InvalidValue(name, given, allowed) from None
    if rows.ndim not in [1 + each.count(" x ") for each in shapes] or not rows.size:
        raise InvalidValue(f"{name}: shape", rows.shape, allowed)
    check_dimension(f"{name}: number of features", rows.shape[-1])
    largest = 1.0 if bound is None else bound
    bad = ~(np.abs(rows) <= largest)
    if bad.any():
        place = tuple(int(i) for i in np.unravel_index(int(np.argmax(bad)), bad.shape))
        where = name + "".join(f"[{i}]" for i in place)
        allowed = f"a number from {-largest:g} to {largest:g}"
        if bound is None:
            allowed += "; otherwise pass bound=, the largest absolute value, and rows are divided by it"
        raise InvalidValue(where, float(rows[place]), allowed)
    rows = rows / largest
    rows.flags.writeable = False
    return rows


def encoded(rows: Floats) -> Floats:
    """Return rows as contextual policies see them: rounded to multiples of 2**-16."""
    return to_grid(rows)


def digest(*arrays: Any) -> str:
    """Return a short fingerprint of data, for provenance."""
    total = 0
    for each in arrays:
        array = np.ascontiguousarray(each)
        total = zlib.crc32(f"{array.dtype.str}{array.shape}".encode() + array.tobytes(), total)
    return f"{total:08x}"
