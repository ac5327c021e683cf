"""The state of an experiment: what its events, applied one after the other, come to."""

from __future__ import annotations

import dataclasses
import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from maillard.decisions.events import ADMINISTRATIVE, Event
from maillard.decisions.reward_rule import Reward
from maillard.errors import InvalidValue, MaillardError, UnknownName
from maillard.policies import Distribution, Policy, policy
from maillard.tally import Tally

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["ChoiceDistribution", "State", "arms_after", "replay", "write_tally"]


@dataclass(frozen=True, slots=True, eq=False)
class ChoiceDistribution:
    """The arms that can be drawn, and how: the draw is made from `probabilities`, the log keeps their logarithms."""

    arms: tuple[str, ...]
    log_probabilities: tuple[float, ...]
    probabilities: NDArray[np.float64]
    cold: tuple[bool, ...]
    _ends: list[float]

    def sample(self, rng: np.random.Generator, size: int) -> list[int]:
        """Places of arms with these probabilities, independently: as `policies` draws, without NumPy's cost of a few numbers."""
        ends, total = self._ends, self._ends[-1]
        last = bisect_left(ends, total)
        return [min(bisect_right(ends, uniform * total), last) for uniform in rng.random(size).tolist()]


@dataclass(frozen=True, kw_only=True, eq=False)
class State:
    """The state after some prefix of an experiment's events. It does not change: `after` makes the next one."""

    number: int
    "Of the last event."
    administrative: int
    "Number of the last event that was not a reward."
    epoch: int
    arms: tuple[str, ...]
    "Every arm there ever was, in the order of the tally."
    active: tuple[bool, ...]
    tally: Tally
    policy: Policy
    policy_version: int
    paused: bool
    reward: Reward
    sticky: bool
    archived: bool = False
    _laws: dict[frozenset[str] | None, ChoiceDistribution] = field(
        default_factory=dict, repr=False, init=False
    )
    _places: dict[str, int] = field(default_factory=dict, repr=False, init=False)

    def __post_init__(self) -> None:
        self._places.update({arm: place for place, arm in enumerate(self.arms)})

    def after(self, events: Sequence[Event]) -> State:
        """The state after these further events, which must be the next ones."""
        if not events:
            return self
        changes = {**self.__dict__, "_laws": {}, "tally": self.tally.copy()}
        for event in events:
            if event.number != changes["number"] + 1:
                expected = f"{changes['number'] + 1}, the next in a gapless order"
                raise InvalidValue("event number", event.number, expected)
            changes["number"] = event.number
            tally, place = changes["tally"], changes["_places"].get(event.arm)
            if event.kind == "revision":
                tally.revise(place, event.previous, event.value)
            elif event.kind in ("reward", "default"):
                tally.add(place, event.value)
            else:
                changes["administrative"] = event.number
                _CHANGES[event.kind](changes, event.payload)
                changes["_places"] = {arm: place for place, arm in enumerate(changes["arms"])}
        state = object.__new__(
            State
        )  # as State(**changes), in a fifth of its time: every reward makes a state
        state.__dict__.update(changes)
        return state

    def choice_distribution(self, eligible: frozenset[str] | None = None) -> ChoiceDistribution:
        """The law of a choice among the eligible arms, or among all that are not retired."""
        law = self._laws.get(eligible)
        if law is None:
            law = self._law(self.mask(eligible))
            if len(self._laws) < 64:  # a few sets of eligible arms are common, one for each caller is not
                self._laws[eligible] = law
        return law

    def _law(self, mask: NDArray[np.bool_]) -> ChoiceDistribution:
        arms, log, cold = self.arms, None, self.tally.pulls == 0
        bound = self.policy.bind(arms)
        if mask.all():
            log = bound.log_probabilities(self.tally)
        else:
            arms = tuple(arm for arm, use in zip(arms, mask.tolist(), strict=True) if use)
            log, cold = bound.log_probabilities(self.tally, eligible=mask)[mask], cold[mask]
        p = np.exp(log)
        return ChoiceDistribution(arms, tuple(log.tolist()), p, tuple(cold.tolist()), p.cumsum().tolist())

    def distribution(self, eligible: frozenset[str]) -> Distribution:
        """The same log probabilities, with a bound on the error of each; of the eligible arms alone."""
        mask = self.mask(eligible)
        bound = self.policy.bind(self.arms)
        whole = bound.distribution(self.tally, eligible=None if mask.all() else mask)
        return Distribution(whole.log_probabilities[mask], whole.error[mask])

    def allowed(self, eligible: frozenset[str] | None) -> set[str]:
        """The arms that may be drawn."""
        return {arm for arm, use in zip(self.arms, self.mask(eligible).tolist(), strict=True) if use}

    def mask(self, eligible: frozenset[str] | None) -> NDArray[np.bool_]:
        """Which arms may be drawn."""
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
    def active_arms(self) -> list[str]:
        """The arms that are not retired."""
        return [arm for arm, active in zip(self.arms, self.active, strict=True) if active]

    def check(self) -> State:
        """The state itself, if its policy can choose in it."""
        self.choice_distribution()
        return self

    def write(self) -> str:
        """The whole state as JSON, for `read`."""
        plain = {
            name: getattr(self, name)
            for name in (
                "number",
                "administrative",
                "epoch",
                "policy_version",
                "paused",
                "archived",
                "sticky",
            )
        }
        return json.dumps({**plain, **self.snapshot(), "reward": dataclasses.asdict(self.reward)})

    @classmethod
    def read(cls, text: str) -> State:
        """The state that `write` wrote."""
        plain: dict[str, Any] = json.loads(text)
        del plain["formula"]
        plain["arms"], plain["active"] = tuple(plain["arms"]), tuple(plain["active"])
        plain["tally"], plain["policy"] = read_tally(plain["tally"]), policy(plain["policy"])
        return cls(**{**plain, "reward": Reward(**plain["reward"])})

    def snapshot(self) -> dict[str, Any]:
        """What `restore` needs, as JSON would hold it."""
        return {
            "arms": list(self.arms),
            "active": list(self.active),
            "policy": str(self.policy),
            "formula": self.policy.formula_version,
            "tally": write_tally(self.tally),
        }


