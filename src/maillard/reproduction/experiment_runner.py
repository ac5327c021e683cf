"""Running the experiments; parts that an interrupted run finished are not run again."""

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
from maillard.reproduction.paper_experiments import ExperimentPart, ReproductionSettings, parts
from maillard.reproduction.progress import Progress
from maillard.simulation import Result
from maillard.simulation.plans import Experiment, versions
from maillard.simulation.runner import run_experiments


def total_rounds(all_parts: list[ExperimentPart]) -> float:
    """The number of simulated rounds."""
    return float(sum(part.trials * part.horizon * len(part.policies) for part in all_parts))


def run(settings: ReproductionSettings, store: Path, workers: int, shown: Progress) -> ExperimentResults:
    """The results of all parts; results in `store` are loaded, the others are computed and stored."""
    all_parts = parts(settings)
    found = {
        part: result for part in all_parts if (result := _load(store / part_file_name(part))) is not None
    }
    shown.advance(total_rounds(list(found)))
    remaining = [part for part in all_parts if part not in found]

    def advance(place: int, _policy: int, trials: int) -> None:
        shown.say(f"{remaining[place].experiment}, {remaining[place].problem}")
        shown.advance(trials * remaining[place].horizon)

    def prepared() -> Iterator[Experiment]:
        for part in remaining:
            shown.say(f"preparing {part.experiment}, {part.problem}")  # compiles on the first run
            yield part.simulation()

    for place, result in run_experiments(prepared(), workers, advance=advance):
        _store(result, store / part_file_name(remaining[place]))
        found[remaining[place]] = result
    return ExperimentResults(settings, {part: found[part] for part in all_parts})


def _load(path: Path) -> Result | None:
    """A stored result; None if it does not exist or cannot be read."""
    try:
        return Result.load(path)
    except InvalidValue:
        return None


def _store(result: Result, path: Path) -> None:
    new = path.with_suffix(".new.npz")
    try:
        result.save(new)
        new.replace(path)  # atomic
    finally:
        new.unlink(missing_ok=True)


def part_file_name(part: ExperimentPart) -> str:
    """A file name with a hash of everything that the result of a part depends on."""
    data = str(part.problem_to_run())  # of a data set, with a hash of its content
    facts = json.dumps([dataclasses.asdict(part), data, versions(), _sources()], sort_keys=True)
    return hashlib.sha256(facts.encode()).hexdigest()[:24] + ".npz"


@functools.cache
def _sources() -> str:
    """A hash of the source code of the package, without this subpackage."""
    folder = Path(maillard.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        if "reproduction" not in path.relative_to(folder).parts:
            digest.update(path.read_bytes())
    return digest.hexdigest()
