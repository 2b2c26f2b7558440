"""What a shell completes after `forge …`, and that it stays silent when nothing answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.client.command import Command, command

if TYPE_CHECKING:
    from pathlib import Path

    from support.queue.rig import Rig


@pytest.fixture
def forge(rig: Rig, tmp_path: Path) -> Command:
    """The command of ann, with direct access."""
    return command(tmp_path, FORGE_DATABASE_URL=rig.url, FORGE_STORE_URL="file:///none")


def completed(forge: Command, words: str, **env: str) -> list[str]:
    """Return what bash would offer for the last word."""
    at = len(words.split(" ")) - 1
    done = forge(_FORGE_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=str(at), **env)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


def test_what_the_queue_knows_is_offered(forge: Command, rig: Rig) -> None:
    jobs = [rig.submit(name=name, owner="ann") for name in ("resnet", "vgg", "vgg")]
    rig.worker("gpu-1")
    # A name of two jobs names none of them.
    every = ["@last", *map(str, jobs[::-1]), "resnet"]
    assert completed(forge, "forge logs ") == every
    assert completed(forge, "forge cancel res") == ["resnet"]
    assert completed(forge, "forge worker drain g") == ["gpu-1"]
    assert completed(forge, "forge queue pause ") == ["default"]
    assert completed(forge, "forge report show cos") == ["cost"]
    assert completed(forge, "forge ps --state q") == ["queued"]
    assert completed(forge, "forge ps own") == ["owner:"]


def test_nothing_is_offered_or_said_without_a_queue(forge: Command) -> None:
    nowhere = "postgresql://ann@127.0.0.1:1/forge"
    assert completed(forge, "forge logs ", FORGE_DATABASE_URL=nowhere) == []
