"""The table of all operations, for the router, authorization, the OpenAPI document and the tests."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

from starlette.convertors import StringConvertor, register_url_convertor

from maillard.service.handlers import (
    decision_handlers,
    experiment_handlers,
    read_handlers,
    reward_handlers,
    service_handlers,
)
from maillard.service.handlers.request_context import RequestContext
from maillard.service.http_responses import HttpResponse
from maillard.wire_schema import (
    Activity,
    Decision,
    DecisionBatchRequest,
    DecisionBatchResponse,
    DecisionRequest,
    ErrorResponse,
    Evaluation,
    EvaluationRequest,
    ExperimentConfiguration,
    ExperimentList,
    Health,
    NewArm,
    NewExperiment,
    Permissions,
    Policies,
    PolicyChange,
    RewardBatchRequest,
    RewardBatchResponse,
    RewardRequest,
    RewardResponse,
    State,
    Verification,
)


class _RestOfPath(StringConvertor):
    """Matches the rest of a path, including slashes and line breaks."""

    regex = r"[\s\S]*"


register_url_convertor("anything", _RestOfPath())

Handler = Callable[[RequestContext], Awaitable[HttpResponse]]


@dataclass(frozen=True)
class Operation:
    """One method of one path."""

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    path: str
    handler: Handler
    scope: Literal["decide", "reward", "read", "admin", "any"] | None
    "The scope that a key needs. `any`: a key with any scope; None: no key."
    responses: dict[int, tuple[Any, str]]
    "For each status, the type of the body (None: not JSON) and a description."
    _: KW_ONLY
    body: type | None = None
    headers: tuple[tuple[str, bool, str], ...] = ()
    "Request headers: name, whether it is required, description."
    query: tuple[tuple[str, str], ...] = ()
    "Query parameters: name, description."
    media_type: str = "application/json"
    "The media type of a successful response."
    items: str | None = None
    "The field with the items of a batch."
    long_running: bool = False
    "Whether it may take minutes. It is cancelled if the caller disconnects."

    @property
    def name(self) -> str:
        """The operationId of the OpenAPI document."""
        return self.handler.__name__

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of the body's fields and of the path's parameters, as errors name them."""
        path = re.findall(r"{(\w+)", self.path.replace("{id}", "{decision}"))
        return (*getattr(self.body, "__struct_fields__", ()), *path)

    @property
    def names_experiment(self) -> bool:
        """Whether the path contains the name of an experiment."""
        return "{experiment}" in self.path

    @property
    def failures(self) -> dict[int, str]:
        """The statuses of errors that many operations share, with their descriptions."""
        found = {
            400: "The request is not valid HTTP, or its body is not valid JSON.",
            408: "The request took too long to arrive.",
            429: "Too many requests. Retry-After says how many seconds to wait.",
            503: "The log cannot be written or read now. Nothing was acknowledged.",
        }
        if self.scope is not None:
            found |= {401: "The API key is missing, invalid or revoked.", 403: "The key does not allow this."}
        if "{" in self.path:
            found |= {404: "Not found.", 422: "A value is not allowed."}
        if self.body is not None or self.query:
            found |= {
                413: "The body is too large.",
                415: "The body is not JSON.",
                422: "A value is not allowed.",
            }
        return {status: text for status, text in sorted(found.items()) if status not in self.responses}


_EXPERIMENT = "/v1/experiments/{experiment}"
_IF_MATCH = ("If-Match", False, "The ETag of the experiment, to change only this version of it.")
_ARCHIVED = (ErrorResponse, "The experiment is archived.")
_STALE = (ErrorResponse, "If-Match is not the current version of the experiment.")


def _change(
    method: Literal["POST", "DELETE"], path: str, handler: Handler, status: int = 200, **options: Any
) -> Operation:
    """An operation that changes an experiment and returns it."""
    responses = {status: (ExperimentConfiguration, "The changed experiment."), 409: _ARCHIVED, 412: _STALE}
    return Operation(method, _EXPERIMENT + path, handler, "admin", responses, headers=(_IF_MATCH,), **options)


