"""How the worker checks a server's certificate."""

import ssl
from dataclasses import dataclass
from pathlib import Path

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
                "CERTIFICATES ARE NOT CHECKED: anybody on the way can read the worker's token"
                " and give it code to run. --insecure-skip-verify is for development alone."
            )
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context
