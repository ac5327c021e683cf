"""Figures: no overlapping text, clean SVG, reproducible bytes and distinguishable colours."""

from __future__ import annotations

import re
from itertools import combinations, pairwise
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text

from maillard import figures
from maillard.figures.labels import find_free_position, spread_labels
from maillard.figures.style import COLOURS, DASHES, GRID, INK, MARKERS, MUTED, PANEL, RC, series_styles

RNG = np.random.default_rng(7)
POLICIES = (
    "ms+:booster=4", "ms+:booster=8", "ms+:booster=16", "ts", "ts-sg", "aoucb", "ucb+", "ocucb", "moss", "ms",
    "ucb1", "imed", "boltzmann", "boltzmann-gumbel:scale=1,horizon=20000",
)  # fmt: skip
MEANS = np.array([27.8, 21.8, 19.4, 20.8, 63.7, 44.8, 21.7, 14.9, 27.2, 28.5, 111.0, 21.9, 84.5, 1e5])
DEVIATIONS = np.array([63.4, 3.8, 4.9, 4.9, 6.4, 6.2, 3.5, 7.6, 4.2, 4.7, 8.5, 3.6, 4.4, 3e4])
ROUNDS = np.unique(np.geomspace(1, 20_000, 60).astype(np.int64))
BOOSTERS = (2, 4, 8, 16, 32, 64, 128)
BOUNDS = (
    figures.Reference("Lai–Robbins", ROUNDS, 4.5 * np.log(ROUNDS)),
    figures.Reference("Theorem 1", ROUNDS, 60 * np.log(ROUNDS) + 40, ":"),
    figures.Reference("Theorem 2", ROUNDS, 50 * np.sqrt(ROUNDS)),
    figures.Reference("out of sight", ROUNDS, np.full(ROUNDS.size, 1e9)),
)


def draw_bars(names=POLICIES, means=MEANS, deviations=DEVIATIONS, **options) -> Figure:
    return figures.bars(names, means, deviations, label="mean regret", **options)


def draw_sweep(count=4, x=BOOSTERS, middle=None, **options) -> Figure:
    shape = (count, len(x))
    middle = 20 + 10 * RNG.random(shape) if middle is None else np.full(shape, float(middle))
    return figures.sweep(
        x,
        POLICIES[:count],
        middle,
        middle - 2,
        middle + 2,
        xlabel="booster B",
        label="mean regret",
        **options,
    )


def draw_curves(count=6, size=PANEL, scale=1.0, **options) -> Figure:
    middle = scale * MEANS[:count, None] * np.log1p(ROUNDS)
    return figures.curves(
        ROUNDS, POLICIES[:count], middle, middle * 0.8, middle * 1.3, label="regret", size=size, **options
    )


def draw_frontier(**options) -> Figure:
    up = np.array([20.0, 16.0, 13.0, 11.0, 10.0, 9.5, 9.2])
    labels = [[f"B={b}" for b in BOOSTERS], [f"B={b}" for b in BOOSTERS], ["σ²=2"]]
    means = [30 - up / 2, 30 - up / 2 + 0.1, [26.0]]
    return figures.frontier(["ms+", "ms-practical", "ts"], means, [up, up + 0.3, [12.0]], labels, **options)


def draw_distributions(count=14, trials=200, size=PANEL, values=None, **options) -> Figure:
    values = RNG.lognormal(1, 1, (count, trials)) if values is None else np.full((count, trials), values)
    return figures.distributions(POLICIES[:count], values, label="final regret", size=size, **options)


def draw_tails(count=14, trials=2000, values=None, **options) -> Figure:
    values = RNG.lognormal(1, 1.5, (count, trials)) if values is None else np.full((count, trials), values)
    return figures.tails(POLICIES[:count], values, label="final regret", **options)


