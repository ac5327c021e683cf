"""The events that change the state of an experiment, and what each of them changes.

The state of an experiment is a `Configuration` (arms, policy, epoch, ...) and a tally of rewards. Rewards
write a `TallyUpdate`, which changes the tally. Everything else is an administrative event: one class per
kind, which defines how it changes the configuration (`configure`) and the tally (`update_tally`). The SQL
tables and the log files store an administrative event as its kind and a payload of plain data: `payload_of`
writes it, `parse_event` reads it.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, get_args

from maillard.decisions.identifiers import check_name
from maillard.decisions.reward_rule import Reward
from maillard.errors import InvalidLog, InvalidValue
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """The state of an experiment except its tally."""

    arms: tuple[str, ...]
    "All arms, including retired ones, in the order of the tally."
    active: tuple[bool, ...]
    "Whether each arm is not retired."
    policy: str
    policy_version: int = 1
    epoch: int = 1
    paused: bool = False
    archived: bool = False
    reward: Reward
    sticky: bool

    @property
    def active_arms(self) -> list[str]:
        """The arms that are not retired."""
        return [arm for arm, active in zip(self.arms, self.active, strict=True) if active]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdministrativeEvent:
    """A change of an experiment that is not a reward. By default it changes nothing.

    Event number n turns the state after n - 1 events into the state after n events. The transaction that
    writes an event sets its number and time.
    """

    kind: ClassVar[str]
    number: int = 0
    time: int = 0

    def configure(self, configuration: Configuration) -> Configuration:
        """The configuration after this event."""
        return configuration

    def update_tally(self, tally: Tally, after: Configuration) -> Tally:  # noqa: ARG002
        """The tally after this event, given the configuration after it."""
        return tally


@dataclass(frozen=True, slots=True, kw_only=True)
class Start(AdministrativeEvent):
    """The first event of an experiment."""

    kind: ClassVar[str] = "start"
    arms: tuple[str, ...]
    policy: str
    formula: int
    reward: Reward
    sticky: bool

    def configuration(self) -> Configuration:
        """The first configuration of the experiment."""
        active = (True,) * len(self.arms)
        return Configuration(
            arms=self.arms, active=active, policy=self.policy, reward=self.reward, sticky=self.sticky
        )

    def configure(self, configuration: Configuration) -> Configuration:  # noqa: ARG002
        """Refuse: an experiment starts once."""
        raise InvalidLog("events: kind", self.kind, "one start of the experiment, as its first event")


@dataclass(frozen=True, slots=True, kw_only=True)
class AddArm(AdministrativeEvent):
    """A new arm, or a retired one that becomes active again and keeps its tally."""

    kind: ClassVar[str] = "add_arm"
    arm: str

    def configure(self, configuration: Configuration) -> Configuration:
        """Add or reactivate the arm."""
        arms, active = configuration.arms, configuration.active
        if self.arm not in arms:
            arms, active = (*arms, self.arm), (*active, True)
        active = tuple(on or arm == self.arm for arm, on in zip(arms, active, strict=True))
        return dataclasses.replace(configuration, arms=arms, active=active)

    def update_tally(self, tally: Tally, after: Configuration) -> Tally:
        """Give a new arm an empty tally."""
        return tally if len(tally) == len(after.arms) else Tally.joined([tally, Tally.empty(1)])


@dataclass(frozen=True, slots=True, kw_only=True)
class RetireArm(AdministrativeEvent):
    """An arm that is not chosen any more. It keeps its tally, and its rewards are still applied."""

    kind: ClassVar[str] = "retire_arm"
    arm: str

    def configure(self, configuration: Configuration) -> Configuration:
        """Deactivate the arm."""
        pairs = zip(configuration.arms, configuration.active, strict=True)
        return dataclasses.replace(configuration, active=tuple(on and arm != self.arm for arm, on in pairs))


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePolicy(AdministrativeEvent):
    """A new version of the policy."""

    kind: ClassVar[str] = "policy"
    policy: str
    formula: int

    def configure(self, configuration: Configuration) -> Configuration:
        """Set the policy and count its version."""
        version = configuration.policy_version + 1
        return dataclasses.replace(configuration, policy=self.policy, policy_version=version)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause(AdministrativeEvent):
    """No decisions until the experiment is resumed."""

    kind: ClassVar[str] = "pause"

    def configure(self, configuration: Configuration) -> Configuration:
        """Pause the experiment."""
        return dataclasses.replace(configuration, paused=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume(AdministrativeEvent):
    """The end of a pause, or of the archive."""

    kind: ClassVar[str] = "resume"

    def configure(self, configuration: Configuration) -> Configuration:
        """Resume the experiment."""
        return dataclasses.replace(configuration, paused=False, archived=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive(AdministrativeEvent):
    """No decisions and no changes until the experiment is resumed."""

    kind: ClassVar[str] = "archive"

    def configure(self, configuration: Configuration) -> Configuration:
        """Archive the experiment."""
        return dataclasses.replace(configuration, paused=True, archived=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset(AdministrativeEvent):
    """A new epoch with an empty tally."""

    kind: ClassVar[str] = "reset"

    def configure(self, configuration: Configuration) -> Configuration:
        """Begin a new epoch."""
        return dataclasses.replace(configuration, epoch=configuration.epoch + 1)

    def update_tally(self, tally: Tally, after: Configuration) -> Tally:  # noqa: ARG002
        """Empty the tally."""
        return Tally.empty(len(after.arms))


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmStart(AdministrativeEvent):
    """Rewards from elsewhere, added to the tally."""

    kind: ClassVar[str] = "warm_start"
    tally: Tally

    def update_tally(self, tally: Tally, after: Configuration) -> Tally:
        """Add the rewards."""
        if len(self.tally) != len(after.arms):
            raise InvalidLog(
                "tally", len(self.tally), f"as many arms as the experiment has ({len(after.arms)})"
            )
        return tally + self.tally


@dataclass(frozen=True, slots=True, kw_only=True)
class Restore(AdministrativeEvent):
    """A new epoch with the arms, policy and tally of a snapshot."""

    kind: ClassVar[str] = "restore"
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

    def configure(self, configuration: Configuration) -> Configuration:
        """Begin a new epoch. The policy gets a new version if it differs from the current one."""
        return dataclasses.replace(
            configuration,
            arms=self.arms,
            active=self.active,
            policy=self.policy,
            policy_version=configuration.policy_version + (self.policy != configuration.policy),
            epoch=configuration.epoch + 1,
        )

    def update_tally(self, tally: Tally, after: Configuration) -> Tally:  # noqa: ARG002
        """Replace the tally."""
        return self.tally


@dataclass(frozen=True, slots=True, kw_only=True)
class EraseUnit(AdministrativeEvent):
    """The name of a unit was replaced by a random token in every row."""

    kind: ClassVar[str] = "erase_unit"
    token: str


Event = AdministrativeEvent | TallyUpdate

_TYPES: dict[str, type[AdministrativeEvent]] = {
    each.kind: each
    for each in (
        Start, AddArm, RetireArm, ChangePolicy, Pause, Resume, Archive, Reset, WarmStart, Restore, EraseUnit,
    )
}  # fmt: skip


def configurations(events: Iterable[AdministrativeEvent]) -> Iterator[Configuration]:
    """The configuration after each administrative event of an experiment, beginning with its start."""
    configuration: Configuration | None = None
    for event in events:
        if configuration is None:
            if not isinstance(event, Start):
                raise InvalidLog("events: kind", event.kind, "the start of the experiment as its first event")
            configuration = event.configuration()
        else:
            configuration = event.configure(configuration)
        yield configuration


# Payloads.


def payload_of(event: AdministrativeEvent) -> dict[str, Any]:
    """The fields of an administrative event, except its number and time, as plain data."""
    fields = (each.name for each in dataclasses.fields(event) if each.name not in ("number", "time"))
    return {name: _plain(getattr(event, name)) for name in fields}


def _plain(value: Any) -> Any:
    if isinstance(value, Tally):
        return write_tally(value)
    if isinstance(value, Reward):
        return dataclasses.asdict(value)
    return list(value) if isinstance(value, tuple) else value


def parse_event(number: int, kind: object, time: int, payload: object) -> AdministrativeEvent:
    """The administrative event with this kind and payload, or InvalidLog."""
    where = f"event {number}"
    cls = _TYPES.get(kind) if isinstance(kind, str) else None
    if cls is None:
        raise InvalidLog(f"{where}: kind", kind, "one of " + ", ".join(_TYPES))
    if not isinstance(payload, Mapping):
        raise InvalidLog(f"{where}: payload", payload, "an object")
    values: dict[str, Any] = {}
    try:
        for field in dataclasses.fields(cls):
            if field.name not in ("number", "time"):
                values[field.name] = _PARSERS[field.name](payload.get(field.name))
        return cls(number=number, time=time, **values)
    except InvalidValue as error:
        raise InvalidLog(f"{where}: {error.field}", error.value, error.allowed) from None


def _of_type(field: str, cls: type, allowed: str) -> Callable[[object], Any]:
    def parse(value: object) -> Any:
        if type(value) is not cls:
            raise InvalidValue(field, value, allowed)
        return value

    return parse


def _parse_arms(value: object) -> tuple[str, ...]:
    arms = [check_name("arms", arm) for arm in value] if isinstance(value, list) else []
    if not arms or len(set(arms)) < len(arms):
        raise InvalidValue("arms", value, "a list of different names")
    return tuple(arms)


def _parse_active(value: object) -> tuple[bool, ...]:
    if not isinstance(value, list) or not all(type(on) is bool for on in value):
        raise InvalidValue("active", value, "a list of true and false")
    return tuple(value)


def _parse_reward(value: object) -> Reward:
    try:
        return Reward(**value)  # type: ignore[arg-type]  # a TypeError if it is not a mapping
    except TypeError:
        raise InvalidValue("reward", value, "the fields of a Reward") from None


def read_tally(data: object) -> Tally:
    """Parse the tally that `write_tally` wrote."""
    try:
        return Tally.from_json(json.dumps(data))
    except (TypeError, RecursionError):
        raise InvalidValue("tally", data, "pulls and sums, as Tally.to_json writes them") from None


def write_tally(tally: Tally) -> dict[str, Any]:
    """A tally as plain data."""
    data: dict[str, Any] = json.loads(tally.to_json())
    return data


_PARSERS: dict[str, Callable[[object], Any]] = {
    "arms": _parse_arms,
    "arm": lambda value: check_name("arm", value),
    "active": _parse_active,
    "policy": _of_type("policy", str, "the spec of a policy"),
    "formula": _of_type("formula", int, "the version of the policy's formula"),
    "reward": _parse_reward,
    "sticky": _of_type("sticky", bool, "true or false"),
    "tally": read_tally,
    "token": _of_type("token", str, "a string"),
}
