"""`evaluate`: what a target would have earned, from the log of another policy."""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Unpack

import numpy as np

from maillard.errors import CannotAnswer, InvalidValue
from maillard.evaluation import estimators as known
from maillard.evaluation.bound_targets import Target
from maillard.evaluation.diagnostics import Diagnostics
from maillard.evaluation.estimates import Facts, answer
from maillard.evaluation.estimators.additive import Additive
from maillard.evaluation.evaluation_log import Opened, open_log
from maillard.evaluation.evaluation_report import Estimate, Report
from maillard.evaluation.log_sums import Asked, Sums, add_up, rows_of, sums_of, total_of
from maillard.evaluation.looking import Looked, look
from maillard.evaluation.query import Options, Settings
from maillard.evaluation.sequential.sequential_runner import NEEDS_LAWS, SEQUENCES, SEQUENTIAL, Follower
from maillard.policies import Policy

__all__ = ["evaluate", "evaluate_each", "names", "reports_of"]

_UNLESS_ADAPTIVE = "dr"  # in the report where nothing was asked for
_AHEAD = 64  # parts that workers have been given and have not returned


def names() -> list[str]:
    """Of every estimator: those whose parts may be added in any order, then those that follow the log.

    >>> names()[-3:]
    ['cs-bernstein', 'cs-dr', 'cs-betting']
    """
    return [*known.additive(), *SEQUENTIAL]


def evaluate(
    log: Any,
    target: str | Policy,
    estimators: Sequence[str] | None = None,
    confidence: float = 0.95,
    **options: Unpack[Options],
) -> Report:
    """How much reward a decision would have had on average, had `target` made it.

    `log` is what `read_log` opens, or a log of `simulate_log`. A target does not learn: an arm, a distribution, the uniform one, or a
    spec of one; for policies that learn there is `replay`. `estimators` are names, a level after a colon as in "clipped-ips:5".
    The options are those of `Settings`.

    >>> from maillard import simulate_log
    >>> log = simulate_log("ms+:floor=0.1", "bernoulli:0.6,0.4", horizon=5000, seed=1)
    >>> report = evaluate(log, "arm:1")
    >>> report["snips"].lower < 0.4 < report["snips"].upper
    True
    """
    return evaluate_each(log, [target], estimators, confidence, **options)[0]


def evaluate_each(
    log: Any,
    targets: Sequence[str | Policy],
    estimators: Sequence[str] | None = None,
    confidence: float = 0.95,
    **options: Unpack[Options],
) -> list[Report]:
    """The reports of several targets, from one pass over the log."""
    settings = Settings.of(confidence, options)
    if isinstance(targets, str | Policy) or not targets:
        raise InvalidValue("targets", targets, "a list of at least one target")
    opened = open_log(log, settings.reward_range, settings.on_rows, **settings.selection)
    try:
        looked = look(opened, settings)
        return reports_of(looked, [looked.bind(each) for each in targets], estimators)
    finally:
        opened.close()


def reports_of(looked: Looked, targets: Sequence[Target], estimators: Sequence[str] | None) -> list[Report]:
    """The reports of a log: one pass over it, two where workers add up."""
    opened, settings = looked.opened, looked.settings
    chosen = _chosen(estimators, laws=looked.laws, ranged=opened.reward_range is not None)
    asked = looked.asked(targets, [each for _, forms in chosen for each in forms])
    # Levels are chosen by widths that hold on logs that were learned from, where there are such: of terms that are never negative.
    sought = [each for _, forms in chosen if len(forms) > 1 for each in forms if not each.modelled]
    followers = [
        looked.follower(each, [name for name, forms in chosen if not forms], sought) for each in targets
    ]
    sums = _pass(opened, asked, followers, settings.executor)

    def answers(place: int, facts: Facts) -> dict[str, Estimate]:
        mine = sums.targets[place].sums
        told = {name: answer(name, forms, mine, followers[place], facts) for name, forms in chosen}
        if estimators is None and facts.diagnostics.adaptive:
            told.pop(_UNLESS_ADAPTIVE, None)
        return told

    return [_report(looked, sums, place, each, partial(answers, place)) for place, each in enumerate(targets)]


