"""Authorization: requests that are not allowed get 401 or 403, and the response reveals nothing else."""

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
from tests.service.raw_http import error, error_summary, send_raw
from tests.serving import MAILLARD, Service, serving
from tests.stores import new_id

NEW = {"experiment": "home", "arms": ["crimson", "azure"], "policy": "ms+", "reward": {"low": 0, "high": 1}}
CLOSE = "Connection: close\r\n"
GUARDED = [each for each in OPERATIONS if each.scope is not None]
NEVER_CREATED = "mk_0123456789ab_" + "A" * 43
WAIT_LIMIT = 60.0  # seconds; the service rereads the keys every second


def by_name(operation: Operation) -> str:
    return operation.name


@dataclass(frozen=True)
class KeyedService:
    """A service with API keys and two experiments; the secrets of the keys by name; a decision of `home`."""

    service: Service
    client: httpx2.Client
    secrets: Mapping[str, str]
    decision: str

    def request(self, operation: Operation, authorization: Any, *, key: str, id: str, **options: Any) -> Any:
        """The response to an operation on one experiment or decision."""
        path = operation.path.replace("{arm:anything}", "crimson").format(experiment=key, id=id)
        headers = {} if authorization is None else {"Authorization": authorization}
        if operation.body is not None:
            options = {"json": body_of(operation, key, id)} | options
        return self.client.request(operation.method, path, headers=headers | {"If-Match": '"999"'}, **options)

    def existing_and_missing(self, operation: Operation, authorization: Any, **options: Any) -> list[Any]:
        """The responses for an existing and for a missing experiment or decision."""
        existing = self.request(operation, authorization, key="home", id=self.decision, **options)
        missing = self.request(operation, authorization, key="ghost", id=new_id(), **options)
        return [existing, missing]


def body_of(operation: Operation, key: str, id: str) -> dict[str, Any]:
    """A valid body for the operation."""
    bodies: dict[str, dict[str, Any]] = {
        "decide": {"unit": "u"},
        "decide_batch": {"decisions": [{}]},
        "reward": {"value": 1},
        "reward_batch": {"rewards": [{"decision": id, "value": 1}]},
        "create_experiment": NEW | {"experiment": key},
        "evaluate": {"target": "arm:crimson"},
        "add_arm": {"arm": "mauve"},
        "erase_unit": {"unit": "nobody"},
        "change_experiment": {"policy": "ms"},
    }
    return bodies.get(operation.name, {})


def bearer(secret: str) -> str:
    return f"Bearer {secret}"


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeyedService]:
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
        serving(log, no_keys=False, options=["--rate-limit", "0"]) as service,
        httpx2.Client(base_url=service.url, timeout=120) as client,
    ):
        admin = {"Authorization": bearer(secrets["admin"])}
        for key in ("home", "elsewhere"):
            response = client.post("/v1/experiments", json=NEW | {"experiment": key}, headers=admin)
            assert response.status_code == 201
        made_one = client.post("/v1/experiments/home/decisions", json={}, headers=admin)
        yield KeyedService(service, client, secrets, made_one.json()["id"])


def visible_parts(response: Any) -> Any:
    """Everything in a response except the request id and the length, which depends on it."""
    request_id = response.headers["x-request-id"]
    headers = {name: response.headers[name] for name in response.headers if name not in _OF_THE_REQUEST}
    return response.status_code, headers, response.text.replace(request_id, "")


_OF_THE_REQUEST = ("x-request-id", "content-length")
_HARMLESS = {"content-type", "cache-control", "x-content-type-options", "www-authenticate"}


def assert_nothing_revealed(responses: list[Any]) -> None:
    """Assert that all responses are the same and contain no names."""
    status, headers, text = visible_parts(responses[0])
    assert [visible_parts(response) for response in responses] == [(status, headers, text)] * len(responses)
    assert set(headers) <= _HARMLESS
    for word in ("crimson", "azure", "home", "ghost", "elsewhere", "/tmp", "sqlite", "traceback"):
        assert word not in text.lower()


