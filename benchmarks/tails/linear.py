"""The section on linear regret."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchmarks.tails import plan
from benchmarks.tails.comparisons import falls, growth
from benchmarks.tails.wording import joined, label, number, on_problems, probability, span, table, title_of
from maillard.reproduction.paper_experiments import PAPER

if TYPE_CHECKING:
    from benchmarks.tails.cells import Study

__all__ = ["section"]


def section(study: Study) -> str:
    """Its picture, its table, and what they say."""
    rows, factors = [], []
    for problem in plan.PROBLEMS:
        cells = study.of(problem)
        found = growth(cells)
        factors += [found[1]] if found else []
        said = f"× {found[1]:.2f} from B = {found[0]}" if found else ""
        shares = [probability(cell) for cell in cells]
        rows.append([title_of(problem), number(cells[0].line), *shares, said])
    return f"""
## Linear regret

![The probability of linear regret over the booster, with intervals](pictures/tails-linear.png)

A trial counts as linear if its regret is above {plan.LINEAR:.0%} of the worst possible, which is T times the largest gap. The share of such trials; where there was none,
the upper end of the {plan.CONFIDENCE:.0%} interval of Clopper and Pearson. At the right, by how much a doubling of B multiplies the probability, on average from the
first B, at or after the one where it is least, that has {plan.ENOUGH} such trials to B = {plan.BOOSTERS[-1]}.

{table(["problem", "above", *(f"B = {booster}" for booster in plan.BOOSTERS), "a doubling"], rows)}

{_grown(factors)}
{_fallen(study)}
{_quoted(study)}
{_slow(study)}"""


def _grown(factors: Sequence[float]) -> str:
    if not factors:
        return "- Nowhere are there enough such trials to say how the probability grows with B."
    return f"- Where there are enough such trials to say, on {on_problems(len(factors))}, a doubling of B multiplies their probability by {span(factors)}."


def _fallen(study: Study) -> str:
    titles = [title_of(problem) for problem in plan.PROBLEMS if falls(study.of(problem))]
    if not titles:
        return "- On no problem has a larger B a smaller probability, by intervals that do not meet."
    return f"- On {on_problems(len(titles))} some larger B has a smaller probability, by intervals that do not meet: {'; '.join(titles)}."


def _quoted(study: Study) -> str:
    """The paper's remark on MS+16 on two Gaussian arms, judged."""
    cell, trials = study.cells[plan.PROBLEMS[0], plan.QUOTED], PAPER["trials"]
    shown = [-math.expm1(trials * math.log1p(-share)) if share < 1 else 1.0 for share in cell.linear_interval]
    return (
        f'- Of {label(plan.QUOTED)} on {title_of(plan.PROBLEMS[0])} the paper says, by the largest regret of {trials} trials, that it "is still far from suffering a linear regret". '
        f"Here {cell.linear:,} of {cell.trials:,} trials were linear, and the largest regret was {number(cell.largest)}; {trials} trials show a linear one with a probability of "
        f"{span(shown)} ({plan.CONFIDENCE:.0%} interval)."
    )


def _slow(study: Study) -> str:
    """Which policies are above the line on average."""
    where = []
    for problem in plan.PROBLEMS:
        every = study.of(problem, (*plan.BOOSTED, *plan.OTHERS))
        names = [cell.policy for cell in every if cell.mean > cell.line]
        if names:
            said = "every policy" if len(names) == len(every) else joined(names)
            where.append(f"{title_of(problem)} ({said})")
    if not where:
        return "- No policy is above the line on average."
    return f"- Some are above the line on average; there it tells of slow learning and not of bad luck: {'; '.join(where)}."
