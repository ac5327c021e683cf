"""High-precision choice probabilities of every policy, implemented independently from the formulas.

This module does not import the package. mpmath evaluates each formula with 60 digits. Integrals of perturbed
policies have a relative error below 1e-25, even for tiny probabilities. Sums of discrete scores are exact. So
if the package disagrees, the package is wrong. An empirical mean is the IEEE quotient sums / pulls, as in
`Tally`; everything after that is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from math import ceil, comb
from typing import Any, NamedTuple

from mpmath import mp, mpf  # type: ignore[import-untyped, unused-ignore]
from mpmath.calculus.quadrature import (  # type: ignore[import-untyped, unused-ignore]
    GaussLegendre,
)

DIGITS = 60  # of every evaluation except the quadrature
QUADRATURE_DIGITS = 42
SEARCH_DIGITS = 20  # for the range of an integrand
DROP = 80  # nats below its peak at which an integrand is cut off: a relative 1e-34
PANEL_ERROR = mpf(10) ** -29  # of a panel, relative to (a lower bound of) its arm's probability
TIE = mpf(10) ** -40


class View(NamedTuple):
    """The input of a formula: pulls N, sums S, the current round t."""

    pulls: list[int]
    sums: list[float]
    t: int

    @property
    def means(self) -> list[mpf]:
        """m = S / N, rounded as IEEE rounds it."""
        return [mpf(s / n) for n, s in zip(self.pulls, self.sums, strict=True)]

    @property
    def arms(self) -> list[tuple[int, mpf]]:
        """(N, m) of every arm."""
        return list(zip(self.pulls, self.means, strict=True))


def log_probabilities(
    name: str, pulls: Sequence[int], sums: Sequence[float], *, t: int, **parameters: Any
) -> list[mpf]:
    """ln p of every arm under the named policy; -inf where an arm is impossible."""
    view = View([int(n) for n in pulls], [float(s) for s in sums], int(t))
    with mp.workdps(DIGITS):
        if name in INDICES:
            return log_uniform(argmax(INDICES[name](view, **parameters)))
        return POLICIES[name](view, **parameters)


def indices(
    name: str, pulls: Sequence[int], sums: Sequence[float], *, t: int, **parameters: Any
) -> list[mpf]:
    """The index of every arm under the named indexed policy, larger being better."""
    view = View([int(n) for n in pulls], [float(s) for s in sums], int(t))
    with mp.workdps(DIGITS):
        return INDICES[name](view, **parameters)


# Shared pieces


def log_positive(x: mpf) -> mpf:
    """ln_+ x = max(0, ln x)."""
    return mp.log(x) if x > 1 else mpf(0)


def log_or_ninf(p: mpf) -> mpf:
    """ln p, -inf at 0."""
    return mp.log(p) if p > 0 else mp.ninf


def log_softmax(log_weights: list[mpf]) -> list[mpf]:
    """ln p_a = w_a - ln sum_b exp(w_b)."""
    top = max(log_weights)
    total = top + mp.log(mp.fsum(mp.exp(w - top) for w in log_weights))
    return [w - total for w in log_weights]


def log_uniform(chosen: list[bool]) -> list[mpf]:
    """ln p_a = -ln |chosen| on the chosen arms, -inf elsewhere."""
    if not any(chosen):
        raise ValueError("no arm is chosen")
    return [-mp.log(sum(chosen)) if c else mp.ninf for c in chosen]


def argmax(values: list[mpf]) -> list[bool]:
    """The arms whose value ties with the largest, to a relative 1e-40."""
    best = max(values)
    return [v == best or (mp.isfinite(v) and best - v <= TIE * max(abs(best), abs(v))) for v in values]


def divergence(family: str, a: mpf, b: mpf, sigma2: float | None = None) -> mpf:
    """KL(a, b): (a-b)^2/2s2 | kl | b-a+a ln(a/b) | a/b-1-ln(a/b), with 0 ln 0 = 0."""
    if a == b:
        return mpf(0)
    if family == "gaussian":
        if sigma2 is None:
            raise TypeError("the Gaussian family needs sigma2")
        return (a - b) ** 2 / (2 * mpf(sigma2))
    if family == "bernoulli":
        return entropy_term(a, b) + entropy_term(1 - a, 1 - b)
    if family == "poisson":
        return b - a + entropy_term(a, b)
    if family == "exponential":
        return a / b - 1 - mp.log(a / b) if a > 0 and b > 0 else mp.inf
    raise ValueError(f"no such family: {family}")


def entropy_term(a: mpf, b: mpf) -> mpf:
    """a ln(a/b): 0 at a = 0, inf at b = 0 < a."""
    if a == 0:
        return mpf(0)
    return a * mp.log(a / b) if b > 0 else mp.inf


# Sampled


def sampled(
    view: View,
    leader: Callable[[int], mpf],
    rival: Callable[[int, mpf, mpf], mpf],
    means: list[mpf] | None = None,
) -> list[mpf]:
    """p_a ~ exp(leader(N)) where m is the best mean, exp(rival(N, m, best)) elsewhere."""
    m = view.means if means is None else means
    best = max(m)
    weigh = zip(view.pulls, m, strict=True)
    return log_softmax([leader(n) if x == best else rival(n, x, best) for n, x in weigh])


def ms(view: View, *, sigma2: float) -> list[mpf]:
    """p_a ~ exp(-x), x = N d^2 / (2 sigma2)."""
    return sampled(view, lambda n: mpf(0), lambda n, m, best: -n * (best - m) ** 2 / (2 * mpf(sigma2)))


def ms_plus(view: View, *, sigma2: float, booster: float = 4, c: float = 0.01, d: float = 0.01) -> list[mpf]:
    """Leaders: B (1 + C ln(1 + ln(t/N))); rivals: exp(-x) (1 + D x)."""

    def leader(n: int) -> mpf:
        return mp.log(booster) + mp.log(1 + mpf(c) * mp.log(1 + mp.log(mpf(view.t) / n)))

    def rival(n: int, m: mpf, best: mpf) -> mpf:
        x = n * (best - m) ** 2 / (2 * mpf(sigma2))
        return -x + mp.log(1 + mpf(d) * x)

    return sampled(view, leader, rival)


def ms_practical(view: View, *, sigma2: float, booster: float = 4) -> list[mpf]:
    """p_a ~ B^[best] exp(-N d^2 / (2 sigma2))."""
    return sampled(
        view,
        lambda n: mp.log(booster),
        lambda n, m, best: -n * (best - m) ** 2 / (2 * mpf(sigma2)),
    )


def ms_printed(view: View, *, sigma2: float, booster: float = 4) -> list[mpf]:
    """p_a ~ B^[best] exp(-d^2 / (2 sigma2))."""
    return sampled(view, lambda n: mp.log(booster), lambda n, m, best: -((best - m) ** 2) / (2 * mpf(sigma2)))


def kl_ms(view: View, *, jeffreys: bool = False) -> list[mpf]:
    """p_a ~ exp(-N kl(m, best)), Bernoulli kl; Jeffreys: m = (S + 1/2) / (N + 1), N unchanged."""
    smoothed = [mpf((s + 0.5) / (n + 1)) for n, s in zip(view.pulls, view.sums, strict=True)]
    return sampled(
        view,
        lambda n: mpf(0),
        lambda n, m, best: -n * divergence("bernoulli", m, best),
        smoothed if jeffreys else None,
    )


def kl_ms_plus(
    view: View, *, booster: float = 4, c: float = 0.01, d: float = 0.01, jeffreys: bool = False
) -> list[mpf]:
    """Leaders: B (1 + C ln(1 + ln(t/N))); rivals: exp(-x) (1 + D x), x = N kl(m, best). Jeffreys as kl_ms."""

    def leader(n: int) -> mpf:
        return mp.log(booster) + mp.log(1 + mpf(c) * mp.log(1 + mp.log(mpf(view.t) / n)))

    def rival(n: int, m: mpf, best: mpf) -> mpf:
        x = n * divergence("bernoulli", m, best)
        return -x + mp.log(1 + mpf(d) * x) if x < mp.inf else -mp.inf

    smoothed = [mpf((s + 0.5) / (n + 1)) for n, s in zip(view.pulls, view.sums, strict=True)]
    return sampled(view, leader, rival, smoothed if jeffreys else None)


def med(view: View, *, family: str = "gaussian", sigma2: float | None = None) -> list[mpf]:
    """p_a ~ exp(-N KL(m, best))."""
    return sampled(view, lambda n: mpf(0), lambda n, m, best: -n * divergence(family, m, best, sigma2))


def boltzmann(view: View, *, eta: float = 1, schedule: str = "constant") -> list[mpf]:
    """p_a ~ exp(eta_t m), eta_t = eta or eta ln t."""
    eta_t = mpf(eta) * {"constant": mpf(1), "log": mp.log(view.t)}[schedule]
    return log_softmax([eta_t * m for m in view.means])


def epsilon_greedy(view: View, *, epsilon: float = 0.1) -> list[mpf]:
    """p_a = epsilon / K + (1 - epsilon) [a leads] / #leaders."""
    means = view.means
    leads = [m == max(means) for m in means]
    floor, exploit = mpf(epsilon) / len(leads), (1 - mpf(epsilon)) / sum(leads)
    return [log_or_ninf(floor + exploit * lead) for lead in leads]