# Missing and invalid keys.


NO_KEYS = {
    "none": None,
    "empty": "",
    "no secret": "Bearer",
    "a dot": "Bearer .",
    "another scheme": f"Basic {NEVER_CREATED}",
    "no scheme": NEVER_CREATED,
    "never made": bearer(NEVER_CREATED),
    "not of the form": "Bearer hello",
    "long": "Bearer " + "x" * 10_000,
    "not ASCII": "Bearer mk_é".encode("latin-1"),
    "two": f"Bearer {NEVER_CREATED}, Bearer {NEVER_CREATED}",
}


@pytest.mark.parametrize("operation", GUARDED, ids=by_name)
def test_without_a_key_the_response_is_401(keyed: KeyedService, operation: Operation) -> None:
    for given in NO_KEYS.values():
        responses = keyed.existing_and_missing(operation, given)
        assert error_summary(responses[0]) == (401, "unauthorized", None), given
        assert responses[0].headers["www-authenticate"] == "Bearer"
        assert_nothing_revealed(responses)


@pytest.mark.parametrize("operation", GUARDED, ids=by_name)
def test_keys_that_are_almost_right(keyed: KeyedService, operation: Operation) -> None:
    """Revoked keys, keys with an added, missing or changed character, and ids of keys."""
    good = keyed.secrets["admin"]
    last = "A" if good[-1] != "A" else "Q"
    wrong = [
        keyed.secrets["revoked"], good + "A", good[:-1], good[:-1] + last, good.upper(), good[:16] + "A" * 43,
        good[3:15], f"{good} {good}", f'"{good}"',
    ]  # fmt: skip
    responses = [
        response for secret in wrong for response in keyed.existing_and_missing(operation, bearer(secret))
    ]
    assert error_summary(responses[0]) == (401, "unauthorized", None)
    assert_nothing_revealed(responses)


@pytest.mark.parametrize("operation", [each for each in GUARDED if each.body], ids=by_name)
@pytest.mark.parametrize("content", [b"{", b"\xff", b'{"no": 1}', b"x" * 5_000_000])
def test_without_a_key_the_body_is_not_read(
    keyed: KeyedService, operation: Operation, content: bytes
) -> None:
    responses = keyed.existing_and_missing(operation, None, json=None, content=content)
    responses += keyed.existing_and_missing(operation, None)
    assert_nothing_revealed(responses)
    assert error_summary(responses[0])[0] == 401


def test_a_key_outside_the_authorization_header_is_ignored(keyed: KeyedService) -> None:
    good = keyed.secrets["admin"]
    for options in (
        {"params": {"key": good, "access_token": good, "authorization": bearer(good)}},
        {"headers": {"Cookie": f"key={good}", "X-API-Key": good, "Proxy-Authorization": bearer(good)}},
        {"auth": ("admin", good)},
    ):
        assert error_summary(keyed.client.get("/v1/experiments", **options))[0] == 401


def test_head_requires_a_key(keyed: KeyedService) -> None:
    for operation in GUARDED:
        if operation.method == "GET":
            path = operation.path.format(experiment="home", id=keyed.decision)
            assert keyed.client.head(path).status_code == 401


# Keys for other scopes or experiments.


