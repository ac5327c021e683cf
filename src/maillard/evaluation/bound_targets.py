"""What is evaluated: a law over the arms of a log that does not learn, or the difference of two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from maillard import specs
from maillard.errors import InvalidValue
from maillard.policies import Policy, Uniform, WithFloor, policy, policy_class
from maillard.policies import names as known_names
from maillard.policies.targets import FixedArm, FixedDistribution

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Target", "bind", "by_place"]

_LONG = 160  # characters of a name, in reports


@dataclass(frozen=True, eq=False)
class Target:
    """A law over K arms for each of P positions; P is 1 where the law does not depend on the position."""

    name: str
    laws: NDArray[np.float64]
    "P x K. Of a difference, each row adds up to 0."

    @property
    def positions(self) -> int:
        """Of how many positions it has a law."""
        return len(self.laws)

    @property
    def size(self) -> float:
        """Σ π², of the position where it is largest: 1 for a single arm, 1 / K for the uniform law."""
        return float((self.laws**2).sum(axis=1).max())

    def __sub__(self, other: Target) -> Target:
        if self.laws.shape[1] != other.laws.shape[1] or 1 < self.positions != other.positions > 1:
            raise InvalidValue(
                "targets", (self.laws.shape, other.laws.shape), "two over the same arms and positions"
            )
        return Target(f"{self.name} - {other.name}", self.laws - other.laws)


def by_place(target: str | Policy | Target) -> bool:
    """Whether a target means arms by their places and not by their names."""
    if isinstance(target, str):
        target = (
            policy(target)
            if policy_class(specs.read(target).name) in (FixedArm, FixedDistribution)
            else Uniform()
        )
    inner = target.policy if isinstance(target, WithFloor) else target
    if isinstance(inner, FixedArm):
        return not isinstance(inner.arm, str)
    if not isinstance(inner, FixedDistribution):
        return False
    return not any(
        isinstance(share, tuple) and isinstance(share[0], str) for share in inner.arm_probabilities
    )


def bind(target: str | Policy | Target, arms: Sequence[str]) -> Target:
    """A target over the arms of a log.

    >>> bind("dist:red=0.7,blue=0.3", ["blue", "green", "red"]).laws
    array([[0.3, 0. , 0.7]])
    """
    if isinstance(target, Target):
        return target
    if isinstance(target, str):
        if target in arms and target not in known_names():
            raise InvalidValue("target", target, f"arm:{target}, if the arm of that name is meant")
        cls = policy_class(specs.read(target).name)
        if not issubclass(cls, Uniform | FixedArm | FixedDistribution):
            raise _learns(target)
    made = policy(target) if isinstance(target, str) else target
    if not isinstance(made, Policy):
        raise InvalidValue("target", target, "a target, as in arm:blue, uniform or dist:red=0.7,blue=0.3")
    bound = made.bind(arms)
    if isinstance(bound, FixedDistribution) and np.ndim(bound.arm_probabilities) == 2:
        laws = np.array(bound.arm_probabilities, np.float64).T
        if laws.shape[1] != len(arms):
            raise InvalidValue(
                f"target {made.name}", laws.shape[::-1], f"a matrix of {len(arms)} arms x positions"
            )
        name = f"dist over {laws.shape[1]} arms x {len(laws)} positions"
        return Target(name, laws / laws.sum(axis=1, keepdims=True))
    name = target if isinstance(target, str) else str(made)
    return Target(name if len(name) <= _LONG else name[: _LONG - 1] + "…", _law(bound, len(arms))[np.newaxis])


def _law(target: Policy, arms: int) -> NDArray[np.float64]:
    """The law of a target that does not learn."""
    inner = target.policy if isinstance(target, WithFloor) else target
    law = np.full(arms, 1.0 / arms) if isinstance(inner, Uniform) else inner.constant_probabilities(arms)
    sinks = isinstance(target, WithFloor) and target.decay > 0
    if law is None or not abs(law.sum() - 1.0) < 1e-9 or sinks:
        raise _learns(str(target))
    if inner is target or isinstance(inner, Uniform):
        return law
    return target.constant_probabilities(arms)  # type: ignore[return-value]  # a floor's


def _learns(spec: str) -> InvalidValue:
    allowed = (
        "a target that does not learn: an arm, uniform or a fixed distribution. For the learning curve of a policy use "
        f"maillard.replay(log, {spec!r}), or maillard replay LOG --policy {spec}"
    )
    return InvalidValue("target", spec, allowed)
