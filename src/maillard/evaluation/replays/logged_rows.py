"""The rows of a log as a replay reads them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from maillard.decisions import DecisionLog, read_log
from maillard.decisions.audit import Audit
from maillard.errors import CannotAnswer, InvalidValue, OpenWindows, UnknownName
from maillard.evaluation.evaluation_log import simulated_world
from maillard.evaluation.promised_floors import promised_shares
from maillard.evaluation.weighted_rows import check_range
from maillard.simulation import Log

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from maillard.decisions.columns import Columns

    Floats = NDArray[np.float64]
    Places = NDArray[np.int64]

__all__ = ["LoggedRows", "read_rows", "rows_from_arrays"]

_CERTAIN = 1.0 - 1e-9  # a probability that is one, rounded


@dataclass(frozen=True, eq=False, kw_only=True)
class LoggedRows:
    """Rows with a reward, in the log's order."""

    source: str
    arms: tuple[str, ...]
    "Those that the replayed policy may choose."
    logged_arms: int
    "How many the log has."
    row: Places
    "Its number in the source."
    arm: Places
    "The place among `arms` of the one that was drawn; -1 for another."
    reward: Floats
    probability: Floats
    "With which probability it was drawn."
    min_probability: Floats
    "The smallest probability that any of `arms` is known to have had."
    eligible: Places
    "How many arms could have been drawn; 0 where that were not all of `arms`."
    promised: float = 0.0
    "Below which probability the log's own policies say that no arm falls; 0 where nothing is known."
    reward_range: tuple[float, float] | None = None
    sigma2: float | None = None
    left_out: dict[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return self.arm.size

    def only(self, mask: NDArray[np.bool_]) -> LoggedRows:
        """The rows for which the mask is true."""
        chosen: dict[str, Any] = {
            name: getattr(self, name)[mask]
            for name in ("row", "arm", "reward", "probability", "min_probability", "eligible")
        }
        return replace(self, **chosen)

    def randomized_rows(self) -> LoggedRows:
        """The rows in which each of `arms` could have been drawn, without the forced ones that the log begins with."""
        forced = 0
        if self.logged_arms > 1:
            random = np.flatnonzero(self.probability < _CERTAIN)
            forced = int(random[0]) if random.size else len(self)
        whole = self.eligible > 0
        left_out = {
            "forced at the beginning": forced,
            "not all arms eligible": int((~whole[forced:]).sum()),
        }
        mask = whole.copy()
        mask[:forced] = False
        return replace(self.only(mask), left_out=self.left_out | left_out)


def read_rows(
    log: Any, arms: Sequence[str] | None = None, reward_range: tuple[float, float] | None = None
) -> LoggedRows:
    """The events of whatever `read_log` opens, or of a simulated log."""
    if isinstance(log, Log):
        return _simulated(log, arms, reward_range)
    opened = read_log(log)
    try:
        return _decided(opened, arms, reward_range)
    finally:
        if opened is not log:
            opened.close()


def rows_from_arrays(
    arm: Any,
    reward: Any,
    log_probability: Any,
    laws: Any = None,
    *,
    arms: int | Sequence[str],
    reward_range: tuple[float, float] | None = None,
    source: str = "log",
    **more: Any,
) -> LoggedRows:
    """LoggedRows of plain arrays: the arm of each row by its place, its reward and log probability, and every arm's where known.

    >>> events = rows_from_arrays([0, 1], [1.0, 0.0], np.log([0.5, 0.5]), arms=2)
    >>> len(events), events.min_probability.tolist()
    (2, [0.5, 0.5])
    """
    names = tuple(map(str, range(arms))) if isinstance(arms, int) else tuple(arms)
    reward = np.ascontiguousarray(reward, np.float64)
    probability = np.minimum(np.exp(np.asarray(log_probability, np.float64)), 1.0)
    check_range(reward, np.arange(1, reward.size + 1), reward_range, source)
    return LoggedRows(
        source=source,
        arms=names,
        logged_arms=len(names),
        row=np.arange(1, reward.size + 1),
        arm=np.ascontiguousarray(arm, np.int64),
        reward=reward,
        probability=probability,
        min_probability=probability if laws is None else np.exp(np.min(laws, axis=1)),
        eligible=np.full(reward.size, len(names), np.int64),
        reward_range=reward_range,
        **more,
    )


def _decided(
    log: DecisionLog, arms: Sequence[str] | None, reward_range: tuple[float, float] | None
) -> LoggedRows:
    """The events of a log of decisions: rows that have a reward, whose window is closed, and that repeat no other."""
    names = _check_arms(arms, log.arms, log.source)
    places = np.array([log.arms.index(name) for name in names], np.int64)
    rule = log.reward
    own = None if rule is None else rule.range
    among = np.full(len(log.arms), -1, np.int64)
    among[places] = np.arange(places.size)
    left_out = {"without a reward": 0, "window still open": 0, "repeated": 0}
    parts: list[tuple[Any, ...]] = []
    audit = Audit()
    for some in log.columns():
        audit.add_columns(log.arms, some)
        opened = ~some.closed if log.requires_closed_windows else np.zeros(len(some), np.bool_)
        absent = np.isnan(some.reward)
        left_out["repeated"] += int(some.repeated.sum())
        left_out["window still open"] += int((opened & ~some.repeated).sum())
        left_out["without a reward"] += int((absent & ~opened & ~some.repeated).sum())
        part = some.filter(~(some.repeated | opened | absent))
        parts.append((part.row, among[part.arm], part.reward, *_laws(part, places, len(log.arms))))
    if audit.verdict == "broken":
        raise CannotAnswer(
            f"{log.source}: the draws do not agree with the logged probabilities (maillard verify says where): nothing can be replayed on them"
        )
    columns = [np.concatenate(each) for each in zip(*parts, strict=True)] if parts else []
    if not columns or not columns[0].size:
        error = OpenWindows if left_out["window still open"] else CannotAnswer
        raise error(f"{log.source}: no decision has a reward{_said(left_out)}; there is nothing to replay")
    row, arm, reward, probability, min_probability, eligible = columns
    limits = own if reward_range is None else reward_range
    check_range(reward, row, limits, log.source)
    return LoggedRows(
        source=log.source,
        arms=names,
        logged_arms=len(log.arms),
        row=row,
        arm=arm,
        reward=reward,
        probability=probability,
        min_probability=min_probability,
        eligible=eligible,
        promised=_promised(log.policies.values(), log.arms, places),
        reward_range=limits,
        sigma2=None if limits is None else _spread(limits),
        left_out=left_out,
    )


def _laws(some: Columns, places: Places, arms: int) -> tuple[Floats, Floats, Places]:
    """Of each row: the drawn arm's probability, the smallest known one of these arms', and how many arms could be drawn."""
    probability = np.minimum(np.exp(some.log_probability), 1.0)
    min_probability = np.where(np.isin(some.arm, places), probability, 1.0)
    if some.log_probabilities is not None:
        laws = some.log_probabilities[:, places]
        min_probability = np.minimum(
            min_probability, np.exp(np.min(np.where(np.isnan(laws), 0.0, laws), axis=1))
        )
    count = np.full(len(some), arms, np.int64)
    if some.eligible is not None:
        count = np.where(some.eligible[:, places].all(axis=1), some.eligible.sum(axis=1), 0)
    return probability, min_probability, count


def _simulated(log: Log, arms: Sequence[str] | None, reward_range: tuple[float, float] | None) -> LoggedRows:
    """The events of `simulate_log`."""
    world, names = simulated_world(log)
    if world is not None and world.churn:
        raise InvalidValue(
            "log", str(world), "a log of arms that stay: replays need rewards that do not change"
        )
    if arms is not None and tuple(arms) != names:
        raise InvalidValue("arms", arms, "all arms, where the log is a simulated one")
    limits, sigma2 = reward_range, None
    if world is not None:
        low, high = world.support
        limits = (low, high) if limits is None and math.isfinite(high - low) else limits
        sigma2 = world.sigma2
    return rows_from_arrays(
        log.arms,
        log.rewards,
        log.log_probability,
        log.log_probabilities,
        arms=names,
        reward_range=limits,
        sigma2=sigma2 if limits is None or sigma2 is not None else _spread(limits),
        promised=_promised([log.provenance["policy"]], names, np.arange(len(names))),
        source=f"log of {log.provenance['policy']}",
    )


def _promised(specs: Iterable[str], arms: Sequence[str], places: Places) -> float:
    """The largest probability that every version of the log's policy has always had under each of these arms' own."""
    shares = promised_shares(specs, arms)
    return 0.0 if shares is None else float(shares[places].min())


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


def _said(left_out: dict[str, int]) -> str:
    some = [f"{count} {why}" for why, count in left_out.items() if count]
    return f" ({', '.join(some)})" if some else ""


def _spread(limits: tuple[float, float]) -> float:
    """The most that the variance of a reward within these can be."""
    width = limits[1] - limits[0]  # whose power would raise where its product is infinite
    return width * width / 4
