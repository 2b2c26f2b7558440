"""URLs that name a store."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from forge_schema.storage import StoreUrlInvalid, open_store
from forge_schema.storage.store_url import s3_place, split

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    "url",
    [
        "", "store", "/var/store", "http://x/y", "file:store", "file://host/store",
        "file:///", "file:///a?b=c", "file:///a%00b", "s3://", "s3:///prefix", "s3://Bucket",
        "s3://b", "s3://bucket/a/../b", "s3://bucket?endpoint=http://x",
        "s3://bucket?endpoint_url=localhost:9000", "s3://bucket?endpoint_url=http://",
        "s3://bucket?region=no such region", "s3://bucket/" + "p" * 200, "s3://[bad",
    ],
)  # fmt: skip
def test_a_url_that_names_no_store_is_refused(url: str) -> None:
    with pytest.raises(StoreUrlInvalid) as caught:
        open_store(url)
    assert caught.value.hint


def test_a_bucket_of_googles_is_told_its_url_of_s3() -> None:
    with pytest.raises(StoreUrlInvalid) as caught:
        open_store("gs://bucket/queue")
    url = re.findall(r"s3://[^\s,]+", caught.value.hint)[0]
    place = s3_place(url, split(url))
    assert place == ("bucket", "queue", "https://storage.googleapis.com", None)


def test_credentials_in_a_url_are_refused_and_not_repeated() -> None:
    with pytest.raises(StoreUrlInvalid) as caught:
        open_store("s3://key:hunter2@bucket/prefix")
    assert "hunter2" not in str(caught.value) + caught.value.hint


def test_a_folder_may_have_spaces_and_accents(tmp_path: Path) -> None:
    store = open_store((tmp_path / "my störe").as_uri())
    store.put("a", b"x")
    assert (tmp_path / "my störe" / "a").read_bytes() == b"x"


def test_a_file_store_does_not_load_boto3(tmp_path: Path) -> None:
    code = (
        "import sys; from forge_schema.storage import open_store;"
        f"open_store({(tmp_path / 's').as_uri()!r}).put('a', b'');"
        "sys.exit('boto3' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
