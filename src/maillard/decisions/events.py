"""The events that change the state of an experiment, and what each of them changes.

The state of an experiment is a `Configuration` (arms, policy, epoch, ...) and a tally of rewards. Rewards
write a `TallyUpdate`, which changes the tally. Everything else is an administrative event: one class per
kind, which defines how it changes the configuration (`configure`) and the tally (`update_tally`). The SQL
tables and the log files store an administrative event as its kind and a payload of plain data: `payload_of`
in `event_payloads` writes it, `parse_event` reads it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import accumulate, compress
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar, get_args

from maillard.decisions.reward_rule import Reward
from maillard.errors import InvalidLog
from maillard.tally import Tally

UpdateKind = Literal["reward", "revision", "default"]
UPDATE_KINDS: tuple[str, ...] = get_args(UpdateKind)


class TallyUpdate(NamedTuple):
    """The reward of a decision was applied to the tally, was revised, or was set to the default."""

    number: int
    kind: UpdateKind
    time: int
    decision: str
    arm: str
    value: float
    "The reward of the decision from now on."
    previous: float | None = None
    "The reward before a revision."


_actor: ContextVar[str | None] = ContextVar("actor", default=None)


@contextmanager
def acting_as(actor: str | None) -> Iterator[None]:
    """Within this block, this thread makes changes for the API key with this id."""
    token = _actor.set(actor)
    try:
        yield
    finally:
        _actor.reset(token)


def current_actor() -> str | None:
    """The id of the API key for which this thread makes changes, or None."""
    return _actor.get()


@dataclass(frozen=True, eq=False)
class Configuration:
    """The state of an experiment except its tally."""

    arms: tuple[str, ...]
    "All arms, including retired ones, in the order of the tally."
    active: tuple[bool, ...]
    "Whether each arm is not retired."
    spec: str
    "The spec of the policy."
    reward: Reward
    sticky: bool
    "Whether a unit keeps its arm."
    policy_version: int = 1
    epoch: int = 1
    paused: bool = False
    "Whether the experiment makes no decisions."
    archived: bool = False
    "Whether it also accepts no changes."
    seeded: bool = False
    "Whether choices were made with a seed, so that anyone who knows it can predict them."
    simulated_clock: bool = False
    "Whether times come from a clock that the caller provided."
    pruned: int = 0
    "The last event of the commits whose decisions were pruned; 0 if there are none."

    @property
    def active_arms(self) -> list[str]:
        """The arms that are not retired."""
        return list(compress(self.arms, self.active))


AnyConfiguration = TypeVar("AnyConfiguration", bound=Configuration)


@dataclass(frozen=True, kw_only=True)
class AdministrativeEvent:
    """A change of an experiment that is not a reward. By default it only sets the fields in `changes`.

    Event number n turns the state after n - 1 events into the state after n events. The transaction that
    writes an event sets its number and time.
    """

    kind: ClassVar[str]
    changes: ClassVar[Mapping[str, Any]] = {}
    number: int = 0
    time: int = 0
    by: str | None = dataclasses.field(default=None, compare=False)
    "Who made the change: the id of an API key, or None if it was made without a key."

    def configure(self, configuration: AnyConfiguration) -> AnyConfiguration:
        """The configuration after this event."""
        return dataclasses.replace(configuration, **self.changes)

    def update_tally(self, tally: Tally, after: Configuration) -> Tally:  # noqa: ARG002
        """The tally after this event, given the configuration after it."""
        return tally


@dataclass(frozen=True, kw_only=True)
class Start(AdministrativeEvent):
    """The first event of an experiment."""

    kind = "start"
    arms: tuple[str, ...]
    policy: str
    formula: int
    reward: Reward
    sticky: bool

    def configuration(self) -> Configuration:
        """The first configuration of the experiment."""
        return Configuration(self.arms, (True,) * len(self.arms), self.policy, self.reward, self.sticky)

    def configure(self, configuration: AnyConfiguration) -> AnyConfiguration:  # noqa: ARG002
        """Refuse: an experiment starts once."""
        raise InvalidLog("events: kind", self.kind, "one start of the experiment, as its first event")


@dataclass(frozen=True, kw_only=True)
class AddArm(AdministrativeEvent):
    """A new arm, or a retired one that becomes active again and keeps its tally."""

    kind = "add_arm"
    arm: str

    def configure(self, configuration: AnyConfiguration) -> AnyConfiguration:
        """Add or reactivate the arm."""
        active = {*configuration.active_arms, self.arm}
        arms = tuple(dict.fromkeys((*configuration.arms, self.arm)))
        return dataclasses.replace(configuration, arms=arms, active=tuple(arm in active for arm in arms))

    def update_tally(self, tally: Tally, after: Configuration) -> Tally:
        """Give a new arm an empty tally."""
        return tally if len(tally) == len(after.arms) else Tally.joined([tally, Tally.empty(1)])


@dataclass(frozen=True, kw_only=True)
class RetireArm(AdministrativeEvent):
    """An arm that is not chosen any more. It keeps its tally, and its rewards are still applied."""

    kind = "retire_arm"
    arm: str

    def configure(self, configuration: AnyConfiguration) -> AnyConfiguration:
        """Deactivate the arm."""
        active = {*configuration.active_arms} - {self.arm}
        return dataclasses.replace(configuration, active=tuple(arm in active for arm in configuration.arms))


@dataclass(frozen=True, kw_only=True)
class ChangePolicy(AdministrativeEvent):
    """A new version of the policy."""

    kind = "policy"
    policy: str
    formula: int

    def configure(self, configuration: AnyConfiguration) -> AnyConfiguration:
        """Set the policy and count its version."""
        version = configuration.policy_version + 1
        return dataclasses.replace(configuration, spec=self.policy, policy_version=version)


class Pause(AdministrativeEvent):
    """No decisions until the experiment is resumed."""

    kind = "pause"
    changes: ClassVar[Mapping[str, Any]] = {"paused": True}


class Resume(AdministrativeEvent):
    """The end of a pause, or of the archive."""

    kind = "resume"
    changes: ClassVar[Mapping[str, Any]] = {"paused": False, "archived": False}


class Archive(AdministrativeEvent):
    """The experiment is archived: until it is resumed, it accepts rewards but no decisions or changes."""

    kind = "archive"
    changes: ClassVar[Mapping[str, Any]] = {"paused": True, "archived": True}


class Reset(AdministrativeEvent):
    """A new epoch with an empty tally."""

    kind = "reset"

    def configure(self, configuration: AnyConfiguration) -> AnyConfiguration:
        """Begin a new epoch."""
        return dataclasses.replace(configuration, epoch=configuration.epoch + 1)

    def update_tally(self, tally: Tally, after: Configuration) -> Tally:  # noqa: ARG002
        """Empty the tally."""
        return Tally.empty(len(after.arms))


@dataclass(frozen=True, kw_only=True)
class WarmStart(AdministrativeEvent):
    """Rewards from elsewhere, added to the tally."""

    kind = "warm_start"
    tally: Tally

    def update_tally(self, tally: Tally, after: Configuration) -> Tally:
        """Add the rewards."""
        if len(self.tally) != len(after.arms):
            allowed = f"as many arms as the experiment has ({len(after.arms)})"
            raise InvalidLog("tally", len(self.tally), allowed)
        return tally + self.tally


@dataclass(frozen=True, kw_only=True)
class Restore(AdministrativeEvent):
    """A new epoch with the arms, policy and tally of a snapshot."""

    kind = "restore"
    arms: tuple[str, ...]
    active: tuple[bool, ...]
    policy: str
    formula: int
    tally: Tally

    def __post_init__(self) -> None:
        """Check that arms, flags and tally have the same length."""
        if not len(self.arms) == len(self.active) == len(self.tally):
            lengths = len(self.arms), len(self.active), len(self.tally)
            raise InvalidLog("(arms, active, tally)", lengths, "as many flags and tallies as there are arms")

    def configure(self, configuration: AnyConfiguration) -> AnyConfiguration:
        """Begin a new epoch. The policy gets a new version if it differs from the current one."""
        version = configuration.policy_version + (self.policy != configuration.spec)
        arms: dict[str, Any] = {"arms": self.arms, "active": self.active, "epoch": configuration.epoch + 1}
        return dataclasses.replace(configuration, **arms, spec=self.policy, policy_version=version)

    def update_tally(self, tally: Tally, after: Configuration) -> Tally:  # noqa: ARG002
        """Replace the tally."""
        return self.tally


@dataclass(frozen=True, kw_only=True)
class EraseUnit(AdministrativeEvent):
    """The name of a unit was replaced by a random token in every row."""

    kind = "erase_unit"
    token: str


@dataclass(frozen=True, kw_only=True)
class Simulate(AdministrativeEvent):
    """A bandit with a seed or a clock of the caller has opened the experiment."""

    kind = "simulate"
    seed: int | None
    clock: bool

    def configure(self, configuration: AnyConfiguration) -> AnyConfiguration:
        """Note that choices or times are not real."""
        seeded = configuration.seeded or self.seed is not None
        clock = configuration.simulated_clock or self.clock
        return dataclasses.replace(configuration, seeded=seeded, simulated_clock=clock)


@dataclass(frozen=True, kw_only=True)
class Prune(AdministrativeEvent):
    """The decisions of the first commits were removed. `verify` rebuilds states from a saved state."""

    kind = "prune"
    commit: int
    "The last commit whose rows were removed."
    hash: str
    "Its hash, in hexadecimal digits, from which the chain goes on."
    last_event: int
    "The last event of these commits."
    base: int
    "The number of the saved state. Tally updates up to this number were removed."
    decisions: int
    "The number of decisions that were removed so far, by this event and earlier ones."
    before: int
    "The decisions were made before this time, in microseconds since 1970."
    base_digest: str
    "The SHA-256 of the document with the saved state."
    events_digest: str
    "The SHA-256 of the records of those events up to `last_event` that were not removed."

    def configure(self, configuration: AnyConfiguration) -> AnyConfiguration:
        """Note which states cannot be rebuilt any more."""
        return dataclasses.replace(configuration, pruned=self.last_event)


Event = AdministrativeEvent | TallyUpdate


def configurations(events: Sequence[AdministrativeEvent]) -> list[Configuration]:
    """The configuration after each administrative event of an experiment, beginning with its start."""
    if not events:
        return []
    if not isinstance(events[0], Start):
        raise InvalidLog("events: kind", events[0].kind, "the start of the experiment as its first event")
    first = events[0].configuration()
    return list(accumulate(events[1:], lambda before, event: event.configure(before), initial=first))
