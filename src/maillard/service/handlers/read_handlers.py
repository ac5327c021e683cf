"""Handlers that read an experiment: state, activity, evaluation, verification and export."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from maillard import wire_schema as wire
from maillard.decisions.outcomes import Outcomes
from maillard.decisions.reward_rule import Reward
from maillard.decisions.state import ChoiceDistribution, State
from maillard.decisions.timestamps import from_microseconds
from maillard.service import jobs
from maillard.service.experiment_registry import OpenExperiment
from maillard.service.handlers.request_context import RequestContext, status_of
from maillard.service.http_responses import HttpResponse
from maillard.service.log_export import LogExport
from maillard.service.verdicts import CONFIDENCE, judge

Bounds = Sequence[tuple[float | None, float | None]]

_INTERVAL = (
    "The intervals are valid for all arms together and at any time, no matter how often you look (they are "
    "confidence sequences). They use final rewards only, and assume that these lie in the declared range, "
    "have constant means, come from independent visitors who could all have seen the arm, and that missing "
    "rewards do not depend on their values. To compare two arms, compare them under What if?"
)
_NO_RANGE = "There are no intervals, because the range of rewards is unknown: set reward.low and reward.high."
_CONTEXTS = (
    "There are no intervals, because the policy chooses arms by the context: the mean of an arm is that of "
    "the visitors who saw it. Under What if?, estimate what an arm would have earned with all visitors."
)
_ACTIONS = (
    "Every decision brings its own arms, so there is no list of arms here. Under What if?, estimate what an "
    "arm, a rule, or the arm that was listed first would have earned."
)
_IMPOSSIBLE_SUMS = (
    "Some arms have no interval: they started with sums that rewards in the declared range cannot have."
)


async def read_state(context: RequestContext) -> HttpResponse:
    """Return the tally, the means of final rewards with intervals, and the current probabilities."""
    experiment = await context.experiment()
    state, outcomes, distribution, bounds, refusal = await context.service.experiments.run(
        _read_experiment, experiment
    )
    logs: dict[str, float] | None = None
    if distribution is not None:
        logs = dict(zip(distribution.arms, distribution.log_probabilities, strict=True))
    pulls, sums = state.tally.pulls.tolist(), state.tally.sums.tolist()
    final, final_sums = outcomes.tally.pulls.tolist(), outcomes.tally.sums.tolist()
    arms = [
        wire.ArmState(
            arm=arm,
            active=state.active[index],
            pulls=pulls[index],
            sum=sums[index],
            final=final[index],
            pending=outcomes.pending[arm],
            missing=outcomes.missing[arm],
            mean=final_sums[index] / final[index] if final[index] else None,
            lower=bounds[index][0],
            upper=bounds[index][1],
            probability=None if logs is None else math.exp(logs.get(arm, -math.inf)),
            log_probability=None if logs is None else logs.get(arm, -math.inf),  # infinity is written as null
        )
        for index, arm in enumerate(state.arms)
    ]
    next_close = outcomes.next_close
    found = wire.State(
        experiment=experiment.bandit.experiment,
        status=status_of(state),
        policy=str(state.policy),
        policy_version=state.policy_version,
        epoch=state.epoch,
        state=state.number,
        arms=arms,
        units=outcomes.visits.units,
        interval=wire.IntervalInfo(confidence=CONFIDENCE, kind=_INTERVAL, refusal=refusal),
        pending=sum(outcomes.pending.values()),
        next_close=None if next_close is None else from_microseconds(next_close),
        note=outcomes.note,
    )
    found.verdict = judge(
        arms, status=found.status, refusal=refusal, by_context=state.context is not None
    )  # fmt: skip
    return HttpResponse(200, found)


def _read_experiment(
    experiment: OpenExperiment,
) -> tuple[State, Outcomes, ChoiceDistribution | None, Bounds, str | None]:
    """The state, outcomes, choice distribution and bounds of the means, read in one call of a thread.

    There is no distribution if it depends on a context.
    """
    state, outcomes = experiment.read_outcomes()
    distribution = state.choice_distribution() if state.context is None else None
    if state.context is not None:
        refusal = _CONTEXTS if state.arms else _ACTIONS
        return state, outcomes, distribution, [(None, None)] * len(state.arms), refusal
    return state, outcomes, distribution, *_bounds(state.reward, outcomes)


def _bounds(rule: Reward, outcomes: Outcomes) -> tuple[Bounds, str | None]:
    """The bounds of the mean of each arm, and why some or all arms have none."""
    from maillard.evaluation.means import mean_intervals  # imports scipy, so only in a thread

    tally = outcomes.tally
    if rule.range is None or outcomes.refusal is not None:
        return [(None, None)] * len(tally), _NO_RANGE if rule.range is None else outcomes.refusal
    # A reader compares all arms, so their intervals are valid together.
    each = 1.0 - (1.0 - CONFIDENCE) / len(tally)
    bounds = mean_intervals(tally.pulls, tally.sums, *rule.range, each)
    return bounds, _IMPOSSIBLE_SUMS if (None, None) in bounds else None


async def read_head(context: RequestContext) -> HttpResponse:
    """Return the end of the hash chain. A log that extends it contains everything committed so far."""
    experiment = await context.experiment()
    head = await context.service.experiments.run(experiment.bandit.head)
    time = None if head.time is None else from_microseconds(head.time)
    return HttpResponse(200, wire.ChainHead(commit=head.commit, hash=head.hash, time=time))


async def read_activity(context: RequestContext) -> HttpResponse:
    """Return decisions per arm, rewards over time, and the audit of the probabilities."""
    experiment = await context.experiment()
    await context.service.update_monitor()
    arms, monitor = list(experiment.bandit.state.arms), context.service.monitor
    found = await context.service.experiments.run(monitor.activity, experiment.bandit.experiment, arms)
    return HttpResponse(200, found)


async def evaluate(context: RequestContext) -> HttpResponse:
    """Estimate the mean reward if a target had made the decisions."""
    query: wire.EvaluationRequest = context.body
    name = (await context.experiment()).bandit.experiment
    arguments = (
        name, query.target, query.estimators, query.confidence, query.against, query.second_moment, query.by
    )  # fmt: skip
    return HttpResponse(200, await context.service.worker.run(jobs.what_if, *arguments))


async def verify(context: RequestContext) -> HttpResponse:
    """Recompute every logged probability, and compare the choices with the probabilities."""
    name = (await context.experiment()).bandit.experiment
    return HttpResponse(200, await context.service.worker.run(jobs.check, name))


async def export(context: RequestContext) -> HttpResponse:
    """Return the log of an experiment as a Parquet file."""
    name = (await context.experiment()).bandit.experiment
    stream = await LogExport.start(context.service, name)
    file_name = re.sub(r"[^A-Za-z0-9._-]", "_", name) + ".parquet"
    headers = ((b"content-disposition", f'attachment; filename="{file_name}"'.encode()),)
    return HttpResponse(200, b"", headers, b"application/vnd.apache.parquet", stream=stream)
