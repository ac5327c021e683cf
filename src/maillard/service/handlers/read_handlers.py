"""Looking at an experiment: its state, its activity, and questions to its log."""

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

__all__ = ["evaluate", "export", "read_activity", "read_state", "verify"]

_CONFIDENCE = 0.95
_INTERVAL = (
    "Confidence sequence of each arm by itself: it holds at all times, however often it is looked at, for rewards in the declared range "
    "whose mean does not change, if whether a reward comes does not depend on what it is."
)
_NO_RANGE = (
    "There is no interval without the range of a reward: give the experiment reward.low and reward.high."
)
_NO_END = (
    "There is no interval of rewards that may still change: with combine last, sum or max, only what is learned when windows close "
    "(mature_only) has one."
)
_NO_SUM = (
    "Some arms have no interval: what they began with are sums that no rewards in the declared range have."
)


async def read_state(context: RequestContext) -> HttpResponse:
    """What an experiment has learned, and what it would choose."""
    experiment = await context.experiment()
    state, law, bounds = await context.service.experiments.run(_looked_at, experiment.bandit.session)
    logs = dict(zip(law.arms, law.log_probabilities, strict=True))
    pulls, sums = state.tally.pulls.tolist(), state.tally.sums.tolist()
    arms = [
        wire_schema.ArmState(
            arm=arm,
            active=state.active[place],
            pulls=pulls[place],
            sum=sums[place],
            mean=sums[place] / pulls[place] if pulls[place] else None,
            lower=bounds[place][0],
            upper=bounds[place][1],
            probability=math.exp(logs.get(arm, -math.inf)),
            log_probability=logs.get(arm, -math.inf),  # written as null where it is infinite
        )
        for place, arm in enumerate(state.arms)
    ]
    interval = wire_schema.IntervalInfo(
        confidence=_CONFIDENCE, kind=_INTERVAL, refusal=_refusal(state, bounds)
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


def _looked_at(
    session: Session,
) -> tuple[State, ChoiceDistribution, Sequence[tuple[float | None, float | None]]]:
    """The state, its law and the bounds of its means: all that takes its time, in one turn of a thread."""
    state = session.refresh()
    return state, state.choice_distribution(), _bounds(state)


def _refusal(state: State, bounds: Sequence[tuple[float | None, float | None]]) -> str | None:
    """Why there is no interval, or not for all arms."""
    if state.reward.range is None:
        return _NO_RANGE
    if _is_provisional(state.reward):
        return _NO_END
    return _NO_SUM if (None, None) in bounds else None


def _is_provisional(rule: Reward) -> bool:
    """Whether means are of rewards that may yet become others."""
    return rule.combine != "first" and not rule.mature_only


def _bounds(state: State) -> Sequence[tuple[float | None, float | None]]:
    """Of each arm's mean."""
    from maillard.evaluation.means import mean_intervals  # scipy, in a thread: nobody waits for it

    tally, known = state.tally, state.reward.range
    if known is None or _is_provisional(state.reward):
        return [(None, None)] * len(tally)
    return mean_intervals(tally.pulls, tally.sums, *known, _CONFIDENCE)


async def read_activity(context: RequestContext) -> HttpResponse:
    """What happened so far: traffic, rewards over time, and the audit of the draws."""
    experiment = await context.experiment()
    await context.service.update_monitor()
    arms, monitor = list(experiment.bandit.state.arms), context.service.monitor
    found = await context.service.experiments.run(monitor.activity, experiment.bandit.experiment, arms)
    return HttpResponse(200, found)


async def evaluate(context: RequestContext) -> HttpResponse:
    """What would have been, had a target made the choices."""
    asked: wire_schema.EvaluationRequest = context.body
    experiment = await context.experiment()
    key, estimators = experiment.bandit.experiment, asked.estimators
    answer = await context.service.worker.run(jobs.what_if, key, asked.target, estimators, asked.confidence)
    return HttpResponse(200, answer)


async def verify(context: RequestContext) -> HttpResponse:
    """Compute every logged probability again, and audit the draws."""
    experiment = await context.experiment()
    return HttpResponse(200, await context.service.worker.run(jobs.check, experiment.bandit.experiment))


async def export(context: RequestContext) -> HttpResponse:
    """The whole log of an experiment as Parquet."""
    experiment = await context.experiment()
    key = experiment.bandit.experiment
    folder = Path(tempfile.mkdtemp(prefix="maillard-export-"))
    try:
        await context.service.worker.run(jobs.export, key, str(folder / "log.parquet"))
        opened = await context.service.experiments.run(lambda: (folder / "log.parquet").open("rb"))
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # what is open can be read on
    name = "".join(
        letter if (letter.isalnum() and letter.isascii()) or letter in "._-" else "_" for letter in key
    )
    headers = ((b"content-disposition", f'attachment; filename="{name}.parquet"'.encode()),)
    return HttpResponse(
        200, b"", headers, b"application/vnd.apache.parquet", stream=context.service.read_chunks(opened)
    )
