"""Every public object has a short representation. Those that notebooks show have HTML, figures and frames."""

from __future__ import annotations

import subprocess
import sys
import warnings
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pandas as pd
import pytest

from maillard import compare, errors, evaluate, policies, policy, simulate_log
from maillard.evaluation.evaluation_page import render
from maillard.figures.drawing import NotebookFigure
from maillard.policies import Policy
from tests.public_objects import EVIL, fresh, large, make, public_classes, tally


@pytest.mark.parametrize("name", sorted(public_classes()))
def test_the_representation_of_every_public_object_fits_on_a_screen(name) -> None:
    made = make(name)
    assert isinstance(made, public_classes()[name])
    shown = repr(made)
    lines = shown.split("\n")
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 110
    assert shown.isprintable() or shown.replace("\n", "").isprintable()
    assert " at 0x" not in shown
    assert repr(made) == shown
    assert "mk_secret" not in shown


NAMES = (
    "Result", "Summary", "Report", "Comparison", "Segments", "LearnedRule", "Replay", "ExplorationPlan",
    "Advice", "Verification", "Decision", "Tally", "LinearTally", "SegmentTally", "Policy",
)  # fmt: skip


def parsed(html: str) -> ET.Element:
    """The elements of a fragment, which must be well-formed."""
    return ET.fromstring(html)  # made by this package


@pytest.mark.parametrize("name", NAMES)
def test_html_is_well_formed_and_loads_and_runs_nothing(name) -> None:
    html = getattr(fresh(), name)._repr_html_()
    tags = {element.tag.rpartition("}")[2] for element in parsed(html).iter()}
    assert tags <= {
        "div", "strong", "span", "table", "caption", "thead", "tbody", "tr", "th", "td", "ul", "li", "code",
        "pre", "details", "summary", "math", "mrow", "mi", "mo", "mn", "msub", "msup", "msubsup", "mfrac",
        "mtext", "mstyle", "mtable", "mtr", "mtd", "mover", "msqrt", "munder", "munderover", "mspace",
    }  # fmt: skip
    attributes = {each for element in parsed(html).iter() for each in element.attrib}
    assert not {each for each in attributes if each.startswith("on")} | ({"src", "href"} & attributes)
    assert "color:#" not in html  # colours are those of the notebook
    assert "url(" not in html


@pytest.mark.parametrize(
    "name",
    ["Advice", "Report", "Comparison", "Segments", "LearnedRule", "Verification", "Decision", "SegmentTally"],
)
def test_names_are_escaped(name) -> None:
    html = getattr(fresh(), name)._repr_html_()
    assert "<script" not in html
    assert "&lt;script&gt;" in html
    assert "<script" not in policies.FixedArm(EVIL)._repr_html_()


@pytest.mark.parametrize("name", NAMES)
def test_plots_are_pictures(name) -> None:
    figure = getattr(fresh(), name).plot()
    assert isinstance(figure, NotebookFigure)
    data, size = figure._repr_png_()
    assert data.startswith(b"\x89PNG")
    assert 200 < size["width"] < 1000


@pytest.mark.parametrize("name", NAMES)
def test_frames_are_tidy_and_their_columns_are_documented(name) -> None:
    made = getattr(fresh(), name)
    frame = made.to_frame()
    assert isinstance(frame, pd.DataFrame)
    assert len(frame)
    assert frame.index.equals(pd.RangeIndex(len(frame)))
    assert frame.columns.is_unique
    documented = made.to_frame.__doc__ + (
        fresh().Report.to_frame.__doc__ if name in ("Segments", "LearnedRule") else ""
    )
    assert [column for column in frame.columns if f"`{column}`" not in documented] == []


@pytest.mark.parametrize("name", NAMES)
def test_tab_completion_lists_names_that_exist(name) -> None:
    made = getattr(fresh(), name)
    listed = [each for each in dir(made) if not each.startswith("_")]
    assert {"plot", "to_frame"} <= set(listed)
    for each in listed:
        getattr(made, each)  # raises nothing: an attribute that is not available is not listed
    hidden = {"count", "index", "json_fields", "add_problem", "registry", "engine_shape", "mean_loss"}
    assert hidden.isdisjoint(set(listed) - {"index"} if name == "Tally" else listed)


