"""The page docs/tails.md: nothing on it is written by hand but its sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from benchmarks.tails import linear, plan
from benchmarks.tails.cells import Cell, Study, rank, speed, with_error
from benchmarks.tails.comparisons import DEVIATION, FAR, MEAN, MEASURES, least, rises, undominated
from benchmarks.tails.pictures import draw
from benchmarks.tails.wording import (
    bold,
    boosters,
    change,
    label,
    listed,
    nth,
    number,
    on_problems,
    span,
    table,
    title_of,
)
from maillard import policy
from maillard.problems import problem as problem_of
from maillard.reproduction.paper_experiments import PAPER

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["page", "write_page"]


def write_page(study: Study, path: Path) -> None:
    """Write the page, and the pictures into `pictures` beside it."""
    draw(study, path.parent / "pictures")
    path.write_text(page(study), encoding="utf8")


def page(study: Study) -> str:
    """The page: nothing on it is written by hand but its sentences."""
    parts = [_opening, _best, _traded, _tails, linear.section, _tables, _again]
    return "\n\n".join(part(study).strip() for part in parts) + "\n"


def _opening(study: Study) -> str:
    places = {name: [least(study.of(problem), name)[0] for problem in plan.PROBLEMS] for name in MEASURES}
    steps = [(places[DEVIATION][i], places[MEAN][i]) for i in range(len(plan.PROBLEMS))]
    before, same = sum(a < b for a, b in steps), sum(a == b for a, b in steps)
    rising, factors = rises(study)
    never = sum(all(cell.linear == 0 for cell in study.of(problem)) for problem in plan.PROBLEMS)
    told = [
        f"σ² = {problem_of(plan.with_noise(noise)[0]).sigma2:g} of {noise.capitalize()}"
        for noise in plan.noises()
    ]
    last = [study.of(problem)[-1].share for problem in plan.PROBLEMS]
    return f"""
# The tails of regret

The paper ends with a question: "while MS can be tuned to enjoy small expected regret, it tends to have a large variance. It would be interesting to study
the fundamental tradeoff between the expected pseudo regret and its variance." The booster B of MS+ is that tuning. The larger it is, the more seldom
MS+ leaves the arm that leads: it explores less, and when the wrong arm leads it takes longer to find out. What that costs is
seen in rare trials, and {PAPER["trials"]} trials, as the paper has, show few of those. Here {_numbers_of_trials(study)}.

What is run: MS+ with B = {listed([str(booster) for booster in plan.BOOSTERS])}, {f"and {listed([label(spec) for spec in study.others])}, " * bool(study.others)}on the {len(plan.PROBLEMS)} problems of the paper's
Table 2 with T = {study.settings["horizon"]:,}.{_left_out(study)} The number behind "Gaussian" is the variance of its
rewards; policies are told {listed(told)} rewards. Every number below, and every comparison, is computed
from [tails.json](tails.json).

- **Mean regret** is least at B = {boosters(places[MEAN])}, its **standard deviation** at B = {boosters(places[DEVIATION])}, its **{FAR} quantile** at B = {boosters(places[FAR])},
  each depending on the problem.
