"""A worker on its server's machine: open files change hands, and only those that are signed for."""

from __future__ import annotations

import hashlib
import os
import socket
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from math import inf
from threading import Barrier, Thread
from typing import TYPE_CHECKING, BinaryIO
from unittest.mock import Mock

import httpx
import pytest
from forge_functions import objects, same_machine
from forge_functions.same_machine import SameMachineObjects
from forge_schema.http_client import tls_context
from forge_schema.storage import KeyInvalid, ObjectMissing, StoreError, Taken
from forge_schema.storage.file_store import FileStore
from forge_schema.storage.keys import RESERVED
from forge_schema.storage.manifest import CHUNK_BYTES
from forge_schema.storage.same_machine import (
    MOST,
    UNREAD,
    FileRequest,
    address,
    new_socket,
    proof,
    received,
    send,
)
from forge_worker.files.copies import FileChanged, read_at
from forge_worker.queue.http.gateway import HttpGateway
from forge_worker.queue.http.same_machine import SameMachine
from forge_worker.queue.http.store import HttpObjects, HttpStore
from forge_worker.transfers import sending
from forge_worker.transfers.sending import FileSender, FileSource, StoredChunks
from structlog.testing import capture_logs
from support.http.api import opened
from support.http.http_worker import PLENTY, machine, session
from support.waiting import eventually
from support.workers.attempts import attempt_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from forge_functions.services import Services
    from forge_schema.model.stored import SignedUrl
    from support.queue.rig import Rig

NOWHERE = "http://127.0.0.1:1"


@dataclass
class Beside:
    """One attempt's objects, and the server on the same machine."""

    services: Services
    objects: HttpObjects
    prefix: str
    root: Path
    url: str

    @property
    def store(self) -> FileStore:
        return FileStore(self.root / "store")

    def only_here(self) -> None:
        """Sign URLs that lead nowhere, so that nothing else but the socket works."""
        self.services.settings.public_url = NOWHERE

    def named(self, sha256: str) -> str:
        return f"{self.prefix}checkpoints/files/000000-{sha256}"

    def key(self, content: bytes) -> str:
        return self.named(hashlib.sha256(content).hexdigest())

    def put(self, content: bytes) -> SignedUrl:
        digest = hashlib.sha256(content).hexdigest()
        signer = self.services.own_signer(self.url)
        return signer.put(self.key(content), size=len(content), sha256=digest)

    def meet(self) -> None:
        """Have the worker see a first URL, as that of its code."""
        key = f"{self.prefix}checkpoints/000000.json"
        self.store.put(key, b"{}")
        assert self.objects.get(key) == b"{}"

    @property
    def is_tidy(self) -> bool:
        return not list(self.root.glob(f"store/{RESERVED}/*"))


@pytest.fixture
def beside(rig: Rig, tmp_path: Path) -> Iterator[Beside]:
    (tmp_path / "store").mkdir()
    with ExitStack() as held:
        api = held.enter_context(opened(rig, tmp_path / "store"))
        held.enter_context(closing(SameMachineObjects(api.services))).open()
        made = held.enter_context(session([api.url], api.workers.create("w")[1]))
        gateway = HttpGateway(made)
        gateway.register(machine())
        rig.submit()
        (grant,) = gateway.finish_and_claim([], PLENTY, 1)[1]
        attempt = attempt_of(grant, tmp_path / "attempt")
        store = HttpStore(made, tls_context())
        held.callback(store.close)
        yield Beside(api.services, store.of(attempt), attempt.keys.prefix, tmp_path, api.url)


def test_files_are_stored_and_read_without_http(beside: Beside) -> None:
    beside.only_here()
    content = os.urandom(1_000_000)
    part, file = content[1000:900_000], beside.root / "source"
    file.write_bytes(content)
    with file.open("rb") as source:
        assert beside.objects.put_part(beside.key(part), source, 1000, len(part))
    assert beside.store.get(beside.key(part)) == part
    checkpoint = f"{beside.prefix}checkpoints/000000.json"
    beside.store.put(checkpoint, content)
    assert b"".join(beside.objects.stream(checkpoint)) == content
    beside.objects.get_file(checkpoint, beside.root / "out")
    assert (beside.root / "out").read_bytes() == content