def draw_forest(
    names=POLICIES[:6], values=(0.5, 0.52, np.nan, 0.48, 0.505, 0.4), half=0.03, **options
) -> Figure:
    middle = np.array(values[: len(names)])
    return figures.forest(names, middle, middle - half, middle + half, label="mean reward", **options)


WITH_ZEROS = np.where(RNG.random((3, 20_000)) < 0.2, 0.0, RNG.lognormal(1, 2, (3, 20_000)))
LONG = "A title that is much too long for a panel and has to be broken into lines, as often as it takes"
CASES = {
    "bars": lambda: draw_bars(
        shaded=POLICIES[:3], hatched=POLICIES[2:5], emphasised=POLICIES[:1], title="Bars"
    ),
    "bars: one": lambda: draw_bars(["ms"], [3.0], [1.0]),
    "bars: zeros": lambda: draw_bars(["ms", "ts"], [0.0, 0.0], [0.0, 0.0]),
    "bars: equal": lambda: draw_bars(["ms", "ts"], [5.0, 5.0], [0.0, 0.0], style_indices=(3, 12)),
    "bars: two, one huge": lambda: draw_bars(["ms", "ts"], [5.0, 5e6], [1.0, 1e3]),
    "bars: limit": lambda: draw_bars(
        limit=25.0, note="grey: no guarantee; hatched: needs the horizon", title=LONG
    ),
    "sweep": lambda: draw_sweep(
        references=[
            figures.Reference("aoucb", (2, 128), (22, 22)),
            figures.Reference("B = 8", (8, 8), (0, 99)),
        ]
    ),
    "sweep: one point": lambda: draw_sweep(1, (4,), title="One"),
    "sweep: from zero": lambda: draw_sweep(2, (0, 1, 10, 100, 1000), title="Delay"),
    "sweep: equal, linear": lambda: draw_sweep(5, (0.25, 0.5, 1.0), 7.0, xscale="linear"),
    "sweep: zeros, log": lambda: draw_sweep(2, middle=0.0, yscale="log"),
    "sweep: many": lambda: draw_sweep(
        14, np.geomspace(1, 1000, 40), ticks=(1, 10, 100, 1000), style_indices=range(3, 17)
    ),
    "curves": lambda: draw_curves(title="Curves", references=BOUNDS),
    "curves: log": lambda: draw_curves(yscale="log", references=BOUNDS, note="with bounds"),
    "curves: top": lambda: draw_curves(top=200.0),
    "curves: all, large": lambda: draw_curves(14, (8.6, 4.8), references=BOUNDS[:1]),
    "curves: all, panel": lambda: draw_curves(14),
    "curves: zeros": lambda: draw_curves(2, scale=0.0),
    "curves: zeros, log": lambda: draw_curves(1, scale=0.0, yscale="log"),
    "frontier": lambda: draw_frontier(title="Frontier"),
    "frontier: log": lambda: draw_frontier(xscale="log", yscale="log"),
    "frontier: a point": lambda: figures.frontier(["ms"], [[3.0]], [[0.0]], [["B=4"]]),
    "distributions": draw_distributions,
    "distributions: large": lambda: draw_distributions(size=None, title="Large"),
    "distributions: one trial": lambda: draw_distributions(1, 1),
    "distributions: zeros": lambda: draw_distributions(3, values=0.0),
    "distributions: equal": lambda: draw_distributions(3, values=4.0),
    "distributions: some zeros": lambda: figures.distributions(
        POLICIES[:3], WITH_ZEROS, label="final regret"
    ),
    "tails": lambda: draw_tails(mark=(450.5, "450.5 in the paper")),
    "tails: one trial": lambda: draw_tails(1, 1),
    "tails: zeros": lambda: draw_tails(2, values=0.0),
    "tails: equal": lambda: draw_tails(2, values=3.0, mark=(2.0, "2 in the paper")),
    "forest": lambda: draw_forest(
        title="Forest", style_indices=(0, 0, 0, 1, 1, 1), hollow=POLICIES[:2], note="hollow: a caveat"
    ),
    "forest: differences": lambda: draw_forest(reference=0.0, span=(-0.2, 0.9), title=LONG),
    "forest: one, equal": lambda: draw_forest(["ms"], [0.0], 0.0),
    "forest: no interval": lambda: draw_forest(half=np.nan),
    "forest: all refused": lambda: draw_forest(["ms", "ts"], [np.nan, np.nan]),
    "histogram": lambda: figures.histogram(
        [0.5, 1, 2, 4, 8], [3, 2000, 0, 40], xlabel="weight", ylabel="rows", xscale="log"
    ),
    "histogram: one": lambda: figures.histogram(
        [1, 2], [7], xlabel="weight", ylabel="rows", title="One", note="2 have none"
    ),
    "histogram: many": lambda: figures.histogram(
        2.0 ** np.arange(-10, 20), range(29), xlabel="w", ylabel="n", xscale="log"
    ),
    "histogram: empty": lambda: figures.histogram([1, 2], [0], xlabel="weight", ylabel="rows"),
    "tails: some zeros": lambda: figures.tails(POLICIES[:3], WITH_ZEROS, label="final regret"),
}


