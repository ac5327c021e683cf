"""The verdict on an experiment in words: which arm leads, which arms are ruled out, which are undecided.

An arm is **ruled out** if its whole confidence interval is below the lower bound of another arm. The
intervals are confidence sequences that are valid for all arms together: with probability 1 - α they contain
the means of all arms at all times. Then no arm that is ruled out at any time is the best one. So the
probability that a best arm is ever ruled out is at most α, no matter how often somebody looks.

The **leader** is the arm with the highest lower bound, so an arm with few rewards does not lead by luck.

**How many more decisions** an undecided arm needs is an extrapolation: the distance from a mean to its bound
shrinks like 1 / √n, the means stay as they are, and each arm gets its current probability of the decisions.
There is none if the difference of the means is smaller than about a standard error of it, or if an arm has
only a few rewards.
"""

from __future__ import annotations

import math
import re
import string
from collections.abc import Sequence

import numpy as np

from maillard import wire_schema as wire
from maillard.array_types import Bools, Floats, Ints
from maillard.decisions.state import State

CONFIDENCE = 0.95
"The probability that no best arm is ever ruled out."

_MIN_REWARDS = 10  # of an arm, before it leads by its mean alone, and before its interval is extrapolated
# The smallest difference of two means that is extrapolated, relative to the two distances from a mean to its
# bound. These are about four standard errors.
_MIN_GAP = 0.25
_MAX_DECISIONS = 10_000_000  # more are not counted
_MAX_NAMED = 3  # arms of a group; a larger group is counted
_MAX_NAME = 40  # characters
_PLAIN_NAME = re.compile(r"[^\W_](?:[\w .-]*\w)?")
_NO_REMARK, _TOO_CLOSE, _TOO_FEW = "", "too close to tell", "not enough data"

_CONTEXTS = (
    "No verdict on single arms, because the policy chooses by the context. Compare arms and rules with an "
    "evaluation (What if?)."
)
_ACTIONS = "No verdict, because every decision has its own arms. Compare rules with an evaluation (What if?)."
_MEANING = (
    "An arm is ruled out if its whole confidence interval is below the lower bound of the leading arm, which "
    "is the arm with the highest lower bound. With a probability of at least {confidence:.0%}, no arm that "
    "is as good as the best one is ever ruled out, no matter how often you look. The number of decisions is "
    "a rough estimate: it assumes that the means and the current probabilities stay as they are."
)


def ruled_out(lower: Floats, upper: Floats) -> Bools:
    """Which arms are ruled out, by the bounds of the means along the last axis; nan: no bound.

    >>> ruled_out(np.array([0.1, 0.5, 0.4]), np.array([0.45, 0.9, 0.6])).tolist()
    [True, False, False]
    """
    highest = np.max(np.where(np.isnan(lower), -np.inf, lower), axis=-1, keepdims=True)
    return upper < highest  # type: ignore[no-any-return]  # of arrays


def leader(rewards: Floats, means: Floats, lower: Floats, decided: bool) -> int | None:
    """The index of the arm that leads, by the final rewards of the arms; None if there is none.

    It is the arm with the highest lower bound; without bounds (nan), the one with the highest mean.
    `decided`: whether an arm is ruled out. Otherwise the leader needs some rewards.
    """
    keys = [
        (-math.inf if math.isnan(bound) else bound, mean) if count else (-math.inf, -math.inf)
        for count, mean, bound in zip(rewards.tolist(), means.tolist(), lower.tolist(), strict=True)
    ]
    best = max(keys, default=(-math.inf, -math.inf))
    first = keys.index(best) if keys else 0
    if best[1] == -math.inf or keys.count(best) > 1 or (rewards[first] < _MIN_REWARDS and not decided):
        return None
    return first


def find_leaders(states: Sequence[State]) -> list[str | None]:
    """The arm that leads in each experiment, as in its verdict, from the tallies alone.

    There is none if contexts matter, or if the tally has rewards that are not final.
    """
    found: list[str | None] = [None] * len(states)
    sizes: dict[int, list[int]] = {}
    for index, state in enumerate(states):
        rule = state.reward
        final = rule.window is None or rule.learn == "on_close"
        if state.context is None and final and sum(state.active) > 1:
            sizes.setdefault(len(state.arms), []).append(index)
    for arms, members in sizes.items():  # one call for all experiments with as many arms
        pulls = np.stack([states[index].tally.pulls for index in members])
        sums = np.stack([states[index].tally.sums for index in members])
        ends = np.array([states[index].reward.range or (np.nan, np.nan) for index in members])
        lower, upper = _bounds(pulls, sums, ends, 1.0 - (1.0 - CONFIDENCE) / arms)
        for row, index in enumerate(members):
            state, active = states[index], np.flatnonzero(states[index].active)
            counts = pulls[row, active].astype(np.float64)
            means = np.divide(sums[row, active], counts, out=np.full(counts.size, np.nan), where=counts > 0)
            out = ruled_out(lower[row, active], upper[row, active])
            first = leader(counts, means, lower[row, active], bool(out.any()))
            found[index] = None if first is None else state.arms[active[first]]
    return found


