"""The clouds that announce that they will take a machine: AWS, Azure and Google Cloud.

https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html
https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events
https://cloud.google.com/compute/docs/instances/create-use-spot#detect-preemption
"""

import re
from collections.abc import Callable
from time import monotonic
from typing import Any

import httpx

from forge_worker.spot import (
    MISSING,
    UNKNOWN_SHARE,
    Metadata,
    MetadataAbsent,
    Notice,
    NoticeKind,
    good,
    iso_time,
    left_s,
    mail_time,
    said_at,
)

AWS_NOTICE_S = 120.0
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
            at = iso_time(_said(answer, "action").get("time"))
            return Notice(
                self.name, NoticeKind.INTERRUPTION, left_s(at, said_at(answer), AWS_NOTICE_S)
            )
        if (answer := self._get("events/recommendations/rebalance")) is not None:
            _said(answer, "noticeTime")
            return Notice(self.name, NoticeKind.REBALANCE)
        return None

    def is_spot(self) -> bool:
        """Return whether this is a spot machine; `MetadataAbsent` if no metadata server answers."""
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
    try:
        document = answer.json()
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _said(answer: httpx.Response, field: str) -> dict[str, Any]:
    """Return a notice; `MetadataAbsent` if it is none, as from a server that answers anything."""
    if field not in (document := _document(answer)):
        raise MetadataAbsent(f"{answer.url.path}: no notice")
    return document


# How long before it happens an event is announced.
NOTICES_S = {"Preempt": 30.0, "Terminate": 900.0}
STARTED = "Started"
AZURE = {"Metadata": "true"}
EVENTS, VERSION = "/metadata/scheduledevents", {"api-version": "2020-07-01"}
NAME = "/metadata/instance/compute/name"
# Of a virtual machine, and not a page of a proxy.
NAMED = re.compile(r"[\w.-]{1,80}")
PRIORITY = "/metadata/instance/compute/priority"
INSTANCE_VERSION = {"api-version": "2021-02-01", "format": "text"}
# The very first request enables the service, which takes up to two minutes.
ENABLING_S = 130.0


class Azure:
    """React only to this machine's events: a whole scale set receives the events of each member."""

    name = "azure"

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self._machine = ""
        self._event: dict[str, Any] = {}

    def here(self) -> bool:
        """Return whether this machine runs on Azure."""
        answer = good(self._metadata.ask("GET", NAME, AZURE, params=INSTANCE_VERSION))
        name = answer.text.strip()
        self._machine = name if NAMED.fullmatch(name) else ""
        return bool(self._machine)

    def look(self) -> Notice | None:
        """Return the current notice; `MetadataAbsent` if no metadata server answers."""
        if not self._machine:
            self.here()
        answer = good(self._metadata.ask("GET", EVENTS, AZURE, params=VERSION, read_s=ENABLING_S))
        ours = [event for event in _events(answer) if self._ends_us(event)]
        lefts = [(self._left(event, answer), n) for n, event in enumerate(ours)]
        if not lefts:
            return None
        left, soonest = min(lefts)
        self._event = ours[soonest]
        return Notice(self.name, NoticeKind.INTERRUPTION, left)

    def is_spot(self) -> bool:
        """Return whether this is a spot machine; `MetadataAbsent` if no metadata server answers."""
        answer = good(self._metadata.ask("GET", PRIORITY, AZURE, params=INSTANCE_VERSION))
        return answer.text.strip() == "Spot"

    def gone(self) -> None:
        """Approve the event so that it starts at once, if it affects only this machine.

        Raises:
            MetadataAbsent: no metadata server answers.
        """
        if self._event.get("Resources") == [self._machine]:
            body = {"StartRequests": [{"EventId": self._event.get("EventId")}]}
            self._metadata.ask("POST", EVENTS, AZURE, params=VERSION, json=body)

    def _ends_us(self, event: dict[str, Any]) -> bool:
        resources = event.get("Resources")
        ours = isinstance(resources, list) and self._machine in resources
        return ours and str(event.get("EventType")) in NOTICES_S

    def _left(self, event: dict[str, Any], answer: httpx.Response) -> float:
        if event.get("EventStatus") == STARTED:
            return 0.0
        at = mail_time(event.get("NotBefore"))
        return left_s(at, said_at(answer), NOTICES_S[event["EventType"]])


def _events(answer: httpx.Response) -> list[dict[str, Any]]:
    events = _document(answer).get("Events")
    if not isinstance(events, list):
        raise MetadataAbsent("the metadata server has no scheduled events")
    return [event for event in events if isinstance(event, dict)]


GCP_NOTICE_S = 30.0
# How long one request waits for a change.
WAIT_S = 20
PATIENCE_S = 10.0
FLAVOR = {"Metadata-Flavor": "Google"}
INSTANCE = "/computeMetadata/v1/instance"
ENDS = "TERMINATE_ON_HOST_MAINTENANCE"


class Gcp:
    """Wait for a change with long polling."""

    name = "gcp"

    def __init__(self, metadata: Metadata, *, wait_s: int = WAIT_S) -> None:
        self._metadata = metadata
        self._wait_s = wait_s
        self._etag = ""

    def here(self) -> bool:
        """Return whether this machine runs on Google Cloud."""
        self._get("id")
        return True

    def look(self) -> Notice | None:
        """Return the current notice, waiting a while for one.

        Raises:
            MetadataAbsent: no metadata server answers.
        """
        # A notice older than the first request may be almost over.
        share = 1.0 if self._etag else UNKNOWN_SHARE
        if self._preempted():
            return Notice(self.name, NoticeKind.INTERRUPTION, GCP_NOTICE_S * share)
        if self._get("maintenance-event").text.strip() == ENDS:
            return Notice(self.name, NoticeKind.REBALANCE)
        return None

    def is_spot(self) -> bool:
        """Return whether this is a spot machine, or of the older preemptible ones.

        Raises:
            MetadataAbsent: no metadata server answers.
        """
        return self._get("scheduling/preemptible").text.strip() == "TRUE"

    def gone(self) -> None:
        """Do nothing: Google takes the machine at the announced time."""

    def _preempted(self) -> bool:
        params = {}
        if self._etag:
            params = {"wait_for_change": "true", "last_etag": self._etag}
            params["timeout_sec"] = str(self._wait_s)
        answer = self._get("preempted", params)
        self._etag = answer.headers.get("ETag", "0")
        return answer.text.strip() == "TRUE"

    def _get(self, what: str, params: dict[str, str] | None = None) -> httpx.Response:
        read_s = PATIENCE_S + (self._wait_s if params else 0)
        path = f"{INSTANCE}/{what}"
        answer = good(self._metadata.ask("GET", path, FLAVOR, params=params, read_s=read_s))
        if answer.headers.get("Metadata-Flavor") != "Google":
            raise MetadataAbsent("the metadata server is not Google's")
        return answer
