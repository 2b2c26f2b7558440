"""Unpacking untrusted archives: anything odd is rejected without leaving files."""

from __future__ import annotations

import io
import os
import random
import shutil
import tarfile
import tempfile
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from forge_schema import code, zstd
from forge_schema.code import BundleRefused
from forge_worker.prepare.bundle import ArchiveLimits, extract, extract_files
from hypothesis import given, settings
from hypothesis import strategies as st
from support import trees
from support.archives import archive, compressed, folder, member, tar, with_header

LIMITS = ArchiveLimits(total_bytes=1 << 20, file_bytes=1 << 19, entries=50)
GNU, USTAR = tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT


def pax(name: str = "a", body: bytes = b"") -> bytes:
    """Return a tar with one extension header of this very body, and an entry behind it."""
    return tar([member("x", body, type=tarfile.XHDTYPE), member(name, b"content")])


def record(key: str, value: str) -> bytes:
    body = f" {key}={value}\n".encode()
    length = len(body) + 2 if len(body) + 2 < 100 else len(body) + 3
    return str(length).encode() + body


def patched(offset: int, value: bytes, kind: bytes = tarfile.REGTYPE) -> bytes:
    """Return a tar of one empty file, with bytes of its header overwritten."""
    plain = tar([member("a", type=kind)])
    return with_header(plain[:512], field=(offset, value)) + plain[512:]


def bomb(size: int) -> bytes:
    """Return one frame that unpacks to a file of this many zeros."""
    out = io.BytesIO()
    with zstd.ZstdFile(out, "w") as stream:
        info = tarfile.TarInfo("zeros")
        info.size = size
        stream.write(info.tobuf(tarfile.GNU_FORMAT))
        for _ in range(size >> 20):
            stream.write(bytes(1 << 20))
        stream.write(bytes(10240))
    return out.getvalue()


def long_window() -> bytes:
    out = io.BytesIO()
    with zstd.ZstdFile(out, "w", options={zstd.CompressionParameter.window_log: 27}) as stream:
        stream.write(tar([member("a")]))
        # The size, if it were declared, would limit the window.
        stream.flush()
    return out.getvalue()


def link(name: str, target: str) -> tuple[tarfile.TarInfo, bytes]:
    return member(name, type=tarfile.SYMTYPE, linkname=target, mode=0o777)


PLAIN = tar([member("a", b"content")])
BODY, END = PLAIN[:1024], PLAIN[1024:]

NAMES = {
    "absolute": "/tmp/forge-escape",  # noqa: S108  the attack
    "two slashes first": "//tmp/x",
    "parent": "../x",
    "parent inside": "a/../../x",
    "parent at the end": "a/..",
    "dot": ".",
    "dot inside": "a/./b",
    "empty": "",
    "doubled slash": "a//b",
    "backslash": "a\\b",
    "drive": "..\\..\\x",
    "newline": "a\nb",
    "escape": "a\x1b[2Jb",
    "delete": "a\x7f",
    "device": "aux.py",
    "device with a space": "src/Con .txt",
    "overlong name": "x" * 256,
    "overlong path": "/".join(["y" * 200] * 6),
    "too deep": "d/" * 64 + "x",
}

