"""GCP: the preemption of a Spot VM, and maintenance that terminates the machine.

https://cloud.google.com/compute/docs/instances/create-use-spot#detect-preemption
"""

import httpx

from forge_worker.spot.metadata import Metadata, MetadataAbsent, good
from forge_worker.spot.notice import UNKNOWN_SHARE, Notice, NoticeKind

NOTICE_S = 30.0
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
            return Notice(self.name, NoticeKind.INTERRUPTION, NOTICE_S * share)
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
