"""The direct engines: evaluate every arm in every round. The lazy engines are tested against them.

Cold arms (arms without observed rewards) occur with delays and new arms. They are treated as in
`policy.probabilities`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maillard.simulation.compiling import call
from maillard.simulation.engines.score_sampling import are_valid_parameters, sample_score

# Rows of the table: pulls, sums, means, probabilities and their logarithms; DMED's current list and the next
# one; the round and the total pulls for which the probabilities were computed.
N, S, MEAN, PROBABILITY, LOG, CURRENT, FOLLOWING, ROUND, PULLS = range(9)


def begin(arms: int) -> Any:
    """Return the state before the first reward."""
    return np.zeros((9, arms))


def update(f: Any, w: Any, arms: int, arm: int, reward: float, t: int) -> None:
    """Count a reward."""
    w[N, arm] += 1.0
    w[S, arm] += reward


def choose_sampled(f: Any, w: Any, arms: int, t: int, rng: Any) -> int:
    """Choose an arm with probability proportional to exp(log weight)."""
    bad = 0 if is_current(w, arms, t) else compute_sampled(f, w, arms, t)
    return bad if bad < 0 else sample_arm(w, arms, rng)


def is_current(w: Any, arms: int, t: int) -> bool:
    """Return whether the table has the probabilities of this state; the caller computes them otherwise.

    While rewards are delayed, the state does not change: t counts observed rewards, and replacing an arm
    removes its pulls.
    """
    pulls = 0.0
    for arm in range(arms):
        pulls += w[N, arm]
    same = w[ROUND, 0] == t and w[PULLS, 0] == pulls
    w[ROUND, 0], w[PULLS, 0] = t, pulls
    return same


def compute_sampled(f: Any, w: Any, arms: int, t: int) -> int:
    """Compute every arm's probability and its logarithm; return -1 - arm if a weight is nan or inf."""
    best = -np.inf
    for arm in range(arms):
        if w[N, arm] > 0:
            w[MEAN, arm] = compared_mean(f, w[N, arm], w[S, arm])
            best = max(best, w[MEAN, arm])
    top = -np.inf
    for arm in range(arms):
        log = 0.0  # a cold arm weighs as a rival with N = 0 pulls
        if w[N, arm] > 0:
            log = log_weight(f, w[N, arm], w[MEAN, arm], best, t, t)
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
    """Return the mean that is compared between arms: the policy's own estimate, or the empirical mean."""
    return call(f[3], f[0], n, s, 0.0, 0.0, 0.0) if f[3] else s / n


def log_weight(f: Any, n: float, mean: float, best: float, late: float, t: float) -> float:
    """Return the log weight of an arm: a leader's in round `late`, or a rival's in round t."""
    if mean >= best:
        return call(f[1], f[0], n, float(late), 0.0, 0.0, 0.0)
    return call(f[2], f[0], n, mean, best, float(t), 0.0)


def choose_indexed(f: Any, w: Any, arms: int, t: int, rng: Any) -> int:
    """Choose an arm with the largest index."""
    bad = 0 if is_current(w, arms, t) else compute_indexed(f, w, arms, t)
    return bad if bad < 0 else sample_arm(w, arms, rng)


def compute_indexed(f: Any, w: Any, arms: int, t: int) -> int:
    """Compute every arm's probability; return -1 - arm if an index is nan.

    Arms with the largest index have equal probabilities. A cold arm has probability 1/K.
    """
    best = best_mean(w, arms)
    for arm in range(arms):
        if w[N, arm] > 0:
            w[LOG, arm] = call(f[1], f[0], w[N, arm], w[MEAN, arm], best, float(t), float(arms))
    return split_among_ties(w, arms)


def choose_pooled(f: Any, w: Any, arms: int, t: int, rng: Any) -> int:
    """Choose an arm with the largest index, where an index depends on the pulls of all arms."""
    bad = 0 if is_current(w, arms, t) else compute_pooled(f, w, arms, t)
    return bad if bad < 0 else sample_arm(w, arms, rng)


def compute_pooled(f: Any, w: Any, arms: int, t: int) -> int:
    """As `compute_indexed`; sorting the arms by pulls turns the sums over all arms into running sums."""
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
    """Compute the means of all warm arms and return the best."""
    best = -np.inf
    for arm in range(arms):
        if w[N, arm] > 0:
            w[MEAN, arm] = w[S, arm] / w[N, arm]
            best = max(best, w[MEAN, arm])
    return best


def split_among_ties(w: Any, arms: int) -> int:
    """Turn the indices in LOG into probabilities and their logarithms."""
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
    """Sample an arm from the probabilities in the table."""
    u, last = rng.random(), 0
    for arm in range(arms):
        u -= w[PROBABILITY, arm]
        if u < 0.0:
            return arm
        if w[PROBABILITY, arm] > 0.0:
            last = arm
    return last


def choose_perturbed(f: Any, w: Any, arms: int, t: int, rng: Any) -> int:
    """Sample every score; choose the largest. f: location, spread, distribution code, has prior."""
    prior = f[4]
    cold = -1 if prior else sample_cold_arm(w, arms, rng)
    if cold >= 0:
        return cold
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
    """Return each cold arm (without observed rewards) with probability 1/K, otherwise -1."""
    warm = 0
    for arm in range(arms):
        warm += int(w[N, arm] > 0)
    if warm == arms:
        return -1
    place = int(rng.random() * arms)
    return place if w[N, place] == 0 or warm == 0 else -1


def choose_binomial(f: Any, w: Any, arms: int, t: int, rng: Any) -> int:
    """Choose the arm with the largest score. f: its offset, trials, probability and size; rounding up."""
    top, winner, ties = -np.inf, -1, 0
    for arm in range(arms):
        n, s = w[N, arm], w[S, arm]
        up = call(f[5], f[0], n, 0.0, 0.0, 0.0, 0.0)
        up = 1.0 if up > 0.0 and rng.random() < up else 0.0
        offset = call(f[1], f[0], n, s, up, 0.0, 0.0)
        trials = int(call(f[2], f[0], n, s, up, 0.0, 0.0))
        probability = call(f[3], f[0], n, s, up, 0.0, 0.0)
        size = call(f[4], f[0], n, s, up, 0.0, 0.0)
        if not (0.0 <= probability <= 1.0 and size > 0.0 and trials >= 0):
            return -1 - arm
        score = (offset + rng.binomial(trials, probability)) / size
        if score > top:
            top, winner, ties = score, arm, 1
        elif score == top:
            ties += 1
            if rng.random() * ties < 1.0:
                winner = arm
    return winner


def choose_listed(f: Any, w: Any, arms: int, t: int, rng: Any) -> int:
    """Choose the next arm on DMED's list."""
    bad = compute_listed(f, w, arms, t)
    return bad if bad < 0 else sample_arm(w, arms, rng)


def compute_listed(f: Any, w: Any, arms: int, t: int) -> int:
    """Put all probability on the next arm of the list and remove it.

    When the list is empty, take the next list.
    """
    if not np.any(w[CURRENT] != 0.0):
        for arm in range(arms):  # cold arms are on every list
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
    """Count a reward; arms that qualify and are not on the current list join the next one."""
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