def uniform(view: View) -> list[mpf]:
    """p_a = 1 / K."""
    return log_uniform([True] * len(view.pulls))


def dmed(view: View, *, family: str = "gaussian", sigma2: float | None = None) -> list[mpf]:
    """Uniform over {a: N KL(m, best) <= ln(t/N)}."""
    best = max(view.means)
    return log_uniform(
        [n * divergence(family, m, best, sigma2) <= mp.log(mpf(view.t) / n) for n, m in view.arms]
    )


# Indexed


def bonus(view: View, scale: float, squares: Sequence[mpf]) -> list[mpf]:
    """Index = m + scale sqrt(square)."""
    return [m + mpf(scale) * mp.sqrt(q) for m, q in zip(view.means, squares, strict=True)]


def ucb1(view: View, *, sigma2: float, scale: float = 1) -> list[mpf]:
    """m + sqrt(8 sigma2 ln t / N)."""
    return bonus(view, scale, [8 * mpf(sigma2) * mp.log(view.t) / n for n in view.pulls])


def aoucb(view: View, *, sigma2: float, scale: float = 1) -> list[mpf]:
    """m + sqrt(2 sigma2 ln(1 + t ln^2 t) / N)."""
    level = mp.log(1 + view.t * mp.log(view.t) ** 2)
    return bonus(view, scale, [2 * mpf(sigma2) * level / n for n in view.pulls])


