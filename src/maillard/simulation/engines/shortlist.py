"""The shortlist engine, for policies that declare the form of their index.

A form says how the indices of all arms depend on one number x, so that the engine can bound them without
calling the policy's formula:

- constant: an index changes only when its arm is pulled; x is 0;
- root: mean + x / √n, where x depends on t;
- quadratic: -(ln n + w n (x - mean)²), where x is the best mean.

At the beginning of a window of x, the engine lists the arms whose index can come near the largest one; all
others stay below a cut. Only the listed arms compete, until the largest index falls to the cut or x leaves
the window. The length of the list is adapted: comparing the listed arms costs as much as making lists. For
some rounds, x is replaced by one value, and an index may be wrong by as much as x moves in these rounds.

The arms that share the largest index (with rewards of 0 and 1 there may be hundreds) remain the winners, less
those that are pulled, until another index comes near theirs. Indices that are closer to each other than their
errors are computed again for the present x; if rounding errors remain, the policy's formula decides. So
lists and windows affect the cost of a round, never the choice: winners and ties are those of the formula.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maillard.simulation.compiling import call, rare

# Rows of the table. Of each arm: pulls, sums and means; base and slope of its index (see `value_at`); its
# place on the list, or -1; its rank among the winners. Of each place on the list: the arm, its base, slope,
# mean and index. Of each rank: a winner. And STATE.
N, S, MEAN, BASE, SLOPE, PLACE, RANK, ARM, ARM_BASE, ARM_SLOPE, ARM_MEAN, VALUE, WINNER, STATE = range(14)
# An arm with an invalid index (or -1); the length of the list, 0 without one; its last round, its lowest x,
# its cut, how far that was below the largest index, and how many comparisons it took part in.
INVALID, LENGTH, LAST_ROUND, LOWEST, CUT, SPREAD, WORK = range(7)
# The x for which the indices of listed arms are computed, by how much x may differ, and until which round; x
# before and at the end; how many rounds that is; and the steepest and flattest slopes of listed arms.
X, MOVE, X_ROUND, BEGIN_X, END_X, AHEAD, STEEPEST, FLATTEST = range(7, 15)
# The number of winners, 0 if unknown; their index, the largest of all other arms, and their rounding errors.
WINNERS, TOP, SECOND, ERROR = range(15, 19)
# For quadratic indices: the factor w, the best arm and a bound on all other means; while the best arm wins, a
# bound on all other indices, and down to which x it holds.
WEIGHT, BEST, SECOND_MEAN, RIVALS, RIVALS_LOWEST = range(19, 24)
CONSTANT, ROOT, QUADRATIC = 1, 2, 3  # codes of the forms
ROUNDING = 2.0**-44  # more than the relative rounding errors of an index
LIST_ALL = 16  # up to so many arms, all are listed
EFFORT = 4.0  # the cost of an arm for making a list, relative to the cost of a listed arm in a comparison


def begin(arms: int) -> Any:
    """Return the state before the first reward: no list."""
    w = np.zeros((14, max(arms, 24)))
    w[STATE, INVALID] = -1.0
    return w


def choose(f: Any, w: Any, arms: int, t: int, rng: Any) -> int:
    """Choose an arm with the largest index. f: index, whether it uses the best mean, and t, and its form."""
    if w[STATE, WINNERS] == 0.0 or t > w[STATE, X_ROUND]:
        find_winners(f, w, arms, t)
        if w[STATE, INVALID] >= 0.0:
            return -1 - int(w[STATE, INVALID])
    winners = w[STATE, WINNERS]
    return int(w[WINNER, 0 if winners == 1.0 else int(rng.random() * winners)])


def update(f: Any, w: Any, arms: int, arm: int, reward: float, t: int) -> None:
    """Apply a reward; t is the next round."""
    w[N, arm] += 1.0
    w[S, arm] += reward
    w[MEAN, arm] = w[S, arm] / w[N, arm]
    if w[STATE, LENGTH] == 0.0:
        return
    alone = w[STATE, WINNERS] == 1.0 and w[WINNER, 0] == arm
    place = int(w[PLACE, arm])
    if f[4] == CONSTANT and alone:  # a shorter version of what follows
        value = index_of(f, w, arms, arm, t)
        w[BASE, arm] = w[ARM_BASE, place] = w[VALUE, place] = w[STATE, TOP] = value
        if not value > w[STATE, SECOND]:
            w[STATE, WINNERS] = 0.0
        return
    set_index(f, w, arms, arm, t)
    if place < 0:  # mixed-in probabilities chose it
        place = int(w[STATE, LENGTH])
        w[PLACE, arm], w[ARM, place], w[STATE, LENGTH] = place, arm, place + 1.0
        w[STATE, STEEPEST] = max(w[STATE, STEEPEST], w[SLOPE, arm])
    base, slope, mean = w[BASE, arm], w[SLOPE, arm], w[MEAN, arm]
    w[ARM_BASE, place], w[ARM_SLOPE, place], w[ARM_MEAN, place] = base, slope, mean
    if f[4] == QUADRATIC and (update_best(w, arms, arm) or np.isnan(w[STATE, X])):
        # The index of the best arm is its base.
        keep = alone and w[STATE, BEST] == arm and mean >= w[STATE, RIVALS_LOWEST] and base > w[STATE, RIVALS]
        w[STATE, WINNERS] = 1.0 if keep else 0.0
        w[STATE, X] = np.nan
        return
    value = value_at(f[4], base, slope, mean, w[STATE, X])
    w[VALUE, place] = value
    w[STATE, FLATTEST] = min(w[STATE, FLATTEST], slope)
    if alone:
        w[STATE, TOP] = value
    else:
        w[STATE, SECOND], w[STATE, RIVALS] = max(w[STATE, SECOND], value), np.inf
        remove_winner(w, arm)
    if not w[STATE, TOP] - w[STATE, SECOND] > w[STATE, ERROR] + drift(w):
        w[STATE, WINNERS] = 0.0


def remove_winner(w: Any, arm: int) -> None:
    """Take an arm out of several winners, if it is one of them."""
    winners, rank = int(w[STATE, WINNERS]), int(w[RANK, arm])
    if rank < winners and w[WINNER, rank] == arm:
        last = int(w[WINNER, winners - 1])
        w[WINNER, rank], w[RANK, last], w[STATE, WINNERS] = last, rank, winners - 1.0


def update_best(w: Any, arms: int, arm: int) -> bool:
    """Find the best arm after a pull; return whether the best mean may have changed."""
    best, mean = int(w[STATE, BEST]), w[MEAN, arm]
    if arm != best and mean <= w[MEAN, best]:
        w[STATE, SECOND_MEAN] = max(w[STATE, SECOND_MEAN], mean)
        return False
    if arm != best:
        w[STATE, BEST], w[STATE, SECOND_MEAN] = arm, w[MEAN, best]
    elif mean < w[STATE, SECOND_MEAN]:
        find_best(w, arms)
    return True


@rare
def find_best(w: Any, arms: int) -> None:
    """Find the best arm among all."""
    best, top, second = 0, -np.inf, -np.inf
    for arm in range(arms):
        mean = w[MEAN, arm]
        second = max(second, min(mean, top))
        best = arm if mean > top else best
        top = max(top, mean)
    w[STATE, BEST], w[STATE, SECOND_MEAN] = best, second


def set_index(f: Any, w: Any, arms: int, arm: int, t: int) -> None:
    """Compute the base and the slope of an arm's index."""
    if f[4] == ROOT:
        inverse = 1.0 / w[N, arm]  # known before the reward: the next round waits for no division
        w[BASE, arm], w[SLOPE, arm] = w[S, arm] * inverse, np.sqrt(inverse)
    elif f[4] == QUADRATIC:
        w[BASE, arm], w[SLOPE, arm] = -np.log(w[N, arm]), w[N, arm] * w[STATE, WEIGHT]
    else:
        w[BASE, arm] = index_of(f, w, arms, arm, t)