def texts(figure: Figure) -> list[tuple[str, float, float, float, float]]:
    """Return all visible texts with their bounding boxes."""
    with rc_context(RC):
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        axes = figure.axes[0]
        hidden = [
            *axes.xaxis.findobj(Text),
            *axes.yaxis.findobj(Text),
        ]  # matplotlib's own texts, which are hidden
        shown = [text for text in figure.findobj(Text) if text.get_text().strip() and text not in hidden]
        return [(text.get_text(), *text.get_window_extent(canvas.get_renderer()).extents) for text in shown]


def collisions(figure: Figure) -> list[str]:
    """Return pairs of texts that overlap, and texts outside the figure."""
    boxes = texts(figure)
    width, height = figure.get_size_inches() * figure.dpi
    out = [name for name, x0, y0, x1, y1 in boxes if x0 < 0 or y0 < 0 or x1 > width or y1 > height]
    # Boxes include space for accents and descenders, so boxes of adjacent lines may overlap slightly.
    pairs = [
        f"{a[0]} / {b[0]}"
        for a, b in combinations(boxes, 2)
        if min(a[3], b[3]) - max(a[1], b[1]) > 0.5 and min(a[4], b[4]) - max(a[2], b[2]) > 1.5
    ]
    return out + pairs


@pytest.mark.parametrize("case", CASES)
def test_no_text_collides_or_leaves_the_figure(case) -> None:
    figure = CASES[case]()
    assert len(texts(figure)) >= 3
    assert collisions(figure) == []


def test_collisions_are_detected() -> None:
    figure = draw_bars()
    figure.text(0.3, 0.5, "across\nthe names")
    assert any("across\nthe names" in pair for pair in collisions(figure))
    figure = draw_bars()
    figure.text(0.95, 0.97, "over the edge")
    assert "over the edge" in collisions(figure)


@pytest.mark.parametrize("case", CASES)
def test_svg_is_suitable_for_a_page(case) -> None:
    figure = CASES[case]()
    text = figures.svg(figure, prefix="one-", title='the "first" <one>', description="what it shows")
    assert text == figures.svg(figure, prefix="one-", title='the "first" <one>', description="what it shows")
    assert text.startswith("<svg ")
    assert text.endswith("</svg>\n")
    assert 'role="img"' in text
    assert 'aria-label="the &quot;first&quot; &lt;one&gt;"' in text
    assert "<desc>what it shows</desc>" in text
    for unwanted in ("<?xml", "<!DOCTYPE", "<metadata", "<style", "<!--", "<image"):
        assert unwanted not in text

    named = re.findall(r"#[0-9a-fA-F]{6}\b|#[0-9a-fA-F]{3}\b", re.sub(r'(href="#|url\(#)[^")]*', "", text))
    assert set(named) <= {INK, MUTED, GRID, *COLOURS}
    painted = set(re.findall(r"(?:fill|stroke): ?([^;\"]+)", text)) | set(
        re.findall(r'(?:fill|stroke)="([^"]+)"', text)
    )
    assert {paint for paint in painted if not paint.startswith(("#", "url(#one-"))} <= {"none"}

    other = figures.svg(figure, prefix="two-")
    ids = re.findall(r'\bid="([^"]*)"', text + other)
    assert len(ids) == len(set(ids))
    used = re.findall(r'href="#([^"]*)"', text) + re.findall(r"url\(#([^)]*)\)", text)
    assert used
    assert set(used) <= set(ids)
    assert all(name.startswith("one-") for name in used)