def moss(view: View, *, sigma2: float, horizon: int, constant: float = 4, scale: float = 1) -> list[mpf]:
    """m + sqrt(constant sigma2 ln_+(T / (K N)) / N)."""
    k, c = len(view.pulls), mpf(constant) * mpf(sigma2)
    return bonus(view, scale, [c * log_positive(mpf(horizon) / (k * n)) / n for n in view.pulls])


def moss_anytime(view: View, *, sigma2: float, alpha: float = 1.35, scale: float = 1) -> list[mpf]:
    """m + sqrt(4 sigma2 ((1 + alpha) / 2) ln_+(t / (K N)) / N)."""
    k, c = len(view.pulls), 4 * mpf(sigma2) * (1 + mpf(alpha)) / 2
    return bonus(view, scale, [c * log_positive(mpf(view.t) / (k * n)) / n for n in view.pulls])


def ucb_plus(view: View, *, sigma2: float, horizon: int, scale: float = 1) -> list[mpf]:
    """m + sqrt(2 sigma2 ln_+(T / N) / N)."""
    c = 2 * mpf(sigma2)
    return bonus(view, scale, [c * log_positive(mpf(horizon) / n) / n for n in view.pulls])


def ocucb(
    view: View, *, sigma2: float, horizon: int, alpha: float = 3, psi: float = 2, scale: float = 1
) -> list[mpf]:
    """m + sqrt(alpha sigma2 ln_+(psi T / t) / N)."""
    level = mpf(alpha) * mpf(sigma2) * log_positive(mpf(psi) * horizon / view.t)
    return bonus(view, scale, [level / n for n in view.pulls])