def value_at(form: int, base: float, slope: float, mean: float, x: float) -> float:
    """Return an index, from its form."""
    return base - slope * (x - mean) * (x - mean) if form == QUADRATIC else base + slope * x


def index_of(f: Any, w: Any, arms: int, arm: int, t: int) -> float:
    """Return the index of an arm, from the policy's formula."""
    best = w[MEAN, int(w[STATE, BEST])] if f[4] == QUADRATIC else 0.0
    index = call(f[1], f[0], w[N, arm], w[MEAN, arm], best, float(t), float(arms))
    if np.isnan(index):
        w[STATE, INVALID], w[STATE, X_ROUND] = arm, -1.0
    return index


def find_winners(f: Any, w: Any, arms: int, t: int) -> None:
    """Find all arms with the largest index."""
    form, winners = f[4], 0
    if w[STATE, LENGTH] == 0.0:
        start(f, w, arms, t)
    while winners == 0 and w[STATE, INVALID] < 0.0:
        refresh(f, w, arms, t)
        length = int(w[STATE, LENGTH])
        if arms > LIST_ALL:
            w[STATE, WORK] += length
        place, top, second = find_two(w, length)
        size = abs(top) + 2.0 * abs(w[STATE, X]) if form == ROOT else abs(top)
        error, cut = 0.0 if form == CONSTANT else ROUNDING * size, w[STATE, CUT]
        cut += w[STATE, MOVE] * w[STATE, STEEPEST]
        if length < arms and not top > cut + error:
            make_list(f, w, arms, t)
            continue
        w[WINNER, 0], winners = w[ARM, place], 1
        if not top - second > error + drift(w):
            winners, second = list_winners(w, length, place, error)
        second = second if length == arms else max(second, cut)
        if winners > 1 and form != CONSTANT and not are_identical(w, winners):
            if w[STATE, MOVE] > 0.0:
                w[STATE, AHEAD] *= 0.5
                set_x(f, w, arms, t, t)
                winners = 0
                continue
            winners, second = compare_exactly(f, w, arms, t, winners), np.inf
        for rank in range(winners):
            w[RANK, int(w[WINNER, rank])] = rank
        w[STATE, TOP], w[STATE, SECOND], w[STATE, ERROR] = top, second, error
        if form == QUADRATIC:
            bound_rivals(w, length, winners)
    w[STATE, WINNERS] = winners


