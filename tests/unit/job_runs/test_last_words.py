"""Which lines of a job's output its end quotes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from forge_worker.attempt import Redactor
from forge_worker.job_runs.last_words import BYTES, LINES, WIDTH, last_words
from forge_worker.prepare.pip_install import INSTALLED
from forge_worker.runners.runner import Exit

if TYPE_CHECKING:
    from pathlib import Path

TRACEBACK = """Traceback (most recent call last):
  File "train.py", line 3, in <module>
    main()
RuntimeError: CUDA error
For debugging consider passing CUDA_LAUNCH_BLOCKING=1
"""
# As accelerate says it without GPUs.
CHILD_FAILED = """Traceback (most recent call last):
  File "/env/bin/accelerate", line 10, in <module>
subprocess.CalledProcessError: Command '['a']' returned non-zero exit status 1.
"""


# As DeepSpeed 0.19.8 says it.
OF_DEEPSPEED = """[2026-11-29 07:05:23,626] [INFO] [launch.py:253:main] Killing subprocess 7
[2026-11-29 07:05:23,626] [ERROR] [launch.py:259:sigkill_handler] ['a'] exits with return code = 3
"""


def marked(rank: int, text: str) -> str:
    return "".join(f"[rank{rank}]: {line}\n" for line in text.splitlines())


FIRST_LINES = {
    "": "no output",
    "\n \n": "no output",
    "one\ntwo\n\n": "two",
    "half a line": "half a line",
    TRACEBACK: "RuntimeError: CUDA error",
    f"{TRACEBACK}\nDuring handling\n\n{TRACEBACK.replace('CUDA', 'other')}": "RuntimeError: other",
    " 10%|#\r 20%|##\r 30%|###": "30%|###",
    "\x1b[31mred\x1b[0m\x07\r\n": "red",
    "step 1\nforge: no checkpoint is stored\n": "step 1",
    "forge: pyton: not found\n": "pyton: not found",
    f" + six==1.16.0\nforge: {INSTALLED}\nforge: pyton: not found\n": "pyton: not found",
    f" + six==1.16.0\nforge: {INSTALLED}\n": "no output",
    "=== short test summary info ===\nFAILED tests/test_a.py::test_bad - assert 1 == 2\n"
    f"ERROR b.py\n{'=' * 9} 1 failed, 8 passed, 1 error in 61.18s (0:01:01) {'=' * 9}\n": (
        "1 failed, 8 passed, 1 error: tests/test_a.py::test_bad - assert 1 == 2"
    ),
    "2 errors in 0.05s\n": "2 errors",
    f"{'=' * 20} no tests ran in 0.06s {'=' * 20}\n": "no tests ran in 0.06s",
    "3 failed attempts in 2.0s\nmore\n": "more",
    "-----\nmpirun noticed this\n-----\n": "mpirun noticed this",
    "-----\n": "-----",
    f"{TRACEBACK}{'=' * 9}\n" + "words of mpirun\n" * 12 + "rank 1 failed first: exit code 1\n": (
        "rank 1 failed first: exit code 1; last output: RuntimeError: CUDA error"
    ),
    "words of mpirun\nrank 1 failed first: exit code 5\n": "rank 1 failed first: exit code 5",
    "x" * 1000: "x" * WIDTH,
    f"{marked(0, TRACEBACK)}{CHILD_FAILED}": "RuntimeError: CUDA error",
    # Of a traceback longer than what is quoted, only the end is there.
    f"{marked(0, 'RuntimeError: deep')}{OF_DEEPSPEED}": "RuntimeError: deep",
    f"step 7\n{OF_DEEPSPEED}": "step 7",
    OF_DEEPSPEED: "[2026-11-29 07:05:23,626] [ERROR] [launch.py:259:sigkill_handler]",
    CHILD_FAILED: "subprocess.CalledProcessError: Command '['a']' returned",
}

# As PyTorch 2.15.0 prints them.
NOTICED = "E1129 06:25:36 23570 torch/api.py:1002] failed (exitcode: {code}) local_rank: 1 (pid: 7)"
SUMMARY = """
Traceback (most recent call last):
  File "/env/bin/torchrun", line 10, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-29_06:25:36
  host      : localhost
  rank      : 9 (local_rank: 1)
  exitcode  : {code} (pid: 7) {name}
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""


