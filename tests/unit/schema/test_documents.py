"""JSON documents as they are checked, and as the database returns them."""

from __future__ import annotations

import json

import pytest
from forge_schema.database.statements import load_json
from forge_schema.model.fields import Document
from pydantic import TypeAdapter, ValidationError


@pytest.mark.parametrize("depth", [1, 100, 900])
def test_a_document_of_any_depth_is_parsed(depth: int) -> None:
    text = "[" * depth + '{"a": [0.1, 9007199254740993, "\\u00fc", null, true]}' + "]" * depth
    assert load_json(text) == load_json(text.encode()) == json.loads(text)


def test_a_nul_is_no_text_that_looks_like_one() -> None:
    documents = TypeAdapter(Document)
    for text in ("\\u0000", "\\\\u0000", "u0000"):
        assert documents.validate_python({text: [text]}) == {text: [text]}
    for text in ("\0", "\\\0", "a\0\\u0000"):
        with pytest.raises(ValidationError, match="no NUL"):
            documents.validate_python({"a": text})
