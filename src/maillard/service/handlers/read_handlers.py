"""Handlers that read an experiment: state, activity, evaluation, verification and export."""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from maillard import wire_schema
from maillard.decisions.reward_rule import Reward
from maillard.decisions.session import Session
from maillard.decisions.state import ChoiceDistribution, State
from maillard.service import jobs
from maillard.service.handlers.request_context import RequestContext, status_of
from maillard.service.http_responses import HttpResponse

_CONFIDENCE = 0.95
_INTERVAL = (
    "A confidence sequence for the mean of each arm separately, valid at any time, no matter how often "
    "you look. It assumes rewards in the declared range with a constant mean, and that missing rewards do "
    "not depend on their values."
)
_NO_RANGE = "There are no intervals, because the range of rewards is unknown: set reward.low and reward.high."
_PROVISIONAL = (
    "There are no intervals, because applied rewards may still change: with combine last, sum or max, only "
    "mature_only experiments have intervals."
)
_IMPOSSIBLE_SUMS = (
    "Some arms have no interval: they started with sums that rewards in the declared range cannot have."
)


async def read_state(context: RequestContext) -> HttpResponse:
    """Return the tally, the means with intervals, and the current probabilities."""
    experiment = await context.experiment()
    state, distribution, bounds = await context.service.experiments.run(
        _read_session, experiment.bandit.session
    )
    logs = dict(zip(distribution.arms, distribution.log_probabilities, strict=True))
    pulls, sums = state.tally.pulls.tolist(), state.tally.sums.tolist()
    arms = [
        wire_schema.ArmState(
            arm=arm,
            active=state.active[index],
            pulls=pulls[index],
            sum=sums[index],
            mean=sums[index] / pulls[index] if pulls[index] else None,
            lower=bounds[index][0],
            upper=bounds[index][1],
            probability=math.exp(logs.get(arm, -math.inf)),
            log_probability=logs.get(arm, -math.inf),  # infinity is written as null
        )
        for index, arm in enumerate(state.arms)
    ]
    interval = wire_schema.IntervalInfo(
        confidence=_CONFIDENCE, kind=_INTERVAL, refusal=_missing_intervals(state, bounds)
    )
    return HttpResponse(
        200,
        wire_schema.State(
            experiment=experiment.bandit.experiment,
            status=status_of(state),
            policy=str(state.policy),
            policy_version=state.policy_version,
            epoch=state.epoch,
            state=state.number,
            arms=arms,
            interval=interval,
        ),
    )


def _read_session(
    session: Session,
) -> tuple[State, ChoiceDistribution, Sequence[tuple[float | None, float | None]]]:
    """The state, its choice distribution and the bounds of the means, computed in one call of a thread."""
    state = session.refresh()
    return state, state.choice_distribution(), _bounds(state)


def _missing_intervals(state: State, bounds: Sequence[tuple[float | None, float | None]]) -> str | None:
    """Why some or all arms have no interval, or None."""
    if state.reward.range is None:
        return _NO_RANGE
    if _is_provisional(state.reward):
        return _PROVISIONAL
    return _IMPOSSIBLE_SUMS if (None, None) in bounds else None


def _is_provisional(rule: Reward) -> bool:
    """Whether applied rewards may still change."""
    return rule.combine != "first" and not rule.mature_only


def _bounds(state: State) -> Sequence[tuple[float | None, float | None]]:
    """The bounds of the mean of each arm."""
    from maillard.evaluation.means import mean_intervals  # imports scipy, so only in a thread

    tally, known = state.tally, state.reward.range
    if known is None or _is_provisional(state.reward):
        return [(None, None)] * len(tally)
    return mean_intervals(tally.pulls, tally.sums, *known, _CONFIDENCE)


async def read_activity(context: RequestContext) -> HttpResponse:
    """Return decisions per arm, rewards over time, and the audit of the probabilities."""
    experiment = await context.experiment()
    await context.service.update_monitor()
    arms, monitor = list(experiment.bandit.state.arms), context.service.monitor
    found = await context.service.experiments.run(monitor.activity, experiment.bandit.experiment, arms)
    return HttpResponse(200, found)


async def evaluate(context: RequestContext) -> HttpResponse:
    """Estimate the mean reward if a target had made the decisions."""
    query: wire_schema.EvaluationRequest = context.body
    experiment = await context.experiment()
    key, estimators = experiment.bandit.experiment, query.estimators
    result = await context.service.worker.run(jobs.what_if, key, query.target, estimators, query.confidence)
    return HttpResponse(200, result)


async def verify(context: RequestContext) -> HttpResponse:
    """Recompute every logged probability, and compare the choices with the probabilities."""
    experiment = await context.experiment()
    return HttpResponse(200, await context.service.worker.run(jobs.check, experiment.bandit.experiment))


async def export(context: RequestContext) -> HttpResponse:
    """Return the log of an experiment as a Parquet file."""
    experiment = await context.experiment()
    key = experiment.bandit.experiment
    folder = Path(tempfile.mkdtemp(prefix="maillard-export-"))
    try:
        await context.service.worker.run(jobs.export, key, str(folder / "log.parquet"))
        opened = await context.service.experiments.run(lambda: (folder / "log.parquet").open("rb"))
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # an open file can still be read
    name = "".join(
        letter if (letter.isalnum() and letter.isascii()) or letter in "._-" else "_" for letter in key
    )
    headers = ((b"content-disposition", f'attachment; filename="{name}.parquet"'.encode()),)
    return HttpResponse(
        200, b"", headers, b"application/vnd.apache.parquet", stream=context.service.read_chunks(opened)
    )