def test_characters_that_control_a_terminal_are_escaped() -> None:
    name = "blue\x1b[31m\u202e"
    arm = np.array([name, "red"] * 300)
    table = {"arm": arm, "probability": np.full(600, 0.5), "reward": arm == name, "segment": arm}
    options: dict[str, Any] = {"context": "segment", "reward_range": (0, 1)}
    for target in (name, "red"):
        report = evaluate(table, policies.FixedArm(target), **options)
        by_segment = evaluate(table, policies.FixedArm(target), by="segment", **options)
        for made in (report, by_segment, policies.FixedArm(target)):
            assert repr(made).replace("\n", "").isprintable()
            assert {"\x1b", "\u202e"}.isdisjoint(made._repr_html_())
            parsed(made._repr_html_())
            assert made.plot().axes


def test_values_of_frames() -> None:
    made = fresh()
    curves = made.Result.to_frame()
    last = curves[curves["round"] == 200]
    assert last["mean"].tolist() == pytest.approx(made.Result.final.mean(axis=1).tolist())
    assert last["95%"].tolist() == pytest.approx(np.quantile(made.Result.final, 0.95, axis=1).tolist())
    trials = made.Result.to_frame("trials")
    assert len(trials) == made.Result.values.size
    assert (
        trials.query("policy == 'ts' and trial == 3")["regret"].tolist() == made.Result.values[1, 3].tolist()
    )
    report = made.Report.to_frame().set_index("estimator")
    assert report.loc["snips", "value"] == made.Report["snips"].value
    assert report["recommended"].sum() == 1
    decision = made.Decision.to_frame()
    assert dict(zip(decision["arm"], decision["probability"], strict=True)) == made.Decision.probabilities
    assert decision.loc[decision["chosen"], "arm"].tolist() == [made.Decision.arm]
    assert made.SegmentTally.to_frame()["segment"].tolist() == [f"{EVIL}, de"] * 2
    for kind in ("pie", None):
        with pytest.raises(errors.InvalidValue, match="kind"):
            made.Result.to_frame(kind)


def test_the_frame_of_a_policy_with_a_floor_lists_all_its_parameters() -> None:
    frame = policy("ms+:floor=0.2,booster=8", sigma2=0.25).to_frame().set_index("parameter")
    assert frame.loc[["sigma2", "booster", "floor"], "value"].tolist() == [0.25, 8, 0.2]


def test_comparisons_begin_with_which_target_is_better() -> None:
    log = simulate_log("ms+:floor=0.2", "bernoulli:0.6,0.3,0.29", horizon=3000, seed=1)
    for one, other in (("arm:0", "arm:1"), ("arm:1", "arm:0")):
        shown = compare(log, one, other)
        best: Any = shown.best
        least, most = sorted(map(abs, (best.lower, best.upper)))
        expected = f"arm:0 is better than arm:1: by {least:.3f} to {most:.3f} per decision, with 98.33%"
        assert expected in shown._repr_html_()
        assert expected in render(shown)
    assert (
        "Undecided: the interval of the difference contains 0" in compare(log, "arm:1", "arm:2")._repr_html_()
    )
    assert "Undecided" not in evaluate(log, "arm:1")._repr_html_()


def test_figures_mark_the_estimate_to_read_first() -> None:
    log = simulate_log("ms+:floor=0.2", "bernoulli:0.6,0.3", horizon=1000, seed=1)
    for shown in (evaluate(log, "arm:1"), compare(log, "arm:0", "arm:1")):
        figure = shown.plot()
        texts = [each.get_text() for each in [*figure.texts, *figure.axes[0].texts]]
        texts += [each.get_text() for each in figure.axes[0].get_yticklabels()]
        best: Any = shown.best
        assert [text for text in texts if text.startswith("★ ")] == [f"★ {best.name}"]
        assert any("★: read this one first" in " ".join(text.split()) for text in texts)


def test_the_label_of_the_figure_of_a_policy_is_not_cut_off() -> None:
    figure = policy("ms+:floor=0.2", sigma2=0.25).plot()
    figure.canvas.draw()
    shown = [*figure.texts, *figure.axes[0].texts, figure.axes[0].xaxis.label]
    [label] = [each for each in shown if each.get_text().startswith("mean reward")]
    box = label.get_window_extent()
    room = 0.04 * figure.bbox.width  # the text is wider at some resolutions
    assert room <= box.x0 < box.x1 <= figure.bbox.width - room