- **Mean and spread are traded** on {on_problems(before)}: there the standard deviation is least at a smaller B than the mean is. One B has the least of both on {on_problems(same)}
  ([below](#which-booster)).
- **The standard deviation rises** with every doubling of B, from the B where it is least to B = {plan.BOOSTERS[-1]}, on {on_problems(rising)}. From the one to the other
  it grows by a factor of {span(factors)}.
- **Linear regret**, which is regret above {plan.LINEAR:.0%} of the worst possible, was seen in a share of {span(last)} of the trials at B = {plan.BOOSTERS[-1]}, depending on the
  problem. {f"On {on_problems(never)} no booster had such a trial" if never else "On every problem some booster had such a trial"} ([below](#linear-regret))."""


def _numbers_of_trials(study: Study) -> str:
    """Who has how many."""
    wide = int(study.settings.get("wide", study.trials))
    where = f"{study.trials:,} on every problem"
    if wide != study.trials:
        where = f"{study.trials:,} on every problem of fewer than {plan.WIDE} arms and {wide:,} on the others"
    fewer = sorted({cell.trials for problem in plan.PROBLEMS for cell in study.of(problem, plan.OTHERS)})
    if not fewer or (fewer == [study.trials] and wide == study.trials):
        return f"every policy has {where}"
    return f"MS+ has {where}, and every other policy {listed([f'{each:,}' for each in fewer])}"


def _left_out(study: Study) -> str:
    """Which of the other policies, of those that were run at all, were not run on which problems."""
    where: dict[str, list[str]] = {}
    for problem in plan.PROBLEMS:
        lacking = [label(spec) for spec in study.others if (problem, spec) not in study.cells]
        if lacking:
            names = "all but MS+" if len(lacking) == len(study.others) else listed(lacking)
            where.setdefault(names, []).append(title_of(problem))
    parts = [f"{names} ({'; '.join(titles)})" for names, titles in where.items()]
    return f" Not run: {', '.join(parts)}." if parts else ""


def _best(study: Study) -> str:
    rows = []
    for problem in plan.PROBLEMS:
        cells, texts = study.of(problem), []
        for name in MEASURES:
            best, rest = least(cells, name)
            texts.append(
                str(plan.BOOSTERS[best])
                + (f" ({listed([str(plan.BOOSTERS[i]) for i in rest])})" if rest else "")
            )
        rows.append([title_of(problem), *texts])
    return f"""
## Which booster?

The B with the least of each measure of regret. In brackets those that so many trials do not tell from it: whose {plan.CONFIDENCE:.0%} intervals meet its own. (The interval of
a standard deviation rests on the fourth moment: where a few trials decide that, it is too short.)

{table(["problem", *(f"least {name}" for name in MEASURES)], rows)}"""


def _traded(study: Study) -> str:
    rows = []
    for problem in plan.PROBLEMS:
        cells = study.of(problem)
        start, end = (cells[least(cells, name)[0]] for name in (DEVIATION, MEAN))
        changes = [
            change(MEASURES[name](start)[0], MEASURES[name](end)[0]) for name in (MEAN, DEVIATION, FAR)
        ]
        path = (
            f"{label(start.policy)} → {label(end.policy)}"
            if start is not end
            else f"{label(end.policy)} has both"
        )
        rows.append([title_of(problem), path, *(changes if start is not end else ["", "", ""])])
    frontier = [
        [title_of(problem), ", ".join(map(label, undominated(study, problem)))] for problem in plan.PROBLEMS
    ]
    return f"""
## The frontier

![Mean regret against its standard deviation over the booster, with other policies, a panel for each problem](pictures/tails-frontier.png)

The numbers on the path are B. What the least mean costs, from the B with the least standard deviation to the B with the least mean:

{table(["problem", "from, to", *(f"change of {name}" for name in (MEAN, DEVIATION, FAR))], rows)}

Policies that no other beats in both, mean and standard deviation, from the least mean to the least deviation.{_informed(study)}

{table(["problem", "on the frontier"], frontier)}"""


def _informed(study: Study) -> str:
    names = [
        label(spec) for spec in study.others if policy(spec, sigma2=1.0, horizon=plan.HORIZON).needs_horizon
    ]
    return (
        f" {listed(names)} {'know' if len(names) > 1 else 'knows'} the horizon beforehand." if names else ""
    )


def _tails(study: Study) -> str:
    far = plan.QUANTILES[-1]
    sizes = sorted({cell.trials for cell in study.cells.values()}, reverse=True)
    ranks = [f"of {size:,} trials is the {nth(rank(far, size))}" for size in sizes]
    reaches = []
    for spec in (plan.BOOSTED[0], plan.BOOSTED[-1], "ts"):
        cells = [cell for problem in plan.PROBLEMS for cell in study.of(problem, [spec])]
        ratios = [cell.quantiles["0.9999"][0] / cell.quantiles["0.5"][0] for cell in cells]
        reaches += [f"{span(ratios)} for {label(spec)}"] if cells else []
    records = [
        _record(name, [cell for problem in plan.PROBLEMS for cell in study.of(problem, group)])
        for name, group in (("MS+", plan.BOOSTED), ("the others", study.others))
        if group
    ]
    return f"""
## The tails

![The share of trials with more than so much regret, for every booster, a panel for each problem](pictures/tails.png)

Marks are quantiles ({listed([f"{100 * float(q):g}%" for q in plan.QUANTILES])}), and the last of each line is the largest regret. A quantile
is a regret that happened: the {100 * float(far):g}% quantile {listed(ranks)}. The dashed line "linear" is at {plan.LINEAR:.0%} of
the worst possible regret; where it is missing, all that is shown is above it.

- How far the tails reach: the {FAR} quantile over the median is {listed(reaches)}, depending on the problem.
- The largest regret for its problem: {"; ".join(records)}."""


def _record(name: str, cells: Sequence[Cell]) -> str:
    top = max(cells, key=lambda cell: cell.largest / cell.worst)
    return (
        f"of {name}, in {top.trials:,} trials each, {number(top.largest)} by {label(top.policy)} on {title_of(top.problem)}, "
        f"which is {top.largest / top.worst:.0%} of T times the largest gap"
    )


def _tables(study: Study) -> str:
    alike = len({cell.trials for cell in study.cells.values()}) == 1
    parts = [
        f"""## Problem by problem

Final regret, where {_numbers_of_trials(study)}: the mean with its standard error, the standard deviation, quantiles and the largest; how many trials were
linear, and the probability of that with its {plan.CONFIDENCE:.0%} interval. The least of a column is bold{"" if alike else ", but for the largest regret, which grows with the number of trials"}."""
    ]
    columns: list[tuple[str, Callable[[Cell], float]]] = [
        ("sd", lambda cell: cell.deviation),
        ("99.9%", lambda cell: cell.quantiles["0.999"][0]),
        ("99.999%", lambda cell: cell.quantiles["0.99999"][0]),
        ("largest", lambda cell: cell.largest),
    ]
    for problem in plan.PROBLEMS:
        cells, rows = study.of(problem, (*plan.BOOSTED, *plan.OTHERS)), []
        lowest = min(cell.mean for cell in cells)
        bottoms = [min(map(of, cells)) if alike or name != "largest" else None for name, of in columns]
        for cell in cells:
            texts = [bold(with_error(cell.mean, cell.error), cell.mean == lowest)]
            texts += [
                bold(number(of(cell)), of(cell) == bottom)
                for (_, of), bottom in zip(columns, bottoms, strict=True)
            ]
            ends = " to ".join(map(number, cell.linear_interval))
            chance = f"{number(cell.share)} ({ends})"
            rows.append([label(cell.policy), f"{cell.trials:,}", *texts, f"{cell.linear:,}", chance])
        head = ["policy", "trials", "mean", *(name for name, _ in columns), "linear", "P(linear)"]
        parts.append(
            f"### {title_of(problem)}\n\nLinear is above {number(cells[0].line)}.\n\n{table(head, rows)}"
        )
    return "\n\n".join(parts)


def _again(study: Study) -> str:
    settings, cells = study.settings, list(study.cells.values())
    seconds = [cell.seconds for cell in cells]
    sizes = Counter(cell.trials * settings["horizon"] for cell in cells)
    counted = listed([f"{count} cells of {number(rounds)} rounds each" for rounds, count in sizes.items()])
    made = ", ".join(f"{name} {value}" for name, value in settings["versions"].items())
    return f"""
## Making it again

```
python -m benchmarks.tails --device cuda --trials {study.trials} --others {settings["others"]} --wide {settings.get("wide", study.trials)} --horizon {settings["horizon"]} --seed {settings["seed"]} --output docs/tails.json
python -m benchmarks.tails --page
```

The first command takes an NVIDIA GPU; with `--device cpu --trials 200 --horizon 2000 --output small.json` a small run goes without. `--others` is the number of
trials of the policies other than MS+, `--wide` of MS+ where there are {plan.WIDE} arms. It keeps each cell as it is done, and the same command goes on where it was stopped; with `--budget SECONDS` it stops by
itself. The second writes this page and its pictures, once all of MS+ is there.

These numbers were made on {listed(settings["devices"])}: {counted}, in {number(sum(seconds) / 60)} minutes,
in part with compiling; a cell took {span(seconds)} seconds, {number(speed(cells, settings["horizon"]))} rounds a second on average ({made}; seed {settings["seed"]})."""
