"""Who may not do something gets 401 or 403 and learns nothing else: every operation, every way of not being allowed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import Any

import httpx2
import pytest

from benchmarks.load import request as written
from maillard.decisions.stores import open_store
from maillard.service.api_keys import SCOPES, create, revoke
from maillard.service.operations import OPERATIONS, Operation
from tests.service.raw_http import error, refusal, say
from tests.serving import MAILLARD, Service, serving
from tests.stores import new_id

NEW = {"experiment": "home", "arms": ["crimson", "azure"], "policy": "ms+", "reward": {"low": 0, "high": 1}}
CLOSE = "Connection: close\r\n"
GUARDED = [each for each in OPERATIONS if each.scope is not None]
NEVER = "mk_0123456789ab_" + "A" * 43
WITHIN = 60.0  # seconds; a revoked key opens nothing after about one


def by_name(operation: Operation) -> str:
    return operation.name


@dataclass(frozen=True)
class Place:
    """A service with keys, two experiments and a decision of each; and the keys' secrets by name."""

    service: Service
    client: httpx2.Client
    secrets: Mapping[str, str]
    decision: str

    def ask(self, operation: Operation, authorization: Any, *, key: str, id: str, **options: Any) -> Any:
        """The answer to an operation on one experiment or decision."""
        path = operation.path.replace("{arm:anything}", "crimson").format(experiment=key, id=id)
        headers = {} if authorization is None else {"Authorization": authorization}
        if operation.body is not None:
            options = {"json": body_of(operation, key, id)} | options
        return self.client.request(operation.method, path, headers=headers | {"If-Match": '"999"'}, **options)

    def both(self, operation: Operation, authorization: Any, **options: Any) -> list[Any]:
        """Of what there is, and of what there is not."""
        there = self.ask(operation, authorization, key="home", id=self.decision, **options)
        nowhere = self.ask(operation, authorization, key="ghost", id=new_id(), **options)
        return [there, nowhere]


def body_of(operation: Operation, key: str, id: str) -> dict[str, Any]:
    """A body that the operation would take."""
    bodies: dict[str, dict[str, Any]] = {
        "decide": {"unit": "u"},
        "decide_batch": {"decisions": [{}]},
        "reward": {"value": 1},
        "reward_batch": {"rewards": [{"decision": id, "value": 1}]},
        "create_experiment": NEW | {"experiment": key},
        "evaluate": {"target": "arm:crimson"},
        "add_arm": {"arm": "mauve"},
        "change_experiment": {"policy": "ms"},
    }
    return bodies.get(operation.name, {})


def bearer(secret: str) -> str:
    return f"Bearer {secret}"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    log = str(tmp_path_factory.mktemp("guarded") / "log.db")
    secrets = {}
    with closing(open_store(log)) as store:
        for name, scopes, experiments in [
            ("admin", ["admin"], None),
            ("revoked", ["admin"], None),
            ("elsewhere", ["admin"], ["elsewhere"]),
            *((f"only {scope}", [scope], None) for scope in SCOPES),
            *((f"not {scope}", {*SCOPES} - {scope, "admin"}, None) for scope in SCOPES),
        ]:
            made, secrets[name] = create(store, name, scopes, experiments)
            if name == "revoked":
                revoke(store, made.id)
    with (
        serving(log, options=["--rate-limit", "0"]) as service,
        httpx2.Client(base_url=service.url, timeout=120) as client,
    ):
        admin = {"Authorization": bearer(secrets["admin"])}
        for key in ("home", "elsewhere"):
            answer = client.post("/v1/experiments", json=NEW | {"experiment": key}, headers=admin)
            assert answer.status_code == 201
        made_one = client.post("/v1/experiments/home/decisions", json={}, headers=admin)
        yield Place(service, client, secrets, made_one.json()["id"])


def learned(answer: Any) -> Any:
    """All that an answer tells, but for the id of the request and, with it, the length."""
    request_id = answer.headers["x-request-id"]
    headers = {name: answer.headers[name] for name in answer.headers if name not in _OF_THE_REQUEST}
    return answer.status_code, headers, answer.text.replace(request_id, "")


_OF_THE_REQUEST = ("x-request-id", "content-length")
_HARMLESS = {"content-type", "cache-control", "x-content-type-options", "www-authenticate"}


