"""The order in which a program writes the files of its saves, and whether one is unfinished."""

import time
from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from heapq import nlargest
from itertools import chain, pairwise
from operator import itemgetter

from forge_schema.storage.manifest import Entry

from forge_worker.files.copies import Copies, FileShape
from forge_worker.files.formats.folders import looks_unfinished
from forge_worker.files.groups import COMPANIONS, PAIR_NS, Together
from forge_worker.files.safe_files import Listing

# Only written to at their ends: what a killed program has left of one counts up to there.
APPENDED = (".log", ".txt", ".csv", ".tsv", ".jsonl", ".out", ".err", ".tfrecord")
EVENTS = "tfevents"
# Within this time the files of one whole may be written in any order, as by several threads.
WHOLE_NS = 100_000_000
# Saves that keep their number in the names of their files are alike without it.
DIGITS = str.maketrans("", "", "0123456789")
# When a file was written that is not there any more.
GONE_NS = -1
# Of copies that go on changing.
MOVING = (FileShape.GROWN, FileShape.MOMENT)
# So many of the files that were written last are compared with all others.
MOST_NEWEST = 8
# How many writes of a file are remembered, and how many of them without another file tell that a
# save may write the one and not the other.
REMEMBERED, ALONE = 8, 2

Times = tuple[int, int, str]
"""When a file was written that is stored, and when now, and its path."""


@dataclass(slots=True)
class Write:
    """When a file was written, and seen; `quiet_ns` is the last look at which nothing moved.

    A torn file is one that was being written.
    """

    at_ns: int
    seen_ns: int = 0
    quiet_ns: int = 0
    torn: bool = False


class Writes:
    """The last writes to each file that was written again, as far as they were seen."""

    def __init__(self) -> None:
        self._seen: dict[str, deque[Write]] = defaultdict(partial(deque, maxlen=REMEMBERED))

    def note(self, copies: Copies, stored: Mapping[str, Entry], *, quiet: bool = False) -> None:
        """Remember what a look has found; a `quiet` one if no file was in the middle of a save."""
        now_ns = time.time_ns()
        for path, copy in copies.items():
            if path not in stored or stored[path].mtime_ns in {None, copy.status[1]}:
                continue
            seen = self._seen[path]
            if not seen:
                seen.append(Write(stored[path].mtime_ns or 0))
            if seen[-1].at_ns != copy.status[1]:
                seen.append(Write(copy.status[1], now_ns))
            seen[-1].torn = not copy.sound
            seen[-1].quiet_ns = now_ns if quiet else seen[-1].quiet_ns

    def alone(self, path: str, other: str, other_ns: int) -> bool:
        """Tell whether a file is written without another one, which is stored as of `other_ns`.

        It is, if it was written again before the other one was, or if at a quiet look only the file
        was new, and not just written; each time counts.
        """
        writes = [write for write in self._seen.get(path, ()) if not write.torn]
        settled = sum(
            write.quiet_ns - write.at_ns >= PAIR_NS
            and self._at(other, write.quiet_ns, other_ns) < write.at_ns
            for write in writes
        )
        again = sum(
            self._at(other, later.seen_ns, other_ns) < write.at_ns
            for write, later in pairwise(writes)
        )
        return settled + again >= ALONE

    def _at(self, path: str, look_ns: int, stored_ns: int) -> int:
        """Return when a file was last written as of a look, or later than that if unknown."""
        seen = self._seen.get(path)
        if not seen:
            return stored_ns
        return max((w.at_ns for w in seen if w.seen_ns <= look_ns), default=seen[0].at_ns)