# Written by hand: the other tests take the scope of an operation from the table that they test.
REQUIRED_SCOPES = {
    "decide": {
        "POST /v1/experiments/{experiment}/decisions",
        "POST /v1/experiments/{experiment}/decisions:batch",
    },
    "reward": {"PUT /v1/decisions/{id}/reward", "POST /v1/rewards:batch"},
    "read": {
        "GET /v1/experiments",
        "GET /v1/experiments/{experiment}",
        "GET /v1/experiments/{experiment}/state",
        "GET /v1/experiments/{experiment}/head",
        "GET /v1/experiments/{experiment}/activity",
        "GET /v1/experiments/{experiment}/contexts",
        "GET /v1/experiments/{experiment}/export",
        "POST /v1/experiments/{experiment}/evaluations",
        "POST /v1/experiments/{experiment}:verify",
        "GET /v1/decisions/{id}",
        "GET /metrics",
    },
    "admin": {
        "POST /v1/experiments",
        "PATCH /v1/experiments/{experiment}",
        "POST /v1/experiments/{experiment}/arms",
        "DELETE /v1/experiments/{experiment}/arms/{arm:anything}",
        *(
            f"POST /v1/experiments/{{experiment}}:{verb}"
            for verb in ("pause", "resume", "reset", "archive", "erase-unit")
        ),
    },
    "any": {"GET /v1/policies", "GET /v1/me"},
    None: {"GET /healthz", "GET /readyz", "GET /openapi.json"},
}


def test_every_operation_requires_its_scope() -> None:
    found = {f"{each.method} {each.path}": each.scope for each in OPERATIONS}
    assert found == {name: scope for scope, names in REQUIRED_SCOPES.items() for name in names}


@pytest.mark.parametrize("operation", [each for each in GUARDED if each.scope != "any"], ids=by_name)
def test_a_key_without_the_scope_gets_403(keyed: KeyedService, operation: Operation) -> None:
    fitting = {"admin": "admin"}.get(str(operation.scope), str(operation.scope))
    names = [f"not {fitting}"] + [f"only {each}" for each in SCOPES if each not in (fitting, "admin")]
    for name in names:
        responses = keyed.existing_and_missing(operation, bearer(keyed.secrets[name]))
        assert error_summary(responses[0]) == (403, "forbidden", None)
        assert_nothing_revealed(responses)


# Erasing a unit would change the experiment; it is tested below.
@pytest.mark.parametrize("operation", [each for each in GUARDED if each.name != "erase_unit"], ids=by_name)
def test_a_key_with_the_scope_is_accepted(keyed: KeyedService, operation: Operation) -> None:
    """The other tests would also pass if nothing worked. Missing resources are 404; the ETag is stale."""
    scope = "read" if operation.scope == "any" else operation.scope
    for name in (f"only {scope}", "admin"):
        for response in keyed.existing_and_missing(operation, bearer(keyed.secrets[name])):
            assert response.status_code in (200, 201, 202, 404, 409, 412)


@pytest.mark.parametrize("operation", GUARDED, ids=by_name)
def test_a_key_for_another_experiment(keyed: KeyedService, operation: Operation) -> None:
    responses = keyed.existing_and_missing(operation, bearer(keyed.secrets["elsewhere"]))
    if operation.name in ("list_experiments", "list_policies", "read_permissions"):
        assert responses[0].status_code == 200
        assert "home" not in responses[0].text
    elif operation.name == "reward_batch":  # each item has a status
        for response in responses:
            (result,) = response.json()["results"]
            assert (result["status"], result["error"]["code"]) == (403, "forbidden")
        assert responses[0].text == responses[1].text
    else:
        assert error_summary(responses[0]) == (403, "forbidden", None)
        assert_nothing_revealed(responses)


def test_a_key_for_one_experiment_sees_only_that_experiment(keyed: KeyedService) -> None:
    headers = {"Authorization": bearer(keyed.secrets["elsewhere"])}
    mine = keyed.client.get("/v1/experiments?archived=true", headers=headers).json()["experiments"]
    assert [each["experiment"] for each in mine] == ["elsewhere"]
    about = keyed.client.get("/v1/me", headers=headers).json()
    assert (about["experiments"], about["open"]) == (["elsewhere"], False)
    path = "/v1/experiments/elsewhere/decisions"
    own = keyed.client.post(path, json={}, headers=headers).json()["id"]
    assert keyed.client.get(f"/v1/decisions/{own}", headers=headers).status_code == 200
    both = [{"decision": each, "value": 1} for each in (own, keyed.decision)]
    results = keyed.client.post("/v1/rewards:batch", json={"rewards": both}, headers=headers).json()[
        "results"
    ]
    assert [each["status"] for each in results] == [201, 403]


