"""Servers that do not do all that S3 does: Forge finds that out, and makes do or refuses."""

from __future__ import annotations

import hashlib
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from forge_client.backend import CheckStanding
from forge_client.direct.checks import store_checks
from forge_functions.health import try_store
from forge_schema.model.stored import SignedUrl
from forge_schema.storage import StoreUnfit, keys, open_store
from forge_schema.storage.probe import delete_abandoned, probe, require_fit
from forge_schema.storage.s3 import probing
from forge_schema.storage.s3.conditions import UploadCheck, upload_check
from forge_schema.storage.signed import Signer, open_signer, signs_content_hash
from forge_schema.storage.store import ProbeFinding, ProbeVerdict
from support.store.odd_s3 import RGW, S3, S3RVER, SERVERS, OddS3, odd_s3
from support.store.signed_doors import Request
from support.store.storage import use_credentials

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CODE, OTHER = b"the code that anna sent", b"what bob puts in its way"[:23]
DIGEST = hashlib.sha256(CODE).hexdigest()
BUNDLE = keys.bundle(DIGEST)
LARGE = 9 << 20  # two parts


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    use_credentials(monkeypatch)


@pytest.fixture(params=SERVERS, ids=lambda quirks: quirks.name.split()[0])
def odd(request: pytest.FixtureRequest) -> Iterator[OddS3]:
    with odd_s3(request.param) as running:
        yield running


def by_name(found: list[ProbeFinding]) -> dict[str, ProbeFinding]:
    return {one.capability: one for one in found}


def signer(url: str) -> Signer:
    """Return a signer as a server has it that has tried the store."""
    upload_check(url)
    return open_signer(
        url, secret=b"", base_url="", lasts_s=60, content_hash=signs_content_hash(url)
    )


def signed_put(url: str, owner: str) -> SignedUrl:
    return signer(url).put(BUNDLE, size=len(CODE), sha256=DIGEST, owner=owner)


