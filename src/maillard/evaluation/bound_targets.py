"""Targets of an evaluation: fixed distributions over the arms of a log, and differences of two of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from maillard import specs
from maillard.errors import InvalidLog, InvalidValue
from maillard.policies import Policy, Uniform, WithFloor, policy, policy_class
from maillard.policies import names as known_names
from maillard.policies.targets import FixedArm, FixedDistribution

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from maillard.array_types import Bools, Ints
    from maillard.decisions.columns import Columns
    from maillard.evaluation.evaluation_log import EvaluationLog
    from maillard.evaluation.settings import Settings

AnyTarget: TypeAlias = "str | Policy | Target | Callable[..., Any]"
_MAX_NAME_LENGTH = 160
_MAX_DIGITS = 18  # Python refuses to read thousands of digits
_FROZEN, _LOGGED = "frozen:", "logged"


@dataclass(frozen=True, eq=False)
class Target:
    """A distribution over K arms for each of P positions; P is 1 if it does not depend on the position."""

    name: str
    probabilities: NDArray[np.float64]
    "P x K. Each row of a difference adds up to 0."
    first_position: int = 0
    "The position in the log to which the first row belongs."
    reward_model: NDArray[np.float64] | None = None
    "The reward that a model predicts for each position and arm, P x K."

    @property
    def positions(self) -> int:
        """The number of positions."""
        return len(self.probabilities)

    @property
    def contextual(self) -> bool:
        """Whether the distribution depends on the context, the state or the eligible arms of a row."""
        return False

    @property
    def summarises(self) -> bool:
        """Whether `probabilities` are only bounds on the distributions, because each row has its own."""
        return False

    @property
    def parts(self) -> tuple[Target, ...]:
        """The targets of which this is the difference; itself, if it is none."""
        return (self,)

    def selects(self, columns: Columns) -> tuple[str, Bools] | None:  # noqa: ARG002  # subclasses use it
        """Why rows are left out, and which rows are not; None if none is."""
        return None

    def rows_of(self, columns: Columns, source: str) -> tuple[NDArray[np.float64], Ints]:
        """A table of distributions, and the place of each row in it; -1 if the target cannot choose there."""
        count, first = self.positions, self.first_position
        if count == 1:
            return self.probabilities, np.zeros(len(columns), np.int64)
        row = columns.position - first
        if len(columns) and not 0 <= row.min() <= row.max() < count:
            at = int(((row < 0) | (row >= count)).argmax())
            allowed = f"one of the target's {count} positions, from {first} on"
            raise InvalidLog(f"{source}, row {columns.row[at]}: position", int(columns.position[at]), allowed)
        return self.probabilities, row

    @property
    def concentration(self) -> float:
        """Σ π² of the most concentrated position: 1 for a single arm, 1 / K for the uniform distribution."""
        return float((self.probabilities**2).sum(axis=1).max())

    @property
    def chosen_arms(self) -> NDArray[np.bool_]:
        """Which arms the target can choose in some position."""
        return np.asarray((self.probabilities != 0).any(axis=0))

    @property
    def is_difference(self) -> bool:
        """Whether it is the difference of two targets."""
        return bool((self.probabilities < 0).any())

    @property
    def only_arm(self) -> int | None:
        """The index of the target's arm, if it has only one."""
        places = np.flatnonzero(self.chosen_arms)
        return int(places[0]) if places.size == 1 else None

    def __sub__(self, other: Target) -> Target:
        if self.contextual or other.contextual:
            from maillard.evaluation.contextual_targets import DifferenceTarget

            return DifferenceTarget.of(self, other)
        mine, others = self.probabilities, other.probabilities
        if mine.shape[1] != others.shape[1] or 1 < self.positions != other.positions > 1:
            raise InvalidValue("targets", (mine.shape, others.shape), "two over the same arms and positions")
        first = max(self, other, key=lambda each: each.positions).first_position
        return Target(f"{self.name} - {other.name}", mine - others, first)