def replay(events: Iterable[Event]) -> State:
    """The state after all of these events, which begin with the first."""
    events = list(events)
    if not events or events[0].kind != "start" or events[0].number != 1:
        raise MaillardError("the log does not begin with the start of its experiment")
    return _started(events[0]).after(events[1:])


def arms_after(changes: Iterable[Event]) -> set[str]:
    """The arms that are not retired after these administrative events, which begin with the first."""
    arms: set[str] = set()
    for kind, payload in ((event.kind, event.payload) for event in changes):
        if kind == "start":
            arms = set(payload["arms"])
        elif kind == "add_arm":
            arms.add(payload["arm"])
        elif kind == "retire_arm":
            arms.discard(payload["arm"])
        elif kind == "restore":
            arms = {arm for arm, on in zip(payload["arms"], payload["active"], strict=True) if on}
    return arms


def write_tally(tally: Tally) -> dict[str, Any]:
    """A tally as plain data."""
    data: dict[str, Any] = json.loads(tally.to_json())
    return data


def read_tally(data: object) -> Tally:
    """The tally that `write_tally` wrote."""
    try:
        return Tally.from_json(json.dumps(data))
    except (TypeError, RecursionError):
        raise InvalidValue("tally", data, "pulls and sums as JSON holds them") from None


def _started(event: Event) -> State:
    payload = event.payload
    arms = tuple(payload["arms"])
    return State(
        number=1,
        administrative=1,
        epoch=1,
        arms=arms,
        active=(True,) * len(arms),
        tally=Tally.empty(len(arms)),
        policy=policy(payload["policy"]),
        policy_version=1,
        paused=False,
        reward=Reward(**payload["reward"]),
        sticky=payload["sticky"],
    )


# What each administrative event changes, given the state's fields and the event's payload.


def _add_arm(state: dict[str, Any], payload: Mapping[str, Any]) -> None:
    arm = payload["arm"]
    if arm in state["arms"]:  # one that was retired comes back with its tally
        state["active"] = tuple(
            on or name == arm for name, on in zip(state["arms"], state["active"], strict=True)
        )
    else:
        state["arms"] += (arm,)
        state["active"] += (True,)
        state["tally"] = Tally.joined([state["tally"], Tally.empty(1)])


def _retire_arm(state: dict[str, Any], payload: Mapping[str, Any]) -> None:
    pairs = zip(state["arms"], state["active"], strict=True)
    state["active"] = tuple(on and name != payload["arm"] for name, on in pairs)


def _policy(state: dict[str, Any], payload: Mapping[str, Any]) -> None:
    state["policy"] = policy(payload["policy"])
    state["policy_version"] += 1


def _pause(state: dict[str, Any], payload: Mapping[str, Any]) -> None:  # noqa: ARG001  # one signature for all
    state["paused"] = True


def _resume(state: dict[str, Any], payload: Mapping[str, Any]) -> None:  # noqa: ARG001  # the same
    state["paused"] = state["archived"] = False


def _archive(state: dict[str, Any], payload: Mapping[str, Any]) -> None:  # noqa: ARG001  # the same
    state["paused"] = state["archived"] = True


def _reset(state: dict[str, Any], payload: Mapping[str, Any]) -> None:  # noqa: ARG001  # the same
    state["epoch"] += 1
    state["tally"] = Tally.empty(len(state["arms"]))


def _warm_start(state: dict[str, Any], payload: Mapping[str, Any]) -> None:
    state["tally"] = state["tally"] + read_tally(payload["tally"])


def _restore(state: dict[str, Any], payload: Mapping[str, Any]) -> None:
    state["epoch"] += 1
    state["arms"], state["active"] = tuple(payload["arms"]), tuple(payload["active"])
    state["tally"] = read_tally(payload["tally"])
    if str(state["policy"]) != payload["policy"]:
        _policy(state, payload)


def _nothing(state: dict[str, Any], payload: Mapping[str, Any]) -> None:
    pass


_CHANGES = {
    "add_arm": _add_arm,
    "retire_arm": _retire_arm,
    "policy": _policy,
    "pause": _pause,
    "resume": _resume,
    "archive": _archive,
    "reset": _reset,
    "warm_start": _warm_start,
    "restore": _restore,
    "erase_unit": _nothing,
}
assert set(_CHANGES) | {"start"} == ADMINISTRATIVE
