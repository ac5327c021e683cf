"""Policies with fixed probabilities, used as targets for evaluation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, ClassVar

import numpy as np

from maillard import specs
from maillard.array_types import Bools, Floats
from maillard.errors import InvalidValue, UnknownName
from maillard.policies.base import Guarantees, Policy, ProbabilityKind, linear_regret
from maillard.policies.base.arm_matrices import exact_sums

_FIXED = linear_regret("immediate: it does not learn")


class _Target(Policy):
    """Base class of policies with fixed probabilities, renormalised over the eligible arms."""

    has_prior: ClassVar[bool] = True
    engine_shape: ClassVar[str | None] = "constant"
    guarantees: ClassVar[Guarantees] = _FIXED

    def constant_probabilities(self, arms: int) -> Floats:
        raise NotImplementedError

    def _solve(self, n: Floats, s: Floats, t: int) -> tuple[Floats, None]:
        with np.errstate(divide="ignore"):
            return np.log(self.constant_probabilities(n.size)), None

    def _solve_arms(
        self, tally: Any, x: Any, mask: Bools | None, t: int, bounds: bool
    ) -> tuple[Floats, Floats | None]:
        if mask is None:
            return super()._solve_arms(tally, x, mask, t, bounds)
        probabilities = self.constant_probabilities(len(tally))[mask]
        total = math.fsum(probabilities)
        if not total > 0:
            raise InvalidValue("eligible", mask.tolist(), f"at least one arm that {self} can choose")
        with np.errstate(divide="ignore"):
            return np.log(probabilities / total), None

    def _solve_many(self, n: Floats, s: Floats, t: Floats, eligible: Bools | None) -> Floats | None:
        probabilities = np.broadcast_to(self.constant_probabilities(len(n))[:, None], n.shape)
        if eligible is None:
            return np.log(probabilities)
        some = np.where(eligible, probabilities, 0.0)
        return np.log(some / exact_sums(some))


class FixedArm(_Target, kw_only=False):
    """Always chooses the same arm, given by position or by name.

    The log or bandit that uses the policy binds a name to a position.

    >>> from maillard import Tally
    >>> FixedArm("blue").bind(["red", "blue"]).probabilities(Tally.empty(2))
    array([0., 1.])
    """

    probability_kind: ClassVar[ProbabilityKind] = "deterministic"
    name: ClassVar[str] = "arm"
    formula: ClassVar[str] = "p = [a is the arm]"
    latex: ClassVar[str] = r"p_a = [a \text{ is the arm}]"
    arm: int | str = field()

    def __post_init__(self) -> None:
        known = isinstance(self.arm, str | int | np.integer) and not isinstance(self.arm, bool)
        if not known or (not isinstance(self.arm, str) and self.arm < 0):
            raise InvalidValue("FixedArm: arm", self.arm, "a name, or a position counted from 0")
        if not isinstance(self.arm, str):
            object.__setattr__(self, "arm", int(self.arm))

    @classmethod
    def from_spec(cls, values: tuple[specs.Value, ...], options: dict[str, specs.Value]) -> FixedArm:
        """Return the policy of a spec such as `arm:blue` or `arm:0`."""
        if len(values) != 1 or options or isinstance(values[0], tuple | float | bool):
            raise InvalidValue("arm", values or options, "one arm, as in arm:blue or arm:0")
        return cls(values[0])

    def spec(self) -> specs.Spec:
        return specs.Spec(self.name, (self.arm,), {})

    def bind(self, arms: Sequence[str]) -> FixedArm:
        if isinstance(self.arm, str):
            return FixedArm(_position(self.arm, arms))
        if str(self.arm) in arms and self.arm != list(arms).index(str(self.arm)):
            name = f"{str(self.arm)!r}"
            allowed = f"arm:{name} or FixedArm({name}): another arm has this name, and a number is a position"
            raise InvalidValue("arm", self.arm, allowed)
        return self

    def _known_probabilities(self) -> dict[str, float]:
        return {str(self.arm): 1.0}

    def _parameter_rows(self) -> list[tuple[str, Any, Any, str, str]]:
        return [("arm", self.arm, None, "the arm that is always chosen", "a name, or a position from 0")]

    def constant_probabilities(self, arms: int) -> Floats:
        if isinstance(self.arm, str):
            raise InvalidValue("FixedArm: arm", self.arm, "a position; call bind(names) to replace the name")
        if self.arm >= arms:
            raise InvalidValue("FixedArm: arm", self.arm, f"a position from 0 to {arms - 1}")
        probabilities: Floats = np.eye(1, arms, self.arm)[0]
        return probabilities


class FixedDistribution(_Target, kw_only=False):
    """Chooses arms with fixed probabilities: a vector, a mapping from names, or an arm x position matrix.

    >>> from maillard import Tally
    >>> target = FixedDistribution({"red": 0.7, "blue": 0.3})
    >>> target.bind(["blue", "red"]).probabilities(Tally.empty(2))
    array([0.3, 0.7])
    """

    probability_kind: ClassVar[ProbabilityKind] = "closed form"
    name: ClassVar[str] = "dist"
    formula: ClassVar[str] = "p as given"
    latex: ClassVar[str] = r"p_a \text{ as given}"
    arm_probabilities: Any = field()

    def __post_init__(self) -> None:
        given = self.arm_probabilities
        # Pairs are the stored form, passed by dataclasses.replace.
        if isinstance(given, Mapping) or _is_pairs(given):
            pairs = sorted((str(name), _check_probability(value)) for name, value in dict(given).items())
            _check_total([value for _, value in pairs], given)
            canonical: object = tuple(pairs)
        else:
            try:
                array = np.asarray(given, np.float64)
            except (TypeError, ValueError, OverflowError):
                raise InvalidValue("FixedDistribution", given, _ALLOWED) from None
            if array.ndim not in (1, 2) or not array.size or not (array >= 0).all():
                raise InvalidValue("FixedDistribution", given, _ALLOWED)
            for column in array.T.reshape(-1, array.shape[0]):
                _check_total(column.tolist(), given)
            canonical = tuple(tuple(x) if isinstance(x, list) else x for x in array.tolist())
        object.__setattr__(self, "arm_probabilities", canonical)

    @classmethod
    def from_spec(cls, values: tuple[specs.Value, ...], options: dict[str, specs.Value]) -> FixedDistribution:
        """Return the policy of a spec such as `dist:red=0.7,blue=0.3` or `dist:0.7,0.3`."""
        if bool(values) == bool(options):
            raise InvalidValue("dist", values, "probabilities, as in dist:red=0.7,blue=0.3 or dist:0.7,0.3")
        return cls(options or values)

    def spec(self) -> specs.Spec:
        if _is_pairs(self.arm_probabilities):
            return specs.Spec(self.name, (), dict(self.arm_probabilities))
        return specs.Spec(self.name, self.arm_probabilities, {})

    def bind(self, arms: Sequence[str]) -> FixedDistribution:
        if not _is_pairs(self.arm_probabilities):
            return self
        probabilities = [0.0] * len(arms)
        for name, value in self.arm_probabilities:
            probabilities[_position(name, arms)] = value
        return FixedDistribution(probabilities)

    def _known_probabilities(self) -> dict[str, float]:
        given = self.arm_probabilities
        if _is_pairs(given):
            return dict(given)
        if isinstance(given[0], tuple):
            raise InvalidValue("FixedDistribution", self, "one probability for each arm, to plot")
        return {str(position): probability for position, probability in enumerate(given)}

    def _parameter_rows(self) -> list[tuple[str, Any, Any, str, str]]:
        if isinstance(self.arm_probabilities[0], tuple) and not _is_pairs(self.arm_probabilities):
            return [("matrix", self.arm_probabilities, None, "probability of each arm x position", _ALLOWED)]
        known = self._known_probabilities().items()
        return [(arm, probability, None, "probability of this arm", _ALLOWED) for arm, probability in known]

    def constant_probabilities(self, arms: int) -> Floats:
        if _is_pairs(self.arm_probabilities):
            allowed = "a vector; call bind(names) to replace names by positions"
            raise InvalidValue("FixedDistribution", dict(self.arm_probabilities), allowed)
        given = np.array(self.arm_probabilities)
        if given.shape != (arms,):
            allowed = f"a vector of {arms} probabilities, one per arm"
            raise InvalidValue("FixedDistribution", given.shape, allowed)
        probabilities: Floats = given / math.fsum(given)
        return probabilities


_ALLOWED = "numbers >= 0 that sum to 1, as a vector, a mapping or each column of an arm x position matrix"


def _is_pairs(value: object) -> bool:
    """Whether this is ((name, probability), ...), the form in which a mapping is stored."""
    return (
        isinstance(value, tuple)
        and bool(value)
        and all(isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str) for pair in value)
    )


def _check_probability(value: object) -> float:
    try:
        probability = float(value)  # type: ignore[arg-type]  # float() reports a wrong type
    except (TypeError, ValueError, OverflowError):
        probability = math.nan
    if not 0 <= probability <= 1:
        raise InvalidValue("FixedDistribution", value, _ALLOWED)
    return probability


def _check_total(values: Sequence[float], given: object) -> None:
    if not abs(math.fsum(values) - 1.0) <= 1e-9:
        raise InvalidValue("FixedDistribution", given, f"{_ALLOWED}; these sum to {math.fsum(values):g}")


def _position(name: str, arms: Sequence[str]) -> int:
    try:
        return list(arms).index(name)
    except ValueError:
        raise UnknownName("arm", name, arms) from None
