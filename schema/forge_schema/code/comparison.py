"""Compare the files of two jobs' code, as `forge diff` and the dashboard show them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import Match, SequenceMatcher

from forge_schema.model.bundles import PIP_HASH, WRITTEN


class TooDifferent(Exception):
    """Two files are so different that comparing them takes too long."""


def in_order(names: Iterable[str]) -> list[str]:
    """Return the names of files as they are compared: the project's own, then lists of packages."""
    return sorted(names, key=lambda name: (name.startswith(WRITTEN), name))


def link_content(target: str) -> bytes:
    """Return what stands for a link where files are compared."""
    return f"link to {target}\n".encode()


def differences(
    name: str, before: bytes | None, after: bytes | None, *, late: Callable[[], bool] | None = None
) -> Iterator[str]:
    """Yield the lines of a unified diff of a file; none if it is the same.

    Args:
        name: its name in both bundles.
        before: its content, None if it is in the second one only.
        after: the same of the second one.
        late: asked again and again whether it has taken too long.

    Raises:
        TooDifferent: it was `late`.
    """
    if before == after:
        return
    try:
        old, new = _lines(name, before or b""), _lines(name, after or b"")
    except UnicodeDecodeError:
        yield f"Binary file {name} differs"
        return
    groups = _Matcher(old, new, late).get_grouped_opcodes()
    for number, group in enumerate(groups):
        if not number:
            yield "--- /dev/null" if before is None else f"--- a/{name}"
            yield "+++ /dev/null" if after is None else f"+++ b/{name}"
        yield f"@@ -{_span(group[0][1], group[-1][2])} +{_span(group[0][3], group[-1][4])} @@"
        for kind, *places in group:
            yield from _hunk(kind, old[slice(*places[:2])], new[slice(*places[2:])])


def _hunk(kind: str, old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    if kind == "equal":
        yield from (f" {line}" for line in old)
        return
    yield from (f"-{line}" for line in old)
    yield from (f"+{line}" for line in new)


def _span(start: int, stop: int) -> str:
    """Return lines as a hunk's heading has them: from 1, and of none those that are before."""
    count = stop - start
    return f"{start + 1}" if count == 1 else f"{start + (count > 0)},{count}"


def _lines(name: str, content: bytes) -> list[str]:
    """Return the lines of a file; those of a lock without the hashes, which bury its versions."""
    text = content.decode()
    return (PIP_HASH.sub("", text) if name.startswith(WRITTEN) else text).splitlines()


class _Matcher(SequenceMatcher[str]):
    """Finds the lines that two files share; in the worst case, that takes as their cube."""

    def __init__(
        self, old: Sequence[str], new: Sequence[str], late: Callable[[], bool] | None
    ) -> None:
        super().__init__(None, old, new)
        self._late = late

    def find_longest_match(
        self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None
    ) -> Match:
        if self._late and self._late():
            raise TooDifferent
        return super().find_longest_match(alo, ahi, blo, bhi)
