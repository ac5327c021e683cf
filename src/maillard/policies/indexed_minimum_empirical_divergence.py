"""Indexed minimum empirical divergence (IMED)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from maillard.policies.base import FamilyRewards, Guarantees, Indexed, IndexForm


class IndexedMinimumEmpiricalDivergence(FamilyRewards, Indexed):
    """Chooses the arm that minimises N KL(mean, best mean) + ln N.

    With the Gaussian family, the first term is the exponent of Maillard sampling.

    >>> from maillard import Tally
    >>> IndexedMinimumEmpiricalDivergence(sigma2=0.25).probabilities(Tally([8, 2], [5, 1]))
    array([0., 1.])
    """

    name: ClassVar[str] = "imed"
    monotone: ClassVar[bool] = True
    index_form: ClassVar[IndexForm | None] = "quadratic"  # of the Gaussian family
    uses_round: ClassVar[bool] = False
    formula: ClassVar[str] = "argmin N KL(mean, best mean) + ln N"
    latex: ClassVar[str] = r"\argmin_a \; N_a \, \mathrm{KL}(\hat\mu_a, \hat\mu_{\max}) + \ln \, N_a"
    reference: ClassVar[str] = "Honda and Takemura 2015; Bian and Jun 2022, appendix"
    guarantees: ClassVar[Guarantees] = Guarantees(
        asymptotically_optimal=True,
        source="Honda and Takemura 2015",
        note="For bounded and semi-bounded rewards; not reported for the Gaussian form.",
    )

    def __post_init__(self, reward_range: tuple[float, float] | None = None) -> None:
        super().__post_init__(reward_range)
        if self.family != "gaussian":
            object.__setattr__(self, "index_form", None)

    def index(self, n: Any, mean: Any, best: Any, t: Any, k: Any) -> Any:
        return -(n * self.divergence(mean, best, self.sigma2) + np.log(n))
