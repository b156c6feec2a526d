"""Where HTTP requests go: what a redirect leads to, and the proxy that the environment names."""

from __future__ import annotations

import http.client
import string
from base64 import b64encode
from typing import NamedTuple
from urllib.parse import quote, unquote, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

from oneway.common.errors import UserError

REDIRECTS = frozenset((301, 302, 303, 307, 308))
MOST_REDIRECTS = 5  # of one request
MOST_DRAINED = 2**16  # bytes of an answer that nobody wants; with more, the connection is given up


class Connection(NamedTuple):
    """A connection to a server, or to the proxy before it."""

    link: http.client.HTTPConnection
    prefix: str  # of what is asked for: a proxy is told the whole address
    headers: dict[str, str]  # that are for the proxy alone

    def ask(self, address: str, first: int, last: int) -> http.client.HTTPResponse:
        """The answer to a request for some bytes of a file. Nobody's credentials are in it, wherever it goes."""
        found = urlsplit(address)
        target = f"{self.prefix}{found.path or '/'}{f'?{found.query}' if found.query else ''}"
        self.link.request("GET", target, headers={"Range": f"bytes={first}-{last}", **self.headers})
        return self.link.getresponse()


def connect(scheme: str, netloc: str, timeout: float) -> Connection:
    """A connection for requests to a server, by way of `http_proxy`, `https_proxy` and `no_proxy`."""
    kind = http.client.HTTPSConnection if scheme == "https" else http.client.HTTPConnection
    named = getproxies().get(scheme)
    if not named or proxy_bypass(netloc):
        return Connection(kind(netloc, timeout=timeout), "", {})
    proxy = urlsplit(named if "://" in named else f"http://{named}")
    if proxy.scheme != "http" or not proxy.hostname:
        raise UserError(f"{scheme}_proxy: proxies are asked over http://, and not over {proxy.scheme}://.")
    headers = {}
    if proxy.username is not None:
        credentials = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
        headers["Proxy-Authorization"] = f"Basic {b64encode(credentials.encode()).decode()}"
    link = kind(proxy.hostname, proxy.port or 80, timeout=timeout)
    if scheme == "https":
        link.set_tunnel(netloc, headers=headers)
        return Connection(link, "", {})
    return Connection(link, f"http://{netloc}", headers)


def redirected(path: str, address: str, location: str | None) -> str:
    """The address that a server redirects to, on the way to a file.

    Raises:
        UserError: Out of HTTP, or from an encrypted connection to one that is not.
    """
    try:
        target = urljoin(address, quote(location or "", safe=string.punctuation, encoding="iso-8859-1"))
        found = urlsplit(target)
        _ = found.port  # a ValueError where it is no number
        allowed = ("https",) if urlsplit(address).scheme == "https" else ("http", "https")
        if location and found.hostname and found.scheme in allowed:
            return target
    except ValueError:
        pass
    raise UserError(f"{path}: its server redirects to {str(location)[:200]!r}, which is not followed.")


def drained(answer: http.client.HTTPResponse) -> bool:
    """Read the rest of an answer; returns whether it has ended, so that its connection can be used again."""
    answer.read(MOST_DRAINED)
    return answer.isclosed()
