"""Minimum empirical divergence (MED)."""

from __future__ import annotations

from typing import ClassVar

from maillard.policies.base import Guarantees
from maillard.policies.maillard_sampling_exponential_family import ExponentialFamilyMaillardSampling


class MinimumEmpiricalDivergence(ExponentialFamilyMaillardSampling):
    """Chooses arms by MED for a parametric reward family; with the Gaussian family it equals `ms`.

    Non-parametric MED is not available: it needs every reward, and a tally contains only their sum.

    >>> from maillard import Tally
    >>> MinimumEmpiricalDivergence(sigma2=0.25).probabilities(Tally([8, 2], [5, 1])).round(4)
    array([0.5156, 0.4844])
    """

    name: ClassVar[str] = "med"
    formula: ClassVar[str] = "p ∝ exp(-N D(mean, best mean)); Gaussian: the same as ms"
    latex: ClassVar[str] = r"p_a \propto \, \exp\left(-N_a D(\hat\mu_a, \hat\mu_{\max})\right)"
    reference: ClassVar[str] = "Honda and Takemura 2011"
    guarantees: ClassVar[Guarantees] = Guarantees(
        asymptotically_optimal=True,
        source="Honda and Takemura 2011; Bian and Jun 2022, Section 3",
        note="Proved for rewards of finite support; family=gaussian has every guarantee of ms.",
    )
