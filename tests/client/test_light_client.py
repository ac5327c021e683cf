"""The client without the library: it imports no NumPy, and `maillard-client` contains what it needs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from maillard.service import running

ROOT = Path(__file__).parents[2]
CLIENT = ROOT / "client"
MOST_PACKAGES = 8  # besides maillard-client
MOST_BYTES = 25_000_000

# Uses the methods of both clients. It runs where only the client and its dependencies can be imported.
USE_CLIENTS = """
import asyncio, sys
from maillard import AsyncClient, Client, Conflict, InvalidValue, MaillardError, Reward, UnknownName

url, experiment, folder = sys.argv[1:]
with Client(url, experiment=experiment) as home:
    made = home.create(experiment, ["red", "blue"], "ms+:booster=8", reward=Reward(low=0, high=1))
    assert made["policy"] == "ms+:booster=8,sigma2=0.25", made
    decision = home.choose(unit="user-17", idempotency_key="first")
    assert decision.probabilities == {"red": 0.5, "blue": 0.5}
    assert home.choose(unit="user-17", idempotency_key="first") == decision
    assert home.reward(decision.id, 1.0) == "applied"
    rows = [{"decision": each.id, "value": 1, "at": float("nan")} for each in home.choose(size=3)]
    assert home.rewards(rows) == ["applied"] * 3
    assert home.summary()["policy"] == "ms+:booster=8,sigma2=0.25"
    assert home.arms == ["red", "blue"]
    home.change_policy("ms+:booster=4")
    assert home.verify()["recomputed"] == 4
    assert home.evaluate("arm:red", ["snips"])["estimand"]
    assert home.export(folder + "/home.parquet").stat().st_size
    for wrong, error in (
        (lambda: home.create(experiment, ["red"], reward=Reward(low=0, high=1)), Conflict),
        (lambda: home.choose(eligible=["green"]), UnknownName),
        (lambda: home.change_policy(3), InvalidValue),
    ):
        try:
            wrong()
        except error:
            continue
        raise AssertionError(error)

async def main():
    async with AsyncClient(url, experiment=experiment) as home:
        return await home.reward((await home.choose()).id, 0.0)

assert asyncio.run(main()) == "applied"
print(*sorted(name for name in sys.modules if name.partition(".")[0] == "maillard"))
with Client(url, experiment=experiment) as home:
    try:
        str(home.policy)
    except MaillardError as error:  # only the library can make an object of it
        assert "summary()['policy']" in str(error), error
"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(tmp_path_factory.mktemp("service") / "log.db", no_keys=True) as address:
        yield address


def requirements(pyproject: Path) -> dict[str, list[str]]:
    """The requirements of a distribution, by extra; those of the distribution itself are under ''."""
    project = tomllib.loads(pyproject.read_text())["project"]
    return {"": project["dependencies"], **project.get("optional-dependencies", {})}


def names_of(required: list[str]) -> set[str]:
    found = {re.split(r"[^A-Za-z0-9._-]", each)[0].replace("-", "_") for each in required}
    return found - {"maillard"}


def shipped_modules() -> set[str]:
    """The modules in the wheel of maillard-client."""
    wheel = tomllib.loads((CLIENT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"][
        "wheel"
    ]
    modules = set()
    for source, target in wheel["force-include"].items():
        path = CLIENT / source
        assert path.exists(), source
        assert Path(target).parts[0].startswith("maillard_client"), "no file may also belong to maillard"
        for file in path.rglob("*.py") if path.is_dir() else [path]:
            if file.suffix == ".py":
                parts = file.resolve().relative_to(ROOT / "src").with_suffix("").parts
                modules.add(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return modules


def test_the_clients_work_without_the_dependencies_of_the_library(url, tmp_path) -> None:
    required = requirements(ROOT / "pyproject.toml")
    forbidden = names_of(required[""] + required["simulation"] + required["service"])
    forbidden = forbidden - names_of(required["client"]) - {"anyio"}  # httpx2 needs anyio
    assert {"numpy", "scipy", "click", "rich", "numba", "matplotlib", "pyarrow", "starlette"} <= forbidden
    # None in sys.modules makes an import fail.
    code = f"import sys\nsys.modules.update(dict.fromkeys({sorted(forbidden)}))\n" + USE_CLIENTS
    command = [sys.executable, "-c", code, url, "blocked", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    used = set(done.stdout.split())
    assert used <= shipped_modules(), "client/pyproject.toml lacks a module that the client needs"
    assert used >= shipped_modules(), "client/pyproject.toml lists a module that the client does not need"


def test_the_light_client_has_the_dependencies_of_the_extra() -> None:
    light = requirements(CLIENT / "pyproject.toml")[""]
    assert light == requirements(ROOT / "pyproject.toml")["client"]


def test_a_name_of_the_library_is_an_error_that_says_what_to_install() -> None:
    code = "import sys; sys.modules['numpy'] = None; import maillard.client; from maillard import Bandit"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "maillard.Bandit needs numpy; only its client is installed: pip install maillard" in done.stderr


@pytest.mark.torture
def test_an_environment_with_only_the_client(url, tmp_path) -> None:
    """Installed with pip: the number of packages and their size, real requests, and maillard beside it."""
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    python = environment / "bin" / "python"
    outside = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]

    def use_clients(experiment: str) -> set[str]:
        command = [python, "-c", USE_CLIENTS, url, experiment, str(tmp_path)]
        done = subprocess.run(command, cwd=tmp_path, env=outside, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return set(done.stdout.split())

    subprocess.run([*pip, "install", CLIENT], check=True)
    (packages,) = environment.glob("lib/python*/site-packages")
    tools = ("pip", "setuptools", "_distutils_hack", "distutils")  # of every environment
    installed = [path for path in packages.iterdir() if not path.name.startswith(tools)]
    distributions = sorted(path.name for path in installed if path.suffix == ".dist-info")
    size = sum(
        file.stat().st_size for path in installed for file in ([path] if path.is_file() else path.rglob("*"))
    )
    print(f"{len(distributions) - 1} packages besides maillard-client, {size / 1e6:.1f} MB: {distributions}")
    assert len(distributions) - 1 <= MOST_PACKAGES
    assert size <= MOST_BYTES
    assert not (packages / "numpy").exists()
    assert use_clients("light") <= shipped_modules()

    # Beside the library, each can be removed without the other. Its dependencies do not matter here.
    subprocess.run([*pip, "install", "--no-deps", ROOT], check=True)
    where = [python, "-c", "import maillard.client; print(maillard.__file__)"]
    found = subprocess.run(where, cwd=tmp_path, env=outside, capture_output=True, text=True, check=True)
    assert Path(found.stdout.strip()) == packages / "maillard" / "__init__.py"
    subprocess.run([*pip, "uninstall", "--yes", "maillard-client"], check=True)
    use_clients("library")
    subprocess.run([*pip, "install", "--no-deps", CLIENT], check=True)
    subprocess.run([*pip, "uninstall", "--yes", "maillard"], check=True)
    assert use_clients("light-again") <= shipped_modules()