def refresh(f: Any, w: Any, arms: int, t: int) -> None:
    """Renew the list, or only the indices of the listed arms, if they are no longer valid."""
    if t > w[STATE, LAST_ROUND] or w[STATE, WORK] > 2.0 * EFFORT * arms:
        make_list(f, w, arms, t)
    elif f[4] == QUADRATIC:
        best = w[MEAN, int(w[STATE, BEST])]
        if best < w[STATE, LOWEST]:
            make_list(f, w, arms, t)
        elif best != w[STATE, X]:
            set_x(f, w, arms, t, t)
    elif t > w[STATE, X_ROUND]:
        w[STATE, AHEAD] = min(1.25 * w[STATE, AHEAD] + 0.05, t / 64.0)
        set_x(f, w, arms, t, int(min(t + w[STATE, AHEAD], w[STATE, LAST_ROUND])))


def find_two(w: Any, length: int) -> tuple[int, float, float]:
    """Return the place of the largest index of a listed arm, this index, and the second largest.

    The two halves of the list do not wait for each other.
    """
    half = length // 2
    first, top, second = 0, -np.inf, -np.inf
    other, other_top, other_second = length - 1, w[VALUE, length - 1] if length % 2 else -np.inf, -np.inf
    for place in range(half):
        value = w[VALUE, place]
        second = max(second, min(value, top))
        first = place if value > top else first
        top = max(top, value)
        value = w[VALUE, place + half]
        other_second = max(other_second, min(value, other_top))
        other = place + half if value > other_top else other
        other_top = max(other_top, value)
    second = max(second, other_second, min(top, other_top))
    return (first, top, second) if top >= other_top else (other, other_top, second)


