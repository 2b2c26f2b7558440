"""Hints as the database sends them."""

from __future__ import annotations

import pytest
from forge_schema.wake import Hint, Snapshot


def test_a_snapshot_shows_what_had_committed() -> None:
    snapshot = Snapshot.read("10:20:10,15")
    shown = [xid for xid in range(8, 23) if snapshot.shows(xid)]
    assert shown == [8, 9, 11, 12, 13, 14, 16, 17, 18, 19]
    assert not Snapshot.read("10:10:").shows(10)


@pytest.mark.parametrize(
    ("payload", "hint"),
    [
        (
            "ready:3,17:10:20:15",
            Hint("ready", frozenset({3, 17}), Snapshot(10, 20, frozenset({15}))),
        ),
        ("back::10:10:", Hint("back", frozenset(), Snapshot(10, 10))),
        ("asked:7", Hint("asked", frozenset({7}))),
        # Those of a later version, and by hand, are for every worker.
        ("ready", Hint("ready")),
        ("", Hint("")),
        ("ready:x:y", Hint("ready")),
    ],
)
def test_notifications_are_read(payload: str, hint: Hint) -> None:
    assert Hint.read(payload) == hint
