"""The objects that an attempt has stored under their SHA-256, which outlive the agent."""

from collections.abc import Mapping
from pathlib import Path
from threading import Lock


class StoredChunks:
    """Keys of stored objects by their SHA-256. Thread-safe.

    Those stored since the last `reset` are also written to a file, one a line, so that an upload
    that was interrupted is resumed.
    """

    def __init__(self, journal: Path) -> None:
        self._journal = journal
        self._lock = Lock()
        self._keys: dict[str, str] = {}

    def reset(self, keys: Mapping[str, str]) -> None:
        """Know these alone."""
        with self._lock:
            self._keys = dict(keys)
            self._journal.unlink(missing_ok=True)

    def resume(self, keys: Mapping[str, str], after: str) -> None:
        """Know these, and those that an earlier agent stored whose keys sort after one."""
        with self._lock:
            lines = [line.partition(" ") for line in self._lines()]
            self._keys = {sha256: key for sha256, _, key in lines if key > after}
            self._keys.update(keys)

    def claim(self, sha256: str, key: str) -> tuple[str, bool]:
        """Return an object's key, and whether the caller must store it there."""
        with self._lock:
            known = self._keys.setdefault(sha256, key)
            return known, known is key

    def confirm(self, sha256: str, key: str) -> None:
        """Record that an object was stored.

        Raises:
            OSError: this machine's disk is full or faulty.
        """
        with self._lock, self._journal.open("a", encoding="utf-8") as journal:
            journal.write(f"{sha256} {key}\n")

    def release(self, sha256: str) -> None:
        """Forget an object that could not be stored."""
        with self._lock:
            self._keys.pop(sha256, None)

    def __contains__(self, sha256: str) -> bool:
        return sha256 in self._keys

    def _lines(self) -> list[str]:
        if not self._journal.exists():
            return []
        # The last line may have been cut off.
        return self._journal.read_text(encoding="utf-8").split("\n")[:-1]
