"""Client methods that create and change experiments."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from maillard.client.api_calls import ApiCall, Steps, api_path
from maillard.client.base_client import Scope
from maillard.client.decoding import check_success, decode, to_dict
from maillard.decisions.configuration import check_arms, describe_policy
from maillard.decisions.identifiers import check_name
from maillard.decisions.reward_rule import Reward
from maillard.errors import InvalidValue, MaillardError, Stale
from maillard.policies import Policy
from maillard.wire_schema import ExperimentConfiguration

_MAX_READS = 5  # of an experiment that others change at the same time


def create(
    scope: Scope,  # noqa: ARG001  # the default experiment plays no role
    experiment: str,
    arms: Sequence[str],
    policy: str | Policy,
    *,
    reward: Reward | None = None,
    sticky: bool = False,
) -> Steps[dict[str, Any]]:
    """Create an experiment; returns its configuration. If it exists already, this raises `Conflict`."""
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
    response = yield ApiCall("POST", api_path("experiments"), body)
    if response.status == 409 and response.uncertain:  # an earlier attempt may have created it
        found = decode((yield ApiCall("GET", api_path("experiments", experiment))), ExperimentConfiguration)
        same = found.arms == names and found.sticky == sticky and found.reward.to_rule() == rule
        if same and _has_policy(found, spec):
            return to_dict(found)
    return to_dict(decode(response, ExperimentConfiguration))


def add_arm(scope: Scope, arm: str, *, experiment: str | None = None) -> Steps[None]:
    """Add an arm, or use a retired arm again, with its earlier rewards."""
    path = api_path("experiments", scope.experiment_name(experiment), "arms")
    decode(
        (yield ApiCall("POST", path, {"arm": check_name("arm", arm)}, repeatable=False)),
        ExperimentConfiguration,
    )


def retire_arm(scope: Scope, arm: str, *, experiment: str | None = None) -> Steps[None]:
    """Stop choosing an arm. Its tally stays, and rewards of its decisions are still applied."""
    path = api_path("experiments", scope.experiment_name(experiment), "arms", check_name("arm", arm))
    decode((yield ApiCall("DELETE", path, repeatable=False)), ExperimentConfiguration)


def change_policy(
    scope: Scope, policy: str | Policy, *, etag: str | None = None, experiment: str | None = None
) -> Steps[None]:
    """Change the policy. The new policy gets the next version; the tally stays.

    With the `etag` of a `summary()`, this raises `Stale` if the experiment has been changed since.
    """
    name, spec = scope.experiment_name(experiment), spec_of("policy", policy)
    path = api_path("experiments", name)
    if etag is not None and not (isinstance(etag, str) and etag.isascii() and etag.isprintable() and etag):
        raise InvalidValue("etag", etag, "the etag of a summary()")
    for _ in range(_MAX_READS):
        known = etag or check_success((yield ApiCall("GET", path))).headers.get("etag", "*")
        response = yield ApiCall("PATCH", path, {"policy": spec}, {"if-match": known})
        if response.status != 412:
            decode(response, ExperimentConfiguration)
            return
        # An earlier attempt may have made the change.
        if response.uncertain and _has_policy(
            decode((yield ApiCall("GET", path)), ExperimentConfiguration), spec
        ):
            return
        if etag is not None:
            raise Stale(f"experiment {name!r} has been changed since it had the etag {etag}: read it again")
    raise Stale(
        f"experiment {name!r}: the policy was not changed, because others changed it {_MAX_READS} times"
    )


def pause(scope: Scope, *, experiment: str | None = None) -> Steps[None]:
    """Make no decisions until `resume`. Rewards are still accepted."""
    yield from _post_action(scope.experiment_name(experiment), "pause")


def resume(scope: Scope, *, experiment: str | None = None) -> Steps[None]:
    """Make decisions again."""
    yield from _post_action(scope.experiment_name(experiment), "resume")


def archive(scope: Scope, *, experiment: str | None = None) -> Steps[None]:
    """Make no decisions and accept no changes until `resume`. Rewards are still accepted."""
    yield from _post_action(scope.experiment_name(experiment), "archive")


def reset(scope: Scope, *, experiment: str | None = None) -> Steps[None]:
    """Start a new epoch with an empty tally. The log keeps everything."""
    yield from _post_action(scope.experiment_name(experiment), "reset", repeatable=False)


def _post_action(name: str, verb: str, *, repeatable: bool = True) -> Steps[None]:
    decode(
        (yield ApiCall("POST", api_path("experiments", name, verb=verb), repeatable=repeatable)),
        ExperimentConfiguration,
    )


def spec_of(field: str, policy: str | Policy) -> str:
    """The spec of a policy. The service checks it."""
    if not isinstance(policy, str | Policy):
        raise InvalidValue(field, policy, "a spec such as 'ms+:booster=8', or a policy")
    return str(policy)


def _has_policy(experiment: ExperimentConfiguration, spec: str) -> bool:
    try:
        return bool(describe_policy(spec, experiment.reward.to_rule())[0] == experiment.policy)
    except MaillardError:  # a policy that only the service knows
        return bool(spec == experiment.policy)
