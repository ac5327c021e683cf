"""The distributions have every file of the package and valid metadata; CITATION.cff agrees with the package.

`make dist` also installs them into a fresh environment.
"""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pytest
import yaml

import maillard
from tests.distribution import ROOT, build, metadata_problems, sdist_problems, wheel_problems

VALID = """\
Metadata-Version: 2.4
Name: maillard
Version: {version}
License-Expression: MIT
License-File: LICENSE
Classifier: Typing :: Typed
Description-Content-Type: text/markdown

# maillard
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {path.suffix: path for path in build(tmp_path_factory.mktemp("dist"))}


def test_the_distributions_are_complete(built: dict[str, Path]) -> None:
    assert list(wheel_problems(built[".whl"])) == []
    assert list(sdist_problems(built[".gz"])) == []


def test_missing_and_foreign_files_are_found(built: dict[str, Path], tmp_path: Path) -> None:
    other = tmp_path / built[".whl"].name
    with zipfile.ZipFile(built[".whl"]) as source, zipfile.ZipFile(other, "w") as target:
        for name in source.namelist():
            if name != "maillard/py.typed":
                target.writestr(name, source.read(name))
        target.writestr("maillard/secret.env", "key=1")
    assert list(wheel_problems(other)) == [
        "the wheel lacks src/maillard/py.typed",
        "the wheel has src/maillard/secret.env, which is no file of the repository",
    ]
    renamed = Path(shutil.copy(other, tmp_path / built[".whl"].name.replace(maillard.__version__, "9.9")))
    assert f"{renamed.name} is not of version {maillard.__version__}" in list(wheel_problems(renamed))


def test_metadata_are_checked() -> None:
    valid = VALID.format(version=maillard.__version__)
    assert list(metadata_problems(valid.encode())) == []
    for change, problem in {
        ("Typing :: Typed", "Typing :: Maybe"): "unknown classifier",
        (f"Version: {maillard.__version__}", "Version: 9.9"): "state version 9.9",
        ("License-File: LICENSE\n", ""): "lack the licence",
        ("# maillard", ""): "lack the README",
        ("Name: maillard", "Name: ma llard"): "invalid",
    }.items():
        (found,) = metadata_problems(valid.replace(*change).encode())
        assert problem in found


def test_the_citation_has_the_version_and_the_licence_of_the_package() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf8"))
    assert citation["version"] == maillard.__version__
    assert citation["license"] == "MIT"
    assert citation["references"][0]["title"] == "Maillard Sampling: Boltzmann Exploration Done Optimally"
    page = (ROOT / "docs" / "explanation" / "citing.md").read_text(encoding="utf8")
    assert f"version = {{{maillard.__version__}}}" in page
