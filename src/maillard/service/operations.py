"""The table of all operations, for the router, authorization, the OpenAPI document and the tests."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any, Literal

from starlette.convertors import StringConvertor, register_url_convertor

from maillard import wire_schema as wire
from maillard.service.handlers import context_handlers as contexts
from maillard.service.handlers import decision_handlers as decisions
from maillard.service.handlers import experiment_handlers as experiments
from maillard.service.handlers import personalizer_handlers as personalizer
from maillard.service.handlers import read_handlers as reads
from maillard.service.handlers import reward_handlers as rewards
from maillard.service.handlers import service_handlers as service
from maillard.service.handlers.request_context import RequestContext
from maillard.service.http_responses import HttpResponse


class _RestOfPath(StringConvertor):
    """Matches the rest of a path, including slashes and line breaks."""

    regex = r"[\s\S]*"


register_url_convertor("anything", _RestOfPath())

Handler = Callable[[RequestContext], Awaitable[HttpResponse]]
Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
RequiredScope = Literal["decide", "reward", "read", "admin", "any"] | None


@dataclass(frozen=True)
class Operation:
    """One method of one path."""

    method: Method
    path: str
    handler: Handler
    scope: RequiredScope
    "The scope that a key needs. `any`: a key with any scope; None: no key."
    responses: dict[int, tuple[Any, str]]
    "For each status, the type of the body (its media type if it is not JSON) and a description."
    _: KW_ONLY
    body: type | None = None
    headers: tuple[tuple[str, bool, str], ...] = ()
    "Request headers: name, whether it is required, description."
    query: tuple[tuple[str, str], ...] = ()
    "Query parameters: name, description. They are flags, except `by`."
    items: str | None = None
    "The field with the items of a batch."
    long_running: bool = False
    "Whether it may take minutes. It is cancelled if the caller disconnects."
    of_personalizer: bool = False
    "Whether it is a call of Personalizer's API, with its errors and its header for the key."

    @cached_property
    def name(self) -> str:
        """The operationId of the OpenAPI document."""
        return self.handler.__name__

    @cached_property
    def fields(self) -> tuple[str, ...]:
        """The names of the body's fields and of the path's parameters, as errors name them."""
        path = re.findall(r"{(\w+)", self.path.replace("{id}", "{decision}"))
        return (*getattr(self.body, "__struct_encode_fields__", ()), *path)

    @cached_property
    def names_experiment(self) -> bool:
        """Whether the path contains the name of an experiment, or the call is for the one of Personalizer."""
        return "{experiment}" in self.path or self.of_personalizer

    @cached_property
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
            found |= {413: "The body is too large.", 415: "The body is not JSON."}
            found[422] = "A value is not allowed."
        if self.of_personalizer and found.pop(422, ""):
            found[400] = "The request is not valid, or a value is not allowed."
        return {status: text for status, text in sorted(found.items()) if status not in self.responses}


_EXPERIMENT = "/v1/experiments/{experiment}"
_IF_MATCH = ("If-Match", False, "The ETag of the experiment, to change only this version of it.")
_CHANGE_FAILURES = {
    409: (wire.ErrorResponse, "The experiment is archived."),
    412: (wire.ErrorResponse, "If-Match is not the current version of the experiment."),
}


def _change(method: Method, path: str, handler: Handler, status: int = 200, **options: Any) -> Operation:
    """An operation that changes an experiment and returns it."""
    responses = {status: (wire.ExperimentConfiguration, "The changed experiment."), **_CHANGE_FAILURES}
    return Operation(method, _EXPERIMENT + path, handler, "admin", responses, headers=(_IF_MATCH,), **options)


def _get(
    path: str, handler: Handler, body: Any, description: str, scope: RequiredScope = "read", **options: Any
) -> Operation:
    """An operation that returns `body` and changes nothing."""
    return Operation("GET", path, handler, scope, {200: (body, description)}, **options)


# The router tries them in this order, so the most frequent ones come first.
OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "POST",
        f"{_EXPERIMENT}/decisions",
        decisions.decide,
        "decide",
        {
            201: (wire.Decision, "A new decision, durable."),
            200: (wire.Decision, "The decision of an earlier request with the same idempotency key."),
            409: (wire.ErrorResponse, "The experiment is paused or archived."),
        },
        body=wire.DecisionRequest,
        headers=(("Idempotency-Key", False, "A repeated key and body return the same decision."),),
    ),
    Operation(
        "PUT",
        "/v1/decisions/{id}/reward",
        rewards.reward,
        "reward",
        {
            201: (wire.RewardResponse, "A new reward, durable."),
            200: (wire.RewardResponse, "The same reward again, or a reward after the window has closed."),
            202: (wire.RewardResponse, "The decision is not known yet; the reward waits for it."),
            409: (wire.ErrorResponse, "This decision and event already have a reward with another value."),
        },
        body=wire.RewardRequest,
    ),
    Operation(
        "POST",
        f"{_EXPERIMENT}/decisions:batch",
        decisions.decide_batch,
        "decide",
        {200: (wire.DecisionBatchResponse, "A status for each decision.")},
        body=wire.DecisionBatchRequest,
        items="decisions",
    ),
    Operation(
        "POST",
        "/v1/rewards:batch",
        rewards.reward_batch,
        "reward",
        {200: (wire.RewardBatchResponse, "A status for each reward.")},
        body=wire.RewardBatchRequest,
        items="rewards",
    ),
    Operation(
        "POST",
        "/v1/experiments",
        experiments.create_experiment,
        "admin",
        {
            201: (wire.ExperimentConfiguration, "The new experiment, which makes decisions from now on."),
            409: (wire.ErrorResponse, "An experiment with this name exists."),
        },
        body=wire.NewExperiment,
    ),
    _get(
        "/v1/experiments",
        experiments.list_experiments,
        wire.ExperimentList,
        "The experiments that the key allows.",
        query=(("archived", "Whether to include archived experiments."),),
    ),
    _get(f"{_EXPERIMENT}/state", reads.read_state, wire.State, "The current state."),
    _get(f"{_EXPERIMENT}/head", reads.read_head, wire.ChainHead, "The end of the log's hash chain."),
    _get(f"{_EXPERIMENT}/activity", reads.read_activity, wire.Activity, "As of a few seconds ago."),
    _get(
        f"{_EXPERIMENT}/contexts",
        contexts.read_contexts,
        wire.ContextActivity,
        "As of a few seconds ago.",
        query=(("by", "A key of the context; by default the first one."),),
    ),
    _get(
        f"{_EXPERIMENT}/export",
        reads.export,
        "application/vnd.apache.parquet",
        "The log of the experiment, as `maillard export` writes it.",
        long_running=True,
    ),
    Operation(
        "POST",
        f"{_EXPERIMENT}/evaluations",
        reads.evaluate,
        "read",
        {200: (wire.Evaluation, "An estimate with its interval, or the reason why there is none.")},
        body=wire.EvaluationRequest,
        long_running=True,
    ),
    Operation(
        "POST",
        f"{_EXPERIMENT}:verify",
        reads.verify,
        "read",
        {200: (wire.Verification, "The result.")},
        long_running=True,
    ),
    _change("POST", ":pause", experiments.pause),
    _change("POST", ":resume", experiments.resume),
    _change("POST", ":reset", experiments.reset),
    _change("POST", ":archive", experiments.archive),
    Operation(
        "POST",
        f"{_EXPERIMENT}:erase-unit",
        experiments.erase_unit,
        "admin",
        {200: (wire.Erasure, "The number of decisions that were changed.")},
        body=wire.UnitToErase,
    ),
    _change("POST", "/arms", experiments.add_arm, 201, body=wire.NewArm),
    _change("DELETE", "/arms/{arm:anything}", experiments.retire_arm),
    _get(
        _EXPERIMENT,
        experiments.read_experiment,
        wire.ExperimentConfiguration,
        "The experiment. Its ETag is for If-Match.",
    ),
    Operation(
        "PATCH",
        _EXPERIMENT,
        experiments.change_experiment,
        "admin",
        {
            200: (wire.ExperimentConfiguration, "The experiment with its new policy or features."),
            428: (wire.ErrorResponse, "If-Match is missing."),
            **_CHANGE_FAILURES,
        },
        body=wire.ExperimentChange,
        headers=(("If-Match", True, "The ETag of the experiment, or *."),),
    ),
    _get("/v1/decisions/{id}", decisions.read_decision, wire.Decision, "The decision as it was made."),
    _get("/v1/policies", service.list_policies, wire.Policies, "All policies.", "any"),
    _get("/v1/me", service.read_permissions, wire.Permissions, "What the key allows.", "any"),
    _get("/metrics", service.read_metrics, "text/plain", "Metrics in Prometheus text format."),
    _get("/healthz", service.health, wire.Health, "The process is alive.", None),
    _get("/readyz", service.readiness, wire.Health, "The log can be written.", None),
    _get("/openapi.json", service.read_description, dict, "This document.", None),
)


def _call(path: str, handler: Handler, scope: RequiredScope, status: int, **options: Any) -> Operation:
    """A call of Personalizer's API."""
    body, description = options.pop("returns")
    path = f"/personalizer/v1.0/{path}"
    return Operation(
        "POST", path, handler, scope, {status: (body, description)}, of_personalizer=True, **options
    )


# With --personalizer, the service has these as well.
PERSONALIZER_OPERATIONS: tuple[Operation, ...] = (
    _call(
        "rank",
        personalizer.rank,
        "decide",
        201,
        returns=(wire.RankResponse, "The decision, durable; the same one for a repeated eventId."),
        body=wire.RankRequest,
    ),
    _call(
        "events/{eventId:anything}/reward",
        personalizer.reward_event,
        "reward",
        204,
        returns=(None, "The reward is durable."),
        body=wire.PersonalizerReward,
        headers=(("Idempotency-Key", False, "A repeated key counts once."),),
    ),
    _call(
        "events/{eventId:anything}/activate",
        personalizer.activate_event,
        "decide",
        204,
        returns=(None, "The decision is logged."),
    ),
)
_METHODS: tuple[Method, ...] = ("GET", "POST", "PUT", "PATCH", "DELETE")
# All other calls of Personalizer's API. They are not in the OpenAPI document.
UNSUPPORTED_OPERATIONS: tuple[Operation, ...] = tuple(
    Operation(
        method, "/personalizer/{call:anything}", personalizer.unsupported, "any", {}, of_personalizer=True
    )
    for method in _METHODS
)
