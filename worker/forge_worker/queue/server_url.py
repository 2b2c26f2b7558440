"""The URLs of servers, as somebody writes them."""

from urllib.parse import urlsplit


def urls(said: object) -> object:
    """Return the URLs in a list or in words parted by commas, each without its last slash.

    Raises:
        ValueError: one is no URL of a server; what it holds is left out, as it may be a password.
    """
    if isinstance(said, str):
        said = said.split(",")
    if not isinstance(said, list):
        return said
    return [checked(str(url).strip()) for url in said if str(url).strip()]


def checked(url: str) -> str:
    """Return a server's URL without a slash at its end; raises as `urls`."""
    try:
        parts = urlsplit(url)
        sound = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        sound = False
    if not sound:
        raise ValueError("write a server's URL as https://forge.example or http://host:8900")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError(
            "a server's URL has no user, question mark or #; the token goes into --token"
        )
    return url.rstrip("/")
