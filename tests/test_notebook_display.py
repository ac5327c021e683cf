"""A notebook shows objects as tables and figures as pictures."""

from __future__ import annotations

import base64
from io import BytesIO
from typing import Any

import matplotlib.image
import nbformat
import pytest
from nbclient import NotebookClient

CELLS = (
    "from maillard import Tally, policy, simulate",
    "Tally([4, 2], [3, 1])",
    "policy('ms+:booster=8', sigma2=0.25)",
    "simulate(['ms+', 'ts'], 'bernoulli:0.6,0.4', horizon=50, trials=5).plot()",
)


def outputs_of(*cells: str) -> list[dict[str, Any]]:
    """The output of each cell that has one, by type."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    shown = [cell.outputs for cell in notebook.cells if cell.outputs]
    assert all(len(outputs) == 1 for outputs in shown)
    return [outputs[0] for outputs in shown]


@pytest.mark.parametrize("before", ["", "%matplotlib inline\nimport matplotlib.pyplot"])
def test_a_cell_shows_what_it_returns(before) -> None:
    tally, policy, figure = outputs_of(before or "1;", *CELLS)
    assert "<table" in tally["data"]["text/html"]
    assert tally["data"]["text/plain"] == "Tally(pulls=[4, 2], sums=[3.0, 1.0])"
    assert "<math" in policy["data"]["text/html"]
    picture = base64.b64decode(figure["data"]["image/png"])
    pixels = matplotlib.image.imread(BytesIO(picture))
    assert pixels[0, 0].tolist() == [1.0, 1.0, 1.0, 1.0]  # white and opaque, for dark themes
    assert pixels.min() < 0.3  # and something is drawn
    if not before:
        assert figure["metadata"]["image/png"] == {"width": 774, "height": 432}
