"""Generate the sections of docs/explanation/tails.md and its appendix on linear regret."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchmarks.tails import plan
from benchmarks.tails.comparisons import decreases, growth_per_doubling
from benchmarks.tails.text_formatting import (
    count_problems,
    format_linear_probability,
    format_range,
    join_policies,
    markdown_table,
)
from maillard.figures.text_layout import format_number
from maillard.reproduction.paper_experiments import PAPER, label
from maillard.reproduction.sections.panels import title_of

if TYPE_CHECKING:
    from benchmarks.tails.cells import Study


def section(study: Study) -> str:
    """Return the section: its picture and the conclusions."""
    growths = [growth_per_doubling(study.of(problem)) for problem in plan.PROBLEMS]
    return f"""
## Linear regret

![The probability of linear regret for each booster, with intervals](../pictures/tails-linear.png)

A trial counts as linear if its regret is above {plan.LINEAR:.0%} of the largest possible regret, which is T
times the largest gap.

{_growth_sentence([growth[1] for growth in growths if growth])}
{_decrease_sentence(study)}
{_quotation_sentence(study)}
{_slow_policies_sentence(study)}

[The appendix](tails-appendix.md#linear-regret) has the probabilities."""


def table(study: Study) -> str:
    """Return the section of the appendix: the probabilities."""
    rows = []
    for problem in plan.PROBLEMS:
        cells = study.of(problem)
        growth = growth_per_doubling(cells)
        growth_text = f"× {growth[1]:.2f} from B = {growth[0]}" if growth else ""
        probabilities = [format_linear_probability(cell) for cell in cells]
        threshold = format_number(cells[0].linear_threshold)
        rows.append([title_of(problem), threshold, *probabilities, growth_text])
    header = ["problem", "above", *(f"B = {booster}" for booster in plan.BOOSTERS), "per doubling"]
    return f"""
## Linear regret

A trial counts as linear if its regret is above {plan.LINEAR:.0%} of the largest possible regret, which is T
times the largest gap. The table shows the fraction of such trials. Where there were none, it shows the upper
end of the {plan.CONFIDENCE:.0%} Clopper-Pearson interval. The last column shows the factor by which one
doubling of B multiplies the probability. It is an average that ends at B = {plan.BOOSTERS[-1]}. It starts at
the first B with at least {plan.ENOUGH} such trials, not before the B where the probability is smallest.

{markdown_table(header, rows)}"""


def _growth_sentence(factors: Sequence[float]) -> str:
    if not factors:
        return "- No problem has enough linear trials to tell how their probability grows with B."
    return (
        f"- On {count_problems(len(factors))} there are enough linear trials to estimate the growth.\n"
        f"  There, one doubling of B multiplies their probability by {format_range(factors)}."
    )


def _decrease_sentence(study: Study) -> str:
    titles = [title_of(problem) for problem in plan.PROBLEMS if decreases(study.of(problem))]
    if not titles:
        return "- On no problem does a larger B have a smaller probability, judged by disjoint intervals."
    return (
        f"- On {count_problems(len(titles))} a larger B has a smaller probability than some smaller B, "
        f"judged by disjoint\n  intervals: {'; '.join(titles)}."
    )


def _quotation_sentence(study: Study) -> str:
    """Compare the paper's remark on MS+16 and two Gaussian arms with the study."""
    cell, trials = study.cells[plan.PROBLEMS[0], plan.QUOTED], PAPER["trials"]
    at_least_one = [-math.expm1(trials * math.log1p(-p)) if p < 1 else 1.0 for p in cell.linear_interval]
    return (
        f"- The paper looks at the largest regret of {label(plan.QUOTED)} in {trials} trials on "
        f"{title_of(plan.PROBLEMS[0])},\n"
        '  and says that it "is still far from suffering a linear regret". '
        f"Here {cell.linear:,} of {cell.trials:,} trials were\n"
        f"  linear, and the largest regret was {format_number(cell.largest)}. The probability that {trials} "
        f"trials include a linear one is\n  {format_range(at_least_one)} ({plan.CONFIDENCE:.0%} interval)."
    )


def _slow_policies_sentence(study: Study) -> str:
    """List the policies whose mean regret is above the threshold."""
    found = []
    for problem in plan.PROBLEMS:
        cells = study.of(problem, (*plan.BOOSTED, *plan.OTHERS))
        specs = [cell.policy for cell in cells if cell.mean > cell.linear_threshold]
        if specs:
            names = "every policy" if len(specs) == len(cells) else join_policies(specs)
            found.append(f"{title_of(problem)} ({names})")
    if not found:
        return "- No policy has a mean regret above the threshold."
    return (
        "- Where even the mean regret is above the threshold, linear trials indicate slow learning and not "
        f"bad luck:\n  {'; '.join(found)}."
    )