CLOSED = TRACEBACK.replace("CUDA error", "Connection closed by peer")
ROOT_CAUSES = {
    ("step 1\n", 3): "exited with code 3; last output: step 1",
    ("step 1\n", -9): "was killed by SIGKILL; last output: step 1",
    ("", -11): "was killed by SIGSEGV",
    (TRACEBACK, 1): "exited with code 1; last output: RuntimeError: CUDA error",
    (marked(9, TRACEBACK), 1): "exited with code 1; last output: RuntimeError: CUDA error",
    # Others on this machine may have noticed it before it was killed.
    (marked(8, CLOSED), -9): "was killed by SIGKILL",
    (marked(9, TRACEBACK) + marked(8, CLOSED), 1): (
        "exited with code 1; last output: RuntimeError: CUDA error"
    ),
    ("W1 api.py:900] Sending process 6 closing signal SIGTERM\n", 1): "exited with code 1",
}


@pytest.mark.parametrize("said", FIRST_LINES)
def test_the_first_line_says_most(tmp_path: Path, said: str) -> None:
    assert _said(tmp_path, said).splitlines()[0].strip().startswith(FIRST_LINES[said])


@pytest.mark.parametrize(("own", "code"), ROOT_CAUSES)
def test_a_process_of_torchrun_is_said_to_have_failed_and_how(
    tmp_path: Path, own: str, code: int
) -> None:
    end = NOTICED.format(code=code) + SUMMARY.format(code=code, name="(SIGNAL)" * (code < 0))
    first = _said(tmp_path, own + end).splitlines()[0]
    assert first == f"the process of rank 9 {ROOT_CAUSES[own, code]}"


def test_the_exception_of_a_marked_traceback_is_quoted_without_its_mark(tmp_path: Path) -> None:
    said = marked(1, TRACEBACK) + "one more line\n"
    assert _said(tmp_path, said).startswith("RuntimeError: CUDA error\n[rank1]: Traceback")


def test_the_last_lines_follow_as_they_were(tmp_path: Path) -> None:
    lines = [f"line {n}" for n in range(50)]
    assert _said(tmp_path, "\n".join(lines)).splitlines() == ["line 49", *lines[-LINES:]]


def test_own_paths_are_the_same_in_each_attempt(tmp_path: Path) -> None:
    work = tmp_path / "jobs" / "17-ab12" / "work"
    work.mkdir(parents=True)
    said = f"python: can't open file '{work}/trian.py'"
    assert _said(tmp_path, said, below=work) == "python: can't open file 'trian.py'"


@pytest.mark.parametrize(
    ("code", "first"),
    [
        (137, "killed by SIGKILL"),
        (139, "killed by SIGSEGV"),
        # As DeepSpeed's launcher says it.
        (247, "a process was killed by SIGKILL (exit code -9)"),
        (250, "a process was killed by SIGABRT (exit code -6)"),
        (255, "no output"),
        (128, "no output"),
    ],
)
def test_a_signal_is_named(tmp_path: Path, code: int, first: str) -> None:
    assert _said(tmp_path, "", code=code) == first


def test_what_the_runner_saw_is_added(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("x\n")
    exited = Exit(1, detail="2 of its processes could not be ended")
    said = last_words(exited, log, Redactor(), below=tmp_path)
    assert said == "x; 2 of its processes could not be ended"


def test_a_secret_is_covered_wherever_the_end_begins(tmp_path: Path) -> None:
    covered = "sesame-opens-it"
    redactor = Redactor([covered])
    for cut in range(len(covered) + 2):
        text = f"{covered}{'y' * (BYTES - cut - 1)}\nlast"
        words = last_words(Exit(1), _log(tmp_path, text), redactor, below=tmp_path)
        assert not any(covered[n:] in words for n in range(len(covered) - 3))
    said = last_words(Exit(1), _log(tmp_path, f"no {covered}"), redactor, below=tmp_path)
    assert said == f"no {'*' * len(covered)}"


def test_a_log_that_is_gone_is_no_output(tmp_path: Path) -> None:
    assert last_words(Exit(1), tmp_path / "gone", Redactor(), below=tmp_path) == "no output"


def _said(folder: Path, text: str, *, code: int = 1, below: Path | None = None) -> str:
    return last_words(Exit(code), _log(folder, text), Redactor(), below=below or folder / "work")


def _log(folder: Path, text: str) -> Path:
    log = folder / "log"
    log.write_text(text, encoding="utf-8")
    return log
