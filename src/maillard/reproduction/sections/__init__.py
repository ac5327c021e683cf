"""The sections of the report, from results."""

from __future__ import annotations

from collections.abc import Callable

from maillard.reproduction.report import Section
from maillard.reproduction.results import Results
from maillard.reproduction.sections import beyond, paper, theory

__all__ = ["sections"]

Seconds = list[tuple[int, str, float]]

# In the order of the page: what a section needs, and what makes it.
_SECTIONS: tuple[tuple[tuple[str, ...], Callable[[Results], Section]], ...] = (
    (("booster",), paper.booster),
    (("gaussian-1",), lambda results: paper.comparison(results, "gaussian-1")),
    (("gaussian-quarter",), lambda results: paper.comparison(results, "gaussian-quarter")),
    (("bernoulli",), lambda results: paper.comparison(results, "bernoulli")),
    (("maximum",), paper.maximum),
    (("width",), theory.width),
    (("closing",), theory.closing),
    (("c-and-d",), theory.parameters),
    (("slopes",), theory.slopes),
    (("worst-case",), theory.worst_case),
    ((), theory.two_arms),
)
_LAST: tuple[tuple[tuple[str, ...], Callable[[Results], Section]], ...] = (
    (("gaussian-1", "gaussian-quarter", "bernoulli"), paper.spread),
    (("gaussian-1", "gaussian-quarter", "bernoulli"), paper.over_time),
    (("delay-static", "delay-dynamic"), beyond.delay),
    (("frontier",), beyond.frontier),
    (("wrong-sigma2",), beyond.sigma2),
    ((), paper.guarantees),
)


def sections(results: Results, seconds: Seconds) -> tuple[Section, ...]:
    """Every section of which something was run."""
    done = results.experiments()

    def made(listed: tuple[tuple[tuple[str, ...], Callable[[Results], Section]], ...]) -> list[Section]:
        return [make(results) for needs, make in listed if not needs or done.intersection(needs)]

    return (*made(_SECTIONS), theory.simulated(results, seconds), *made(_LAST))