def halfway(
    listing: Listing,
    copies: Copies,
    stored: Mapping[str, Entry],
    torn: Collection[str],
    at_ns: int,
    *,
    writes: Writes,
    together: Together,
) -> tuple[str, str] | None:
    """Return two files of one save, of which only the first is new; None if no save is unfinished.

    A program writes the files of each save in the same order, so their stored times tell what is
    to follow, and about how soon, unless earlier `writes` tell otherwise. Of those that are `torn`,
    another one of the save must be new.
    """
    followed = _followed(copies, stored)
    times = [(at[0], followed.get(at[2], at[1]), at[2]) for at in _times(listing, copies, stored)]
    new = [
        at
        for at in times
        if at[1] not in (at[0], GONE_NS) and at[2] not in torn and at[2] not in followed
        if not _has_grown(at[2], listing, stored)
    ]
    late = [at for at in times if at[2] in torn]
    if new:
        times.sort()
    for file in nlargest(MOST_NEWEST, new, key=itemgetter(1)):
        others = chain(
            _following(file, times, at_ns, together), (at for at in late if _near(file, at[0]))
        )
        for before_ns, _, other in others:
            if not writes.alone(file[2], other, before_ns):
                return file[2], other
    return None


def _followed(copies: Copies, stored: Mapping[str, Entry]) -> dict[str, int]:
    """Return when another file followed the newest of each series, which differ in their digits."""
    new: dict[str, int] = {}
    for path, copy in copies.items():
        if path not in stored and copy.sound and (series := path.translate(DIGITS)) != path:
            new[series] = max(copy.status[1], new.get(series, 0))
    newest: dict[str, tuple[int, str]] = {}
    for path, entry in stored.items() if new else ():
        if (series := path.translate(DIGITS)) in new:
            newest[series] = max((entry.mtime_ns or 0, path), newest.get(series, (0, path)))
    return {path: new[series] for series, (_, path) in newest.items()}


def _following(file: Times, times: list[Times], at_ns: int, together: Together) -> Iterator[Times]:
    """Yield files that a save has not renewed yet, soon after it renewed one."""
    before_ns, now_ns, path = file
    whole = together.group(path)
    soonest_ns = max(0, (abs(at_ns - now_ns) - PAIR_NS) // 2)
    for place in range(bisect_right(times, (before_ns + soonest_ns + 1,)), len(times)):
        its_before_ns, its_ns, other = times[place]
        gap_ns = 2 * (its_before_ns - before_ns)
        if its_before_ns + gap_ns + WHOLE_NS > now_ns:
            return
        same = whole is not None and together.group(other) == whole
        if max(its_before_ns, its_ns) + gap_ns + (WHOLE_NS if same else PAIR_NS) <= now_ns:
            yield times[place]


def _near(file: Times, other_ns: int) -> bool:
    """Tell whether a file was stored with another one, in time, and renewed far later."""
    before_ns, now_ns, _ = file
    return 2 * abs(other_ns - before_ns) + PAIR_NS <= now_ns - max(before_ns, other_ns)


def _times(listing: Listing, copies: Copies, stored: Mapping[str, Entry]) -> Iterator[Times]:
    """Yield when each file was written that is stored, and when now, but for those that grow."""
    for path, entry in stored.items():
        if entry.mtime_ns is None or (path not in listing and path.endswith(COMPANIONS)):
            continue
        if (copy := copies.get(path)) is None or copy.shape not in MOVING:
            yield entry.mtime_ns, listing[path][1] if path in listing else GONE_NS, path


def removed(
    listing: Listing, copies: Copies, stored: Mapping[str, Entry], *, killed: bool
) -> str | None:
    """Return a file that a program seems to have removed to save it anew, and has not yet.

    It writes it under another name meanwhile, or was killed, and left nothing else that is new.
    """
    times = _times(listing, copies, stored)
    gone = sorted(path for _, now_ns, path in times if now_ns == GONE_NS)
    if not gone:
        return None
    left = {path for path in listing if looks_unfinished(path, set(gone))}
    new = {path for path, copy in copies.items() if copy.sound and copy.shape not in MOVING}
    anything = any(not path.endswith(APPENDED) for path in new - left)
    return None if anything or not (killed or left) else gone[0]


def _has_grown(path: str, listing: Listing, stored: Mapping[str, Entry]) -> bool:
    """Tell whether a file is a log with more in it, which a program writes at any time."""
    is_log = path.endswith(APPENDED) or EVENTS in path
    return is_log and listing[path][0] > stored[path].size