def assert_nothing_learned(answers: list[Any]) -> None:
    """The same whether or not there is such a thing, and nothing of it in the answer."""
    status, headers, text = learned(answers[0])
    assert [learned(answer) for answer in answers] == [(status, headers, text)] * len(answers)
    assert set(headers) <= _HARMLESS
    for word in ("crimson", "azure", "home", "ghost", "elsewhere", "/tmp", "sqlite", "traceback"):
        assert word not in text.lower()


# Without a key that is good for anything.


NO_KEYS = {
    "none": None,
    "empty": "",
    "no secret": "Bearer",
    "a dot": "Bearer .",
    "another scheme": f"Basic {NEVER}",
    "no scheme": NEVER,
    "never made": bearer(NEVER),
    "not of the form": "Bearer hello",
    "long": "Bearer " + "x" * 10_000,
    "not ASCII": "Bearer mk_é".encode("latin-1"),
    "two": f"Bearer {NEVER}, Bearer {NEVER}",
}


@pytest.mark.parametrize("operation", GUARDED, ids=by_name)
def test_without_a_key_there_is_401(place: Place, operation: Operation) -> None:
    for given in NO_KEYS.values():
        answers = place.both(operation, given)
        assert refusal(answers[0]) == (401, "unauthorized", None), given
        assert answers[0].headers["www-authenticate"] == "Bearer"
        assert_nothing_learned(answers)


@pytest.mark.parametrize("operation", GUARDED, ids=by_name)
def test_keys_that_are_almost_right(place: Place, operation: Operation) -> None:
    """A revoked key, a right one with a letter more, less or another, and what a key's id is worth."""
    good = place.secrets["admin"]
    last = "A" if good[-1] != "A" else "Q"
    wrong = [
        place.secrets["revoked"], good + "A", good[:-1], good[:-1] + last, good.upper(), good[:16] + "A" * 43,
        good[3:15], f"{good} {good}", f'"{good}"',
    ]  # fmt: skip
    answers = [answer for secret in wrong for answer in place.both(operation, bearer(secret))]
    assert refusal(answers[0]) == (401, "unauthorized", None)
    assert_nothing_learned(answers)


@pytest.mark.parametrize("operation", [each for each in GUARDED if each.body], ids=by_name)
@pytest.mark.parametrize("content", [b"{", b"\xff", b'{"no": 1}', b"x" * 5_000_000])
def test_without_a_key_the_body_is_not_looked_at(place: Place, operation: Operation, content: bytes) -> None:
    answers = place.both(operation, None, json=None, content=content)
    answers += place.both(operation, None)
    assert_nothing_learned(answers)
    assert refusal(answers[0])[0] == 401


def test_a_key_anywhere_else_is_no_key(place: Place) -> None:
    good = place.secrets["admin"]
    for options in (
        {"params": {"key": good, "access_token": good, "authorization": bearer(good)}},
        {"headers": {"Cookie": f"key={good}", "X-API-Key": good, "Proxy-Authorization": bearer(good)}},
        {"auth": ("admin", good)},
    ):
        assert refusal(place.client.get("/v1/experiments", **options))[0] == 401


def test_head_needs_a_key_too(place: Place) -> None:
    for operation in GUARDED:
        if operation.method == "GET":
            path = operation.path.format(experiment="home", id=place.decision)
            assert place.client.head(path).status_code == 401


# With a key that is good for something else.


@pytest.mark.parametrize("operation", [each for each in GUARDED if each.scope != "any"], ids=by_name)
def test_a_key_without_the_scope_gets_403(place: Place, operation: Operation) -> None:
    fitting = {"admin": "admin"}.get(str(operation.scope), str(operation.scope))
    names = [f"not {fitting}"] + [f"only {each}" for each in SCOPES if each not in (fitting, "admin")]
    for name in names:
        answers = place.both(operation, bearer(place.secrets[name]))
        assert refusal(answers[0]) == (403, "forbidden", None)
        assert_nothing_learned(answers)


@pytest.mark.parametrize("operation", GUARDED, ids=by_name)
def test_a_key_with_the_scope_gets_through(place: Place, operation: Operation) -> None:
    """So that the other tests do not pass because nothing works. What is not there is 404; versions are all stale."""
    scope = "read" if operation.scope == "any" else operation.scope
    for name in (f"only {scope}", "admin"):
        for answer in place.both(operation, bearer(place.secrets[name])):
            assert answer.status_code in (200, 201, 202, 404, 409, 412)


