"""The commands where Python has nothing of Unix, as on Windows, and what the rest says there."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from support.client import without_unix
from support.client.reaching import key
from support.http.server import served, server_settings
from support.queue.holder import Holder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.queue.rig import Rig

RunProgram = subprocess.CompletedProcess[str]


def run(*words: str, **variables: str) -> RunProgram:
    return subprocess.run(
        [sys.executable, without_unix.__file__, *words],
        env={"USERNAME": "ann", "HOME": variables.pop("home", "/none"), **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def url(rig: Rig, tmp_path: Path) -> Iterator[str]:
    with served(server_settings(rig.url, (tmp_path / "store").as_uri())) as url:
        yield url


def test_a_folder_is_submitted_followed_and_its_files_fetched(
    rig: Rig, url: str, tmp_path: Path
) -> None:
    variables = {"FORGE_URL": url, "FORGE_API_KEY": key(rig), "home": str(tmp_path)}
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "train.py").write_text("print(1)\n")
    submit = run(
        "forge", "submit", str(tmp_path / "project"), "--", "python", "train.py", **variables
    )
    assert submit.returncode == 0, submit.stderr
    assert submit.stdout == "1\n"
    holder = Holder(rig, (tmp_path / "store").as_uri())
    holder.write(b"epoch 1\n")
    holder.leave("model", b"weights")
    holder.end()
    fetch = ["artifacts", "1", "--to", str(tmp_path / "files")]
    for words in (["ps"], ["show", "1"], ["explain", "1"], ["logs", "1"], fetch):
        done = run("forge", *words, **variables)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "files" / "model").read_bytes() == b"weights"


@pytest.mark.parametrize("words", [["up"], ["down"], ["ssh", "1"]])
def test_a_command_that_needs_unix_says_where_to_run_it(words: list[str]) -> None:
    done = run("forge", *words, FORGE_URL="http://127.0.0.1:9", FORGE_API_KEY="fgk_a_b")
    assert done.returncode == 1
    assert "runs on Linux and macOS only" in done.stderr
    assert "wsl --install" in done.stderr


def test_a_worker_says_that_it_needs_linux() -> None:
    done = run("forge-worker", "--status")
    assert done.returncode == 1
    assert "a worker needs Linux" in done.stderr
    assert "Traceback" not in done.stderr
