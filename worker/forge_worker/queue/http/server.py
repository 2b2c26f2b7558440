"""The servers that a worker may talk to: their URLs, and whether their certificates are trusted."""

import ssl
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import structlog
from forge_schema.model.errors import ForgeError

log = structlog.get_logger(__name__)


class CertificatesUnusable(ForgeError):
    """The file of certificates cannot be read, or holds none."""

    code = "certificates_unusable"


@dataclass(frozen=True, slots=True)
class Tls:
    """Trust the usual authorities, and those in the file `ca` too; or, unsafely, everybody."""

    ca: Path | None = None
    verify: bool = True

    def context(self) -> ssl.SSLContext:
        """Return what connections are made with.

        Raises:
            CertificatesUnusable: the file is not what it should be.
        """
        context = httpx.create_ssl_context()
        if self.ca is not None:
            try:
                context.load_verify_locations(cafile=self.ca)
            except OSError as error:
                raise CertificatesUnusable(
                    f"{self.ca} cannot be used for --tls-ca: {error.strerror or error}",
                    hint="it holds the authority's certificate in PEM, -----BEGIN CERTIFICATE-----",
                ) from error
        if not self.verify:
            log.warning(
                "certificates_not_checked",
                note="anybody on the way can read the worker's token"
                " and give it code to run. --insecure-skip-verify is for development alone.",
            )
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


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
