"""AWS: interruption notices and rebalance recommendations, by IMDSv2.

https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html
"""

from collections.abc import Callable
from time import monotonic
from typing import Any

import httpx

from forge_worker.spot.metadata import MISSING, Metadata, MetadataAbsent, good, said_at
from forge_worker.spot.notice import Notice, NoticeKind, iso_time, left_s

NOTICE_S = 120.0
TOKEN_S = 21600
REFUSED = 401


class Aws:
    """Ask with a session token, which is renewed at half its lifetime or when refused."""

    name = "aws"

    def __init__(self, metadata: Metadata, clock: Callable[[], float] = monotonic) -> None:
        self._metadata = metadata
        self._clock = clock
        self._token = ""
        self._renew_at = 0.0

    def here(self) -> bool:
        """Return whether this machine runs on AWS."""
        self._renew()
        return True

    def look(self) -> Notice | None:
        """Return the current notice, an interruption before a recommendation.

        Raises:
            MetadataAbsent: no metadata server answers.
        """
        if (answer := self._get("spot/instance-action")) is not None:
            at = iso_time(_document(answer).get("time"))
            return Notice(self.name, NoticeKind.INTERRUPTION, left_s(at, said_at(answer), NOTICE_S))
        if self._get("events/recommendations/rebalance") is not None:
            return Notice(self.name, NoticeKind.REBALANCE)
        return None

    def is_spot(self) -> bool:
        """Return whether this is a spot machine.

        Raises:
            MetadataAbsent: no metadata server answers.
        """
        answer = self._get("instance-life-cycle")
        return answer is not None and answer.text.strip() == "spot"

    def gone(self) -> None:
        """Do nothing: AWS takes the machine at the announced time."""

    def _get(self, what: str) -> httpx.Response | None:
        if self._clock() >= self._renew_at:
            self._renew()
        answer = self._asked(what)
        if answer.status_code == REFUSED:
            self._renew()
            answer = self._asked(what)
        return None if answer.status_code == MISSING else good(answer)

    def _asked(self, what: str) -> httpx.Response:
        headers = {"X-aws-ec2-metadata-token": self._token}
        return self._metadata.ask("GET", f"/latest/meta-data/{what}", headers)

    def _renew(self) -> None:
        headers = {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_S)}
        token = good(self._metadata.ask("PUT", "/latest/api/token", headers)).text
        if not token.isascii() or not token.isprintable() or not token:
            raise MetadataAbsent("the metadata server returned no token")
        self._token, self._renew_at = token, self._clock() + TOKEN_S / 2


def _document(answer: httpx.Response) -> dict[str, Any]:
    """Return the document; a notice that cannot be parsed still counts as one."""
    try:
        document = answer.json()
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
