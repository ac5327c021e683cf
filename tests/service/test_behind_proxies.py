"""A service behind a reverse proxy on the same machine: visitors of the proxy need an API key.

To the service, their requests look like those of programs on its machine: the connection comes from loopback,
`Host` is the service's own address, and no header names the visitor.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.reverse_proxies import minimal_proxy, nginx_proxy
from tests.serving import Service, serving

NEW = {"experiment": "home", "arms": ["red", "blue"], "reward": {"low": 0, "high": 1}}


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("default") / "log.db"


@pytest.fixture(scope="module")
def service(log: Path) -> Iterator[Service]:
    """A service with an experiment, started with the default options."""
    with serving(log, no_keys=False) as made:
        assert httpx2.post(f"{made.url}/v1/experiments", json=NEW, headers=admin(log)).status_code == 201
        yield made


@pytest.fixture(scope="module")
def keyless(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("keyless") / "log.db", no_keys=True) as made:
        yield made


def admin(log: Path) -> dict[str, str]:
    """The header with the key that the first start has created."""
    secret = log.with_name("log.db.admin-key").read_text().strip()
    return {"Authorization": f"Bearer {secret}"}


def check_visitors_need_a_key(url: str, log: Path) -> None:
    """Through the proxy, requests get 401 without a key; with the key they are accepted."""
    with httpx2.Client(base_url=url, timeout=120) as client:
        assert client.get("/healthz").status_code == 200
        for method, path in (
            ("GET", "/v1/me"),
            ("GET", "/v1/experiments"),
            ("GET", "/metrics"),
            ("POST", "/v1/experiments/home:archive"),
        ):
            response = client.request(method, path)
            assert (response.status_code, response.json()["error"]["code"]) == (401, "unauthorized")
        assert client.get("/v1/experiments/home", headers=admin(log)).json()["status"] == "running"
        assert "admin" in client.get("/v1/me", headers=admin(log)).json()["scopes"]


def test_visitors_of_a_minimal_proxy_need_a_key(service: Service, log: Path) -> None:
    with minimal_proxy(service) as url:
        check_visitors_need_a_key(url, log)


def test_without_keys_a_proxy_that_adds_nothing_is_not_recognised(keyless: Service) -> None:
    """The documented limitation. It shows that this proxy looks like a program on this machine."""
    with minimal_proxy(keyless) as url:
        assert httpx2.get(f"{url}/v1/me").json()["open"] is True
        recognised = httpx2.get(f"{url}/v1/me", headers={"X-Forwarded-For": "192.0.2.7"})
        assert recognised.status_code == 403
        assert "came through a proxy" in recognised.json()["error"]["message"]


@pytest.mark.torture
def test_visitors_of_nginx_need_a_key(service: Service, log: Path, tmp_path: Path) -> None:
    with nginx_proxy(service, tmp_path) as url:
        check_visitors_need_a_key(url, log)


@pytest.mark.torture
@pytest.mark.parametrize(
    ("settings", "status"),
    [
        ("proxy_http_version 1.0;", 403),  # the default before nginx 1.30
        ("proxy_http_version 1.1; proxy_set_header X-Real-IP $remote_addr;", 403),
        ("proxy_http_version 1.1;", 200),  # the documented limitation
    ],
)
def test_without_keys_nginx_may_be_recognised(
    keyless: Service, tmp_path: Path, settings: str, status: int
) -> None:
    with nginx_proxy(keyless, tmp_path, settings) as url:
        assert httpx2.get(f"{url}/v1/me").status_code == status
