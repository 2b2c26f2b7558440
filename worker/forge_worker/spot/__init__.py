"""Preemption notices: their source, how many seconds are left, and the servers that give them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from functools import cached_property
from time import monotonic

import httpx
from forge_schema.model.errors import ForgeError

# The share of the notice period assumed to be left if the notice's age is unknown.
UNKNOWN_SHARE = 0.5
PLACE = "http://169.254.169.254"
# The server is on the machine's host; a slower connection means that there is none.
CONNECT_S = 1.0
READ_S = 5.0
OK, MISSING = 200, 404
# Every answer of a metadata server is much shorter.
MOST_BYTES = 1 << 20
# They describe the body as it was sent.
AS_SENT = ("Content-Encoding", "Content-Length", "Transfer-Encoding")


class NoticeKind(StrEnum):
    """Whether the machine will be taken, is likely to be, or no longer is."""

    INTERRUPTION = "interruption"
    REBALANCE = "rebalance"
    WITHDRAWN = "withdrawn"


@dataclass(frozen=True, slots=True)
class Notice:
    """A notice from a cloud or a signal; `left_s` is in seconds from now."""

    by: str
    kind: NoticeKind
    left_s: float = 0.0


def now() -> datetime:
    return datetime.now(UTC)


def left_s(
    at: datetime | None,
    said_at: datetime | None,
    most_s: float,
    clock: Callable[[], datetime] = now,
) -> float:
    """Return the seconds until `at`, at most the cloud's notice period `most_s`.

    They are counted from `said_at`, the server's own time, if known. Otherwise this machine's
    clock, which may be wrong, is used only if the result lies within the notice period.
    """
    if at is None:
        return most_s * UNKNOWN_SHARE
    if said_at is not None:
        return min(max((at - said_at).total_seconds(), 0.0), most_s)
    seconds = (at - clock()).total_seconds()
    return seconds if 0 <= seconds <= most_s else most_s * UNKNOWN_SHARE


def iso_time(text: object) -> datetime | None:
    """Parse a time as AWS writes it; None if it is not one."""
    try:
        return _in_utc(datetime.fromisoformat(str(text)))
    except ValueError:
        return None


def mail_time(text: object) -> datetime | None:
    """Parse a time as HTTP headers and Azure write it; None if it is not one."""
    try:
        return _in_utc(parsedate_to_datetime(str(text)))
    except ValueError:
        return None


def _in_utc(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


class MetadataAbsent(ForgeError):
    """No metadata server answers, or it is not this cloud's."""


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
        """Return the response, whatever its status; `MetadataAbsent` if there is none or no end."""
        timeout = httpx.Timeout(read_s, connect=CONNECT_S)
        try:
            with self._client.stream(
                method, path, headers=dict(headers), params=params, json=json, timeout=timeout
            ) as answer:
                return _whole(answer)
        except httpx.HTTPError as error:
            raise MetadataAbsent(f"{type(error).__name__}: {error}") from error

    def close(self) -> None:
        self._client.close()


def _whole(answer: httpx.Response) -> httpx.Response:
    """Return a response with its body; `MetadataAbsent` if that is too long or takes too long."""
    body, until = bytearray(), monotonic() + READ_S
    for part in answer.iter_bytes():
        body += part
        if len(body) > MOST_BYTES or monotonic() > until:
            raise MetadataAbsent(f"{answer.url.path}: the answer does not end")
    headers = [it for it in answer.headers.multi_items() if it[0].title() not in AS_SENT]
    return httpx.Response(
        answer.status_code, headers=headers, content=bytes(body), request=answer.request
    )


def good(answer: httpx.Response) -> httpx.Response:
    """Return a response if it is a success; `MetadataAbsent` if it is not."""
    if answer.status_code != OK:
        raise MetadataAbsent(f"{answer.url.path}: {answer.status_code}")
    return answer


def said_at(answer: httpx.Response) -> datetime | None:
    """Return the server's time from the response's Date header, or None."""
    return mail_time(answer.headers.get("Date", ""))
