"""Which requests are refused before any page sees them."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from isthmus.core.errors import UserError
from isthmus.core.files import home
from isthmus.studio.server import create_app, open_socket

HERE = "http://127.0.0.1:8642"


@pytest.fixture
def client() -> TestClient:
    return TestClient(create_app(), base_url=HERE, follow_redirects=False)


@pytest.mark.parametrize("host", ["127.0.0.1:8642", "localhost:8642", "LOCALHOST", "[::1]:8642", "127.0.0.1"])
def test_names_of_this_machine_are_answered(client: TestClient, host: str) -> None:
    assert client.get("/", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8642", "127.0.0.1.evil.example", "10.0.0.7:8642", "", "localhost@evil", "[::2]"],
)
def test_other_names_are_refused_against_dns_rebinding(client: TestClient, host: str) -> None:
    assert client.get("/", headers={"Host": host}).status_code == 421
    assert client.get("/static/studio.js", headers={"Host": host}).status_code == 421


@pytest.mark.parametrize(
    "headers",
    [
        {},  # not from a page at all
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:9999"},  # another server of this machine
        {"Origin": "https://127.0.0.1:8642"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "http://evil.example", "Sec-Fetch-Site": "same-origin"},
    ],
)
def test_other_sites_change_nothing(client: TestClient, headers: dict[str, str]) -> None:
    assert client.post("/jobs/abc/stop", headers=headers).status_code == 403


def test_our_own_pages_may(client: TestClient) -> None:
    assert client.post("/jobs/abc/stop", headers={"Origin": HERE}).status_code == 409
    assert client.post("/jobs/abc/stop", headers={"Sec-Fetch-Site": "same-origin"}).status_code == 409


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_other_sites_may_link_here_but_load_nothing(client: TestClient, site: str) -> None:
    link = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert client.get("/", headers=link).status_code == 200
    assert client.get("/", headers=link | {"Sec-Fetch-Dest": "iframe"}).status_code == 403
    loading = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "script"}
    assert client.get("/static/studio.js", headers=loading).status_code == 403


@pytest.mark.parametrize("method", ["DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND"])
def test_other_methods_are_refused(client: TestClient, method: str) -> None:
    assert client.request(method, "/", headers={"Origin": HERE}).status_code == 405


def test_every_answer_has_the_policy(client: TestClient) -> None:
    for path in ("/", "/runs/none", "/nothing", "/static/studio.css"):
        headers = client.get(path).headers
        assert "default-src 'none'" in headers["Content-Security-Policy"], path
        assert "unsafe-inline" not in headers["Content-Security-Policy"].partition("script-src")[2].partition(";")[0]
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["X-Frame-Options"] == "DENY"


def test_another_address_needs_a_token() -> None:
    with pytest.raises(UserError, match="token"):
        create_app(host="0.0.0.0")
    client = TestClient(
        create_app(host="0.0.0.0", token="secret"), base_url="http://10.0.0.7:8642", follow_redirects=False
    )
    assert client.get("/").status_code == 401
    assert client.get("/static/studio.js").status_code == 401
    assert client.get("/?token=wrong").status_code == 401
    assert client.post("/jobs/abc/stop?token=secret", headers={"Origin": "http://10.0.0.7:8642"}).status_code == 401
    answer = client.get("http://10.0.0.7:8642//evil.example/?token=secret&page=2")
    assert answer.status_code == 303
    assert answer.headers["Location"] == "/evil.example/?page=2"  # and not another host
    answer = client.get("/?token=secret&page=2")
    assert answer.headers["Location"] == "/?page=2"  # the token does not stay in the address
    assert "HttpOnly" in answer.headers["Set-Cookie"]
    assert "SameSite=strict" in answer.headers["Set-Cookie"]
    assert client.get("/").status_code == 200  # by the cookie
    assert client.get("/", headers={"Host": "evil.example"}).status_code == 421


def test_a_taken_port_says_what_to_type() -> None:
    with open_socket("127.0.0.1", 0) as first, pytest.raises(UserError, match="--port"):
        open_socket("127.0.0.1", first.getsockname()[1])


def test_paths_stay_in_the_home(client: TestClient) -> None:
    home().mkdir()
    (home().parent / "secret").write_text("secret")
    for path in ("/runs/..%2F..%2Fsecret", "/static/..%2Fguard.py", "/studies/..%2F..", "/runs/%2e%2e/samples.png"):
        answer = client.get(path)
        assert answer.status_code == 404, path
        assert "secret" not in answer.text.replace("secret.", "")