def _bounds(pulls: Ints, sums: Floats, ends: Floats, confidence: float) -> tuple[Floats, Floats]:
    """The bounds of the means of experiments with as many arms; nan without a range, or with other sums."""
    from maillard.evaluation.means import mean_intervals  # imports scipy, so only in a thread

    low, span = ends[:, :1], ends[:, 1:] - ends[:, :1]
    known = np.isfinite(span[:, 0])
    scaled = np.clip((sums[known] - low[known] * pulls[known]) / span[known], 0, pulls[known])
    bounds = np.full((2, *pulls.shape), np.nan)
    intervals = mean_intervals(pulls[known].ravel(), scaled.ravel(), 0.0, 1.0, confidence)
    for bound, values in zip(bounds, zip(*intervals, strict=True), strict=False):
        bound[known] = low[known] + span[known] * np.array(values, float).reshape(-1, pulls.shape[1])
    return bounds[0], bounds[1]


def judge(
    arms: Sequence[wire.ArmState],
    *,
    status: wire.Status,
    refusal: str | None,
    by_context: bool,
) -> wire.Verdict:
    """The verdict, from the arms with the bounds of their means; also sets the standing of each active arm.

    `refusal` says why the intervals must not be used.
    """
    verdict = wire.Verdict(
        text="", parts=[], leader=None, best=False, confidence=CONFIDENCE,
        explanation=refusal or _MEANING.format(confidence=CONFIDENCE),
    )  # fmt: skip
    active = [each for each in arms if each.active]
    template = _template(verdict, active, status, refused=refusal is not None, by_context=by_context)
    for text, place, _, _ in string.Formatter().parse(template):
        if text:
            verdict.parts.append(wire.VerdictPart(text))
        if place is not None:
            arm = active[int(place)].arm
            verdict.parts.append(wire.VerdictPart(_named(arm), arm))
    verdict.text = "".join(part.text for part in verdict.parts)
    return verdict


def _template(
    verdict: wire.Verdict, arms: list[wire.ArmState], status: wire.Status, *, refused: bool, by_context: bool
) -> str:
    """The sentence, with `{place}` for the name of the arm at a place of `arms`."""
    if by_context:
        return _CONTEXTS if arms else _ACTIONS
    if len(arms) < 2:
        only = f"{_arm(0)} is the only arm" if arms else "No arm is active"
        return f"{only}, so there is nothing to compare."
    rewards, pending = sum(each.final for each in arms), sum(each.pending for each in arms)
    if not rewards:
        waiting = f"{_counted(pending, 'decision waits', 'decisions wait')} for a reward"
        return f"No verdict yet: {waiting if pending else 'there are no rewards'}."
    lower, upper = (np.array([_number(getattr(each, end)) for each in arms]) for end in ("lower", "upper"))
    counts, means = (
        np.array([float(each.final) for each in arms]),
        np.array([_number(each.mean) for each in arms]),
    )
    out = np.zeros(len(arms), np.bool_) if refused else ruled_out(lower, upper)
    first = leader(counts, means, lower, bool(out.any()))
    verdict.leader = None if first is None else arms[first].arm
    if refused:
        found = "No arm leads yet" if first is None else f"{_arm(first)} has the highest mean so far"
        return (
            f"{found}, but there is no verdict, because some or all arms have no valid confidence interval."
        )
    if first is None and not out.any() and counts.max() < _MIN_REWARDS:
        return f"No verdict yet: not enough data ({_counted(rewards, 'reward')} for {len(arms):,} arms)."
    undecided: list[tuple[int, int | None, str]] = []
    for index, each in enumerate(arms):
        if index == first:
            each.standing = "leads"
        elif out[index]:
            each.standing = "ruled out"
        else:
            each.standing = "undecided"
            if status == "archived":
                reason = _NO_REMARK
            elif first is None:
                reason = _TOO_FEW if counts.min() < _MIN_REWARDS else _TOO_CLOSE
            else:
                each.more_decisions, reason = _more_decisions(arms[first], each)
            undecided.append((index, each.more_decisions, reason))
    verdict.best = first is not None and not undecided
    text = _sentence(first, np.flatnonzero(out).tolist(), undecided)
    return text if status == "running" else f"{text} The experiment is {status}."


