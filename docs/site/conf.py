"""The settings of the documentation site. Its pages are docs/*.md and those that `docs/site` generates."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pygments.lexers import TextLexer

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the modules of docs/site

import maillard
from docs.site import generated_pages
from docs.site.accessibility import accessible
from docs.site.docstrings import restructured
from docs.site.signatures import forget_overloads, name_types, readable

project = "maillard"
author = "the maillard contributors"
project_copyright = "the maillard contributors. MIT licence"
version = release = maillard.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx_copybutton",
    "sphinx_design",
]
exclude_patterns = ["site"]
root_doc = "index"
smartquotes = False  # `--no-keys` is no dash

# Markdown. Headings are targets of links, as on the pages of a repository.
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4

# The API: names with their types, members in the order of the source.
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_type_aliases = {
    name: "ArrayLike" if name == "ArrayLike" else "ndarray"
    for name in ("ArrayLike", "Bools", "Floats", "Indices", "Ints")
}
python_maximum_signature_line_length = 80
add_module_names = False
toc_object_entries_show_parents = "hide"

# The theme. It uses the fonts of the reader's system, so pages load nothing from another host.
html_theme = "furo"
pygments_dark_style = "github-dark"
html_title = f"maillard {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = [("site.js", {"defer": "defer"})]
html_search_scorer = str(Path(__file__).parent / "scorer.js")
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True


def _restructure(*event: Any) -> None:
    lines = event[-1]
    lines[:] = restructured(lines)


def _make_readable(*event: Any) -> tuple[str | None, str | None]:
    *_, signature, result = event
    return readable(signature), readable(result)


def _complete_page(*event: Any) -> None:
    """Correct links to files such as ../README.md, whose pages are in project/; offer the notebooks."""
    _, name, source = event
    source[0] = generated_pages.with_notebook(name, generated_pages.with_project_links(source[0]))


def _make_accessible(*event: Any) -> None:
    context = event[3]
    if "body" in context:
        context["body"] = accessible(context["body"])


def setup(app: Any) -> None:
    """Write the generated pages, then let Sphinx read all pages."""
    app.add_lexer("cron", TextLexer)
    app.connect("builder-inited", lambda _: forget_overloads())
    app.connect("autodoc-process-signature", _make_readable)
    app.connect("doctree-read", lambda _, document: name_types(document))
    app.connect("builder-inited", lambda app: generated_pages.write(Path(app.srcdir)))
    app.connect("autodoc-process-docstring", _restructure)
    app.connect("source-read", _complete_page)
    app.connect("html-page-context", _make_accessible)