def list_winners(w: Any, length: int, first: int, error: float) -> tuple[int, float]:
    """List the arms whose index may reach that of a place; return their number, and the largest other one."""
    winners, second, top, slope = 0, -np.inf, w[VALUE, first] - error, w[ARM_SLOPE, first]
    for place in range(length):
        value = w[VALUE, place]
        # False for nan, which the formula then reports.
        below = value < top - w[STATE, MOVE] * abs(w[ARM_SLOPE, place] - slope)
        w[WINNER, winners] = w[ARM, place]
        winners += 0 if below else 1
        second = max(second, value if below else -np.inf)
    return winners, second


def are_identical(w: Any, winners: int) -> bool:
    """Return whether all winners have the same pulls and sums, hence always the same index."""
    first, same = int(w[WINNER, 0]), True
    for rank in range(1, winners):
        arm = int(w[WINNER, rank])
        same = same and w[N, arm] == w[N, first] and w[S, arm] == w[S, first]
    return same


@rare
def compare_exactly(f: Any, w: Any, arms: int, t: int, candidates: int) -> int:
    """Keep the candidates with the largest index by the policy's formula; return their number."""
    top, winners = -np.inf, 0
    for rank in range(candidates):
        top = max(top, index_of(f, w, arms, int(w[WINNER, rank]), t))
    for rank in range(candidates):
        arm = int(w[WINNER, rank])
        if index_of(f, w, arms, arm, t) == top:
            w[WINNER, winners] = arm
            winners += 1
    return winners


def bound_rivals(w: Any, length: int, winners: int) -> None:
    """Bound the quadratic indices of all arms but the best, if it wins, for somewhat lower best means."""
    if winners > 1 or w[WINNER, 0] != w[STATE, BEST]:
        w[STATE, RIVALS] = np.inf
        return
    x, steepest, bound = w[STATE, X], 0.0, w[STATE, CUT]
    for place in range(length):
        steepest = max(steepest, w[ARM_SLOPE, place] * (x - w[ARM_MEAN, place]))
    lowest = max(w[STATE, LOWEST], x - 0.25 * (w[STATE, TOP] - w[STATE, SECOND]) / steepest)
    best = w[STATE, BEST]
    for place in range(length):
        gap = max(lowest - w[ARM_MEAN, place], 0.0)
        value = w[ARM_BASE, place] - w[ARM_SLOPE, place] * gap * gap
        bound = max(bound, -np.inf if w[ARM, place] == best else value)
    w[STATE, RIVALS], w[STATE, RIVALS_LOWEST] = bound + 2.0 * w[STATE, ERROR], lowest


def clock(f: Any, w: Any, arms: int, t: int) -> float:
    """Return x in round t."""
    if f[4] == QUADRATIC:
        return w[MEAN, int(w[STATE, BEST])]
    return call(f[1], f[0], 1.0, 0.0, 0.0, float(t), float(arms)) if f[4] == ROOT else 0.0


@rare
def set_x(f: Any, w: Any, arms: int, t: int, last: int) -> None:
    """Compute the indices of listed arms for the rounds from t to a last one."""
    form, begin, end = f[4], w[STATE, BEGIN_X], clock(f, w, arms, last)
    # In all these rounds, x is between its value in an earlier round, which is known, and that in the last.
    begin = w[STATE, END_X] if t > w[STATE, X_ROUND] else begin
    begin = begin if form == ROOT and last > t else end
    x = 0.5 * (begin + end)
    for place in range(int(w[STATE, LENGTH])):
        w[VALUE, place] = value_at(form, w[ARM_BASE, place], w[ARM_SLOPE, place], w[ARM_MEAN, place], x)
    w[STATE, X], w[STATE, MOVE], w[STATE, X_ROUND] = x, abs(end - x), last if form == ROOT else np.inf
    w[STATE, BEGIN_X], w[STATE, END_X] = begin, end


