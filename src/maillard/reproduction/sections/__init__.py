"""The sections of the report."""

from __future__ import annotations

import functools
from collections.abc import Callable

from maillard.reproduction.experiment_results import ExperimentResults
from maillard.reproduction.report_content import ReportSection
from maillard.reproduction.sections import (
    context_sections,
    extension_sections,
    off_policy_section,
    paper_sections,
    theory_sections,
)
from maillard.reproduction.sections.paper_sections import COMPARED

__all__ = ["sections"]

# In page order: the experiments that a section shows, and its function. Sections without experiments are
# always shown.
_SECTIONS: tuple[tuple[tuple[str, ...], Callable[[ExperimentResults], ReportSection]], ...] = (
    (("booster", "booster-clicks"), paper_sections.booster),
    *(
        ((name, f"{name}-others"), functools.partial(paper_sections.comparison, experiment=name))
        for name in COMPARED
    ),
    (("maximum-1", "maximum-quarter", "maximum-mixed"), paper_sections.maximum),
    (("width",), theory_sections.width),
    (("closing",), theory_sections.closing),
    (("c-and-d",), theory_sections.parameters),
    (("slopes",), theory_sections.slopes),
    (("worst-case",), theory_sections.worst_case),
    ((), theory_sections.two_arms),
    ((), theory_sections.simulated),
    ((), off_policy_section.off_policy),
    (tuple(COMPARED), paper_sections.spread),
    *(((name,), functools.partial(paper_sections.over_time, experiment=name)) for name in COMPARED),
    (("delay-static", "delay-dynamic"), extension_sections.delay),
    (("frontier",), extension_sections.frontier),
    (("wrong-sigma2",), extension_sections.sigma2),
    (("contexts-data",), context_sections.labelled_data),
    (("contexts-sphere", "contexts-optimism"), context_sections.linear_arms),
    (("contexts-sphere", "contexts-optimism", "contexts-data"), context_sections.linear_off_policy),
    ((), paper_sections.guarantees),
)


def sections(results: ExperimentResults) -> list[Callable[[], ReportSection]]:
    """The functions that make the sections for which at least one experiment was run."""
    done = results.experiments()
    return [
        functools.partial(make, results) for needs, make in _SECTIONS if not needs or done.intersection(needs)
    ]