class TestProbe:
    def test_it_finds_what_each_server_does_and_leaves_nothing(self, odd: OddS3) -> None:
        found = by_name(probe(odd.url))
        quirks = odd.quirks
        for name in ("writing", "reading", "deleting", "listing", "uploads in parts"):
            assert found[name].verdict is ProbeVerdict.OK
        order = "of its own" if quirks.folders_first else "of keys"
        assert order in found["listing"].detail
        both = {quirks.put_condition, quirks.complete_condition}
        for said, why in {"ignores": None, "answers 501": 501}.items():
            assert (said in found["conditional writes"].detail) is (why in both)
        checked = {RGW: "content hash", S3RVER: "any content"}.get(quirks, "checksum")
        assert checked in found["signed uploads"].detail
        weak = ProbeVerdict.OK if quirks.checks_signature else ProbeVerdict.WEAK
        assert found["signatures"].verdict is weak
        listed = ProbeVerdict.OK if quirks.lists_uploads else ProbeVerdict.WEAK
        assert found["unfinished uploads"].verdict is listed
        assert (odd.objects, odd.uploads) == ({}, {})
        require_fit(odd.url, list(found.values()))

    def test_credentials_that_may_only_read_are_named(self) -> None:
        with odd_s3(replace(S3, read_only=True)) as odd:
            (only,) = probe(odd.url)
        assert only.verdict is ProbeVerdict.FAILED
        assert "may list objects, but not write" in only.detail
        assert "s3:PutObject" in only.hint

    def test_a_server_that_lists_objects_late_is_told_from_one_that_loses_them(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(probing, "PAUSE_S", 0.0)
        with odd_s3(replace(S3, lists_late=True)) as odd:
            found = by_name(probe(odd.url))["listing"]
        assert (found.verdict, found.detail) == (ProbeVerdict.WEAK, "new objects are listed late")

    def test_a_server_that_loses_objects_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(probing, "PAUSE_S", 0.0)
        with odd_s3(replace(S3, loses_pages=True)) as odd:
            found = probe(odd.url)
            assert by_name(found)["listing"].verdict is ProbeVerdict.UNFIT
            with pytest.raises(StoreUnfit, match="listing: 2 of 5 objects"):
                require_fit(odd.url, found)

    def test_a_server_starts_on_what_is_fit_and_waits_for_what_is_away(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(probing, "PAUSE_S", 0.0)
        stopping = threading.Event()
        with odd_s3(RGW) as odd:
            try_store(odd.url, stopping)
            assert signs_content_hash(odd.url)
        # It does not answer any more; `/health` tells of that.
        try_store(odd.url, stopping)
        stopping.set()
        with odd_s3(replace(S3, loses_pages=True)) as odd, pytest.raises(StoreUnfit):
            try_store(odd.url, stopping)

    def test_the_doctor_has_a_line_for_each_capability(self) -> None:
        with odd_s3(S3RVER) as odd:
            lines = {one.name: one.standing for one in store_checks(probe(odd.url))}
        assert lines["store: conditional writes"] is CheckStanding.OK
        assert lines["store: signed uploads"] is CheckStanding.WARN
        assert len(lines) == 9

    def test_what_a_probe_left_that_died_goes_with_the_next_one(self) -> None:
        with odd_s3(S3) as odd:
            store = open_store(odd.url)
            for key in ("probe/0123/object", "jobs/1/x"):
                store.put(key, b"")
            probe(odd.url)
            assert list(odd.objects) == ["forge/jobs/1/x"]

    def test_a_probe_that_runs_elsewhere_is_left_alone(self, tmp_path: Path) -> None:
        store = open_store(tmp_path.as_uri())
        store.put("probe/0123/object", b"")
        delete_abandoned(store)
        assert [one.key for one in store.list("")] == ["probe/0123/object"]

    def test_a_folder_is_tried_too(self, tmp_path: Path) -> None:
        found = probe((tmp_path / "store").as_uri())
        assert [(one.capability, one.verdict.value) for one in found] == [
            ("writing", "ok"), ("reading", "ok"), ("deleting", "ok"),
        ]  # fmt: skip


class TestConditions:
    """`if_absent` never replaces what somebody else has written."""

    @pytest.mark.parametrize("size", [3, LARGE])
    def test_code_is_written_once_on_every_server(
        self, odd: OddS3, size: int, tmp_path: Path
    ) -> None:
        path = tmp_path / "bundle"
        path.write_bytes(b"c" * size)
        store = open_store(odd.url)
        assert store.put_file(BUNDLE, path, if_absent=True)
        path.write_bytes(b"d" * size)
        assert not store.put_file(BUNDLE, path, if_absent=True)
        assert odd.content(BUNDLE) == b"c" * size
        assert odd.uploads == {}

    @pytest.mark.parametrize("size", [3, LARGE])
    def test_of_two_writers_of_another_key_only_the_first_wins_or_both_are_refused(
        self, odd: OddS3, size: int, tmp_path: Path
    ) -> None:
        store, won = open_store(odd.url), []
        together = threading.Barrier(2)

        def both_looked(method: str, key: str) -> None:
            if (method, key) == ("HEAD", "forge/k"):
                together.wait()

        odd.before = both_looked

        def write(letter: bytes) -> None:
            path = tmp_path / letter.decode()
            path.write_bytes(letter * size)
            if store.put_file("k", path, if_absent=True):
                won.append(letter)

        with ThreadPoolExecutor(2) as pool:
            writing = [pool.submit(write, letter) for letter in (b"a", b"b")]
            refused = [one.exception() for one in writing]
        held = odd.quirks.put_condition == 412 or (
            size == LARGE and odd.quirks.complete_condition == 412
        )
        if held:
            assert refused == [None, None]
            assert odd.content("k") == won[0] * size
            assert len(won) == 1
        else:
            assert all(isinstance(one, StoreUnfit) for one in refused)
            assert all("forge doctor" in getattr(one, "hint", "") for one in refused)
            assert odd.objects == {}

    def test_what_a_server_does_not_have_is_no_passing_trouble(self) -> None:
        with odd_s3(S3RVER) as odd, pytest.raises(StoreUnfit, match="does not offer"):
            open_store(odd.url).tidy(0)


class TestSignedUploads:
    def test_another_content_is_refused_or_does_not_count(self, odd: OddS3) -> None:
        store = open_store(odd.url)
        assert Request.of(signed_put(odd.url, "anna"), CODE).send().status_code == 200
        assert store.uploader(BUNDLE) == "anna"
        asked = len(odd.seen)
        answer = Request.of(signed_put(odd.url, "bob"), OTHER).send()
        if upload_check(odd.url) is UploadCheck.NONE:
            assert answer.status_code == 200
            # Nobody may run what a key names without having proved to have it.
            assert store.uploader(BUNDLE) is None
        else:
            assert answer.status_code == 400
            assert odd.content(BUNDLE) == CODE
            # The server is tried once per process.
            assert odd.seen[asked:] == [f"PUT forge/{BUNDLE}"]

    def test_amazon_is_not_asked(self) -> None:
        url = "s3://some-bucket/forge?region=eu-west-1"
        assert upload_check(url) is UploadCheck.CHECKSUM
