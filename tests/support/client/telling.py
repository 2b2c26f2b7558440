"""What the output of a refused command must contain."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess


def told(
    done: subprocess.CompletedProcess[str], exit_code: int, *said: str, hint: bool = True
) -> None:
    """Expect an empty stdout, and at the end of stderr an error with these texts, and its hint."""
    assert done.returncode == exit_code, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert "unexpected error" not in done.stderr
    begins = ("error: ", "  hint: ")[: 1 + hint]
    ends = done.stderr.splitlines()[-len(begins) :]
    assert [line[: line.find(": ") + 2] for line in ends] == list(begins), done.stderr
    for text in said:
        assert text in done.stderr, done.stderr
