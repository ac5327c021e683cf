"""Generate docs/explanation/tails.md and its appendix. Every number comes from docs/data/tails.json."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from benchmarks.tails import kl_boosters, linear, plan
from benchmarks.tails.cells import Cell, Study, rank, rounds_per_second, with_error
from benchmarks.tails.comparisons import (
    DEVIATION,
    FAR_QUANTILE,
    MEAN,
    MEASURES,
    count_rising,
    smallest,
    undominated,
)
from benchmarks.tails.pictures import draw
from benchmarks.tails.text_formatting import (
    bold_if,
    count_problems,
    format_boosters,
    format_change,
    format_range,
    format_rank,
    join_names,
    markdown_table,
)
from maillard import policy
from maillard.figures.text_layout import format_number
from maillard.problems import problem as problem_of
from maillard.reproduction.paper_experiments import PAPER, label
from maillard.reproduction.sections.panels import title_of

if TYPE_CHECKING:
    from pathlib import Path


def write_page(study: Study, path: Path) -> None:
    """Write the page, its appendix beside it, and its pictures into the folder `../pictures`."""
    draw(study, path.parent.parent / "pictures")
    path.write_text(page(study), encoding="utf8")
    path.with_name(f"{path.stem}-appendix.md").write_text(appendix(study), encoding="utf8")


def page(study: Study) -> str:
    """Return the text of the page: the findings with their figures."""
    return _join(study, _introduction, _best_boosters, _frontier, _tails, linear.section, kl_boosters.section)


def appendix(study: Study) -> str:
    """Return the text of the appendix: all tables, and how to reproduce them."""
    sections = (
        _appendix_introduction,
        _frontier_tables,
        linear.table,
        kl_boosters.table,
        _problem_tables,
        _how_to_reproduce,
    )
    return _join(study, *sections)


def _join(study: Study, *sections: Callable[[Study], str]) -> str:
    texts = [section(study).strip() for section in sections]
    return "\n\n".join(text for text in texts if text) + "\n"


def _introduction(study: Study) -> str:
    best = {name: [smallest(study.of(problem), name)[0] for problem in plan.PROBLEMS] for name in MEASURES}
    pairs = list(zip(best[DEVIATION], best[MEAN], strict=True))
    smaller, same = sum(a < b for a, b in pairs), sum(a == b for a, b in pairs)
    rising, factors = count_rising(study)
    never = sum(all(cell.linear == 0 for cell in study.of(problem)) for problem in plan.PROBLEMS)
    some_trial = (
        f"On {count_problems(never)} no booster had such a trial"
        if never
        else "On every problem some booster had such a trial"
    )
    variances = [
        f"σ² = {problem_of(plan.with_noise(noise)[0]).sigma2:g} for {noise.capitalize()}"
        for noise in plan.noises()
    ]
    last = [study.of(problem)[-1].linear_fraction for problem in plan.PROBLEMS]
    others = f", and {join_names([label(spec) for spec in study.others])}" if study.others else ""
    largest = plan.BOOSTERS[-1]
    return f"""
# The tails of regret

How large should the booster B of MS+ be? A larger B makes MS+ leave the leading arm less often. It explores
less, which can lower its mean regret. But when a suboptimal arm leads, MS+ takes longer to find out, which
can make very large regrets more frequent. This page measures both effects.

The paper leaves the question open: "while MS can be tuned to enjoy small expected regret, it tends to have a
large variance. It would be interesting to study the fundamental tradeoff between the expected pseudo regret
and its variance." Large regrets occur in rare trials, and the paper's {PAPER["trials"]} trials contain few of
them. In this study, {_trial_counts(study)}.

The study runs MS+ with B = {join_names([str(booster) for booster in plan.BOOSTERS])}{others},
on the {len(plan.PROBLEMS)} problems of the paper's Table 2 with
T = {study.settings["horizon"]:,}.{_not_run(study)}
The number after "Gaussian" is the variance of the rewards. The policies use {join_names(variances)} rewards.
Every number and every comparison is computed from [tails.json](../data/tails.json);
[the appendix](tails-appendix.md) has the tables for each problem and the command that reproduces them.

