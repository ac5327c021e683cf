"""The structure of the package: docs/explanation/architecture.md names existing modules; names are unique."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "maillard"
MODULES = sorted(PACKAGE.rglob("*.py"))
PAGE = (ROOT / "docs" / "explanation" / "architecture.md").read_text()
LONGEST = 400  # lines of a module

# The CUDA engines mirror the CPU engines, module by module.
MIRRORED = ("simulation/engines", "simulation/cuda")

# In the wire schema, a class has the name of the class whose JSON form it is.
WIRE_SCHEMA = "wire_schema"


def folder_of(path: Path) -> str:
    return path.parent.relative_to(PACKAGE).as_posix()


def test_the_page_names_modules_that_exist() -> None:
    named = set(re.findall(r"`((?:[a-z_0-9]+/)*[a-z_0-9]+\.(?:py|js|toml|html))`", PAGE))
    assert len(named) > 40
    assert sorted(name for name in named if not any((base / name).exists() for base in (PACKAGE, ROOT))) == []


def test_the_page_has_every_package() -> None:
    packages = {path.parent.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("__init__.py")} - {"."}
    top = {name for name in packages if "/" not in name}
    assert sorted(name for name in top if f"`{name}/`" not in PAGE) == []


@pytest.mark.parametrize("walk", ["simulate", "decision over HTTP", "evaluate", "verify", "reproduce"])
def test_the_page_has_five_walks(walk: str) -> None:
    assert re.search(rf"^### .*{walk}", PAGE, re.MULTILINE | re.IGNORECASE)


def test_a_module_name_occurs_once() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in MODULES:
        if path.stem not in ("__init__", "__main__"):
            places[path.stem].append(folder_of(path))
    twice = {name: found for name, found in places.items() if len(found) > 1}
    assert {
        name: found for name, found in twice.items() if not all(each.startswith(MIRRORED) for each in found)
    } == {}


def test_a_public_class_name_occurs_once() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in MODULES:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(folder_of(path))
    twice = {name: [each for each in found if each != WIRE_SCHEMA] for name, found in places.items()}
    assert {name: found for name, found in twice.items() if len(found) > 1} == {}


def test_modules_are_short() -> None:
    lengths = {path.relative_to(PACKAGE).as_posix(): len(path.read_text().splitlines()) for path in MODULES}
    assert {name: length for name, length in lengths.items() if length > LONGEST} == {}
