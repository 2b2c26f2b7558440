"""What a refused command must say."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess


def told(done: subprocess.CompletedProcess[str], exit_code: int, *said: str) -> None:
    """Expect no data, and on stderr an error and a hint at its end that say all this."""
    assert done.returncode == exit_code, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert "should not have happened" not in done.stderr
    *_, error, hint = done.stderr.splitlines()
    assert (error[:7], hint[:8]) == ("error: ", "  hint: "), done.stderr
    for text in said:
        assert text in done.stderr, done.stderr
