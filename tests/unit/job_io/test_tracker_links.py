"""The address of a tracker's run is reported without credentials; other addresses are not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from forge_schema.model.results import is_link
from forge_worker.integrations import tracked

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("url", "reported"),
    [
        ("https://ann:secret@track.example:8080/#/runs/1", "https://track.example:8080/#/runs/1"),
        ("http://localhost:5000/#/runs/1", "http://localhost:5000/#/runs/1"),
        ("sqlite:///mlflow.db/#/runs/1", None),
        (None, None),
    ],
)
def test_link_has_no_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str | None, reported: str | None
) -> None:
    file = tmp_path / "metrics"
    monkeypatch.setenv("FORGE_METRICS_FILE", str(file))
    tracked.link("mlflow", url)
    assert (json.loads(file.read_text())["mlflow"] if file.exists() else None) == reported


@pytest.mark.parametrize(
    "value",
    [1, None, "", "javascript:alert(1)", "https:", "https://a b", 'https://a"b', "https://a\n"],
)
def test_only_addresses_of_pages_are_links(value: object) -> None:
    assert is_link("https://wandb.ai/ann/digits/runs/1?x=1#y")
    assert not is_link(value)
