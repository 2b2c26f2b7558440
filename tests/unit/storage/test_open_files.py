"""Open files between processes of one machine."""

from __future__ import annotations

import os
import resource
import socket
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from forge_schema.storage.same_machine import FileRequest, Unheard, received, send
from forge_schema.storage.signed import ServerSigner

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def lines() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with one, other:
        yield one, other


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_file_is_open_for_the_block_and_no_child_inherits_it() -> None:
    before = open_files()
    with lines() as (one, other), Path(__file__).open("rb") as file:
        send(one, b"here", [file])
        with received(other) as (message, came):
            assert message == b"here"
            assert came is not None
            assert os.path.sameopenfile(came, file.fileno())
            assert not os.get_inheritable(came)
    assert open_files() == before


def test_more_files_than_one_are_refused_and_closed() -> None:
    before = open_files()
    with lines() as (one, other), Path(__file__).open("rb") as file:
        send(one, b"here", [file, file, file])
        with pytest.raises(Unheard), received(other):
            pass
    assert open_files() == before


def test_a_file_for_which_no_descriptor_is_left_is_not_a_message_without_one() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as held:
        one, other = held.enter_context(lines())
        file = held.enter_context(Path(__file__).open("rb"))
        send(one, b"here", [file])
        highest = max(int(path.name) for path in Path("/proc/self/fd").iterdir())
        held.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        # Whatever is free below is taken.
        while (spare := os.dup(file.fileno())) <= highest:
            held.callback(os.close, spare)
        held.callback(os.close, spare)
        resource.setrlimit(resource.RLIMIT_NOFILE, (spare + 1, hard))
        with pytest.raises(Unheard), received(other):
            pass


def test_all_that_is_signed_is_told_but_the_signature() -> None:
    signer = ServerSigner(b"s", base_url="http://x/below", lasts_s=9, same_machine="name")
    signed = signer.put("jobs/1/ä &+%?/x", size=7, sha256="ab" * 32, if_absent=True, owner="ö&b")
    request, signature = FileRequest.by(signed)
    assert signer.is_signed(request.permit, signature)
    assert signature not in request.model_dump_json()
    assert FileRequest.by(signer.get("jobs/1/x"))[0].permit.method == "GET"