def bind_to_log(target: AnyTarget, log: EvaluationLog, settings: Settings) -> Target:
    """The target over the arms of a log, with its first position and the reward model."""
    if log.action_names is not None:
        from maillard.evaluation.action_targets import bind_to_actions

        if settings.reward_model is not None:
            allowed = "None, because the arms differ at every decision; give features= instead"
            raise InvalidValue("reward_model", settings.reward_model, allowed)
        return bind_to_actions(target, log)
    bound = _bind_to_rows(target, log)
    if bound is not None:
        return replace(bound, reward_model=_reward_model(settings.reward_model, bound, log.arms))
    assert isinstance(target, str | Policy | Target)
    if log.arms_unordered and by_place(target):
        names = ", ".join(log.arms[:20])
        raise InvalidValue("target", str(target), f"names of arms: the arms {names} have no meaningful order")
    if log.arms_unordered and not isinstance(settings.reward_model, Mapping | None):
        raise InvalidValue("reward_model", settings.reward_model, "a dictionary of numbers by arm name, here")
    bound = bind(target, log.arms)
    return replace(
        bound,
        first_position=_first_position(bound, log, settings.first_position),
        reward_model=_reward_model(settings.reward_model, bound, log.arms),
    )


def _bind_to_rows(  # noqa: PLR0911  # one for each kind
    target: AnyTarget, log: EvaluationLog
) -> Target | None:
    """A target whose distribution depends on the row; None if it is another one."""
    from maillard.evaluation import contextual_targets as kinds
    from maillard.evaluation import linear_rules
    from maillard.evaluation.rules import PREFIX

    spec = target.strip() if isinstance(target, str) else ""
    if spec.startswith(PREFIX):
        made = kinds.RuleTarget.of(spec, log.arms)
        log.require_keys(made.rule.keys)
        return made
    if spec.startswith(linear_rules.PREFIX):
        log.require_contexts()
        return kinds.LinearRuleTarget.of(spec, log.arms)
    if spec.startswith(_FROZEN):
        return kinds.FrozenTarget.at_state(state_number(spec.removeprefix(_FROZEN)), log)
    if spec == _LOGGED:
        return kinds.LoggedTarget.of(log)
    if isinstance(target, kinds.ContextualTarget):
        return target
    if callable(target) and not isinstance(target, Policy | Target):
        return kinds.FunctionTarget.of(target, log)
    return None


def shortened(name: str) -> str:
    """The name of a target, as reports show it."""
    return name if len(name) <= _MAX_NAME_LENGTH else name[: _MAX_NAME_LENGTH - 1] + "…"


def state_number(text: str) -> int:
    """The number of a state in a target such as frozen:12000."""
    number = counting_number(text)
    if number is None:
        raise InvalidValue("target", _FROZEN + text, "the number of a state, as in frozen:12000")
    return number


def counting_number(text: str) -> int | None:
    """A whole number >= 1 in a spec; None if the text is something else."""
    digits = text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS
    return int(text) or None if digits else None


def _first_position(target: Target, log: EvaluationLog, given: int | None) -> int:
    """Whether the log numbers its slots (`position`) from 0 or from 1."""
    if target.positions == 1 or given is not None:
        return given or 0
    found = log.positions
    if 0 in found and max(found) > 0:
        return 0
    if found and max(found) == target.positions:
        return 1
    begin = f"positions that begin at 0 or at 1, for {target.positions} columns"
    allowed = f"{begin}; if unclear, give first_position="
    raise InvalidLog(f"{log.source}: position", sorted(found)[:10], allowed)


