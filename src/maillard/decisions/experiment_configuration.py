"""The configuration of an experiment: its state except its tally."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import compress
from typing import TypeVar

from maillard.decisions.context_rules import ContextRule, ContextTally
from maillard.decisions.reward_rule import Reward
from maillard.tally import Tally


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
    context: ContextRule | None = None
    "How contexts are used; None if they are only stored."
    feature_version: int = 0
    "1 for the first features, counted with each change; 0 without features."

    @property
    def active_arms(self) -> list[str]:
        """The arms that are not retired."""
        return list(compress(self.arms, self.active))

    @property
    def dynamic(self) -> bool:
        """Whether the arms differ at every decision."""
        return self.context is not None and self.context.dynamic

    def empty_tally(self) -> Tally:
        """A tally without rewards: of each arm, or one for all if the arms differ at every decision."""
        return Tally.empty(1 if self.dynamic else len(self.arms))

    def empty_statistics(self) -> ContextTally | None:
        """The statistics of contexts without rewards; None if contexts are only stored."""
        return None if self.context is None else self.context.empty(len(self.arms))


AnyConfiguration = TypeVar("AnyConfiguration", bound=Configuration)
