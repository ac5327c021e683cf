"""The rows of a log in the form that a replay needs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from maillard.array_types import Bools, Floats, Ints
from maillard.decisions import DecisionLog, read_log
from maillard.decisions.audit import Audit
from maillard.decisions.columns import Columns
from maillard.decisions.pipeline_audit import PipelineAudit
from maillard.decisions.timestamps import from_microseconds
from maillard.errors import CannotAnswer, InvalidValue, OpenWindows, UnknownName
from maillard.evaluation.evaluation_log import simulated_problem
from maillard.evaluation.promised_floors import promised_probabilities
from maillard.evaluation.weighted_rows import check_range
from maillard.simulation import Log

_ROW_COLUMNS = ("row", "arm", "reward", "probability", "min_probability", "eligible")
_CERTAIN = 1.0 - 1e-9  # larger probabilities are 1 up to rounding


@dataclass(frozen=True, eq=False, kw_only=True)
class LoggedRows:
    """The rows of a log that have a reward, in log order."""

    source: str
    arms: tuple[str, ...]
    "The arms that the replayed policy may choose."
    logged_arms: int
    "The number of arms of the log."
    row: Ints
    "The row number in the source."
    arm: Ints
    "The index in `arms` of the chosen arm; -1 if it is not among them."
    reward: Floats
    probability: Floats
    "The logged probability of the chosen arm."
    min_probability: Floats
    "The smallest known probability of any of `arms`."
    eligible: Ints
    "The number of eligible arms; 0 if not all of `arms` were eligible."
    promised: float = 0.0
    "The minimum probability of every arm that the log's policies guarantee; 0 if none is known."
    reward_range: tuple[float, float] | None = None
    sigma2: float | None = None
    left_out: dict[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return self.arm.size

    def filter(self, mask: Bools) -> LoggedRows:
        """The rows for which the mask is true."""
        chosen: dict[str, Any] = {name: getattr(self, name)[mask] for name in _ROW_COLUMNS}
        return replace(self, **chosen)

    def randomized_rows(self) -> LoggedRows:
        """The rows with all of `arms` eligible, without the forced choices at the beginning."""
        forced = 0
        if self.logged_arms > 1:
            random = np.flatnonzero(self.probability < _CERTAIN)
            forced = int(random[0]) if random.size else len(self)
        mask = self.eligible > 0
        excluded = int((~mask[forced:]).sum())
        left_out = {"forced at the beginning": forced, "not all arms eligible": excluded}
        mask[:forced] = False
        return replace(self.filter(mask), left_out=self.left_out | left_out)


def read_rows(
    log: Any, arms: Sequence[str] | None = None, reward_range: tuple[float, float] | None = None
) -> LoggedRows:
    """Read the rows of a simulated log, or of anything that `read_log` opens."""
    if isinstance(log, Log):
        return _simulated_rows(log, arms, reward_range)
    opened = read_log(log)
    try:
        return _decision_rows(opened, arms, reward_range)
    finally:
        if opened is not log:
            opened.close()


def rows_from_arrays(
    arm: Any,
    reward: Any,
    log_probability: Any,
    log_probabilities: Any = None,
    *,
    arms: int | Sequence[str],
    reward_range: tuple[float, float] | None = None,
    source: str = "log",
    **more: Any,
) -> LoggedRows:
    """Rows from arrays: the index of the chosen arm, its reward, and its log probability.

    `log_probabilities` has the log probabilities of all arms, if they are known.

    >>> rows = rows_from_arrays([0, 1], [1.0, 0.0], np.log([0.5, 0.5]), arms=2)
    >>> len(rows), rows.min_probability.tolist()
    (2, [0.5, 0.5])
    """
    names = tuple(map(str, range(arms))) if isinstance(arms, int) else tuple(arms)
    reward = np.ascontiguousarray(reward, np.float64)
    probability = np.minimum(np.exp(np.asarray(log_probability, np.float64)), 1.0)
    least = probability if log_probabilities is None else np.exp(np.min(log_probabilities, axis=1))
    row = np.arange(1, reward.size + 1)
    check_range(reward, row, reward_range, source)
    return LoggedRows(
        source=source,
        arms=names,
        logged_arms=len(names),
        row=row,
        arm=np.ascontiguousarray(arm, np.int64),
        reward=reward,
        probability=probability,
        min_probability=least,
        eligible=np.full(reward.size, len(names), np.int64),
        reward_range=reward_range,
        **more,
    )


def _decision_rows(
    log: DecisionLog, arms: Sequence[str] | None, reward_range: tuple[float, float] | None
) -> LoggedRows:
    """The rows of a decision log that have a reward and a closed window, and that are not duplicates."""
    log.check_rows()
    names = _check_arms(arms, log.arms, log.source)
    places = np.array([log.arms.index(name) for name in names], np.int64)
    limits = log.reward.range if reward_range is None and log.reward is not None else reward_range
    among = np.full(len(log.arms), -1, np.int64)
    among[places] = np.arange(places.size)
    left_out = {"without a reward": 0, "window still open": 0, "repeated": 0}
    parts: list[tuple[Any, ...]] = []
    audit, pipeline = Audit(), PipelineAudit()
    for columns in log.columns():
        audit.add_columns(log.arms, columns)
        pipeline.add_columns(columns, foreign=log.foreign)
        opened = ~columns.closed if log.requires_closed_windows else np.zeros(len(columns), np.bool_)
        absent = np.isnan(columns.reward)
        left_out["repeated"] += int(columns.repeated.sum())
        left_out["window still open"] += int((opened & ~columns.repeated).sum())
        left_out["without a reward"] += int((absent & ~opened & ~columns.repeated).sum())
        part = columns.filter(~(columns.repeated | opened | absent))
        parts.append((part.row, among[part.arm], part.reward, *_probabilities(part, places, len(log.arms))))
    if audit.verdict == "broken":
        raise CannotAnswer(
            f"{log.source}: the choices do not agree with the logged probabilities, so the log cannot be "
            "replayed; run maillard verify for details"
        )
    if pipeline.faults:
        raise CannotAnswer(f"{log.source}: {'; '.join(pipeline.faults)}. The log cannot be replayed")
    if not any(part[0].size for part in parts):
        error = OpenWindows if left_out["window still open"] else CannotAnswer
        reasons = ", ".join(f"{count} {reason}" for reason, count in left_out.items() if count)
        why = f" ({reasons})" if reasons else ""
        if left_out["window still open"] and log.reward is not None and log.reward.window is not None:
            first = min((int(columns.time.min()) for columns in log.columns() if len(columns)), default=0)
            close = from_microseconds(first + round(1e6 * log.reward.window))
            why += f", and the first window closes at {close:%Y-%m-%d %H:%M:%S} UTC"
        raise error(f"{log.source}: no decision has a reward{why}; there is nothing to replay")
    joined = map(np.concatenate, zip(*parts, strict=True))
    arrays: dict[str, Any] = dict(zip(_ROW_COLUMNS, joined, strict=True))
    check_range(arrays["reward"], arrays["row"], limits, log.source)
    return LoggedRows(
        source=log.source,
        arms=names,
        logged_arms=len(log.arms),
        **arrays,
        promised=_promised(log.policies.values(), log.arms, places),
        reward_range=limits,
        sigma2=None if limits is None else _max_variance(limits),
        left_out=left_out,
    )


def _probabilities(columns: Columns, places: Ints, arms: int) -> tuple[Floats, Floats, Ints]:
    """For each row: probability of the chosen arm, smallest one among `places`, number of eligible arms."""
    probability = np.minimum(np.exp(columns.log_probability), 1.0)
    min_probability = np.where(np.isin(columns.arm, places), probability, 1.0)
    if columns.log_probabilities is not None:
        known = np.nan_to_num(columns.log_probabilities[:, places], nan=0.0, neginf=-np.inf)
        min_probability = np.minimum(min_probability, np.exp(np.min(known, axis=1)))
    count = np.full(len(columns), arms, np.int64)
    if columns.eligible is not None:
        count = np.where(columns.eligible[:, places].all(axis=1), columns.eligible.sum(axis=1), 0)
    return probability, min_probability, count


def _simulated_rows(
    log: Log, arms: Sequence[str] | None, reward_range: tuple[float, float] | None
) -> LoggedRows:
    """The rows of a log of `simulate_log`."""
    problem, names = simulated_problem(log)
    if problem is not None and problem.churn:
        allowed = "a log whose arms do not change: a replay needs constant reward distributions"
        raise InvalidValue("log", str(problem), allowed)
    if arms is not None and tuple(arms) != names:
        raise InvalidValue("arms", arms, "all arms, because the log is simulated")
    limits, sigma2 = reward_range, None
    if problem is not None:
        low, high = problem.support
        limits = (low, high) if limits is None and math.isfinite(high - low) else limits
        sigma2 = problem.sigma2
    return rows_from_arrays(
        log.arms,
        log.rewards,
        log.log_probability,
        log.log_probabilities,
        arms=names,
        reward_range=limits,
        sigma2=sigma2 if limits is None or sigma2 is not None else _max_variance(limits),
        promised=_promised([log.provenance["policy"]], names, np.arange(len(names))),
        source=f"log of {log.provenance['policy']}",
    )


def _promised(specs: Iterable[str], arms: Sequence[str], places: Ints) -> float:
    """The minimum probability that every version of the log's policy guarantees to each of these arms."""
    promised = promised_probabilities(specs, arms)
    return 0.0 if promised is None else float(promised[places].min())


def _check_arms(given: Sequence[str] | None, known: Sequence[str], source: str) -> tuple[str, ...]:
    if given is None:
        return tuple(known)
    if isinstance(given, str) or not given:
        raise InvalidValue("arms", given, "names of arms, as in ['red', 'blue']")
    for name in given:
        if name not in known:
            raise UnknownName(f"arm of {source}", str(name), known)
    if len(set(given)) < len(given):
        raise InvalidValue("arms", list(given), "each name once")
    return tuple(given)


def _max_variance(limits: tuple[float, float]) -> float:
    """The largest possible variance of a reward within these limits."""
    width = limits[1] - limits[0]  # width**2 would raise on overflow; the product becomes infinite
    return width * width / 4
