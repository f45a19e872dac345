"""Web addresses of images, read as browsers read them.

Decides which host, port and path an address means. Never resolves a name. In: an address, or where
a server redirects to. Out: a `Target`.
"""

from __future__ import annotations

import base64
import dataclasses
import re
import socket
import urllib.parse

_CONTROLS_AND_SPACE = "".join(map(chr, range(0x21)))
_LINE_ENDS = str.maketrans("", "", "\t\n\r")
_ADDRESS = re.compile(
    r"(?P<scheme>https?):[/\\]*(?P<authority>[^/\\?#]*)(?P<path>[^?#]*)(?P<query>\?[^#]*)?",
    re.IGNORECASE,
)
_AUTHORITY = re.compile(r"(?:\[(?P<v6>[0-9a-fA-F:.]+)\]|(?P<name>[^:\[\]]+))(?::(?P<port>\d*))?")
_SCHEME = re.compile(r"[a-z][a-z0-9+.\-]*:", re.IGNORECASE)
_NUMBER = re.compile(r"\d+|0x[0-9a-f]*", re.IGNORECASE)
_FORBIDDEN = re.compile(r"[\x00-\x20#%/:<>?@\[\\\]^|\x7f]")
_MAX_SPELLED_NAME = 4096  # percent-encoded; mapping longer ones to ASCII would take seconds
_DEFAULT_PORTS = {"http": 80, "https": 443}
_SAFE_IN_PATH = "!$%&'()*+,-./:;=@[]^_|~"
_SAFE_IN_QUERY = "!$%&()*+,-./:;=?@[\\]^_`{|}~"


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """What to ask whom for.

    Attributes:
      scheme: "http" or "https".
      host: name in lower case, or address without brackets.
      port: TCP port.
      path: path and query, ready for the request line.
      authorization: value of the header, from a name and password in the address.
    """

    scheme: str
    host: str
    port: int
    path: str
    authorization: str | None = None

    @property
    def authority(self) -> str:
        """Host and port, as the Host header names them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"


def parse(url: str) -> Target:
    """Reads an absolute address.

    Raises:
      ValueError: it is no http or https address.
    """
    match = _ADDRESS.fullmatch(_clean(url).partition("#")[0])
    if match is None:
        raise ValueError("not an http or https address")
    scheme = match["scheme"].lower()
    user, at, place = match["authority"].rpartition("@")
    found = _AUTHORITY.fullmatch(place)
    if found is None:
        raise ValueError("no host, or a broken one")
    host = _v6(found["v6"]) if found["v6"] else _name(found["name"])
    port = int(found["port"] or _DEFAULT_PORTS[scheme])
    if port > 65535:
        raise ValueError("no such port")
    path = urllib.parse.quote(match["path"].replace("\\", "/") or "/", safe=_SAFE_IN_PATH)
    path += urllib.parse.quote(match["query"] or "", safe=_SAFE_IN_QUERY)
    return Target(scheme, host, port, path, _basic(user) if at else None)


def redirected(target: Target, location: str) -> Target:
    """Reads where the server of `target` redirects to, an absolute or relative address.

    Raises:
      ValueError: it is no http or https address.
    """
    location = _clean(location)
    if not _SCHEME.match(location):
        here = f"{target.scheme}://{target.authority}{target.path}"
        location = urllib.parse.urljoin(here, location.replace("\\", "/"))
    return parse(location)


def _clean(url: str) -> str:
    return url.strip(_CONTROLS_AND_SPACE).translate(_LINE_ENDS)


def _v6(text: str) -> str:
    return socket.inet_ntop(socket.AF_INET6, _packed(socket.AF_INET6, text))


def _name(text: str) -> str:
    """A host name, or an IPv4 address in any of the ways to write one."""
    if len(text) > _MAX_SPELLED_NAME:
        raise ValueError("host name is too long")
    name = urllib.parse.unquote(text, errors="strict")
    name = name if name.isascii() else name.encode("idna").decode("ascii")
    name = name.lower()
    if _FORBIDDEN.search(name) or len(name) > 253:
        raise ValueError("broken host name")
    if _NUMBER.fullmatch(name.removesuffix(".").rpartition(".")[2]):
        return socket.inet_ntoa(_packed(socket.AF_INET, name.removesuffix(".")))
    return name


def _packed(family: socket.AddressFamily, text: str) -> bytes:
    try:
        if family == socket.AF_INET:
            return socket.inet_aton(text)
        return socket.inet_pton(family, text)
    except OSError:
        raise ValueError("broken address") from None


def _basic(user: str) -> str:
    secret = urllib.parse.unquote_to_bytes(user if ":" in user else f"{user}:")
    return "Basic " + base64.b64encode(secret).decode("ascii")
