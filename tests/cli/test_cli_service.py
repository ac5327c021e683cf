"""The commands of the service, tested with real files, processes and requests."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import pty
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest
from click.testing import CliRunner

from maillard.cli import main
from maillard.cli.service_commands import check_workers
from maillard.client import Client
from maillard.decisions.stores import open_store
from maillard.errors import InvalidValue
from maillard.service.api_keys import Keyring, every

MAILLARD = [sys.executable, "-m", "maillard"]


def run(*arguments: str, code: int = 0) -> tuple[str, str]:
    """Run a command; return its stdout and stderr."""
    result = CliRunner().invoke(main, list(arguments), env={"COLUMNS": "200", "NO_COLOR": "1"})
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result.stdout, result.stderr


@pytest.fixture
def database(tmp_path) -> str:
    return str(tmp_path / "maillard.db")


# API keys.


@pytest.mark.parametrize("database_type", ["sqlite", "postgresql"])
def test_a_key_is_created_listed_and_revoked(database_type, request, database) -> None:
    where = database if database_type == "sqlite" else request.getfixturevalue("postgres")
    arguments = ["--scope", "reward", "--scope", "decide", "--experiment", "home", "--rate", "100"]
    secret, notice = run("keys", "create", "--database", where, "--name", "web", *arguments)
    assert re.fullmatch(r"mk_[0-9a-f]{12}_[\w-]{43}\n", secret)  # stdout has only the key, so it can be piped
    assert "(web)" in notice
    assert "for home: decide, reward" in notice
    assert secret.strip() not in notice
    store = open_store(where)
    ring = Keyring(store)
    (key,) = every(store)
    assert ring.find(secret.strip()) == key

    table, _ = run("keys", "list", "--database", where)
    row = table.splitlines()[1].split("  ")
    assert [cell.strip() for cell in row if cell][:5] == [key.id, "web", "decide, reward", "home", "100"]
    (shown,) = json.loads(run("keys", "list", "--database", where, "--json")[0])["keys"]
    assert (shown["id"], shown["experiments"], shown["revoked"]) == (key.id, ["home"], None)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", shown["created"])
    for printed in (table, json.dumps(shown), notice):
        assert key.digest[:16] not in printed

    assert run("keys", "revoke", key.id, "--database", where)[0] == f"Key {key.id} (web) is revoked.\n"
    ring.refresh()
    assert ring.find(secret.strip()) is None
    assert json.loads(run("keys", "list", "--database", where, "--json")[0])["keys"][0]["revoked"]
    store.close()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["create", "--name", "x", "--scope", "write"],
         "one or more of decide, reward, read, admin, got 'write'"),
        (["create", "--name", "", "--scope", "read"], "name: expected a string of 1 to 512 characters"),
        (["create", "--name", "x"], "Missing option '--scope'"),
        (["create", "--name", "x", "--scope", "read", "--rate", "0"], "rate: expected requests per second"),
        (["create", "--name", "x", "--scope", "read", "--experiment", ""], "experiments: expected"),
        (["revoke", "0123456789ab"], "key: unknown name '0123456789ab'"),
    ],
)  # fmt: skip
def test_invalid_arguments_of_keys(arguments, message, database) -> None:
    open_store(database).close()
    out, err = run("keys", *arguments, "--database", database, code=2)
    assert out == ""
    assert message in err


def test_only_create_creates_a_database(database) -> None:
    for arguments in (["list"], ["revoke", "x"]):
        assert "a file that exists" in run("keys", *arguments, "--database", database, code=2)[1]
    assert not Path(database).exists()
    run("keys", "create", "--name", "x", "--scope", "read", "--database", database)
    assert Path(database).exists()


def test_a_list_without_keys(database) -> None:
    open_store(database).close()
    assert run("keys", "list", "--database", database) == (
        "",
        "There are no keys. Create one with: maillard keys create\n",
    )
    assert json.loads(run("keys", "list", "--database", database, "--json")[0]) == {"keys": []}


def test_names_are_escaped_and_damaged_records_reported(database) -> None:
    name = "[bold]\x1b[2Jx\ny"
    run("keys", "create", "--name", name, "--scope", "read", "--database", database)
    with contextlib.closing(sqlite3.connect(database)) as connection:
        connection.execute("INSERT INTO documents (kind, name, content) VALUES ('key', 'broken', '{')")
        connection.commit()
    table, notice = run("keys", "list", "--database", database)
    assert name.encode("unicode_escape").decode() in table
    assert "\x1b" not in table
    assert notice == "broken is not a valid key record; it grants no access\n"


def test_the_database_may_come_from_the_environment(database, monkeypatch) -> None:
    """Every user of the machine can read arguments, so a URL with a password need not be one."""
    monkeypatch.setenv("MAILLARD_DATABASE", database)
    run("keys", "create", "--name", "x", "--scope", "read")
    assert len(json.loads(run("keys", "list", "--json")[0])["keys"]) == 1


# The service.


class ServeProcess:
    """A process that runs `maillard serve`."""

    def __init__(self, process: subprocess.Popen[str], stderr: IO[str]) -> None:
        self.process, self._stderr = process, stderr
        end = time.monotonic() + 120
        while not (match := re.search(r"http://[\w.\[\]:]+:(\d+)/\n", self.output)):
            assert process.poll() is None, self.output
            assert time.monotonic() < end, self.output
            time.sleep(0.02)
        self.port = int(match[1])

    @property
    def output(self) -> str:
        self._stderr.seek(0)
        return self._stderr.read()

    def request(self, method: str, path: str, body: Any = None, key: str | None = None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        headers = {"Content-Type": "application/json"} if body is not None else {}
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        with contextlib.closing(connection):
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read())


@contextlib.contextmanager
def serving(database: str, *options: str) -> Iterator[ServeProcess]:
    with (
        Path(database).with_suffix(".log").open("w+") as stderr,
        subprocess.Popen(
            [*MAILLARD, "serve", "--database", database, "--port", "0", *options], stderr=stderr, text=True
        ) as process,
    ):
        try:
            yield ServeProcess(process, stderr)
        finally:
            process.terminate()


def test_a_service_from_start_to_shutdown(database) -> None:
    with serving(database, "--no-keys") as served:
        first, dashboard, example, *_ = served.output.splitlines()
        url = f"http://127.0.0.1:{served.port}"
        assert first.endswith(f"serves {database} to this machine only, without API keys")
        assert dashboard == f"dashboard: {url}/"
        status, listed = served.request("GET", "/v1/experiments")
        assert (status, listed["experiments"]) == (200, [])
        done = subprocess.run(  # the printed example
            ["bash", "-c", example.removeprefix("try: ") + " --silent"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert json.loads(done.stdout)["experiment"] == "home"
        status, decision = served.request("POST", "/v1/experiments/home/decisions", {})
        assert (status, decision["arm"] in ("red", "blue")) == (201, True)

        # Even with --no-keys, requests need a key once one exists. The service notices that within a second.
        secret, _ = run("keys", "create", "--name", "x", "--scope", "read", "--database", database)
        wait_until(lambda: served.request("GET", "/v1/experiments")[0] == 401)
        assert served.request("GET", "/v1/experiments", key=secret.strip())[0] == 200
        assert served.request("POST", "/v1/experiments/home/decisions", {}, secret.strip())[0] == 403
        run("keys", "revoke", secret.split("_")[1], "--database", database)
        wait_until(lambda: served.request("GET", "/v1/experiments", key=secret.strip())[0] == 401)
        served.process.send_signal(signal.SIGINT)
        assert served.process.wait(20) in (0, 130, -signal.SIGINT)
        assert "Traceback" not in served.output


def wait_until(condition: Any, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_the_printed_example_contains_the_api_key(database) -> None:
    run("keys", "create", "--name", "x", "--scope", "read", "--database", database)
    with serving(database, "--host", "0.0.0.0") as served:
        first, dashboard, example, *_ = served.output.splitlines()
        assert first.endswith("to callers with an API key")
        assert dashboard == f"dashboard: http://127.0.0.1:{served.port}/"
        assert '-H "Authorization: Bearer $MAILLARD_KEY"' in example


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--no-keys", "--host", "0.0.0.0"], "another loopback address with --no-keys, got '0.0.0.0'"),
        (["--no-keys", "--host", ""], "another loopback address with --no-keys"),
        (["--workers", "2"], "--workers: expected 1 with SQLite, which allows one writer"),
        (["--workers", "0"], "0 is not in the range x>=1"),
        (["--port", "65536"], "65536 is not in the range 0<=x<=65535"),
        (["--rate-limit", "-1"], "--rate-limit: expected requests per second"),
        (["--rate-limit", "nan"], "--rate-limit: expected requests per second"),
        (["--database", "exported.parquet"], "a name for a SQLite log"),
        (["--database", "no/such/folder.db"], "a file, in a folder that exists"),
    ],
)
def test_invalid_options_of_serve(options, message, database) -> None:
    out, err = run("serve", "--database", database, "--port", "0", *options, code=2)
    assert out == ""
    assert message in err


def test_a_port_that_is_taken(database) -> None:
    """The start fails before it creates a key."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert f"port {port}" in run("serve", "--database", database, "--port", port, code=2)[1]
    assert not Path(f"{database}.admin-key").exists()
    with contextlib.closing(open_store(database)) as store:
        assert every(store) == []


