"""Every operation of the API, as data: the router, the check of keys, the OpenAPI document and the tests read this table."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from starlette.convertors import StringConvertor, register_url_convertor

from maillard import wire_schema
from maillard.service.handlers import (
    decision_handlers,
    experiment_handlers,
    read_handlers,
    reward_handlers,
    service_handlers,
)
from maillard.service.handlers.request_context import RequestContext
from maillard.service.http_responses import HttpResponse

__all__ = ["OPERATIONS", "Operation"]


class _Anything(StringConvertor):
    """What is left of a path, slashes and line breaks too."""

    regex = r"[\s\S]*"


register_url_convertor("anything", _Anything())


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One method of one path."""

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    path: str
    handler: Callable[[RequestContext], Awaitable[HttpResponse]]
    scope: Literal["decide", "reward", "read", "admin", "any"] | None
    "What a key must allow; any: whatever it allows; None: no key is needed."
    body: type | None = None
    answers: dict[int, tuple[Any, str]] = field(default_factory=dict)
    "By status: the type of the body (None: not JSON), and when."
    headers: tuple[tuple[str, bool, str], ...] = ()
    "Of the request: name, whether it must be there, what it is."
    query: tuple[tuple[str, str], ...] = ()
    media_type: str = "application/json"
    "Of a success."
    items: str | None = None
    "The field of a batch that holds its items."
    long_running: bool = False
    "Whether it may take minutes. It is cancelled if the caller disconnects."

    @property
    def name(self) -> str:
        """As in the OpenAPI document."""
        return self.handler.__name__

    @property
    def fields(self) -> tuple[str, ...]:
        """Of the body, and of the path as errors name them."""
        path = re.findall(r"{(\w+)", self.path.replace("{id}", "{decision}"))
        return (*getattr(self.body, "__struct_fields__", ()), *path)

    @property
    def limited(self) -> bool:
        """Whether it is about one experiment that the path names."""
        return "{experiment}" in self.path

    @property
    def failures(self) -> dict[int, str]:
        """By status: what else may come of it."""
        found = {
            400: "The request is not HTTP, or not JSON.",
            408: "The request took too long to come.",
            429: "Too many requests; Retry-After says when the next may come.",
            503: "The log cannot be written or read now. Nothing was acknowledged.",
        }
        if self.scope is not None:
            found |= {401: "There is no such key.", 403: "The key does not allow this."}
        if "{" in self.path:
            found |= {404: "There is no such thing.", 422: "A value is not allowed."}
        if self.body is not None or self.query:
            found |= {
                413: "The body is too large.",
                415: "The body is not JSON.",
                422: "A value is not allowed.",
            }
        return {status: words for status, words in sorted(found.items()) if status not in self.answers}


_EXPERIMENT = "/v1/experiments/{experiment}"
_IF_MATCH = ("If-Match", False, "The ETag of the experiment, if only that version is to be changed.")
_SHOWN = wire_schema.Experiment
_ARCHIVED = (wire_schema.ErrorResponse, "It is archived.")
_STALE = (wire_schema.ErrorResponse, "It is another version than the one that If-Match names.")


def _change(verb: str, handler: Callable[[RequestContext], Awaitable[HttpResponse]]) -> Operation:
    return Operation(
        method="POST",
        path=f"{_EXPERIMENT}:{verb}",
        handler=handler,
        scope="admin",
        headers=(_IF_MATCH,),
        answers={200: (_SHOWN, "The experiment as it is now."), 409: _ARCHIVED, 412: _STALE},
    )


