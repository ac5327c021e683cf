"""The experiment that answers Personalizer's calls: its configuration if it is new, and what it must have."""

from __future__ import annotations

import warnings

from maillard.decisions import Bandit, Reward
from maillard.decisions.linear_contexts import LinearContexts
from maillard.decisions.stores import Store
from maillard.errors import InvalidValue, PolicyHint
from maillard.features import Features, hashed

DEFAULT_POLICY = "lin-ms:sigma2=0.25,floor=0.1"
"For rewards that are mostly between 0 and 1, although Personalizer allowed -1 to 1."


def default_features() -> Features:
    """All features of context and action hashed, and each pair of them.

    Without the pairs, a shared model adds up what it knows of the context and of the action, so it would
    prefer the same action in every context.
    """
    return Features({}, rest=hashed(64, numbers="bins"), rest_crosses=hashed(128, numbers="bins"))


def default_reward() -> Reward:
    """The reward rule with the default settings of a Personalizer resource."""
    return Reward(low=-1, high=1, window="10m", default=0, combine="first")


def open_experiment(store: Store, name: str) -> None:
    """Create the experiment if it does not exist; otherwise check that it can answer Personalizer's calls."""
    if name in store.experiments():
        _check(name, Bandit(log=store, experiment=name))
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PolicyHint)
        Bandit(
            [],
            DEFAULT_POLICY,
            features=default_features(),
            model="shared",
            reward=default_reward(),
            log=store,
            experiment=name,
        )


def _check(name: str, bandit: Bandit) -> None:
    rule = bandit.state.context
    if not isinstance(rule, LinearContexts) or not rule.dynamic:
        allowed = (
            "an experiment with features, a shared model and without arms of its own (arms=[]), because each "
            "Rank call has its own actions; or the name of a new experiment"
        )
        raise InvalidValue("--personalizer", name, allowed)
    if rule.features.rest is None:
        allowed = (
            "an experiment whose features have a rest, such as rest=hashed(64, numbers='bins'), because "
        )
        raise InvalidValue(
            "--personalizer", name, f"{allowed}Rank calls may have features that nobody declared"
        )
