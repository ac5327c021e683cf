"""The decision table: which policy for which experiment, with the evidence; and how a floor is chosen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from maillard.evaluation.advising.advice_requirements import ACTIONS, FEATURES, SEGMENTS, Requirements
from maillard.evaluation.advising.reward_answers import UNBOUNDED
from maillard.evaluation.advising.sequential_test import is_clear

DEFAULT_FLOOR = 0.1  # where the width of intervals cannot be simulated; also the default of `Bandit`
_LONG_DELAY = 0.2  # fraction of the experiment
COMPROMISE = 1.5  # the largest acceptable width, as a multiple of that of an equal split


@dataclass(frozen=True)
class PolicyRule:
    """One row of the decision table."""

    name: str
    applies: Callable[[Requirements], bool]
    policy: str
    "The spec without a floor; {variance} is the variance of the rewards."
    reason: str
    basis: str
    "What the rule rests on: a study, simulations or theorems."
    evidence: str
    "A page of the documentation, which has the command or the proof."

    def spec(self, requirements: Requirements) -> str:
        """The spec of the policy for this experiment."""
        return self.policy.format(variance=f"{requirements.deviation**2:.4g}")


@dataclass(frozen=True)
class Note:
    """A remark that is made if it applies."""

    name: str
    applies: Callable[[Requirements], bool]
    text: Callable[[Requirements], str]


# The first rule that applies decides.
POLICY_RULES = (
    PolicyRule(
        "arms differ at every decision",
        lambda r: r.contexts == ACTIONS,
        "lin-ms:sigma2={variance}",
        "lin-ms with a shared model learns what attributes of an arm are worth, so it can rate an arm "
        "that it has never shown.",
        "a study",
        "how-to/contexts.md#which-policy",
    ),
    PolicyRule(
        "attributes of the visitor",
        lambda r: r.contexts == FEATURES,
        "lin-ms:sigma2={variance}",
        "lin-ms learns from the attributes which arm is best for whom. In a study on sixteen data sets, no "
        "policy that gives every arm a positive probability was clearly better.",
        "a study",
        "how-to/contexts.md#which-policy",
    ),
    PolicyRule(
        "clicks and other rewards of 0 or 1",
        lambda r: r.zero_or_one,
        "kl-ms+",
        "kl-ms+ is made for rewards of 0 or 1. At click rates of 4 to 8% it lost 40% less than "
        "ms+, and as little as Thompson sampling, which takes longer to compute its probabilities.",
        "simulations and a theorem",
        "reference/policies.md#kl-ms-for-clicks",
    ),
    PolicyRule(
        "rewards from 0 to a maximum, mostly far below it",
        lambda r: r.small_rewards,
        "kl-ms+",
        "kl-ms+ learns faster than ms+ if rewards are mostly far below their maximum. It needs rewards from "
        "0 to 1, so divide each by the maximum.",
        "simulations",
        "how-to/choose-policy.md#small-rewards",
    ),
    PolicyRule(
        "rewards without a maximum",
        lambda r: r.reward == UNBOUNDED,
        "ms+:sigma2={variance}",
        "ms+ needs no maximum, only sigma2, the variance of a reward. Its guarantees need rewards whose "
        "tails are as light as those of a normal distribution.",
        "theorems",
        "reference/policies.md#names-specs-and-parameters",
    ),
    PolicyRule(
        "rewards in a range",
        lambda _: True,
        "ms+",
        "ms+ works with any rewards in a known range. No policy whose probabilities have a formula has "
        "better regret guarantees.",
        "theorems",
        "reference/policies.md#the-table",
    ),
)


def _rewards_per_arm(r: Requirements) -> float:
    """Decisions per arm, and for rewards of 0 or 1 the number of rewards of the rarer value."""
    decisions = r.part_horizon / len(r.arms)
    return decisions * min(r.rate, 1 - r.rate) if r.zero_or_one else decisions


NOTES = (
    Note(
        "few data",
        lambda r: _rewards_per_arm(r) < 20,
        lambda r: (
            f"Few data: with an equal split, each arm{' of a segment' * (r.contexts == SEGMENTS)} gets "
            f"{r.part_horizon / len(r.arms):,.0f} decisions"
            + (
                f" and about {r.part_horizon / len(r.arms) * r.rate:.2g} rewards of 1"
                if r.zero_or_one
                else ""
            )
            + ". No policy can learn much from so few. Try fewer arms, or run the experiment for longer."
        ),
    ),
    Note(
        "long delay",
        lambda r: r.delay >= _LONG_DELAY * r.horizon,
        lambda r: (
            f"Long delay: no reward is known during the first {min(r.delay, r.horizon):,} decisions "
            f"({min(1.0, r.delay / r.horizon):.0%} of the experiment), so until then every arm is equally "
            "likely. If nearly all rewards arrive much sooner, set a shorter window"
            + ', or learn="provisional"' * (r.reward_rule.default is not None)
            + "."
        ),
    ),
    Note(
        "segments",
        lambda r: r.contexts == SEGMENTS,
        lambda r: (
            f"Each of the {r.context_size} segments is an experiment of its own with about "
            f"{r.part_horizon:,} decisions. The margins are those of one segment; what is lost is for all "
            "segments together. To compare the arms for all visitors, leave out --by: that margin is not "
            "simulated, and usually narrower."
        ),
    ),
    Note(
        "linear model",
        lambda r: r.linear,
        lambda r: (
            "The width of intervals is not simulated for linear models, so the floor is the default"
            + " and not chosen for your numbers" * r.evaluate
            + "."
            + " Rewards count at once in this simulation: the delay is left out." * bool(r.delay)
        ),
    ),
    Note(
        "no maximum",
        lambda r: r.reward == UNBOUNDED,
        lambda _: (
            "Without a maximum, a few large rewards decide a mean. If you can name a maximum, cap the "
            "rewards there, declare it with Reward(low=0, high=...), and ask again with reward=bounded."
        ),
    ),
    Note(
        "returning visitors",
        lambda r: r.contexts != ACTIONS,
        lambda _: (
            "A visitor who returns may see another arm. With sticky=True, Bandit keeps the arm that it first "
            "chose for a unit."
        ),
    ),
    Note(
        "deterministic policies",
        lambda r: r.evaluate,
        lambda _: (
            "Do not use ucb1, imed or another deterministic policy: it never chooses the other arms at "
            "random, so its log cannot say what they would have earned."
        ),
    ),
    Note(
        "constant means",
        lambda _: True,
        lambda _: (
            "All this assumes that the means of the arms do not change during the experiment. If they do, "
            "for example after a redesign, call reset()."
        ),
    ),
)


def policy_rule(requirements: Requirements) -> PolicyRule:
    """The first rule that applies."""
    return next(rule for rule in POLICY_RULES if rule.applies(requirements))


class _Measured(Protocol):
    """What the choice of a floor depends on."""

    @property
    def floor(self) -> float: ...
    @property
    def regret(self) -> float: ...
    @property
    def width(self) -> float: ...
    @property
    def valid(self) -> bool | None: ...
    @property
    def power_evidence(self) -> float: ...
    @property
    def resolves(self) -> bool: ...


Option = TypeVar("Option", bound=_Measured)


def compromise(split: float, needed: float) -> float:
    """The acceptable width, as a multiple of that of an equal split, if this is more than needed.

    An equal split that is almost precise enough is worth its price; one that is far from it is not. So the
    multiple grows from 1 with the width that is missing, and the suggestion does not jump.
    """
    return min(COMPROMISE, max(1.0, split / needed))


def choose_option(
    options: Sequence[Option], needed: float, max_regret: float | None, *, evaluate: bool
) -> tuple[Option, str]:
    """Choose one of the options, which are ordered by floor, with an equal split last; and say why.

    The reason is "no evaluation", "resolves", "too expensive" or "cannot resolve".
    """
    if not evaluate:
        return options[0], "no evaluation"
    floors = [each for each in options if each.floor > 0]
    wanted, reason = next((each for each in floors if each.resolves), None), "resolves"
    usable = [each for each in floors if each.valid is not False]
    if wanted is None:
        limit, reason = compromise(floors[-1].width, needed) * floors[-1].width, "cannot resolve"
        wanted = next((each for each in usable if each.width <= limit), floors[-1])
    if max_regret is not None and wanted.regret > max_regret:
        affordable = [each for each in usable if each.regret <= max_regret]
        return (affordable[-1] if affordable else floors[0]), "too expensive"
    return wanted, reason


def undecided(options: Sequence[Option], chosen: Option) -> list[Option]:
    """The options on which the choice depends and whose logs are too few to be sure, in their order."""
    return [
        each
        for each in options
        if 0 < each.floor <= chosen.floor
        and each.valid is not False
        and (not is_clear(each.power_evidence) or (each is chosen and each.valid is None))
    ]


def alternatives(options: Sequence[Option], chosen: Option) -> tuple[Option, Option]:
    """Two other options: no floor and an equal split if possible, else the nearest floor."""
    others = [options[0], options[-1]]
    if chosen in others:
        place = options.index(chosen)
        others = [options[min(max(place + (1 if place == 0 else -1), 0), len(options) - 1)], *others]
        others = [each for each in others if each is not chosen]
    return others[0], others[1]
