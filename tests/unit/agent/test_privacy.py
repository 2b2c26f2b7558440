"""Which of the agent's credentials other users may see."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forge_worker.devices import asked
from forge_worker.privacy import shown_flags

if TYPE_CHECKING:
    import pytest


def test_programs_that_the_agent_starts_have_no_credentials(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("FORGE_DATABASE_URL", "FORGE_STORE_URL", "FORGE_TOKEN", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "hush")
    monkeypatch.setenv("KEPT", "kept")
    said = asked("env")
    assert said is not None
    assert "KEPT=kept" in said
    assert "hush" not in said


def test_flags_that_show_a_secret_are_named() -> None:
    assert shown_flags(["--url", "https://x", "--token=fgw_x"]) == ["--token"]
    assert shown_flags(["--database-url", "postgresql://x", "--token-file", "f"]) == [
        "--database-url"
    ]