def test_a_database_with_keys_cannot_be_served_without_keys(database) -> None:
    run("keys", "create", "--name", "x", "--scope", "read", "--database", database)
    errors = run("serve", "--no-keys", "--database", database, "--port", "0", code=2)[1]
    assert "database: expected a database without API keys with --no-keys" in errors


def test_several_workers_require_postgresql() -> None:
    check_workers("maillard.db", 1)
    check_workers("postgresql://localhost/shop", 8)
    check_workers("postgres://localhost/shop", 8)
    with pytest.raises(InvalidValue, match="allows one writer"):
        check_workers("./postgresql.db", 2)


# The demo.


def children(pid: int) -> list[int]:
    """The ids of a process's children and of their descendants."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, task.read_text().split()):
                found += [child, *children(child)]
    return found


def has_ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_the_demo_compares_estimates_with_the_true_rates(tmp_path) -> None:
    log = str(tmp_path / "demo.db")
    environment = {**os.environ, "COLUMNS": "200"}

    def has_estimates(client: Client) -> bool:
        """Whether each arm has an estimate, which requires closed reward windows, and the log enough rows."""
        summary = client.summary()
        estimated = all(arm["mean"] is not None for arm in summary["arms"].values())
        return bool(estimated and summary["decisions"] > 100 and summary["rewards"] > 0)

    # The demo runs until the log has enough rows for the table, also on a slow machine.
    with subprocess.Popen(
        [*MAILLARD, "demo", "--rate", "60", "--database", log],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
    ) as demo:  # fmt: skip
        assert demo.stdout is not None
        first = demo.stdout.readline()
        with Client(first.removeprefix("dashboard: ").strip(), experiment="buttons") as client:
            wait_until(lambda: "buttons" in [each["experiment"] for each in client.experiments()])
            wait_until(lambda: has_estimates(client))
        demo.terminate()
        output, errors = demo.communicate(timeout=120)
    assert demo.returncode == 0
    assert re.fullmatch(r"dashboard: http://127\.0\.0\.1:\d+/\n", first)
    header, *rows = output.splitlines()
    assert header.split("  ")[0] == "button"
    arms = {row.split()[0]: row.replace(",", "").split() for row in rows[:3]}
    assert set(arms) == {"green", "blue", "orange"}
    assert {float(cells[1]) for cells in arms.values()} == {0.1, 0.18, 0.3}
    for cells in arms.values():  # button, true rate, estimate, lower "to" upper, final, pending, shown
        assert float(cells[3]) <= float(cells[2]) <= float(cells[5])
        assert int(cells[6]) + int(cells[7]) == int(cells[8])
    total = sum(int(cells[8]) for cells in arms.values())
    # Whether so few decisions are enough for an audit depends on the draws.
    counted = f"({total:,} of {total:,} probabilities recomputed from the log"
    assert rows[-1].startswith((f"audit: consistent {counted}", f"audit: not enough data {counted}"))
    assert errors == f"The log is kept: maillard verify {log}\n"
    with contextlib.closing(sqlite3.connect(log)) as file:
        ((clicks,),) = file.execute("SELECT count(*) FROM rewards").fetchall()
    assert 0 < clicks < total

    # A second run continues the experiment. Its first visitor arrives at once.
    again = subprocess.run(
        [*MAILLARD, "demo", "--seconds", "0.5", "--database", log],
        capture_output=True, text=True, check=True, env=environment,
    )  # fmt: skip
    recomputed = re.search(r"audit: (?:consistent|not enough data) \(([\d,]+) of", again.stdout)
    assert recomputed is not None
    assert int(recomputed[1].replace(",", "")) > total


@pytest.mark.parametrize("signal_name", ["Ctrl-C", "SIGKILL"])
def test_the_demo_ends_with_all_its_processes(signal_name, tmp_path) -> None:
    """On a terminal, where it shows a live status; also if it is killed."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ |= {"TMPDIR": str(tmp_path), "COLUMNS": "100", "TERM": "xterm"}
        os.execv(sys.executable, [*MAILLARD, "demo", "--rate", "30"])
    output = b""
    with os.fdopen(terminal, "rb", buffering=0) as stream:
        while not re.search(rb"visitor-\d+ sees \w+, p = 0\.\d+", output):
            output += stream.read(65536)
        started = children(pid)
        assert started
        if signal_name == "Ctrl-C":
            os.write(terminal, b"\x03")
        else:
            os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(OSError):  # raised when the terminal closes
            while piece := stream.read(65536):
                output += piece
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    wait_until(lambda: all(map(has_ended, started)))
    if signal_name == "SIGKILL":
        return
    assert status == 0
    assert b"audit:" in output
    assert b"Traceback" not in output
    assert list(tmp_path.iterdir()) == []


def test_the_demo_with_late_clicks(tmp_path) -> None:
    """While no window has closed, no estimate is shown, and the reason is printed."""
    output, _ = run(
        "demo", "--scenario", "late-clicks", "--seconds", "1", "--database", str(tmp_path / "x.db")
    )
    assert "Clicks on four headlines arrive up to an hour late" in output
    rates = re.findall(r"^([A-D]) +(0\.0\d0) ", output, re.MULTILINE)
    assert rates == [("A", "0.050"), ("B", "0.080"), ("C", "0.040"), ("D", "0.060")]
    # On a very slow machine, windows may have closed.
    assert ("No window has closed yet" in output) == (output.count("none yet") == 4)


def test_the_demo_refuses_a_database_with_keys(database) -> None:
    run("keys", "create", "--name", "x", "--scope", "read", "--database", database)
    assert "a database without API keys" in run("demo", "--database", database, code=2)[1]


def test_the_demo_states_why_it_cannot_start(tmp_path) -> None:
    assert (
        "a file, in a folder that exists"
        in run("demo", "--database", str(tmp_path / "no" / "x.db"), code=2)[1]
    )
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert f"port {port}" in run("demo", "--port", port, code=2)[1]
