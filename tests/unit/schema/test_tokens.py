"""The format of tokens: generated tokens can be parsed, and nothing else can."""

from __future__ import annotations

import hashlib

import pytest
from forge_schema.access.tokens import ParsedToken, TokenKind, TokenMalformed, matches, mint, parse
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize("kind", TokenKind)
def test_a_token_reads_back(kind: TokenKind) -> None:
    text, digest = mint(kind, "17")
    assert text.startswith(f"{kind.value}_17_")
    assert parse(text, kind) == ParsedToken(kind, "17", digest)
    assert digest == hashlib.sha256(text.encode()).digest()


def test_no_two_tokens_are_alike() -> None:
    assert len({mint(TokenKind.WORKER, "1")[0] for _ in range(100)}) == 100


def test_one_kind_is_not_taken_for_the_other() -> None:
    text, _ = mint(TokenKind.WORKER, "1")
    with pytest.raises(TokenMalformed):
        parse(text, TokenKind.KEY)


@given(st.data())
def test_a_changed_character_is_seen_before_anybody_is_asked(data: st.DataObject) -> None:
    text, _ = mint(TokenKind.KEY, "a1")
    place = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.characters(codec="ascii").filter(lambda char: char != text[place]))
    with pytest.raises(TokenMalformed):
        parse(text[:place] + other + text[place + 1 :], TokenKind.KEY)


@pytest.mark.parametrize("text", ["", "fgk", "fgk___", "x" * 10_000, "fgk_1_\ud800_0", "fgk_1_é_0"])
def test_what_is_no_token_is_refused(text: str) -> None:
    with pytest.raises(TokenMalformed):
        parse(text, TokenKind.KEY)


def test_only_the_stored_digest_matches() -> None:
    (text, digest), (_, other) = mint(TokenKind.KEY, "a"), mint(TokenKind.KEY, "a")
    token = parse(text, TokenKind.KEY)
    assert [matches(token, stored) for stored in (digest, other, None, b"")] == [
        True, False, False, False,
    ]  # fmt: skip