def test_what_the_socket_refuses_is_asked_over_http(beside: Beside) -> None:
    file, content = beside.root / "source", os.urandom(1000)
    file.write_bytes(content)
    with file.open("rb") as source, pytest.raises(StoreError, match="422"):
        beside.objects.put_part(beside.key(b"other"), source, 0, len(content))
    with pytest.raises(ObjectMissing):
        list(beside.objects.stream(f"{beside.prefix}checkpoints/000001.json"))


@pytest.mark.parametrize(
    ("name", "running_answers"),
    [("nobody-listens-here", False), ("an-impostor", False), ("an-impostor", True)],
)
def test_nobody_but_the_signer_gets_a_file_or_a_signature(
    beside: Beside, name: str, *, running_answers: bool
) -> None:
    running, beside.services.same_machine = beside.services.same_machine, name
    heard: list[bytes] = []

    def listen(listening: socket.socket) -> None:
        line, _ = listening.accept()
        with line, received(line) as (asked, file):
            assert file is None
            heard.append(asked)
            if running_answers:
                with new_socket() as other:
                    other.connect(address(running or ""))
                    send(other, asked)
                    send(line, other.recv(MOST))
            else:
                send(line, proof(name, "0" * 64, FileRequest.model_validate_json(asked).nonce))
            heard.append(line.recv(1))

    content = os.urandom(1000)
    (beside.root / "source").write_bytes(content)
    with ExitStack() as held:
        if name == "an-impostor":
            listening = held.enter_context(new_socket())
            listening.bind(address(name))
            listening.listen()
            thread = Thread(target=listen, args=[listening])
            thread.start()
            held.callback(thread.join)
        source = held.enter_context((beside.root / "source").open("rb"))
        assert beside.objects.put_part(beside.key(content), source, 0, len(content))
    assert beside.store.get(beside.key(content)) == content
    if heard:
        assert b"signature" not in heard[0]
        assert heard[1] == b""


def test_a_lie_is_not_stored(beside: Beside) -> None:
    content, direct = os.urandom(300_000), SameMachine()
    signed, file = beside.put(content), beside.root / "source"
    for lie in (content[:-1], b"x" + content[1:], b""):
        file.write_bytes(lie)
        with file.open("rb") as source:
            assert not direct.put(signed, source, 0, len(content))
    assert beside.store.size(beside.key(content)) is None
    file.write_bytes(content)
    with file.open("rb") as source:
        assert not direct.put(replaced(signed, "size=300000", "size=299999"), source, 0, 299_999)
        direct = SameMachine()
        assert not direct.put(replaced(signed, "expires=1", "expires=2"), source, 0, 300_000)
    over = beside.services.own_signer("")
    over._clock = lambda: 1.0
    late = over.put(beside.key(content), size=300_000, sha256=hashlib.sha256(content).hexdigest())
    with file.open("rb") as source:
        assert not SameMachine().put(late, source, 0, len(content))
        assert beside.store.size(beside.key(content)) is None
        assert SameMachine().put(signed, source, 0, len(content))
    assert beside.store.get(beside.key(content)) == content
    assert beside.is_tidy


def test_a_file_that_nobody_has_read_is_named_by_the_copy_of_it(
    beside: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "UNREAD_BYTES", 1)
    content, file = os.urandom(700_000), beside.root / "source"
    file.write_bytes(b"before" + content + b"after")
    stored = StoredChunks(beside.root / "journal")
    sender = FileSender(beside.objects, stored, beside.named, lambda: None)

    def opened() -> BinaryIO:
        return file.open("rb")

    def source(*, is_new: bool) -> FileSource:
        read = partial(read_at, file) if not is_new else refused
        return FileSource("f", 700_000, read, 300_000, open=opened, begins_at=6, is_new=is_new)

    def refused(*_: int) -> bytes:
        pytest.fail("it was read")

    beside.meet()
    beside.only_here()
    new = source(is_new=True)
    sender.send([new])
    pieces = [content[start : start + 300_000] for start in range(0, 700_000, 300_000)]
    assert new.left == 0
    assert new.keys == [beside.key(piece) for piece in pieces]
    assert [beside.store.get(key) for key in new.keys] == pieces
    # What is known already is not kept a second time.
    beside.store.delete(new.keys[0])
    again = source(is_new=True)
    sender.send([again])
    assert again.keys == new.keys
    assert beside.store.size(new.keys[0]) is None
    assert beside.is_tidy