def _reward_model(model: Any, target: Target, arms: Sequence[str]) -> NDArray[np.float64] | None:
    """The predicted rewards, P x K."""
    if model is None:
        return None
    allowed = "a number for each arm: by name, in order, or arms x positions"
    if isinstance(model, Mapping):
        if any(arm not in model for arm in arms) or len(model) != len(arms):
            names = sorted(map(str, model))
            raise InvalidValue("reward_model", names, f"a number for each of {', '.join(arms)}")
        model = [model[arm] for arm in arms]
    try:
        array = np.asarray(model, np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InvalidValue("reward_model", model, allowed) from None
    array = array[np.newaxis] if array.ndim == 1 else array.T
    shapes = [(1, len(arms)), (target.positions, len(arms))]
    if array.shape not in shapes or not np.isfinite(array).all():
        raise InvalidValue("reward_model", array.T.shape, allowed)
    if target.contextual:  # the same for every distribution of the table
        return np.ascontiguousarray(array)
    return np.ascontiguousarray(np.broadcast_to(array, target.probabilities.shape))


def by_place(target: str | Policy | Target) -> bool:
    """Whether a target names arms by index instead of by name."""
    if isinstance(target, str):
        fixed = policy_class(specs.read(target).name) in (FixedArm, FixedDistribution)
        target = policy(target) if fixed else Uniform()
    inner = target.policy if isinstance(target, WithFloor) else target
    if isinstance(inner, FixedArm):
        return not isinstance(inner.arm, str)
    if not isinstance(inner, FixedDistribution):
        return False
    return not any(isinstance(pair, tuple) and isinstance(pair[0], str) for pair in inner.arm_probabilities)


def bind(target: str | Policy | Target, arms: Sequence[str]) -> Target:
    """The target over these arms.

    >>> bind("dist:red=0.7,blue=0.3", ["blue", "green", "red"]).probabilities
    array([[0.3, 0. , 0.7]])
    """
    if isinstance(target, Target):
        return target
    if isinstance(target, str) and target.strip().startswith("rule:"):
        from maillard.evaluation.contextual_targets import RuleTarget

        return RuleTarget.of(target, arms)
    if isinstance(target, str):
        if target in arms and target not in known_names():
            raise InvalidValue("target", target, f"arm:{target}, if the arm of that name is meant")
        cls = policy_class(specs.read(target).name)
        if not issubclass(cls, Uniform | FixedArm | FixedDistribution):
            raise _not_fixed(target)
    made = policy(target) if isinstance(target, str) else target
    if not isinstance(made, Policy):
        allowed = (
            "a target, as in arm:blue, uniform, dist:red=0.7,blue=0.3 or rule:device=phone->blue,else->red"
        )
        raise InvalidValue("target", target, allowed)
    bound = made.bind(arms)
    if isinstance(bound, FixedDistribution) and np.ndim(bound.arm_probabilities) == 2:
        matrix = np.array(bound.arm_probabilities, np.float64).T
        if matrix.shape[1] != len(arms):
            allowed = f"a matrix of {len(arms)} arms x positions"
            raise InvalidValue(f"target {made.name}", matrix.shape[::-1], allowed)
        name = f"dist over {matrix.shape[1]} arms x {len(matrix)} positions"
        return Target(name, matrix / matrix.sum(axis=1, keepdims=True))
    name = shortened(target if isinstance(target, str) else str(made))
    return Target(name, _fixed_probabilities(bound, len(arms))[np.newaxis])


def _fixed_probabilities(target: Policy, arms: int) -> NDArray[np.float64]:
    """The distribution of a target that does not learn."""
    inner = target.policy if isinstance(target, WithFloor) else target
    probabilities = inner.constant_probabilities(arms)
    if isinstance(inner, Uniform):
        probabilities = np.full(arms, 1.0 / arms)
    decays = isinstance(target, WithFloor) and target.decay > 0
    if probabilities is None or not abs(probabilities.sum() - 1.0) < 1e-9 or decays:
        raise _not_fixed(str(target))
    if inner is target or isinstance(inner, Uniform):
        return probabilities
    return target.constant_probabilities(arms)  # type: ignore[return-value]  # it has a floor


def _not_fixed(spec: str) -> InvalidValue:
    allowed = (
        "a target that does not learn: an arm, uniform, a fixed distribution, a rule (rule:...), or the "
        "policy of the log in each row (logged) or at one of its states (frozen:12000). "
        f"For the learning curve of a policy use maillard.replay(log, {spec!r}), "
        f"or maillard replay LOG --policy {spec}"
    )
    return InvalidValue("target", spec, allowed)
