"""The files in deploy/: the systemd unit is valid, and the steps of the Containerfile work."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.load import free_port
from maillard.cli import main
from maillard.cli.service_commands import serve
from tests.serving import MAILLARD, Service, running

ROOT = Path(__file__).parent.parent
UNIT = (ROOT / "deploy" / "maillard.service").read_text()
CONTAINERFILE = (ROOT / "deploy" / "Containerfile").read_text()
VARIABLES = {option.envvar: option for option in serve.params}


def instructions(name: str) -> list[str]:
    """The arguments of an instruction of the Containerfile, as often as it occurs."""
    joined = CONTAINERFILE.replace("\\\n", " ")
    return re.findall(rf"^{name} (.*)$", joined, re.MULTILINE)


def container_environment() -> dict[str, str]:
    return dict(each.split("=", 1) for each in instructions("ENV"))


def health_check(python: Path | str) -> list[str]:
    """The command of the health check, with another interpreter."""
    (check,) = instructions("HEALTHCHECK")
    program, *arguments = json.loads(check[check.index("[") :])
    assert program == "/opt/maillard/bin/python"
    return [str(python), *arguments]


def is_healthy(python: Path | str) -> bool:
    return subprocess.run(health_check(python), capture_output=True, check=False).returncode == 0


@pytest.fixture
def container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The environment of the container, on a free port and with another folder for the data."""
    for name, value in container_environment().items():
        monkeypatch.setenv(name, value.replace("/var/lib/maillard", str(tmp_path)))
    monkeypatch.setenv("MAILLARD_PORT", str(free_port()))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    return tmp_path


# systemd.


@pytest.mark.parametrize("required", [False, pytest.param(True, marks=pytest.mark.torture)])
def test_systemd_accepts_the_unit(tmp_path, required) -> None:
    """`systemd-analyze verify` reports unknown settings on stderr. It needs a program that exists."""
    unpacked = ROOT / ".systemd" / "usr"  # by `make systemd`
    analyze = shutil.which("systemd-analyze", path=f"{os.environ['PATH']}:{unpacked / 'bin'}")
    if analyze is None:
        stop = pytest.fail if required and os.environ.get("CI") == "true" else pytest.skip
        stop("systemd-analyze is missing: `make systemd` fetches it, to check deploy/maillard.service")
    libraries = [str(path) for path in unpacked.glob("lib/*/systemd")]

    def verify(text: str) -> tuple[int, str]:
        path = tmp_path / "maillard.service"
        path.write_text(text.replace("/opt/maillard/bin/maillard", sys.executable))
        environment = {**os.environ, **({"LD_LIBRARY_PATH": ":".join(libraries)} if libraries else {})}
        command = [analyze, "verify", path]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        return done.returncode, done.stderr

    assert verify(UNIT) == (0, "")
    assert "ProtectSistem" in verify(UNIT.replace("ProtectSystem=", "ProtectSistem="))[1]  # it can fail


def test_the_unit_starts_a_command_with_variables_that_exist() -> None:
    (start,) = re.findall(r"^ExecStart=(.*)$", UNIT, re.MULTILINE)
    program, command, *options = shlex.split(start)
    assert Path(program).name == "maillard"
    assert main.commands[command] is serve
    assert options == []
    for name, _ in re.findall(r"^Environment=(MAILLARD_\w+)=(.*)$", UNIT, re.MULTILINE):
        assert name in VARIABLES
    for setting in ("NoNewPrivileges=yes", "ProtectSystem=strict", "DynamicUser=yes", "UMask=0077"):
        assert f"\n{setting}\n" in UNIT


# The container.


def test_the_containerfile_copies_paths_that_exist() -> None:
    copied = [each.split() for each in instructions("COPY") if not each.startswith("--from")]
    assert len(copied) == 2
    for *sources, _ in copied:
        for source in sources:
            assert (ROOT / source).exists(), source


def test_the_container_runs_as_another_user_with_variables_that_exist() -> None:
    assert instructions("USER") == ["10001"]
    assert {name for name in container_environment() if name.startswith("MAILLARD_")} <= VARIABLES.keys()
    (command,) = instructions("CMD")
    assert main.commands[json.loads(command)[0]] is serve
    assert instructions("VOLUME") == instructions("WORKDIR") == ["/var/lib/maillard"]


def test_the_command_of_the_container_starts_and_is_healthy(container, monkeypatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    (command,) = instructions("CMD")
    assert not is_healthy(sys.executable)
    port = int(os.environ["MAILLARD_PORT"])
    with running([*MAILLARD, *json.loads(command)], port=port) as service:
        assert is_healthy(sys.executable)
        key = container / "maillard.db.admin-key"
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
        assert service.get_status("/v1/me") == 401
        assert service.stop() in (0, -15)
    assert not is_healthy(sys.executable)


@pytest.mark.torture
def test_the_steps_of_the_containerfile_install_a_service_that_works(container, tmp_path) -> None:
    """Without a container: its first RUN lines, in another folder, and then its command."""
    target, source = tmp_path / "opt", tmp_path / "source"
    for *copied, _ in (each.split() for each in instructions("COPY") if not each.startswith("--from")):
        for name in copied:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            source.mkdir(exist_ok=True)
            copy(ROOT / name, source / name)
    build, _ = CONTAINERFILE.split("\nFROM docker.io/library/python:3.11-slim\n")
    for step in re.findall(r"^RUN (.*)$", build, re.MULTILINE):
        command = step.replace("/opt/maillard", str(target)).replace("/source", str(source))
        command = command.replace("python -m venv", f"{shlex.quote(sys.executable)} -m venv", 1)
        subprocess.run(command, shell=True, check=True)
    service = Service(["serve"], int(os.environ["MAILLARD_PORT"]))
    service.program = target / "bin" / "maillard"
    try:
        service.start()
        assert is_healthy(target / "bin" / "python")
        assert (container / "maillard.db.admin-key").exists()
    finally:
        service.close()
