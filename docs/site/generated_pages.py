"""Writes the generated pages of the site, from the sources and from files in the root of the repository."""

from __future__ import annotations

import re
from pathlib import Path

from docs.site import command_pages, http_pages, notebooks, python_pages

ROOT = Path(__file__).parents[2]
_PROJECT = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "VISION.md")
_MENTION = re.compile(r"(?<!\])\(docs/([\w/-]+\.md(?:#[\w-]+)?)")  # in parentheses, without a link
_PROJECT_LINK = re.compile(rf"\]\((?:\.\./)+({'|'.join(map(re.escape, _PROJECT))})")


def write(docs: Path) -> None:
    """Write docs/api, docs/project and docs/notebooks, except for pages that are the same as before."""
    pages = {f"project/{name.lower()}": _project_page(name) for name in _PROJECT}
    pages |= {f"api/{name}": text for name, text in python_pages.pages().items()}
    pages["api/cli.md"] = command_pages.page()
    pages["api/http.md"] = http_pages.page()
    for folder in ("api", "project"):
        (docs / folder).mkdir(exist_ok=True)
        for old in (docs / folder).iterdir():
            if f"{folder}/{old.name}" not in pages:
                old.unlink()
    for name, text in pages.items():
        path = docs / name
        if not path.exists() or path.read_text(encoding="utf8") != text:
            path.write_text(text, encoding="utf8")
    notebooks.write(docs / "notebooks")


def with_project_links(text: str) -> str:
    """Replace links such as (../README.md#install) by links to the pages of these files."""
    return _PROJECT_LINK.sub(lambda match: f"](/project/{match[1].lower()}", text)


def with_notebook(name: str, text: str) -> str:
    """Offer the notebook of a tutorial below its title."""
    folder, _, stem = name.partition("/")
    if folder != "tutorials" or stem == "index":
        return text
    title, _, rest = text.partition("\n")
    return f"{title}\n\n{{download}}`Download this tutorial as a notebook </notebooks/{stem}.ipynb>`\n{rest}"


def _project_page(name: str) -> str:
    """A file from the root of the repository, as a page in docs/project."""
    text = (ROOT / name).read_text(encoding="utf8")
    for other in _PROJECT:
        text = text.replace(f"]({other}", f"]({other.lower()}")
    text = _MENTION.sub(r"([\1](docs/\1)", text)
    return text.replace("](docs/", "](../")