def test_rejected_requests_changed_nothing(keyed: KeyedService) -> None:
    """After all tests above, the experiment is unchanged."""
    headers = {"Authorization": bearer(keyed.secrets["admin"])}
    state = keyed.client.get("/v1/experiments/home", headers=headers)
    assert (state.headers["etag"], state.json()["status"], state.json()["arms"]) == (
        '"1"',
        "running",
        NEW["arms"],
    )
    erased = keyed.client.post("/v1/experiments/home:erase-unit", json={"unit": "nobody"}, headers=headers)
    assert (erased.status_code, erased.json()) == (200, {"decisions": 0})


def test_the_scheme_is_case_insensitive(keyed: KeyedService) -> None:
    for scheme in ("Bearer", "bearer", "BEARER"):
        response = keyed.client.get(
            "/v1/me", headers={"Authorization": f"{scheme} {keyed.secrets['only read']}"}
        )
        assert response.json()["scopes"] == ["read"]


@pytest.mark.parametrize("operation", [each for each in OPERATIONS if each.scope is None], ids=by_name)
def test_operations_without_a_key_reveal_nothing_about_experiments(
    keyed: KeyedService, operation: Operation
) -> None:
    response = keyed.client.get(operation.path)
    assert response.status_code == 200
    for word in ("crimson", "elsewhere", *keyed.secrets.values()):
        assert word not in response.text


# Without keys (--no-keys).


@pytest.fixture(scope="module")
def open_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("open") / "log.db", options=["--rate-limit", "0"]) as service:
        yield service


@pytest.fixture(scope="module")
def local_client(open_service: Service) -> Iterator[httpx2.Client]:
    """A client on this machine."""
    with httpx2.Client(base_url=open_service.url, timeout=120) as client:
        assert client.post("/v1/experiments", json=NEW).status_code == 201
        yield client


def status_with(service: Service, path: str, **headers: str) -> int:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    (response,) = send_raw(service, f"GET {path} HTTP/1.1\r\n{lines}{CLOSE}\r\n".encode("latin-1"))
    if response.status_code == 403:
        assert "home" not in response.content.decode()
        assert error_summary(response) == (403, "forbidden", None)
    return response.status_code


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "localhost.evil.example", "0.0.0.0",
     "10.0.0.1", "[::]", "[::1].evil.example", "[::1", "", "2130706433", "0x7f.1", "localhost.",
     "evil.example#127.0.0.1", "evil.example/127.0.0.1", "evil.example@127.0.0.1", "127.0.0.1@evil.example",
     "127.0.0.1, evil.example", "é"]
)  # fmt: skip
def test_other_host_names_are_rejected(open_service: Service, host: str) -> None:
    """DNS rebinding: a page of evil.example, which now resolves to 127.0.0.1, in a local browser."""
    for operation in GUARDED:
        if operation.method == "GET":
            path = operation.path.format(experiment="home", id=new_id())
            assert status_with(open_service, path, Host=host) == 403


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST:80", "[::1]:8000", "127.8.8.8"])
def test_loopback_host_names_are_accepted(open_service: Service, host: str) -> None:
    assert status_with(open_service, "/v1/experiments", Host=host) == 200


ORIGINS = [
    "http://evil.example", "https://evil.example", "null", "", "http://127.0.0.1", "http://127.0.0.1:1",
    "http://localhost:{port}", "file://", "http://evil.example/127.0.0.1:{port}", "http://[", "é",
]  # fmt: skip


