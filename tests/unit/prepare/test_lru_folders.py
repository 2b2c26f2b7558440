"""Folders that stay between jobs: in turn, marked while used, dropped by last use."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from forge_worker.attempt import Stopped
from forge_worker.prepare.cache import LOCK_FILES, LruFolders
from support.workers.attempts import attempt_of, some_grant

if TYPE_CHECKING:
    from pathlib import Path

    from forge_worker.files.safe_files import Parts

MIB = 1 << 20


@pytest.fixture
def kept(tmp_path: Path) -> LruFolders:
    """Four folders of a MiB each, the first unused for longest, and room for one and a half."""
    (tmp_path / "jobs").mkdir()
    made = LruFolders(tmp_path / "envs", tmp_path / "jobs", MIB + MIB // 2)
    for at, key in enumerate(("a", "b", "c", "d"), start=1):
        (made.root / key).mkdir(parents=True)
        (made.root / key / "file").write_bytes(b"x" * MIB)
        os.utime(made.root / key, (at, at))
    return made


def nobody() -> None:
    pytest.fail("it waited for nobody")


def stays(kept: LruFolders) -> list[str]:
    kept.make_room()
    return sorted(path.name for path in kept.root.iterdir() if not path.name.startswith("."))


def test_the_unused_go_first_and_the_used_stay(kept: LruFolders, tmp_path: Path) -> None:
    attempt = attempt_of(some_grant(), tmp_path / "jobs" / "one")
    os.utime(kept.root / "b", (9, 9))
    with kept.locked("a", nobody) as folder:
        kept.mark_used("a", attempt.folders)
    assert folder == kept.root / "a"
    # What an agent that was killed had begun to remove goes too.
    (kept.root / ".dropped" / "begun").mkdir()
    assert stays(kept) == ["a"]
    assert list((kept.root / ".dropped").iterdir()) == []
    # Also if it is too much for itself, for as long as the attempt's folder is there.
    (kept.root / "a" / "more").write_bytes(b"x" * MIB)
    assert stays(kept) == ["a"]
    attempt.folders.remove()
    assert stays(kept) == []


def test_what_somebody_sees_to_is_not_dropped_and_is_waited_for(kept: LruFolders) -> None:
    waited = []

    def wait() -> None:
        waited.append(True)
        raise Stopped

    with kept.locked("a", nobody):
        assert stays(kept) == ["a"]
        with pytest.raises(Stopped), kept.locked("a", wait):
            pytest.fail("two had the turn")
    assert waited == [True]
    with kept.locked("a", nobody):
        pass


@pytest.mark.parametrize("swapped_after", [1, 2])
def test_a_link_put_in_place_of_what_was_found_leads_nowhere(
    kept: LruFolders, tmp_path: Path, swapped_after: int
) -> None:
    """After the scan and before the turn, or at the last moment before the removal."""
    host = tmp_path / "host"
    for root in host, kept.root / "a" / "x":
        (root / "y" / "z").mkdir(parents=True)
        (root / "y" / "z" / "file").write_bytes(b"x" * (2 * MIB))
    calls = []

    def weigh(root: Path, parts: Parts) -> tuple[int, int]:
        assert (root, parts) == (kept.root, ("a", "x", "y", "z"))
        calls.append(parts)
        if len(calls) == swapped_after:
            (root / "a" / "x").rename(root / "a" / "away")
            (root / "a" / "x").symlink_to(host)
        return 1, 2 * MIB

    kept.drop_oldest([("a", "x", "y", "z")], weigh)
    assert len(calls) == 2
    assert (host / "y" / "z" / "file").stat().st_size == 2 * MIB
    assert (kept.root / "a" / "away" / "y" / "z" / "file").exists()
    assert list((kept.root / ".dropped").iterdir()) == []


def test_what_was_used_since_it_was_weighed_stays(kept: LruFolders) -> None:
    weighed = iter([(1, 2 * MIB), (2, 2 * MIB)])
    kept.drop_oldest([("a", "file")], lambda _root, _parts: next(weighed))
    assert (kept.root / "a" / "file").exists()


def test_turns_leave_no_more_files_however_many_folders_there_were(kept: LruFolders) -> None:
    for key in range(3 * LOCK_FILES):
        with kept.locked(str(key), nobody):
            pass
    assert len(list((kept.root / ".turns").iterdir())) <= LOCK_FILES
