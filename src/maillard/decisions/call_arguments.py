"""Checks of the arguments that `Bandit` and the client have in common. They do not need NumPy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from numbers import Integral
from typing import Any, NamedTuple

from maillard.decisions.identifiers import check_name
from maillard.decisions.raw_contexts import NO_CONTEXT, RawContext, check_context
from maillard.decisions.reward_rule import Reward
from maillard.errors import InvalidValue

_MAX_SIZE = 100_000  # decisions of one call
DEFAULT_FLOOR = 0.1
"The floor of the default policy: at most a tenth of the decisions explore at random."


class Request(NamedTuple):
    """The arguments of a `choose` call."""

    unit: str | None
    eligible: frozenset[str] | None
    key: str | None
    size: int
    contexts: tuple[RawContext, ...] = (NO_CONTEXT,)
    "One for all decisions, or one for each."

    @property
    def each_context(self) -> tuple[RawContext, ...]:
        """The context of each decision."""
        return self.contexts if len(self.contexts) == self.size else self.contexts * self.size


def check_arms(arms: Iterable[str], *, allow_none: bool = False) -> list[str]:
    """The names of arms as a list, or InvalidValue."""
    if isinstance(arms, str | bytes) or not isinstance(arms, Iterable):
        raise InvalidValue("arms", arms, "a list of names")
    names = [check_name("arm", arm) for arm in arms]
    if not names and not allow_none:
        raise InvalidValue("arms", names, "at least one name")
    if len(set(names)) < len(names):
        raise InvalidValue("arms", max(names, key=Counter(names).__getitem__), "each name once")
    return names


def check_rule(reward: Reward | None) -> Reward:
    """The given reward rule, or the one that accepts any finite reward."""
    if reward is not None and not isinstance(reward, Reward):
        raise InvalidValue("reward", reward, "Reward(low=..., high=..., ...)")
    return reward or Reward()


def default_policy(rule: Reward, *, linear: bool = False) -> str:
    """The policy of an experiment that names none. Its floor makes every arm evaluable from the log.

    `linear`: whether the experiment has features.

    >>> default_policy(Reward.clicks(window="1h"))
    'kl-ms+:floor=0.1'
    """
    if rule.range is None:
        allowed = "a policy such as 'ms+:sigma2=1', or low and high of the rewards, which imply one"
        raise InvalidValue("policy", None, allowed)
    return f"{'lin-ms' if linear else 'kl-ms+' if rule.is_binary else 'ms+'}:floor={DEFAULT_FLOOR:g}"


def check_request(
    unit: object,
    eligible: object,
    idempotency_key: object,
    size: Any = None,
    *,
    context: object = None,
    actions: object = None,
) -> Request:
    """Check the arguments of `choose`. `context` is a mapping, or a list with one for each decision."""
    contexts = _check_contexts(context, actions)
    if isinstance(context, list | tuple):
        if size not in (None, len(contexts)):
            raise InvalidValue("size", size, f"None, or {len(contexts)}: the number of contexts")
        size = len(contexts)
    if size is None:
        size = 1
    elif isinstance(size, bool) or not isinstance(size, Integral) or not 0 <= int(size) <= _MAX_SIZE:
        raise InvalidValue("size", size, f"a whole number from 0 to {_MAX_SIZE}")
    return Request(
        unit=None if unit is None else check_name("unit", unit),
        eligible=None if eligible is None else _check_eligible(eligible),
        key=None if idempotency_key is None else check_name("idempotency_key", idempotency_key),
        size=int(size),
        contexts=contexts,
    )


def _check_contexts(context: object, actions: object) -> tuple[RawContext, ...]:
    if isinstance(context, list | tuple):
        return tuple(
            check_context(each, actions, where=f"contexts[{place}]: ") for place, each in enumerate(context)
        )
    if context is None and actions is None:
        return (NO_CONTEXT,)
    if context is not None and not isinstance(context, Mapping):
        allowed = "a mapping such as {'device': 'phone'}, or a list with one for each decision"
        raise InvalidValue("context", context, allowed)
    return (check_context(context, actions),)


def _check_eligible(eligible: object) -> frozenset[str]:
    """Check the names of eligible arms."""
    if isinstance(eligible, str | bytes) or not isinstance(eligible, Iterable):
        raise InvalidValue("eligible", eligible, "names of arms, such as ['red', 'blue']")
    names = frozenset(check_name("eligible arm", arm) for arm in eligible)
    if not names:
        raise InvalidValue("eligible", [], "at least one arm")
    return names
