"""Lines that are answered quickly, typed again for the whole command: the same to the last byte."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TypeAlias

import pytest
from forge_client import main
from forge_client.cli.quick import answers
from forge_client.cli.show import job_details, standing
from forge_client.http import transport
from forge_schema.model.states import Reason
from structlog.testing import capture_logs
from support.client.reaching import key
from support.http.server import served, server_settings
from support.queue.holder import Holder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from support.queue.rig import Rig

Said: TypeAlias = "tuple[str, str, int]"
Type: TypeAlias = "Callable[[str], Said]"
# Nothing more than a quick answer is needed.
QUICK = (
    *("ps", "ps -o json", "ps --output=jsonl", "ps --mine", "ps state:failed -o json", "ps -n 1"),
    *("ps -o json name:nothing", "show 1", "show 1 -o json", "show -o jsonl", "show fail"),
    *("ps name:nothing*", "ps nothing", "logs 1", "logs -f 1", "logs 1 -f --tail 1"),
    *("logs 1 --grep two", "cancel 1"),
    *("report show failed_attempts", "report show cost --since all --by owner -o csv"),
    *("report show sla -o json", "report show audit -n 1 -o jsonl"),
)
OTHERS = (
    *("ps name:nothing", "ps --owner bob", "ps param:", "ps queued", "show 9 -o json", "show 9"),
    *("logs 1 --attempt 7", "logs 9 -f", "logs 9", "cancel 9", "cancel 1 9"),
    *("report show nothing", "report show sla --by nothing", "report show jobs --since never"),
)


@pytest.fixture
def queue(rig: Rig, tmp_path: Path) -> Iterator[str]:
    """Serve a job that failed with output and a file, and one that waits for it."""
    store_url = (tmp_path / "store").as_uri()
    failed = rig.submit(name="failed", owner="ann", backoff_s=0, max_failures=0)
    holder = Holder(rig, store_url)
    holder.write(b"one\n")
    holder.write(b"two\n")
    holder.leave("model.bin", b"weights")
    holder.end(Reason.EXIT_CODE, 3)
    rig.submit(name="waits", owner="ann", after_ok=[failed])
    # The server writes to the same stdout.
    with capture_logs(), served(server_settings(rig.url, store_url)) as url:
        yield url


@pytest.fixture
def type_quickly(
    queue: str, rig: Rig, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Type:
    monkeypatch.setenv("FORGE_URL", queue)
    monkeypatch.setenv("FORGE_API_KEY", key(rig))
    # A second may pass between a line and its repetition.
    for module in (job_details, standing):
        monkeypatch.setattr(module, "ago", lambda _moment: "long ago")
    monkeypatch.setattr(transport, "FIRST_PATIENCE_S", 0.0)

    def typed(line: str) -> Said:
        monkeypatch.setattr(sys, "argv", ["forge", *line.split()])
        try:
            main._run()
        except SystemExit as end:
            code = int(end.code or 0)
        else:
            code = 0
        return (*capsys.readouterr(), code)

    return typed


@pytest.fixture
def type_whole(type_quickly: Type, monkeypatch: pytest.MonkeyPatch) -> Type:
    def typed(line: str) -> Said:
        with monkeypatch.context() as patch:
            patch.setattr(main, "answered", lambda _words: False)
            return type_quickly(line)

    return typed


@pytest.mark.parametrize("lines", [QUICK, OTHERS])
def test_both_say_the_same(
    lines: tuple[str, ...],
    type_quickly: Type,
    type_whole: Type,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = {line: type_whole(line) for line in lines}
    if lines == QUICK:
        monkeypatch.setattr(answers, "_whole", None)
    assert {line: type_quickly(line) for line in lines} == whole