def ocucb_n(view: View, *, sigma2: float, eta: float = 2, rho: float = 0.5, scale: float = 1) -> list[mpf]:
    """m + sqrt(2 eta s2 ln B / N), B = max{e, ln t, t ln t / sum_b min(N, N_b^rho N^(1-rho))}."""
    log_t, r = mp.log(view.t), mpf(rho)

    def b(n: int) -> mpf:
        spread = mp.fsum(min(mpf(n), mpf(o) ** r * mpf(n) ** (1 - r)) for o in view.pulls)
        return max(mp.e, log_t, view.t * log_t / spread)

    c = 2 * mpf(eta) * mpf(sigma2)
    return bonus(view, scale, [c * mp.log(b(n)) / n for n in view.pulls])


def adaucb(view: View, *, sigma2: float, horizon: int, scale: float = 1) -> list[mpf]:
    """m + sqrt(2 s2 L(T/H) / N), H = sum_b min(N, sqrt(N N_b)), L(y) = ln((y+e) sqrt(ln(y+e)))."""

    def level(n: int) -> mpf:
        y = horizon / mp.fsum(min(mpf(n), mp.sqrt(mpf(n) * o)) for o in view.pulls) + mp.e
        return mp.log(y * mp.sqrt(mp.log(y)))

    return bonus(view, scale, [2 * mpf(sigma2) * level(n) / n for n in view.pulls])


def upper(family: str, m: mpf, level: mpf, sigma2: float | None) -> mpf:
    """max{q: KL(m, q) <= level}."""
    if level <= 0 or (family == "bernoulli" and m >= 1) or (family == "exponential" and m <= 0):
        return m
    high = mpf(1)
    if family != "bernoulli":
        high = m + 1
        while divergence(family, m, high, sigma2) <= level:
            high = m + 2 * (high - m)
    low = m
    for _ in range(4 * DIGITS):
        q = (low + high) / 2
        if divergence(family, m, q, sigma2) <= level:
            low = q
        else:
            high = q
    return low


def kl_index(view: View, levels: list[mpf], family: str, sigma2: float | None, scale: float) -> list[mpf]:
    """m + scale (max{q: N KL(m, q) <= level} - m)."""
    return [
        m + mpf(scale) * (upper(family, m, level / n, sigma2) - m)
        for (n, m), level in zip(view.arms, levels, strict=True)
    ]


def kl_ucb(
    view: View,
    *,
    c: float = 0,
    family: str = "bernoulli",
    sigma2: float | None = None,
    scale: float = 1,
) -> list[mpf]:
    """max{q: N KL(m, q) <= ln t + c ln max(1, ln t)}."""
    level = mp.log(view.t) + mpf(c) * log_positive(mp.log(view.t))
    return kl_index(view, [level] * len(view.pulls), family, sigma2, scale)


def kl_ucb_plus_plus(
    view: View,
    *,
    horizon: int | None = None,
    family: str = "bernoulli",
    anytime: bool = False,
    sigma2: float | None = None,
    scale: float = 1,
) -> list[mpf]:
    """max{q: N KL(m, q) <= g}, g = ln_+(y (1 + ln_+^2 y)), y = T / (K N), or t / (K N)."""
    reach = view.t if anytime else horizon
    if reach is None:
        raise TypeError("kl-ucb++ needs a horizon unless it is anytime")
    ys = [mpf(reach) / (len(view.pulls) * n) for n in view.pulls]
    levels = [log_positive(y * (1 + log_positive(y) ** 2)) for y in ys]
    return kl_index(view, levels, family, sigma2, scale)


def imed(view: View, *, family: str = "gaussian", sigma2: float | None = None) -> list[mpf]:
    """-(N KL(m, best) + ln N)."""
    best = max(view.means)
    return [-n * divergence(family, m, best, sigma2) - mp.log(n) for n, m in view.arms]


def apt(view: View, *, threshold: float = 0.5, epsilon: float = 0.1) -> list[mpf]:
    """-sqrt(N) (|m - threshold| + epsilon)."""
    return [-mp.sqrt(n) * (abs(m - mpf(threshold)) + mpf(epsilon)) for n, m in view.arms]


# Perturbed, continuous scores


class ScoreDistribution(NamedTuple):
    """A score on the real line: its mode, its scale, its ln pdf and ln cdf, both concave."""

    mode: mpf
    scale: mpf
    log_pdf: Callable[[mpf], mpf]
    log_cdf: Callable[[mpf], mpf]


