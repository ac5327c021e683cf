"""Build the distributions and check them: `make dist`.

The checks: the metadata are valid, the wheel has every file of the package, the wheel that is made from the
sdist is the same, and in a fresh environment the wheel runs the example of the README.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

from packaging.metadata import Metadata
from packaging.utils import parse_sdist_filename, parse_wheel_filename
from trove_classifiers import classifiers

import maillard

ROOT = Path(__file__).parent.parent
EXTRAS = "reproduction,service"  # what the README installs


def build(folder: Path, source: Path = ROOT, *targets: str) -> list[Path]:
    """Build the sdist and the wheel of a source tree, or only the named targets."""
    wanted = [word for target in targets for word in ("--target", target)]
    command = [sys.executable, "-m", "hatchling", "build", *wanted, "--directory", str(folder)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    return sorted(folder.iterdir())


def tracked(folder: str) -> set[str]:
    """The files of a folder of the repository."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", folder]
    found = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return {name for name in found.splitlines() if (ROOT / name).exists()}


def wheel_problems(wheel: Path) -> Iterator[str]:
    """What is wrong with the wheel: its metadata, missing files, unexpected files."""
    with zipfile.ZipFile(wheel) as opened:
        names = {name for name in opened.namelist() if not name.endswith("/")}
        (place,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        yield from metadata_problems(opened.read(place))
    content = {f"src/{name}" for name in names if ".dist-info/" not in name}
    expected = tracked("src/maillard")
    yield from (f"the wheel lacks {name}" for name in sorted(expected - content))
    yield from (
        f"the wheel has {name}, which is no file of the repository" for name in sorted(content - expected)
    )
    if parse_wheel_filename(wheel.name)[1].public != maillard.__version__:
        yield f"{wheel.name} is not of version {maillard.__version__}"


def sdist_problems(sdist: Path) -> Iterator[str]:
    """What is wrong with the sdist."""
    with tarfile.open(sdist) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
        (place,) = (name for name in opened.getnames() if name.count("/") == 1 and name.endswith("/PKG-INFO"))
        file = opened.extractfile(place)
        assert file is not None
        yield from metadata_problems(file.read())
    expected = tracked(".")
    yield from (f"the sdist lacks {name}" for name in sorted(tracked("src") - names))
    unexpected = {name for name in names if name and name != "PKG-INFO"} - expected
    yield from (f"the sdist has {name}, which is no file of the repository" for name in sorted(unexpected))
    if parse_sdist_filename(sdist.name)[1].public != maillard.__version__:
        yield f"{sdist.name} is not of version {maillard.__version__}"


def metadata_problems(text: bytes) -> Iterator[str]:
    """What is wrong with the metadata: invalid fields, unknown classifiers, an empty description."""
    try:
        metadata = Metadata.from_email(text, validate=True)
    except ExceptionGroup as errors:
        yield from map(str, errors.exceptions)
        return
    yield from (f"unknown classifier {each!r}" for each in set(metadata.classifiers or []) - classifiers)
    if str(metadata.version) != maillard.__version__:
        yield f"the metadata state version {metadata.version}, the package {maillard.__version__}"
    if metadata.description_content_type != "text/markdown" or not (metadata.description or "").strip():
        yield "the metadata lack the README as their description"
    if metadata.license_expression != "MIT" or not metadata.license_files:
        yield "the metadata lack the licence or its file"


def same_content(one: Path, other: Path) -> bool:
    """Whether two wheels have the same files."""
    with zipfile.ZipFile(one) as first, zipfile.ZipFile(other) as second:
        return {each.filename: each.CRC for each in first.infolist()} == {
            each.filename: each.CRC for each in second.infolist()
        }


def fresh_environment(folder: Path, *requirements: str) -> Path:
    """Install requirements into a new environment; return the folder of its programs."""
    venv.create(folder, with_pip=True)
    programs = folder / ("Scripts" if sys.platform == "win32" else "bin")
    constraints = ["--constraint", str(ROOT / "constraints.txt")]
    install = [str(programs / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*install, *constraints, *requirements], check=True)
    return programs


def run_readme(programs: Path, folder: Path) -> None:
    """Run the example of the README and its commands in an empty folder."""
    text = (ROOT / "README.md").read_text(encoding="utf8")
    (example, *_) = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    (folder / "example.py").write_text(example, encoding="utf8")
    printed = output([programs / "python", "example.py"], folder)
    assert "1000 of 1000 logged probabilities recomputed" in printed, printed
    commands = re.findall(r"^(maillard (?:verify|evaluate|compare) .+)$", text, re.MULTILINE)
    assert len(commands) >= 3, commands
    for command in commands:
        name, *arguments = command.split()
        assert output([programs / name, *arguments], folder), command
    assert output([programs / "maillard", "--version"], folder).split()[-1] == maillard.__version__


def output(command: list[str | Path], folder: Path) -> str:
    """What a command prints; an error with that if it fails."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command} failed:\n{done.stdout}{done.stderr}"
    return done.stdout


def main() -> int:
    """Build into dist/, check, and print what is there."""
    dist = ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    sdist, wheel = sorted(build(dist), key=lambda path: path.suffix == ".whl")
    build(dist, ROOT / "client", "wheel")
    problems = [*wheel_problems(wheel), *sdist_problems(sdist)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with tarfile.open(sdist) as opened:
            opened.extractall(folder / "source", filter="data")
        (again,) = build(folder / "again", next((folder / "source").iterdir()), "wheel")
        if not same_content(wheel, again):
            problems.append("the wheel that is built from the sdist differs")
        print(*problems, sep="\n", end="\n" if problems else "")
        if problems:
            return 1
        print("== installing the wheel into a fresh environment: a minute or two")
        programs = fresh_environment(folder / "environment", f"{wheel}[{EXTRAS}]")
        (folder / "empty").mkdir()
        run_readme(programs, folder / "empty")
        (client,) = dist.glob("maillard_client-*.whl")
        programs = fresh_environment(folder / "client", str(client))
        output(
            [
                programs / "python",
                "-c",
                "import maillard, sys; maillard.Client; assert 'numpy' not in sys.modules",
            ],
            folder,
        )
    for path in sorted(dist.iterdir()):
        print(f"dist/{path.name}: {path.stat().st_size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
