"""The study of late rewards: its simulation agrees with the package's, and the page has its numbers."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from benchmarks.late_rewards import RATES, Setting, probabilities, regrets, table
from maillard import Tally, policy, simulate

DOCS = Path(__file__).parent.parent.parent / "docs"
SETTING = Setting(200, None)


def test_probabilities_of_many_tallies_are_those_of_the_policy() -> None:
    rng = np.random.default_rng(1)
    n = rng.integers(0, 30, (200, 4)).astype(float)
    s = rng.binomial(n.astype(int), 0.4).astype(float)
    n[0] = s[0] = 0  # all arms cold
    chosen = policy("kl-ms+")
    for row, p in enumerate(probabilities(chosen, n, s)):
        np.testing.assert_allclose(p, chosen.probabilities(Tally(n[row].astype(int), s[row])), atol=1e-14)


@pytest.mark.parametrize(("method", "delay"), [("no delay", ""), ("on_close", ",delay=fixed:200")])
def test_regrets_agree_with_simulate(method, delay) -> None:
    found = regrets("kl-ms+", method, SETTING, horizon=1500, trials=300, seed=1)[-1]
    problem = f"bernoulli:{','.join(map(str, RATES))}{delay}"
    reference = simulate("kl-ms+", problem, horizon=1500, trials=1000, seed=1).final_regret[0]
    error = np.hypot(found.std() / np.sqrt(found.size), reference.std() / np.sqrt(reference.size))
    assert abs(found.mean() - reference.mean()) < 4 * error
    # The negative control: without the delay, the regret is smaller.
    wrong = regrets("kl-ms+", "no delay", SETTING, horizon=1500, trials=300, seed=2)[-1]
    assert (method == "no delay") or reference.mean() - wrong.mean() > 4 * error


def test_all_methods_learn_every_click_in_the_end() -> None:
    """After one window without choices that matter, all methods have seen the same pulls."""
    equal = (0.5, 0.5)
    for method in ("provisional", "on_arrival", "on_close"):
        found = regrets("ts-bernoulli", method, SETTING, horizon=300, trials=5, seed=1, rates=equal)
        assert not found.any()


def test_the_page_has_the_numbers_of_the_data() -> None:
    data = json.loads((DOCS / "data" / "late-rewards.json").read_text())
    page = (DOCS / "how-to" / "late-rewards.md").read_text(encoding="utf8")
    assert table(data) in page
    assert f"mean of {data['trials']} trials" in page


def test_the_page_shows_the_output_of_its_example(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    page = (DOCS / "how-to" / "late-rewards.md").read_text(encoding="utf8")
    (code,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    exec(compile(code, "late-rewards.md", "exec", dont_inherit=True), {})
    assert f"```text\n{capsys.readouterr().out}```" in page