TARS = {
    "symlink": tar([link("a", "/etc/passwd")]),
    "symlink before a file": tar([link("a", "b"), member("b")]),
    "symlink before a folder": tar([link("a", "b"), folder("b")]),
    "symlink up": tar([link("a", "../b")]),
    "symlink up from a folder": tar([folder("d"), link("d/a", "../../b")]),
    "symlink to the folder above": tar([link("a", "..")]),
    # The first leads up to the top, from where the second would leave it.
    "symlink up through another": tar([link("d/e/up", "../.."), link("a", "d/e/up/../b")]),
    "symlink that turns back": tar([link("a", "b/../../c")]),
    "symlink to nothing": patched(157, b"\0", tarfile.SYMTYPE),
    "symlink to a doubled slash": tar([link("a", "b//c")]),
    "symlink to a dot within": tar([link("a", "b/./c")]),
    "symlink to a slash at the end": tar([link("a", "b/")]),
    "symlink to a backslash": tar([link("a", "..\\b")]),
    "symlink to a newline": tar([link("a", "b\nc")]),
    "symlink to a device": tar([link("a", "con")]),
    "symlink to a long name": tar([link("a", "x" * 300)]),
    "symlink to a long path up": tar([link("a", "../" * 90 + "b")]),
    "symlink with content": tar([member("a", b"content", type=tarfile.SYMTYPE, linkname="b")]),
    "symlink twice": tar([link("a", "b"), link("a", "c")]),
    "symlink in place of a file": tar([member("a"), link("a", "b")]),
    "symlink in place of a folder": tar([member("a/b"), link("a", "c")]),
    "symlink that differs by case": tar([member("README"), link("readme", "b")]),
    "symlink through a link": tar([folder("b"), link("a", "b"), link("a/c", "d")]),
    "symlink through a link by case": tar([folder("b"), link("a", "b"), link("A/c", "d")]),
    "symlink below a file": tar([member("a"), link("a/c", "d")]),
    "file through a link": tar([link("a", "/tmp"), member("a/b", b"x")]),  # noqa: S108
    "file through a link within": tar([folder("d"), link("a", "d"), member("a/b", b"x")]),
    "pax link that climbs": tar(
        [member("x", record("linkpath", "../b"), type=b"x"), link("a", "b")]
    ),
    "pax link on a file": tar([member("x", record("linkpath", "b"), type=b"x"), member("a")]),
    "pax link on a folder": tar([member("x", record("linkpath", "b"), type=b"x"), folder("a")]),
    "pax link with NUL": tar([member("x", record("linkpath", "b\0c"), type=b"x"), link("a", "b")]),
    "too many links": tar([link(f"f{n}", "a") for n in range(51)]),
    "hard link": tar([member("a", type=tarfile.LNKTYPE, linkname="/etc/passwd")]),
    "character device": tar([member("a", type=tarfile.CHRTYPE, devmajor=1, devminor=3)]),
    "block device": tar([member("a", type=tarfile.BLKTYPE)]),
    "fifo": tar([member("a", type=tarfile.FIFOTYPE)]),
    "contiguous file": tar([member("a", type=tarfile.CONTTYPE)]),
    "old file type": tar([member("a", type=tarfile.AREGTYPE)]),
    "old folder by its slash": tar([member("a/", type=tarfile.AREGTYPE)]),
    "unknown type": tar([member("a", type=b"Z")]),
    "gnu sparse": tar([member("a", type=tarfile.GNUTYPE_SPARSE)]),
    "gnu long name": tar([member("x" * 120)], format=GNU),
    "global header": tar([member("g", record("path", "b"), type=b"g"), member("a")]),
    "duplicate": tar([member("a", b"1"), member("a", b"2")]),
    "duplicate folder": tar([folder("a"), folder("a")]),
    "folder listed after its file": tar([member("a/b"), folder("a")]),
    "file then folder": tar([member("a"), folder("a")]),
    "file as a parent": tar([member("a"), member("a/b")]),
    "case collision": tar([member("a/README"), member("a/readme")]),
    "case collision of folders": tar([member("Src/a"), member("src/b")]),
    "collision by sharp s": tar([member("straße"), member("STRASSE")]),
    "collision by accents": tar([member("é"), member("e\u0301")]),
    "setuid": tar([member("a", mode=0o4755)]),
    "setgid folder": tar([member("a", type=tarfile.DIRTYPE, mode=0o2755)]),
    "folder with content": tar([member("a", b"content", type=tarfile.DIRTYPE)]),
    "file with a link name": tar([member("a", linkname="b")]),
    "negative size": patched(124, b"\xff" * 12),
    "enormous size": patched(124, b"\x80" + b"\x7f" * 11),
    "size that is no number": patched(124, b"9z9z9z9z9z9\0"),
    "wrong checksum": PLAIN[:100] + b"7" + PLAIN[101:],
    "bytes behind the name's NUL": patched(0, b"a\0/../../etc/passwd"),
    "bytes behind the prefix's NUL": patched(345, b"a\0b"),
    "prefix that climbs": patched(345, b"../.."),
    "name that is not UTF-8": patched(0, b"\xff\xfe"),
    "owner that is not UTF-8": patched(265, b"\xff\xfe"),
    "pax name with NUL": pax(body=record("path", "a\0b")),
    "pax name that climbs": pax(body=record("path", "../b")),
    "pax size": pax(body=record("path", "b") + record("size", "1")),
    "pax sparse": pax(body=record("path", "b") + record("GNU.sparse.major", "1")),
    "pax link": pax(body=record("linkpath", "/etc/passwd")),
    "pax character set": pax(body=record("path", "b") + record("hdrcharset", "BINARY")),
    "pax without a name": pax(body=record("mtime", "1")),
    "pax that repeats": pax(body=record("path", "b") + record("path", "c")),
    "pax with a wrong length": pax(body=b"99 path=b\n"),
    "pax with a huge length": pax(body=b"9" * 5000 + b" path=b\n"),
    "pax without an end": pax(body=b"9 path=b\t"),
    "pax that is not UTF-8": pax(body=b"10 path=\xff\n"),
    "pax that is empty": pax(),
    "pax chain": tar(
        [member("x", record("path", "b"), type=b"x")] * 2 + [member("a", b"content")]
    ),
    "pax without an entry": tar([member("x", record("path", "b"), type=b"x")]),
    "pax bomb": tar([member("x", record("path", "b") * 2000, type=b"x"), member("a")]),
    "hidden in the padding": BODY[:600] + b"hidden" + BODY[606:] + END,
    "hidden behind the end": BODY + END[:1024] + b"hidden" + END[1030:],
    "entry behind the end": PLAIN + PLAIN,
    "zeros behind the end": PLAIN + bytes(10240),
    "no end": BODY,
    "half an end": BODY + bytes(512),
    "cut inside a header": PLAIN[:300],
    "cut inside a file": PLAIN[:515],
    "too many files": tar([member(f"f{n}") for n in range(51)]),
    "too many folders in one name": tar([member("d/" * 30 + "a"), member("e/" * 30 + "a")]),
    "file too large": tar([member("a", bytes((1 << 19) + 1))]),
    "too much in all": tar([member(f"{n}", bytes(400_000)) for n in range(3)]),
    "nothing": b"",
}  # fmt: skip