def _report(
    looked: Looked, sums: Sums, place: int, target: Target, answers: Callable[[Facts], dict[str, Estimate]]
) -> Report:
    """The report of one target."""
    mine = sums.targets[place]
    opened, settings, shares = looked.opened, looked.settings, looked.shares
    diagnostics = Diagnostics.of(
        mine.spread,
        mine.test,
        sums.left_out + mine.left_out,
        sums.verdict(),
        sums.overlap.table(opened.arms),
        floor=None if shares is None else float(shares[(target.laws != 0).any(axis=0)].min(initial=1.0)),
        adaptive=(not sums.constant) if settings.adaptive is None else settings.adaptive,
    )
    looked.check(target, diagnostics.max_weight, units=sums.units)
    facts = Facts(
        settings=settings,
        diagnostics=diagnostics,
        target=target,
        arms=opened.arms,
        reward_range=opened.reward_range,
        largest=looked.largest(target),
        laws=looked.laws and sums.laws,
        floored=looked.shares is not None or (opened.decay is not None and opened.decay <= 0.7),
        unseen=float((np.abs(target.laws) * (sums.drawn() == 0)).sum(axis=1).max()),
        modelled=settings.reward_model is not None,
        centre=looked.centre,
        repeated=sums.repeated,
        by_unit=looked.by_unit,
    )
    return Report(
        target=target.name,
        source=opened.source,
        experiment=opened.experiment,
        confidence=settings.confidence,
        estimates=answers(facts),
        diagnostics=diagnostics,
        facts=facts,
    )


def _pass(opened: Opened, asked: Asked, followers: Sequence[Follower], executor: Executor | None) -> Sums:
    """The sums of a whole log, and its rows to whoever follows them."""
    from maillard.evaluation.compiled_sums import applies

    def then(place: int, rows: Any) -> None:
        followers[place].advance(rows)

    alone = executor is None and not followers[0].busy and all(applies(part, asked) for part in opened.parts)
    if executor is not None or alone:
        parts = itertools.chain.from_iterable(map(_travelling, opened.parts))
        with nullcontext(executor) if executor is not None else ThreadPoolExecutor(os.cpu_count()) as workers:
            total = total_of(_mapped(workers, parts, asked))
        for some in opened.columns() if followers[0].busy else ():
            for place, (rows, _) in enumerate(rows_of(some, asked)[0]):
                then(place, rows)
    else:
        total = total_of(
            sums_of(some, asked, then if followers[0].busy else None)
            for some in opened.columns()
            if len(some)
        )
    if total is None:
        raise CannotAnswer(f"{opened.source}: no row is selected; an evaluation needs at least one decision")
    return total


def _mapped(workers: Executor, parts: Iterable[Any], asked: Asked) -> Iterator[Sums | None]:
    """The sums of the parts as workers make them, not many parts ahead."""
    ahead: deque[Future[Sums | None]] = deque()
    for part in parts:
        ahead.append(workers.submit(add_up, part, asked))
        if len(ahead) >= _AHEAD:
            yield ahead.popleft().result()
    while ahead:
        yield ahead.popleft().result()


def _travelling(part: Any) -> Iterable[Any]:
    """A part as it can go to another process: by name where it is a file's, else its columns themselves."""
    from maillard.decisions.files.parquet import ParquetPart

    inner = getattr(part, "part", part)
    if isinstance(getattr(inner, "batches", None), ParquetPart):
        yield part
        return
    for some in part():
        yield _Held(some)


@dataclass(frozen=True, eq=False)
class _Held:
    """Columns that are there."""

    some: Any

    def __call__(self) -> Iterable[Any]:
        return (self.some,)


Chosen = tuple[str, tuple[Additive, ...]]


def _chosen(wanted: Sequence[str] | None, *, laws: bool, ranged: bool) -> list[Chosen]:
    """Each estimator by its name, with the forms of it that have to be added up: several, where a level is to be chosen."""
    if wanted is None:
        wanted = ["ips", "snips", "aipw"]
        wanted += ["aipw-sqrt", "aipw-two-point"] if laws else [_UNLESS_ADAPTIVE]
        # Where rewards have no known range, one of them says so.
        wanted += [name for name in SEQUENCES if laws or name not in NEEDS_LAWS] if ranged else ["cs-betting"]
    if isinstance(wanted, str):
        wanted = [wanted]
    if not isinstance(wanted, Sequence):
        raise InvalidValue("estimators", wanted, "names of estimators")
    if not wanted:
        raise InvalidValue("estimators", wanted, f"at least one of {', '.join(names())}")
    all_names = tuple(names())
    chosen: dict[str, tuple[Additive, ...]] = {}
    for spec in wanted:
        name, level = known.parse(spec, all_names)
        cls = known.additive().get(name)
        if cls is None:
            if level is not None:
                raise InvalidValue(f"{name}: level", level, "no level")
            chosen[name] = ()
        elif level is None and cls.levels:
            chosen[name] = tuple(cls(each) for each in cls.levels)
        else:
            chosen[spec if level is not None else name] = (cls(level),)
    return list(chosen.items())
