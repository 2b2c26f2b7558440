"""The diff of two jobs' code: that of difflib, and within limits whatever the bundles hold."""

from __future__ import annotations

import difflib
import io
import tarfile
import tracemalloc
from typing import cast

import pytest
import zstandard
from forge_functions.dashboard.routes.runs import code_diff as page
from forge_schema.code.comparison import TooDifferent, differences
from forge_schema.storage import Store

TEXTS = ["", "a\n", "a\nb\nc\n" * 9, "b\n" + "a\nb\nc\n" * 9, "c\n" + "a\nb\n" * 14, "x\n" * 30]


class Shelf:
    """A store of bundles under one-letter keys."""

    def __init__(self, **bundles: bytes) -> None:
        self.bundles = bundles

    def size(self, key: str) -> int:
        return len(self.bundles[key])

    def get(self, key: str) -> bytes:
        return self.bundles[key]


def bundle(**files: bytes) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return zstandard.compress(packed.getvalue())


def told(first: bytes, second: bytes) -> page.CodeDiff:
    return page.code_diff(cast("Store", Shelf(a=first, b=second)), "a", "b")


@pytest.mark.parametrize("old", TEXTS)
def test_a_text_differs_as_difflib_has_it(old: str) -> None:
    for new in TEXTS:
        found = differences("f", old.encode(), new.encode())
        lines = difflib.unified_diff(old.splitlines(), new.splitlines(), "a/f", "b/f", lineterm="")
        assert [*found] == [*lines]


def test_a_bomb_is_not_unpacked() -> None:
    bomb = bundle(big=bytes(page.UNPACKED + 1))
    assert len(bomb) < 100_000
    tracemalloc.start()
    found = told(bomb, bundle(a=b"a"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.large
    assert peak < page.UNPACKED


def test_texts_that_take_too_long_are_left_to_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TooDifferent):
        list(differences("f", b"a\nb", b"b\nc", late=lambda: True))
    two = bundle(a=b"a\nb", b=b"1"), bundle(a=b"b\nc", b=b"2")
    asked = iter([False, True, True])
    monkeypatch.setattr(page, "_is_late", lambda _end: next(asked))
    found = told(*two)
    assert found.files == [page.Changed("a", [], cut=True)]
    assert found.left_off == 1


def test_a_page_has_a_part_of_a_long_diff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "LINES", 5)
    first = bundle(a=b"a\n" * 9, b=b"b")
    found = told(first, bundle(a=b"x" * 999, b=b"c"))
    ((name, lines, cut),) = ((one.name, one.lines, one.cut) for one in found.files)
    assert (name, len(lines), cut, found.left_off) == ("a", 5, True, 1)
    assert told(bundle(), bundle(a=b"x" * 999)).files[0].lines[3] == f"+{'x' * 399}…"


@pytest.mark.parametrize("damaged", [b"{}", zstandard.compress(b"no tar"), bundle(a=b"1")[:-9]])
def test_what_is_no_bundle_is_said(damaged: bytes) -> None:
    found = told(bundle(a=b"1"), damaged)
    assert found.large or found.unread
    assert found.files == []
