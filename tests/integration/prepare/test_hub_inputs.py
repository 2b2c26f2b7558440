"""Inputs from a Hugging Face hub: the files of one commit, large ones in parts, refusals."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
from forge_schema.model.spec.inputs import source_of
from forge_worker.prepare.cache import LruFolders
from forge_worker.prepare.inputs.cache import InputCache
from forge_worker.prepare.inputs.hub import HubFiles
from forge_worker.prepare.inputs.source import InputUnusable
from support.store.hub import hub
from support.workers.attempts import attempt_of, some_grant
from support.workers.worker import bed

if TYPE_CHECKING:
    from pathlib import Path

    from support.store.hub import Hub

WEIGHTS = bytes(range(1, 251)) * ((33 << 20) // 250)
TOKEN = {"HF_TOKEN": "hf_secret"}
MODEL = {"config.json": b"{}", "sub/weights": WEIGHTS, "sub/a b": b"1", "sub/small": b"2" * 2000}


def files(source: str, of: Hub, **secrets: str) -> HubFiles:
    return HubFiles(source_of(source), {"HF_ENDPOINT": of.url, **secrets}.get)


def test_a_repository_is_fetched_at_its_commit_and_the_token_stays_with_the_hub(
    tmp_path: Path,
) -> None:
    cache = InputCache(LruFolders(tmp_path / "inputs", tmp_path / "jobs", 1 << 30), 0)
    attempt = attempt_of(some_grant(), tmp_path / "jobs" / "7")
    fetch = partial(cache.fetch, attempt=attempt, name="x")
    with hub(models__org__name=dict(MODEL), datasets__org__set={"data/x": b"x"}) as made:
        made.token, made.breaks_after = TOKEN["HF_TOKEN"], 1000
        place, found = fetch(files("hf://org/name", made, **TOKEN), "hf://org/name")
        assert {p: (place / p).read_bytes() for p in MODEL} == MODEL
        assert (found.version, found.files) == (made.commit(MODEL)[:12], 4)
        assert {token for path, token in made.seen if path.startswith("/cdn/")} == {None}
        part, _ = fetch(files("hf://org/name@main/sub", made, **TOKEN), "sub")
        assert sorted(p.name for p in part.iterdir()) == ["a b", "small", "weights"]
        data, _ = fetch(files("hf://datasets/org/set", made, **TOKEN), "set")
        assert (data / "data" / "x").read_bytes() == b"x"

        refused = {
            "hf://org/name@gone": "404: Entry not found",
            "hf://org/other": "404",
            "hf://org/name/nowhere": "there is nothing at nowhere in commit",
        }
        for source, why in refused.items():
            with pytest.raises(InputUnusable, match=why):
                files(source, made, **TOKEN).listing()
        with pytest.raises(InputUnusable, match=r"401: Invalid .*with no token") as caught:
            files("hf://org/name", made).listing()
        assert "HF_TOKEN" in caught.value.hint


def test_a_job_has_a_repository_and_its_owner_sees_the_commit(
    tmp_path: Path, database_url: str
) -> None:
    with hub(models__gpt2={"vocab": b"a b"}) as made, bed("process", tmp_path, database_url) as one:
        folder = tmp_path / "secrets" / "ann"
        folder.mkdir(parents=True)
        (folder / "HF_ENDPOINT").write_text(made.url)
        one.worker(secrets_dir=folder.parent)
        job = one.submit("sh", "-c", "cat $FORGE_INPUT_TOK/vocab", inputs={"tok": "hf://gpt2"})
        one.succeeds(job)
        assert one.log(job).endswith(b"a b")
        (event,) = [row for row in one.jobs.events(job) if row["action"] == "inputs given"]
        assert event["detail"]["inputs"]["tok"]["version"] == made.commit({"vocab": b"a b"})[:12]
