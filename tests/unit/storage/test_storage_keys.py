"""The names of objects."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest
from forge_schema.storage import KeyInvalid, keys
from forge_schema.storage.keys import AttemptKeys
from hypothesis import given
from hypothesis import strategies as st

DIGEST = "0123456789abcdef" * 4


def test_each_kind_of_object_has_its_place() -> None:
    attempt = AttemptKeys(job=7, attempt=2, token=41)
    assert keys.bundle(DIGEST) == f"bundles/{DIGEST}.tar.zst"
    assert attempt.prefix == "jobs/7/2-41/"
    assert attempt.log_chunk(3) == "jobs/7/2-41/logs/00000003.zst"
    assert attempt.checkpoint_file(3, DIGEST) == f"jobs/7/2-41/checkpoints/files/000003-{DIGEST}"
    assert attempt.checkpoint_manifest(12) == "jobs/7/2-41/checkpoints/000012.json"
    assert attempt.artifact("run/model.pt") == "jobs/7/2-41/artifacts/run/model.pt"


def test_tokens_keep_attempts_apart() -> None:
    nonce = UUID(int=1)
    assert AttemptKeys(7, 2, 41).prefix != AttemptKeys(7, 2, 42).prefix
    assert AttemptKeys(7, 2, f"41-{nonce}").prefix == f"jobs/7/2-41-{nonce}/"


@pytest.mark.parametrize("word", ["", "..", "a/b", "-1", "a\n", "a b", "x" * 200])
def test_an_attempts_prefix_is_made_of_plain_words(word: str) -> None:
    with pytest.raises(KeyInvalid):
        AttemptKeys(word, 1, 1)
    with pytest.raises(KeyInvalid):
        AttemptKeys(1, 1, word)


@pytest.mark.parametrize("digest", ["", DIGEST[:-1], DIGEST + "0", DIGEST.upper(), f"{DIGEST}\n"])
def test_a_digest_is_a_sha256_in_lower_case(digest: str) -> None:
    with pytest.raises(KeyInvalid):
        keys.bundle(digest)
    with pytest.raises(KeyInvalid):
        AttemptKeys(1, 1, 1).checkpoint_file(0, digest)


@pytest.mark.parametrize("path", ["", "/etc/x", "../x", "a/../../../x", "a//b", "a/", "a\\b"])
def test_an_artifact_stays_in_its_attempt(path: str) -> None:
    with pytest.raises(KeyInvalid):
        AttemptKeys(1, 1, 1).artifact(path)


@pytest.mark.parametrize("number", [-1, 10**8])
def test_numbers_that_would_break_the_order_are_refused(number: int) -> None:
    with pytest.raises(KeyInvalid):
        AttemptKeys(1, 1, 1).log_chunk(number)


@given(st.text())
def test_a_valid_key_is_a_path_that_stays_below(key: str) -> None:
    if keys.is_valid(key):
        assert (Path("/store") / key).parts[2:] == tuple(key.split("/"))
        assert ".." not in key.split("/")
