"""What the output of a refused command must contain."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess


def told(done: subprocess.CompletedProcess[str], exit_code: int, *said: str) -> None:
    """Expect an empty stdout, and an error and a final hint with these texts on stderr."""
    assert done.returncode == exit_code, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert "unexpected error" not in done.stderr
    *_, error, hint = done.stderr.splitlines()
    assert (error[:7], hint[:8]) == ("error: ", "  hint: "), done.stderr
    for text in said:
        assert text in done.stderr, done.stderr