def gaussian(mean: mpf, variance: mpf) -> ScoreDistribution:
    """N(mean, variance)."""
    s = mp.sqrt(variance)
    log_norm = mp.log(s * mp.sqrt(2 * mp.pi))

    def log_pdf(x: mpf) -> mpf:
        return -(((x - mean) / s) ** 2) / 2 - log_norm

    def log_cdf(x: mpf) -> mpf:
        z = (x - mean) / s
        return mp.log(mp.ncdf(z)) if z < 15 else mpf(0)  # beyond, |ln cdf| < 1e-50

    return ScoreDistribution(mean, s, log_pdf, log_cdf)


def gumbel(mode: mpf, s: mpf) -> ScoreDistribution:
    """mode + s Gumbel(0, 1): cdf exp(-exp(-z)), z = (x - mode) / s."""
    log_s = mp.log(s)

    def log_pdf(x: mpf) -> mpf:
        z = (x - mode) / s
        return -z - mp.exp(-z) - log_s

    return ScoreDistribution(mode, s, log_pdf, lambda x: -mp.exp(-(x - mode) / s))


def log_odds_of_beta(a: mpf, b: mpf) -> ScoreDistribution:
    """ln(X / (1 - X)), X ~ Beta(a, b): the same order as X, but smooth and without end points."""
    log_norm = mp.loggamma(a) + mp.loggamma(b) - mp.loggamma(a + b)

    def log_pdf(u: mpf) -> mpf:
        return -a * mp.log(1 + mp.exp(-u)) - b * mp.log(1 + mp.exp(u)) - log_norm

    def log_lower(a: mpf, b: mpf, x: mpf, y: mpf) -> mpf:
        # x^a y^b / (a B(a, b)) times a series of positive terms, or near x = 1 a fraction
        f = mp.hyp2f1(1, a + b, a + 1, x, maxterms=10**6) if x < 0.7 else beta_fraction(a, b, x)
        return a * mp.log(x) + b * mp.log(y) - log_norm - mp.log(a) + mp.log(f)

    def log_cdf(u: mpf) -> mpf:
        x, y = 1 / (1 + mp.exp(-u)), 1 / (1 + mp.exp(u))
        if x * b <= y * a:
            return log_lower(a, b, x, y)
        return mp.log(1 - mp.exp(log_lower(b, a, y, x)))

    return ScoreDistribution(mp.log(a / b), mp.sqrt(1 / a + 1 / b), log_pdf, log_cdf)


def beta_fraction(a: mpf, b: mpf, x: mpf) -> mpf:
    """1/(1 + d_1/(1 + d_2/(1 + ...))), DLMF 8.17.22, for x at most a / (a + b)."""
    old, p0, q0, p1, q1 = mpf(0), mpf(0), mpf(1), mpf(1), mpf(1)
    for m in range(10**6):
        for d in (
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
            (m + 1) * (b - m - 1) * x / ((a + 2 * m + 1) * (a + 2 * m + 2)),
        ):
            p0, q0, p1, q1 = p1, q1, p1 + d * p0, q1 + d * q0
        if abs(p1 / q1 - old) <= 4 * mp.eps * old:
            break
        old = p1 / q1
    return p1 / q1


def range_of(log_f: Callable[[mpf], mpf], mode: mpf, step: mpf) -> tuple[mpf, mpf, mpf]:
    """(low, high, peak of log_f): a concave log_f is DROP below its peak outside; peak >= mode."""
    low, high, width = mode, mode + step, step
    while log_f(high) > log_f((low + high) / 2):
        width *= 2
        high += width
    while True:
        third = (high - low) / 3
        left, right = log_f(low + third), log_f(high - third)
        if min(log_f(low), log_f(high)) > max(left, right) - 1:
            break
        low, high = (low, high - third) if left > right else (low + third, high)
    peak, top, ends = max(left, right), (low + high) / 2, []
    for direction in (-1, 1):
        width = step
        while log_f(top + direction * width) > peak - DROP:
            width *= 2
        ends.append(top + direction * width)
    return ends[0], ends[1], peak


