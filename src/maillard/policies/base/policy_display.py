"""How policies are shown in a notebook: HTML with the formula, a figure and a data frame."""

from __future__ import annotations

import inspect
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from maillard import html_fragments, specs
from maillard.html_fragments import Html
from maillard.linear_tally import LinearTally
from maillard.optional_packages import data_frame, mathml, needs_extra
from maillard.tally import Tally

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

_PULLS, _POINTS = (16, 64, 256), 16  # pulls of either arm, and intervals between the means, of a curve
# What only the authors of policies need. Tab completion leaves it out.
_DECLARATIONS = {
    "compares_means", "concentrates", "derived", "engine_shape", "has_memory", "has_potential",
    "index_form", "latex", "monotone", "potential", "registry", "slope", "solves_many", "squared_gap",
    "uses_best", "uses_leaders", "uses_round", "uses_uncertainty",
}  # fmt: skip
_SYMBOLS = (
    "Of arm a: N pulls, S sum of rewards, μ̂ = S / N, d its gap to the best mean. t: the round, K: the "
    "number of arms, T: the horizon, a leader: an arm with the best mean"
)
_LINEAR_SYMBOLS = (
    "Of arm a: μ its estimate in this context, s the uncertainty of the estimate, g its gap to the largest "
    "estimate. t: the round, K: the number of arms, a leader: an arm with the largest estimate"
)


class PolicyDisplay:
    """The methods of `Policy` for notebooks."""

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if name not in _DECLARATIONS]

    def to_frame(self: Any) -> DataFrame:
        """Return the parameters as a pandas data frame with a row for each.

        The columns are `parameter`, `value`, `default` (missing if there is none), `meaning` and `allowed`.
        The parameters of a policy with a floor come before that of the floor.

        >>> from maillard import policy
        >>> policy("ms+:booster=8", sigma2=0.25).to_frame()[["parameter", "value", "default"]]
          parameter  value  default
        0    sigma2   0.25      NaN
        1   booster   8.00     4.00
        2         c   0.01     0.01
        3         d   0.01     0.01
        """
        inner = getattr(self, "policy", None)
        rows = [*([] if inner is None else inner._parameter_rows()), *self._parameter_rows()]
        names = ("parameter", "value", "default", "meaning", "allowed")
        return data_frame({name: [row[place] for row in rows] for place, name in enumerate(names)})

    @needs_extra("notebook")
    def plot(self: Any, tally: Any = None, x: Any = None, *, round: int | None = None) -> Figure:
        """Return a figure of the probability of each arm, given a tally (and a context `x` if it uses one).

        Without a tally, the figure shows how the policy explores: the probability of the second of two arms
        as its mean reward varies, after 16, 64 and 256 pulls of either arm. The mean of the first arm is in
        the middle. Of many arms, the 30 with the largest probabilities are shown.

        >>> from maillard import Tally, policy
        >>> chosen = policy("ms+", sigma2=0.25)
        >>> chosen.plot(), chosen.plot(Tally([4, 4], [3, 2]))  # doctest: +ELLIPSIS
        (<...Figure size ...>, <...Figure size ...>)
        """
        from maillard import figures

        known: dict[str, float] = self._known_probabilities()
        if tally is not None:
            context = {} if x is None else {"x": x}
            found = self.probabilities(tally, **context, round=round)
            known = {str(arm): probability for arm, probability in enumerate(found.tolist())}
        if known:
            return figures.probabilities(list(known), list(known.values()), title=str(self))
        return _draw_curves(self)

    def _known_probabilities(self) -> dict[str, float]:
        """The probabilities that are the same for every tally, by the name or position of the arm."""
        return {}

    def _parameter_rows(self: Any) -> list[tuple[str, Any, Any, str, str]]:
        return [
            (name, getattr(self, name), default, parameter.meaning, parameter.allowed)
            for name, parameter, default in self.parameters()
        ]

    def _repr_html_(self: Any) -> str:
        inner = getattr(self, "policy", None)
        facts = [(name, text) for name, text in _facts(self) if text]
        rows = [
            (html_fragments.code(name), _shown(value), meaning)
            for name, value, _, meaning, _ in self._parameter_rows()
        ]
        summary = inspect.cleandoc(type(self).__doc__ or "").split("\n\n")[0]
        return html_fragments.fragment(
            type(self).__name__,
            Html(f"<div>{html_fragments.html(' '.join(summary.split()))}</div>"),
            formula_html(type(self)),
            html_fragments.table(["parameter", "value", "meaning"], rows) if rows else "",
            html_fragments.details("Properties and references", html_fragments.table([], facts)),
            "" if inner is None else inner._repr_html_(),
            facts=str(self),
        )


