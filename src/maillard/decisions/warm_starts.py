"""Rewards from elsewhere that an experiment begins with: a tally, or an earlier log."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from maillard.decisions.configuration import check_range
from maillard.decisions.context_rules import ContextTally
from maillard.decisions.encoded_contexts import Encoded
from maillard.decisions.events import WarmStart
from maillard.decisions.log import DecisionLog
from maillard.decisions.raw_contexts import read_context
from maillard.decisions.state import State
from maillard.decisions.stores.contract import Row
from maillard.errors import InvalidValue, UnknownName
from maillard.linear_tally import LinearTally
from maillard.segment_tally import SegmentTally
from maillard.tally import Tally

Source = Tally | LinearTally | SegmentTally | Mapping[str, tuple[int, float]] | str | Path


def read_source(source: Source, experiment: str | None, state: State) -> WarmStart:
    """The event that adds the rewards of a tally or of an earlier log to an experiment in this state."""
    if state.context is None:
        if isinstance(source, LinearTally | SegmentTally):
            raise InvalidValue("source", source, "a Tally, because the experiment does not use contexts")
        given = source if isinstance(source, Tally | Mapping) else read_tallies(source, experiment)
        return WarmStart(tally=tally_for(given, state))
    if isinstance(source, LinearTally | SegmentTally):
        return _with_statistics(source.copy(), state)
    if isinstance(source, Tally | Mapping):
        allowed = "a LinearTally, a SegmentTally or a log, because the experiment uses contexts"
        raise InvalidValue("source", source, allowed)
    from maillard.decisions.opening import read_log

    with read_log(source, experiment) as opened:
        return _from_log(opened, state)


def _with_statistics(statistics: ContextTally, state: State) -> WarmStart:
    assert state.context is not None
    state.context.check_statistics(statistics, len(state.arms))
    tally = _marginal(statistics, state)
    check_range(tally, state.arms or ["all"], state.reward)
    return WarmStart(tally=tally, statistics=statistics)


def _marginal(statistics: ContextTally, state: State) -> Tally:
    """The rewards of each arm; none if all arms share one model, which does not tell them apart."""
    if isinstance(statistics, SegmentTally):
        total = Tally.empty(statistics.arms)
        for tally in statistics.segments.values():
            total += tally
        return total
    known = statistics.arms is not None or state.dynamic
    return Tally(statistics.counts, statistics.sums) if known else state.empty_tally()


def _from_log(log: DecisionLog, state: State) -> WarmStart:
    """The rewards of the last epoch of a log, or of all rows if it has no epochs, with their contexts."""
    rule, last = state.context, log.configurations[-1] if log.events else None
    assert rule is not None
    assert state.statistics is not None
    if last is not None and last.context == rule and (last.arms, last.dynamic) == (state.arms, state.dynamic):
        final = log.final_state()
        check_range(final.tally, final.arms or ["all"], state.reward)
        return WarmStart(tally=final.tally, statistics=final.statistics)
    tally, statistics = state.empty_tally(), rule.empty(len(state.arms))
    for row in log.rows():
        value = _reward_of(log, row)
        if value is not None and (last is None or row.decision.epoch == last.epoch):
            place = _place(row.decision.arm, state)
            content = _encoded(log, row, state, statistics)
            if not isinstance(content, tuple) and content.ndim == 2:  # a row for each arm
                content = content[row.decision.eligible.index(row.decision.arm)]
            tally.add(place, value)
            rule.update(statistics, place, content, value, None)
    check_range(tally, state.arms or ["all"], state.reward)
    return WarmStart(tally=tally, statistics=statistics)


def _reward_of(log: DecisionLog, row: Row) -> float | None:
    if log.foreign:
        return log.reward_of(row)
    return row.applied[-1].value if row.applied else None


def _place(arm: str, state: State) -> int:
    if state.dynamic:
        return 0
    if arm not in state.arms:
        raise UnknownName("arm", arm, state.arms)
    return state.arms.index(arm)


def _encoded(log: DecisionLog, row: Row, state: State, statistics: ContextTally) -> Encoded:
    decision = row.decision
    if decision.context is None and decision.actions is None:
        allowed = "a context in every decision with a reward (was it erased, or never logged?)"
        raise InvalidValue(f"{log.source}: context of {decision.id}", None, allowed)
    assert state.context is not None
    try:
        raw = read_context(decision.context, decision.actions)
        return state.context.encode(raw, decision.eligible, statistics)
    except InvalidValue as error:
        raise error.with_location(f"{log.source}, decision {decision.id}") from None


def tally_for(given: Tally | Mapping[str, Any], state: State) -> Tally:
    """The tally of a warm start, in the order of the experiment's arms."""
    if isinstance(given, Tally):
        if len(given) != len(state.arms):
            raise InvalidValue("tally", len(given), f"as many arms as the experiment has ({len(state.arms)})")
        tally = given
    else:
        for arm in given:
            if arm not in state.arms:
                raise UnknownName("arm", str(arm), state.arms)
        parts = [_single_arm_tally(arm, given[arm]) if arm in given else Tally.empty(1) for arm in state.arms]
        tally = Tally.joined(parts)
    check_range(tally, state.arms, state.reward)
    return tally


def _single_arm_tally(arm: str, value: object) -> Tally:
    if isinstance(value, Tally) and len(value) == 1:
        return value
    try:
        pulls, total = list[Any](value)  # type: ignore[call-overload]  # raises TypeError or ValueError
        return Tally([pulls], [total])
    except (TypeError, ValueError):
        allowed = "(pulls, sum): the number of rewards and their sum"
        raise InvalidValue(f"tally of {arm!r}", value, allowed) from None


def read_tallies(log: str | Path, experiment: str | None) -> dict[str, Tally]:
    """The tally of each arm of a log: of its last epoch, or of all rows if the log has no epochs."""
    from maillard.decisions.opening import read_log

    with read_log(log, experiment) as opened:
        if not opened.foreign:
            state = opened.final_state()
            tallies = {arm: state.tally.only(position) for position, arm in enumerate(state.arms)}
        else:
            tallies = {arm: Tally.empty(1) for arm in opened.arms}
            for row in opened.rows():
                if (value := opened.reward_of(row)) is not None:
                    tallies.setdefault(row.decision.arm, Tally.empty(1)).add(0, value)
    return {arm: tally for arm, tally in tallies.items() if tally.pulls[0]}
