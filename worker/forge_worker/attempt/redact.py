"""Redaction: a job's secrets are covered in what it writes, also across the borders of chunks.

Each byte of a secret becomes an asterisk, so that every place in the covered text is the same
place in the text itself: chunks keep their numbers and extents, whatever they are cut by.
"""

from collections.abc import Iterable

COVER = b"*"
# A line of a secret of several lines is one too, unless it is so short that ordinary text has it.
SHORTEST_LINE = 8


class Redactor:
    """Covers some secrets; without any, everything stays as it is."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = sorted({piece.encode() for secret in secrets for piece in _pieces(secret)})
        # How far before and after a byte one must look to know whether it is part of a secret.
        self.reach = max(map(len, self._secrets), default=1) - 1

    def text(self, words: str) -> str:
        """Return the words with every secret covered."""
        return self.cover(words.encode(errors="replace")).decode(errors="replace")

    def cover(self, data: bytes) -> bytes:
        """Return as many bytes, with every secret covered, also where two overlap."""
        covered = bytearray(data)
        for secret in self._secrets:
            at = data.find(secret)
            while at >= 0:
                covered[at : at + len(secret)] = COVER * len(secret)
                at = data.find(secret, at + 1)
        return bytes(covered)

    def doubtful(self, data: bytes) -> int:
        """Return how many bytes at the end may be the beginning of a secret; `reach` at most."""
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
