"""Boltzmann exploration: a softmax over means."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from maillard.policies.base import Guarantees, Sampled, choice, linear_regret, real
from maillard.policies.numerics.elementwise import where


class Boltzmann(Sampled):
    """Chooses arms by a softmax over their means, which ignores how often each arm was pulled.

    This is the exploration rule that Maillard sampling replaces.

    >>> from maillard import Tally
    >>> Boltzmann(eta=5).probabilities(Tally([8, 2], [5, 1])).round(4)
    array([0.6514, 0.3486])
    """

    name: ClassVar[str] = "boltzmann"
    monotone: ClassVar[bool] = True
    concentrates: ClassVar[bool] = True
    formula: ClassVar[str] = "p ∝ exp(η_t mean), η_t = η or η ln t"
    latex: ClassVar[str] = (
        r"p_a \propto \, \exp(\eta_t \hat\mu_a), \quad "
        r"\eta_t = \eta \;\text{ or }\; \eta \, \ln \, t"
    )
    reference: ClassVar[str] = "Sutton 1990; Cesa-Bianchi, Gentile, Lugosi and Neu 2017"
    guarantees: ClassVar[Guarantees] = linear_regret(
        "Cesa-Bianchi, Gentile, Lugosi and Neu 2017",
        "Linear with the constant schedule; no monotone schedule is optimal.",
    )

    derived: ClassVar[tuple[str, ...]] = ("grows",)
    eta: float = real("η: inverse temperature", default=1.0, above=0)
    schedule: str = choice("η_t = η, or η ln t", ("constant", "log"), default="constant")

    @property
    def grows(self) -> bool:
        """Whether η_t grows with t."""
        return self.schedule == "log"

    def rival(self, n: Any, mean: Any, best: Any, t: Any) -> Any:
        step = where(self.grows, np.log(t), 1.0)
        return -self.eta * step * (best - mean)
