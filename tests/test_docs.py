"""The code of every page runs, generated parts are up to date, and every command is documented.

Each block of a page is checked, according to its language:

- `python` runs. A `text` block that follows is what it prints; digits may differ.
- `python peers` is code of other libraries. `make peers` runs it, and checks exactly what it prints.
- `python both` runs here and there.
- `console` has commands, each after `$`, and their output. They run in the folder of the page's programs.
- `sh` has commands that a test cannot run, for example because they start a service: they must parse.
- `json` must be valid.

The programs and commands of tutorials run in test_tutorials.py.
"""

from __future__ import annotations

import doctest
import inspect
import io
import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import redirect_stdout
from itertools import groupby
from pathlib import Path

import click
import pytest

import maillard
from docs.site.tutorial_pages import commands
from maillard.cli import main
from maillard.cli.policy_commands import markdown_table
from maillard.policies import policy_class
from tests.conftest import NAMES
from tests.page_blocks import agree, blocks, run
from tests.peers import pages as peers_pages

ROOT = Path(__file__).parent.parent
GENERATED = {ROOT / "docs" / "api", ROOT / "docs" / "project"}  # by `make site`
DOCS = [path for path in sorted((ROOT / "docs").rglob("*.md")) if path.parent not in GENERATED]
README = ROOT / "README.md"
PAGES = [README, ROOT / "CONTRIBUTING.md", *DOCS]
# Tutorials and CONTRIBUTING.md have tests of their own.
WITH_CODE = [README, *(page for page in DOCS if page.parent.name != "tutorials")]
# Programs in `sh` blocks other than maillard and make.
PROGRAMS = {"chown", "cp", "cat", "createdb", "curl", "export", "mkdir", "mv", "pg_dump", "pg_restore"}
PROGRAMS |= {"pip", "podman", "python", "python3", "source", "systemctl"}


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_code_on_a_page_runs(page, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    before = dict(maillard.Policy.registry)
    namespace: dict[str, object] = {"__name__": page.stem}
    printed = None
    try:
        for block in blocks(page.read_text(encoding="utf8")):
            place = f"{page.name}, line {block.line}"
            if block.language == "python":
                printed = run_python(block.text, namespace, page, block.line)
            elif block.language == "text":
                assert printed is not None, f"{place}: no program before this output"
                assert agree(printed, block.text), f"{place}: the program prints:\n{printed}"
                printed = None
            elif block.language == "console":
                for command in commands(block.text):
                    output = run(command.words, monkeypatch, capsys)
                    assert agree(output, command.shown), f"{command.line} prints:\n{output}"
    finally:
        maillard.Policy.registry.clear()
        maillard.Policy.registry.update(before)


def run_python(source: str, namespace: dict[str, object], page: Path, line: int) -> str:
    """Run a block of a page; return what it prints."""
    if ">>>" in source:
        test = doctest.DocTestParser().get_doctest(source, namespace, page.name, str(page), line)
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
        runner.run(test, clear_globs=False)
        namespace.update(test.globs)
        assert not runner.failures, f"{page.name}, line {line}"
        return ""
    with redirect_stdout(io.StringIO()) as output:
        exec(compile("\n" * line + source, str(page), "exec", dont_inherit=True), namespace)
    return output.getvalue()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_other_blocks_of_a_page_are_valid(page) -> None:
    for block in blocks(page.read_text(encoding="utf8")):
        if block.language == "sh":
            subprocess.run(["bash", "-n"], input=block.text, text=True, check=True)
            for words in shell_commands(block.text):
                check_command(words)
        elif block.language == "cron":
            for line in block.text.splitlines():
                (words,) = shell_commands(line)
                check_command(words[5:])
        elif block.language == "ini":  # settings of the service
            names = {option.envvar for option in main.commands["serve"].params}
            assert {line.partition("=")[0] for line in block.text.splitlines()} <= names
        elif block.language == "json":
            json.loads(block.text)
        else:
            checked = {"python", "text", "console", "nginx", "bibtex"}  # deploy.md and citing.md have tests
            assert block.language in checked or block.language[0] == "{", f"{page.name}, line {block.line}"


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_make_peers_runs_every_block_of_other_libraries(page) -> None:
    text = page.read_text(encoding="utf8")
    run_there = {block.line for block in peers_pages.blocks(text)}
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(r" *`{3,}python \S", line):
            assert number in run_there, f"{page.name}, line {number}"


def test_blocks_of_other_libraries_do_not_run_here() -> None:
    kinds = {"python": "1", "python peers": "2", "text": "3", "python both": "4"}
    page = "".join(f"```{kind}\n{text}\n```\n\n" for kind, text in kinds.items())
    assert [(block.language, block.text) for block in blocks(page)] == [("python", "1\n"), ("python", "4\n")]
    assert [block.code for block in peers_pages.blocks(page)] == ["1\n", "2\n", "4\n"]
    assert peers_pages.blocks("```python\n1\n```\n") == []


def shell_commands(text: str) -> list[list[str]]:
    """The commands of a script, each as its words."""
    found: list[list[str]] = []
    script = ""
    for line in re.sub(r"\$\([^)]*\)", "output", text.replace("\\\n", " ")).splitlines(keepends=True):
        script += line
        try:
            words = shlex.split(script, comments=True)
        except ValueError:  # the quotation goes on
            continue
        found += [
            list(part) for between, part in groupby(words, lambda word: word in ("&&", "|")) if not between
        ]
        script = ""
    return found


def check_command(words: list[str]) -> None:
    """Check the arguments of a maillard command without running it; other programs must be known."""
    program, *arguments = words
    if Path(program).name == "maillard":
        command: click.Command = main
        while isinstance(command, click.Group):
            found = command.get_command(click.Context(command), arguments[0])
            assert found is not None, f"there is no command {shlex.join(words)}"
            command, arguments = found, arguments[1:]
        command.make_context(command.name, arguments)
    elif program == "make":
        targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf8"), re.MULTILINE)
        assert set(arguments) <= set(targets)
    else:
        assert Path(program).name in PROGRAMS, program


def commands_of(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """All commands except groups, each with its name."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands_of(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


@pytest.mark.parametrize(("name", "command"), list(commands_of(main)))
def test_the_help_of_a_command_has_valid_examples(name, command) -> None:
    """They are the paragraphs whose lines click keeps."""
    kept = [
        each.partition("\n")[2] for each in inspect.cleandoc(command.help).split("\n\n") if each[0] == "\b"
    ]
    examples = [words for each in kept for words in shell_commands(re.sub(r" > \S+", "", each))]
    assert any(shlex.join(words).startswith(f"maillard {name}") for words in examples)
    for words in examples:
        check_command(words)
    for parameter in command.params:
        assert isinstance(parameter, click.Argument) or parameter.help, parameter.name


@pytest.mark.parametrize(
    "line", ["maillard evaluat log.db", "maillard verify log.db --fast", "make everything", "rm -rf x"]
)
def test_a_wrong_command_is_found(line) -> None:
    with pytest.raises((click.UsageError, AssertionError)):
        check_command(shlex.split(line))


def test_the_readme_shows_the_output_of_its_example(tmp_path, monkeypatch, capsys) -> None:
    """The example has seeds; other versions of NumPy may change digits of the numbers."""
    monkeypatch.chdir(tmp_path)
    first = {block.language: block.text for block in reversed(blocks(README.read_text(encoding="utf8")))}
    example, shown = first["python"], first["text"]
    exec(compile(example, "README.md", "exec", dont_inherit=True), {})
    printed = capsys.readouterr().out
    number = re.compile(r"(?<!\w)-?\d+(,\d{3})*(\.\d+)?(e[+-]\d+)?")
    assert [number.sub("#", line) for line in printed.splitlines()] == [
        number.sub("#", line) for line in shown.splitlines()
    ]
    for output in (printed, shown):  # one estimate is recommended, and each has an interval
        assert output.count("\n*") == 1
        assert len(re.findall(r"95% \[\S+, \S+\]", output)) == len(output.splitlines()) - 4 >= 3
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
    readme = README.read_text(encoding="utf8")
    for page in DOCS:
        assert page.relative_to(ROOT).as_posix() in readme
    for command in main.commands:
        assert f"maillard {command}" in readme


def test_every_error_of_the_paper_has_its_section() -> None:
    notes = (ROOT / "docs" / "explanation" / "paper-notes.md").read_text(encoding="utf8")
    sections = re.findall(r"^## (\d+)\.", notes, re.MULTILINE)
    assert [str(i) for i in range(1, 10)] == sections[:9]
