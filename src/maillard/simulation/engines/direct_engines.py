"""The direct engine: the obvious loop over all arms, in every round. It is what the lazy engine is checked against.

Cold arms, which delays and new arms make, are treated as `policy.probabilities` treats them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maillard.simulation.compiling import call
from maillard.simulation.engines.score_sampling import are_valid_parameters, sample_score

__all__ = ["DISTRIBUTIONS", "ENGINES"]

# Rows of the table: pulls, sums, means, chances and their logarithms; DMED's two lists, the one that is played and the one that
# grows meanwhile; and of which state the chances are.
N, S, MEAN, PROBABILITY, LOG, CURRENT, FOLLOWING, ROUND, PULLS = range(9)


def begin(arms: int) -> Any:
    """Nothing observed."""
    return np.zeros((9, arms))


def update(f: Any, w: Any, arms: int, arm: int, reward: float, t: int) -> None:
    """Count a reward."""
    w[N, arm] += 1.0
    w[S, arm] += reward


def choose_sampled(f: Any, w: Any, arms: int, t: int, rng: Any) -> int:
    """An arm with probability proportional to exp(log weight)."""
    bad = 0 if is_current(w, arms, t) else compute_sampled(f, w, arms, t)
    return bad if bad < 0 else sample_arm(w, arms, rng)


def is_current(w: Any, arms: int, t: int) -> bool:
    """Whether the chances in the table are those of this state; they will be, once computed.

    While rewards wait, nothing changes: t counts what was observed, and an arm that is replaced takes its pulls away.
    """
    pulls = 0.0
    for arm in range(arms):
        pulls += w[N, arm]
    same = w[ROUND, 0] == t and w[PULLS, 0] == pulls
    w[ROUND, 0], w[PULLS, 0] = t, pulls
    return same


def compute_sampled(f: Any, w: Any, arms: int, t: int) -> int:
    """Every arm's log probability and chance; -1 - arm where a weight is nan or inf."""
    best = -np.inf
    for arm in range(arms):
        if w[N, arm] > 0:
            w[MEAN, arm] = compared_mean(f, w[N, arm], w[S, arm])
            best = max(best, w[MEAN, arm])
    top = -np.inf
    for arm in range(arms):
        log = 0.0  # a cold arm: a rival in the limit N = 0
        if w[N, arm] > 0:
            if w[MEAN, arm] == best:
                log = call(f[1], f[0], w[N, arm], float(t), 0.0, 0.0, 0.0)
            else:
                log = call(f[2], f[0], w[N, arm], w[MEAN, arm], best, float(t), 0.0)
        if not log < np.inf:
            return -1 - arm
        w[LOG, arm] = log
        top = max(top, log)
    total = 0.0
    for arm in range(arms):
        w[LOG, arm] -= top
        total += np.exp(w[LOG, arm])
    for arm in range(arms):
        w[LOG, arm] -= np.log(total)
        w[PROBABILITY, arm] = np.exp(w[LOG, arm])
    return 0


def compared_mean(f: Any, n: float, s: float) -> float:
    """The mean that is compared: the policy's own formula, or the empirical mean."""
    return call(f[3], f[0], n, s, 0.0, 0.0, 0.0) if f[3] else s / n


def choose_indexed(f: Any, w: Any, arms: int, t: int, rng: Any) -> int:
    """An arm with the largest index."""
    bad = 0 if is_current(w, arms, t) else compute_indexed(f, w, arms, t)
    return bad if bad < 0 else sample_arm(w, arms, rng)


def compute_indexed(f: Any, w: Any, arms: int, t: int) -> int:
    """Every arm's log probability and chance: ties alike, 1/K for a cold arm; -1 - arm where an index is nan."""
    best = best_mean(w, arms)
    for arm in range(arms):
        if w[N, arm] > 0:
            w[LOG, arm] = call(f[1], f[0], w[N, arm], w[MEAN, arm], best, float(t), float(arms))
    return split_among_ties(w, arms)


def choose_pooled(f: Any, w: Any, arms: int, t: int, rng: Any) -> int:
    """An arm with the largest index, where an index depends on the pulls of all arms."""
    bad = 0 if is_current(w, arms, t) else compute_pooled(f, w, arms, t)
    return bad if bad < 0 else sample_arm(w, arms, rng)


def compute_pooled(f: Any, w: Any, arms: int, t: int) -> int:
    """As `rank`; with arms in order of their pulls, the sums of all arms' pulls are running sums."""
    best_mean(w, arms)
    order = np.argsort(w[N])
    rho, below, place = call(f[2], f[0], 0.0, 0.0, 0.0, 0.0, 0.0), 0.0, 0
    while place < arms:
        n, first = w[N, order[place]], place
        while place < arms and w[N, order[place]] == n:
            place += 1
        if n == 0:
            continue
        pooled = n * (arms - first) + n ** (1.0 - rho) * below
        below += (place - first) * n**rho
        for i in range(first, place):
            arm = order[i]
            w[LOG, arm] = call(f[1], f[0], n, w[MEAN, arm], pooled, float(t), float(arms))
    return split_among_ties(w, arms)


def best_mean(w: Any, arms: int) -> float:
    """The means of all warm arms, and the best."""
    best = -np.inf
    for arm in range(arms):
        if w[N, arm] > 0:
            w[MEAN, arm] = w[S, arm] / w[N, arm]
            best = max(best, w[MEAN, arm])
    return best


