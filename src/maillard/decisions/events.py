"""The events that change the state of an experiment, and what each of them changes.

The state of an experiment is a `Configuration` (arms, policy, epoch, ...) and a tally of rewards. Rewards
write a `TallyUpdate`, which changes the tally. Everything else is an administrative event: one class per
kind, which defines how it changes the configuration (`configure`) and the tally (`update_tally`). The SQL
tables and the log files store an administrative event as its kind and a payload of plain data: `payload_of`
in `event_payloads` writes it, `parse_event` reads it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, ClassVar, Literal, NamedTuple, get_args

from maillard.decisions.context_rules import ContextRule, ContextTally
from maillard.decisions.experiment_configuration import AnyConfiguration, Configuration
from maillard.decisions.linear_contexts import LinearContexts
from maillard.decisions.raw_contexts import Values
from maillard.decisions.reward_rule import Reward
from maillard.decisions.segment_contexts import SegmentContexts
from maillard.errors import InvalidLog
from maillard.features import Features
from maillard.linear_tally import LinearTally
from maillard.segment_tally import SegmentTally
from maillard.tally import Tally

Statistics = ContextTally | None  # None if the experiment does not use contexts
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
    row: str | None = None
    "The feature row of the chosen arm, or the segment, if the experiment uses contexts."


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

    def update_statistics(self, statistics: Statistics, after: Configuration) -> Statistics:  # noqa: ARG002
        """The statistics of contexts after this event, given the configuration after it."""
        return statistics

    @property
    def begins_epoch(self) -> bool:
        """Whether a new epoch begins with this event."""
        return self.kind in ("reset", "restore")


@dataclass(frozen=True, kw_only=True)
class Start(AdministrativeEvent):
    """The first event of an experiment."""

    kind = "start"
    arms: tuple[str, ...]
    policy: str
    formula: int
    reward: Reward
    sticky: bool
    context: ContextRule | None = None

    def __post_init__(self) -> None:
        """Check that there are arms, unless they differ at every decision."""
        if bool(self.arms) == (self.context is not None and self.context.dynamic):
            raise InvalidLog(
                "arms", self.arms, "a list of different names, or none if every decision has its own"
            )

    def configuration(self) -> Configuration:
        """The first configuration of the experiment."""
        return Configuration(
            self.arms, (True,) * len(self.arms), self.policy, self.reward, self.sticky,
            context=self.context, feature_version=int(isinstance(self.context, LinearContexts)),
        )  # fmt: skip

    def configure(self, configuration: AnyConfiguration) -> AnyConfiguration:  # noqa: ARG002
        """Refuse: an experiment starts once."""
        raise InvalidLog("events: kind", self.kind, "one start of the experiment, as its first event")


@dataclass(frozen=True, kw_only=True)
class AddArm(AdministrativeEvent):
    """A new arm, or a retired one that becomes active again and keeps its tally."""

    kind = "add_arm"
    arm: str
    attributes: Values | None = None
    "The features of a new arm, if all arms share one model."

    def configure(self, configuration: AnyConfiguration) -> AnyConfiguration:
        """Add or reactivate the arm."""
        active = {*configuration.active_arms, self.arm}
        arms = tuple(dict.fromkeys((*configuration.arms, self.arm)))
        context = configuration.context
        if context is not None:
            context = context.add_arm(self.arm, self.attributes, configuration.arms)
        elif self.attributes is not None:
            raise InvalidLog("attributes", self.attributes, "None, because the experiment has no features")
        flags = tuple(arm in active for arm in arms)
        return dataclasses.replace(configuration, arms=arms, active=flags, context=context)

    def update_tally(self, tally: Tally, after: Configuration) -> Tally:
        """Give a new arm an empty tally."""
        return tally if len(tally) == len(after.arms) else Tally.joined([tally, Tally.empty(1)])

    def update_statistics(self, statistics: Statistics, after: Configuration) -> Statistics:
        """Give a new arm empty statistics."""
        known = statistics.arms if statistics is not None else None
        if statistics is None or after.context is None or known in (None, len(after.arms)):
            return statistics
        return after.context.with_arm(statistics)


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


@dataclass(frozen=True, kw_only=True)
class ChangeFeatures(AdministrativeEvent):
    """Other features. If they only append columns, the statistics stay; otherwise a new epoch begins."""

    kind = "features"
    features: Features
    new_epoch: bool

    @property
    def begins_epoch(self) -> bool:
        """Whether the statistics begin anew."""
        return self.new_epoch

    def configure(self, configuration: AnyConfiguration) -> AnyConfiguration:
        """Set the features and count their version."""
        rule = configuration.context
        if not isinstance(rule, LinearContexts):
            raise InvalidLog("features", self.features, "no features: the experiment began without")
        if rule.keeps_statistics(self.features) == self.new_epoch:
            raise InvalidLog("new_epoch", self.new_epoch, "true if the features do more than append columns")
        return dataclasses.replace(
            configuration,
            context=rule.with_features(self.features),
            feature_version=configuration.feature_version + 1,
            epoch=configuration.epoch + self.new_epoch,
        )

    def update_tally(self, tally: Tally, after: Configuration) -> Tally:
        """Empty the tally in a new epoch."""
        return after.empty_tally() if self.new_epoch else tally

    def update_statistics(self, statistics: Statistics, after: Configuration) -> Statistics:
        """Add columns for appended features, or begin anew."""
        if self.new_epoch:
            return after.empty_statistics()
        assert isinstance(statistics, LinearTally)
        assert isinstance(after.context, LinearContexts)
        before = after.context.earlier[-1]
        return statistics.spread(self.features.positions(before), self.features.dimension)


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
        return after.empty_tally()

    def update_statistics(self, statistics: Statistics, after: Configuration) -> Statistics:  # noqa: ARG002
        """Empty the statistics."""
        return after.empty_statistics()


@dataclass(frozen=True, kw_only=True)
class WarmStart(AdministrativeEvent):
    """Rewards from elsewhere, added to the tally."""

    kind = "warm_start"
    tally: Tally
    statistics: ContextTally | None = None
    "The same rewards with their contexts, if the experiment uses contexts."

    def update_tally(self, tally: Tally, after: Configuration) -> Tally:
        """Add the rewards."""
        if len(self.tally) != len(after.empty_tally()):
            allowed = f"as many arms as the experiment has ({len(after.arms)})"
            raise InvalidLog("tally", len(self.tally), allowed)
        return tally + self.tally

    def update_statistics(self, statistics: Statistics, after: Configuration) -> Statistics:
        """Add the rewards."""
        more, rule = self.statistics, after.context
        if rule is None or statistics is None:
            if more is not None:
                raise InvalidLog("statistics", more, "None, because the experiment does not use contexts")
            return None
        rule.check_statistics(more, len(after.arms))
        if isinstance(rule, SegmentContexts):
            assert isinstance(statistics, SegmentTally)
            assert isinstance(more, SegmentTally)
            return rule.limited(statistics, more)
        assert isinstance(statistics, LinearTally)
        assert isinstance(more, LinearTally)
        return statistics + more


@dataclass(frozen=True, kw_only=True)
class Restore(AdministrativeEvent):
    """A new epoch with the arms, policy and tally of a snapshot."""

    kind = "restore"
    arms: tuple[str, ...]
    active: tuple[bool, ...]
    policy: str
    formula: int
    tally: Tally
    context: ContextRule | None = None
    statistics: ContextTally | None = None

    def __post_init__(self) -> None:
        """Check that arms, flags and tally have the same length, and that statistics fit the contexts."""
        if self.context is not None:
            self.context.check_statistics(self.statistics, len(self.arms))
        dynamic = self.context is not None and self.context.dynamic and not self.arms
        if not len(self.arms) == len(self.active) == len(self.tally) - dynamic:
            lengths = len(self.arms), len(self.active), len(self.tally)
            raise InvalidLog("(arms, active, tally)", lengths, "as many flags and tallies as there are arms")

    def configure(self, configuration: AnyConfiguration) -> AnyConfiguration:
        """Begin a new epoch. The policy gets a new version if it differs from the current one."""
        version = configuration.policy_version + (self.policy != configuration.spec)
        arms: dict[str, Any] = {"arms": self.arms, "active": self.active, "epoch": configuration.epoch + 1}
        if type(self.context) is not type(configuration.context):
            raise InvalidLog("context", self.context, "the same use of contexts as in the experiment")
        if isinstance(self.context, LinearContexts):
            other = self.context != configuration.context
            arms["feature_version"] = configuration.feature_version + other
        return dataclasses.replace(
            configuration, **arms, spec=self.policy, policy_version=version, context=self.context
        )

    def update_tally(self, tally: Tally, after: Configuration) -> Tally:  # noqa: ARG002
        """Replace the tally."""
        return self.tally

    def update_statistics(self, statistics: Statistics, after: Configuration) -> Statistics:  # noqa: ARG002
        """Replace the statistics."""
        return self.statistics


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
