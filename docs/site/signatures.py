"""Makes signatures readable: one for each function, without names that only the source code knows."""

from __future__ import annotations

import inspect
import re
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.pycode import ModuleAnalyzer

from docs.site.python_pages import public_members, public_objects

_UNNAMED = re.compile(r"<factory>|array\(\[\][^)]*\)[^)]*\)")  # defaults
_REFERENCE = re.compile(r"TypeAliasForwardRef\('(\w+)'\)")  # by Sphinx, to a type of `autodoc_type_aliases`
# What the names of types mean.
_TYPES = {
    "AnyTarget": "str | Policy | Callable",
    "Bools": "ndarray",
    "Floats": "ndarray",
    "Indices": "ndarray",
    "Ints": "ndarray",
    "Names": "str | Iterable[str] | None",
    "Numbers": "int | Iterable[int] | None",
    "Time": "datetime | float",
}


def forget_overloads() -> None:
    """Show the signature of a function itself, which has all options, and not those of its overloads."""
    for thing in public_objects().values():
        for each in (thing, *public_members(thing).values()) if inspect.isclass(thing) else (thing,):
            module = getattr(each, "__module__", "")
            if module.startswith("maillard."):
                analyzer = ModuleAnalyzer.for_module(module)
                analyzer.analyze()
                analyzer.overloads.clear()


def readable(text: str | None) -> str | None:
    """Return a signature or a type without what readers cannot write: defaults, and references to types."""
    return None if text is None else _REFERENCE.sub(r"\1", _UNNAMED.sub("...", text))


def name_types(document: Any) -> None:
    """Replace names of types that only the source code knows."""
    for signature in document.findall(addnodes.desc_signature):
        for text in list(signature.findall(nodes.Text)):
            if text in _TYPES:
                text.parent.replace(text, nodes.Text(_TYPES[text]))
