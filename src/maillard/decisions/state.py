"""The state of an experiment after some of its events, and the distribution that it chooses arms from."""

from __future__ import annotations

import dataclasses
import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from maillard.decisions.events import (
    AdministrativeEvent,
    Configuration,
    Event,
    Start,
    read_tally,
    write_tally,
)
from maillard.decisions.reward_rule import Reward
from maillard.errors import InvalidLog, InvalidValue, UnknownName
from maillard.policies import Distribution, Policy, policy
from maillard.tally import Tally

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MAX_CACHED_DISTRIBUTIONS = 64  # sets of eligible arms, per state


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
        return [min(bisect_right(cumulative, uniform * total), last) for uniform in rng.random(size).tolist()]


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """The state of an experiment after event `number`. It is immutable; `after` returns a later state."""

    number: int
    "The number of the last event."
    administrative: int
    "The number of the last administrative event."
    configuration: Configuration
    policy: Policy
    tally: Tally
    _positions: Mapping[str, int] = field(repr=False)
    _distributions: dict[frozenset[str] | None, ChoiceDistribution] = field(default_factory=dict, repr=False)

    def after(self, events: Sequence[Event]) -> State:
        """The state after these further events, whose numbers must follow without a gap."""
        state, number, tally = self, self.number, None
        for event in events:
            if event.number != number + 1:
                raise InvalidLog("event number", event.number, f"{number + 1}, the next in a gapless order")
            number += 1
            if isinstance(event, AdministrativeEvent):
                state = state._after_change(event, state.tally if tally is None else tally)
                tally = None
                continue
            tally = state.tally.copy() if tally is None else tally
            try:
                position = state._positions[event.arm]
            except KeyError:
                raise InvalidLog("arm", event.arm, "an arm of the experiment") from None
            if event.kind == "revision":
                assert event.previous is not None
                tally.revise(position, event.previous, event.value)
            else:
                tally.add(position, event.value)
        if tally is None:
            return state
        return State(number, state.administrative, state.configuration, state.policy, tally, state._positions)

    def _after_change(self, event: AdministrativeEvent, tally: Tally) -> State:
        configuration = event.configure(self.configuration)
        changed = configuration.policy != self.configuration.policy
        return State(
            event.number,
            event.number,
            configuration,
            policy(configuration.policy) if changed else self.policy,
            event.update_tally(tally, configuration),
            {arm: position for position, arm in enumerate(configuration.arms)},
        )

    def choice_distribution(self, eligible: frozenset[str] | None = None) -> ChoiceDistribution:
        """The distribution of a choice among the eligible arms, by default all that are not retired."""
        found = self._distributions.get(eligible)
        if found is None:
            found = self._compute_distribution(self.mask(eligible))
            if len(self._distributions) < _MAX_CACHED_DISTRIBUTIONS:
                self._distributions[eligible] = found
        return found

    def _compute_distribution(self, mask: NDArray[np.bool_]) -> ChoiceDistribution:
        arms, cold = self.arms, self.tally.pulls == 0
        bound = self.policy.bind(arms)
        if mask.all():
            log = bound.log_probabilities(self.tally)
        else:
            arms = tuple(arm for arm, use in zip(arms, mask.tolist(), strict=True) if use)
            log, cold = bound.log_probabilities(self.tally, eligible=mask)[mask], cold[mask]
        p = np.exp(log)
        return ChoiceDistribution(arms, tuple(log.tolist()), p, tuple(cold.tolist()), p.cumsum().tolist())

    def distribution(self, eligible: frozenset[str]) -> Distribution:
        """The log probabilities of the eligible arms, with a bound on the numerical error of each."""
        mask = self.mask(eligible)
        bound = self.policy.bind(self.arms)
        whole = bound.distribution(self.tally, eligible=None if mask.all() else mask)
        return Distribution(whole.log_probabilities[mask], whole.error[mask])

    def allowed(self, eligible: frozenset[str] | None) -> set[str]:
        """The arms that may be chosen, as a set of names."""
        return {arm for arm, use in zip(self.arms, self.mask(eligible).tolist(), strict=True) if use}

    def mask(self, eligible: frozenset[str] | None) -> NDArray[np.bool_]:
        """Whether each arm may be chosen."""
        mask = np.array(self.active)
        if eligible is not None:
            mask &= [arm in eligible for arm in self.arms]
            for arm in eligible - {arm for arm, use in zip(self.arms, mask.tolist(), strict=True) if use}:
                if arm not in self.arms:
                    raise UnknownName("eligible arm", arm, self.active_arms)
                raise InvalidValue("eligible", arm, "arms that are not retired")
        if not mask.any():
            raise InvalidValue("eligible", sorted(eligible or ()), "at least one arm that is not retired")
        return mask

    @property
    def arms(self) -> tuple[str, ...]:
        """All arms, including retired ones, in the order of the tally."""
        return self.configuration.arms

    @property
    def active(self) -> tuple[bool, ...]:
        """Whether each arm is not retired."""
        return self.configuration.active

    @property
    def active_arms(self) -> list[str]:
        """The arms that are not retired."""
        return self.configuration.active_arms

    @property
    def policy_version(self) -> int:
        """The version of the policy, counted from 1."""
        return self.configuration.policy_version

    @property
    def epoch(self) -> int:
        """The epoch, counted from 1."""
        return self.configuration.epoch

    @property
    def paused(self) -> bool:
        """Whether the experiment makes no decisions."""
        return self.configuration.paused

    @property
    def archived(self) -> bool:
        """Whether the experiment makes no decisions and accepts no changes."""
        return self.configuration.archived

    @property
    def reward(self) -> Reward:
        """The reward rule."""
        return self.configuration.reward

    @property
    def sticky(self) -> bool:
        """Whether a unit keeps its arm."""
        return self.configuration.sticky

    def check(self) -> State:
        """Return the state if its policy can choose in it; otherwise raise the policy's error."""
        self.choice_distribution()
        return self

    def write(self) -> str:
        """The whole state as JSON, for `read`."""
        numbers = {"number": self.number, "administrative": self.administrative}
        return json.dumps({**numbers, **dataclasses.asdict(self.configuration), **self.snapshot()})

    @classmethod
    def read(cls, text: str) -> State:
        """Parse the state that `write` wrote."""
        data: dict[str, Any] = json.loads(text)
        names = [each.name for each in dataclasses.fields(Configuration)]
        values = {name: data[name] for name in names}
        values |= {"arms": tuple(data["arms"]), "active": tuple(data["active"])}
        configuration = Configuration(**{**values, "reward": Reward(**data["reward"])})
        tally = read_tally(data["tally"])
        return _new_state(data["number"], data["administrative"], configuration, tally)

    def snapshot(self) -> dict[str, Any]:
        """The arms, policy and tally as plain data, for `restore`."""
        return {
            "arms": list(self.arms),
            "active": list(self.active),
            "policy": str(self.policy),
            "formula": self.policy.formula_version,
            "tally": write_tally(self.tally),
        }


def _new_state(number: int, administrative: int, configuration: Configuration, tally: Tally) -> State:
    positions = {arm: position for position, arm in enumerate(configuration.arms)}
    return State(number, administrative, configuration, policy(configuration.policy), tally, positions)


def replay(events: Iterable[Event]) -> State:
    """The state after all of these events, which begin with the start of the experiment."""
    events = list(events)
    start = events[0] if events else None
    if not isinstance(start, Start) or start.number != 1:
        raise InvalidLog("events", start, "the start of the experiment as event 1")
    configuration = start.configuration()
    return _new_state(1, 1, configuration, Tally.empty(len(configuration.arms))).after(events[1:])