- **Mean regret** is smallest at B = {format_boosters(best[MEAN])}, its **standard deviation** at
  B = {format_boosters(best[DEVIATION])}, and its **{FAR_QUANTILE} quantile** at
  B = {format_boosters(best[FAR_QUANTILE])}, depending on the problem.
- **There is a tradeoff between mean and standard deviation** on {count_problems(smaller)}: the standard
  deviation is smallest at a smaller B than the mean. One B minimizes both on {count_problems(same)}
  ([details](#which-booster)).
- **The standard deviation rises** with every doubling of B, from the B where it is smallest to
  B = {largest}, on {count_problems(rising)}. Over that range it grows by a factor of {format_range(factors)}.
- **Linear regret** means regret above {plan.LINEAR:.0%} of the largest possible regret. At B = {largest}, the
  fraction of such trials was {format_range(last)}, depending on the problem.
  {some_trial} ([details](#linear-regret))."""


def _trial_counts(study: Study) -> str:
    """Say how many trials each policy has."""
    wide = int(study.settings.get("wide", study.trials))
    counts = f"{study.trials:,} trials on every problem"
    if wide != study.trials:
        counts = (
            f"{study.trials:,} trials on every problem with fewer than {plan.WIDE} arms "
            f"and {wide:,} on the others"
        )
    other_counts = sorted(
        {cell.trials for problem in plan.PROBLEMS for cell in study.of(problem, plan.OTHERS)}
    )
    if not other_counts or (other_counts == [study.trials] and wide == study.trials):
        return f"every policy has {counts}"
    return f"MS+ has {counts}, and every other policy has {join_names([f'{n:,}' for n in other_counts])}"


def _not_run(study: Study) -> str:
    """List the problems on which some of the other policies were not run."""
    titles_of: dict[str, list[str]] = {}
    for problem in plan.PROBLEMS:
        missing = [label(spec) for spec in study.others if (problem, spec) not in study.cells]
        if missing:
            names = "all policies except MS+" if len(missing) == len(study.others) else join_names(missing)
            titles_of.setdefault(names, []).append(title_of(problem))
    parts = [f"{names} ({'; '.join(titles)})" for names, titles in titles_of.items()]
    return f"\nNot run: {', '.join(parts)}." if parts else ""


def _best_boosters(study: Study) -> str:
    rows = []
    for problem in plan.PROBLEMS:
        row = [title_of(problem)]
        for name in MEASURES:
            best, ties = smallest(study.of(problem), name)
            overlapping = join_names([str(plan.BOOSTERS[i]) for i in ties])
            row.append(f"{plan.BOOSTERS[best]} ({overlapping})" if ties else str(plan.BOOSTERS[best]))
        rows.append(row)
    return f"""
## Which booster?

The table shows the B with the smallest value of each measure of regret. Parentheses list the other boosters
whose {plan.CONFIDENCE:.0%} intervals overlap with that of the smallest: this number of trials does not
separate them. The interval of a standard deviation uses the fourth moment. It is too short where a few trials
dominate that moment.

{markdown_table(["problem", *(f"smallest {name}" for name in MEASURES)], rows)}"""


def _frontier(study: Study) -> str:
    caption = "Mean regret and its standard deviation for each booster and for other policies, by problem"
    changes = []
    for problem in plan.PROBLEMS:
        cells = study.of(problem)
        start, end = (cells[smallest(cells, name)[0]] for name in (DEVIATION, MEAN))
        changes += [] if start is end else [(start, end)]
    price = ""
    if changes:
        falls = [1 - end.mean / start.mean for start, end in changes]
        mean = f"{min(falls):.0%} to {max(falls):.0%}"
        deviation = format_range([end.deviation / start.deviation for start, end in changes])
        price = f""" On {count_problems(len(changes))} the B with the smallest mean is not the one with the
smallest standard deviation. From the second to the first, the mean falls by {mean}, and the standard
deviation is multiplied by {deviation}."""
    return f"""
## The frontier

![{caption}](../pictures/tails-frontier.png)

The numbers along the path are values of B.{price}
[The appendix](tails-appendix.md#the-frontier) has these changes for each problem, and the policies that no
other policy beats in both measures."""


def _appendix_introduction(study: Study) -> str:
    return f"""
# Appendix: the tails of regret

These tables belong to [the tails of regret](tails.md), which states the findings and explains the terms.
There are {len(plan.PROBLEMS)} problems with T = {study.settings["horizon"]:,}."""


def _frontier_tables(study: Study) -> str:
    rows = []
    for problem in plan.PROBLEMS:
        cells = study.of(problem)
        start, end = (cells[smallest(cells, name)[0]] for name in (DEVIATION, MEAN))
        if start is end:
            rows.append([title_of(problem), f"{label(end.policy)} has both", "", "", ""])
            continue
        changes = [
            format_change(MEASURES[name](start)[0], MEASURES[name](end)[0])
            for name in (MEAN, DEVIATION, FAR_QUANTILE)
        ]
        rows.append([title_of(problem), f"{label(start.policy)} → {label(end.policy)}", *changes])
    frontier = [
        [title_of(problem), ", ".join(map(label, undominated(study, problem)))] for problem in plan.PROBLEMS
    ]
    header = ["problem", "from, to", *(f"change of {name}" for name in (MEAN, DEVIATION, FAR_QUANTILE))]
    return f"""
## The frontier

The table shows the price of the smallest mean: the change from
the B with the smallest standard deviation to the B with the smallest mean.

{markdown_table(header, rows)}

The next table lists the policies that no other policy beats in both mean and standard deviation, ordered from
the smallest mean to the smallest standard deviation.{_policies_with_horizon(study)}

{markdown_table(["problem", "on the frontier"], frontier)}"""


def _policies_with_horizon(study: Study) -> str:
    names = [
        label(spec) for spec in study.others if policy(spec, sigma2=1.0, horizon=plan.HORIZON).needs_horizon
    ]
    return f" {join_names(names)} {'use' if len(names) > 1 else 'uses'} the horizon." if names else ""


def _tails(study: Study) -> str:
    far = plan.QUANTILES[-1]
    sizes = sorted({cell.trials for cell in study.cells.values()}, reverse=True)
    ranks = [f"of {size:,} trials is the {format_rank(rank(far, size))}" for size in sizes]
    ratios_of = []
    for spec in (plan.BOOSTED[0], plan.BOOSTED[-1], "ts"):
        cells = [cell for problem in plan.PROBLEMS for cell in study.of(problem, [spec])]
        ratios = [cell.quantiles["0.9999"][0] / cell.quantiles["0.5"][0] for cell in cells]
        ratios_of += [f"{format_range(ratios)} for {label(spec)}"] if cells else []
    largest = "\n".join(
        _largest_regret(name, [cell for problem in plan.PROBLEMS for cell in study.of(problem, group)])
        for name, group in (("MS+", plan.BOOSTED), ("the other policies", study.others))
        if group
    )
    percentages = join_names([f"{100 * float(q):g}%" for q in plan.QUANTILES])
    caption = "Fraction of trials with more than a given regret, for every booster, by problem"
    return f"""
## The tails

![{caption}](../pictures/tails.png)

The marks are quantiles ({percentages}). The last mark of each line is the largest regret. Each quantile
is the regret of one of the trials: the {100 * float(far):g}% quantile {join_names(ranks)}.
The dashed line "linear" is at {plan.LINEAR:.0%} of the largest possible regret. It is missing where
everything shown is above it.

- The ratio of the {FAR_QUANTILE} quantile to the median shows how far the tails reach.
  It is {join_names(ratios_of)}, depending on the problem.
{largest}"""


def _largest_regret(name: str, cells: Sequence[Cell]) -> str:
    top = max(cells, key=lambda cell: cell.largest / cell.worst)
    return (
        f"- The largest regret of {name} relative to its problem, with {top.trials:,} trials per cell,\n"
        f"  is {format_number(top.largest)} ({label(top.policy)} on {title_of(top.problem)}):\n"
        f"  {top.largest / top.worst:.0%} of T times the largest gap."
    )


def _problem_tables(study: Study) -> str:
    equal_trials = len({cell.trials for cell in study.cells.values()}) == 1
    exception = (
        ""
        if equal_trials
        else " This does not apply to the\nlargest regret, which grows with the number of trials."
    )
    parts = [
        f"""## Results for each problem

The tables show the final regret: its mean with the standard error, standard deviation, quantiles and largest
value; the number of linear trials; and the probability of a linear trial with its {plan.CONFIDENCE:.0%}
interval. The smallest value of a column is bold.{exception}"""
    ]
    columns: list[tuple[str, Callable[[Cell], float]]] = [
        ("sd", lambda cell: cell.deviation),
        ("99.9%", lambda cell: cell.quantiles["0.999"][0]),
        ("99.999%", lambda cell: cell.quantiles["0.99999"][0]),
        ("largest", lambda cell: cell.largest),
    ]
    for problem in plan.PROBLEMS:
        cells, rows = study.of(problem, (*plan.BOOSTED, *plan.KL_BOOSTED, *plan.OTHERS)), []
        smallest_mean = min(cell.mean for cell in cells)
        minima = [
            min(map(value, cells)) if equal_trials or name != "largest" else None for name, value in columns
        ]
        for cell in cells:
            texts = [bold_if(cell.mean == smallest_mean, with_error(cell.mean, cell.error))]
            texts += [
                bold_if(value(cell) == minimum, format_number(value(cell)))
                for (_, value), minimum in zip(columns, minima, strict=True)
            ]
            interval = " to ".join(map(format_number, cell.linear_interval))
            probability = f"{format_number(cell.linear_fraction)} ({interval})"
            rows.append([label(cell.policy), f"{cell.trials:,}", *texts, f"{cell.linear:,}", probability])
        header = ["policy", "trials", "mean", *(name for name, _ in columns), "linear", "P(linear)"]
        threshold = format_number(cells[0].linear_threshold)
        parts.append(
            f"### {title_of(problem)}\n\nA trial is linear if its regret is above {threshold}."
            f"\n\n{markdown_table(header, rows)}"
        )
    return "\n\n".join(parts)


def _how_to_reproduce(study: Study) -> str:
    settings, cells = study.settings, list(study.cells.values())
    seconds = [cell.seconds for cell in cells]
    sizes = Counter(cell.trials * settings["horizon"] for cell in cells)
    counts = join_names(
        [f"{count} cells of {format_number(rounds)} rounds each" for rounds, count in sizes.items()]
    )
    software = ", ".join(f"{name} {value}" for name, value in settings["versions"].items())
    return f"""
## How to reproduce it

```sh
python -m benchmarks.tails --device cuda --trials {study.trials} --others {settings["others"]} \\
    --wide {settings.get("wide", study.trials)} --horizon {settings["horizon"]} --seed {settings["seed"]} \\
    --output docs/data/tails.json
python -m benchmarks.tails --page
```

The first command needs an NVIDIA GPU. A small run without one takes
`--device cpu --trials 200 --horizon 2000 --output small.json`. `--others` sets the number of trials of the
policies other than MS+, and `--wide` that of MS+ on problems with {plan.WIDE} arms. The command saves each
cell when it is finished. If you stop it, the same command continues where it stopped. With `--budget SECONDS`
it starts no new cell after that time. The second command writes both pages and their pictures. It needs all
cells of MS+.

These numbers were computed on {join_names(settings["devices"])}: {counts},
in {format_number(sum(seconds) / 60)} minutes, including some compilation. A cell took
{format_range(seconds)} seconds, at {format_number(rounds_per_second(cells, settings["horizon"]))} rounds per
second on average ({software}; seed {settings["seed"]})."""
