"""The service itself: how it is, what it counts, what it can do, and for whom."""

from __future__ import annotations

import msgspec

import maillard
from maillard.policies import names, policy_class
from maillard.service import messages
from maillard.service.answers import Answer, Refusal
from maillard.service.handlers.calls import Call
from maillard.service.keys import SCOPES

__all__ = ["health", "list_policies", "read_description", "read_metrics", "read_permissions", "readiness"]


async def list_policies(call: Call) -> Answer:  # noqa: ARG001  # one signature for all
    """The policies that an experiment can have."""
    return Answer(200, _POLICIES)


def _policies() -> messages.Policies:
    classes = [policy_class(name) for name in names()]
    return messages.Policies(
        policies=[
            messages.PolicyInfo(
                name=cls.name,
                summary=" ".join((cls.__doc__ or "").split("\n\n")[0].split()),
                parameters=[name for name, _, _ in cls.parameters()],
            )
            for cls in classes
            if not getattr(cls, "has_memory", False)
        ]
    )


_POLICIES = msgspec.Raw(msgspec.json.encode(_policies()))


async def read_permissions(call: Call) -> Answer:
    """What the caller may do."""
    key = call.key
    scopes: list[str] = list(SCOPES) if key is None or "admin" in key.scopes else list(key.scopes)
    limited = None if key is None or key.experiments is None else list(key.experiments)
    body = messages.Permissions(
        scopes=scopes, experiments=limited, open=key is None, version=maillard.__version__
    )
    return Answer(200, body)


async def health(call: Call) -> Answer:  # noqa: ARG001  # one signature for all
    """Whether the process lives."""
    return Answer(200, messages.Health(status="ok"))


async def readiness(call: Call) -> Answer:
    """Whether the log can be written: a probe is."""
    await call.service.probe()
    return Answer(200, messages.Health(status="ready"))


async def read_metrics(call: Call) -> Answer:
    """Counters and durations, as Prometheus reads them."""
    if call.key is not None and call.key.experiments is not None:
        raise Refusal(403, "forbidden", "This key is for some experiments; the metrics are of all.")
    await call.service.follow()
    write = call.service.metrics.writer(call.service.monitor)
    written, media_type = await call.service.experiments.run(write)
    return Answer(200, written, media_type=media_type)


async def read_description(call: Call) -> Answer:
    """The API, as OpenAPI describes it."""
    return Answer(200, call.service.description)
