"""Uniform choice."""

from __future__ import annotations

from typing import Any, ClassVar

from maillard.policies.base import Guarantees, Sampled, linear_regret


class Uniform(Sampled):
    """Chooses every eligible arm with the same probability and ignores all rewards.

    >>> from maillard import Tally
    >>> Uniform().probabilities(Tally([8, 2], [5, 1]))
    array([0.5, 0.5])
    """

    name: ClassVar[str] = "uniform"
    monotone: ClassVar[bool] = True
    concentrates: ClassVar[bool] = True
    formula: ClassVar[str] = "p = 1 / K"
    latex: ClassVar[str] = r"p_a = \frac{1}{K}"
    reference: ClassVar[str] = "a randomised experiment"
    guarantees: ClassVar[Guarantees] = linear_regret("immediate: the regret is T times the mean gap")

    def rival(self, n: Any, mean: Any, best: Any, t: Any) -> Any:
        return 0.0 * n
