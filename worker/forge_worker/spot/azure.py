"""Azure: the scheduled events Preempt and Terminate.

https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events
"""

from typing import Any

import httpx

from forge_worker.spot.metadata import Metadata, MetadataAbsent, good, said_at
from forge_worker.spot.notice import Notice, NoticeKind, left_s, mail_time

# How long before it happens an event is announced.
NOTICES_S = {"Preempt": 30.0, "Terminate": 900.0}
STARTED = "Started"
HEADERS = {"Metadata": "true"}
EVENTS, VERSION = "/metadata/scheduledevents", {"api-version": "2020-07-01"}
NAME = "/metadata/instance/compute/name"
PRIORITY = "/metadata/instance/compute/priority"
NAME_PARAMS = {"api-version": "2021-02-01", "format": "text"}
# The very first request enables the service, which takes up to two minutes.
PATIENCE_S = 130.0


class Azure:
    """React only to this machine's events: a whole scale set receives the events of each member."""

    name = "azure"

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self._machine = ""
        self._event: dict[str, Any] = {}

    def here(self) -> bool:
        """Return whether this machine runs on Azure."""
        answer = good(self._metadata.ask("GET", NAME, HEADERS, params=NAME_PARAMS))
        self._machine = answer.text.strip()
        return bool(self._machine)

    def look(self) -> Notice | None:
        """Return the current notice.

        Raises:
            MetadataAbsent: no metadata server answers.
        """
        if not self._machine:
            self.here()
        answer = good(self._metadata.ask("GET", EVENTS, HEADERS, params=VERSION, read_s=PATIENCE_S))
        ours = [event for event in _events(answer) if self._ends_us(event)]
        lefts = [(self._left(event, answer), n) for n, event in enumerate(ours)]
        if not lefts:
            return None
        left, soonest = min(lefts)
        self._event = ours[soonest]
        return Notice(self.name, NoticeKind.INTERRUPTION, left)

    def is_spot(self) -> bool:
        """Return whether this is a spot machine.

        Raises:
            MetadataAbsent: no metadata server answers.
        """
        answer = good(self._metadata.ask("GET", PRIORITY, HEADERS, params=NAME_PARAMS))
        return answer.text.strip() == "Spot"

    def gone(self) -> None:
        """Approve the event so that it starts at once, if it affects only this machine.

        Raises:
            MetadataAbsent: no metadata server answers.
        """
        if self._event.get("Resources") == [self._machine]:
            body = {"StartRequests": [{"EventId": self._event.get("EventId")}]}
            self._metadata.ask("POST", EVENTS, HEADERS, params=VERSION, json=body)

    def _ends_us(self, event: dict[str, Any]) -> bool:
        return event.get("EventType") in NOTICES_S and self._machine in event.get("Resources", [])

    def _left(self, event: dict[str, Any], answer: httpx.Response) -> float:
        if event.get("EventStatus") == STARTED:
            return 0.0
        at = mail_time(event.get("NotBefore"))
        return left_s(at, said_at(answer), NOTICES_S[event["EventType"]])


def _events(answer: httpx.Response) -> list[dict[str, Any]]:
    try:
        events = answer.json()["Events"]
    except (ValueError, KeyError, TypeError) as error:
        raise MetadataAbsent("the metadata server has no scheduled events") from error
    return [event for event in events if isinstance(event, dict)]
