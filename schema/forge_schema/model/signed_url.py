"""A signed URL: one object, one method, a short time, for somebody who has no credentials."""

from pydantic import BaseModel, ConfigDict


class SignedUrl(BaseModel):
    """A request that its holder may send: this method, exactly these headers, in this time."""

    model_config = ConfigDict(frozen=True)

    url: str
    method: str
    headers: dict[str, str] = {}
    expires_in_s: int