@pytest.mark.parametrize("operation", GUARDED, ids=by_name)
def test_other_origins_are_rejected(open_service: Service, operation: Operation) -> None:
    path = operation.path.replace("{arm:anything}", "crimson").format(experiment="home", id=new_id())
    body = json.dumps(body_of(operation, "home", new_id())).encode() if operation.body else b""
    for origin in ORIGINS:
        message = written(
            operation.method, path, body, f"Origin: {origin.format(port=open_service.port)}\r\n{CLOSE}"
        )
        message = message.replace(b"Host: 127.0.0.1", b"Host: 127.0.0.1:%d" % open_service.port)
        (response,) = send_raw(open_service, message)
        assert error_summary(response) == (403, "forbidden", None), origin


def test_the_services_own_origin_is_accepted(open_service: Service) -> None:
    for host in (f"127.0.0.1:{open_service.port}", f"localhost:{open_service.port}"):
        assert status_with(open_service, "/v1/experiments", Host=host, Origin=f"http://{host}") == 200


def test_an_invalid_key_is_rejected_even_if_none_is_needed(open_service: Service) -> None:
    assert status_with(open_service, "/v1/me", Host="localhost", Authorization=bearer(NEVER_CREATED)) == 401


def test_a_key_created_later_ends_access_without_keys(tmp_path: Path) -> None:
    log = str(tmp_path / "log.db")
    with serving(log) as service, closing(open_store(log)) as store:

        def wait_for_status(status: int, **headers: str) -> None:
            end = time.monotonic() + WAIT_LIMIT
            while (found := httpx2.get(f"{service.url}/v1/me", headers=headers).status_code) != status:
                assert time.monotonic() < end, found
                time.sleep(0.05)

        assert httpx2.get(f"{service.url}/v1/me").json()["open"]
        key, secret = create(store, "first", ["read"])
        wait_for_status(401)
        wait_for_status(200, Authorization=bearer(secret))
        revoke(store, key.id)
        wait_for_status(401, Authorization=bearer(secret))
        assert httpx2.get(f"{service.url}/v1/me").status_code == 401


@pytest.mark.parametrize(
    "header",
    ["Forwarded: for=192.0.2.7", "Via: 1.1 proxy", "X-Forwarded-For: 192.0.2.7", "X-Forwarded-Proto: https",
     "x-forwarded-host: localhost", "X-Forwarded-Prefix: /a", "X-Real-IP: 127.0.0.1"],
)  # fmt: skip
def test_without_keys_requests_from_proxies_are_rejected(open_service: Service, header: str) -> None:
    request = f"GET /v1/me HTTP/1.1\r\nHost: localhost\r\n{header}\r\n{CLOSE}\r\n".encode()
    (response,) = send_raw(open_service, request)
    assert error_summary(response) == (403, "forbidden", None)
    assert "came through a proxy" in error(response)["message"]