@pytest.mark.parametrize("operation", GUARDED, ids=by_name)
def test_a_key_for_another_experiment(place: Place, operation: Operation) -> None:
    answers = place.both(operation, bearer(place.secrets["elsewhere"]))
    if operation.name in ("list_experiments", "list_policies", "read_permissions"):
        assert answers[0].status_code == 200
        assert "home" not in answers[0].text
    elif operation.name == "reward_batch":  # a status for each
        for answer in answers:
            (result,) = answer.json()["results"]
            assert (result["status"], result["error"]["code"]) == (403, "forbidden")
        assert answers[0].text == answers[1].text
    else:
        assert refusal(answers[0]) == (403, "forbidden", None)
        assert_nothing_learned(answers)


def test_what_a_limited_key_may_see(place: Place) -> None:
    headers = {"Authorization": bearer(place.secrets["elsewhere"])}
    mine = place.client.get("/v1/experiments?archived=true", headers=headers).json()["experiments"]
    assert [each["experiment"] for each in mine] == ["elsewhere"]
    about = place.client.get("/v1/me", headers=headers).json()
    assert (about["experiments"], about["open"]) == (["elsewhere"], False)
    path = "/v1/experiments/elsewhere/decisions"
    own = place.client.post(path, json={}, headers=headers).json()["id"]
    assert place.client.get(f"/v1/decisions/{own}", headers=headers).status_code == 200
    both = [{"decision": each, "value": 1} for each in (own, place.decision)]
    results = place.client.post("/v1/rewards:batch", json={"rewards": both}, headers=headers).json()[
        "results"
    ]
    assert [each["status"] for each in results] == [201, 403]


def test_nothing_was_changed_by_those_who_may_not(place: Place) -> None:
    """After all of the above: the experiment is as it was made."""
    headers = {"Authorization": bearer(place.secrets["admin"])}
    state = place.client.get("/v1/experiments/home", headers=headers)
    assert (state.headers["etag"], state.json()["status"], state.json()["arms"]) == (
        '"1"',
        "running",
        NEW["arms"],
    )


def test_the_scheme_may_be_spelled_as_one_likes(place: Place) -> None:
    for scheme in ("Bearer", "bearer", "BEARER"):
        answer = place.client.get(
            "/v1/me", headers={"Authorization": f"{scheme} {place.secrets['only read']}"}
        )
        assert answer.json()["scopes"] == ["read"]


@pytest.mark.parametrize("operation", [each for each in OPERATIONS if each.scope is None], ids=by_name)
def test_what_needs_no_key_tells_nothing_of_experiments(place: Place, operation: Operation) -> None:
    answer = place.client.get(operation.path)
    assert answer.status_code == 200
    for word in ("crimson", "elsewhere", *place.secrets.values()):
        assert word not in answer.text


# While no key has been made.


@pytest.fixture(scope="module")
def unlocked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("open") / "log.db", options=["--rate-limit", "0"]) as service:
        yield service


@pytest.fixture(scope="module")
def visitor(unlocked: Service) -> Iterator[httpx2.Client]:
    """A client on this machine."""
    with httpx2.Client(base_url=unlocked.url, timeout=120) as client:
        assert client.post("/v1/experiments", json=NEW).status_code == 201
        yield client


def status_with(service: Service, path: str, **headers: str) -> int:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    (answer,) = say(service, f"GET {path} HTTP/1.1\r\n{lines}{CLOSE}\r\n".encode("latin-1"))
    if answer.status_code == 403:
        assert "home" not in answer.content.decode()
        assert refusal(answer) == (403, "forbidden", None)
    return answer.status_code


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "localhost.evil.example", "0.0.0.0", "10.0.0.1",
     "[::]", "[::1].evil.example", "[::1", "", "2130706433", "0x7f.1", "localhost.", "evil.example#127.0.0.1",
     "evil.example/127.0.0.1", "evil.example@127.0.0.1", "127.0.0.1@evil.example", "127.0.0.1, evil.example", "é"]
)  # fmt: skip
def test_a_name_that_was_bound_to_this_machine_opens_nothing(unlocked: Service, host: str) -> None:
    """DNS rebinding: a page of evil.example, whose name now means 127.0.0.1, asks from a browser on this machine."""
    for operation in GUARDED:
        if operation.method == "GET":
            path = operation.path.format(experiment="home", id=new_id())
            assert status_with(unlocked, path, Host=host) == 403


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST:80", "[::1]:8000", "127.8.8.8"])
def test_loopback_names_open(unlocked: Service, host: str) -> None:
    assert status_with(unlocked, "/v1/experiments", Host=host) == 200


