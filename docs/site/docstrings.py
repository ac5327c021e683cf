"""Docstrings are written in Markdown, as people read them in an editor. Sphinx wants reStructuredText."""

from __future__ import annotations

import re

_CODE = re.compile(r"(?<!`)`([^`]+)`(?!`)")
_SPECIAL = re.compile(r"([*|\\]|_(?=\W|$))")
_ITEM = re.compile(r"- \S")


def restructured(lines: list[str]) -> list[str]:
    """Return a docstring as reStructuredText: code spans, indented blocks, lists, and literal text."""
    result: list[str] = []
    inside = in_list = False  # an indented block, a list
    for line in _CODE.sub(r"``\1``", "\n".join(lines)).splitlines():
        indented = line.startswith("    ")
        if indented and not inside and not (result and result[-1].strip()):
            result += ["::", ""]
        inside = indented or (inside and not line.strip())
        if _ITEM.match(line) and result and result[-1].strip() and not in_list:
            result.append("")
        in_list = bool(_ITEM.match(line)) or (in_list and line.startswith("  "))
        result.append(line if inside or line.lstrip().startswith(">>>") else _escaped(line))
    return result


def _escaped(line: str) -> str:
    """Return a line whose asterisks, bars and underscores outside of code mean themselves."""
    parts = re.split(r"(``[^`]+``)", line)
    return "".join(part if part.startswith("``") else _SPECIAL.sub(r"\\\1", part) for part in parts)
