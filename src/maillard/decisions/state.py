"""The state of an experiment after some of its events, and the distribution that it chooses arms from."""

from __future__ import annotations

import dataclasses
import itertools
import json
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from maillard.decisions.event_payloads import read_tally, write_tally
from maillard.decisions.events import AdministrativeEvent, Configuration, Start
from maillard.decisions.reward_rule import Reward
from maillard.errors import InvalidLog, InvalidValue, UnknownName
from maillard.policies import Distribution, Policy, policy
from maillard.tally import Tally

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from maillard.decisions.events import Event

_MAX_CACHED_DISTRIBUTIONS = 64  # sets of eligible arms, per state
# The fields that a saved state holds as they are.
_PLAIN_FIELDS = ("number", "administrative", "sticky", "policy_version", "epoch", "paused", "archived")
# Fields that are missing in states of earlier versions, with their values there.
_LATER_FIELDS: dict[str, Any] = {"seeded": False, "simulated_clock": False, "pruned": 0}


@dataclass(frozen=True, slots=True, eq=False)
class ChoiceDistribution:
    """The distribution of a choice: `probabilities` for sampling, and their logarithms for the log."""

    arms: tuple[str, ...]
    log_probabilities: tuple[float, ...]
    probabilities: NDArray[np.float64]
    cold: tuple[bool, ...]
    "Whether each arm has no observed rewards."
    _cumulative: list[float]

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
    # Positions of arms in the tally; states with the same arms share them.
    _positions: dict[str, int] = field(default_factory=dict, repr=False)
    _distributions: dict[frozenset[str] | None, ChoiceDistribution] = field(
        default_factory=dict, init=False, repr=False
    )

    def __post_init__(self) -> None:
        if not self._positions:
            self._positions.update({arm: position for position, arm in enumerate(self.arms)})

    def after(self, events: Sequence[Event]) -> State:
        """The state after these further events, whose numbers must follow without a gap."""
        state, number, tally = self, self.number, None
        for event in events:
            if event.number != number + 1:
                raise InvalidLog("event number", event.number, f"{number + 1}, the next in a gapless order")
            number += 1
            if isinstance(event, AdministrativeEvent):
                state, tally = state._after_change(event, state.tally if tally is None else tally), None
                continue
            tally = state.tally.copy() if tally is None else tally
            position = state._positions.get(event.arm)
            if position is None:
                raise InvalidLog("arm", event.arm, "an arm of the experiment")
            if event.kind == "revision":
                assert event.previous is not None
                tally.revise(position, event.previous, event.value)
            else:
                tally.add(position, event.value)
        return state if tally is None else replace(state, number=number, tally=tally)

    def _after_change(self, event: AdministrativeEvent, tally: Tally) -> State:
        after = event.configure(self)
        made = self.policy if after.spec == self.spec else policy(after.spec)
        number, tally = event.number, event.update_tally(tally, after)
        return replace(after, number=number, administrative=number, policy=made, tally=tally, _positions={})

    def choice_distribution(self, eligible: frozenset[str] | None = None) -> ChoiceDistribution:
        """The distribution of a choice among the eligible arms, by default all that are not retired."""
        found = self._distributions.get(eligible)
        if found is not None:
            return found
        mask, arms, cold = self.mask(eligible), self.arms, self.tally.pulls == 0
        bound = self.policy.bind(arms)
        if mask.all():
            log = bound.log_probabilities(self.tally)
        else:
            arms = tuple(itertools.compress(arms, mask.tolist()))
            log, cold = bound.log_probabilities(self.tally, eligible=mask)[mask], cold[mask]
        p = np.exp(log)
        found = ChoiceDistribution(arms, tuple(log.tolist()), p, tuple(cold.tolist()), p.cumsum().tolist())
        if len(self._distributions) < _MAX_CACHED_DISTRIBUTIONS:
            self._distributions[eligible] = found
        return found

    def distribution(self, eligible: frozenset[str]) -> Distribution:
        """The log probabilities of the eligible arms, with a bound on the numerical error of each."""
        mask = self.mask(eligible)
        bound = self.policy.bind(self.arms)
        whole = bound.distribution(self.tally, eligible=None if mask.all() else mask)
        return Distribution(whole.log_probabilities[mask], whole.error[mask])

    def mask(self, eligible: frozenset[str] | None) -> NDArray[np.bool_]:
        """Whether each arm may be chosen."""
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
            **{name: data[name] for name in _PLAIN_FIELDS},
            **{name: data.get(name, default) for name, default in _LATER_FIELDS.items()},
        )

    def snapshot(self) -> dict[str, Any]:
        """The arms, policy and tally as plain data, for `restore`."""
        return {
            "arms": list(self.arms),
            "active": list(self.active),
            "policy": str(self.policy),
            "formula": self.policy.formula_version,
            "tally": write_tally(self.tally),
        }


def replay(events: Sequence[Event]) -> State:
    """The state after all of these events, which begin with the start of the experiment."""
    start = events[0] if events else None
    if not isinstance(start, Start) or start.number != 1:
        raise InvalidLog("events", start, "the start of the experiment as event 1")
    first, tally = start.configuration(), Tally.empty(len(start.arms))
    state = State(**vars(first), number=1, administrative=1, policy=policy(start.policy), tally=tally)
    return state.after(events[1:])
