"""What a shim says to its agent."""

from __future__ import annotations

import socket

from forge_worker.runners.process.shims import ShimLine


def test_report_that_comes_with_the_first_words_is_seen_at_once() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.sendall(b'{"shim": 7}\n{"pid": 8}\n{"code": 0}\n')
        line = ShimLine(ours)
        assert (line.shim, line.read()) == (7, {"pid": 8})
        assert line.wait(0)
        assert line.read() == {"code": 0}
        assert not line.wait(0)
    assert line.wait(0)
    assert line.read() == {}
    line.close()
