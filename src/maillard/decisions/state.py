"""The state of an experiment after some of its events, and the distribution that it chooses arms from."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from maillard.decisions.context_data import read_statistics, rule_from_data, write_statistics
from maillard.decisions.context_rules import ContextTally
from maillard.decisions.encoded_contexts import Encoded, decode, encode, read_row
from maillard.decisions.event_payloads import read_tally, write_tally
from maillard.decisions.events import AdministrativeEvent, Start
from maillard.decisions.experiment_configuration import Configuration
from maillard.decisions.raw_contexts import NO_CONTEXT, RawContext
from maillard.decisions.reward_rule import Reward
from maillard.errors import InvalidLog, InvalidValue, UnknownName
from maillard.policies import Distribution, Policy, policy
from maillard.policies.base.arm_matrices import FEW_ARMS
from maillard.segment_tally import SegmentTally
from maillard.tally import Tally

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from maillard.decisions.events import Event, TallyUpdate

_MAX_CACHED_SEGMENTS = 1_000
_MAX_CACHED_DISTRIBUTIONS = 64  # sets of eligible arms, or contexts, per state
# The fields that a saved state holds as they are.
_PLAIN_FIELDS = ("number", "administrative", "sticky", "policy_version", "epoch", "paused", "archived")
# Fields that are missing in states of earlier versions, with their values there.
_LATER_FIELDS: dict[str, Any] = {"seeded": False, "simulated_clock": False, "pruned": 0, "feature_version": 0}


@dataclass(frozen=True, slots=True, eq=False)
class ChoiceDistribution:
    """The distribution of a choice: logarithms of probabilities for the log, and their sums for sampling."""

    arms: tuple[str, ...]
    log_probabilities: tuple[float, ...]
    cold: tuple[bool, ...]
    "Whether each arm has no observed rewards."
    _cumulative: list[float]
    encoded: bytes | None = None
    "The feature rows or the segment that it was computed from."

    @property
    def probabilities(self) -> NDArray[np.float64]:
        """The probability of each arm."""
        return np.exp(self.log_probabilities)

    def sample(self, rng: np.random.Generator, size: int) -> list[int]:
        """Sample positions of arms independently: as policies do, but faster for a few numbers than NumPy."""
        cumulative, total = self._cumulative, self._cumulative[-1]
        last = bisect_left(cumulative, total)
        uniforms = [rng.random()] if size == 1 else rng.random(size).tolist()  # no slow array
        return [min(bisect_right(cumulative, uniform * total), last) for uniform in uniforms]


@dataclass(frozen=True, eq=False, kw_only=True)
class State(Configuration):
    """The state of an experiment after event `number`. It is immutable; `after` returns a later state."""

    number: int
    "The number of the last event."
    administrative: int
    "The number of the last administrative event."
    policy: Policy
    tally: Tally
    "The rewards of each arm; of all arms together if they differ at every decision."
    statistics: ContextTally | None = None
    "The rewards with their contexts, which the policy uses in place of the tally; None without."
    # Positions of arms in the tally; states with the same arms share them.
    _positions: dict[str, int] = field(default_factory=dict, repr=False)
    # The policy whose names of arms were replaced by positions; shared in the same way.
    _bound: list[Policy] = field(default_factory=list, repr=False)
    # The mask of all arms, if none is retired; shared in the same way.
    _every: list[NDArray[np.bool_]] = field(default_factory=list, repr=False)
    # Distributions of segments, each with the tally that it was computed from; shared in the same way.
    _segments: dict[Any, tuple[Tally | None, ChoiceDistribution]] = field(default_factory=dict, repr=False)
    _distributions: dict[Any, ChoiceDistribution] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if not self._positions:
            self._positions.update({arm: position for position, arm in enumerate(self.arms)})

    def after(self, events: Sequence[Event]) -> State:
        """The state after these further events, whose numbers must follow without a gap."""
        state, number, tally, statistics = self, self.number, None, None
        for event in events:
            if event.number != number + 1:
                raise InvalidLog("event number", event.number, f"{number + 1}, the next in a gapless order")
            number += 1
            if isinstance(event, AdministrativeEvent):
                if tally is not None:
                    state = replace(state, tally=tally, statistics=statistics)
                state, tally = state._after_change(event), None
                continue
            if tally is None:
                tally = state.tally.copy()
                statistics = None if state.statistics is None else state.statistics.copy()
            position = 0 if state.dynamic else state._positions.get(event.arm)
            if position is None:
                raise InvalidLog("arm", event.arm, "an arm of the experiment")
            if event.kind == "revision":
                assert event.previous is not None
                tally.revise(position, event.previous, event.value)
            else:
                tally.add(position, event.value)
            if statistics is not None:
                state._update_statistics(statistics, position, event)
        return state if tally is None else replace(state, number=number, tally=tally, statistics=statistics)

    def _update_statistics(self, statistics: ContextTally, position: int, event: TallyUpdate) -> None:
        assert self.context is not None  # otherwise there are no statistics
        if event.row is None:
            raise InvalidLog("row", None, "the feature row or the segment of the decision")
        self.context.update(statistics, position, read_row(event.row), event.value, event.previous)

    def _after_change(self, event: AdministrativeEvent) -> State:
        after = event.configure(self)
        made = self.policy if after.spec == self.spec else policy(after.spec)
        return replace(
            after,
            number=event.number,
            administrative=event.number,
            policy=made,
            tally=event.update_tally(self.tally, after),
            statistics=event.update_statistics(self.statistics, after),
            _positions={},
            _bound=[],
            _every=[],
            _segments={},
        )

    def choice_distribution(
        self, eligible: frozenset[str] | None = None, raw: RawContext = NO_CONTEXT
    ) -> ChoiceDistribution:
        """The distribution of a choice among the eligible arms, by default all that are not retired.

        `raw` is the context, which matters only if the experiment uses contexts.
        """
        rule = self.context
        if raw.actions is not None and not self.dynamic:
            allowed = "None: only an experiment without arms, with a shared model, takes actions"
            raise InvalidValue("actions", list(raw.actions), allowed)
        key: Any = eligible if rule is None else (eligible, raw.text, raw.actions_text)
        found = self._distributions.get(key)
        if found is not None:
            return found
        found = self._solve(self.mask(eligible), None) if rule is None else self._solve_context(eligible, raw)
        if len(self._distributions) >= _MAX_CACHED_DISTRIBUTIONS:
            self._distributions.clear()
        self._distributions[key] = found
        return found

    def _solve_context(self, eligible: frozenset[str] | None, raw: RawContext) -> ChoiceDistribution:
        mask = self._mask_of_context(eligible, raw)
        arms = tuple(raw.actions or ()) if mask is None else self._eligible_arms(mask)
        assert self.context is not None  # the caller has seen it
        assert self.statistics is not None  # because there is a rule
        encoded = self.context.encode(raw, arms, self.statistics)
        return self._solve_encoded(mask, encoded, arms)

    def _solve_encoded(
        self, mask: NDArray[np.bool_] | None, encoded: Encoded, arms: tuple[str, ...]
    ) -> ChoiceDistribution:
        """The distribution given feature rows or a segment; known for a segment without new rewards."""
        if not isinstance(encoded, tuple) or not isinstance(self.statistics, SegmentTally):
            return self._solve(mask, encoded, arms)
        # A tally is replaced when it changes.
        key, tally = (arms, encoded), self.statistics.segments.get(encoded)
        found = self._segments.get(key)
        if found is None or found[0] is not tally:
            if len(self._segments) >= _MAX_CACHED_SEGMENTS:
                self._segments.clear()
            found = self._segments[key] = tally, self._solve(mask, encoded, arms)
        return found[1]

    def _mask_of_context(self, eligible: frozenset[str] | None, raw: RawContext) -> NDArray[np.bool_] | None:
        if not self.dynamic:
            return self.mask(eligible)
        if raw.actions is None:
            allowed = "a mapping from the name of each arm to its features: this experiment has no fixed arms"
            raise InvalidValue("actions", None, allowed)
        if eligible is not None:
            raise InvalidValue("eligible", sorted(eligible), "None: all actions are eligible")
        return None

    def _eligible_arms(self, mask: NDArray[np.bool_]) -> tuple[str, ...]:
        return self.arms if self._has_all(mask) else tuple(itertools.compress(self.arms, mask.tolist()))

    def _has_all(self, mask: NDArray[np.bool_]) -> bool:
        return (self._every and mask is self._every[0]) or bool(mask.all())

    def choice_from(self, eligible: tuple[str, ...], encoded: bytes | None) -> ChoiceDistribution:
        """The distribution of a choice among these arms, given what it was computed from."""
        mask = None if self.dynamic else self._mask_of(eligible)
        if encoded is None:
            return self._solve(mask, None, eligible)
        return self._solve_encoded(mask, decode(encoded), eligible)

    def _mask_of(self, eligible: tuple[str, ...]) -> NDArray[np.bool_]:
        return self.mask(None if eligible == self.arms and all(self.active) else frozenset(eligible))

    def _solve(
        self, mask: NDArray[np.bool_] | None, encoded: Encoded | None, arms: tuple[str, ...] = ()
    ) -> ChoiceDistribution:
        """The distribution over the arms of the mask, or over `arms` if every decision has its own."""
        chosen = arms if mask is None else self._eligible_arms(mask)
        inputs, cold = self._policy_input(mask, encoded, len(chosen))
        log = self._bound_policy().log_probabilities(**inputs)
        if mask is not None and len(chosen) < mask.size:
            log, cold = log[mask], cold[mask]
        logs: list[float] = log.tolist()
        if len(logs) <= FEW_ARMS:
            cumulative = list(itertools.accumulate(map(math.exp, logs)))
        else:
            cumulative = np.exp(log).cumsum().tolist()
        row = None if encoded is None else encode(encoded)
        return ChoiceDistribution(chosen, tuple(logs), tuple(cold.tolist()), cumulative, row)

    def _policy_input(
        self, mask: NDArray[np.bool_] | None, encoded: Encoded | None, eligible: int
    ) -> tuple[dict[str, Any], NDArray[np.bool_]]:
        """The arguments of the policy, and whether each arm is cold."""
        if mask is not None and self._has_all(mask):
            mask = None
        if self.context is None:
            return {"tally": self.tally, "eligible": mask}, self.tally.pulls == 0
        if encoded is None or self.statistics is None:
            raise InvalidValue("encoded", encoded, "the feature rows or the segment of the decision")
        x, mask = self.context.policy_input(encoded, eligible, mask)
        cold = self.context.cold(self.statistics, x)
        return {"tally": self.statistics, "x": x, "eligible": mask}, cold

    def _bound_policy(self) -> Policy:
        if not self._bound:
            self._bound.append(self.policy if self.dynamic else self.policy.bind(self.arms))
        return self._bound[0]

    def check_policy(self) -> None:
        """Raise an error if the policy cannot choose in this state."""
        if self.context is None:
            self.choice_distribution()
            return
        mask = None if self.dynamic else self.mask(None)
        if mask is not None and mask.all():
            mask = None
        x = self.context.example(len(self.arms))
        self._bound_policy().log_probabilities(self.statistics, x, eligible=mask)  # type: ignore[arg-type]

    def distribution(self, eligible: tuple[str, ...], encoded: bytes | None = None) -> Distribution:
        """The log probabilities of the eligible arms, with a bound on the numerical error of each."""
        mask = None if self.dynamic else self.mask(frozenset(eligible))
        content = None if encoded is None else decode(encoded)
        inputs, _ = self._policy_input(mask, content, len(eligible))
        whole = self._bound_policy().distribution(**inputs)
        if mask is None:
            return whole
        return Distribution(whole.log_probabilities[mask], whole.error[mask])

    def mask(self, eligible: frozenset[str] | None) -> NDArray[np.bool_]:
        """Whether each arm may be chosen."""
        if eligible is None and all(self.active):
            if not self._every:
                self._every.append(np.ones(len(self.arms), np.bool_))
            return self._every[0]
        mask = np.array(self.active)
        if eligible is not None:
            for arm in eligible.difference(self.active_arms):
                if arm not in self.arms:
                    raise UnknownName("eligible arm", arm, self.active_arms)
                raise InvalidValue("eligible", arm, "arms that are not retired")
            mask &= [arm in eligible for arm in self.arms]
        if not mask.any():
            raise InvalidValue("eligible", sorted(eligible or ()), "at least one arm that is not retired")
        return mask

    def write(self) -> str:
        """The whole state as JSON, for `read`."""
        plain = {name: getattr(self, name) for name in (*_PLAIN_FIELDS, *_LATER_FIELDS)}
        if self.context is None:
            del plain["feature_version"]
        return json.dumps({**plain, "reward": dataclasses.asdict(self.reward), **self.snapshot()})

    @classmethod
    def read(cls, text: str) -> State:
        """Parse the state that `write` wrote."""
        data: dict[str, Any] = json.loads(text)
        return cls(
            tuple(data["arms"]),
            tuple(data["active"]),
            data["policy"],
            Reward.from_fields(data["reward"]),
            policy=policy(data["policy"]),
            tally=read_tally(data["tally"]),
            context=rule_from_data(data.get("context")),
            statistics=read_statistics(data.get("statistics")),
            **{name: data[name] for name in _PLAIN_FIELDS},
            **{name: data.get(name, default) for name, default in _LATER_FIELDS.items()},
        )

    def snapshot(self) -> dict[str, Any]:
        """The arms, policy and tally, and the use of contexts, if any, as plain data for `restore`."""
        plain = {
            "arms": list(self.arms),
            "active": list(self.active),
            "policy": str(self.policy),
            "formula": self.policy.formula_version,
            "tally": write_tally(self.tally),
        }
        if self.context is None or self.statistics is None:
            return plain
        return {**plain, "context": self.context.to_data(), "statistics": write_statistics(self.statistics)}


def replay(events: Sequence[Event]) -> State:
    """The state after all of these events, which begin with the start of the experiment."""
    start = events[0] if events else None
    if not isinstance(start, Start) or start.number != 1:
        raise InvalidLog("events", start, "the start of the experiment as event 1")
    first, made = start.configuration(), policy(start.policy)
    tally, statistics = first.empty_tally(), first.empty_statistics()
    state = State(**vars(first), number=1, administrative=1, policy=made, tally=tally, statistics=statistics)
    return state.after(events[1:])
