"""A mixture of problems without contexts: one for each segment of visitors."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np

from maillard import specs
from maillard.errors import InvalidValue
from maillard.problems.contextual_problem import DISJOINT, ContextBlock, ContextualProblem, block_sizes
from maillard.problems.custom_problem import Custom
from maillard.problems.problem import Problem, RewardDistribution, numbers


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Segmented(ContextualProblem):
    """Each round comes from one of several segments, and each segment is a problem of its own.

    `problems` maps the name of a segment to its problem or spec. They have the same number of arms and the
    same type of rewards. `weights` are the probabilities of the segments (equal by default), as a mapping or
    in the order of `problems`. Linear policies see one feature per segment: 1 for the segment of the round.

    >>> visitors = Segmented({"phone": "bernoulli:0.1,0.2", "desktop": "bernoulli:0.2,0.1"}, weights=[3, 1])
    >>> str(visitors)
    "segmented:desktop='bernoulli:0.2,0.1',phone='bernoulli:0.1,0.2',weights=0.25/0.75"
    """

    problems: Any
    weights: Any = ()
    name: ClassVar[str] = "segmented"
    model: ClassVar[Any] = DISJOINT

    def __post_init__(self) -> None:
        super().__post_init__()
        from maillard.problems import problem

        if not isinstance(self.problems, Mapping) or not self.problems:
            raise InvalidValue(
                "problems", self.problems, "a mapping from segments to problems or their specs"
            )
        made = {str(name): problem(each) for name, each in self.problems.items()}
        weights = self._weights(list(made))
        first = next(iter(made.values()))
        for name, each in made.items():
            _check_part(f"problems[{name!r}]", each, first)
        names = sorted(made)
        self._set("problems", {name: made[name] for name in names})
        self._set("weights", tuple(weights[name] for name in names))

    def _weights(self, names: list[str]) -> dict[str, float]:
        given = self.weights
        if isinstance(given, Mapping):
            if set(given) != set(names):
                raise InvalidValue("weights", given, "a number for each of " + ", ".join(names))
            given = [given[name] for name in names]
        if not np.size(given):
            given = [1.0] * len(names)
        values = numbers("weights", given, least=0.0)
        if len(values) != len(names) or not sum(values) > 0.0:
            raise InvalidValue("weights", self.weights, f"{len(names)} numbers >= 0, one per segment")
        return {name: value / sum(values) for name, value in zip(names, values, strict=True)}

    @property
    def segments(self) -> tuple[str, ...]:
        return tuple(self.problems)

    @property
    def arms(self) -> int:
        return int(self._parts[0].arms)

    @property
    def _parts(self) -> list[Problem]:
        return list(self.problems.values())

    def _values(self) -> tuple[Any, ...]:
        return tuple(self.problems.items()), self.weights

    @property
    def dim(self) -> int:
        """The number of segments."""
        return len(self.segments)

    @property
    def binary(self) -> bool:  # type: ignore[override]  # the same
        return all(each.binary for each in self._parts)

    @property
    def positive(self) -> bool:
        return all(each.positive for each in self._parts)

    @property
    def support(self) -> tuple[float, float]:
        lows, highs = zip(*(each.support for each in self._parts), strict=True)
        return min(lows), max(highs)

    @property
    def sigma2(self) -> float | None:
        known = [each.sigma2 for each in self._parts if each.sigma2 is not None]
        return max(known) if len(known) == len(self.problems) else None

    def contexts(self, rng: np.random.Generator, horizon: int) -> Iterator[ContextBlock]:
        means = np.array([each.true_means for each in self._parts])
        parts = [each.reward_distribution() for each in self._parts]
        arrays = (np.concatenate(each) for each in zip(*(part[1:] for part in parts), strict=True))
        rewards, rows = RewardDistribution(parts[0].code, *arrays), np.eye(len(parts))
        ends = np.cumsum(self.weights)
        ends[ends >= ends[-1]] = np.inf  # the last possible segment takes the rounding error
        for rounds in block_sizes(horizon, 1):
            which = np.searchsorted(ends, rng.random(rounds), side="right")
            yield ContextBlock(rows, which, means, rewards, which, which)

    def spec(self) -> specs.Spec:
        parts: dict[str, Any] = {name: str(each) for name, each in self.problems.items()}
        return specs.Spec(self.name, (), {**parts, "weights": self.weights})


def _check_part(where: str, part: Problem, first: Problem) -> None:
    """Raise an error for a problem that cannot be mixed with the first one."""
    if part.contextual or isinstance(part, Custom) or part.churn:
        raise InvalidValue(where, str(part), "a problem with fixed arms and no contexts or own sampler")
    if part.is_delayed or part.threshold is not None:
        raise InvalidValue(where, str(part), "a problem without delay and threshold")
    if part.arms != first.arms:
        raise InvalidValue(where, str(part), f"{first.arms} arms, as in the other segments")
    mine, others = part.reward_distribution(), first.reward_distribution()
    if mine.code != others.code or mine.values.shape != others.values.shape:
        raise InvalidValue(where, str(part), f"a {first.name} problem, as in the other segments")