BROKEN = {
    "size that is no number", "wrong checksum", "name that is not UTF-8", "no end", "half an end",
    "owner that is not UTF-8", "cut inside a header", "cut inside a file", "nothing",
}  # fmt: skip

FILES = {
    "nothing": b"",
    "text": b"hello, world\n" * 100,
    "gzip": b"\x1f\x8b\x08" + bytes(100),
    "plain tar": PLAIN,
    "cut frame": compressed(PLAIN)[:-5],
    "frame without its checksum": compressed(PLAIN)[:-4],
    "wrong checksum": compressed(PLAIN)[:-1] + bytes([compressed(PLAIN)[-1] ^ 1]),
    "garbage behind the frame": compressed(PLAIN) + b"garbage",
    "second frame": compressed(PLAIN) + compressed(PLAIN),
    "skippable frame behind": compressed(PLAIN) + b"\x50\x2a\x4d\x18\x04\0\0\0abcd",
    "skippable frame before": b"\x50\x2a\x4d\x18\x04\0\0\0abcd" + compressed(PLAIN),
    "tar over two frames": compressed(BODY) + compressed(END),
    "garbage far behind": compressed(PLAIN) + bytes(5000) + b"x",
    "window too large": long_window(),
}

# Made by their tests alone: each process of a run imports this module.
BOMBS: dict[str, Callable[[], bytes]] = {
    "bomb": lambda: bomb(1 << 30),
    "bomb behind the end": lambda: zstd.compress(PLAIN + bytes(1 << 28)),
}


@pytest.fixture
def into(tmp_path: Path) -> Path:
    return tmp_path / "into"


def unpack(data: bytes, into: Path, limits: ArchiveLimits = LIMITS) -> trees.Tree:
    file = into.parent / "archive"
    file.write_bytes(data)
    extract(file, into, limits=limits)
    return trees.read(into)


def expect_refused(data: bytes, into: Path) -> str:
    """Expect a rejection that leaves `into` empty, and everything around it unchanged."""
    into.mkdir()
    with pytest.raises(BundleRefused) as caught:
        unpack(data, into)
    assert list(into.iterdir()) == []
    assert sorted(path.name for path in into.parent.iterdir()) == ["archive", "into"]
    assert caught.value.code == "bundle_refused"
    return caught.value.message


