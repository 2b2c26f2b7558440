"""A signed URL: one object, one method, a short time, for somebody who has no credentials."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class SignedUrl:
    """A request that its holder may send: this method, exactly these headers, in this time."""

    url: str
    method: str
    expires_in_s: int
    headers: dict[str, str] = field(default_factory=dict)
