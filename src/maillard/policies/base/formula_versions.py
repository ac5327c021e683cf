"""Versions of formulas: `verify` recomputes old decisions with the version that they were made with."""

from __future__ import annotations

import copy
from typing import Any, ClassVar, Self, TypeVar


class VersionedFormula:
    """Part of every policy: the version of its formula, and earlier ones."""

    formula_version: ClassVar[int] = 1  # increases when the probabilities of a tally change; stored in logs
    earlier_versions: ClassVar[
        tuple[int, ...]
    ] = ()  # those that can still be computed; declare both together

    def _earlier_version(self, version: int) -> Self | None:
        if version == self.formula_version:
            return self
        if version not in self.earlier_versions or not self._declares_both():
            return None
        earlier = copy.copy(self)
        object.__setattr__(earlier, "formula_version", version)
        return earlier

    @classmethod
    def _declares_both(cls) -> bool:
        """Whether the earlier versions are those of this formula, and not of one that a subclass replaced."""
        names: Any = ("formula_version", "earlier_versions")
        first, second = (next(base for base in cls.__mro__ if name in base.__dict__) for name in names)
        return first is second


Versioned = TypeVar("Versioned", bound=VersionedFormula)


def earlier_version(policy: Versioned, version: int) -> Versioned | None:
    """Return the policy with this version of its formula; None if it is not known.

    >>> from maillard import policy
    >>> made = policy("ts", sigma2=0.25)
    >>> made.formula_version, earlier_version(made, 1).formula_version, earlier_version(made, 9)
    (2, 1, None)
    """
    return policy._earlier_version(version)
