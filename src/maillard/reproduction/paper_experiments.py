"""The experiments of paper_experiments.toml, and the parts of which a run consists."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import tomllib
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np

from maillard import specs
from maillard.errors import InvalidValue, UnknownName
from maillard.problems import Problem
from maillard.reproduction import data_sets
from maillard.simulation.plans import Experiment as SimulationExperiment
from maillard.simulation.plans import check_count, check_seed, make_experiment

_CHECKPOINTS_PER_DECADE = 10
_MAX_SIZE = {"trials": 100_000, "horizon": 10**6}  # more would need too much memory or time
_MIN_SIZE = {"trials": 4, "horizon": 1000}  # fewer would not allow any statistics


@functools.cache
def read_toml(name: str) -> dict[str, Any]:
    """The content of a TOML file of this package."""
    return tomllib.loads((resources.files("maillard.reproduction") / name).read_text(encoding="utf8"))


_CONTENT = read_toml("paper_experiments.toml")
PAPER: dict[str, int] = _CONTENT["paper"]  # trials and horizon of the paper's own experiments


@dataclass(frozen=True)
class ReproductionSettings:
    """The settings of a run; by default the paper's own size."""

    trials: int | None = None
    horizon: int | None = None
    seed: int = 0
    only: tuple[str, ...] = ()
    quick: bool = False
    full: bool = False

    def __post_init__(self) -> None:
        check_seed(self.seed)
        if isinstance(self.only, str):
            raise InvalidValue("only", self.only, "a tuple of names of experiments")
        object.__setattr__(self, "only", tuple(dict.fromkeys(self.only)))
        for name, least in _MIN_SIZE.items():
            value = getattr(self, name)
            if value is not None:
                check_count(name, value, _MAX_SIZE[name])
                if value < least:
                    raise InvalidValue(name, value, f"a whole number >= {least}")
        known = [*_by_name(), *_groups()]
        for name in self.only:
            if name not in known:
                raise UnknownName("experiment", name, known)

    def includes(self, experiment: PaperExperiment) -> bool:
        """Whether an experiment is part of the run; without `only`, those that belong to no group are."""
        if not self.only:
            return not experiment.group
        return experiment.name in self.only or experiment.group in self.only


@dataclass(frozen=True)
class PaperExperiment:
    """An experiment at its full size, with the defaults of the file filled in."""

    name: str
    source: str
    problems: tuple[str, ...]
    policies: tuple[str, ...]
    over: Mapping[str, Sequence[float]]
    trials: int
    horizon: int
    curves: bool = True  # False: only the final regret
    group: str = ""  # run only on request, by this name or that of the experiment
    full: Mapping[str, int] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class ExperimentPart:
    """An experiment on one of its problems: the unit that is run, stored and resumed."""

    experiment: str
    problem: str
    policies: tuple[str, ...]
    trials: int
    horizon: int
    curves: bool
    seed: int

    def simulation(self) -> SimulationExperiment:
        """The simulation of this part, checked and ready to run."""
        checkpoints = rounds(self.horizon) if self.curves else [self.horizon]
        return make_experiment(
            self.policies,
            self.problem_to_run(),
            self.horizon,
            self.trials,
            self.seed,
            checkpoints=checkpoints,
        )

    def problem_to_run(self) -> str | Problem:
        """The problem: its spec, or that of a data set."""
        kind, _, name = self.problem.partition(data_sets.PREFIX)
        return self.problem if kind else data_sets.classification(name)


def rounds(horizon: int) -> list[int]:
    """Checkpoints from round 10 to the horizon, ten per decade, aligned with the horizon."""
    back = horizon * 10.0 ** (-np.arange(_CHECKPOINTS_PER_DECADE * 20) / _CHECKPOINTS_PER_DECADE)
    kept: list[int] = np.unique(np.ceil(back[back >= min(10, horizon)]).astype(np.int64)).tolist()
    return kept


def experiments() -> dict[str, PaperExperiment]:
    """All experiments at their full size, by name."""
    return dict(_by_name())


def label(spec: str) -> str:
    """The name of a policy in the report.

    >>> label("ms+:booster=16"), label("ts:scale=0.5"), label("ms+:booster=4,sigma2=2")
    ('MS+16', 'TS, scale 0.5', 'MS+4, sigma2 2')
    """
    labels = _CONTENT["labels"]
    if spec in labels:
        return str(labels[spec])
    name, _, options = specs.read(spec)
    called = f"{labels.get(name, name)}{options.get('booster', '')}"
    return ", ".join([called, *(f"{key} {value}" for key, value in options.items() if key != "booster")])


def parts(settings: ReproductionSettings) -> list[ExperimentPart]:
    """The parts of a run with these settings, in order."""
    paper, quick = PAPER, _CONTENT["quick"]
    scale = {
        name: (getattr(settings, name) or paper[name]) / paper[name] * (quick[name] if settings.quick else 1)
        for name in ("trials", "horizon")
    }
    made = []
    for experiment in _by_name().values():
        if not settings.includes(experiment):
            continue
        size = {"trials": experiment.trials, "horizon": experiment.horizon}
        size |= experiment.full if settings.full else {}
        scaled = {name: max(_MIN_SIZE[name], math.ceil(size[name] * scale[name] - 1e-9)) for name in size}
        policies = tuple(dict.fromkeys(_expand(experiment.policies, experiment.over)))
        for problem in _expand(experiment.problems, experiment.over):
            # Each part has its own random numbers, so that parts are independent.
            seed = _seed(settings.seed, experiment.name, problem)
            made.append(
                ExperimentPart(
                    experiment.name, problem, policies, **scaled, curves=experiment.curves, seed=seed
                )
            )
    return made


def _seed(seed: int, *names: str) -> int:
    key = tuple(zlib.crc32(name.encode()) for name in names)
    return int(np.random.SeedSequence(seed, spawn_key=key).generate_state(1)[0])


def _expand(templates: Sequence[str], over: Mapping[str, Sequence[float]]) -> Iterator[str]:
    """Each template with all combinations of values of the words in braces."""
    for template in templates:
        words = [word for word in over if f"{{{word}}}" in template]
        for values in itertools.product(*(over[word] for word in words)):
            yield template.format(**dict(zip(words, values, strict=True)))


@functools.cache
def _by_name() -> dict[str, PaperExperiment]:
    return {each["name"]: _experiment(each) for each in _CONTENT["experiment"]}


def _groups() -> set[str]:
    """The names of the groups of experiments that are run only on request."""
    return {each.group for each in _by_name().values() if each.group}


def _experiment(given: dict[str, Any]) -> PaperExperiment:
    groups = _CONTENT["groups"]

    def listed(names: list[str]) -> tuple[str, ...]:
        found = (groups[name[1:]] if name.startswith("@") else [name] for name in names)
        return tuple(itertools.chain(*found))

    lists = {name: listed(given[name]) for name in ("problems", "policies")}
    return PaperExperiment(**{**PAPER, "over": {}, **given, **lists})