# In the order in which they are looked through: the busiest first.
OPERATIONS: tuple[Operation, ...] = (
    Operation(
        method="POST",
        path=f"{_EXPERIMENT}/decisions",
        handler=decision_handlers.decide,
        scope="decide",
        body=wire_schema.DecisionRequest,
        headers=(("Idempotency-Key", False, "The same key and body again give the same decision again."),),
        answers={
            201: (wire_schema.Decision, "A new decision, durable."),
            200: (wire_schema.Decision, "The decision that an earlier request with this key made."),
            409: (wire_schema.ErrorResponse, "The experiment is paused or archived."),
        },
    ),
    Operation(
        method="PUT",
        path="/v1/decisions/{id}/reward",
        handler=reward_handlers.reward,
        scope="reward",
        body=wire_schema.RewardRequest,
        answers={
            201: (wire_schema.RewardResponse, "A new reward, durable."),
            200: (wire_schema.RewardResponse, "The same reward again, or one that came after the window."),
            202: (wire_schema.RewardResponse, "The decision is not known yet; the reward waits for it."),
            409: (wire_schema.ErrorResponse, "The reward of this decision and event is another."),
        },
    ),
    Operation(
        method="POST",
        path=f"{_EXPERIMENT}/decisions:batch",
        handler=decision_handlers.decide_batch,
        scope="decide",
        body=wire_schema.DecisionBatchRequest,
        items="decisions",
        answers={200: (wire_schema.DecisionBatchResponse, "A status for each.")},
    ),
    Operation(
        method="POST",
        path="/v1/rewards:batch",
        handler=reward_handlers.reward_batch,
        scope="reward",
        body=wire_schema.RewardBatchRequest,
        items="rewards",
        answers={200: (wire_schema.RewardBatchResponse, "A status for each.")},
    ),
    Operation(
        method="POST",
        path="/v1/experiments",
        handler=experiment_handlers.create_experiment,
        scope="admin",
        body=wire_schema.NewExperiment,
        answers={
            201: (_SHOWN, "The experiment, which chooses from now on."),
            409: (wire_schema.ErrorResponse, "There is one of this key."),
        },
    ),
    Operation(
        method="GET",
        path="/v1/experiments",
        handler=experiment_handlers.list_experiments,
        scope="read",
        query=(("archived", "Whether archived ones are listed too."),),
        answers={200: (wire_schema.Experiments, "Those that the key is for.")},
    ),
    Operation(
        method="GET",
        path=f"{_EXPERIMENT}/state",
        handler=read_handlers.read_state,
        scope="read",
        answers={200: (wire_schema.State, "As of now.")},
    ),
    Operation(
        method="GET",
        path=f"{_EXPERIMENT}/activity",
        handler=read_handlers.read_activity,
        scope="read",
        answers={200: (wire_schema.Activity, "As of a moment ago.")},
    ),
    Operation(
        method="GET",
        path=f"{_EXPERIMENT}/export",
        handler=read_handlers.export,
        scope="read",
        long_running=True,
        media_type="application/vnd.apache.parquet",
        answers={200: (None, "The log of the experiment, as `maillard export` writes it.")},
    ),
    Operation(
        method="POST",
        path=f"{_EXPERIMENT}/evaluations",
        handler=read_handlers.evaluate,
        scope="read",
        long_running=True,
        body=wire_schema.EvaluationRequest,
        answers={200: (wire_schema.Evaluation, "An answer with its interval, or a refusal with its reason.")},
    ),
    Operation(
        method="POST",
        path=f"{_EXPERIMENT}:verify",
        handler=read_handlers.verify,
        scope="read",
        long_running=True,
        answers={200: (wire_schema.Verification, "What was found.")},
    ),
    _change("pause", experiment_handlers.pause),
    _change("resume", experiment_handlers.resume),
    _change("reset", experiment_handlers.reset),
    _change("archive", experiment_handlers.archive),
    Operation(
        method="POST",
        path=f"{_EXPERIMENT}/arms",
        handler=experiment_handlers.add_arm,
        scope="admin",
        body=wire_schema.NewArm,
        headers=(_IF_MATCH,),
        answers={201: (_SHOWN, "The experiment with the arm."), 409: _ARCHIVED, 412: _STALE},
    ),
    Operation(
        method="DELETE",
        path=f"{_EXPERIMENT}/arms/{{arm:anything}}",
        handler=experiment_handlers.retire_arm,
        scope="admin",
        headers=(_IF_MATCH,),
        answers={200: (_SHOWN, "The experiment without the arm."), 409: _ARCHIVED, 412: _STALE},
    ),
    Operation(
        method="GET",
        path=_EXPERIMENT,
        handler=experiment_handlers.read_experiment,
        scope="read",
        answers={200: (_SHOWN, "As it is now; its ETag is for If-Match.")},
    ),
    Operation(
        method="PATCH",
        path=_EXPERIMENT,
        handler=experiment_handlers.change_experiment,
        scope="admin",
        body=wire_schema.PolicyChange,
        headers=(("If-Match", True, "The ETag of the experiment, or *."),),
        answers={
            200: (_SHOWN, "The experiment with its new policy."),
            409: _ARCHIVED,
            412: _STALE,
            428: (wire_schema.ErrorResponse, "There is no If-Match."),
        },
    ),
    Operation(
        method="GET",
        path="/v1/decisions/{id}",
        handler=decision_handlers.read_decision,
        scope="read",
        answers={200: (wire_schema.Decision, "As it was made.")},
    ),
    Operation(
        method="GET",
        path="/v1/policies",
        handler=service_handlers.list_policies,
        scope="any",
        answers={200: (wire_schema.Policies, "All of them.")},
    ),
    Operation(
        method="GET",
        path="/v1/me",
        handler=service_handlers.read_permissions,
        scope="any",
        answers={200: (wire_schema.Permissions, "What the key allows.")},
    ),
    Operation(
        method="GET",
        path="/metrics",
        handler=service_handlers.read_metrics,
        scope="read",
        media_type="text/plain",
        answers={200: (None, "In the text format of Prometheus.")},
    ),
    Operation(
        method="GET",
        path="/healthz",
        handler=service_handlers.health,
        scope=None,
        answers={200: (wire_schema.Health, "It lives.")},
    ),
    Operation(
        method="GET",
        path="/readyz",
        handler=service_handlers.readiness,
        scope=None,
        answers={200: (wire_schema.Health, "The log can be written.")},
    ),
    Operation(
        method="GET",
        path="/openapi.json",
        handler=service_handlers.read_description,
        scope=None,
        answers={200: (dict, "This document.")},
    ),
)