def _sentence(first: int | None, excluded: list[int], undecided: list[tuple[int, int | None, str]]) -> str:
    """The sentence about a leader, the arms that are ruled out, and undecided ones with reasons."""
    if first is not None and not undecided:
        others = _group(excluded) if len(excluded) <= _MAX_NAMED else f"all {len(excluded):,} other arms"
        return f"{_arm(first)} is best: {others} {_are(excluded)} ruled out."
    parts = ["No arm leads yet" if first is None else f"{_arm(first)} leads"]
    if excluded:
        parts.append(f"{_group(excluded)} {_are(excluded)} ruled out")
    for places, remark in _remarks(undecided):
        parts.append(f"{_group(places)} {_are(places)} undecided" + (f", {remark}" if remark else ""))
    return "; ".join(parts) + "."


def _remarks(undecided: list[tuple[int, int | None, str]]) -> list[tuple[list[int], str]]:
    """Groups of undecided arms with the same remark; one group if they are many."""
    if len(undecided) > _MAX_NAMED:
        numbers = [more for _, more, _ in undecided if more is not None]
        reasons = {reason for _, more, reason in undecided if more is None}
        remark = reasons.pop() if len(reasons) == 1 and not numbers else _NO_REMARK
        if numbers:
            remark = ("at least " if reasons else "") + _decisions_needed(max(numbers))
        return [([place for place, _, _ in undecided], remark)]
    groups: dict[str, list[int]] = {}
    for place, more, reason in undecided:
        groups.setdefault(reason if more is None else _decisions_needed(more), []).append(place)
    return [(places, remark) for remark, places in groups.items()]


def _more_decisions(first: wire.ArmState, other: wire.ArmState) -> tuple[int | None, str]:
    """About how many more decisions decide between the leader and another arm, or None and the reason.

    0: the rewards of earlier decisions may decide, when they are final.
    """
    if min(first.final, other.final) < _MIN_REWARDS:
        return None, _TOO_FEW
    if None in (first.mean, other.mean, first.lower, other.upper, first.probability, other.probability):
        return None, _TOO_FEW
    below, above = _number(first.mean) - _number(first.lower), _number(other.upper) - _number(other.mean)
    gap = _number(first.mean) - _number(other.mean)
    if gap <= _MIN_GAP * (below + above):
        return None, _TOO_CLOSE

    def width(decisions: float) -> float:
        """The sum of both distances after this many more decisions."""
        return sum(
            distance * math.sqrt(arm.final / (arm.final + arm.pending + decisions * _number(arm.probability)))
            for arm, distance in ((first, below), (other, above))
        )

    if width(0) < gap:
        return 0, _NO_REMARK
    low, high = 0.0, float(_MAX_DECISIONS)
    if width(high) >= gap:
        return _MAX_DECISIONS, _NO_REMARK
    while high - low > max(1.0, 1e-3 * low):
        middle = (low + high) / 2
        low, high = (middle, high) if width(middle) >= gap else (low, middle)
    return _rounded(high), _NO_REMARK


def _rounded(number: float) -> int:
    """One significant digit, as rough as the estimate is, and at least 10.

    >>> [_rounded(x) for x in (3, 87.2, 943, 12_345)]
    [10, 90, 900, 10000]
    """
    unit: int = 10 ** max(1, math.floor(math.log10(max(number, 1))))
    return max(10, round(number / unit) * unit)


def _decisions_needed(number: int) -> str:
    if number == 0:
        return "which the rewards that are still pending may decide"
    if number >= _MAX_DECISIONS:
        return f"more than {_MAX_DECISIONS // 1_000_000} million more decisions needed"
    return f"about {number:,} more decisions needed"


def _group(places: list[int]) -> str:
    """Arms in words, or their number.

    >>> _group([0, 2, 3]), _group([1, 2, 3, 4])
    ('{0}, {2} and {3}', '4 arms')
    """
    if len(places) > _MAX_NAMED:
        return f"{len(places):,} arms"
    *others, last = map(_arm, places)
    return f"{', '.join(others)} and {last}" if others else last


def _arm(place: int) -> str:
    return f"{{{place}}}"


def _named(name: str) -> str:
    """A name, in quotation marks if it would not stand out in a sentence; a long one is shortened."""
    short = name if len(name) <= _MAX_NAME else name[: _MAX_NAME - 1] + "…"
    return short if _PLAIN_NAME.fullmatch(short) else f"“{short}”"


def _are(places: list[int]) -> str:
    return "is" if len(places) == 1 else "are"


def _counted(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _number(value: float | None) -> float:
    return math.nan if value is None else value
