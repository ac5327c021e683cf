"""Handlers that create, change and list experiments."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import msgspec

from maillard import wire_schema as wire
from maillard.decisions.configuration import policy_hints
from maillard.decisions.linear_contexts import LinearContexts
from maillard.decisions.segment_contexts import SegmentContexts
from maillard.decisions.state import State
from maillard.decisions.timestamps import from_microseconds
from maillard.errors import InvalidValue, UnknownName
from maillard.feature_grid import MAX_DIMENSION
from maillard.features import Features
from maillard.service.experiment_registry import OpenExperiment
from maillard.service.handlers.request_context import RequestContext, status_of
from maillard.service.http_responses import HttpError, HttpResponse
from maillard.service.verdicts import find_leaders

_SEEDED = (
    "Some choices of this experiment were made with a seed, so anyone who knows the seed can predict them."
)


async def create_experiment(context: RequestContext) -> HttpResponse:
    """Create an experiment."""
    new: wire.NewExperiment = context.body
    if context.key is not None and not context.key.reaches(new.experiment):
        raise HttpError(403, "forbidden", "This key does not allow access to that experiment.")
    experiment = await context.service.experiments.create(
        new.experiment,
        by=context.key_id,
        arms=new.arms,
        policy=new.policy,
        reward=new.reward.to_rule(),
        sticky=new.sticky,
        **_context_arguments(new),
    )
    location = (b"location", f"/v1/experiments/{new.experiment}".encode())
    return _experiment_response(experiment, 201, location)


def _context_arguments(new: wire.NewExperiment) -> dict[str, Any]:
    """The arguments of a bandit that say how contexts are used; only those that are given."""
    given: dict[str, Any] = {"model": new.model, "segments": new.segments}
    if new.features is not None:
        given["features"] = _features(new.features)
    return {name: value for name, value in given.items() if value is not None}


def _features(declared: wire.FeatureDeclaration) -> Features:
    """The declared features. An error has the path of the wrong part."""
    try:
        return Features.from_json(msgspec.json.encode(declared), max_dimension=MAX_DIMENSION)
    except InvalidValue as error:
        raise error.with_location("features") from None
    except UnknownName as error:
        raise UnknownName("features.crosses", error.name, error.known) from None


async def list_experiments(context: RequestContext) -> HttpResponse:
    """List the experiments that the key allows."""
    archived = _boolean(context, "archived")
    found, broken = await context.service.experiments.all_experiments(
        lambda name: context.key is None or context.key.reaches(name)
    )
    log_event = context.service.access_log.log_event
    for name, error in broken.items():  # the others are listed
        log_event("warning", "experiment left out", experiment=name, error=str(error))
    shown = [(each, each.bandit.state) for each in found]
    shown = [(each, state) for each, state in shown if archived or not state.archived]
    await context.service.update_monitor()
    traffic, complete = context.service.monitor.traffic(each.bandit.experiment for each, _ in shown)
    leaders = await context.service.experiments.run(find_leaders, [state for _, state in shown])
    listed = []
    for (each, state), leader in zip(shown, leaders, strict=True):
        decisions, hours = traffic[each.bandit.experiment]
        known = _configuration(each, state)
        listed.append(wire.ListedExperiment(**known, decisions=decisions, traffic=hours, leader=leader))
    return HttpResponse(200, wire.ExperimentList(experiments=listed, complete=complete))


async def read_experiment(context: RequestContext) -> HttpResponse:
    """Return one experiment."""
    experiment = await context.experiment()
    await context.service.experiments.run(experiment.bandit.session.refresh)
    return _experiment_response(experiment)


async def change_experiment(context: RequestContext) -> HttpResponse:
    """Change the policy or the features of an experiment."""
    if b"if-match" not in context.headers:
        message = "Say which version you have seen: If-Match with the ETag of the experiment, or * for any."
        raise HttpError(428, "precondition_required", message, "If-Match")
    change: wire.ExperimentChange = context.body
    if isinstance(change.policy, str) == isinstance(change.features, wire.FeatureDeclaration):
        raise HttpError(422, "invalid_value", "Expected either `policy` or `features`", "$")
    if isinstance(change.policy, str):
        return await _change(context, "change_policy", change.policy)
    assert isinstance(change.features, wire.FeatureDeclaration)
    return await _change(context, "change_features", _features(change.features))


async def pause(context: RequestContext) -> HttpResponse:
    """Make no decisions until the experiment is resumed. Rewards are still accepted."""
    return await _change(context, "pause")


async def resume(context: RequestContext) -> HttpResponse:
    """Resume a paused or archived experiment."""
    return await _change(context, "resume")


async def reset(context: RequestContext) -> HttpResponse:
    """Start a new epoch with an empty tally. The log keeps everything."""
    return await _change(context, "reset")


async def archive(context: RequestContext) -> HttpResponse:
    """Archive an experiment: no decisions, no changes, not listed. Rewards are still accepted."""
    return await _change(context, "archive")


async def erase_unit(context: RequestContext) -> HttpResponse:
    """Replace a unit's name, and the idempotency keys of its decisions, by a random token."""
    experiment = await context.experiment()
    count = await context.service.experiments.change(experiment.bandit.erase_unit, context.body.unit)
    return HttpResponse(200, wire.Erasure(decisions=count))