def winning(distributions: list[ScoreDistribution]) -> list[mpf]:
    """ln P(a) = ln of the integral of pdf_a prod_{b != a} cdf_b.

    The integrand is log-concave, so it has one peak and a range that is safe to cut. Panels come
    from one dyadic tree over all arms' ranges, so that arms share nodes. A panel is halved while it
    is wide compared with the integrand or with an arm whose cdf rises in it, and then until halving
    changes nothing.
    """
    with mp.workdps(SEARCH_DIGITS):
        step = min(distribution.scale for distribution in distributions)

        def log_integrand(a: int) -> Callable[[mpf], mpf]:
            return lambda x: sum(
                (b.log_pdf(x) if i == a else b.log_cdf(x) for i, b in enumerate(distributions)), mpf(0)
            )

        ranges = [
            range_of(log_integrand(a), distribution.mode, step)
            for a, distribution in enumerate(distributions)
        ]
    with mp.workdps(QUADRATURE_DIGITS):
        start, end = min(r[0] for r in ranges), max(r[1] for r in ranges)
        rule = legendre()

        @cache
        def nodes(low: mpf, high: mpf) -> list[tuple[mpf, mpf, list[mpf], mpf]]:
            half, middle, rows = (high - low) / 2, (low + high) / 2, []
            for node, weight in rule:
                x = middle + half * node
                cdfs = [distribution.log_cdf(x) for distribution in distributions]
                rows.append((x, half * weight, cdfs, sum(cdfs, mpf(0))))
            return rows

        def panel(a: int, low: mpf, high: mpf) -> mpf:
            log_pdf, peak = distributions[a].log_pdf, ranges[a][2]
            return mp.fsum(
                weight * mp.exp(log_pdf(x) + total - cdfs[a] - peak)
                for x, weight, cdfs, total in nodes(low, high)
            )

        def wide(a: int, low: mpf, high: mpf) -> bool:
            return 4 * (high - low) > ranges[a][1] - ranges[a][0] or any(
                high - low > 16 * b.scale and low < b.mode + 12 * b.scale and high > b.mode - 12 * b.scale
                for b in distributions
            )

        def integral(a: int, low: mpf, high: mpf, whole: mpf | None = None) -> mpf:
            if high <= ranges[a][0] or low >= ranges[a][1]:
                return mpf(0)
            middle = (low + high) / 2
            if wide(a, low, high):
                return integral(a, low, middle) + integral(a, middle, high)
            halves = panel(a, low, middle), panel(a, middle, high)
            change = abs(halves[0] + halves[1] - (panel(a, low, high) if whole is None else whole))
            if change <= PANEL_ERROR * (ranges[a][1] - ranges[a][0]) / DROP:
                return halves[0] + halves[1]
            return integral(a, low, middle, halves[0]) + integral(a, middle, high, halves[1])

        return [ranges[a][2] + mp.log(integral(a, start, end)) for a in range(len(distributions))]


@cache
def legendre() -> list[tuple[mpf, mpf]]:
    """The 24-point Gauss-Legendre rule on [-1, 1], nodes and weights."""
    nodes: list[tuple[mpf, mpf]] = GaussLegendre(mp).calc_nodes(4, mp.prec + 10)
    return nodes


def ts(view: View, *, sigma2: float, scale: float = 1) -> list[mpf]:
    """theta ~ N(m, scale sigma2 / N)."""
    return winning([gaussian(m, mpf(scale) * mpf(sigma2) / n) for n, m in view.arms])


def ts_sg(view: View, *, sigma2: float, scale: float = 1) -> list[mpf]:
    """theta ~ N(S / (N + 1), 4 scale sigma2 / (N + 1))."""
    v = 4 * mpf(scale) * mpf(sigma2)
    arms = zip(view.pulls, view.sums, strict=True)
    return winning([gaussian(mpf(s / (n + 1)), v / (n + 1)) for n, s in arms])


def ts_bernoulli(view: View) -> list[mpf]:
    """theta ~ Beta(1 + S, 1 + N - S)."""
    arms = zip(view.pulls, view.sums, strict=True)
    return winning([log_odds_of_beta(1 + mpf(s), 1 + n - mpf(s)) for n, s in arms])