def drift(w: Any) -> float:
    """Return how much the difference of two indices of listed arms may change until the last round of x."""
    return w[STATE, MOVE] * (w[STATE, STEEPEST] - w[STATE, FLATTEST])


@rare
def start(f: Any, w: Any, arms: int, t: int) -> None:
    """Compute all indices after the first pull of each arm."""
    w[STATE, WEIGHT] = -call(f[1], f[0], 1.0, 0.0, 1.0, float(t), float(arms)) if f[4] == QUADRATIC else 0.0
    find_best(w, arms)
    for arm in range(arms):
        set_index(f, w, arms, arm, t)
    w[STATE, LAST_ROUND], w[STATE, END_X] = -1.0, clock(f, w, arms, t)


@rare
def make_list(f: Any, w: Any, arms: int, t: int) -> None:
    """List the arms whose index can come near the largest one."""
    form, x, top, bottom, steepest, length = f[4], clock(f, w, arms, t), -np.inf, np.inf, 0.0, 0
    for arm in range(arms):
        value = value_at(form, w[BASE, arm], w[SLOPE, arm], w[MEAN, arm], x)
        top, bottom = max(top, value), min(bottom, value)
        steepest = max(steepest, 2.0 * w[SLOPE, arm] * (x - w[MEAN, arm]))
    spread = w[STATE, SPREAD] * (1.5 if w[STATE, WORK] < EFFORT * arms else 0.67)
    w[STATE, SPREAD] = spread = spread if spread > 0.0 else 0.25 * (top - bottom)
    cut = top - spread if arms > LIST_ALL else -np.inf
    last = t + 8 + t // 32
    w[STATE, WORK], w[STATE, LAST_ROUND], w[STATE, LOWEST] = 0.0, last, -np.inf
    if form == ROOT:
        x = max(x, clock(f, w, arms, last))
    elif form == QUADRATIC and cut > -np.inf:
        w[STATE, LOWEST] = x = x - spread / steepest
    w[STATE, STEEPEST], w[STATE, FLATTEST] = 0.0, np.inf
    for arm in range(arms):
        base, slope, mean = w[BASE, arm], w[SLOPE, arm], w[MEAN, arm]
        # Below its mean, a quadratic index can be as large as its base.
        below = value_at(form, base, slope, mean, max(x, mean) if form == QUADRATIC else x) < cut
        w[PLACE, arm] = -1.0 if below else length
        w[ARM, length], w[ARM_BASE, length], w[ARM_SLOPE, length], w[ARM_MEAN, length] = (
            arm,
            base,
            slope,
            mean,
        )
        w[STATE, STEEPEST] = max(w[STATE, STEEPEST], 0.0 if below else slope)
        w[STATE, FLATTEST] = min(w[STATE, FLATTEST], np.inf if below else slope)
        length += 0 if below else 1
    w[STATE, LENGTH], w[STATE, CUT] = length, -np.inf if length == arms else cut
    check_form(f, w, arms, t % arms, t)
    set_x(f, w, arms, t, t + int(w[STATE, AHEAD]))


def check_form(f: Any, w: Any, arms: int, arm: int, t: int) -> None:
    """Stop if an index is not what its form says, beyond rounding."""
    x, base, slope = clock(f, w, arms, t), w[BASE, arm], w[SLOPE, arm]
    index, value = index_of(f, w, arms, arm, t), value_at(f[4], base, slope, w[MEAN, arm], x)
    if abs(index - value) > ROUNDING * (abs(base) + abs(slope * x) + abs(value)):
        w[STATE, INVALID] = arm


ENGINE = (begin, choose, update)
