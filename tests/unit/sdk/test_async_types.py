"""The types of the SDK for asyncio are those of the SDK."""

from __future__ import annotations

from support.client.async_stub import STUB, stub


def test_the_generated_types_of_the_async_client_are_current() -> None:
    wanted = "run PYTHONPATH=tests .venv/bin/python -m support.client.async_stub"
    assert STUB.read_text(encoding="utf-8") == stub(), wanted