# The router tries them in this order, so the most frequent ones come first.
OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "POST",
        f"{_EXPERIMENT}/decisions",
        decision_handlers.decide,
        "decide",
        {
            201: (Decision, "A new decision, durable."),
            200: (Decision, "The decision of an earlier request with the same idempotency key."),
            409: (ErrorResponse, "The experiment is paused or archived."),
        },
        body=DecisionRequest,
        headers=(("Idempotency-Key", False, "A repeated key and body return the same decision."),),
    ),
    Operation(
        "PUT",
        "/v1/decisions/{id}/reward",
        reward_handlers.reward,
        "reward",
        {
            201: (RewardResponse, "A new reward, durable."),
            200: (RewardResponse, "The same reward again, or a reward after the window has closed."),
            202: (RewardResponse, "The decision is not known yet; the reward waits for it."),
            409: (ErrorResponse, "This decision and event already have a reward with another value."),
        },
        body=RewardRequest,
    ),
    Operation(
        "POST",
        f"{_EXPERIMENT}/decisions:batch",
        decision_handlers.decide_batch,
        "decide",
        {200: (DecisionBatchResponse, "A status for each decision.")},
        body=DecisionBatchRequest,
        items="decisions",
    ),
    Operation(
        "POST",
        "/v1/rewards:batch",
        reward_handlers.reward_batch,
        "reward",
        {200: (RewardBatchResponse, "A status for each reward.")},
        body=RewardBatchRequest,
        items="rewards",
    ),
    Operation(
        "POST",
        "/v1/experiments",
        experiment_handlers.create_experiment,
        "admin",
        {
            201: (ExperimentConfiguration, "The new experiment, which makes decisions from now on."),
            409: (ErrorResponse, "An experiment with this name exists."),
        },
        body=NewExperiment,
    ),
    Operation(
        "GET",
        "/v1/experiments",
        experiment_handlers.list_experiments,
        "read",
        {200: (ExperimentList, "The experiments that the key allows.")},
        query=(("archived", "Whether to include archived experiments."),),
    ),
    Operation(
        "GET",
        f"{_EXPERIMENT}/state",
        read_handlers.read_state,
        "read",
        {200: (State, "The current state.")},
    ),
    Operation(
        "GET",
        f"{_EXPERIMENT}/activity",
        read_handlers.read_activity,
        "read",
        {200: (Activity, "As of a few seconds ago.")},
    ),
    Operation(
        "GET",
        f"{_EXPERIMENT}/export",
        read_handlers.export,
        "read",
        {200: (None, "The log of the experiment, as `maillard export` writes it.")},
        media_type="application/vnd.apache.parquet",
        long_running=True,
    ),
    Operation(
        "POST",
        f"{_EXPERIMENT}/evaluations",
        read_handlers.evaluate,
        "read",
        {200: (Evaluation, "An estimate with its interval, or the reason why there is none.")},
        body=EvaluationRequest,
        long_running=True,
    ),
    Operation(
        "POST",
        f"{_EXPERIMENT}:verify",
        read_handlers.verify,
        "read",
        {200: (Verification, "The result.")},
        long_running=True,
    ),
    _change("POST", ":pause", experiment_handlers.pause),
    _change("POST", ":resume", experiment_handlers.resume),
    _change("POST", ":reset", experiment_handlers.reset),
    _change("POST", ":archive", experiment_handlers.archive),
    _change("POST", "/arms", experiment_handlers.add_arm, 201, body=NewArm),
    _change("DELETE", "/arms/{arm:anything}", experiment_handlers.retire_arm),
    Operation(
        "GET",
        _EXPERIMENT,
        experiment_handlers.read_experiment,
        "read",
        {200: (ExperimentConfiguration, "The experiment. Its ETag is for If-Match.")},
    ),
    Operation(
        "PATCH",
        _EXPERIMENT,
        experiment_handlers.change_experiment,
        "admin",
        {
            200: (ExperimentConfiguration, "The experiment with its new policy."),
            409: _ARCHIVED,
            412: _STALE,
            428: (ErrorResponse, "If-Match is missing."),
        },
        body=PolicyChange,
        headers=(("If-Match", True, "The ETag of the experiment, or *."),),
    ),
    Operation(
        "GET",
        "/v1/decisions/{id}",
        decision_handlers.read_decision,
        "read",
        {200: (Decision, "The decision as it was made.")},
    ),
    Operation(
        "GET", "/v1/policies", service_handlers.list_policies, "any", {200: (Policies, "All policies.")}
    ),
    Operation(
        "GET",
        "/v1/me",
        service_handlers.read_permissions,
        "any",
        {200: (Permissions, "What the key allows.")},
    ),
    Operation(
        "GET",
        "/metrics",
        service_handlers.read_metrics,
        "read",
        {200: (None, "Metrics in Prometheus text format.")},
        media_type="text/plain",
    ),
    Operation("GET", "/healthz", service_handlers.health, None, {200: (Health, "The process is alive.")}),
    Operation("GET", "/readyz", service_handlers.readiness, None, {200: (Health, "The log can be written.")}),
    Operation(
        "GET", "/openapi.json", service_handlers.read_description, None, {200: (dict, "This document.")}
    ),
)
