"""Client methods that create and change experiments."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import msgspec

from maillard.client.api_calls import ApiCall, Steps, api_path
from maillard.client.base_client import Scope
from maillard.client.decoding import check_success, decode, fetch, to_dict
from maillard.decisions.call_arguments import check_arms, check_rule, default_policy
from maillard.decisions.identifiers import check_name
from maillard.decisions.raw_contexts import check_values
from maillard.decisions.reward_rule import Reward
from maillard.errors import InvalidValue, MaillardError, Stale
from maillard.wire_schema import Erasure, ExperimentConfiguration, FeatureDeclaration

if TYPE_CHECKING:
    from maillard.features import Features
    from maillard.policies import Policy

_MAX_READS = 5  # of an experiment that others change at the same time


def create(
    _: Scope,
    experiment: str,
    arms: Sequence[str] | Mapping[str, Mapping[str, Any]],
    policy: str | Policy | None = None,
    *,
    reward: Reward | None = None,
    sticky: bool = False,
    features: Features | Mapping[str, Any] | None = None,
    model: str | None = None,
    segments: Sequence[str] | None = None,
) -> Steps[dict[str, Any]]:
    """Create an experiment; returns its configuration. If it exists already, this raises `Conflict`.

    Without a policy, the service uses the default for the range of rewards. `hints` has advice, if any.
    `features` (`Features`, or the JSON that it writes), `model` and `segments` are those of `Bandit`.

    >>> client.create("prices", ["low", "high"], "ms+:floor=0.1", reward=Reward(low=0, high=50))["policy"]
    'ms+:floor=0.1,sigma2=625'
    """
    rule = check_rule(reward)
    if not isinstance(sticky, bool):
        raise InvalidValue("sticky", sticky, "true or false")
    names, name = check_arms(arms, allow_none=model == "shared"), check_name("experiment", experiment)
    linear = features is not None
    spec = default_policy(rule, linear=linear) if policy is None else spec_of("policy", policy)
    body: dict[str, Any] = {
        "experiment": name, "arms": names, "policy": spec, "reward": asdict(rule), "sticky": sticky
    }  # fmt: skip
    if isinstance(arms, Mapping):
        body["arms"] = {arm: check_values(arms[arm], f"arms: {arm}") for arm in names}
    uses = {"features": _declaration(features), "model": model, "segments": segments}
    body |= {key: value for key, value in uses.items() if value is not None}
    response = yield ApiCall("POST", api_path("experiments"), body)
    if response.status == 409 and response.uncertain:  # an earlier attempt may have created it
        found = yield from fetch(ApiCall("GET", api_path("experiments", name)), ExperimentConfiguration)
        same = found.arms == names and found.sticky == sticky and found.reward.to_rule() == rule
        if same and not any(uses.values()) and _has_policy(found, spec):
            return to_dict(found)
    return to_dict(decode(response, ExperimentConfiguration))


def _declaration(features: Features | Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """The JSON form of features. The service checks it."""
    if features is None or isinstance(features, Mapping):
        return features
    if not hasattr(features, "to_json"):
        raise InvalidValue("features", features, "Features({...}), or the JSON that it writes")
    data: Mapping[str, Any] = json.loads(features.to_json())
    return data


def add_arm(
    scope: Scope, arm: str, *, features: Mapping[str, Any] | None = None, experiment: str | None = None
) -> Steps[None]:
    """Add an arm, or use a retired arm again, with its earlier rewards.

    If all arms share one model, `features` has the attributes of the arm.

    >>> client.add_arm("green")
    >>> client.arms
    ['red', 'blue', 'green']
    """
    body: dict[str, Any] = {"arm": check_name("arm", arm)}
    if features is not None:
        body["features"] = check_values(features, "features")
    yield from _change(scope, experiment, "arms", body=body, repeatable=False)


def retire_arm(scope: Scope, arm: str, *, experiment: str | None = None) -> Steps[None]:
    """Stop choosing an arm. Its tally stays, and rewards of its decisions are still applied.

    >>> client.retire_arm("red")
    >>> client.arms
    ['blue']
    """
    yield from _change(scope, experiment, "arms", check_name("arm", arm), method="DELETE", repeatable=False)


def change_policy(
    scope: Scope, policy: str | Policy, *, etag: str | None = None, experiment: str | None = None
) -> Steps[None]:
    """Change the policy. The new policy gets the next version; the tally stays.

    With the `etag` of a `summary()`, this raises `Stale` if the experiment has been changed since.

    >>> client.change_policy("ms+:floor=0.05", etag=client.summary()["etag"])
    >>> str(client.policy)
    'ms+:floor=0.05,sigma2=0.25'
    """
    spec = spec_of("policy", policy)
    yield from _replace(scope, experiment, etag, "policy", spec, lambda found: _has_policy(found, spec))


def change_features(
    scope: Scope,
    features: Features | Mapping[str, Any],
    *,
    etag: str | None = None,
    experiment: str | None = None,
) -> Steps[None]:
    """Change the features: `Features`, or the JSON that it writes. They get the next feature version.

    If features are only appended, what was learned stays; otherwise a new epoch begins, without rewards.
    `etag` is that of `change_policy`.

    >>> from maillard import Features
    >>> rule = Reward(low=0, high=1)
    >>> created = client.create("seen", ["red", "blue"], features=Features({"new": bool}), reward=rule)
    >>> client.change_features(Features({"new": bool, "age": (18, 90)}), experiment="seen")
    >>> client.choose(context={"new": True, "age": 30}, experiment="seen").feature_version
    2
    """
    declared = _declaration(features)
    if declared is None:
        raise InvalidValue("features", None, "Features({...}), or the JSON that it writes")
    yield from _replace(scope, experiment, etag, "features", declared, lambda found: _same(found, declared))


def _replace(  # noqa: PLR0917
    scope: Scope,
    experiment: str | None,
    etag: str | None,
    part: str,
    value: object,
    is_made: Callable[[ExperimentConfiguration], bool],
) -> Steps[None]:
    """Replace a part of the configuration: the version with this etag, or whatever is current."""
    name = scope.experiment_name(experiment)
    path = api_path("experiments", name)
    if etag is not None and not (isinstance(etag, str) and etag.isascii() and etag.isprintable() and etag):
        raise InvalidValue("etag", etag, "the etag of a summary()")
    for _ in range(_MAX_READS):
        known = etag or check_success((yield ApiCall("GET", path))).headers.get("etag", "*")
        response = yield ApiCall("PATCH", path, {part: value}, {"if-match": known})
        if response.status != 412:
            decode(response, ExperimentConfiguration)
            return
        # An earlier attempt may have made the change.
        if response.uncertain:
            found = yield from fetch(ApiCall("GET", path), ExperimentConfiguration)
            if is_made(found):
                return
        if etag is not None:
            raise Stale(f"experiment {name!r} has been changed since it had the etag {etag}: read it again")
    raise Stale(
        f"experiment {name!r}: its {part} did not change, because others changed it {_MAX_READS} times"
    )


def pause(scope: Scope, *, experiment: str | None = None) -> Steps[None]:
    """Make no decisions until `resume`. Rewards are still accepted.

    >>> client.pause()
    >>> client.summary()["paused"]
    True
    """
    yield from _change(scope, experiment, verb="pause")


def resume(scope: Scope, *, experiment: str | None = None) -> Steps[None]:
    """Make decisions again.

    >>> client.pause()
    >>> client.resume()
    >>> client.summary()["paused"]
    False
    """
    yield from _change(scope, experiment, verb="resume")


def archive(scope: Scope, *, experiment: str | None = None) -> Steps[None]:
    """Make no decisions and accept no changes until `resume`. Rewards are still accepted.

    >>> client.archive()
    >>> client.summary()["archived"]
    True
    """
    yield from _change(scope, experiment, verb="archive")


def reset(scope: Scope, *, experiment: str | None = None) -> Steps[None]:
    """Start a new epoch with an empty tally. The log keeps everything.

    >>> client.reset()
    >>> client.summary()["epoch"]
    2
    """
    yield from _change(scope, experiment, verb="reset", repeatable=False)


def erase_unit(scope: Scope, unit: str, *, experiment: str | None = None) -> Steps[int]:
    """Replace a unit's name and idempotency keys by a random token; return how many decisions changed.

    >>> decision = client.choose(unit="user-17")
    >>> client.erase_unit("user-17")
    1
    """
    path = api_path("experiments", scope.experiment_name(experiment), verb="erase-unit")
    call = ApiCall("POST", path, {"unit": check_name("unit", unit)})
    return (yield from fetch(call, Erasure)).decisions


def _change(
    scope: Scope, experiment: str | None, *parts: str, method: str = "POST", verb: str = "", **options: Any
) -> Steps[None]:
    path = api_path("experiments", scope.experiment_name(experiment), *parts, verb=verb)
    yield from fetch(ApiCall(method, path, **options), ExperimentConfiguration)


def spec_of(field: str, policy: str | Policy) -> str:
    """The spec of a policy. The service checks it."""
    policies = sys.modules.get("maillard.policies")  # without it, there are no policies but specs
    if not isinstance(policy, str) and (policies is None or not isinstance(policy, policies.Policy)):
        raise InvalidValue(field, policy, "a spec such as 'ms+:booster=8', or a policy")
    return str(policy)


def _same(experiment: ExperimentConfiguration, declared: Mapping[str, Any]) -> bool:
    """Whether an experiment has these features, however they are written."""
    try:
        ours = msgspec.convert(declared, FeatureDeclaration)
        return msgspec.convert(experiment.features, FeatureDeclaration) == ours
    except msgspec.ValidationError:
        return False


def _has_policy(experiment: ExperimentConfiguration, spec: str) -> bool:
    try:
        from maillard.decisions.configuration import describe_policy

        return bool(describe_policy(spec, experiment.reward.to_rule())[0] == experiment.policy)
    except (MaillardError, ImportError):  # a policy that only the service knows, or a client without NumPy
        return bool(spec == experiment.policy)
