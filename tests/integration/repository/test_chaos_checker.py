"""The checker works: with the fence removed from a statement, it finds the consequences."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from chaos.check.invariants import violations
from chaos.check.leases import ENDED_BY_HOLDER, EXPIRED_FIRST, RENEWED_BY_HOLDER
from chaos.check.objects import ACCEPTED_WROTE, OWN_PREFIX
from chaos.check.promises import ONE_PER_KEY
from chaos.check.story import story
from chaos.evidence.history import History
from forge_schema.database import pool as database_module
from forge_schema.database.statements import statement
from support.queue.chaos_script import Script

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from chaos.check.violation import Invariant, Violation
    from support.queue.rig import Rig

OWN_LEASE = "AND lease.token = f.token AND lease.nonce = f.nonce"
RENEWED = """lease.token = held.token AND lease.nonce = held.nonce
        AND lease.worker_id = %(worker_id)s"""


def without(part: str) -> Callable[[str], str]:
    """Take a part out of a statement, which must have it."""

    def taken_out(text: str) -> str:
        assert part in text
        return text.replace(part, "")

    return taken_out


def with_keys_forgotten(text: str) -> str:
    """Have a submit keep no idempotency key."""
    before, kept, after = text.rpartition("idempotency_key, content_digest,")
    assert kept
    return f"{before}NULL, NULL,{after}"


# What is removed from which statement, and the invariants that this breaks.
MUTATIONS: dict[str, tuple[str, Callable[[str], str], set[Invariant]]] = {
    "a finish without its fence": (
        "finish",
        without(OWN_LEASE),
        {ENDED_BY_HOLDER, ACCEPTED_WROTE},
    ),
    "a renewal without its fence": (
        "renew",
        lambda text: text.replace(RENEWED, "true") if RENEWED in text else "",
        {RENEWED_BY_HOLDER},
    ),
    "a tick that does not look twice": (
        "finish",
        without("AND (NOT %(expired_only)s OR lease.expires_at < forge_now())"),
        {EXPIRED_FIRST},
    ),
    "a submit that forgets its key": ("submit", with_keys_forgotten, {ONE_PER_KEY}),
    "an artifact without its fence": (
        "add_artifacts",
        without("AND token = %(token)s AND nonce = %(nonce)s"),
        {OWN_PREFIX},
    ),
}


@pytest.fixture
def script(rig: Rig, tmp_path: Path) -> Iterator[Script]:
    def now() -> float:
        return rig.clock.now.timestamp()

    history = History(tmp_path / "history.jsonl", clock=now)
    (tmp_path / "store").mkdir()
    with Script(rig, (tmp_path / "store").as_uri(), history) as script:
        yield script
    history.close()


def found(script: Script) -> list[Violation]:
    return violations(script.rig.url, script.store.url, script.history.path)


def test_run_in_which_all_statements_are_fenced_has_no_violation(script: Script) -> None:
    script.run()
    assert found(script) == []
    assert script.reasons() == ["worker_lost", "succeeded"]


@pytest.mark.parametrize("what", MUTATIONS)
def test_checker_finds_what_one_statement_lets_through(
    script: Script, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    name, change, broken = MUTATIONS[what]
    mutated = change(statement(name))
    monkeypatch.setattr(
        database_module, "statement", lambda asked: mutated if asked == name else statement(asked)
    )
    script.run()
    violated = found(script)
    told = {one.invariant for one in violated}
    assert {invariant.sentence for invariant in broken} <= told
    for one in violated:
        words = story(one, script.rig.url, script.history.path)
        assert words.endswith(f"broken: {one.invariant}")
        assert len(words.splitlines()) <= 15
