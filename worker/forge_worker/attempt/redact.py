"""Redaction: cover a job's secrets in its output, also across chunk boundaries.

Each byte of a secret becomes an asterisk, so that positions in the redacted and the original text
are equal, and chunks keep their numbers and sizes.
"""

from collections.abc import Iterable

COVER = b"*"
# Each line of a multi-line secret is a secret too, unless it is so short that ordinary text has it.
SHORTEST_LINE = 8


class Redactor:
    """Covers secrets; without any, text stays unchanged."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = sorted({piece.encode() for secret in secrets for piece in _pieces(secret)})
        # How many bytes before and after a byte decide whether it is part of a secret.
        self.reach = max(map(len, self._secrets), default=1) - 1

    def text(self, words: str) -> str:
        """Return a text with every secret covered."""
        return self.cover(words.encode(errors="replace")).decode(errors="replace")

    def cover(self, data: bytes) -> bytes:
        """Return the data with every secret covered, also overlapping ones; its length stays."""
        covered = bytearray(data)
        for secret in self._secrets:
            at = data.find(secret)
            while at >= 0:
                covered[at : at + len(secret)] = COVER * len(secret)
                at = data.find(secret, at + 1)
        return bytes(covered)

    def doubtful(self, data: bytes) -> int:
        """Return how many bytes at the end may be the beginning of a secret, at most `reach`."""
        return max((_overlap(data, secret) for secret in self._secrets), default=0)


def _pieces(secret: str) -> list[str]:
    lines = [line.strip() for line in secret.splitlines()]
    return [secret, *(line for line in lines if len(line) >= SHORTEST_LINE)]


def _overlap(data: bytes, secret: bytes) -> int:
    tail = data[-(len(secret) - 1) :]
    at = tail.find(secret[:1])
    while at >= 0:
        if secret.startswith(tail[at:]):
            return len(tail) - at
        at = tail.find(secret[:1], at + 1)
    return 0
