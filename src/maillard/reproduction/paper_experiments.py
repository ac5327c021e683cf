"""The experiments, read from paper_experiments.toml, and what a run of them consists of."""

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
from maillard.simulation.plans import Experiment as SimulationExperiment
from maillard.simulation.plans import check_count, check_seed, make_experiment

__all__ = [
    "PAPER",
    "ExperimentPart",
    "PaperExperiment",
    "Settings",
    "experiments",
    "label",
    "parts",
    "read",
    "rounds",
]

_PER_DECADE = 10
_MOST = {"trials": 100_000, "horizon": 10**6}  # more would not fit into memory, or into a day
_LEAST = {"trials": 4, "horizon": 1000}  # fewer have no deviation, or end before every arm was pulled often


@functools.cache
def read(name: str) -> dict[str, Any]:
    """What a file of this package's data says."""
    return tomllib.loads((resources.files("maillard.reproduction") / name).read_text(encoding="utf8"))


_FILE = read("paper_experiments.toml")
PAPER: dict[str, int] = _FILE["paper"]  # trials and horizon of the paper's own experiments


@dataclass(frozen=True)
class Settings:
    """What a run is asked for: the paper's own size unless told."""

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
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is not None:
                check_count(name, value, _MOST[name])
                if value < least:
                    raise InvalidValue(name, value, f"a whole number >= {least}, to judge anything by")
        for name in self.only:
            if name not in _by_name():
                raise UnknownName("experiment", name, _by_name())


@dataclass(frozen=True)
class PaperExperiment:
    """One experiment of a full run, with what its file leaves open filled in."""

    name: str
    source: str
    problems: tuple[str, ...]
    policies: tuple[str, ...]
    over: Mapping[str, Sequence[float]]
    trials: int
    horizon: int
    curves: bool = True  # or the final regret alone
    full: Mapping[str, int] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class ExperimentPart:
    """An experiment on one of its problems: what is run, kept and resumed as a whole."""

    experiment: str
    problem: str
    policies: tuple[str, ...]
    trials: int
    horizon: int
    curves: bool
    seed: int

    def simulation(self) -> SimulationExperiment:
        """The same, checked and ready to run."""
        checkpoints = rounds(self.horizon) if self.curves else [self.horizon]
        return make_experiment(
            self.policies, self.problem, self.horizon, self.trials, self.seed, checkpoints=checkpoints
        )


def rounds(horizon: int) -> list[int]:
    """Checkpoints: the horizon, a tenth, a hundredth of it, ... and nine between each two, from round 10 on."""
    back = horizon * 10.0 ** (-np.arange(_PER_DECADE * 20) / _PER_DECADE)
    kept: list[int] = np.unique(np.ceil(back[back >= min(10, horizon)]).astype(np.int64)).tolist()
    return kept


def experiments() -> dict[str, PaperExperiment]:
    """Every experiment, by name, at its full size."""
    return dict(_by_name())


def label(spec: str) -> str:
    """What a policy is called in the report.

    >>> label("ms+:booster=16"), label("ts:scale=0.5"), label("ms+:booster=4,sigma2=2")
    ('MS+16', 'TS, scale 0.5', 'MS+4, sigma2 2')
    """
    labels = _FILE["labels"]
    if spec in labels:
        return str(labels[spec])
    name, _, options = specs.read(spec)
    called = f"{labels.get(name, name)}{options.get('booster', '')}"
    return ", ".join([called, *(f"{key} {value}" for key, value in options.items() if key != "booster")])


def parts(settings: Settings) -> list[ExperimentPart]:
    """What a run with these settings consists of, in order."""
    paper, quick = PAPER, _FILE["quick"]
    share = {
        name: (getattr(settings, name) or paper[name]) / paper[name] * (quick[name] if settings.quick else 1)
        for name in ("trials", "horizon")
    }
    made = []
    for experiment in _by_name().values():
        if settings.only and experiment.name not in settings.only:
            continue
        size = {"trials": experiment.trials, "horizon": experiment.horizon}
        size |= experiment.full if settings.full else {}
        scaled = {name: max(_LEAST[name], math.ceil(size[name] * share[name] - 1e-9)) for name in size}
        policies = tuple(dict.fromkeys(_expand(experiment.policies, experiment.over)))
        for problem in _expand(experiment.problems, experiment.over):
            # Parts have random numbers of their own, so that they are independent.
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
    """Every template with every value of the words in braces that it holds."""
    for template in templates:
        words = [word for word in over if f"{{{word}}}" in template]
        for values in itertools.product(*(over[word] for word in words)):
            yield template.format(**dict(zip(words, values, strict=True)))


@functools.cache
def _by_name() -> dict[str, PaperExperiment]:
    return {each["name"]: _experiment(each) for each in _FILE["experiment"]}


def _experiment(given: dict[str, Any]) -> PaperExperiment:
    groups = _FILE["groups"]

    def listed(names: list[str]) -> tuple[str, ...]:
        found = (groups[name[1:]] if name.startswith("@") else [name] for name in names)
        return tuple(itertools.chain(*found))

    lists = {name: listed(given[name]) for name in ("problems", "policies")}
    return PaperExperiment(**{**PAPER, "over": {}, **given, **lists})
