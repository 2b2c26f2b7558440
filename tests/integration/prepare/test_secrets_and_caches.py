"""Secrets and caches of jobs on a real worker: given, covered, kept apart, dropped in time."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from forge_schema.explain import explain
from forge_schema.model.admin import TeamChanges
from forge_schema.queue.limits import Limits
from forge_worker.prepare.cache import CacheProvision, LruFolders, owner_key
from forge_worker.runners.process.runner import ProcessRunner
from support.waiting import eventually
from support.workers.attempts import attempt_of, some_grant
from support.workers.runners import make_spec
from support.workers.worker import Bed, bed

if TYPE_CHECKING:
    from pathlib import Path

TELLS = """
import json, os, pathlib, sys
names = ["MINE", "SHARED", "XDG_CACHE_HOME", "HF_HOME", "TORCH_HOME", "PIP_CACHE_DIR"]
names += ["FORGE_PRECISION", "FORGE_STREAMS", "FORGE_PARAM_LR", "FORGE_PARAM_DEEP"]
out = pathlib.Path(os.environ["FORGE_OUTPUT_DIR"]) / "seen.json"
seen = {name: os.environ.get(name) for name in names}
cache = pathlib.Path(os.environ["XDG_CACHE_HOME"])
seen["kept"] = sorted(str(path.relative_to(cache)) for path in cache.rglob("*") if path.is_file())
out.write_text(json.dumps(seen))
model = cache / "huggingface" / "hub" / sys.argv[1]
model.mkdir(parents=True)
(model / "weights").write_bytes(b"x" * (1 << 20))
print("secret:", os.environ["MINE"], "half:", os.environ["MINE"][:5], flush=True)
"""


def secrets(root: Path) -> Path:
    folder = root / "secrets"
    for whose in ("ann", "@nlp"):
        (folder / whose).mkdir(parents=True)
    for name, text in {
        "MINE": "everybody's",
        "SHARED": "two\nlines",
        "ann/MINE": "ann's alone\n",
        "@nlp/MINE": "the team's",
        "@nlp/TEAMS": "of nlp alone",
        "TINY": "abc",
        "BINARY": "\udcff\udcfe--",
    }.items():
        (folder / name).write_bytes(text.encode(errors="surrogateescape"))
        (folder / name).chmod(0o600)
    (folder / "SHARED").chmod(0o644)
    return folder


def seen(bed: Bed, job: int) -> dict[str, object]:
    bed.succeeds(job)
    found: dict[str, object] = json.loads(bed.artifacts(job)["seen.json"])
    return found


def test_jobs_get_only_their_owners_secrets_and_cache(both: Bed) -> None:
    limits = Limits(both.database, actor="user:test")
    limits.set_team("nlp", TeamChanges(join=["ann", "cleo"]))
    worker = both.worker(secrets_dir=secrets(both.root), cache_mb=2, log_flush_s=0.05)
    wanted = {"secrets": ["MINE", "SHARED"], "env": {"TORCH_HOME": "/elsewhere"}}
    tuning = {"tuning": {"precision": "bf16", "streams": 2}}
    parameters = {"kind": "benchmark", "parameters": {"lr": 0.1, "deep": True}}
    first = both.script(TELLS, "one", **wanted, **tuning, **parameters)
    told = seen(both, first)
    folder = worker.folder / "caches" / owner_key("ann")
    cache = "/forge/cache" if both.kind == "docker" else str(folder)
    assert told == {
        "MINE": "ann's alone",
        "SHARED": "two\nlines",
        "XDG_CACHE_HOME": cache,
        "HF_HOME": f"{cache}/huggingface",
        "TORCH_HOME": "/elsewhere",
        "PIP_CACHE_DIR": f"{cache}/pip",
        "FORGE_PRECISION": "bf16",
        "FORGE_STREAMS": "2",
        "FORGE_PARAM_LR": "0.1",
        "FORGE_PARAM_DEEP": "true",
        "kept": [],
    }
    assert both.log(first).endswith(b"secret: *********** half: ann's\n")
    assert "secret_world_readable" in worker.output

    bobs = seen(both, both.script(TELLS, "two", **wanted, owner="bob"))
    assert (bobs["MINE"], bobs["kept"]) == ("everybody's", [])
    cleos = seen(both, both.script(TELLS, "of a team", **wanted, owner="cleo"))
    assert cleos["MINE"] == "the team's"
    again = seen(both, both.script(TELLS, "three", **wanted))
    assert again["kept"] == ["huggingface/hub/one/weights"]
    with both.database.connection() as connection:
        rows = connection.execute("SELECT job::text FROM job UNION SELECT event::text FROM event")
        assert not [row for row in rows.fetchall() if "alone" in str(row)]
    failed = both.ended(both.submit("true", requirements="ann's alone.txt", secrets=["MINE"]))
    assert "the project's ***********.txt cannot be read" in failed["detail"]
    assert "alone" not in worker.output


def test_a_secret_that_cannot_be_given_is_named_and_is_no_failure_of_the_jobs(
    tmp_path: Path, database_url: str
) -> None:
    with bed("process", tmp_path, database_url) as made:
        worker = made.worker(secrets_dir=secrets(tmp_path))
        said = {
            "TINY": "it is shorter than 4 characters",
            "BINARY": "it is not UTF-8 text",
        }
        jobs = {
            name: made.submit("true", secrets=[name], owner="../ann", max_failures=0, max_losses=0)
            for name in said
        }
        for name, why in said.items():
            row = made.ended(jobs[name])
            assert made.reasons(jobs[name]) == ["start_failed", "start_failed"]
            assert f"the secret {name}, but worker {worker.name} cannot" in row["detail"]
            assert why in row["detail"]
            said_before = row["detail"].removeprefix("failed to start the same way twice: ")
            assert made.log(jobs[name]).decode() == f"forge: {said_before}\n" * 2


def test_a_job_waits_for_its_secret_and_starts_once_a_worker_has_it(
    tmp_path: Path, database_url: str
) -> None:
    with bed("process", tmp_path, database_url) as made:
        folder = secrets(tmp_path)
        worker = made.worker(secrets_dir=folder)
        job = made.submit("true", secrets=["LATE"], owner="ann")
        found = explain(made.database, job)
        assert found.text == "no online worker has the secret LATE (1 checked)"
        assert found.remedies[0].text.endswith(
            f"on {worker.name} (FORGE_SECRETS_DIR of it, or of its `forge up`)"
        )
        # Another owner's secret is not announced as ann's, nor under that owner's name.
        (folder / "bob").mkdir()
        (folder / "bob" / "LATE").write_text("of bob")
        eventually(lambda: "another owner" in explain(made.database, job).workers[0].text)
        assert "bob" not in str(made.registry.workers()[0]["labels"])
        (folder / "ann").mkdir(exist_ok=True)
        (folder / "ann" / "LATE").write_text("of ann")
        made.succeeds(job)
        assert made.reasons(job) == ["succeeded"]


def test_a_teams_secret_is_for_its_owners_of_now(tmp_path: Path, database_url: str) -> None:
    with bed("process", tmp_path, database_url) as made:
        made.worker(secrets_dir=secrets(tmp_path))
        limits = Limits(made.database, actor="user:test")
        for owner in ("bob", "@nlp"):  # An owner of that name is not the team.
            job = made.submit("true", secrets=["TEAMS"], owner=owner)
            assert "another owner" in explain(made.database, job).workers[0].text
            made.queue.cancel(job)
        limits.set_team("nlp", TeamChanges(join=["bob"]))
        # For up to a minute, a worker remembers which shapes it cannot serve: this is another one.
        made.succeeds(made.submit("true", secrets=["TEAMS", "MINE"], owner="bob"))
        limits.set_team("nlp", TeamChanges(leave=["bob"]))
        left = made.submit("true", secrets=["TEAMS", "MINE"], owner="bob", max_losses=0)
        assert "another owner" in explain(made.database, left).workers[0].text
        assert "it has no such secret for bob" in made.ended(left)["detail"]


def test_the_oldest_of_the_caches_is_dropped_first_and_nothing_in_use(tmp_path: Path) -> None:
    root, jobs = tmp_path / "caches", tmp_path / "jobs"
    for at, (owner, path) in enumerate(
        [("a", "hf/hub/old/w"), ("b", "hf/hub/used/w"), ("a", "hf/hub/new/w"), ("a", "loose")]
    ):
        file = root / owner / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"x" * (1 << 20))
        os.utime(file, (at + 1, at + 1))
    (root / "a" / "link").symlink_to(tmp_path)
    (jobs / "running").mkdir(parents=True)
    (jobs / "running" / "kept").write_text("caches/b\n")
    provision = CacheProvision(LruFolders(root, jobs, (2 << 20) + (1 << 19)))
    spec = make_spec(tmp_path, ("true",))
    made = attempt_of(some_grant(), jobs / "next")
    given = provision.provide(spec, made, ProcessRunner())
    left = {str(file.relative_to(root)) for file in root.glob("[ab]/**/*") if file.is_file()}
    assert left == {"b/hf/hub/used/w", "a/loose"}
    assert given.mounts[0].source.is_dir()
    assert (made.folders.root / "kept").read_text() == f"caches/{owner_key('ann')}\n"
