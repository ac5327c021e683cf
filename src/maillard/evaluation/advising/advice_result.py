"""The result of `advise`: the suggestion, its reasons, what to expect from it, and a program that uses it."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from maillard.decisions import Reward
from maillard.errors import CannotAnswer
from maillard.evaluation.advising.advice_requirements import POWER, Requirements
from maillard.evaluation.advising.sequential_test import evidence
from maillard.optional_packages import data_frame, needs_extra
from maillard.short_reprs import fields_repr, fit_screen

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

_ABOUT = 0.05  # 80% plus or minus this is about 80%


@dataclass(frozen=True, kw_only=True)
class AdviceOption:
    """A policy, what it costs, and how precise the intervals from its log are.

    Without intervals (linear policies), `width`, `found` and `mean_width` are NaN. An infinite width means
    that `evaluate` recommends no estimate for many of the simulated logs.
    """

    policy: str
    floor: float
    "1 for an equal split."
    regret: float
    "How much less reward than from always choosing the best arm; mean of the simulated experiments."
    regret_error: float
    "Its standard error."
    loss: float
    "The regret as a fraction of that reward; NaN if the reward is not positive."
    width: float = math.nan
    "Half-width of the interval of the difference between two arms; mean of the simulated experiments. The"
    "intervals of all pairs of arms, in all segments, are valid together at 95%, as in `compare`."
    width_error: float = math.nan
    found: float = math.nan
    "The fraction of simulated experiments whose interval of the difference excludes 0 when they have ended."
    mean_width: float = math.nan
    "Half-width of the 95% interval of the mean of an arm that is not the best."
    mean_width_error: float = math.nan
    valid: bool | None = None
    "Whether the intervals contained the true difference often enough. None: not clear from this many logs."
    logs: int = 0
    "The simulated logs that were evaluated."

    @property
    def power_evidence(self) -> float:
        """The evidence that the difference is found in 80% of experiments rather than clearly fewer.

        The logarithm of the likelihood ratio of 85% and 75%.
        """
        if not self.logs:
            return -math.inf
        return evidence(round(self.found * self.logs), self.logs, POWER - _ABOUT, POWER + _ABOUT)

    @property
    def resolves(self) -> bool:
        """Whether the intervals are not known to be wrong, and find the difference in about 80%."""
        return self.valid is not False and self.power_evidence >= 0

    def __repr__(self) -> str:
        values = ((field.name, getattr(self, field.name)) for field in dataclasses.fields(self))
        rounded = (
            (name, float(f"{value:.4g}") if isinstance(value, float) else value) for name, value in values
        )
        return fields_repr(type(self).__name__, rounded)

    @property
    def label(self) -> str:
        """The floor as text: no floor, floor 20%, equal split."""
        if self.floor == 1.0:
            return "equal split"
        return f"floor {100 * self.floor:g}%" if self.floor else "no floor"


@dataclass(frozen=True, kw_only=True)
class Advice:
    """A policy with its floor, the reasons for it, and a comparison with two alternatives.

    >>> from maillard import advise
    >>> advice = advise(2, rate=0.3, lift=0.2, horizon=1000, quick=True)
    >>> advice.suggestion.regret < advice.options[-1].regret  # of an equal split
    True
    >>> advice.resolves, advice.needed_decisions < 1000
    (True, True)
    >>> figure = advice.plot()
    >>> print(advice.code.splitlines()[0])
    from maillard import Bandit, Reward
    """

    requirements: Requirements
    "The answers that the advice is based on."
    policy: str
    "The suggested spec, with its floor."
    floor: float
    reasons: tuple[str, ...]
    evidence: str
    "The page of the documentation with the evidence for the policy."
    warnings: tuple[str, ...]
    options: tuple[AdviceOption, ...]
    "The suggestion and two alternatives, ordered by floor."
    tried: tuple[AdviceOption, ...]
    "All simulated options."
    resolves: bool | None
    "Whether the suggestion finds the difference in about 80% of experiments. None: not simulated."
    needed_decisions: int | None
    "About how many decisions an equal split needs to find it so often. None: for linear policies."
    problem: str
    "The simulated problem."
    horizon: int
    "The simulated decisions, per segment."
    runs: int
    "The fewest simulated logs of an option that were evaluated; 0 if none were."
    trials: int
    "Simulated experiments per option that measured the regret."
    seed: int
    quick: bool

    @property
    def suggestion(self) -> AdviceOption:
        """The suggested option."""
        return next(each for each in self.options if each.policy == self.policy)

    @property
    def reward(self) -> Reward:
        """The reward rule of the suggested bandit."""
        return self.requirements.reward_rule

    @property
    def code(self) -> str:
        """A program that makes a decision with the suggested policy."""
        from maillard.evaluation.advising.advice_program import program

        return program(self.requirements, self.policy)

    @property
    def command(self) -> str:
        """The command that gives the same advice."""
        from maillard.evaluation.advising.advice_program import command

        return command(self)

    @needs_extra("notebook")
    def plot(self) -> Figure:
        """A figure of the regret and the interval width of every option that was simulated."""
        from maillard import figures
        from maillard.evaluation.advising.advice_formatting import reward_name

        shown = [each for each in self.tried if math.isfinite(each.width)]
        if not shown:
            raise CannotAnswer("no intervals were simulated, so there is nothing to draw")
        percent = 100 if self.requirements.zero_or_one else 1
        labels = [
            each.label
            + " (suggested)" * (each.policy == self.policy)
            + " (not valid)" * (each.valid is False)
            for each in shown
        ]
        return figures.frontier(
            [labels[-1]],  # next to the last point
            [[each.regret for each in shown]],
            [[percent * each.width for each in shown]],
            [[*labels[:-1], ""]],
            title=f"{len(self.requirements.arms)} arms, {self.requirements.horizon:,} decisions",
            xlabel=f"lost {reward_name(self.requirements)}",
            ylabel="margin of a comparison" + " (points)" * (percent == 100),
            yscale="log",
        )

    def to_frame(self) -> DataFrame:
        """Return a pandas data frame with a row for each simulated option.

        The columns are the fields of the options: `policy` and `floor`, `regret` with `regret_error` and
        `loss`, `width` with `width_error`, `found`, `mean_width` with `mean_width_error`, `valid`, and
        `logs`. `suggested` tells which option is the suggestion.

        >>> from maillard import advise
        >>> frame = advise(2, rate=0.3, lift=0.2, horizon=1000, quick=True).to_frame()
        >>> frame["floor"].iloc[[0, -1]].tolist(), int(frame["suggested"].sum())
        ([0.0, 1.0], 1)
        """
        names = [field.name for field in dataclasses.fields(AdviceOption)]
        columns: dict[str, list[Any]] = {name: [getattr(each, name) for each in self.tried] for name in names}
        return data_frame(columns | {"suggested": [each.policy == self.policy for each in self.tried]})

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain values, for JSON, with the program and the command.

        >>> from maillard import advise
        >>> advise(2, rate=0.3, lift=0.2, horizon=1000, quick=True).to_dict()["resolves"]
        True
        """
        fields = dataclasses.asdict(self) | {"reward": dataclasses.asdict(self.reward)}
        return fields | {"code": self.code, "command": self.command}

    def __str__(self) -> str:
        from maillard.evaluation.advising.advice_text import describe

        return describe(self)

    def __repr__(self) -> str:
        from maillard.evaluation.advising.advice_text import summarise

        return fit_screen(summarise(self))

    def _repr_html_(self) -> str:
        from maillard.evaluation.advising.advice_text import fragment

        return fragment(self)