async def add_arm(context: RequestContext) -> HttpResponse:
    """Add a new arm, or a retired arm with its earlier rewards."""
    experiment = await context.experiment()
    if len(experiment.bandit.state.arms) >= wire.MAX_ITEMS:
        message = f"An experiment has at most {wire.MAX_ITEMS} arms."
        raise HttpError(422, "invalid_value", message, "$.arm")
    return await _change(context, "add_arm", context.body.arm, status=201, features=context.body.features)


async def retire_arm(context: RequestContext) -> HttpResponse:
    """Retire an arm. Its rewards are kept."""
    return await _change(context, "retire_arm", context.parameters["arm"])


async def _change(
    context: RequestContext, verb: str, *arguments: Any, status: int = 200, **more: Any
) -> HttpResponse:
    experiment = await context.experiment()
    if context.expected == -1:
        raise HttpError(412, "stale", "If-Match is not a version of this experiment.", "If-Match")
    change = partial(getattr(experiment.bandit, verb), *arguments, expected=context.expected, **more)
    await context.service.experiments.change(change, by=context.key_id)
    return _experiment_response(experiment, status)


def _experiment_response(
    experiment: OpenExperiment, status: int = 200, *headers: tuple[bytes, bytes]
) -> HttpResponse:
    state = experiment.bandit.state
    etag = (b"etag", b'"%d"' % state.administrative)
    configuration = wire.ExperimentConfiguration(**_configuration(experiment, state))
    return HttpResponse(status, configuration, (etag, *headers))


def _configuration(experiment: OpenExperiment, state: State) -> dict[str, Any]:
    """The fields of a `wire_schema.ExperimentConfiguration`."""
    return {
        "experiment": experiment.bandit.experiment,
        "status": status_of(state),
        "arms": state.active_arms,
        "retired": [arm for arm, active in zip(state.arms, state.active, strict=True) if not active],
        "policy": str(state.policy),
        "policy_version": state.policy_version,
        "epoch": state.epoch,
        "sticky": state.sticky,
        "reward": wire.Reward.from_rule(state.reward),
        "created_at": from_microseconds(experiment.created_at),
        "hints": [*policy_hints(state), *([_SEEDED] if state.seeded else [])],
        **_contexts(state),
    }


def _contexts(state: State) -> dict[str, Any]:
    """How an experiment uses contexts."""
    rule = state.context
    if isinstance(rule, LinearContexts):
        fixed = rule.model == "shared" and not rule.dynamic
        return {
            "features": json.loads(rule.features.to_json()),
            "model": rule.model,
            "feature_version": state.feature_version,
            "attributes": dict(rule.arms) if fixed else None,
        }
    return {"segments": list(rule.keys)} if isinstance(rule, SegmentContexts) else {}


def _boolean(context: RequestContext, name: str) -> bool:
    given = context.query.get(name, "false")
    if given not in ("true", "false"):
        raise HttpError(422, "invalid_value", f"Expected true or false, got {given!r:.100}", f"?{name}")
    return given == "true"
