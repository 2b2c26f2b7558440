"""The sign and the colour of each badge: colour is never the only difference."""

from typing import NamedTuple


class Mark(NamedTuple):
    """A sign before a word, and the colour of both."""

    sign: str
    tone: str


UNKNOWN = Mark("\u00b7", "quiet")
MARKS = {
    # states of a job
    "held": Mark("\u2016", "quiet"),
    "queued": Mark("\u25cb", "wait"),
    "running": Mark("\u25b8", "live"),
    "succeeded": Mark("\u2713", "good"),
    "failed": Mark("\u2715", "bad"),
    "cancelled": Mark("\u2298", "quiet"),
    # states of a worker
    "connecting": Mark("\u2026", "wait"),
    "idle": Mark("\u25cb", "good"),
    "busy": Mark("\u25b8", "live"),
    "constrained": Mark("\u25b3", "warn"),
    "draining": Mark("\u25bd", "warn"),
    "offline": Mark("\u2715", "quiet"),
    # messages
    "waiting": Mark("\u25cb", "wait"),
    "sent": Mark("\u2713", "good"),
    # findings
    "ok": Mark("\u2713", "good"),
    "failing": Mark("\u2715", "bad"),
    "unknown": Mark("?", "warn"),
    # queues
    "open": Mark("\u25b8", "good"),
    "paused": Mark("\u2016", "warn"),
    "none": Mark("\u2715", "warn"),
    # the sweeper, after an outage
    "holding": Mark("\u2016", "warn"),
}
