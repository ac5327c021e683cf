"""A decision and the reward events that are reported for it: the rows of the log. Rows are immutable."""

from __future__ import annotations

import math
from datetime import datetime
from typing import TYPE_CHECKING, Literal, NamedTuple

from maillard import html_fragments
from maillard.decisions.timestamps import from_microseconds
from maillard.optional_packages import data_frame, needs_extra
from maillard.short_reprs import COLUMNS, cut

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

_LISTED = 100  # arms in an HTML table
POSSIBLE = "a number > 0 and <= 1 (the arm of this row was chosen, so 0 is impossible)"
LOG_PROBABILITY_TOLERANCE = 1e-9  # rounding may raise the logarithm of a probability this far above 0

Outcome = Literal[
    "applied", "revised", "unchanged", "duplicate", "parked", "late", "waiting", "old epoch",
    "conflict", "refused",
]  # fmt: skip
"What happened to a reward that was reported."


class Decision(NamedTuple):
    """One choice, the distribution it was sampled from, and the state that determined the distribution.

    >>> from maillard import Bandit, Reward
    >>> bandit = Bandit(["red", "blue"], reward=Reward(low=0, high=1), seed=1)
    >>> decision = bandit.choose(unit="user-17")
    >>> decision.arm, decision.probability, decision.unit
    ('red', 0.5, 'user-17')
    """

    id: str
    "A UUID of version 7."
    experiment: str
    time: int
    "Microseconds since 1970, by the store's clock."
    unit: str | None
    "The user, session or thing that the choice was made for."
    arm: str
    "The chosen arm."
    eligible: tuple[str, ...]
    "The arms that could have been chosen."
    log_probabilities: tuple[float, ...]
    "The log probability of each eligible arm: the distribution that `arm` was sampled from."
    log_probability: float
    "The log probability of the chosen arm."
    policy_version: int
    formula_version: int
    state: int
    "The number of the last event applied before the distribution was computed."
    epoch: int
    cold: bool
    "Whether the chosen arm was cold: it had no observed rewards in that state."
    idempotency_key: str | None = None
    position: int = 0
    "The index within a batch of decisions."
    origin: str | None = None
    "The id of the decision that sampled the arm, if this one repeats it (sticky assignment)."
    context: str | None = None
    "What the caller knew about the decision, as JSON; None after the unit was erased."
    actions: str | None = None
    "The arms with their attributes, as JSON, if the arms differ at every decision."
    encoded: bytes | None = None
    "What the distribution was computed from: feature rows or a segment, see `encoded_contexts`."
    feature_version: int = 0
    "1 for the first features of the experiment; 0 without features."

    @property
    def probability(self) -> float:
        """The probability of the chosen arm."""
        return math.exp(self.log_probability)

    @property
    def probabilities(self) -> dict[str, float]:
        """The probability of each eligible arm."""
        return {arm: math.exp(log) for arm, log in zip(self.eligible, self.log_probabilities, strict=True)}

    @property
    def at(self) -> datetime:
        """`time` as a datetime."""
        return from_microseconds(self.time)

    def __repr__(self) -> str:
        arms, probability = f"{len(self.eligible):,} arms", f"{self.probability:.4g}"
        text = f"Decision {self.id}: {cut(self.arm, 20)!r} of {arms}, probability {probability}"
        unit = "" if self.unit is None else f", unit {cut(self.unit, 20)!r}"
        return f"<{(text + unit)[: COLUMNS - 2]}>"

    def __dir__(self) -> list[str]:
        # Without the methods of a tuple. `super()` is not available in a named tuple.
        return [name for name in object.__dir__(self) if name not in ("count", "index")]

    def _repr_html_(self) -> str:
        likely = sorted(self.probabilities.items(), key=lambda pair: (pair[0] != self.arm, -pair[1]))[
            :_LISTED
        ]
        rows = [(arm, html_fragments.percent(p), html_fragments.bar(p)) for arm, p in likely]
        unit = "" if self.unit is None else f" for {self.unit!r}"
        repeat = "" if self.origin is None else f", which repeats decision {self.origin}"
        return html_fragments.fragment(
            f"{self.arm}, with a probability of {html_fragments.percent(self.probability)}",
            html_fragments.table(["arm", "probability", ""], rows, marked=[0]),
            html_fragments.more_rows(len(self.eligible) - _LISTED, "arms"),
            "" if self.context is None else html_fragments.table([], [("context", self.context)]),
            facts=f"decision {self.id}{unit} at {self.at:%Y-%m-%d %H:%M:%S} UTC{repeat}",
        )

    @needs_extra("notebook")
    def plot(self) -> Figure:
        """Return a figure of the probabilities of the eligible arms; the chosen arm is bold.

        >>> from maillard import Bandit
        >>> Bandit(["red", "blue"], "uniform").choose().plot()  # doctest: +ELLIPSIS
        <...Figure size ...>
        """
        from maillard import figures

        title = f"Decision for {self.unit!r}" if self.unit is not None else "Decision"
        return figures.probabilities(
            self.eligible, list(self.probabilities.values()), title=f"{title}: {self.arm}", chosen=self.arm
        )

    def to_frame(self) -> DataFrame:
        """Return a pandas data frame with a row for each eligible arm.

        The columns are `arm`, `probability`, `log_probability` and `chosen`.

        >>> from maillard import Bandit
        >>> Bandit(["red", "blue"], "uniform", seed=1).choose().to_frame()
            arm  probability  log_probability  chosen
        0   red          0.5        -0.693147    True
        1  blue          0.5        -0.693147   False
        """
        return data_frame(
            {
                "arm": list(self.eligible),
                "probability": list(self.probabilities.values()),
                "log_probability": list(self.log_probabilities),
                "chosen": [arm == self.arm for arm in self.eligible],
            }
        )


class LoggedContext(NamedTuple):
    """The fields of a decision that statistics of contexts need."""

    id: str
    arm: str
    context: str | None
    "As JSON; None without a context, or after the unit was erased."
    feature_version: int


class RewardEvent(NamedTuple):
    """A reward that was reported for a decision. A decision can have several, told apart by `event`."""

    decision: str
    event: str
    value: float
    at: int
    "When it occurred, in microseconds since 1970."
    arrived: int
    "When it reached the store, by the store's clock."
    late: bool = False
    "Whether it arrived after the reward window had closed. Late rewards are logged but not applied."