def split_among_ties(w: Any, arms: int) -> int:
    """From indices in `log` to log probabilities and chances."""
    top, ties, cold = -np.inf, 0, 0
    for arm in range(arms):
        if w[N, arm] == 0:
            cold += 1
        elif np.isnan(w[LOG, arm]):
            return -1 - arm
        elif w[LOG, arm] > top or ties == 0:
            top, ties = w[LOG, arm], 1
        elif w[LOG, arm] == top:
            ties += 1
    warm_share = 0.0 if ties == 0 else (1.0 - cold / arms) / ties
    for arm in range(arms):
        if w[N, arm] == 0:
            w[PROBABILITY, arm] = 1.0 / arms
        else:
            w[PROBABILITY, arm] = warm_share if w[LOG, arm] == top else 0.0
        w[LOG, arm] = np.log(w[PROBABILITY, arm])
    return 0


def sample_arm(w: Any, arms: int, rng: Any) -> int:
    """An arm with these chances."""
    u, last = rng.random(), 0
    for arm in range(arms):
        u -= w[PROBABILITY, arm]
        if u < 0.0:
            return arm
        if w[PROBABILITY, arm] > 0.0:
            last = arm
    return last


def choose_perturbed(f: Any, w: Any, arms: int, t: int, rng: Any) -> int:
    """The arm with the largest score, every one drawn. f: location, spread, the family's code, has prior."""
    prior = f[4]
    if not prior:
        arm = sample_cold_arm(w, arms, rng)
        if arm >= 0:
            return arm
    top, winner = -np.inf, -1
    for arm in range(arms):
        n, s = w[N, arm], w[S, arm]
        if prior or n > 0:
            a = call(f[1], f[0], n, s, 0.0, 0.0, 0.0)
            b = call(f[2], f[0], n, s, 0.0, 0.0, 0.0)
            if not are_valid_parameters(f[3], a, b):
                return -1 - arm
            score = sample_score(f[3], a, b, rng)
            if score > top:
                top, winner = score, arm
    return winner


def sample_cold_arm(w: Any, arms: int, rng: Any) -> int:
    """A cold arm, each with probability 1/K; else -1."""
    warm = 0
    for arm in range(arms):
        if w[N, arm] > 0:
            warm += 1
    if warm == arms:
        return -1
    place = int(rng.random() * arms)
    return place if w[N, place] == 0 or warm == 0 else -1


def choose_binomial(f: Any, w: Any, arms: int, t: int, rng: Any) -> int:
    """The arm with the largest discrete score, ties alike. f: offset, trials, chance, size, how often it is rounded up."""
    top, winner, ties = -np.inf, -1, 0
    for arm in range(arms):
        n, s = w[N, arm], w[S, arm]
        up = call(f[5], f[0], n, 0.0, 0.0, 0.0, 0.0)
        up = 1.0 if up > 0.0 and rng.random() < up else 0.0
        offset = call(f[1], f[0], n, s, up, 0.0, 0.0)
        trials = int(call(f[2], f[0], n, s, up, 0.0, 0.0))
        chance = call(f[3], f[0], n, s, up, 0.0, 0.0)
        size = call(f[4], f[0], n, s, up, 0.0, 0.0)
        if not (0.0 <= chance <= 1.0 and size > 0.0 and trials >= 0):
            return -1 - arm
        score = (offset + rng.binomial(trials, chance)) / size
        if score > top:
            top, winner, ties = score, arm, 1
        elif score == top:
            ties += 1
            if rng.random() * ties < 1.0:
                winner = arm
    return winner


def choose_listed(f: Any, w: Any, arms: int, t: int, rng: Any) -> int:
    """The next arm on DMED's list."""
    bad = compute_listed(f, w, arms, t)
    return bad if bad < 0 else sample_arm(w, arms, rng)


def compute_listed(f: Any, w: Any, arms: int, t: int) -> int:
    """All on the next arm of the list, taken off it; the list that grew meanwhile, when there is none."""
    if not np.any(w[CURRENT] != 0.0):
        for arm in range(arms):  # cold arms, which delays and new arms make, are on every list
            w[CURRENT, arm] = w[FOLLOWING, arm] if w[N, arm] > 0 else 1.0
        w[FOLLOWING] = 0.0
    for arm in range(arms):
        if np.isnan(w[CURRENT, arm]):
            return -1 - arm
        if w[CURRENT, arm] > 0.0:
            w[CURRENT, arm] = 0.0
            w[PROBABILITY] = 0.0
            w[PROBABILITY, arm] = 1.0
            break
    w[LOG] = np.log(w[PROBABILITY])
    return 0


def update_list(f: Any, w: Any, arms: int, arm: int, reward: float, t: int) -> None:
    """Count a reward; arms that qualify and are not waiting to be played join the next list."""
    update(f, w, arms, arm, reward, t)
    best = best_mean(w, arms)
    for other in range(arms):
        if w[N, other] > 0 and w[CURRENT, other] == 0.0 and w[FOLLOWING, other] == 0.0:
            w[FOLLOWING, other] = call(f[1], f[0], w[N, other], w[MEAN, other], best, float(t), float(arms))


ENGINES = {
    "sampled": (begin, choose_sampled, update),
    "indexed": (begin, choose_indexed, update),
    "pooled": (begin, choose_pooled, update),
    "listed": (begin, choose_listed, update_list),
    "perturbed": (begin, choose_perturbed, update),
    "binomial": (begin, choose_binomial, update),
}
DISTRIBUTIONS = {
    "sampled": compute_sampled,
    "indexed": compute_indexed,
    "pooled": compute_pooled,
    "listed": compute_listed,
}
