"""The verbs that make and change experiments."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from maillard.client.answers import good, read_object
from maillard.client.calls import Answer, Call, Steps, path_of
from maillard.client.scope import Scope
from maillard.decisions.configuration import check_arms, describe_policy
from maillard.decisions.identifiers import check_name
from maillard.decisions.reward_rule import Reward
from maillard.errors import InvalidValue, MaillardError, Stale
from maillard.policies import Policy

__all__ = [
    "add_arm",
    "archive",
    "change_policy",
    "create",
    "pause",
    "reset",
    "resume",
    "retire_arm",
    "rule_of",
    "spec_of",
]

_DESCRIBED = ("experiment", "arms", "policy", "reward", "sticky")
_MOST_READS = 5  # of an experiment that others change too


def create(
    scope: Scope,  # noqa: ARG001  # the experiment is the one that is made
    experiment: str,
    arms: Sequence[str],
    policy: str | Policy,
    *,
    reward: Reward | None = None,
    sticky: bool = False,
) -> Steps[dict[str, Any]]:
    """Make an experiment; its configuration. One that exists already is a `Conflict`."""
    rule = Reward() if reward is None else reward
    if not isinstance(rule, Reward):
        raise InvalidValue("reward", reward, "Reward(low=..., high=..., ...)")
    if not isinstance(sticky, bool):
        raise InvalidValue("sticky", sticky, "true or false")
    names, spec = check_arms(arms), spec_of("policy", policy)
    body = {
        "experiment": check_name("experiment", experiment),
        "arms": names,
        "policy": spec,
        "reward": dataclasses.asdict(rule),
        "sticky": sticky,
    }
    answer = yield Call("POST", path_of("experiments"), body)
    if answer.status == 409 and answer.uncertain:  # an earlier try may have made it
        found = _described((yield Call("GET", path_of("experiments", experiment))))
        same = found["arms"] == names and found["sticky"] == sticky and rule_of(found) == rule
        if same and _has_policy(found, spec):
            return found
    return _described(answer)


def add_arm(scope: Scope, arm: str, *, experiment: str | None = None) -> Steps[None]:
    """A new arm, or one that was retired, which comes back with what it has learned."""
    path = path_of("experiments", scope.named(experiment), "arms")
    _described((yield Call("POST", path, {"arm": check_name("arm", arm)}, repeatable=False)))


def retire_arm(scope: Scope, arm: str, *, experiment: str | None = None) -> Steps[None]:
    """Choose an arm no more. What was learned of it stays, and rewards of its decisions still count."""
    path = path_of("experiments", scope.named(experiment), "arms", check_name("arm", arm))
    _described((yield Call("DELETE", path, repeatable=False)))


def change_policy(
    scope: Scope, policy: str | Policy, *, etag: str | None = None, experiment: str | None = None
) -> Steps[None]:
    """From now on another policy, as a new version; what was learned stays.

    With the `etag` of a `summary()`, only if the experiment has not been changed since: otherwise it is `Stale`.
    """
    name, spec = scope.named(experiment), spec_of("policy", policy)
    path = path_of("experiments", name)
    if etag is not None and not (isinstance(etag, str) and etag.isascii() and etag.isprintable() and etag):
        raise InvalidValue("etag", etag, "the etag of a summary()")
    for _ in range(_MOST_READS):
        known = etag or good((yield Call("GET", path))).headers.get("etag", "*")
        answer = yield Call("PATCH", path, {"policy": spec}, {"if-match": known})
        if answer.status != 412:
            _described(answer)
            return
        # An earlier try may have been the change.
        if answer.uncertain and _has_policy(_described((yield Call("GET", path))), spec):
            return
        if etag is not None:
            raise Stale(
                f"experiment {name!r} has been changed since it had the etag {etag}: look at it again"
            )
    raise Stale(
        f"experiment {name!r}: the policy was not changed, for others changed it {_MOST_READS} times meanwhile"
    )


def pause(scope: Scope, *, experiment: str | None = None) -> Steps[None]:
    """Make no choices until `resume`; rewards are still taken."""
    yield from _turn(scope.named(experiment), "pause")


def resume(scope: Scope, *, experiment: str | None = None) -> Steps[None]:
    """Choose again."""
    yield from _turn(scope.named(experiment), "resume")


def archive(scope: Scope, *, experiment: str | None = None) -> Steps[None]:
    """Make no choices and no changes until `resume`; rewards are still taken."""
    yield from _turn(scope.named(experiment), "archive")


def reset(scope: Scope, *, experiment: str | None = None) -> Steps[None]:
    """Forget what was learned: a new epoch begins. The log keeps everything."""
    yield from _turn(scope.named(experiment), "reset", repeatable=False)


def _turn(name: str, verb: str, *, repeatable: bool = True) -> Steps[None]:
    _described((yield Call("POST", path_of("experiments", name, verb=verb), repeatable=repeatable)))


def _described(answer: Answer) -> dict[str, Any]:
    """An experiment, as the service describes it."""
    return read_object(answer, *_DESCRIBED)


def spec_of(field: str, policy: str | Policy) -> str:
    """A policy as text; what the text means is for the service to say."""
    if not isinstance(policy, str | Policy):
        raise InvalidValue(field, policy, "a spec such as 'ms+:booster=8', or a policy")
    return str(policy)


def rule_of(experiment: dict[str, Any]) -> Reward:
    """What a reward is in an experiment that the service describes."""
    return Reward(**experiment["reward"])


def _has_policy(experiment: dict[str, Any], spec: str) -> bool:
    try:
        return bool(describe_policy(spec, rule_of(experiment))[0] == experiment["policy"])
    except MaillardError:  # a policy that only the service knows
        return bool(spec == experiment["policy"])
