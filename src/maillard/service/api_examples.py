"""Examples of parameters and bodies for the OpenAPI document. A test sends each of them to a service."""

from __future__ import annotations

from typing import Any

_ID = "01a1e67a-2b06-779c-998f-15fbfdac72dd"

PARAMETERS = {"experiment": "home", "id": _ID, "arm": "blue", "eventId": "event-1", "If-Match": "*"}

_ARTICLES = [
    {"id": "article-17", "features": [{"topic": "sport"}]},
    {"id": "article-18", "features": [{"topic": "news"}]},
]

REQUESTS: dict[str, Any] = {
    "create_experiment": {
        "experiment": "home",
        "arms": ["blue", "orange"],
        "reward": {"low": 0, "high": 1, "window": "1h", "default": 0},
    },
    "change_experiment": {"policy": "ms+:floor=0.1"},
    "add_arm": {"arm": "green"},
    "erase_unit": {"unit": "user-17"},
    "decide": {"unit": "user-17"},
    "decide_batch": {"decisions": [{"unit": "user-17", "idempotency_key": "7f3a"}, {"unit": "user-18"}]},
    "reward": {"value": 1},
    "reward_batch": {"rewards": [{"decision": _ID, "value": 1, "event": "purchase"}]},
    "evaluate": {"target": "arm:blue"},
    "rank": {"eventId": "event-1", "contextFeatures": [{"device": "phone"}], "actions": _ARTICLES},
    "reward_event": {"value": 1},
}
"The body of a request, by the name of the operation."

_CREATED = {
    "experiment": "home",
    "status": "running",
    "arms": ["blue", "orange"],
    "retired": [],
    "policy": "kl-ms+:floor=0.1",
    "policy_version": 1,
    "epoch": 1,
    "sticky": False,
    "reward": {
        "low": 0.0,
        "high": 1.0,
        "window": 3600.0,
        "default": 0.0,
        "combine": "first",
        "learn": "on_close",
        "binary": False,
    },
    "created_at": "2026-11-16T22:28:40.104512Z",
    "hints": [],
    "features": None,
    "model": None,
    "feature_version": 0,
    "attributes": None,
    "segments": None,
}

RESPONSES: dict[str, Any] = {
    "create_experiment": _CREATED,
    "decide": {
        "id": _ID,
        "experiment": "home",
        "time": "2026-11-16T22:28:48.518421Z",
        "arm": "orange",
        "probability": 0.5,
        "log_probability": -0.6931471805599453,
        "probabilities": {"blue": 0.5, "orange": 0.5},
        "log_probabilities": {"blue": -0.6931471805599453, "orange": -0.6931471805599453},
        "policy_version": 1,
        "formula_version": 1,
        "state": 1,
        "epoch": 1,
        "unit": "user-17",
        "cold": True,
        "origin": None,
        "idempotency_key": None,
        "position": 0,
        "expires_at": "2026-11-16T23:28:48.518421Z",
        "context": None,
        "actions": None,
        "feature_version": 0,
    },
    "reward": {"decision": _ID, "event": _ID, "outcome": "waiting", "applied": True, "late": False},
    "rank": {
        "ranking": [{"id": "article-18", "probability": 0.5}, {"id": "article-17", "probability": 0.5}],
        "eventId": "event-1",
        "rewardActionId": "article-18",
    },
    "read_permissions": {
        "scopes": ["decide", "reward", "read", "admin"],
        "experiments": None,
        "open": False,
        "version": "1.0",
    },
    "health": {"status": "ok"},
}
"The body of the first successful response, by the name of the operation."
