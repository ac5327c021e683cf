"""Handlers about the service itself: health, metrics, policies, permissions and the OpenAPI document."""

from __future__ import annotations

import msgspec

import maillard
from maillard import wire_schema as wire
from maillard.policies import names, policy_class
from maillard.service.api_keys import SCOPES
from maillard.service.handlers.request_context import RequestContext
from maillard.service.http_responses import HttpError, HttpResponse
from maillard.service.metrics import MEDIA_TYPE


async def list_policies(context: RequestContext) -> HttpResponse:  # noqa: ARG001  # all handlers have this signature
    """List the policies that an experiment can use."""
    return HttpResponse(200, _POLICIES)


def _policies() -> wire.Policies:
    classes = [policy_class(name) for name in names()]
    return wire.Policies(
        policies=[
            wire.PolicyInfo(
                name=cls.name,
                summary=" ".join((cls.__doc__ or "").split("\n\n")[0].split()),
                parameters=[name for name, _, _ in cls.parameters()],
            )
            for cls in classes
            if not getattr(cls, "has_memory", False) and not cls.uses_context
        ]
    )


_POLICIES = msgspec.Raw(msgspec.json.encode(_policies()))


async def read_permissions(context: RequestContext) -> HttpResponse:
    """Return what the caller may do."""
    key = context.key
    scopes: list[str] = list(SCOPES) if key is None or "admin" in key.scopes else list(key.scopes)
    limited = None if key is None or key.experiments is None else list(key.experiments)
    body = wire.Permissions(
        scopes=scopes, experiments=limited, open=key is None, version=maillard.__version__
    )
    return HttpResponse(200, body)


async def health(context: RequestContext) -> HttpResponse:  # noqa: ARG001  # all handlers have this signature
    """Return 200 if the process is alive."""
    return HttpResponse(200, wire.Health(status="ok"))


async def readiness(context: RequestContext) -> HttpResponse:
    """Return 200 if the log can be written, by writing to it, and the service is not stopping."""
    if context.service.stopping.is_set():
        raise HttpError(503, "unavailable", "The service is stopping.")
    await context.service.probe()
    return HttpResponse(200, wire.Health(status="ready"))


async def read_metrics(context: RequestContext) -> HttpResponse:
    """Return counters and durations for Prometheus."""
    if context.key is not None and context.key.experiments is not None:
        message = "This key is limited to some experiments, but metrics cover all of them."
        raise HttpError(403, "forbidden", message)
    await context.service.update_monitor()
    write = context.service.metrics.writer(context.service.monitor)
    return HttpResponse(200, await context.service.experiments.run(write), media_type=MEDIA_TYPE)


async def read_description(context: RequestContext) -> HttpResponse:
    """Return the OpenAPI document."""
    return HttpResponse(200, context.service.description)
