"""Requests to a cloud's metadata server."""

from collections.abc import Mapping
from datetime import datetime
from functools import cached_property

import httpx
from forge_schema.model.errors import ForgeError

from forge_worker.spot import mail_time

PLACE = "http://169.254.169.254"
# The server is on the machine's host; a slower connection means that there is none.
CONNECT_S = 1.0
READ_S = 5.0
OK, MISSING = 200, 404


class MetadataAbsent(ForgeError):
    """No metadata server answers, or it is not this cloud's."""

    code = "metadata_absent"


class Metadata:
    """Send requests without a proxy and without following redirects."""

    def __init__(self, url: str = PLACE) -> None:
        self._url = url or PLACE

    @cached_property
    def _client(self) -> httpx.Client:
        # Not before it is asked; and reading all certificates would take longer than the rest.
        return httpx.Client(
            base_url=self._url,
            verify=self._url.startswith("https:"),
            trust_env=False,
            follow_redirects=False,
            timeout=httpx.Timeout(READ_S, connect=CONNECT_S),
        )

    def ask(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        *,
        params: Mapping[str, str] | None = None,
        json: object = None,
        read_s: float = READ_S,
    ) -> httpx.Response:
        """Return the response, whatever its status.

        Raises:
            MetadataAbsent: nothing answers.
        """
        timeout = httpx.Timeout(read_s, connect=CONNECT_S)
        try:
            return self._client.request(
                method, path, headers=dict(headers), params=params, json=json, timeout=timeout
            )
        except httpx.HTTPError as error:
            raise MetadataAbsent(f"{type(error).__name__}: {error}") from error

    def close(self) -> None:
        self._client.close()


def good(answer: httpx.Response) -> httpx.Response:
    """Return a response if it is a success.

    Raises:
        MetadataAbsent: it is not.
    """
    if answer.status_code != OK:
        raise MetadataAbsent(f"{answer.url.path}: {answer.status_code}")
    return answer


def said_at(answer: httpx.Response) -> datetime | None:
    """Return the server's time from the response's Date header, or None."""
    return mail_time(answer.headers.get("Date", ""))
