"""Bar charts of the probabilities of arms."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from maillard.figures.bar_charts import bars
from maillard.html_fragments import percent

_DRAWN = 30


def probabilities(
    names: Sequence[str], values: ArrayLike, *, title: str, chosen: str | None = None
) -> Figure:
    """Draw a bar for the probability of each arm; the chosen one is bold.

    Of many arms, the 30 with the largest probabilities are shown, and the chosen one.
    """
    p = np.asarray(values, float)
    shown = np.argsort(-p, kind="stable")[:_DRAWN]
    if chosen is not None and (place := list(names).index(chosen)) not in shown:
        shown[-1] = place
    shown = np.sort(shown)
    left = p.size - shown.size
    rest = percent(max(0.0, float(p.sum() - p[shown].sum())))
    return bars(
        [names[place] for place in shown],
        p[shown],
        values=[percent(float(p[place])) for place in shown],
        limit=float(p[shown].max()) or 1.0,
        label="probability",
        title=title,
        emphasised=[] if chosen is None else [chosen],
        note=f"{left:,} more arms have a probability of {rest} together" if left else "",
    )
