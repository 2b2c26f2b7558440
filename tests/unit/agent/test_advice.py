"""The messages that people read for an error."""

from __future__ import annotations

from forge_schema.ending import DETAIL_LENGTH
from forge_schema.model.errors import ForgeError
from forge_worker.attempt import with_advice


def test_the_hint_follows_and_is_kept_whatever_the_message() -> None:
    assert with_advice(ForgeError("broken", hint="mend it")) == "broken (mend it)"
    assert with_advice(ForgeError("broken")) == "broken"
    assert with_advice(OSError(28, "No space")) == "[Errno 28] No space"
    long = with_advice(ForgeError("x" * 2 * DETAIL_LENGTH, hint="mend it"))
    assert (len(long), long[-10:]) == (DETAIL_LENGTH, " (mend it)")
