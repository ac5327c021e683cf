"""The table and the picture of docs/explanation/trust.md, from results of `benchmarks.coverage.real_life`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
DOCS = HERE.parent.parent / "docs"


def worst(results: dict[str, Any]) -> dict[str, tuple[str, float, float]]:
    """By scenario: its name, and the largest percentages of silent misses and of logs without an answer."""
    found: dict[str, tuple[str, float, float]] = {}
    for name, scenario in results["scenarios"].items():
        questions = scenario["questions"].values()
        silent, none = (
            100 * max(each[field] for each in questions) for field in ("silent_misses", "no_answer")
        )
        label = f"{name} (control)" if scenario["item"] == "control" else name
        found[name] = label, silent, none
    return found


def table(before: dict[str, Any], after: dict[str, Any]) -> str:
    """The Markdown table. The first cells of a scenario that did not exist before are empty."""
    first, then = worst(before), worst(after)
    lines = [
        "| situation | misled before | misled now | no answer before | no answer now |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, (label, *now) in then.items():
        old = [f"{each:.1f}%" for each in first[name][1:]] if name in first else ["", ""]
        cells = [cell for each, new in zip(old, now, strict=True) for cell in (each, f"{new:.1f}%")]
        lines.append("| " + " | ".join([label, *cells]) + " |")
    return "\n".join(lines)


def draw(before: dict[str, Any], after: dict[str, Any], path: Path) -> None:
    """Draw the fraction of logs that misled, before and after."""
    from matplotlib.figure import Figure

    from maillard.figures import COLOURS, GRID, MUTED

    first, then = worst(before), worst(after)
    names = list(then)
    figure = Figure(figsize=(8.6, 0.27 * len(names) + 1.4), layout="constrained")
    axes = figure.subplots()
    for place, name in enumerate(reversed(names)):
        new = then[name][1]
        if name in first:
            old = first[name][1]
            axes.plot([old, new], [place, place], color=GRID, lw=2, zorder=1)
            axes.plot(old, place, "o", mfc="white", mec=COLOURS[1], ms=6, zorder=2)
        axes.plot(new, place, "o", color=COLOURS[0], ms=6, zorder=3)
    axes.axvline(5, color=MUTED, lw=1, ls="--")
    axes.text(5.5, len(names) - 0.4, "5%: the nominal rate", color=MUTED, fontsize=8)
    axes.set_yticks(range(len(names)), [then[name][0] for name in reversed(names)], fontsize=8)
    axes.set_xlim(-1, 101)
    axes.set_xlabel("logs whose recommended interval missed the truth without a warning, in percent")
    axes.plot([], [], "o", mfc="white", mec=COLOURS[1], label="before")
    axes.plot([], [], "o", color=COLOURS[0], label="now")
    axes.legend(frameon=False, loc="lower right")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color=GRID, lw=0.6)
    figure.savefig(path.with_suffix(".png"), dpi=160, facecolor="white")


def main() -> None:
    """Write the picture, and print the table."""
    files = (HERE / f"real_life_{which}.json" for which in ("before", "after"))
    before, after = (json.loads(file.read_text(encoding="utf8")) for file in files)
    draw(before, after, DOCS / "pictures" / "trust")
    print(table(before, after))


if __name__ == "__main__":
    main()