def formula_html(cls: Any) -> Html:
    """The formula of a policy class: MathML if the class declares its LaTeX, else the plain text."""
    declared = next((base for base in cls.__mro__ if "formula" in base.__dict__), cls)
    if not declared.formula:
        return Html("")
    # An inherited `latex` is not that of a subclass with another formula.
    rendered = mathml(declared.__dict__.get("latex", ""))
    symbols = _LINEAR_SYMBOLS if getattr(cls, "uses_context", False) else _SYMBOLS
    if "policy" in getattr(cls, "__dataclass_fields__", {}):
        symbols = "p: the probability that the policy below has. t: the round, K: the number of arms"
    return Html(
        f'<div style="margin:.6em 0;font-size:115%">{rendered or html_fragments.code(declared.formula)}</div>'
        f'<div style="opacity:.7;font-size:90%">{symbols}</div>'
    )


def _facts(policy: Any) -> list[tuple[str, str]]:
    """The properties of a policy in words."""
    from maillard.policies.table import columns_of, table_row

    low, high = policy.support
    ends = [f"from {low:g}" if low > -math.inf else "", f"to {high:g}" if high < math.inf else ""]
    cells = dict(zip(columns_of(policy), table_row(policy), strict=True))
    elsewhere = ("policy", "rule", "source", "probabilities")
    kept = [(name, text) for name, text in cells.items() if name not in elsewhere]
    return [
        ("probabilities", policy.probability_kind),
        ("rewards", " ".join(each for each in ends if each)),
        *kept,
        ("note", policy.guarantees.note),
        ("source of the guarantees", policy.guarantees.source),
        ("reference", policy.reference),
    ]


def _shown(value: Any) -> Any:
    """A parameter as it is written in a spec, or a number."""
    is_number = isinstance(value, float | int) and not isinstance(value, bool)
    return value if value is None or is_number else specs.write_value(value)


def _draw_curves(policy: Any) -> Figure:
    """A figure of the probability of the second of two arms as its mean varies."""
    from maillard import figures

    low, high = _range_of(policy)
    middle = (low + high) / 2
    means = np.linspace(low, high, _POINTS + 1)
    if policy.requires_positive_rewards:
        means = means[1:]
    curves = np.array(
        [[_second_probability(policy, pulls, middle, float(mean)) for mean in means] for pulls in _PULLS]
    )
    return figures.sweep(
        means,
        [f"{pulls} pulls each" for pulls in _PULLS],
        curves,
        curves,
        curves,
        xlabel=f"mean reward of the second arm (first: {middle:g})",
        label="probability of the second of two arms",
        title=str(policy),
        xscale="linear",
        top=1.02,
    )


def _range_of(policy: Any) -> tuple[float, float]:
    """The means that a curve covers: the range of rewards, or one standard deviation on each side."""
    inner = getattr(policy, "policy", policy)
    if policy.uses_context and getattr(inner, "reward_range", None) is not None:
        low, high = inner.reward_range
        return float(low), float(high)
    low, high = policy.support
    spread = math.sqrt(getattr(inner, "sigma2", None) or 0.25)
    if high < math.inf:
        return low, high
    return (low, low + 2 * spread) if low > -math.inf else (-spread, spread)


def _second_probability(policy: Any, pulls: int, first: float, second: float) -> float:
    if not policy.uses_context:
        tally = Tally([pulls, pulls], [pulls * first, pulls * second])
        return float(policy.probabilities(tally)[1])
    linear = LinearTally.empty(features=1, arms=2)
    for arm, mean in enumerate((first, second)):
        for _ in range(pulls):
            linear.add([1.0], mean, arm=arm)
    return float(policy.probabilities(linear, [1.0])[1])
