"""The server's own signed URLs, for file stores."""

import hmac
import time
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from forge_schema.model.stored import SignedUrl
from forge_schema.storage.keys import checked, checked_digest

PATH = "/api/objects/"
# The same secret signs other texts, none of which begins like this.
PURPOSE = "forge signed url 1"


@dataclass(frozen=True)
class Permit:
    """What a signature permits; `expires` is in seconds since 1970."""

    method: str
    key: str
    expires: int
    size: int = 0
    sha256: str = ""
    if_absent: bool = False
    owner: str = ""

    def text(self) -> bytes:
        """Serialise the permit. No field can contain a line break, so this is unambiguous."""
        size = f"{self.size} {self.sha256} {self.if_absent:d}"
        lines = [PURPOSE, self.method, self.key, str(self.expires), size]
        return "\n".join([*lines, quote(self.owner)] if self.owner else lines).encode()


class ServerSigner:
    """Signs with the server's secret, and verifies its own signatures."""

    def __init__(
        self,
        secret: bytes,
        *,
        base_url: str,
        lasts_s: int,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._secret, self._base_url = secret, base_url.rstrip("/")
        self._lasts_s, self._clock = lasts_s, clock

    def put(
        self, key: str, *, size: int, sha256: str, if_absent: bool = False, owner: str = ""
    ) -> SignedUrl:
        expires = self._expires()
        permit = Permit(
            "PUT", checked(key), expires, size, checked_digest(sha256), if_absent, owner
        )
        asked = {"size": size, "sha256": sha256, "if_absent": int(if_absent)}
        asked |= {"owner": owner} if owner else {}
        return self._signed(permit, asked, {"Content-Length": str(size)})

    def get(self, key: str) -> SignedUrl:
        return self._signed(Permit("GET", checked(key), self._expires()), {}, {})

    def is_signed(self, permit: Permit, signature: str) -> bool:
        """Tell, in constant time, whether this secret signed the permit."""
        return hmac.compare_digest(self._signature(permit).encode(), signature.encode())

    def is_over(self, permit: Permit) -> bool:
        """Tell whether the permit has expired."""
        return self._clock() >= permit.expires

    def _expires(self) -> int:
        return int(self._clock()) + self._lasts_s

    def _signed(
        self, permit: Permit, asked: dict[str, object], headers: dict[str, str]
    ) -> SignedUrl:
        query = {"expires": permit.expires, **asked, "signature": self._signature(permit)}
        url = f"{self._base_url}{PATH}{quote(permit.key)}?{urlencode(query)}"
        return SignedUrl(url=url, method=permit.method, headers=headers, expires_in_s=self._lasts_s)

    def _signature(self, permit: Permit) -> str:
        return hmac.new(self._secret, permit.text(), "sha256").hexdigest()