ORIGINS = [
    "http://evil.example", "https://evil.example", "null", "", "http://127.0.0.1", "http://127.0.0.1:1",
    "http://localhost:{port}", "file://", "http://evil.example/127.0.0.1:{port}", "http://[", "é",
]  # fmt: skip


@pytest.mark.parametrize("operation", GUARDED, ids=by_name)
def test_a_page_from_elsewhere_gets_nothing(unlocked: Service, operation: Operation) -> None:
    path = operation.path.replace("{arm:anything}", "crimson").format(experiment="home", id=new_id())
    body = json.dumps(body_of(operation, "home", new_id())).encode() if operation.body else b""
    for origin in ORIGINS:
        asked = written(
            operation.method, path, body, f"Origin: {origin.format(port=unlocked.port)}\r\n{CLOSE}"
        )
        asked = asked.replace(b"Host: 127.0.0.1", b"Host: 127.0.0.1:%d" % unlocked.port)
        (answer,) = say(unlocked, asked)
        assert refusal(answer) == (403, "forbidden", None), origin


def test_its_own_page_gets_through(unlocked: Service) -> None:
    for host in (f"127.0.0.1:{unlocked.port}", f"localhost:{unlocked.port}"):
        assert status_with(unlocked, "/v1/experiments", Host=host, Origin=f"http://{host}") == 200


def test_a_key_that_is_none_opens_nothing_even_then(unlocked: Service) -> None:
    assert status_with(unlocked, "/v1/me", Host="localhost", Authorization=bearer(NEVER)) == 401


