"""Tallies of linear models: exact sums over feature rows and rewards.

A linear tally is the whole state of a linear policy. The result does not depend on the order of the rewards,
tallies of several processes merge by addition, and revisions subtract what was added. `Tally` is the special
case of features that are 1 for the chosen arm and 0 elsewhere.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from maillard import feature_grid
from maillard.array_types import Bools, Floats, Ints
from maillard.errors import InvalidValue
from maillard.linear_sums import LinearSums
from maillard.short_reprs import Listing, dataclass_repr, fields_repr
from maillard.tally_display import TallyDisplay, mean_of

_FIELDS = {"features", "arms", "models"}


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class LinearStatistics:
    """The statistics of one linear model as floats: exact values, each rounded once.

    A tally returns the same object until the model changes, and its copies share it. So a policy can use it
    as a key to cache what it derives from the model, such as a factor of the Gram matrix.
    """

    count: int
    "Number of observed rewards."
    gram: Floats
    "Sum of x x', of shape (d, d)."
    feature_sums: Floats
    "Sum of x, of shape (d,)."
    products: Floats
    "Sum of reward times x, of shape (d,)."
    sum: float
    "Sum of the rewards."
    square: float
    "Sum of the squared rewards; infinite if it exceeds the range of floats."

    __repr__ = dataclass_repr


class LinearTally(TallyDisplay):
    """The exact statistics of linear models: one model per arm, or one that all arms share.

    A disjoint tally has one model per arm and one context row per decision:

    >>> tally = LinearTally.empty(features=2, arms=3)
    >>> tally.add([1, 0.5], 1.0, arm=2)
    >>> tally.add([1, -0.25], 0.1, arm=2)
    >>> tally
    LinearTally(features=2, arms=3, counts=[0, 0, 2], sums=[0.0, 0.0, 1.1])
    >>> tally.gram[2].tolist(), tally.products[2].tolist()
    ([[2.0, 0.25], [0.25, 0.3125]], [1.1, 0.475])

    In a shared tally (`arms=None`) each reward comes with the row of the arm that was chosen:

    >>> shared = LinearTally.empty(features=2, arms=None)
    >>> shared.add([0, 1], 1.0)
    >>> shared.counts, shared.round
    (array([1]), 2)

    Features are multiples of 2**-16 from -1 to 1; `LinearTally.to_grid` rounds to them.
    """

    __hash__ = None  # type: ignore[assignment]  # mutable, so not hashable
    __slots__ = ("_arrays", "_models", "_owned", "_statistics", "arms", "features", "round")

    features: int
    "Number of features d (read-only)."
    arms: int | None
    "Number of arms, or None if all arms share one model (read-only)."
    round: int
    "1 + the observed rewards of all models (read-only)."

    to_grid = staticmethod(feature_grid.to_grid)

    def __init__(self, features: int, arms: int | None, models: Sequence[LinearSums]) -> None:
        self.features, self.arms, self._models = features, arms, list(models)
        self.round = 1 + sum(model.count for model in models)
        # Copies share models. A tally changes a model in place only if it owns it.
        self._owned: set[int] = set()
        self._statistics: list[LinearStatistics | None] = [None] * len(models)
        self._arrays: dict[str, NDArray[Any]] = {}

    @classmethod
    def empty(
        cls, features: int, arms: int | None, *, max_features: int = feature_grid.MAX_DIMENSION
    ) -> LinearTally:
        """Return a tally without any rewards, with one model per arm, or one for all arms if `arms` is None.

        A model needs memory in proportion to the square of the number of features, and a policy needs time in
        proportion to its cube, so `max_features` limits it.
        """
        _whole_number("features", features, 1)
        if features > max_features:
            allowed = (
                f"at most {max_features} (max_features), because the cost of a choice grows with its cube"
            )
            raise InvalidValue("features", features, allowed)
        if arms is not None:
            _whole_number("arms", arms, 1, ", or None for a model that all arms share")
        models = [LinearSums.zero(int(features))] * (arms or 1)
        return cls(int(features), None if arms is None else int(arms), models)

    def __len__(self) -> int:
        return len(self._models)

    def add(self, x: ArrayLike, reward: float, arm: int | None = None) -> None:
        """Add one observed reward and the feature row of its decision, in place.

        `arm` is the position of the chosen arm. A shared tally takes none; `x` is the row of the chosen arm.
        """
        position, units, value = self._position(arm), self._row(x), _finite("reward", reward)
        self._change(position).add(units, value)
        self.round += 1

    def revise(self, x: ArrayLike, old: float, new: float, arm: int | None = None) -> None:
        """Replace one observed reward, in place and exactly; `x` is the row that it was added with.

        >>> tally = LinearTally.empty(features=1, arms=None)
        >>> tally.add([0.5], 0.1)
        >>> tally.revise([0.5], 0.1, 1.0)
        >>> tally.products.tolist()
        [[0.5]]
        """
        position, units = self._position(arm), self._row(x)
        before, after = _finite("old", old), _finite("new", new)
        self._change(position).revise(units, before, after)

    def remove(self, x: ArrayLike, reward: float, arm: int | None = None, count: int = 1) -> None:
        """Remove an observed reward and its row, or `count` equal ones, in place and exactly.

        >>> tally = LinearTally.empty(features=1, arms=None)
        >>> tally.add([0.5], 1.0)
        >>> tally.remove([0.5], 1.0)
        >>> tally == LinearTally.empty(features=1, arms=None)
        True
        """
        position, units, value = self._position(arm), self._row(x), _finite("reward", reward)
        _whole_number("count", count, 1)
        self._change(position).remove(units, value, int(count))
        self.round -= count

    def _position(self, arm: int | None) -> int:
        if self.arms is None:
            if arm is not None:
                raise InvalidValue("arm", arm, "None, because all arms share one model: x is the arm's row")
            return 0
        if isinstance(arm, bool) or not isinstance(arm, int | np.integer) or not 0 <= arm < self.arms:
            raise InvalidValue("arm", arm, f"the position of the chosen arm, from 0 to {self.arms - 1}")
        return int(arm)

    def _row(self, x: ArrayLike) -> Ints:
        return feature_grid.grid_units(x, (self.features,))

    def _change(self, position: int) -> LinearSums:
        if position not in self._owned:
            self._models[position] = self._models[position].copy()
            self._owned.add(position)
        self._statistics[position] = None
        self._arrays = {}
        return self._models[position]

    def statistics(self, arm: int | None = None) -> LinearStatistics:
        """Return the statistics of the model of an arm, or of the shared model.

        >>> tally = LinearTally.empty(features=1, arms=2)
        >>> tally.add([0.5], 1.0, arm=1)
        >>> tally.statistics(1).products, [each.count for each in tally.all_statistics()]
        (array([0.5]), [0, 1])
        """
        return self._statistics_at(self._position(arm))

    def all_statistics(self) -> tuple[LinearStatistics, ...]:
        """Return the statistics of each model."""
        return tuple(
            [found or self._statistics_at(position) for position, found in enumerate(self._statistics)]
        )

    def _statistics_at(self, position: int) -> LinearStatistics:
        found = self._statistics[position]
        if found is None:
            found = self._statistics[position] = LinearStatistics(**self._models[position].rounded())
        return found

    def _stacked(self, name: str, read: Callable[[LinearStatistics], Any]) -> NDArray[Any]:
        found = self._arrays.get(name)
        if found is None:
            found = np.array([read(model) for model in self.all_statistics()])
            found.flags.writeable = False
            self._arrays[name] = found
        return found

    @property
    def counts(self) -> Ints:
        """Number of observed rewards of each model."""
        return self._stacked("counts", lambda model: model.count)

    @property
    def cold(self) -> Bools:
        """Whether each model has no rewards yet."""
        return self._stacked("cold", lambda model: model.count == 0)

    @property
    def gram(self) -> Floats:
        """Sum of x x' of each model, of shape (models, d, d)."""
        return self._stacked("gram", lambda model: model.gram)

    @property
    def feature_sums(self) -> Floats:
        """Sum of x of each model, of shape (models, d)."""
        return self._stacked("feature_sums", lambda model: model.feature_sums)

    @property
    def products(self) -> Floats:
        """Sum of reward times x of each model, of shape (models, d)."""
        return self._stacked("products", lambda model: model.products)

    @property
    def sums(self) -> Floats:
        """Sum of the rewards of each model."""
        return self._stacked("sums", lambda model: model.sum)

    @property
    def squares(self) -> Floats:
        """Sum of the squared rewards of each model; infinite where it exceeds the range of floats."""
        return self._stacked("squares", lambda model: model.square)

    def only(self, arm: int) -> LinearTally:
        """Return the disjoint tally of one arm.

        >>> tally = LinearTally.empty(features=1, arms=2)
        >>> tally.add([0.5], 1.0, arm=1)
        >>> tally.only(1).sums
        array([1.])
        """
        single = LinearTally(self.features, 1, [self._models[self._position(arm)]])
        self._owned = set()
        return single

    @classmethod
    def joined(cls, parts: Sequence[LinearTally]) -> LinearTally:
        """Concatenate the arms of several disjoint tallies, for example to add an arm.

        >>> one = LinearTally.empty(features=2, arms=1)
        >>> LinearTally.joined([one, LinearTally.empty(features=2, arms=1)])
        LinearTally(features=2, arms=2, counts=[0, 0], sums=[0.0, 0.0])
        """
        models: list[LinearSums] = []
        for part in parts:
            if part.arms is None or part.features != parts[0].features:
                raise InvalidValue("parts", part, f"disjoint tallies of {parts[0].features} features")
            models += part._models
            part._owned = set()
        if not models:
            raise InvalidValue("parts", parts, "at least one tally")
        return cls(parts[0].features, len(models), models)

    def spread(self, positions: Ints, features: int) -> LinearTally:
        """Return the tally with its features at these positions among more features, all others 0.

        That is the tally of the same rewards whose rows have zeros in the new columns:

        >>> tally = LinearTally.empty(features=1, arms=None)
        >>> tally.add([0.5], 1.0)
        >>> tally.spread(np.array([1]), 2).products.tolist()
        [[0.0, 0.5]]
        """
        if len(positions) != self.features or features < self.features:
            raise InvalidValue("positions", positions, f"{self.features} positions among {features} features")
        models = [model.spread(positions, features) for model in self._models]
        return LinearTally(features, self.arms, models)

    def __add__(self, other: LinearTally) -> LinearTally:
        if not isinstance(other, LinearTally):
            return NotImplemented
        if (self.features, self.arms) != (other.features, other.arms):
            allowed = f"a tally with features={self.features} and arms={self.arms}, like the first"
            raise InvalidValue("tally", other, allowed)
        models = [mine.plus(theirs) for mine, theirs in zip(self._models, other._models, strict=True)]
        self._owned, other._owned = set(), set()
        return LinearTally(self.features, self.arms, models)

    def copy(self) -> LinearTally:
        """Return an independent tally with the same content. Models are copied when they change."""
        copied = LinearTally(self.features, self.arms, self._models)
        copied._statistics, copied._arrays = list(self._statistics), self._arrays
        self._owned = set()
        return copied

    __copy__ = copy

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LinearTally):
            return NotImplemented
        return (
            (self.features, self.arms) == (other.features, other.arms)
            and self.round == other.round
            and all(mine == theirs for mine, theirs in zip(self._models, other._models, strict=True))
        )

    def __repr__(self) -> str:
        shown = self._models[:200]  # more than fit into a line
        counts = Listing([repr(model.count) for model in shown], len(self))
        sums = Listing([repr(model.rounded_sum()) for model in shown], len(self))
        fields = [("features", self.features), ("arms", self.arms), ("counts", counts), ("sums", sums)]
        return fields_repr("LinearTally", fields, what="arms")

    def _columns(self) -> dict[str, list[Any]]:
        counts, sums = (
            [model.count for model in self._models],
            [model.rounded_sum() for model in self._models],
        )
        names: list[Any] = ["all"] if self.arms is None else list(range(self.arms))
        means = list(map(mean_of, sums, counts))
        return {"arm": names, "pulls": counts, "sum": sums, "mean": means}

    def to_json(self) -> str:
        """Return JSON from which `from_json` restores an equal tally; equal tallies have equal JSON.

        Sums of features are whole multiples of 2**-16, entries of the Gram matrix (its upper triangle) of
        2**-32. Sums with rewards are hexadecimal integers of any length, `sum` in multiples of 2**-`scale`.

        >>> tally = LinearTally.empty(features=1, arms=None)
        >>> tally.add([0.5], 0.75)
        >>> print(tally.to_json())  # doctest: +NORMALIZE_WHITESPACE
        {"features": 1, "arms": null, "models": [{"count": 1, "gram": [1073741824], "feature_sums": [32768],
         "scale": 2, "products": ["0x18000"], "sum": "0x3", "square": "0x9"}]}
        """
        models = [model.to_data() for model in self._models]
        return json.dumps({"features": self.features, "arms": self.arms, "models": models})

    @classmethod
    def from_json(cls, text: str | bytes) -> LinearTally:
        """Return the tally that `to_json` wrote.

        >>> tally = LinearTally.empty(features=1, arms=2)
        >>> tally.add([0.5], 1.0, arm=1)
        >>> LinearTally.from_json(tally.to_json()) == tally.copy()
        True
        """
        try:
            data = json.loads(text)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidValue("tally", text, f"valid JSON ({error})") from None
        if not isinstance(data, dict) or set(data) != _FIELDS:
            raise InvalidValue("tally", data, 'an object with "features", "arms" and "models"')
        features, arms, models = data["features"], data["arms"], data["models"]
        _whole_number("features", features, 1)
        if arms is not None:
            _whole_number("arms", arms, 1, ", or null for a model that all arms share")
        if not isinstance(models, list) or len(models) != (arms or 1):
            raise InvalidValue("models", models, f"a list of {arms or 1} models")
        return cls(features, arms, [LinearSums.from_data(model, features) for model in models])


def _whole_number(field: str, value: object, least: int, more: str = "") -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise InvalidValue(field, value, f"a whole number >= {least}{more}")


def _finite(field: str, value: object) -> float:
    try:
        number = math.nan if isinstance(value, str | bytes) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise InvalidValue(field, value, "a finite number")
    return number
