"""Every public object has a docstring with an example, which pytest runs as a doctest.

A method needs an example of its own, unless an example of its class, or of another method, uses it. A
property needs none: its docstring says what it is.
"""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
import sys
from typing import Any

import pytest
from sphinx.pycode import ModuleAnalyzer

from docs.site.python_pages import public_members, public_objects

PUBLIC = public_objects()
CALLABLE = {place: thing for place, thing in PUBLIC.items() if callable(thing)}
CLASSES = {place: thing for place, thing in PUBLIC.items() if inspect.isclass(thing)}


def example_of(thing: Any) -> str:
    """The code of the examples in a docstring."""
    parser = doctest.DocTestParser()
    return "".join(each.source for each in parser.get_examples(inspect.getdoc(thing) or ""))


@pytest.mark.parametrize("place", CALLABLE)
def test_a_function_or_class_has_a_docstring_with_an_example(place) -> None:
    assert CALLABLE[place].__doc__, "it has no docstring"
    assert example_of(CALLABLE[place]), "its docstring has no example (>>>)"


@pytest.mark.parametrize("place", CLASSES)
def test_a_method_has_a_docstring_and_an_example(place) -> None:
    cls = CLASSES[place]
    members = public_members(cls)
    examples = example_of(cls) + "".join(map(example_of, members.values()))
    for name, member in members.items():
        assert inspect.getdoc(getattr(cls, name)), f"{name} has no docstring"
        # An override that has no docstring inherits it, and its example, from the method of the base class.
        if inspect.isfunction(method := getattr(member, "__func__", member)) and method.__doc__:
            assert re.search(rf"\b{name}\(", examples), f"no example uses {name}"


# `policy` takes the parameters of any policy, and exceptions take the arguments of `Exception`.
WITH_OPTIONS = {
    place: thing
    for place, thing in CALLABLE.items()
    if place != "maillard.policy" and not (place in CLASSES and issubclass(thing, BaseException))
}


@pytest.mark.parametrize("place", WITH_OPTIONS)
def test_a_signature_names_every_option(place) -> None:
    parameters = inspect.signature(WITH_OPTIONS[place]).parameters.values()
    assert inspect.Parameter.VAR_KEYWORD not in {each.kind for each in parameters}


@pytest.mark.parametrize("place", [place for place in WITH_OPTIONS if place not in CLASSES])
def test_the_docstring_of_a_function_describes_every_option(place) -> None:
    doc = inspect.getdoc(WITH_OPTIONS[place])
    for name, parameter in inspect.signature(WITH_OPTIONS[place]).parameters.items():
        if parameter.default is not inspect.Parameter.empty:
            assert f"`{name}" in doc or f"{name}=" in doc, f"{name} is not described"


@pytest.mark.parametrize("place", [place for place in PUBLIC if place not in CALLABLE])
def test_a_constant_has_a_docstring_and_an_example(place) -> None:
    module, _, name = place.rpartition(".")
    assert ModuleAnalyzer.for_module(module).find_attr_docs()["", name]
    functions = vars(importlib.import_module(module)).values()
    assert any(name in example_of(each) for each in functions if inspect.isfunction(each))


def test_pytest_finds_every_example(pytestconfig) -> None:
    assert pytestconfig.option.doctestmodules
    assert "src" in pytestconfig.getini("testpaths")
    modules = [module for name, module in sys.modules.items() if name.startswith("maillard.")]
    found = {test.docstring for module in modules for test in doctest.DocTestFinder().find(module)}
    members = [getattr(cls, name) for cls in CLASSES.values() for name in public_members(cls)]
    for thing in (*CALLABLE.values(), *members):
        assert not example_of(thing) or thing.__doc__ in found, thing
