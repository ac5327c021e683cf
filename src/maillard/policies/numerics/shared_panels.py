"""The integrals of all arms on panels that they share, from densities alone.

P(a) = ∫ f_a(x) / F_a(x) Π_b F_b(x) dx. The panels are narrow compared with every distribution that varies on
them, so the values of a density at the 16 Gauss-Legendre nodes of a panel determine its integral up to each
node. The distribution functions are sums of these integrals, from the left for small values and from the
right for values near 1. No special function is evaluated, except at the lower end of the first panel.
"""

from __future__ import annotations

import numpy as np

from maillard.array_types import Bools, Floats
from maillard.policies.numerics.distinct_arms import Arms

ORDER = 16
NODES, WEIGHTS = np.polynomial.legendre.leggauss(ORDER)
# Legendre coefficients of the polynomial through the values at the nodes.
_COEFFICIENTS = (
    np.polynomial.legendre.legvander(NODES, ORDER - 1) * WEIGHTS[:, None] * (np.arange(ORDER) + 0.5)
)
# Integrals of this polynomial from the left end of [-1, 1] to each node.
_UP_TO_NODES = _COEFFICIENTS @ np.stack(
    [
        np.polynomial.legendre.legval(NODES, np.polynomial.legendre.legint(unit, lbnd=-1))
        for unit in np.eye(ORDER)
    ]
)
LAST_TERMS = 2.0 * _COEFFICIENTS[:, -2:]  # times the length of the interval
_SUMS = np.column_stack([WEIGHTS, LAST_TERMS])
_RESOLVED = 1e-6  # allowed size of the last two coefficients of an integrand, relative to its whole integral
_WIDTH = (
    1.75  # of panels for one arm, in units of the scale of the narrowest distribution that varies on them
)
_TAIL_WIDTH = 1.0  # in lower tails, where densities grow by large factors
_TAIL_DEPTH = 7.0
_MAX_PANELS = 4096
_BLOCK = 1 << 14  # values of one array in memory
_KEPT = 1 << 21  # densities that are kept between the two passes
_EPS = float(np.finfo(np.float64).eps)


def integrate(arms: Arms, negligible: float) -> tuple[Floats, Floats]:
    """Return the probability of each arm and a bound on its error; values below `negligible` are rough."""
    edges = panel_edges(arms)
    value, error = np.zeros(arms.a.size), np.zeros(arms.a.size)
    some = slice(0, int(np.count_nonzero(arms.high > edges[0])))  # the density of the others is 0 there
    while True:
        value[some], error[some], resolved = _integrate(arms.rows(some), edges, negligible)
        middle = 0.5 * (edges[1:] + edges[:-1])
        split = ~resolved & (middle > edges[:-1]) & (middle < edges[1:])
        if not split.any() or edges.size > _MAX_PANELS:
            return value, error
        edges = np.sort(np.concatenate([edges, middle[split]]))


def panel_edges(arms: Arms) -> Floats:
    """Return the edges of panels, from the largest lower end of any distribution to the largest upper end."""
    leader = int(np.argmax(arms.low))
    bottom, top = float(arms.low[leader]), float(arms.high[0])
    # Below its upper end a distribution varies. Scales within a factor 2 share panels.
    narrowest = np.minimum.accumulate(arms.spread)
    level = np.ceil(np.log2(narrowest[0] / narrowest))
    first = np.flatnonzero(np.diff(level, prepend=-1.0) > 0)
    starts = [*arms.high[first].tolist(), bottom]
    # The largest of many scores has a narrower distribution than each of them.
    count = arms.copies[arms.high > bottom].sum()
    widths = (_WIDTH / (1.0 + 0.1 * np.log(count)) * narrowest[first]).tolist()
    tail = bottom + _TAIL_DEPTH * float(arms.spread[leader])
    edges = [np.array([bottom])]
    for upper, lower, width in zip(starts[-2::-1], starts[:0:-1], widths[::-1], strict=True):
        for low, high, step in (
            (max(lower, bottom), min(upper, tail), min(width, _TAIL_WIDTH * float(arms.spread[leader]))),
            (max(lower, tail, bottom), upper, width),
        ):
            if high > low:
                edges.append(np.linspace(low, high, 1 + int(np.ceil((high - low) / step)))[1:])
    joined = np.concatenate(edges)
    joined[-1] = top
    return joined