def unpainted(text: str) -> list[str]:
    """Return shapes without a colour. They would be black, and a page could not replace that."""
    root = ElementTree.fromstring(text)
    painted = re.compile(r"\bfill\b")
    targets = {element.get("id"): element for element in root.iter() if element.get("id")}
    found = []

    def visit(element: ElementTree.Element, inherited: bool) -> None:
        tag = element.tag.rpartition("}")[2]
        if tag in {"defs", "clipPath"}:
            return
        target = targets.get(element.get("{http://www.w3.org/1999/xlink}href", "")[1:])
        own = any(
            "fill" in one.attrib or painted.search(one.get("style", ""))
            for one in (element, target)
            if one is not None
        )
        if tag in {"path", "use", "rect"} and not own and not inherited:
            found.append(ElementTree.tostring(element, encoding="unicode"))
        for child in element:
            visit(child, inherited or own)

    visit(root, False)
    return found


@pytest.mark.parametrize("case", CASES)
def test_svg_leaves_no_shape_in_the_default_colour(case) -> None:
    text = figures.svg(CASES[case]())
    assert unpainted(text) == []
    assert unpainted(text.replace("fill: ", "full: ")) != []


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_same_figure_same_bytes(tmp_path, suffix) -> None:
    for case in ("bars", "sweep", "curves", "tails", "frontier", "distributions: some zeros"):
        state = RNG.bit_generator.state
        first, second = tmp_path / f"a.{suffix}", tmp_path / f"b.{suffix}"
        figures.save(CASES[case](), first)
        RNG.bit_generator.state = state
        figures.save(CASES[case](), second)
        assert first.read_bytes() == second.read_bytes()
    if suffix == "svg":
        assert 'fill="#ffffff"' in first.read_text()
        assert first.read_text() == figures.standalone(figures.svg(CASES["distributions: some zeros"]()))


def test_values_and_breaks_of_bars() -> None:
    visible = [text for text, *_ in texts(draw_bars())]
    assert {"27.8 ± 63.4", "111 ± 8.50", "100,000 ± 30,000"} <= set(visible)
    plain, cut = (
        draw_bars(["a", "b"], [3.0, 4.0], [1.0, 1.0]),
        draw_bars(["a", "b"], [3.0, 400.0], [1.0, 1.0]),
    )
    assert len(plain.axes[0].patches) == 2
    assert len(cut.axes[0].patches) == 3  # a broken bar has two parts
    assert cut.axes[0].get_xlim()[1] < 10
    assert draw_bars(["a", "b"], [3.0, 400.0], [1.0, 1.0], limit=500).axes[0].get_xlim()[1] == 500


def test_vertical_axis_follows_the_curves_and_not_the_references() -> None:
    alone, beside = draw_curves(), draw_curves(references=BOUNDS)
    assert beside.axes[0].get_ylim()[1] < 2 * alone.axes[0].get_ylim()[1]
    assert draw_curves(yscale="log", references=BOUNDS).axes[0].get_ylim()[1] > 1e9
    assert draw_curves(top=200.0).axes[0].get_ylim()[1] == 200
    names = [text for text, *_ in texts(beside)]
    assert {"Lai–Robbins", "Theorem 1", "Theorem 2", "out of sight ↑"} <= set(names)
    assert "ts-sg ↑" in [text for text, *_ in texts(draw_curves(top=200.0))]


