"""JSON documents as the database returns them."""

from __future__ import annotations

import json

import pytest
from forge_schema.database.prepared import load_json


@pytest.mark.parametrize("depth", [1, 100, 900])
def test_a_document_of_any_depth_is_parsed(depth: int) -> None:
    text = "[" * depth + '{"a": [0.1, 9007199254740993, "\\u00fc", null, true]}' + "]" * depth
    assert load_json(text) == load_json(text.encode()) == json.loads(text)
