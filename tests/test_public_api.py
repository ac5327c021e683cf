"""Every public object has a docstring with an example, which pytest runs as a doctest.

A method needs an example of its own, unless an example of its class, or of another method, uses it. A property
needs none: its docstring says what it is.
"""

from __future__ import annotations

import doctest
import inspect
import re
from typing import Any

import pytest

from docs.site.python_pages import public_members, public_objects

PUBLIC = public_objects()
CLASSES = {place: thing for place, thing in PUBLIC.items() if inspect.isclass(thing)}
CALLABLE = {place: thing for place, thing in PUBLIC.items() if callable(thing)}


def example_of(thing: Any) -> str:
    """The code of the examples in a docstring."""
    doc = inspect.getdoc(thing) or ""
    return "".join(each.source for each in doctest.DocTestParser().get_examples(doc))


@pytest.mark.parametrize("place", CALLABLE)
def test_a_function_or_class_has_a_docstring_with_an_example(place) -> None:
    thing = CALLABLE[place]
    assert thing.__doc__, "it has no docstring"
    assert example_of(thing), "its docstring has no example (>>>)"


@pytest.mark.parametrize("place", CLASSES)
def test_a_method_has_a_docstring_and_an_example(place) -> None:
    cls = CLASSES[place]
    members = public_members(cls)
    examples = example_of(cls) + "".join(map(example_of, members.values()))
    for name, member in members.items():
        own, documented = inspect.getdoc(member), inspect.getdoc(getattr(cls, name))
        assert documented, f"{name} has no docstring"
        inherited = not getattr(member, "__doc__", None)
        if inspect.isroutine(member) and not inherited:
            assert re.search(rf"\b{name}\(", examples), f"no example uses {name}"