class TestRefused:
    @pytest.mark.parametrize("name", NAMES.values(), ids=NAMES.keys())
    def test_names(self, name: str, into: Path) -> None:
        expect_refused(archive(member("good", b"x"), member(name, b"x")), into)

    @pytest.mark.parametrize("name", NAMES.values(), ids=NAMES.keys())
    def test_names_of_folders(self, name: str, into: Path) -> None:
        expect_refused(archive(member("good", b"x"), folder(name)), into)

    @pytest.mark.parametrize("name", TARS)
    def test_tars(self, name: str, into: Path) -> None:
        message = expect_refused(compressed(TARS[name]), into)
        # An archive that is merely broken would not show that its trick is seen.
        broken = "cannot be read" in message or "truncated" in message or "zstd" in message
        assert broken == (name in BROKEN), message

    @pytest.mark.parametrize("data", FILES.values(), ids=FILES.keys())
    def test_files(self, data: bytes, into: Path) -> None:
        expect_refused(data, into)

    def test_garbage_right_behind_a_full_read(
        self, into: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        data = archive(member("a", b"content"))
        monkeypatch.setattr(code, "FEED", len(data))
        assert unpack(data, into)
        shutil.rmtree(into)
        assert "after the archive" in expect_refused(data + b"x", into)

    @pytest.mark.parametrize("name", BOMBS)
    def test_a_bomb_is_stopped_early(self, into: Path, name: str) -> None:
        data = BOMBS[name]()
        assert len(data) < 100_000
        tracemalloc.start()
        try:
            expect_refused(data, into)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 100 << 20

    def test_what_was_unpacked_before_goes_away_too(self, into: Path) -> None:
        members = [folder("a"), member("a/b/c", b"x"), member("d", b"y"), member("../x")]
        assert "'..'" in expect_refused(archive(*members), into)


class TestAccepted:
    def test_files_and_folders_with_their_modes(self, into: Path) -> None:
        before = os.umask(0o077)
        try:
            found = unpack(
                archive(
                    folder("src"), member("src/a", b"1"), member("deep/er/b", b"2"),
                    member("run", b"3", mode=0o700), member("odd", b"4", mode=0o666),
                ),
                into,
            )  # fmt: skip
        finally:
            os.umask(before)
        assert found == {"src/a": b"1", "deep/er/b": b"2", "run": b"3", "odd": b"4"}
        modes = {
            path.relative_to(into).as_posix(): path.stat().st_mode & 0o7777
            for path in into.rglob("*")
        }
        assert modes == {
            "src": 0o755, "src/a": 0o644, "deep": 0o755, "deep/er": 0o755,
            "deep/er/b": 0o644, "run": 0o755, "odd": 0o644,
        }  # fmt: skip

    @pytest.mark.parametrize("format", [tarfile.PAX_FORMAT, GNU, USTAR])
    def test_every_plain_format(self, into: Path, format: int) -> None:  # noqa: A002
        data = compressed(tar([folder("d"), member("d/a", b"x" * 700)], format=format))
        assert unpack(data, into) == {"d/a": b"x" * 700}

    def test_long_and_accented_names(self, into: Path) -> None:
        tree = {"x" * 255: b"1", "ü" * 100: b"2", "/".join(["z" * 100] * 9): b"3"}
        members = [member(name, content or b"") for name, content in tree.items()]
        assert unpack(archive(*members), into) == tree

    def test_an_empty_archive(self, into: Path) -> None:
        assert unpack(archive(), into) == {}

    def test_links_that_stay_inside(self, into: Path) -> None:
        links = {"d/b": "a", "d/up": "..", "e": "d", "far": "nothing/yet", "here": ".",
                 "z" * 150: "e/" + "y" * 150}  # fmt: skip
        data = archive(member("d/a", b"x"), *(link(*one) for one in links.items()))
        assert unpack(data, into) == {"d/a": b"x", **links}
        assert all(path.resolve().is_relative_to(into) for path in into.rglob("*"))

    def test_exactly_the_limits(self, into: Path) -> None:
        members = [member(f"{n}", bytes(1 << 19)) for n in range(2)]
        members += [member(f"e{n}") for n in range(48)]
        assert len(unpack(archive(*members), into)) == 50

    @pytest.mark.parametrize("blocks", range(15, 24))
    def test_any_length_of_the_last_record(self, into: Path, blocks: int) -> None:
        content = bytes(blocks * 512)
        assert unpack(archive(member("a", content)), into) == {"a": content}


def unpack_files(pieces: list[bytes], into: Path, limits: ArchiveLimits = LIMITS) -> trees.Tree:
    """Unpack a tar whose pieces are files of a frame each."""
    extract_files(map(io.BytesIO, pieces), into, limits=limits)
    return trees.read(into)


class TestSegments:
    @pytest.mark.parametrize("cut", [1, 511, 512, 515, 700, 1024, 1536, 2048, len(PLAIN) - 1])
    def test_a_tar_may_be_cut_anywhere(self, into: Path, cut: int) -> None:
        pieces = [compressed(PLAIN[:cut]), compressed(b""), compressed(PLAIN[cut:])]
        assert unpack_files(pieces, into) == {"a": b"content"}

    @pytest.mark.parametrize("cut", [512, 1030])
    @pytest.mark.parametrize("name", TARS)
    def test_tars_are_refused_in_pieces_too(self, into: Path, name: str, cut: int) -> None:
        data = TARS[name]
        with pytest.raises(BundleRefused):
            unpack_files([compressed(data[:cut]), compressed(data[cut:])], into)
        assert list(into.iterdir()) == []

    @pytest.mark.parametrize(
        "pieces",
        [
            [],
            [compressed(BODY)],
            [compressed(END)[:-5], compressed(BODY)],
            [compressed(BODY)[:-4], compressed(END)],
            [compressed(BODY) + b"x", compressed(END)],
            [compressed(BODY), compressed(END), compressed(b"x")],
            [compressed(BODY), compressed(END), compressed(PLAIN)],
            [compressed(BODY), b"", compressed(END)],
            [compressed(BODY) + compressed(END)],
        ],
    )
    def test_pieces_that_are_no_frames_of_one_tar(self, into: Path, pieces: list[bytes]) -> None:
        with pytest.raises(BundleRefused):
            unpack_files(pieces, into)
        assert list(into.iterdir()) == []


class TestInto:
    def test_it_must_be_empty(self, into: Path) -> None:
        into.mkdir()
        (into / "kept").write_bytes(b"x")
        with pytest.raises(FileExistsError):
            unpack(archive(member("a")), into)
        assert trees.read(into) == {"kept": b"x"}

    def test_it_may_not_be_a_link(self, into: Path) -> None:
        (into.parent / "elsewhere").mkdir()
        into.symlink_to("elsewhere")
        with pytest.raises(OSError, match="into"):
            unpack(archive(member("a")), into)
        assert not list((into.parent / "elsewhere").iterdir())

    def test_a_missing_archive_is_no_refusal(self, into: Path) -> None:
        with pytest.raises(FileNotFoundError):
            extract(into.parent / "nothing", into, limits=LIMITS)


def expect_contained(data: bytes) -> None:
    """Expect it to be unpacked inside, or rejected without a trace."""
    with tempfile.TemporaryDirectory() as name:
        into = Path(name, "into")
        try:
            unpack(data, into)
        except BundleRefused:
            assert list(into.iterdir()) == []
        assert {path.name for path in Path(name).iterdir()} == {"archive", "into"}
        for path in into.rglob("*"):
            with suppress(RuntimeError):  # a link to itself
                assert path.resolve().is_relative_to(into.resolve())


SEEDS = [
    tar([folder("d"), member("d/a", b"x" * 600), member("y" * 150, b"long"), member("z")]),
    tar([member("a", b"1"), member("b" * 101, b"2")], format=GNU),
    TARS["pax sparse"],
    TARS["file through a link"],
    tar([folder("d"), member("d/a", b"x"), link("d/b", "a"), link("e", "d"), link("f", "e/b")]),
]


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(SEEDS), st.randoms(use_true_random=False), st.booleans())
def test_mutated_tars_are_contained(seed: bytes, chance: random.Random, sound: bool) -> None:  # noqa: FBT001
    data = bytearray(seed)
    for _ in range(chance.randint(1, 8)):
        header = 512 * chance.randrange(len(data) // 512)
        data[header + chance.randrange(512)] = chance.choice([0, 46, 47, 53, 120, 255, 92, 10])
        if sound:
            block = bytes(data[header : header + 512])
            data[header : header + 512] = with_header(block)
    expect_contained(compressed(bytes(data)))


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(SEEDS), st.randoms(use_true_random=False))
def test_mutated_files_are_contained(seed: bytes, chance: random.Random) -> None:
    data = bytearray(compressed(seed))
    for _ in range(chance.randint(1, 4)):
        data[chance.randrange(len(data))] = chance.randrange(256)
    del data[chance.choice([len(data), chance.randrange(len(data))]) :]
    expect_contained(bytes(data))


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=3000))
def test_anything_at_all_is_contained(data: bytes) -> None:
    expect_contained(data)
    expect_contained(compressed(data))