def test_labels_are_moved_apart_and_no_further() -> None:
    assert spread_labels([1.0, 9.0], [2.0, 2.0], 0.0, 10.0) == [1.0, 9.0]
    for _ in range(100):
        centres, heights = RNG.uniform(0, 100, 8).tolist(), RNG.uniform(3, 12, 8).tolist()
        placed = spread_labels(centres, heights, 0.0, 100.0)
        order = np.argsort(centres)
        edges = [(placed[i] - heights[i] / 2, placed[i] + heights[i] / 2) for i in order]
        assert edges[0][0] >= -1e-9
        assert edges[-1][1] <= 100 + 1e-9
        assert all(upper[0] >= lower[1] - 1e-9 for lower, upper in pairwise(edges))


def test_free_space_avoids_the_curves() -> None:
    sheet = (0.0, 0.0, 100.0, 100.0)
    first = find_free_position((50.0, 50.0), (20.0, 10.0), [], within=sheet, reach=30)
    assert first is not None
    assert first[0] == 55
    second = find_free_position((50.0, 50.0), (20.0, 10.0), [first], within=sheet, reach=30)
    assert second is not None
    assert second[1] >= first[3] or second[3] <= first[1] or second[2] <= first[0]
    assert find_free_position((50.0, 50.0), (20.0, 10.0), [sheet], within=sheet, reach=30) is None


def test_an_index_keeps_its_style() -> None:
    assert series_styles(3)[2] == series_styles(1, style_indices=(2,))[0]
    every = series_styles(24)
    assert len({(look.colour, look.marker, look.dash) for look in every}) == 24
    for a, b in combinations(every, 2):  # in grey, without its colour
        assert a.marker != b.marker or a.dash != b.dash
    assert len(COLOURS) >= 10
    assert len(MARKERS) >= 10
    assert len(DASHES) >= 5


# Severe deuteranomaly and protanomaly: Machado, Oliveira and Fernandes (2009), on linear RGB.
VISION = {
    "normal": np.eye(3),
    "without green cones": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "without red cones": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
}
# Linear RGB to Oklab (Ottosson, 2020); a difference of 2 in a hundredth of its units can just be seen.
CONES = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
OPPONENTS = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)


def linear(colour: str) -> np.ndarray:
    values = np.array(to_rgb(colour))
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio defined by WCAG 2."""
    light = sorted(float(linear(colour) @ [0.2126, 0.7152, 0.0722]) + 0.05 for colour in (one, other))
    return light[1] / light[0]


def difference(one: str, other: str, vision: str) -> float:
    seen = [np.clip(VISION[vision] @ linear(colour), 0, 1) for colour in (one, other)]
    opponents = [OPPONENTS @ np.cbrt(CONES @ colour) for colour in seen]
    return 100 * float(np.linalg.norm(opponents[0] - opponents[1]))


def test_colours_are_visible_on_white_and_on_dark() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    for colour in COLOURS:
        assert contrast(colour, "#ffffff") >= 3
        assert contrast(colour, "#14171a") >= 3
    assert contrast(INK, "#ffffff") >= 7
    assert contrast(MUTED, "#ffffff") >= 4.5
    assert contrast("#f0c419", "#ffffff") < 3  # yellow has too little contrast


def test_colours_are_distinguishable_with_every_type_of_vision() -> None:
    for vision in VISION:
        for one, other in combinations(COLOURS, 2):
            assert difference(one, other, vision) >= (10 if vision == "normal" else 8), (one, other, vision)
    # A red and a green of equal lightness, which people with deuteranomaly confuse.
    assert difference("#c44e3b", "#7b8a30", "without green cones") < 8
    assert difference("#c44e3b", "#7b8a30", "normal") > 10
