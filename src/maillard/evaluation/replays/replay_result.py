"""The result of `replay`: a learning curve with its interval and its assumptions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from maillard import html_fragments
from maillard.array_types import Floats, Ints
from maillard.evaluation.evaluation_report import plain
from maillard.optional_packages import data_frame, needs_extra
from maillard.short_reprs import fit_screen

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

_PRINTED_ROUNDS = 6


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Replay:
    """The learning curve of another policy on a log: the mean reward of its first n rounds, by n.

    >>> from maillard import replay, simulate_log
    >>> log = simulate_log("ms+:floor=0.2", "bernoulli:0.5,0.3", horizon=4000, seed=1)
    >>> found = replay(log, "kl-ms", replays=10)
    >>> found.method, int(found.rounds[-1]), found.to_dict()["policy"]
    ('rejection', 29, 'kl-ms')
    >>> found.plot().savefig("replay.png")
    """

    policy: str
    method: str
    source: str
    rounds: Ints
    mean: Floats
    "The estimate; NaN if only bounds are known."
    least: Floats
    most: Floats
    "Bounds on the estimate; equal to `mean`, except for queues that may have run out."
    lower: Floats
    upper: Floats
    "The confidence interval, which includes sampling error and bounds."
    reached: Floats
    "The fraction of the replays that reached round n."
    interval: str
    "What the interval is based on: independent logs, parts of the log, or the choices made."
    assumes: tuple[str, ...]
    confidence: float
    replays: int
    "The number of passes over the same rows, each with its own random numbers."
    parts: int
    "The number of disjoint parts of the rows; the policy starts afresh in each."
    logs: int
    rows: int
    "The number of rows used, over all logs."
    accepted: float
    "The mean number of rows that one pass over all parts accepts."
    acceptance_probability: float
    "The probability that a row is accepted; 0 for queues."
    guaranteed: int
    logged_mean: float
    "The mean reward of the log itself."
    left_out: dict[str, int]
    seed: int

    @property
    def reward(self) -> Floats:
        """The total reward of the first n rounds."""
        return np.asarray(self.mean * self.rounds)

    @property
    def reward_lower(self) -> Floats:
        """The lower end of the interval of `reward`."""
        return np.asarray(self.lower * self.rounds)

    @property
    def reward_upper(self) -> Floats:
        """The upper end of the interval of `reward`."""
        return np.asarray(self.upper * self.rounds)

    @property
    def bounded(self) -> bool:
        """Whether only bounds are known for a part of the curve."""
        return bool(np.isnan(self.mean[self.reached > 0]).any())

    @needs_extra("notebook")
    def plot(self, title: str | None = None) -> Figure:
        """Return a figure of the mean reward by round with its interval or bounds, and the mean of the log.

        >>> from maillard import replay, simulate_log
        >>> log = simulate_log("ms+:floor=0.2", "bernoulli:0.6,0.3", horizon=1000, seed=1)
        >>> replay(log, "ms+", horizon=100).plot()  # doctest: +ELLIPSIS
        <...Figure size ...>
        """
        from maillard import figures

        names, curves = [self.policy], np.array([self.mean, self.lower, self.upper])
        if self.bounded:
            names = ["at least", "at most"]
            curves = np.array([[self.least, self.most], [self.lower, self.most], [self.least, self.upper]])
        logged = figures.Reference("as logged", self.rounds, np.full(self.rounds.size, self.logged_mean))
        return figures.curves(
            self.rounds,
            names,
            *curves,
            label="mean reward of a round",
            title=f"{self.policy}, replayed by {self.method}" if title is None else title,
            references=[logged],
        )

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain values, for JSON; a number that is not finite becomes None."""
        values = {name: getattr(self, name) for name in [*self.__dataclass_fields__, "reward"]}
        made: dict[str, Any] = plain(values)
        return made

    def to_frame(self) -> DataFrame:
        """Return the learning curve as a pandas data frame, with a row for each round n.

        The columns are `policy`, `round`, `mean`, `lower`, `upper` (mean reward of the first n rounds, with
        its interval), `least`, `most` (bounds on the estimate), `reward`, `reward_lower`, `reward_upper`
        (total reward of these rounds) and `reached` (the fraction of replays with that many rounds).

        >>> from maillard import replay, simulate_log
        >>> log = simulate_log("ms+:floor=0.2", "bernoulli:0.6,0.3", horizon=1000, seed=1)
        >>> replay(log, "ms+", horizon=100).to_frame()[["policy", "round"]].tail(1).values.tolist()
        [['ms+:sigma2=0.25', 100]]
        """
        names = (
            "mean",
            "lower",
            "upper",
            "least",
            "most",
            "reward",
            "reward_lower",
            "reward_upper",
            "reached",
        )
        columns = {name: getattr(self, name) for name in names}
        return data_frame({"policy": [self.policy] * self.rounds.size, "round": self.rounds, **columns})

    def __repr__(self) -> str:
        return fit_screen(str(self))

    def _repr_html_(self) -> str:
        left_out = [f"{count:,} {reason}" for reason, count in self.left_out.items() if count]
        return html_fragments.fragment(
            self.policy,
            html_fragments.table(
                ["round", "mean reward", f"{self.confidence:.0%} interval", "reached"],
                [*self._rows(), ("as logged", f"{self.logged_mean:.4f}", "", "")],
                caption=f"Mean reward of the first rounds, by {self.method}",
            ),
            html_fragments.items(left_out, title="Left out:"),
            html_fragments.items(self.assumes, title="Assumes:"),
            facts=self._sizes,
        )

    @property
    def _sizes(self) -> str:
        times = f"{self.replays} replays" + f" on each of {self.parts} parts" * (self.parts > self.logs)
        where = self.source if self.logs == 1 else f"{self.logs} logs"
        used = f"{self.rows} rows, of which a pass uses {self.accepted:.4g}"
        return f"on {where}: {self.method}, {times}, {used}"

    def _rows(self) -> list[tuple[str, str, str, str]]:
        """Round, mean or bounds, interval, and fraction of replays, at a few rounds."""
        rows = []
        for place in np.unique(np.linspace(0, self.rounds.size - 1, _PRINTED_ROUNDS).astype(int)):
            between = f"{self.least[place]:.3f}..{self.most[place]:.3f}"  # bounds, where no more is known
            mean = between if math.isnan(self.mean[place]) else f"{self.mean[place]:.4f}"
            ends = f"{self.lower[place]:.4f} to {self.upper[place]:.4f}"
            rows.append((str(self.rounds[place]), mean, ends, f"{self.reached[place]:.0%}"))
        return rows

    def __str__(self) -> str:
        """A short report: the method, the curve at a few rounds, and the assumptions."""
        head = ("round", "mean reward", f"{self.confidence:.0%} interval", "reached")
        table = ("{:>8}  {:>12}  {:>20}  {:>7}".format(*row) for row in (head, *self._rows()))
        lines = [f"{self.policy} {self._sizes}", *table, f"  logged  {self.logged_mean:>12.4f}"]
        left_out = [f"{count} {reason}" for reason, count in self.left_out.items() if count]
        lines += [f"left out: {', '.join(left_out)}"] if left_out else []
        return "\n".join([*lines, "assumes:", *(f"  - {each}" for each in self.assumes)])
