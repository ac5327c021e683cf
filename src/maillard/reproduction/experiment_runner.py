"""Running the experiments, each part once: what an interrupted run has done is not done again."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import maillard
from maillard.errors import InvalidValue
from maillard.reproduction.experiment_results import ExperimentResults
from maillard.reproduction.paper_experiments import ExperimentPart, Settings, parts
from maillard.reproduction.progress import Progress
from maillard.simulation import Result
from maillard.simulation.plans import Experiment, versions
from maillard.simulation.runner import run_experiments

__all__ = ["key", "run", "work_of"]


def work_of(listed: list[ExperimentPart]) -> float:
    """How much there is to do, in rounds."""
    return float(sum(part.trials * part.horizon * len(part.policies) for part in listed))


def run(settings: Settings, store: Path, workers: int, shown: Progress) -> ExperimentResults:
    """Every part's result: those in the store, and the others, each stored when it is done."""
    listed = parts(settings)
    found = {part: result for part in listed if (result := _load(store / key(part))) is not None}
    shown.advance(work_of(list(found)))
    left = [part for part in listed if part not in found]

    def advance(place: int, _policy: int, trials: int) -> None:
        shown.say(f"{left[place].experiment}, {left[place].problem}")
        shown.advance(trials * left[place].horizon)

    def announced() -> Iterator[Experiment]:
        for part in left:
            shown.say(f"preparing {part.experiment}, {part.problem}")  # which the first time means compiling
            yield part.simulation()

    for place, result in run_experiments(announced(), workers, advance=advance):
        _store(result, store / key(left[place]))
        found[left[place]] = result
    return ExperimentResults(settings, {part: found[part] for part in listed})


def _load(path: Path) -> Result | None:
    """A stored result; None if there is none, or none that can be read."""
    try:
        return Result.load(path)
    except InvalidValue:
        return None


def _store(result: Result, path: Path) -> None:
    new = path.with_suffix(".new.npz")
    try:
        result.save(new)
        new.replace(path)  # whole or not at all
    finally:
        new.unlink(missing_ok=True)


def key(part: ExperimentPart) -> str:
    """A name that tells all that a part's result depends on."""
    facts = json.dumps([dataclasses.asdict(part), versions(), _sources()], sort_keys=True)
    return hashlib.sha256(facts.encode()).hexdigest()[:24] + ".npz"


@functools.cache
def _sources() -> str:
    """A fingerprint of the package's own code."""
    folder = Path(maillard.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        if "reproduction" not in path.relative_to(folder).parts:
            digest.update(path.read_bytes())
    return digest.hexdigest()
