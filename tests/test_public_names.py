"""`dir`, completion, `from ... import *` and type checkers agree on the names of each public package."""

from __future__ import annotations

import importlib
import rlcompleter
import subprocess
import sys
from pathlib import Path

import pytest
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell
from mypy import build
from mypy.modulefinder import BuildSource
from mypy.options import Options

import maillard

SOURCES = Path(__file__).parent.parent / "src"
PACKAGES = (
    "maillard", "maillard.client", "maillard.decisions", "maillard.evaluation", "maillard.features",
    "maillard.policies", "maillard.problems", "maillard.service", "maillard.simulation",
)  # fmt: skip


def names_of(package: str) -> set[str]:
    """The public names of a package, and its version."""
    return {name for name in dir(importlib.import_module(package)) if not name.startswith("__")}


@pytest.mark.parametrize("package", PACKAGES)
def test_dir_lists_the_public_names_and_nothing_else(package) -> None:
    public = importlib.import_module(package).__all__
    assert len(set(public)) == len(public)
    assert names_of(package) == set(public)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_star_imports_the_public_names(package) -> None:
    namespace: dict[str, object] = {}
    exec(f"from {package} import *", namespace)
    assert namespace.keys() - {"__builtins__"} == names_of(package)


@pytest.fixture(scope="module")
def seen_by_mypy() -> dict[str, set[str]]:
    """The names that each package exports according to mypy, as it reads packages of others."""
    options = Options()
    options.incremental, options.implicit_reexport, options.semantic_analysis_only = False, False, True
    options.follow_imports, options.ignore_missing_imports, options.mypy_path = "silent", True, [str(SOURCES)]
    files = [str(SOURCES.joinpath(*package.split("."), "__init__.py")) for package in PACKAGES]
    sources = [BuildSource(file, package) for file, package in zip(files, PACKAGES, strict=True)]
    result = build.build(sources, options)
    assert not result.errors
    return {
        package: {
            name
            for name, symbol in result.files[package].names.items()
            if symbol.module_public and not symbol.module_hidden and not name.startswith("_")
        }
        for package in PACKAGES
    }


@pytest.mark.parametrize("package", PACKAGES)
def test_type_checkers_see_the_public_names(package, seen_by_mypy) -> None:
    assert seen_by_mypy[package] == names_of(package)


@pytest.mark.parametrize("package", PACKAGES)
def test_completion_offers_the_public_names(package) -> None:
    """Completion in Python's own prompt and in notebooks, after `import maillard`."""
    completer = rlcompleter.Completer({"maillard": maillard})
    offered = {each.rstrip("()").rpartition(".")[2] for each in completer.attr_matches(f"{package}.")}
    assert names_of(package) <= offered
    assert not [name for name in offered - names_of(package) if not name.startswith("__")]

    shell = InteractiveShell(user_ns={"maillard": maillard})
    with provisionalcompleter():
        found = {
            each.text.lstrip(".") for each in shell.Completer.completions(f"{package}.", len(package) + 1)
        }
    assert found == names_of(package)


def test_packages_can_be_used_without_importing_them() -> None:
    """In a new process, because other tests import them."""
    names = [package.partition(".")[2] for package in PACKAGES[1:]]
    program = "import maillard\n" + "".join(f"assert maillard.{name}.__all__\n" for name in names)
    subprocess.run([sys.executable, "-c", program], check=True)


def test_every_listed_name_exists() -> None:
    assert {"Bandit", "evaluate", "simulate", "Client", "MaillardSampling", "policy"} <= set(dir(maillard))
    for name in dir(maillard):
        assert getattr(maillard, name) is not None, name
