"""What a bundle may hold when it is unpacked again."""

from __future__ import annotations

import io
import tarfile
from hashlib import sha256
from typing import TYPE_CHECKING, Any, cast

import pytest
from forge_client import ClientError, code
from forge_schema import zstd

if TYPE_CHECKING:
    from pathlib import Path


class Stored:
    """A backend with one bundle."""

    def __init__(self, *entries: tarfile.TarInfo) -> None:
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as tar:
            for entry in entries:
                tar.addfile(entry, io.BytesIO(b"x" * entry.size))
        self.data = zstd.compress(packed.getvalue())
        self.digest = sha256(self.data).hexdigest()

    def fetch_code(self, _job_id: int, _digest: str, to: Path) -> None:
        to.write_bytes(self.data)


def entry(name: str, **fields: Any) -> tarfile.TarInfo:  # noqa: ANN401  of any type
    made = tarfile.TarInfo(name)
    for field, value in fields.items():
        setattr(made, field, value)
    return made


def unpacked(stored: Stored, folder: Path) -> None:
    folder.mkdir()
    code._unpack(cast("Any", stored), 7, stored.digest, folder)


def test_files_and_folders_come_back_without_rights_beyond_them(tmp_path: Path) -> None:
    run = entry("a/run", size=3, mode=0o777, uid=7, gid=7, uname="ann")
    unpacked(Stored(entry("a", type=tarfile.DIRTYPE, mode=0o755), run), tmp_path / "to")
    found = tmp_path / "to" / "a" / "run"
    assert found.read_bytes() == b"xxx"
    assert found.stat().st_mode & 0o7777 == 0o755
    assert found.stat().st_uid == tmp_path.stat().st_uid


def test_links_come_back_as_links(tmp_path: Path) -> None:
    last = entry("last", type=tarfile.SYMTYPE, linkname="a/run")
    unpacked(Stored(entry("a/run", size=3), last), tmp_path / "to")
    assert (tmp_path / "to" / "last").readlink().as_posix() == "a/run"
    assert (tmp_path / "to" / "last").read_bytes() == b"xxx"


@pytest.mark.parametrize(
    "bad",
    [
        entry("../out", size=1),
        entry("/nowhere/out", size=1),
        entry("link", type=tarfile.SYMTYPE, linkname="/etc"),
        entry("climbs", type=tarfile.SYMTYPE, linkname="../out"),
        entry("hard", type=tarfile.LNKTYPE, linkname="../out"),
        entry("pipe", type=tarfile.FIFOTYPE),
        entry("setuid", size=1, mode=0o4755),
    ],
    ids=lambda one: one.name,
)
def test_what_leads_elsewhere_is_refused(tmp_path: Path, bad: tarfile.TarInfo) -> None:
    with pytest.raises(ClientError) as refused:
        unpacked(Stored(bad), tmp_path / "to")
    assert refused.value.code == "object_corrupt"
    assert list((tmp_path / "to").iterdir()) == []
    assert not (tmp_path / "out").exists()


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    to, through = entry("d", type=tarfile.SYMTYPE, linkname="."), entry("d/a", size=1)
    with pytest.raises(ClientError):
        unpacked(Stored(to, through), tmp_path / "to")
    link = entry("d/b", type=tarfile.SYMTYPE, linkname="c")
    with pytest.raises(ClientError):
        unpacked(Stored(to, link), tmp_path / "two")
