"""Generate the sections of the pages on tails about KL-MS+, and choose its default booster."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from benchmarks.tails import plan
from benchmarks.tails.text_formatting import bold_if, join_names, markdown_table
from maillard.figures.text_layout import format_number
from maillard.reproduction.sections.panels import title_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.tails.cells import Cell, Study


def score(cells: Sequence[Cell]) -> float:
    """Return the geometric mean, over cells, of the mean regret and its 99% quantile."""
    logs = [math.log(value) for cell in cells for value in (cell.mean, cell.quantiles["0.99"][0])]
    return math.exp(math.fsum(logs) / len(logs))


def complete_problems(study: Study) -> list[str]:
    """Return the problems on which every booster of KL-MS+ was run."""
    count = len(plan.KL_BOOSTED)
    return [each for each in plan.kl_problems() if len(study.of(each, plan.KL_BOOSTED)) == count]


def scores(study: Study) -> dict[int, float]:
    """Return the score of every booster over the complete problems."""
    problems = complete_problems(study)
    pairs = zip(plan.BOOSTERS, plan.KL_BOOSTED, strict=True)
    return {booster: score([study.cells[each, spec] for each in problems]) for booster, spec in pairs}


def section(study: Study) -> str:
    """Return the section: the default booster, and how it was chosen."""
    problems = complete_problems(study)
    if not problems or not plan.KL_BOOSTED:
        return ""
    found = scores(study)
    default = min(plan.CANDIDATES, key=lambda booster: found[booster])
    candidates = join_names([str(each) for each in plan.CANDIDATES])
    values = join_names([format_number(found[each]) for each in plan.CANDIDATES])
    return f"""
## KL-MS+ for clicks

`kl-ms+` replaces the squared gap of MS+ by the Bernoulli divergence. It was run on the Bernoulli problems of
the paper and for {len(plan.CLICKS)} sets of click rates. **The default booster of `kl-ms+` is {default}.** Of
B = {candidates}, it has the smaller geometric mean, over problems, of mean regret and 99% quantile
({values}): both count equally, and so does every problem. [The
appendix](tails-appendix.md#kl-ms-for-clicks) has both for each booster and problem."""


def table(study: Study) -> str:
    """Return the section of the appendix: mean and 99% quantile of each booster and problem."""
    problems = complete_problems(study)
    if not problems or not plan.KL_BOOSTED:
        return ""
    rows = []
    for problem in problems:
        cells = study.of(problem, plan.KL_BOOSTED)
        pairs = [(cell.mean, cell.quantiles["0.99"][0]) for cell in cells]
        least = [min(values) for values in zip(*pairs, strict=True)]
        texts = [
            " / ".join(
                bold_if(value == low, format_number(value)) for value, low in zip(pair, least, strict=True)
            )
            for pair in pairs
        ]
        rows.append([problem_title(problem), *texts])
    found = scores(study)
    rows.append(["geometric mean of both", *(format_number(value) for value in found.values())])
    missing = [problem_title(each) for each in plan.kl_problems() if each not in problems]
    not_run = f" Not run yet: {join_names(missing)}." if missing else ""
    return f"""
## KL-MS+ for clicks

`kl-ms+` replaces the squared gap of MS+ by the Bernoulli divergence. The table shows its mean regret and its
99% quantile on the Bernoulli problems of the paper and for click rates. The smallest values of a row are
bold.{not_run}

{markdown_table(["problem", *(f"B = {booster}" for booster in plan.BOOSTERS)], rows)}"""


def problem_title(problem: str) -> str:
    """Return the name of a problem: click rates are listed."""
    return f"rates {problem.partition(':')[2]}" if problem in plan.CLICKS else title_of(problem)
