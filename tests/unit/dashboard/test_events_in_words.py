"""Actions of the audit trail in words: what is told of each, and that repeated ones are one row."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from forge_functions.dashboard.routes.events import told
from forge_schema.read.audit import ACTIONS
from forge_schema.trail import SAID

NOW = datetime(2026, 11, 29, tzinfo=UTC)
NAMES = {("key", "k1"): "ann", ("worker", "7"): "gpu-box"}
# Whose words are made of all their detail.
OTHERS = {"changed", "annotated", "displaced", "inputs given"}
OTHERS |= {"agent replaced"}


def act(action: str, seconds: float = 0, **fields: Any) -> dict[str, Any]:  # noqa: ANN401  of all types
    made = {"at": NOW - timedelta(seconds=seconds), "actor": "key:k1", "action": action}
    return {"id": 1, "submitted": None, "worker_id": None, "detail": None, **made, **fields}


def test_every_action_that_the_trail_knows_has_words() -> None:
    assert set(ACTIONS) - OTHERS == set(SAID)
    for action in SAID:
        (one,) = told([act(action)], {})
        assert "{" not in one.what
        assert "_" not in one.what


@pytest.mark.parametrize(
    ("action", "fields", "what", "who", "rest"),
    [
        ("key_revoked", {"detail": {"key": "k1"}}, "Key of ann revoked", "ann", {}),
        ("key_revoked", {"detail": {"key": "gone"}}, "Key of gone revoked", "ann", {}),
        (
            "status_changed",
            {"detail": {"from": "idle", "to": "busy"}, "actor": "worker:7"},
            "Worker is busy",
            "gpu-box",
            {},
        ),
        (
            "ended",
            {"detail": {"attempt": 2, "rank": 0, "reason": "exit_code", "exit_code": 1}},
            "Attempt 2 ended: exit code",
            "ann",
            {"exit_code": 1},
        ),
        ("promoted", {"actor": "sweeper"}, "Job queued", "Forge itself", {}),
        ("deleted", {"detail": {"name": "{x}", "n": 0}}, "Job {x} deleted", "ann", {"n": 0}),
        ("annotated", {"detail": {"tags_added": ["paper"]}}, "Tagged paper", "ann", {}),
        (
            "refused",
            {"detail": {"method": "POST", "path": "/api/v1/admin/keys", "status": 403}},
            "Refused to make a key",
            "ann",
            {"status": 403},
        ),
        (
            "refused",
            {"detail": {"method": "PUT", "path": "/api/v1/admin/keys", "status": 403}},
            "Refused: PUT /api/v1/admin/keys",
            "ann",
            {"status": 403},
        ),
        ("made_later", {"detail": {"why": "new"}}, "Made later", "ann", {"why": "new"}),
    ],
)
def test_an_action_is_a_sentence(
    action: str, fields: dict[str, Any], what: str, who: str, rest: dict[str, object]
) -> None:
    (one,) = told([act(action, **fields)], NAMES)
    assert (one.what, one.who, one.rest) == (what, who, rest)


def test_the_same_again_is_told_once_unless_much_later() -> None:
    minutes = [0, 5, 14, 28, 60]
    acts = [act("submitted", 60 * m, job_id=m, worker_id=m) for m in minutes]
    acts.insert(1, act("login"))
    acts.insert(2, act("submitted", 60, actor="key:k2"))
    counted = [(one.what, one.who, len(one.acts)) for one in told(acts, NAMES)]
    assert counted == [
        ("Job submitted", "ann", 4),
        ("Logged in", "ann", 1),
        ("Job submitted", "k2", 1),
        ("Job submitted", "ann", 1),
    ]
