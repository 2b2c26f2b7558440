"""The packages of this Python's environment, as requirements for a job."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

import pytest
from forge_client import ClientError, installed

if TYPE_CHECKING:
    from pathlib import Path


def test_a_package_comes_with_what_it_requires_and_no_more() -> None:
    found = dict(one.split("==") for one in installed("pandas"))
    assert found["pandas"] == version("pandas")
    assert found["python-dateutil"] == version("python-dateutil")
    assert found["six"] == version("six")
    assert "psycopg" not in found
    assert installed("PANDAS") == installed("pandas")


def test_all_are_listed_but_none_that_no_index_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    about = tmp_path / "of_a_user-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: of_a_user\nVersion: 1.0\n")
    (about / "direct_url.json").write_text('{"url": "file:///of_a_user", "dir_info": {}}')
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.warns(UserWarning, match="of-a-user.*: not from an index"):
        found = installed()
    assert f"numpy=={version('numpy')}" in found
    assert "of-a-user==1.0" not in found


def test_what_is_not_installed_is_named() -> None:
    with pytest.raises(ClientError, match="nosuchpackage is not installed here"):
        installed("nosuchpackage")
