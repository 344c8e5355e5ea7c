"""Who may ask what: the checks that every request passes before anything else sees it.

The server listens on this machine only, unless it is told another address; then every browser needs its token. The
``Host`` header must name this machine, because a web page can point a name of its own at 127.0.0.1. Another site may
link here, but not load or change anything.
"""

from __future__ import annotations

import hmac
import ipaddress
import socket
from collections.abc import MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
REPORT_POLICY = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Of a report, whose scripts are within the page: it may draw, and nothing else."""
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # without it, a browser hides where a form was sent from
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_READING = frozenset({"GET", "HEAD"})
_WRITING = frozenset({"POST", "PUT"})


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Guard:
    """Refuses requests that no page of the studio makes."""

    def __init__(self, app: ASGIApp, host: str, token: str = "") -> None:
        self.app, self.token = app, token
        self.names = LOOPBACK | {host.lower()}
        self.is_public = not is_loopback(host)
        if self.is_public:
            self.names |= {socket.gethostname().lower(), socket.getfqdn().lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        answer = self.refuse(scope)

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await (answer or self.app)(scope, receive, send_guarded)

    def refuse(self, scope: MutableMapping[str, Any]) -> Response | None:
        """The answer to a request that goes no further; None for one that may."""
        headers, method = Headers(scope=scope), scope["method"]
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._is_ours(hosts[0]):
            return PlainTextResponse("this name is not the studio's; use the address that it printed", 421)
        if method not in _READING | _WRITING:
            return PlainTextResponse("this method is not allowed", 405)
        if not self._is_from_here(headers, method, hosts[0]):
            return PlainTextResponse("requests of other sites are refused", 403)
        return self._check_token(scope, headers, method) if self.token else None

    def _is_ours(self, host: str) -> bool:
        name = host.lower()
        if name.startswith("["):
            name = name[1:].partition("]")[0]
        elif name.count(":") == 1:
            name = name.partition(":")[0]
        if name in self.names:
            return True
        if not self.is_public:
            return False
        try:  # a number is no name that somebody could point elsewhere
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def _is_from_here(self, headers: Headers, method: str, host: str) -> bool:
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if method in _WRITING:
            return origin == f"http://{host}" if origin is not None else site == "same-origin"
        if site in (None, "same-origin", "none"):
            return True
        return headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"

    def _check_token(self, scope: MutableMapping[str, Any], headers: Headers, method: str) -> Response | None:
        cookie = f"isthmus-studio-{(scope.get('server') or ('', 0))[1]}"
        given = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        tokens = [value for name, value in given if name == "token"]
        if tokens and method in _READING and self._is_token(tokens[0]):
            rest = urlencode([pair for pair in given if pair[0] != "token"])
            path = "/" + scope["path"].lstrip("/")  # two slashes would name another host
            answer = RedirectResponse(f"{path}?{rest}" if rest else path, 303)
            answer.set_cookie(cookie, self.token, httponly=True, samesite="strict")
            return answer
        try:
            known = SimpleCookie(headers.get("cookie", "")).get(cookie)
        except CookieError:
            known = None
        if known is not None and self._is_token(known.value):
            return None
        return PlainTextResponse("open the address with its token, as `isthmus studio` printed it", 401)

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self.token.encode())
