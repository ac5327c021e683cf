"""How a verification is shown in a notebook: text, HTML, a figure and a data frame."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from maillard import html_fragments
from maillard.errors import InvalidValue
from maillard.optional_packages import data_frame, needs_extra
from maillard.short_reprs import fit_screen

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

_DRAWN, _LISTED = 30, 100  # arms in a figure, and in an HTML table
_WEIGHTS = "(sum of weights)"


class VerificationDisplay:
    """The methods of `Verification` for notebooks."""

    def __repr__(self: Any) -> str:
        title = f"Verification of experiment {self.experiment!r} in {self.source}: {self.verdict}"
        lines = [*_facts(self), *(f"problem: {each}" for each in _problems(self))]
        return fit_screen("\n".join([title, *(f"  {line}" for line in lines)]))

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if name != "add_problem"]

    def _repr_html_(self: Any) -> str:
        scores = _rows(self)
        rows = [
            (row["arm"], row["chosen"], f"{row['expected']:,.1f}", _score_text(row["z"])) for row in scores
        ]
        marked = [place for place, row in enumerate(scores) if not row["consistent"]]
        caption = f"Do the choices agree with their probabilities? A correct log has |z| < {self.limit:.2f}"
        listed = rows[:_LISTED]
        return html_fragments.fragment(
            f"Verification: {self.verdict}",
            html_fragments.items(_facts(self)),
            html_fragments.items(_problems(self), title="Problems:"),
            html_fragments.table(["arm", "chosen", "expected", "z"], listed, marked=marked, caption=caption)
            if rows
            else "",
            html_fragments.more_rows(len(rows) - len(listed), "rows"),
            facts=f"experiment {self.experiment!r} in {self.source}",
        )

    @needs_extra("notebook")
    def plot(self: Any) -> Figure:
        """Return a figure of the audit: how far each arm's choices are from their expectation, as z scores.

        The interval of an arm is that of a correct log. Of many arms, those with the largest |z| are shown.

        >>> from maillard import Bandit, verify
        >>> bandit = Bandit(["red", "blue"], "uniform", seed=1)
        >>> _ = bandit.choose(size=200)
        >>> verify(bandit).plot()  # doctest: +ELLIPSIS
        <...Figure size ...>
        """
        from maillard import figures

        known = [row for row in _rows(self) if not math.isnan(row["z"])]
        if not known:
            raise InvalidValue("verification", self.verdict, "one with enough decisions for an audit")
        largest = {id(row) for row in sorted(known, key=lambda row: -abs(row["z"]))[:_DRAWN]}
        shown = [row for row in known if id(row) in largest]
        left = len(known) - len(shown)
        return figures.forest(
            [row["arm"] for row in shown],
            [row["z"] for row in shown],
            [-self.limit] * len(shown),
            [self.limit] * len(shown),
            label="z: chosen minus expected, in standard deviations",
            title=f"Audit of the choices: {self.verdict}",
            reference=0.0,
            note="line: the range of z in a correct log" + (f"; {left:,} more arms" if left else ""),
        )

    def to_frame(self: Any) -> DataFrame:
        """Return the audit as a pandas data frame with a row for each arm, and one for the weights 1/p.

        The columns are `arm`, `chosen` (how often), `expected` (by the logged probabilities), `variance`,
        `z` (NaN if there is not enough data) and `consistent` (whether |z| is within the limit).

        >>> from maillard import Bandit, verify
        >>> bandit = Bandit(["red", "blue"], "uniform", seed=1)
        >>> _ = bandit.choose(size=200)
        >>> verify(bandit).to_frame()[["arm", "expected", "consistent"]].values.tolist()
        [['red', 100.0, True], ['blue', 100.0, True], ['(sum of weights)', 400.0, True]]
        """
        rows = _rows(self)
        names = ("arm", "chosen", "expected", "variance", "z", "consistent")
        return data_frame({name: [row[name] for row in rows] for name in names})


def _rows(found: Any) -> list[dict[str, Any]]:
    """The scores of the audit: of each arm, then of the importance weights."""
    scores = [(each.name, each) for each in found.arms]
    scores += [] if found.weights is None else [(_WEIGHTS, found.weights)]
    return [
        {
            "arm": name,
            "chosen": score.observed,
            "expected": score.expected,
            "variance": score.variance,
            "z": math.nan if score.z is None else score.z,
            "consistent": score.z is None or abs(score.z) <= found.limit,
        }
        for name, score in scores
    ]


def _facts(found: Any) -> list[str]:
    """What was verified, in words."""
    facts = [f"{found.decisions:,} decisions, {found.problem_count:,} problems"]
    if found.recomputed:
        facts.append(f"{found.recomputed:,} recomputed, largest difference {found.largest_error:.2g}")
    facts += [f"{count:,} not recomputed: {reason}" for reason, count in found.not_recomputed.items()]
    if found.not_audited:
        facts.append(f"{found.not_audited:,} not audited: repeats, or not all probabilities are known")
    scores = [abs(row["z"]) for row in _rows(found) if not math.isnan(row["z"])]
    if scores:
        facts.append(
            f"audit of {len(found.arms):,} arms: largest |z| {max(scores):.2f}, limit {found.limit:.2f}"
        )
    if found.chain is not None:
        facts.append(f"hash chain: {found.chain.commits:,} commits up to {found.chain.head[:12]}...")
    if found.seeded:
        facts.append("choices were made with a seed: anyone who knows it can predict them")
    if found.simulated_clock:
        facts.append("times come from a clock that the caller provided")
    return facts


def _score_text(z: float) -> str:
    return "–" if math.isnan(z) else f"{z:.2f}"


def _problems(found: Any) -> list[str]:
    listed = [f"{each.decision or 'the log'}: {each.what}" for each in found.problems]
    left = found.problem_count - len(listed)
    return [*listed, f"... and {left:,} more"] if left > 0 else listed
