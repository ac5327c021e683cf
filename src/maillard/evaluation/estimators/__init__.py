"""The estimators, one file each; they are found by their names."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from maillard.errors import InvalidValue, UnknownName
from maillard.evaluation import sequential
from maillard.evaluation.estimators.estimator import Estimator

__all__ = ["all_estimators", "parse"]


@cache
def all_estimators() -> dict[str, type[Estimator]]:
    """Every estimator by name: the additive ones in alphabetical order, then the sequential ones.

    >>> list(all_estimators())[:4], list(all_estimators())[-3:]
    (['clipped-dr', 'clipped-ips', 'dm', 'dr'], ['cs-mean', 'cs-arm', 'cs-catoni'])
    """
    for package, path in ((__name__, __path__), (sequential.__name__, sequential.__path__)):
        for module in pkgutil.iter_modules(path, f"{package}."):
            importlib.import_module(module.name)
    found: list[type[Estimator]] = []
    waiting = list(Estimator.__subclasses__())
    while waiting:
        cls = waiting.pop()
        waiting += cls.__subclasses__()
        if hasattr(cls, "name"):
            found.append(cls)
    found.sort(key=lambda cls: (cls.sequential, cls.order if cls.sequential else 0, cls.name))
    return {cls.name: cls for cls in found}


def parse(spec: str) -> tuple[type[Estimator], float | None]:
    """An estimator and its level, from "clipped-ips:5".

    >>> parse("clipped-ips:5")[1]
    5.0
    """
    name, colon, level = spec.partition(":") if isinstance(spec, str) else (spec, "", "")
    if name not in all_estimators():
        raise UnknownName("estimator", name, all_estimators())
    try:
        return all_estimators()[name], float(level) if colon else None
    except ValueError:
        raise InvalidValue(f"{name}: level", level, "a number, as in clipped-ips:5") from None
