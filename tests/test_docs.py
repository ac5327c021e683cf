"""The code of every page runs, generated parts are up to date, and every command is documented.

test_tutorials.py runs the code of the tutorials.
"""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

import maillard
from maillard.cli import main
from maillard.cli.policy_commands import markdown_table
from maillard.policies import policy_class
from tests.conftest import NAMES

ROOT = Path(__file__).parent.parent
GENERATED = {ROOT / "docs" / "api", ROOT / "docs" / "project"}  # by `make site`
DOCS = [path for path in sorted((ROOT / "docs").rglob("*.md")) if path.parent not in GENERATED]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS]
WITH_CODE = [page for page in PAGES if page.parent.name != "tutorials"]  # which test_tutorials.py runs
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_code_on_a_page_runs(page, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = dict(maillard.Policy.registry)
    namespace: dict[str, object] = {"__name__": page.stem}
    text = page.read_text(encoding="utf8")
    try:
        for match in BLOCK.finditer(text):
            line = text[: match.start()].count("\n") + 1
            block = match[1]
            if ">>>" in block:
                test = doctest.DocTestParser().get_doctest(block, namespace, page.name, str(page), line)
                runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
                runner.run(test, clear_globs=False)
                namespace.update(test.globs)
                assert not runner.failures, f"{page.name}, line {line}"
            else:
                exec(compile("\n" * line + block, str(page), "exec", dont_inherit=True), namespace)
    finally:
        maillard.Policy.registry.clear()
        maillard.Policy.registry.update(before)


def test_the_readme_shows_the_output_of_its_example(tmp_path, monkeypatch, capsys) -> None:
    """The example has seeds; other versions of NumPy may change digits of the numbers."""
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "README.md").read_text(encoding="utf8")
    shown = re.findall(r"^```text\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[0]
    example = BLOCK.findall(text)[0]
    exec(compile(example, "README.md", "exec", dont_inherit=True), {})
    printed = capsys.readouterr().out
    number = re.compile(r"(?<!\w)-?\d+(,\d{3})*(\.\d+)?(e[+-]\d+)?")
    assert [number.sub("#", line) for line in printed.splitlines()] == [
        number.sub("#", line) for line in shown.splitlines()
    ]
    for run in (printed, shown):  # one estimate is recommended, and each has an interval
        assert run.count("\n*") == 1
        assert len(re.findall(r"95% \[\S+, \S+\]", run)) == len(run.splitlines()) - 4 >= 3
    assert (tmp_path / "decisions.db").exists()


def test_the_table_of_policies_is_generated() -> None:
    table = markdown_table([policy_class(name) for name in NAMES])
    assert table in (ROOT / "docs" / "reference" / "policies.md").read_text(encoding="utf8"), (
        "run `make docs`"
    )


def test_the_type_stub_lists_every_policy_class() -> None:
    exports = (ROOT / "src" / "maillard" / "policies" / "exports.pyi").read_text(encoding="utf8")
    for name in NAMES:
        assert "{0} as {0}".format(policy_class(name).__name__) in exports, "run `make docs`"


def test_targets_of_links_exist() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf8")):
            assert (page.parent / target).exists(), f"{page.name} -> {target}"


def test_every_page_and_command_is_reachable_from_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf8")
    for page in DOCS:
        assert page.relative_to(ROOT).as_posix() in readme
    for command in main.commands:
        assert f"maillard {command}" in readme


def test_every_error_of_the_paper_has_its_section() -> None:
    notes = (ROOT / "docs" / "explanation" / "paper-notes.md").read_text(encoding="utf8")
    sections = re.findall(r"^## (\d+)\.", notes, re.MULTILINE)
    assert [str(i) for i in range(1, 10)] == sections[:9]