def test_a_file_that_changes_while_it_is_copied_is_stored_nowhere(
    beside: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "UNREAD_BYTES", 1)
    file, stored = beside.root / "source", StoredChunks(beside.root / "journal")
    file.write_bytes(os.urandom(300_000))
    beside.meet()

    @contextmanager
    def opened() -> Iterator[BinaryIO]:
        with file.open("rb") as source:
            yield source
        raise FileChanged("it was rewritten")

    new = FileSource("f", 300_000, lambda *_: b"", CHUNK_BYTES, open=opened, is_new=True)
    with pytest.raises(FileChanged):
        FileSender(beside.objects, stored, beside.named, lambda: None).send([new])
    assert not stored.resumes
    assert new.left == 1


def test_a_permit_without_a_digest_is_worth_little(
    beside: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(same_machine, "USES", 2)
    content, file = os.urandom(1000), beside.root / "source"
    file.write_bytes(content)
    signer, key = beside.services.own_signer(beside.url), beside.named(UNREAD)
    permit = signer.put(key, size=1000, sha256=UNREAD)
    owned = signer.put(key, size=1000, sha256=UNREAD, owner="ann")
    longer = signer.put(key, size=1001, sha256=UNREAD)
    elsewhere = signer.put(f"{beside.prefix}chunks/{UNREAD}", size=1000, sha256=UNREAD)
    other_end = signer.put(beside.key(b"other"), size=1000, sha256=UNREAD)
    assert httpx.put(permit.url, content=content).status_code == 422
    with file.open("rb") as source:
        for other in (owned, longer, elsewhere, other_end):
            assert SameMachine().put_unread(other, source, 0, 1000, lambda _: True) is None
        digest = hashlib.sha256(content).hexdigest()
        taken = SameMachine().put_unread(permit, source, 0, 1000, lambda _: False)
        assert taken == Taken(digest, kept=False)
        assert list(beside.store.list(beside.prefix)) == []
        taken = (direct := SameMachine()).put_unread(permit, source, 0, 1000, lambda _: True)
        assert direct.put_unread(permit, source, 0, 1000, lambda _: True) is None
        assert direct.takes_unread(permit.same_machine or "")
    assert taken == Taken(digest, kept=True)
    assert [one.key for one in beside.store.list(beside.prefix)] == [beside.key(content)]
    beside.meet()
    with file.open("rb") as source, pytest.raises(KeyInvalid):
        beside.objects.put_unread(beside.prefix.__add__, source, 0, 1000, lambda _: True)


def test_a_worker_elsewhere_asks_for_no_url_in_vain(
    beside: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "UNREAD_BYTES", 1)
    asked, each = Asked(beside, monkeypatch), []
    name, beside.services.same_machine = beside.services.same_machine, "nobody-listens-here"
    for is_new in (False, True):
        stored = StoredChunks(beside.root / f"journal-{is_new}")
        # The second file when the worker knows a name.
        for file in (beside.root / f"{is_new}-1", beside.root / f"{is_new}-2"):
            file.write_bytes(os.urandom(700_000))
            read, opened = partial(read_at, file), partial(opened_bytes, file)
            source = FileSource("f", 700_000, read, 300_000, open=opened, is_new=is_new)
            FileSender(beside.objects, stored, beside.named, lambda: None).send([source])
            assert source.left == 0
        each.append(asked.since())
        beside.objects._store.same_machine, beside.objects._store.socket_name = SameMachine(), ""
    assert each[0] == each[1] != Counter()
    # Nor does one beside a server that does not know how, nor while it does not answer.
    beside.services.same_machine = name
    beside.meet()
    for module in (same_machine, objects):
        monkeypatch.setattr(module, "UNREAD", "unknown")
    asked.since()
    with file.open("rb") as unread:
        for _ in range(2):
            assert beside.objects.put_unread(beside.named, unread, 0, 9, lambda _: True) is None
        assert asked.since() == {"objects": 1}
        beside.objects._store.same_machine = paused = SameMachine()
        paused._again_at[name or ""] = inf
        assert beside.objects.put_unread(beside.named, unread, 0, 9, lambda _: True) is None
    assert not asked.since()


def test_a_worker_that_is_slow_to_answer_is_no_fault_of_the_store(
    beside: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hurried(line: socket.socket, message: bytes, files: Sequence[BinaryIO] = ()) -> None:
        send(line, message, files)
        if len(message) == len(UNREAD):
            line.settimeout(0.01)

    monkeypatch.setattr(same_machine, "send", hurried)
    (beside.root / "source").write_bytes(os.urandom(1000))
    signer = beside.services.own_signer(beside.url)
    permit = signer.put(beside.named(UNREAD), size=1000, sha256=UNREAD)
    with capture_logs() as logged, (beside.root / "source").open("rb") as source:
        slow = partial(eventually, lambda: beside.is_tidy)
        assert SameMachine().put_unread(permit, source, 0, 1000, lambda _: slow()) is None
        ended = eventually(lambda: [one["status"] for one in logged if one["event"] == "request"])
    assert ended == [204]
    assert list(beside.store.list(beside.prefix)) == []


def test_few_copies_wait_at_once_to_be_kept(beside: Beside) -> None:
    (beside.root / "source").write_bytes(os.urandom(1000))
    signer = beside.services.own_signer(beside.url)
    permit = signer.put(beside.named(UNREAD), size=1000, sha256=UNREAD)
    waiting, most = Barrier(same_machine.UNPLACED, timeout=60), list[int]()

    def wanted(_: str) -> bool:
        waiting.wait()
        most.append(len(list(beside.root.glob(f"store/{RESERVED}/*"))))
        return False

    def copied(_: int) -> Taken | None:
        with (beside.root / "source").open("rb") as source:
            return SameMachine().put_unread(permit, source, 0, 1000, wanted)

    with ThreadPoolExecutor(2 * same_machine.UNPLACED) as threads:
        assert all(threads.map(copied, range(2 * same_machine.UNPLACED)))
    assert max(most) <= same_machine.UNPLACED
    assert beside.is_tidy


def test_what_is_no_file_to_read_is_not_stored(beside: Beside) -> None:
    content = b"x" * 10
    signed = beside.put(content)
    out, into = os.pipe()
    with os.fdopen(out, "rb") as pipe, os.fdopen(into, "wb") as other:
        other.write(content)
        other.flush()
        assert not SameMachine().put(signed, pipe, 0, 10)
        assert not SameMachine().put(signed, other, 0, 10)
        with (beside.root / "written").open("wb") as file:
            assert not SameMachine().put(signed, file, 0, 10)
    # A signature for one method is none for the other, and one without a file stores nothing.
    assert SameMachine().get(signed) is None
    assert beside.store.size(beside.key(content)) is None
    assert beside.is_tidy


def test_a_server_that_stops_is_asked_over_http(beside: Beside) -> None:
    content = os.urandom(1000)
    beside.store.put(beside.key(content), content)
    signed = beside.services.own_signer(beside.url).get(beside.key(content))
    with closing(SameMachineObjects(beside.services)) as second:
        second.open()
        again = beside.services.own_signer(beside.url).get(beside.key(content))
        assert again.same_machine != signed.same_machine
        with SameMachine().get(again) or pytest.fail("nobody answers") as file:
            assert file.read() == content
    assert SameMachine().get(again) is None
    assert beside.services.own_signer(beside.url).get("x").same_machine is None


def opened_bytes(path: Path) -> BinaryIO:
    return path.open("rb")


class Asked:
    """What a worker asks its server for."""

    def __init__(self, beside: Beside, monkeypatch: pytest.MonkeyPatch) -> None:
        session = beside.objects._store.session
        self._post = Mock(wraps=session.post)
        monkeypatch.setattr(session, "post", self._post)

    def since(self) -> Counter[str]:
        """Return how often it asked for what since the last call of this."""
        paths = [call.args[0] for call in self._post.call_args_list]
        self._post.reset_mock()
        return Counter(path.rpartition("/")[2] for path in paths)


def replaced(signed: SignedUrl, old: str, new: str) -> SignedUrl:
    assert old in signed.url
    return signed.model_copy(update={"url": signed.url.replace(old, new, 1)})