def _integrate(arms: Arms, edges: Floats, negligible: float) -> tuple[Floats, Floats, Bools]:
    """Return probabilities, bounds on their errors, and which panels are narrow enough."""
    half = 0.5 * np.diff(edges)
    x = (0.5 * (edges[1:] + edges[:-1])[:, None] + half[:, None] * NODES).ravel()
    at_bottom = np.exp(arms.noise.logs(np.full(arms.a.size, edges[0]), arms.a, arms.b)[0])
    total = np.zeros(x.size)
    # The arms are sorted by upper end: the distributions of a block vary on the first panels only.
    panels = np.searchsorted(edges[:-1], arms.high, side="left")
    blocks, start = [], 0
    while start < arms.a.size:
        stop = start + max(1, _BLOCK // (ORDER * int(panels[start])))
        blocks.append(slice(start, stop))
        start = stop
    keep = sum(arms.a[part].size * ORDER * int(panels[part][0]) for part in blocks) <= _KEPT
    kept = []
    for part in blocks:
        some = arms.rows(part)
        log_cdf, ratio = _on_panels(some, x, half[: panels[part][0]], at_bottom[part])
        total[: log_cdf.shape[1]] += some.copies @ log_cdf
        kept.append(ratio if keep else None)
    product = np.exp(total).reshape(-1, ORDER) * half[:, None]
    value, error = np.empty(arms.a.size), np.empty(arms.a.size)
    resolved = np.ones(half.size, np.bool_)
    for part, stored in zip(blocks, kept, strict=True):
        some, count = arms.rows(part), int(panels[part][0])
        ratio = _on_panels(some, x, half[:count], at_bottom[part])[1] if stored is None else stored
        integrand = ratio.reshape(-1, count, ORDER) * product[:count]
        sums = integrand @ _SUMS
        each, last = sums[:, :, 0], np.abs(sums[:, :, 1]) + np.abs(sums[:, :, 2])
        value[part] = whole = each.sum(axis=1)
        resolved[:count] &= (last <= _RESOLVED * np.maximum(whole, negligible)[:, None]).all(axis=0)
        error[part] = last_terms_error(last.sum(axis=1), whole)
    return value, error, resolved


def last_terms_error(last: Floats, whole: Floats | float) -> Floats:
    """Return a bound on the error of integrals, from the size of the last terms of the integrands.

    The rule integrates 32 terms exactly. If terms 15 and 16 are small, the terms fall fast.
    """
    error: Floats = last * np.minimum(1.0, 1e-4 + 100.0 * last / np.maximum(whole, 1e-300))
    return error


def _on_panels(arms: Arms, x: Floats, half: Floats, at_bottom: Floats) -> tuple[Floats, Floats]:
    """Return ln F and f / F at the nodes of the first panels, for each arm."""
    x, shape = x[: ORDER * half.size], (arms.a.size, half.size, ORDER)
    a, b = arms.a[:, None], arms.b[:, None]
    if arms.noise.has_simple_cdf:
        log_cdf, ratio = arms.noise.logs(x, a, b)
        return log_cdf, np.exp(ratio, out=ratio)
    log_density = arms.noise.log_kernel(x, a, b)
    log_density += arms.log_norm[:, None]
    density = np.exp(log_density, out=log_density).reshape(shape)
    inner = density @ _UP_TO_NODES
    inner *= half[:, None]
    each = (density @ WEIGHTS) * half
    before = np.cumsum(each, axis=1)
    before += at_bottom[:, None]
    before -= each
    after = np.cumsum(each[:, ::-1], axis=1)[:, ::-1]
    cdf = before[:, :, None] + inner
    np.subtract(after[:, :, None], inner, out=inner)  # the upper tail
    small = inner > 0.5
    density /= cdf
    log_cdf = np.log1p(np.negative(inner, out=inner), out=inner)
    log_cdf[small] = np.log(cdf[small])
    return log_cdf.reshape(arms.a.size, -1), density.reshape(arms.a.size, -1)
