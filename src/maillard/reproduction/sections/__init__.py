"""The sections of the report, from results."""

from __future__ import annotations

import functools
from collections.abc import Callable

from maillard.reproduction.report import Section
from maillard.reproduction.results import Results
from maillard.reproduction.sections import beyond, evaluation, paper, theory

__all__ = ["sections"]

_COMPARED = ("gaussian-1", "gaussian-quarter", "bernoulli")

# In the order of the page: what a section shows of which experiments; those that need none are always there.
_SECTIONS: tuple[tuple[tuple[str, ...], Callable[[Results], Section]], ...] = (
    (("booster",), paper.booster),
    *(((name, f"{name}-others"), functools.partial(paper.comparison, experiment=name)) for name in _COMPARED),
    (("maximum-1", "maximum-quarter", "maximum-mixed"), paper.maximum),
    (("width",), theory.width),
    (("closing",), theory.closing),
    (("c-and-d",), theory.parameters),
    (("slopes",), theory.slopes),
    (("worst-case",), theory.worst_case),
    ((), theory.two_arms),
    ((), theory.simulated),
    ((), evaluation.off_policy),
    (_COMPARED, paper.spread),
    *(((name,), functools.partial(paper.over_time, experiment=name)) for name in _COMPARED),
    (("delay-static", "delay-dynamic"), beyond.delay),
    (("frontier",), beyond.frontier),
    (("wrong-sigma2",), beyond.sigma2),
    ((), paper.guarantees),
)


def sections(results: Results) -> list[Callable[[], Section]]:
    """What makes every section of which something was run."""
    done = results.experiments()
    return [
        functools.partial(make, results) for needs, make in _SECTIONS if not needs or done.intersection(needs)
    ]