def test_the_first_key_locks_the_door_for_good(tmp_path: Path) -> None:
    log = str(tmp_path / "log.db")
    with serving(log) as service, closing(open_store(log)) as store:

        def within(status: int, **headers: str) -> None:
            end = time.monotonic() + WITHIN
            while (found := httpx2.get(f"{service.url}/v1/me", headers=headers).status_code) != status:
                assert time.monotonic() < end, found
                time.sleep(0.05)

        assert httpx2.get(f"{service.url}/v1/me").json()["open"]
        key, secret = create(store, "first", ["read"])
        within(401)
        within(200, Authorization=bearer(secret))
        revoke(store, key.id)
        within(401, Authorization=bearer(secret))
        assert httpx2.get(f"{service.url}/v1/me").status_code == 401


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_no_key_no_other_machine(tmp_path: Path, host: str) -> None:
    """Refused before anything listens."""
    command = [
        sys.executable,
        *MAILLARD,
        "serve",
        "--database",
        str(tmp_path / "log.db"),
        "--host",
        host,
        "--port",
        "0",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "maillard keys create" in done.stderr
    assert "Traceback" not in done.stderr


# Browsers.


@pytest.mark.parametrize("path", sorted({each.path for each in OPERATIONS} | {"/", "/dashboard.js"}))
def test_cors_is_off(visitor: httpx2.Client, path: str) -> None:
    where = path.replace("{arm:anything}", "crimson").format(experiment="home", id=new_id())
    preflight = {"Origin": "http://evil.example", "Access-Control-Request-Private-Network": "true"}
    preflight |= {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
    for method, headers in (("OPTIONS", preflight), ("GET", {"Origin": "http://evil.example"}), ("GET", {})):
        answer = visitor.request(method, where, headers=headers)
        assert not [name for name in answer.headers if name.startswith("access-control-")]
        assert answer.headers["x-content-type-options"] == "nosniff"
        if method == "OPTIONS":
            assert refusal(answer) == (405, "method_not_allowed", None)


PAGES = sorted(file.name for file in files("maillard.service").joinpath("dashboard").iterdir())


@pytest.mark.parametrize("name", PAGES)
def test_pages_may_load_nothing_from_elsewhere(visitor: httpx2.Client, name: str) -> None:
    answer = visitor.get("/" if name == "index.html" else f"/{name}")
    assert answer.status_code == 200
    policy = dict(part.split(None, 1) for part in answer.headers["content-security-policy"].split("; "))
    assert (
        policy["default-src"]
        == policy["base-uri"]
        == policy["form-action"]
        == policy["frame-ancestors"]
        == "'none'"
    )
    assert {policy[each] for each in ("script-src", "style-src", "connect-src")} == {"'self'"}
    assert policy["img-src"] in ("'self'", "'self' data:")
    assert not set(policy) - {
        "default-src", "script-src", "style-src", "img-src", "connect-src", "base-uri", "form-action", "frame-ancestors",
        "require-trusted-types-for", "trusted-types",
    }  # fmt: skip
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert (
        answer.headers["cross-origin-opener-policy"]
        == answer.headers["cross-origin-resource-policy"]
        == "same-origin"
    )


class Tags(HTMLParser):
    """What a page loads or runs by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.inline: list[str] = []
        self._in = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in = tag
        for name, value in attrs:
            if name in ("src", "href", "action", "data", "poster", "srcset"):
                self.links.append(value or "")
            if name.startswith("on") or name == "style":
                self.inline.append(f"{tag} {name}")

    def handle_data(self, data: str) -> None:
        if self._in in ("script", "style") and data.strip():
            self.inline.append(data)


@pytest.mark.parametrize("name", PAGES)
def test_nothing_on_the_pages_refers_to_another_host(name: str) -> None:
    text = files("maillard.service").joinpath("dashboard", name).read_text()
    addresses = set(re.findall(r"\b(?:https?|wss?|ftp):/*[^\s\"'`)]*", text))
    assert {
        each for each in addresses if not each.startswith("http://www.w3.org/")
    } == set()  # names, not addresses
    for forbidden in ("eval(", "new Function", "innerHTML", "document.write", "@import", "importScripts"):
        assert forbidden not in text
    if name.endswith(".html"):
        tags = Tags()
        tags.feed(text)
        assert tags.inline == []
        assert [
            link
            for link in tags.links
            if re.match(r"[a-z]+:|//", link) and not link.startswith("data:image/svg+xml")
        ] == []


@pytest.mark.parametrize(
    "path",
    ["/../pyproject.toml", "/../../../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/..%2f..%2fetc/passwd", "//etc/passwd",
     "/dashboard.js/../../keys.py", "/dashboard/index.html", "/keys.py", "/__init__.py", "/dashboard.js%00.html",
     "/..\\..\\etc\\passwd", "/%5c..%5cetc", "/dashboard.js/", "/.", "/%c0%ae%c0%ae/etc/passwd", "/./dashboard.js"]
)  # fmt: skip
def test_files_that_are_not_the_dashboards(unlocked: Service, path: str) -> None:
    (answer,) = say(unlocked, f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{CLOSE}\r\n".encode())
    assert refusal(answer) == (404, "not_found", None)
    assert b"root:" not in answer.content


# Requests within requests.


HIDDEN = written("POST", "/v1/experiments/home:archive")
POST = b"POST /v1/rewards:batch HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
AMBIGUOUS = {
    "two lengths": (b"Content-Length: 15\r\nContent-Length: %d\r\n\r\n", b'{"rewards": []}'),
    "the same length twice": (b"Content-Length: 15\r\nContent-Length: 15\r\n\r\n", b'{"rewards": []}'),
    "a list of lengths": (b"Content-Length: 15, 15\r\n\r\n", b'{"rewards": []}'),
    "a signed length": (b"Content-Length: +15\r\n\r\n", b'{"rewards": []}'),
    "a negative length": (b"Content-Length: -15\r\n\r\n", b'{"rewards": []}'),
    "a length in hex": (b"Content-Length: 0xf\r\n\r\n", b'{"rewards": []}'),
    "a length too large": (b"Content-Length: 99999999999999999999\r\n\r\n", b'{"rewards": []}'),
    "chunks and a length": (b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n", b"0\r\n\r\n"),
    "a length and chunks": (b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n", b"0\r\n\r\n"),
    "unknown encoding": (b"Transfer-Encoding: xchunked\r\n\r\n", b"0\r\n\r\n"),
    "chunks last but one": (b"Transfer-Encoding: chunked, identity\r\n\r\n", b"0\r\n\r\n"),
    "identity and a length": (b"Transfer-Encoding: identity\r\nContent-Length: 5\r\n\r\n", b"0\r\n\r\n"),
    "a space before the colon": (b"Transfer-Encoding : chunked\r\n\r\n", b"0\r\n\r\n"),
    "a folded header": (b"Transfer-Encoding:\r\n chunked\r\nContent-Length: 5\r\n\r\n", b"0\r\n\r\n"),
    "a control character": (b"Transfer-Encoding: \x0bchunked\r\n\r\n", b"0\r\n\r\n"),
    "bare line feeds": (b"Transfer-Encoding: chunked\n\n", b"0\r\n\r\n"),
    "a bare carriage return": (b"X: a\rTransfer-Encoding: chunked\r\n\r\n", b"0\r\n\r\n"),
    "a chunk that is too long": (b"Transfer-Encoding: chunked\r\n\r\n", b"fffffffffffffffff\r\n"),
    "a chunk in hex": (b"Transfer-Encoding: chunked\r\n\r\n", b"0x0\r\n\r\n"),
    "a chunk with a tail": (b"Transfer-Encoding: chunked\r\n\r\n", b"2\r\n{}abc\r\n0\r\n\r\n"),
    "a chunk that ends in a line feed": (b"Transfer-Encoding: chunked\r\n\r\n", b"0\n\n"),
}  # fmt: skip


@pytest.mark.parametrize(("head", "body"), AMBIGUOUS.values(), ids=AMBIGUOUS)
def test_requests_that_two_servers_could_read_differently(
    unlocked: Service, visitor: httpx2.Client, head: bytes, body: bytes
) -> None:
    """They are refused and the connection ends: what follows them is never taken for a request of its own."""
    head = head % (len(body) + len(HIDDEN)) if b"%d" in head else head
    answers = say(unlocked, POST + head + body + HIDDEN)
    assert [refusal(each)[:2] for each in answers] == [(400, "bad_request")]
    assert answers[0].headers["connection"] == "close"
    assert visitor.get("/v1/experiments/home").json()["status"] == "running"


# Too often.


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    log = str(tmp_path_factory.mktemp("limited") / "log.db")
    with closing(open_store(log)) as store:
        rates = {"usual": None, "slow": 1.0, "batches": 50.0, "setup": 1000.0}
        secrets = {name: create(store, name, ["admin"], rate=rate)[1] for name, rate in rates.items()}
    with (
        serving(log, options=["--rate-limit", "5"]) as service,
        httpx2.Client(base_url=service.url, timeout=120) as client,
    ):
        setup = {"Authorization": bearer(secrets["setup"])}
        assert client.post("/v1/experiments", json=NEW, headers=setup).status_code == 201
        yield Place(service, client, secrets, "")


@pytest.mark.parametrize(("name", "burst"), [("usual", 10), ("slow", 2)])
def test_who_asks_too_often_is_told_when_to_come_again(limited: Place, name: str, burst: int) -> None:
    headers = {"Authorization": bearer(limited.secrets[name])}
    began = time.monotonic()
    answers: list[Any] = []
    while len(answers) < 1000 and (not answers or answers[-1].status_code == 200):
        answers.append(limited.client.get("/v1/me", headers=headers))
    rate = burst / 2
    allowed = [answer.status_code for answer in answers].count(200)
    assert burst <= allowed <= burst + rate * (time.monotonic() - began) + 1
    refused = [answer for answer in answers if answer.status_code != 200]
    assert refusal(refused[-1]) == (429, "too_many_requests", None)
    wait = int(refused[-1].headers["retry-after"])
    assert 1 <= wait <= 2
    time.sleep(wait)
    assert limited.client.get("/v1/me", headers=headers).status_code == 200
    other = {"Authorization": bearer(limited.secrets["setup"])}
    assert limited.client.get("/v1/me", headers=other).status_code == 200  # a bucket of its own


def test_a_batch_costs_its_items(limited: Place) -> None:
    """And is never refused for its size alone, however small the rate: it is paid off afterwards."""
    headers = {"Authorization": bearer(limited.secrets["batches"])}  # 50 a second, 100 at once
    decisions, rewards = "/v1/experiments/home/decisions:batch", "/v1/rewards:batch"
    made = limited.client.post(decisions, json={"decisions": [{}] * 90}, headers=headers)
    assert made.status_code == 200
    given = [{"decision": each["decision"]["id"], "value": 1} for each in made.json()["results"]]
    taken = limited.client.post(rewards, json={"rewards": given * 4}, headers=headers)
    assert [each["status"] for each in taken.json()["results"]] == [201] * 90 + [200] * 270
    answer = limited.client.get("/v1/me", headers=headers)
    assert refusal(answer) == (429, "too_many_requests", None)
    assert (
        3 <= int(answer.headers["retry-after"]) <= 8
    )  # 450 paid, 100 were there: 7 seconds, less what has passed


def test_who_is_refused_costs_nothing_and_health_is_free(limited: Place) -> None:
    for _ in range(30):
        assert limited.client.get("/v1/me").status_code == 401
        assert limited.client.get("/healthz").status_code == 200
    error(limited.client.get("/v1/me"))
