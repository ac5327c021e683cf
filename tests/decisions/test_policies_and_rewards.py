"""No reward that an experiment accepts may stop it: its policy can choose after every one of them."""

from __future__ import annotations

import contextlib
import math
import warnings

import pytest

from maillard import policies
from maillard.decisions import Bandit, Reward
from maillard.errors import InvalidValue, UnknownName
from maillard.policies.numerics.families import FAMILIES

RULES = {
    "clicks": Reward(low=0, high=1, binary=True),
    "unit": Reward(low=0, high=1),
    "positive": Reward(low=1e-9, high=1),
    "ten": Reward(low=0, high=10),
    "signed": Reward(low=-1, high=1),
    "lowest": Reward(low=0),
    "above zero": Reward(low=1e-6),
    "large": Reward(low=-1e15, high=1e15),
    "any": Reward(),
    "provisional": Reward(low=0, high=1, window=60, default=0, learn="provisional"),
}
PARAMETERS = (
    "",
    "sigma2=1",
    "horizon=1000",
    "horizon=1000,sigma2=1",
    "threshold=0.5",
    "sigma2=1,threshold=0.5",
)


def has_family(name: str) -> bool:
    with contextlib.suppress(InvalidValue, UnknownName):
        policies.policy(f"{name}:family=bernoulli")
        return True
    return False


SPECS = [
    name + ("" if family is None else f":family={family}")
    for name in policies.names()
    if name != "dmed"  # it works only in simulations
    and not policies.uses_context(name)
    for family in (list(FAMILIES) if has_family(name) else [None])
]


def values(rule: Reward) -> list[float]:
    """Rewards that a rule accepts: its ends, their neighbours, small, large and fractional ones."""
    low, high = rule.bounds
    ends = [low, high, math.nextafter(low, high), math.nextafter(high, low), low + (high - low) / 3]
    offered = [*ends, 0.0, 1.0, 0.5, 5e-324, 1e-300, 1e-9, 1e9, 1e15, -1e-9]
    return [each for each in dict.fromkeys(offered) if accepts(rule, each)]


def accepts(rule: Reward, value: float) -> bool:
    try:
        rule.check(value)
    except InvalidValue:
        return False
    return True


def create(spec: str, rule: Reward) -> Bandit:
    with warnings.catch_warnings(action="ignore"):
        return Bandit(["a", "b", "c"], spec, reward=rule, seed=1)


def completed(spec: str, rule: Reward) -> str | None:
    """The spec with the parameters that the rule requires; None if it is refused with any of them."""
    for more in PARAMETERS:
        text = spec + (f"{',' if ':' in spec else ':'}{more}" if more else "")
        with contextlib.suppress(InvalidValue, UnknownName):
            create(text, rule)
            return text
    return None


@pytest.mark.parametrize("spec", SPECS)
def test_every_accepted_reward_leaves_a_policy_that_can_choose(spec) -> None:
    accepted = 0
    for rule in RULES.values():
        text = completed(spec, rule)
        if text is None:
            continue
        for value in values(rule):
            bandit = create(text, rule)
            accepted += 1
            for _ in range(4):
                for decision in bandit.choose(size=2):
                    bandit.reward(decision, value)
            chosen = bandit.choose()
            assert math.isclose(math.fsum(chosen.probabilities.values()), 1.0, rel_tol=1e-9), (rule, value)
    assert accepted, "no rule is accepted, so nothing was tested"


def test_refusals_name_the_rule() -> None:
    with pytest.raises(
        InvalidValue, match=r"reward: binary: expected true, because giro needs rewards of 0 or 1"
    ):
        Bandit(["a", "b"], "giro", reward=RULES["unit"])
    assert Bandit(["a", "b"], "giro", reward=RULES["clicks"]).choose().arm in "ab"
    for name in ("med", "imed", "kl-ucb", "ms-exponential-family"):
        with pytest.raises(InvalidValue, match=r"reward: low: expected a number > 0"):
            Bandit(["a", "b"], f"{name}:family=exponential", reward=RULES["unit"])
    bandit = Bandit(["a", "b"], "kl-ms", reward=RULES["unit"])
    with pytest.raises(InvalidValue, match="reward: binary"):
        bandit.change_policy("giro")


def test_a_binary_rule_accepts_0_and_1_only() -> None:
    bandit = Bandit(["a", "b"], "giro", reward=Reward.clicks(window="1h", learn="on_arrival"))
    decision = bandit.choose()
    with pytest.raises(InvalidValue, match="value: expected 0 or 1"):
        bandit.reward(decision, 0.5)
    bandit.reward(decision, 1)
    for wrong in ({"low": 0, "high": 2}, {"low": 0, "high": 1, "window": 1, "default": 0.5}, {}):
        with pytest.raises(InvalidValue, match=r"reward: (binary|default)"):
            Reward(**wrong, binary=True)
    with pytest.raises(InvalidValue, match="reward: binary"):
        Reward(low=0, high=1, binary=1)
