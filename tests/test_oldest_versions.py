"""Every dependency has a lower bound, which `make oldest` tests, and allows the version that CI uses."""

from __future__ import annotations

import tomllib

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.oldest_versions import PYPROJECT, oldest_versions


def required() -> list[Requirement]:
    """The requirements of the package and its extras, without the tools of developers."""
    project = tomllib.loads(PYPROJECT.read_text())["project"]
    extras = project["optional-dependencies"]
    listed = [*project["dependencies"], *(each for name in extras if name != "dev" for each in extras[name])]
    return [each for each in map(Requirement, listed) if each.name != "maillard"]


def test_every_dependency_has_a_lower_bound_that_its_range_allows() -> None:
    oldest = oldest_versions()
    assert {each.name for each in required()} == oldest.keys()
    for each in required():
        assert each.specifier.contains(oldest[each.name]), each


def test_the_versions_of_the_constraints_are_in_the_ranges() -> None:
    lines = (PYPROJECT.parent / "constraints.txt").read_text().splitlines()
    used = dict(line.split("==") for line in lines if "==" in line)
    used = {canonicalize_name(name): version for name, version in used.items()}
    for each in required():
        assert each.specifier.contains(used[canonicalize_name(each.name)]), each


def test_extras_markers_and_upper_bounds_are_read(tmp_path) -> None:
    pyproject = tmp_path / "pyproject.toml"
    pyproject.write_text(
        "[project]\n"
        'dependencies = ["numpy>=2.1"]\n'
        "[project.optional-dependencies]\n"
        """a = ["psycopg[binary]>=3.2.1", "uvloop>=0.21; sys_platform != 'win32'"]\n"""
        'b = ["uvicorn>=0.54,<0.55", "maillard[a]", "pytest"]\n'
    )
    expected = {"numpy": "2.1", "psycopg": "3.2.1", "uvloop": "0.21", "uvicorn": "0.54"}
    assert oldest_versions(pyproject) == expected
