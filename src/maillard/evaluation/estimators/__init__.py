"""Estimators, one small file each; found by their names."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from maillard.errors import InvalidValue, UnknownName
from maillard.evaluation.estimators.additive import Additive

__all__ = ["additive", "parse"]


@cache
def additive() -> dict[str, type[Additive]]:
    """Every additive estimator, by its name.

    >>> sorted(additive())[:4]
    ['clipped-dr', 'clipped-ips', 'dm', 'dr']
    """
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        importlib.import_module(module.name)
    found: dict[str, type[Additive]] = {}
    waiting = list(Additive.__subclasses__())
    while waiting:
        each = waiting.pop()
        waiting += each.__subclasses__()
        if hasattr(each, "name"):
            found[each.name] = each
    return dict(sorted(found.items()))


def parse(spec: str, known: tuple[str, ...]) -> tuple[str, float | None]:
    """A name and its level, from "clipped-ips:5"; `known` are the names there are.

    >>> parse("clipped-ips:5", ("ips", "clipped-ips"))
    ('clipped-ips', 5.0)
    """
    name, colon, level = spec.partition(":") if isinstance(spec, str) else (spec, "", "")
    if name not in known:
        raise UnknownName("estimator", name, known)
    if not colon:
        return name, None
    try:
        return name, float(level)
    except ValueError:
        raise InvalidValue(f"{name}: level", level, "a number, as in clipped-ips:5") from None