def boltzmann_gumbel(view: View, *, sigma2: float) -> list[mpf]:
    """m + (C / sqrt(N)) Gumbel(0, 1), C = sqrt(sigma2)."""
    return winning([gumbel(m, mp.sqrt(mpf(sigma2) / n)) for n, m in view.arms])


# Perturbed, discrete scores

Scores = dict[Fraction | float, Fraction]  # score -> probability; a cold arm's score is +inf
COLD: Scores = {float("inf"): Fraction(1)}


def binomial(n: int, p: Fraction) -> list[Fraction]:
    """P(Bin(n, p) = j), j = 0..n."""
    return [comb(n, j) * p**j * (1 - p) ** (n - j) for j in range(n + 1)]


def winning_discrete(arms: list[Scores]) -> list[mpf]:
    """P(a) = sum_x p_a(x) sum_m P(every other arm <= x, exactly m of them at x) / (m + 1)."""
    result = []
    for a, scores in enumerate(arms):
        win = Fraction(0)
        for x, p in scores.items():
            ties = [Fraction(1)]  # ties[m] = P(every arm so far <= x, exactly m of them at x)
            for other in arms[:a] + arms[a + 1 :]:
                below = sum((q for y, q in other.items() if y < x), Fraction(0))
                at = other.get(x, Fraction(0))
                ties = [
                    u * below + v * at
                    for u, v in zip([*ties, Fraction(0)], [Fraction(0), *ties], strict=True)
                ]
            win += p * sum((q / (m + 1) for m, q in enumerate(ties)), Fraction(0))
        result.append(log_or_ninf(mpf(win.numerator) / win.denominator))
    return result


def phe(view: View, *, a: float = 2) -> list[mpf]:
    """(S + Bin(ceil(a N), 1/2)) / (N + ceil(a N)); a cold arm comes first, as in its paper."""

    def scores(n: int, s: float) -> Scores:
        extra = ceil(a * n)
        weights = binomial(extra, Fraction(1, 2))
        return {(Fraction(s) + j) / (n + extra): p for j, p in enumerate(weights)}

    arms = zip(view.pulls, view.sums, strict=True)
    return winning_discrete([scores(n, s) if n else COLD for n, s in arms])


def giro(view: View, *, a: float = 1) -> list[mpf]:
    """Bin(n, (S+k)/n) / n, n = N + 2k, k = floor(a N) + Bernoulli(frac(a N)); cold arms first."""

    def scores(pulls: int, s: float) -> Scores:
        extra = Fraction(a * pulls)
        whole = extra.numerator // extra.denominator
        result: Scores = {}
        for k, probability in ((whole, 1 - (extra - whole)), (whole + 1, extra - whole)):
            n = pulls + 2 * k
            for j, p in enumerate(binomial(n, (Fraction(s) + k) / n) if probability else []):
                result[Fraction(j, n)] = result.get(Fraction(j, n), Fraction(0)) + probability * p
        return result

    arms = zip(view.pulls, view.sums, strict=True)
    return winning_discrete([scores(n, s) if n else COLD for n, s in arms])


INDICES: dict[str, Callable[..., list[mpf]]] = {
    "ucb1": ucb1,
    "aoucb": aoucb,
    "moss": moss,
    "moss-anytime": moss_anytime,
    "ucb+": ucb_plus,
    "ocucb": ocucb,
    "ocucb-n": ocucb_n,
    "adaucb": adaucb,
    "kl-ucb": kl_ucb,
    "kl-ucb++": kl_ucb_plus_plus,
    "imed": imed,
    "apt": apt,
}

POLICIES: dict[str, Callable[..., list[mpf]]] = {
    "ms": ms,
    "ms+": ms_plus,
    "ms-practical": ms_practical,
    "ms-printed": ms_printed,
    "kl-ms": kl_ms,
    "kl-ms+": kl_ms_plus,
    "ms-exponential-family": med,
    "med": med,
    "dmed": dmed,
    "boltzmann": boltzmann,
    "epsilon-greedy": epsilon_greedy,
    "uniform": uniform,
    "boltzmann-gumbel": boltzmann_gumbel,
    "ts": ts,
    "ts-sg": ts_sg,
    "ts-bernoulli": ts_bernoulli,
    "phe": phe,
    "giro": giro,
}
