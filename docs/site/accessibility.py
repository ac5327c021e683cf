"""Corrects the HTML that Sphinx writes where screen readers could not read it."""

from __future__ import annotations

import re

# The parameters of a signature, one per line: Sphinx makes them a list of definitions without terms.
_PARAMETERS = re.compile(r"<dl>\n((?:<dd>.*</dd>\n)+)</dl>")


def accessible(body: str) -> str:
    """The body of a page, with valid lists."""
    return _PARAMETERS.sub(_with_divisions, body)


def _with_divisions(match: re.Match[str]) -> str:
    lines = match[1].replace("<dd>", "<div>").replace("</dd>\n", "</div>\n")
    return f'<div class="sig-params">\n{lines}</div>'