def test_many_arms_are_cut_and_counted() -> None:
    html = large().decision._repr_html_()
    assert "and 900 more arms" in html
    assert len(html) < 100_000
    note = [text.get_text() for text in large().decision.plot().texts][-1]
    assert note.startswith("970 more arms have a probability of 97%")
    assert "of 1,000 arms, probability 0.001" in repr(large().decision)
    assert "... 1,000 arms" in repr(tally())
    segments = large().segments
    assert f"and {len(segments) - 30} more segments" in segments._repr_html_()
    note = [text.get_text() for text in segments.plot().texts][-1]
    assert f"{len(segments) - 30} more segments are not shown" in " ".join(note.split())
    assert len(segments.to_frame()["segment"].unique()) == len(segments) + 1
    assert "and 900 more rows" in tally()._repr_html_()


@pytest.mark.parametrize(
    ("package", "statement"),
    [
        ("pandas", "maillard.Tally([1], [1]).to_frame()"),
        ("matplotlib", "maillard.Tally([1], [1]).plot()"),
        ("matplotlib", "maillard.policy('uniform').plot()"),
        ("matplotlib", "maillard.Bandit(['a', 'b'], 'uniform').choose().plot()"),
    ],
)
def test_a_package_that_is_missing_is_named(package, statement) -> None:
    code = f"import sys, maillard\nsys.modules[{package!r}] = None\n{statement}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert f"MaillardError: {package} is not installed: pip install 'maillard[notebook]'" in done.stderr


def test_showing_an_object_loads_no_heavy_package() -> None:
    code = (
        "import sys, maillard\n"
        "policy = maillard.policy('uniform')\n"
        "made = maillard.Bandit(['a', 'b'], policy).choose(), maillard.Tally([1], [1]), policy\n"
        "for each in made: repr(each), each._repr_html_(), dir(each)\n"
        "print([name for name in ('pandas', 'matplotlib', 'numba') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_formula_of_every_policy_is_rendered() -> None:
    from maillard.policies.base.policy_display import formula_html

    classes = [cls for cls in Policy.registry.values() if cls.__module__.startswith("maillard.policies.")]
    assert len(classes) > 40
    for cls in [*classes, policies.WithFloor]:
        element = parsed(f"<div>{formula_html(cls)}</div>")
        (math,) = [each for each in element.iter() if each.tag.endswith("}math")]
        text = "".join(math.itertext())
        assert text.strip(), cls
        assert "\\" not in text, (cls, text)  # a command that was not understood
        assert "Invalid" not in text


def test_the_formula_of_an_own_policy() -> None:
    from maillard.policies.base.policy_display import formula_html

    class Derived(policies.MaillardSampling):
        """Another formula, without LaTeX."""

        formula = "p ∝ exp(-N d² / <3>)"

        def rival(self, n: Any, mean: Any, best: Any, t: Any) -> Any:
            return -n * (best - mean) ** 2 / 3.0

    html = formula_html(Derived)
    assert "<math" not in html
    assert "<code>p ∝ exp(-N d² / &lt;3&gt;)</code>" in html
    assert formula_html(type("Plain", (policies.MaillardSampling,), {})) == formula_html(
        policies.MaillardSampling
    )


def test_without_latex2mathml_the_formula_is_text(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "latex2mathml", None)
    monkeypatch.setitem(sys.modules, "latex2mathml.converter", None)
    assert "<code>p ∝ exp(-N d² / (2 σ²))</code>" in policy("ms", sigma2=1)._repr_html_()


def test_a_policy_draws_its_probabilities() -> None:
    texts = [each.get_text() for each in policy("dist:red=0.7,blue=0.3").plot().axes[0].texts]
    assert {"red", "blue", "70%", "30%"} <= set(texts)
    with pytest.raises(errors.InvalidValue, match="horizon"):
        policy("moss", sigma2=1).plot()
    features = policy("lin-ms", reward_range=(0, 1))
    assert features.plot(fresh().LinearTally, [1, 0.5]).axes
    assert policy("segmented:policy=kl-ms").plot(fresh().SegmentTally, (EVIL, "de")).axes


def test_every_policy_can_be_plotted() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("ms", "ts-bernoulli", "giro", "lin-ts", "igw", "segmented", "moss", "apt"):
            assert make(policies.policy_class(name).__name__).plot().axes, name
