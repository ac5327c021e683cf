"""A log is looked at before it is read: what it can be evaluated with, and what is asked of its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from maillard.errors import CannotAnswer, InvalidLog, InvalidValue
from maillard.evaluation.bound_targets import Target, bind, by_place
from maillard.evaluation.estimators.additive import Additive
from maillard.evaluation.evaluation_log import Opened
from maillard.evaluation.log_sums import Asked, kinds_of
from maillard.evaluation.promised_floors import shares_of
from maillard.evaluation.query import Settings
from maillard.evaluation.sequential.sequential_runner import NEEDS_LAWS, SEQUENCES, Follower
from maillard.evaluation.weighted_rows import Question
from maillard.policies import Policy

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Looked", "look"]


@dataclass(frozen=True, eq=False)
class Looked:
    """A log of which the first rows have been looked at: what there is to be evaluated with."""

    opened: Opened
    settings: Settings
    laws: bool
    "Whether the log has the probability of every arm."
    shares: NDArray[np.float64] | None
    "The least probability of each arm, by design."
    centre: float
    "The mean of the first rewards."

    @property
    def by_unit(self) -> bool:
        """Whether the rows of a unit are taken to depend on each other."""
        return self.settings.cluster == "unit" or self.opened.sticky

    def bind(self, target: str | Policy | Target) -> Target:
        """A target over the log's arms, by name where their order says nothing."""
        if self.opened.arms_unordered and by_place(target):
            allowed = f"names of arms: {', '.join(self.opened.arms[:20])} have no order but that in which they were met"
            raise InvalidValue("target", str(target), allowed)
        if self.opened.arms_unordered and not isinstance(self.settings.reward_model, Mapping | None):
            raise InvalidValue(
                "reward_model", self.settings.reward_model, "numbers by the names of arms, here"
            )
        return bind(target, self.opened.arms)

    @cached_property
    def positions(self) -> set[int]:
        """All that the log has: a reading of its own."""
        return {int(each) for some in self.opened.columns() for each in np.unique(some.position)}

    def _first_position(self, target: Target) -> int:
        """Whether the log counts positions from 0 or from 1, where that matters."""
        given = self.settings.first_position
        if target.positions == 1 or given is not None:
            return given or 0
        found = self.positions
        if 0 in found and max(found) > 0:
            return 0
        if found and max(found) == target.positions:
            return 1
        allowed = f"positions of which it is clear whether they begin at 0 or at 1, for {target.positions} columns; first_position= says it"
        raise InvalidLog(f"{self.opened.source}: position", sorted(found)[:10], allowed)

    def question(self, target: Target) -> Question:
        """What is asked of every row, of one target."""
        return Question(
            target=target,
            first_position=self._first_position(target),
            model=_model(self.settings.reward_model, target, self.opened.arms),
            by_unit=self.by_unit,
            centre=self.centre,
            ends=self.opened.reward_range or (0.0, 1.0),
        )

    def asked(self, targets: Sequence[Target], estimators: Sequence[Additive] = ()) -> Asked:
        """What is to be added up."""
        opened = self.opened
        return Asked(
            questions=tuple(map(self.question, targets)),
            estimators=kinds_of(estimators),
            source=opened.source,
            arms=opened.arms,
            foreign=opened.foreign,
            requires_closed_windows=opened.requires_closed_windows,
            reward_range=opened.reward_range,
        )

    def largest(self, target: Target) -> float | None:
        """The largest weight that there can be, by design."""
        return (
            None if self.shares is None else float((np.abs(target.laws) / self.shares).max()) * (1.0 + 1e-9)
        )

    def check(self, target: Target, weight: float, *, units: bool) -> None:
        """That the log keeps what is said of it: the floor, and that its rows are somebody's."""
        most = self.largest(target)
        if most is not None and weight > most:
            allowed = f"what the floor allows: weights of at most {most:.6g}"
            raise InvalidLog(f"{self.opened.source}: largest weight", weight, allowed)
        if self.settings.cluster == "unit" and not units:
            raise InvalidLog(f"{self.opened.source}: unit", None, "units, to cluster by")

    def follower(self, target: Target, names: Sequence[str], forms: Sequence[Additive] = ()) -> Follower:
        """Whoever follows the rows for those of the named estimators that can do with what the log has."""
        opened = self.opened

        def able(name: str) -> bool:
            ranged = opened.reward_range is not None or name not in SEQUENCES
            return ranged and (self.laws or name not in NEEDS_LAWS)

        return Follower(
            [name for name in names if able(name)],
            arms=len(opened.arms),
            horizon=opened.size,
            alpha=1.0 - self.settings.confidence,
            reward_range=opened.reward_range,
            largest=self.largest(target),
            decay=max(opened.decay or 0.0, 0.7),
            forms=forms if self.settings.adaptive is not False and opened.reward_range is not None else (),
        )


def look(opened: Opened, settings: Settings) -> Looked:
    """Look at an opened log; an error where it is empty."""
    first = next(iter(opened.columns()), None)
    if first is None or not opened.size:
        raise CannotAnswer(f"{opened.source} is empty: an evaluation needs at least one decision")
    some = first.reward[np.isfinite(first.reward)]
    centre = float(some.mean()) if some.size else 0.0
    shares = opened.shares if settings.floor is None else shares_of(settings.floor, len(opened.arms))
    return Looked(opened, settings, first.has_all_probabilities, shares, centre)


def _model(model: Any, target: Target, arms: Sequence[str]) -> NDArray[np.float64] | None:
    """What each arm is believed to give: P x K."""
    if model is None:
        return None
    allowed = "a number for each arm: by name, in order, or arms x positions"
    if isinstance(model, Mapping):
        missing = [arm for arm in arms if arm not in model]
        if missing or len(model) != len(arms):
            raise InvalidValue(
                "reward_model", sorted(map(str, model)), f"a number for each of {', '.join(arms)}"
            )
        model = [model[arm] for arm in arms]
    try:
        array = np.asarray(model, np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InvalidValue("reward_model", model, allowed) from None
    array = array[np.newaxis] if array.ndim == 1 else array.T
    if (
        array.ndim != 2
        or array.shape[1] != len(arms)
        or len(array) not in (1, target.positions)
        or not np.isfinite(array).all()
    ):
        raise InvalidValue("reward_model", array.T.shape, allowed)
    return np.ascontiguousarray(np.broadcast_to(array, target.laws.shape))
