"""The proxy for a URL, from the environment: HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY.

Every outgoing connection asks here, whichever library makes it: they differ in which variables they
know, in the forms of NO_PROXY, and all of them send loopback addresses to the proxy.
"""

import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from forge_schema.model.errors import ForgeError

WEB = {"http", "https"}
SOCKS = {"socks5", "socks5h"}
# What httpx, urllib3 and websockets need for SOCKS, by module and by package.
SOCKS_PACKAGES = {"socksio": "socksio", "socks": "PySocks", "python_socks": "python-socks"}
PORTS = {"http": 80, "https": 443}


class ProxyUnusable(ForgeError):
    """A variable names a proxy that cannot be used."""


class ProxyFailed(Exception):
    """A request through a proxy failed; the message is the proxy without its credentials."""


@dataclass(frozen=True)
class Proxy:
    """A proxy with its credentials; as text without them, and with the variable that names it."""

    url: str
    variable: str

    def __str__(self) -> str:
        return f"{_bare(self.url)} ({self.variable})"

    @property
    def is_socks(self) -> bool:
        """Whether it speaks SOCKS."""
        return urlsplit(self.url).scheme in SOCKS


def is_loopback(host: str) -> bool:
    """Tell whether a host's name or address always means this machine."""
    name = host.strip("[]").lower().rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    address = _address(name)
    address = getattr(address, "ipv4_mapped", None) or address
    return address is not None and (address.is_loopback or address.is_unspecified)


def proxy_of(url: str) -> Proxy | None:
    """Return the proxy for a URL; none for loopback addresses and for what NO_PROXY names.

    Raises:
        ProxyUnusable: its URL is malformed, or it needs packages that are not installed.
    """
    parts, proxies = urlsplit(url), getproxies()
    host, port = parts.hostname or "", parts.port or PORTS.get(parts.scheme)
    if is_loopback(host) or _excepted(host, port, proxies.get("no", "")):
        return None
    if proxy_bypass(parts.netloc.rpartition("@")[2]):  # the settings of macOS, too
        return None
    kind = next((kind for kind in (parts.scheme, "all") if proxies.get(kind)), None)
    return None if kind is None else _usable(proxies[kind].strip(), _variable(kind))


def _usable(address: str, variable: str) -> Proxy:
    url = address if "://" in address else f"http://{address}"
    try:
        parts = urlsplit(url)
        usable = bool(parts.hostname) and parts.port != 0 and not any(map(str.isspace, url))
    except ValueError:
        usable = False
    if not usable or parts.scheme not in WEB | SOCKS:
        raise ProxyUnusable(
            f"{variable} names no usable proxy: {_bare(url)}",
            hint="write it as http://proxy.example:3128 or socks5h://proxy.example:1080,"
            " or unset the variable",
        )
    proxy = Proxy(url, variable)
    missing = [name for module, name in SOCKS_PACKAGES.items() if find_spec(module) is None]
    if proxy.is_socks and missing:
        raise ProxyUnusable(
            f"the SOCKS proxy {proxy} needs {', '.join(missing)}, not installed here",
            hint=f"run `pip install {' '.join(missing)}`, name an HTTP proxy, or list the host in"
            " NO_PROXY if this machine reaches it without one",
        )
    return proxy


def _variable(kind: str) -> str:
    names = f"{kind}_proxy", f"{kind}_proxy".upper()
    return next((name for name in names if os.environ.get(name)), "the system's settings")


def _bare(url: str) -> str:
    """Return a proxy's URL without credentials, even if it is malformed."""
    scheme, sign, rest = url.partition("://")
    return f"{scheme}{sign}{rest.rpartition('@')[2].partition('/')[0]}"


def _excepted(host: str, port: int | None, no_proxy: str) -> bool:
    return any(_matches(host.lower().rstrip("."), port, pattern.strip().lower())
               for pattern in no_proxy.replace(" ", ",").split(","))  # fmt: skip


def _matches(host: str, port: int | None, entry: str) -> bool:
    """Tell whether an entry of NO_PROXY means a host: a name, a domain, an address or a network."""
    entry = entry.rpartition("://")[2]
    if entry in {"", "*"}:
        return entry == "*"
    address = _address(host)
    with suppress(ValueError):
        network = ip_network(entry.strip("[]"), strict=False)
        return address is not None and address in network
    name, colon, port_text = entry.rpartition(":")
    if colon and port_text.isdecimal():
        return int(port_text) == port and _matches(host, port, name.strip("[]"))
    domain = entry.removeprefix("*").strip(".")
    return host == domain or host.endswith(f".{domain}")


def _address(name: str) -> IPv4Address | IPv6Address | None:
    with suppress(ValueError):
        return ip_address(name)
    # Short forms, such as 127.1, which connect too.
    with suppress(OSError):
        if name.replace(".", "").isdecimal():
            return IPv4Address(socket.inet_aton(name))
    return None
