"""The first start of `maillard serve`: it creates an API key and shows it once."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest

from maillard.decisions.stores import open_store
from maillard.service.api_keys import Keyring, every
from tests.page_blocks import blocks
from tests.serving import MAILLARD, Service, serving

SECRET = re.compile(r"mk_[0-9a-f]{12}_[\w-]{43}")
TIMEOUT = 120.0  # seconds; an idle machine needs a few


@pytest.fixture
def database(tmp_path) -> Path:
    return Path(tmp_path / "maillard.db")


def key_file(database: Path) -> Path:
    return database.with_name(database.name + ".admin-key")


def status_of(service: Service, path: str, key: str | None = None, method: str = "GET") -> int:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    return httpx2.request(method, service.url + path, headers=headers, timeout=TIMEOUT).status_code


def stored_keys(database: Any) -> list[Any]:
    with contextlib.closing(open_store(database)) as store:
        return every(store)


def test_without_a_terminal_the_key_is_written_to_a_file(database) -> None:
    with serving(database, no_keys=False) as service:
        path = key_file(database)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        secret = path.read_text().removesuffix("\n")
        assert SECRET.fullmatch(secret)
        assert f"Created an API key with the scope admin, in the file {path}\n" in service.output
        assert f"serves {database} to callers with an API key\n" in service.output
        assert status_of(service, "/v1/me") == 401
        assert status_of(service, "/v1/experiments/home:archive", method="POST") == 401
        permissions = httpx2.get(f"{service.url}/v1/me", headers={"Authorization": f"Bearer {secret}"}).json()
        assert ("admin" in permissions["scopes"], permissions["open"]) == (True, False)
        assert status_of(service, "/healthz") == 200

        # A second start creates no key, also if the file has been removed.
        path.unlink()
        service.stop()
        service.start()
        assert status_of(service, "/v1/me") == 401
        assert status_of(service, "/v1/me", secret) == 200
        service.stop()
        lines = [json.loads(line) for line in service.output.splitlines() if line.startswith("{")]
        assert {line.get("key") for line in lines if line.get("status") == 200} >= {secret.split("_")[1]}
        assert secret.split("_", 2)[2] not in service.output  # neither in messages nor in the access log
        assert SECRET.search(service.output) is None
    assert not path.exists()
    (key,) = stored_keys(database)
    assert (key.name, key.scopes) == ("first admin key", ("admin",))
    assert secret.encode() not in database.read_bytes()  # only its hash is stored


def test_the_documented_commands(database) -> None:
    """The commands of docs/how-to/service.md, with the address and the key of this service."""
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "service.md").read_text(encoding="utf8")
    found = blocks(page)
    (script,) = (block.text for block in found if block.text.startswith("export MAILLARD_KEY="))
    setup, create, decide, reward = re.split(r"^(?=curl)", script, flags=re.MULTILINE)
    shown = [json.loads(block.text) for block in found if block.language == "json"]

    def run(command: str) -> Any:
        exported = setup.replace("mk_...", f'"$(cat {key_file(database)})"')
        script = exported + command.replace("localhost:8000", f"{service.host}:{service.port}")
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    with serving(database, no_keys=False) as service:
        assert run(create)["experiment"] == "home"
        decision = run(decide)
        assert decision["arm"] in ("red", "blue")
        received = run(reward.replace("<id>", decision["id"]))
        assert received["outcome"] == "waiting"
    assert [decision.keys(), received.keys()] == [response.keys() for response in shown[:2]]


def test_an_existing_key_prevents_the_first_key(database) -> None:
    command = [sys.executable, *MAILLARD, "keys", "create", "--database", str(database)]
    subprocess.run([*command, "--name", "web", "--scope", "read"], check=True, capture_output=True)
    with serving(database, no_keys=False) as service:
        assert status_of(service, "/v1/me") == 401
    assert [key.name for key in stored_keys(database)] == ["web"]
    assert not key_file(database).exists()


def test_the_file_is_private_whatever_the_umask(database) -> None:
    for umask in ("0", "0o377"):
        with serving(database, no_keys=False, prelude=f"import os; os.umask({umask})"):
            assert stat.S_IMODE(key_file(database).stat().st_mode) == 0o600
        for each in database.parent.iterdir():
            each.unlink()


@pytest.mark.parametrize("existing", ["a file", "a link"])
def test_an_existing_file_is_not_overwritten_and_no_key_is_created(existing, database, tmp_path) -> None:
    path, elsewhere = key_file(database), tmp_path / "elsewhere"
    if existing == "a file":
        path.write_text("kept")
    else:
        path.symlink_to(elsewhere)
    command = [sys.executable, *MAILLARD, "serve", "--database", str(database), "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert done.returncode == 2
    assert f"cannot write the first API key to {path}: the file exists" in done.stderr
    assert "Traceback" not in done.stderr
    assert stored_keys(database) == []
    assert path.read_text() == "kept" if existing == "a file" else not elsewhere.exists()


def test_with_postgresql_the_file_is_in_the_working_directory(postgres, tmp_path) -> None:
    prelude = f"import os; os.chdir({str(tmp_path)!r})"
    with serving(postgres, no_keys=False, workers=2, prelude=prelude) as service:
        secret = (tmp_path / "maillard.admin-key").read_text().strip()
        assert status_of(service, "/v1/me", secret) == 200
        assert status_of(service, "/v1/me") == 401
    assert len(stored_keys(postgres)) == 1


def test_on_a_terminal_the_key_and_a_link_are_printed(database) -> None:
    command = [sys.executable, *MAILLARD, "serve", "--database", str(database), "--port", "0"]
    terminal, inside = pty.openpty()
    service = subprocess.Popen(command, stdin=inside, stdout=inside, stderr=inside, start_new_session=True)
    os.close(inside)
    output, end = b"", time.monotonic() + TIMEOUT
    with os.fdopen(terminal, "rb", buffering=0) as stream, service:
        try:
            while b"\ntry: curl" not in output:
                assert time.monotonic() < end, output
                output += stream.read(65536)
        finally:
            service.terminate()
            with contextlib.suppress(OSError):  # raised when the terminal closes
                while stream.read(65536):
                    pass
    notice, secret, _, dashboard, example, *_ = output.decode().replace("\r", "").splitlines()
    assert notice == "Created an API key with the scope admin. Save it now; it is not shown again:"
    assert SECRET.fullmatch(secret)
    assert re.fullmatch(rf"dashboard: http://127\.0\.0\.1:\d+/#key={secret}", dashboard)
    assert secret not in example
    assert not key_file(database).exists()
    with contextlib.closing(open_store(database)) as store:
        key = Keyring(store).find(secret)
    assert key is not None
    assert key.scopes == ("admin",)


@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_processes_that_start_at_the_same_time_create_one_key(store, request, tmp_path) -> None:
    where = str(tmp_path / "log.db") if store == "sqlite" else request.getfixturevalue("postgres")
    open_store(where).close()
    # Each process waits until all are ready, then creates the key as a start does.
    program = (
        "import sys\n"
        "from maillard.cli.service_commands import _FirstKey\n"
        "from maillard.decisions.stores import open_store\n"
        "from maillard.service.api_keys import create_first\n"
        "store = open_store(sys.argv[1])\n"
        "print('ready', flush=True)\n"
        "sys.stdin.readline()\n"
        "create_first(store, _FirstKey(sys.argv[1]).show)\n"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program, where], cwd=tmp_path, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for _ in range(3)
    ]  # fmt: skip
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    errors = [process.communicate()[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert sorted(map(len, errors))[:2] == [0, 0]
    (path,) = tmp_path.glob("*.admin-key")
    (key,) = stored_keys(where)
    with contextlib.closing(open_store(where)) as opened:
        assert Keyring(opened).find(path.read_text().strip()) == key


def test_services_that_start_at_the_same_time_share_one_key(postgres, tmp_path) -> None:
    prelude = f"import os; os.chdir({str(tmp_path)!r})\nfrom maillard.cli import main\nmain()"
    options = ["serve", "--database", postgres, "--port", "{port}"]
    services = [Service(["-c", prelude, *options]) for _ in range(2)]
    try:
        for service in services:
            service.launch()
        for service in services:
            service.await_ready()
        secret = (tmp_path / "maillard.admin-key").read_text().strip()
        for service in services:
            assert status_of(service, "/v1/me", secret) == 200
            assert status_of(service, "/v1/me") == 401
        assert sum("Created an API key" in service.output for service in services) == 1
    finally:
        for service in services:
            service.close()
    assert len(stored_keys(postgres)) == 1
