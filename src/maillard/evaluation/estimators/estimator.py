"""The protocol of estimators: what an estimator declares, whether it is additive or sequential."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from maillard.errors import InvalidValue

if TYPE_CHECKING:
    from maillard.evaluation.evidence import Evidence

# What an estimator may require of a log.
ALL_PROBABILITIES, REWARD_RANGE, SECOND_MOMENT = "all_probabilities", "reward_range", "second_moment"
ONLY_CHOSEN_PROBABILITY = "only_chosen_probability"
# The interval that it returns.
NORMAL, CONFIDENCE_SEQUENCE, NO_INTERVAL = "normal", "confidence sequence", "none"
# The diagnostic that says whether the log is large enough for it.
EFFECTIVE_SIZE, EFFECTIVE_PULLS = "effective_sample_size", "effective_pulls"

_LAST = 99


@dataclass(frozen=True)
class Estimator:
    """An estimator of a target's value. To add one, add a file with a subclass that has a `name`.

    `level` sets the shrinkage of the weights; it is None if there is no shrinkage.
    """

    level: float | None = None

    name: ClassVar[str]
    formula: ClassVar[str]
    assumes: ClassVar[str] = ""
    "What a valid interval requires."
    interval: ClassVar[str] = NORMAL
    requires: ClassVar[tuple[str, ...]] = ()
    "What must be known of the log: ALL_PROBABILITIES, REWARD_RANGE, SECOND_MOMENT."
    sequential: ClassVar[bool] = False
    "Whether it reads the rows in log order; otherwise parts of the log can be added in any order."
    sample_size: ClassVar[str] = EFFECTIVE_SIZE
    "The diagnostic that must reach `min_effective_size`; empty for none."
    constant_means: ClassVar[bool] = False
    "Whether its interval requires that the means of the arms do not change over time."
    needs_variance: ClassVar[bool] = True
    "Whether it has no interval if all rewards are equal."
    compares: ClassVar[bool] = False
    "Whether `compare` offers it."
    default_for: ClassVar[tuple[str, ...] | None] = None
    "What a log must have for the default report to include the estimator; None: it is never included."
    order: ClassVar[int] = 0
    "Its place in the default report."
    priority: ClassVar[tuple[int, int]] = (_LAST, _LAST)
    "Its place in the search for the best estimate: on a log that is not adaptive, and on one that is."

    priority_without_floor: ClassVar[int | None] = None
    "Its place on an adaptive log without a known floor, if it differs."

    levels: ClassVar[tuple[float, ...]] = ()
    "The levels to choose from if the caller gives none."
    allowed: ClassVar[str] = "no level"
    uses_model: ClassVar[bool] = False
    "Whether it uses a reward model."
    fits_model: ClassVar[bool] = False
    "Whether it fits its own reward model to the whole log."
    uses_predictions: ClassVar[bool] = False
    "Whether it uses a model that predicts each row from the rows before it, if the log has contexts."
    for_contexts: ClassVar[bool] = True
    "Whether it is valid if the probabilities depend on the context of a decision."
    for_actions: ClassVar[bool] = True
    "Whether it needs no model of the arms, so that the arms may differ at every decision."
    clusters: ClassVar[bool] = True
    "Whether it has intervals that are clustered by unit."

    def __post_init__(self) -> None:
        if self.level is not None and not self.accepts(self.level):
            raise InvalidValue(f"{self.name}: level", self.level, self.allowed)

    def __str__(self) -> str:
        return self.name if self.level is None else f"{self.name}:{self.level:g}"

    @classmethod
    def refusal(cls, evidence: Evidence) -> str | None:  # noqa: ARG003  # subclasses use it
        """Why the estimator cannot answer, beyond what it requires; None if it can."""
        return None

    @classmethod
    def accepts(cls, level: float) -> bool:
        """Whether a level is valid."""
        return bool(cls.levels) and 0 < level < float("inf")