def test_without_keys_requests_with_http_1_0_are_rejected(open_service: Service) -> None:
    """Proxies use it, as nginx before version 1.30; programs on this machine hardly ever do."""
    (response,) = send_raw(open_service, b"GET /v1/me HTTP/1.0\r\nHost: localhost\r\n\r\n")
    assert error_summary(response) == (403, "forbidden", None)
    (response,) = send_raw(open_service, b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n")
    assert response.status_code == 200


def test_with_a_key_requests_from_proxies_are_accepted(keyed: KeyedService) -> None:
    headers = {
        "Authorization": bearer(keyed.secrets["admin"]),
        "X-Forwarded-For": "192.0.2.7",
        "Via": "1.1 p",
    }
    assert keyed.client.get("/v1/me", headers=headers).json()["open"] is False
    request = f"GET /v1/me HTTP/1.0\r\nAuthorization: {headers['Authorization']}\r\n\r\n".encode()
    (response,) = send_raw(keyed.service, request)
    assert response.status_code == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_without_keys_the_service_only_listens_on_loopback(tmp_path: Path, host: str) -> None:
    """The service exits before it listens."""
    log = str(tmp_path / "log.db")
    options = ["--no-keys", "--database", log, "--host", host, "--port", "0"]
    command = [sys.executable, *MAILLARD, "serve", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "loopback address with --no-keys" in done.stderr
    assert "Traceback" not in done.stderr


# Browsers.


@pytest.mark.parametrize("path", sorted({each.path for each in OPERATIONS} | {"/", "/docs", "/dashboard.js"}))
def test_cors_is_off(local_client: httpx2.Client, path: str) -> None:
    where = path.replace("{arm:anything}", "crimson").format(experiment="home", id=new_id())
    preflight = {"Origin": "http://evil.example", "Access-Control-Request-Private-Network": "true"}
    preflight |= {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
    for method, headers in (("OPTIONS", preflight), ("GET", {"Origin": "http://evil.example"}), ("GET", {})):
        response = local_client.request(method, where, headers=headers)
        assert not [name for name in response.headers if name.startswith("access-control-")]
        assert response.headers["x-content-type-options"] == "nosniff"
        if method == "OPTIONS":
            assert error_summary(response) == (405, "method_not_allowed", None)


PAGES = sorted(file.name for file in files("maillard.service").joinpath("dashboard").iterdir())


@pytest.mark.parametrize("name", [*PAGES, "docs"])
def test_the_content_security_policy_of_pages(local_client: httpx2.Client, name: str) -> None:
    path = "/" if name == "index.html" else f"/{name}"
    response = local_client.get(path)
    assert response.status_code == 200
    assert response.headers["cache-control"] == "no-cache"
    head = local_client.head(path)
    assert (head.status_code, head.content) == (200, b"")
    unrelated = ("date", "connection")
    for header in response.headers.keys() - unrelated:
        assert head.headers[header] == response.headers[header]
    policy = dict(part.split(None, 1) for part in response.headers["content-security-policy"].split("; "))
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
        "default-src", "script-src", "style-src", "img-src", "connect-src", "base-uri", "form-action",
        "frame-ancestors", "require-trusted-types-for", "trusted-types",
    }  # fmt: skip
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["referrer-policy"] == "no-referrer"
    assert (
        response.headers["cross-origin-opener-policy"]
        == response.headers["cross-origin-resource-policy"]
        == "same-origin"
    )


class Tags(HTMLParser):
    """The links and the inline code of a page."""

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


@pytest.mark.parametrize("name", [*PAGES, "docs"])
def test_nothing_on_the_pages_refers_to_another_host(local_client: httpx2.Client, name: str) -> None:
    text = local_client.get("/" if name == "index.html" else f"/{name}").text
    addresses = set(re.findall(r"\b(?:https?|wss?|ftp):/*[^\s\"'`)]*", text))
    assert {
        each
        for each in addresses
        if not each.startswith(("http://www.w3.org/", "http://localhost:8000/"))  # not loaded
    } == set()
    for forbidden in ("eval(", "new Function", "innerHTML", "document.write", "@import", "importScripts"):
        assert forbidden not in text
    if name.endswith((".html", "docs")):
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
    ["/../pyproject.toml", "/../../../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/..%2f..%2fetc/passwd",
     "//etc/passwd", "/dashboard.js/../../keys.py", "/dashboard/index.html", "/keys.py", "/__init__.py",
     "/dashboard.js%00.html", "/..\\..\\etc\\passwd", "/%5c..%5cetc", "/dashboard.js/", "/.",
     "/%c0%ae%c0%ae/etc/passwd", "/./dashboard.js"]
)  # fmt: skip
def test_only_files_of_the_dashboard_are_served(open_service: Service, path: str) -> None:
    (response,) = send_raw(open_service, f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{CLOSE}\r\n".encode())
    assert error_summary(response) == (404, "not_found", None)
    assert b"root:" not in response.content


# Request smuggling.


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
def test_ambiguous_requests_are_rejected(
    open_service: Service, local_client: httpx2.Client, head: bytes, body: bytes
) -> None:
    """The service rejects them and closes the connection, so what follows is not read as a request."""
    head = head % (len(body) + len(HIDDEN)) if b"%d" in head else head
    responses = send_raw(open_service, POST + head + body + HIDDEN)
    assert [error_summary(each)[:2] for each in responses] == [(400, "bad_request")]
    assert responses[0].headers["connection"] == "close"
    assert local_client.get("/v1/experiments/home").json()["status"] == "running"


# Rate limits.


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeyedService]:
    log = str(tmp_path_factory.mktemp("limited") / "log.db")
    with closing(open_store(log)) as store:
        rates = {"usual": None, "slow": 1.0, "batches": 5.0, "setup": 1000.0}
        secrets = {name: create(store, name, ["admin"], rate=rate)[1] for name, rate in rates.items()}
    with (
        serving(log, no_keys=False, options=["--rate-limit", "5"]) as service,
        httpx2.Client(base_url=service.url, timeout=120) as client,
    ):
        setup = {"Authorization": bearer(secrets["setup"])}
        assert client.post("/v1/experiments", json=NEW, headers=setup).status_code == 201
        yield KeyedService(service, client, secrets, "")


@pytest.mark.parametrize(("name", "burst"), [("usual", 10), ("slow", 2)])
def test_requests_above_the_rate_get_429_with_retry_after(
    limited: KeyedService, name: str, burst: int
) -> None:
    headers = {"Authorization": bearer(limited.secrets[name])}
    began = time.monotonic()
    responses: list[Any] = []
    while len(responses) < 1000 and (not responses or responses[-1].status_code == 200):
        responses.append(limited.client.get("/v1/me", headers=headers))
    rate = burst / 2
    allowed = [response.status_code for response in responses].count(200)
    assert burst <= allowed <= burst + rate * (time.monotonic() - began) + 1
    refused = [response for response in responses if response.status_code != 200]
    assert error_summary(refused[-1]) == (429, "too_many_requests", None)
    wait = int(refused[-1].headers["retry-after"])
    assert 1 <= wait <= 2
    time.sleep(wait)
    assert limited.client.get("/v1/me", headers=headers).status_code == 200
    other = {"Authorization": bearer(limited.secrets["setup"])}
    assert limited.client.get("/v1/me", headers=other).status_code == 200  # each key has its own bucket


def test_a_batch_costs_as_much_as_its_items(limited: KeyedService) -> None:
    """A batch that is larger than the bucket needs a full one; later requests wait until it is paid off."""
    headers = {"Authorization": bearer(limited.secrets["batches"])}  # 5 per second, 10 at once
    decisions, rewards = "/v1/experiments/home/decisions:batch", "/v1/rewards:batch"
    made = limited.client.post(decisions, json={"decisions": [{}] * 8}, headers=headers)
    assert made.status_code == 200
    given = [{"decision": each["decision"]["id"], "value": 1} for each in made.json()["results"]]
    for _ in range(10):
        began = time.monotonic()
        taken = limited.client.post(rewards, json={"rewards": given * 45}, headers=headers)
        if taken.status_code != 429:
            break
        time.sleep(int(taken.headers["retry-after"]))
    assert [each["status"] for each in taken.json()["results"]] == [201] * 8 + [200] * 352
    response = limited.client.get("/v1/me", headers=headers)
    assert error_summary(response) == (429, "too_many_requests", None)
    # The batch cost 360 and the bucket had 10. A request needs one token: 70.2 seconds, less the time since.
    assert 70 - (time.monotonic() - began) <= int(response.headers["retry-after"]) <= 71


def test_unauthorized_requests_are_limited_and_health_checks_are_not(limited: KeyedService) -> None:
    found = set()
    for _ in range(30):
        found.add(limited.client.get("/v1/me").status_code)
        assert limited.client.get("/healthz").status_code == 200
    assert found == {401, 429}
