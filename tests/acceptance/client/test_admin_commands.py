"""The commands for admins, as an admin types them: through a server, and without one."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from forge_schema.access import tokens
from forge_schema.access.api_keys import Keys
from forge_schema.access.tokens import TokenKind
from forge_schema.access.worker_tokens import WorkerTokens
from forge_schema.database.pool import Database
from forge_schema.model.states import Role
from support.client.telling import told
from support.http.server import served, server_settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.client.command import Command


BOTH = pytest.mark.parametrize("admin", ["direct", "http"], indirect=True)


@pytest.fixture
def admin(
    request: pytest.FixtureRequest, forge: Command, database_url: str, tmp_path: Path
) -> Iterator[Command]:
    """An admin's command: through a server, or without one if a test asks for that."""
    store_url = (tmp_path / "store").as_uri()
    if getattr(request, "param", "http") == "direct":
        forge.env.update({"FORGE_DATABASE_URL": database_url, "FORGE_STORE_URL": store_url})
        yield forge
        return
    with (
        Database(database_url) as database,
        served(server_settings(database_url, store_url)) as url,
    ):
        key = Keys(database, actor="user:root").create("ann", Role.ADMIN)[1]
        forge.env.update({"FORGE_URL": url, "FORGE_API_KEY": key})
        yield forge


def rows(admin: Command, *arguments: str) -> list[dict[str, object]]:
    done = admin(*arguments, "-o", "json")
    assert done.returncode == 0, done.stderr
    found: list[dict[str, object]] = json.loads(done.stdout)
    return found


def valid_token(database_url: str, text: str) -> bool:
    with Database(database_url) as database:
        said = tokens.parse(text, TokenKind.WORKER)
        return WorkerTokens(database, actor="user:root").check(said) is not None


@BOTH
def test_a_key_is_made_listed_rotated_and_revoked(admin: Command, tmp_path: Path) -> None:
    public = tmp_path / "public.pem"
    public.write_bytes(
        Ed25519PrivateKey.generate().public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )  # fmt: skip
    made = admin(
        "key", "create", "--owner", "bob", "--role", "viewer", "--name", "laptop",
        "--expires", "30d", "--public-key-file", public,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    text = made.stdout.strip()
    key_id = tokens.parse(text, TokenKind.KEY).id
    assert text not in made.stderr
    assert key_id in made.stderr
    assert "cannot be shown again" in made.stderr
    listed = next(row for row in rows(admin, "key", "list") if row["id"] == key_id)
    assert (listed["owner"], listed["role"], listed["name"], listed["signed"]) == (
        "bob", "viewer", "laptop", True,
    )  # fmt: skip
    shown = admin("key", "list").stdout
    assert re.search(r"expires in (30 d|29 d 23 h)", shown)
    assert text not in shown
    rotated = admin("key", "rotate", key_id)
    assert rotated.stdout.strip() not in {"", text}
    assert admin("key", "revoke", key_id, "--yes").returncode == 0
    assert "revoked" in admin("key", "list").stdout
    told(admin("key", "rotate", key_id), 3, f"no API key {key_id}", "forge key")


@BOTH
def test_a_worker_is_made_rotated_drained_and_deleted(admin: Command, database_url: str) -> None:
    made = admin("worker", "create", "gpu-1", "--ephemeral", "--label", "zone=eu")
    assert made.returncode == 0, made.stderr
    token = made.stdout.strip()
    assert valid_token(database_url, token)
    url = admin.env.get("FORGE_URL", "https://YOUR-SERVER")
    assert f"  forge-worker --url {url} --token-file FILE" in made.stderr
    assert token not in made.stderr
    told(admin("worker", "create", "gpu-1"), 4, "'gpu-1' already")
    again = json.loads(admin("worker", "rotate", "gpu-1", "-o", "json").stdout)
    assert not valid_token(database_url, token)
    assert valid_token(database_url, again["token"])
    assert admin("worker", "drain", "gpu-1").returncode == 0
    (row,) = rows(admin, "worker", "list")
    assert (row["kind"], row["command"], row["id"]) == ("ephemeral", "drain", again["id"])
    assert admin("worker", "delete", str(again["id"]), "--yes").returncode == 0
    assert rows(admin, "worker", "list") == []
    told(admin("worker", "delete", "gpu-1"), 3, "no worker 'gpu-1'", "forge worker list")


@BOTH
def test_a_machine_is_added_with_one_line_through_a_server(admin: Command) -> None:
    added = admin("worker", "add", "gpu-1", "--label", "zone=eu")
    if "FORGE_URL" not in admin.env:
        told(added, 6, "a machine joins through a server", "--server https://")
        assert rows(admin, "worker", "list") == []
        return
    (line,) = added.stdout.splitlines()
    assert "within 1 day:" in added.stderr
    assert "FORGE_DEFAULT_IMAGE=python:3.11-slim" in added.stderr
    assert admin.env["FORGE_URL"] in line
    assert "FORGE_JOIN=fgj_" in line
    other = json.loads(
        admin("worker", "add", "gpu-1", "--server", "https://x", "-o", "json").stdout
    )
    assert (other["url"], other["lasts_s"]) == ("https://x", 86_400)
    told(admin("worker", "add", "gpu-2", "--server", "https://'"), 2, "cannot be put into a line")
    assert [row["name"] for row in rows(admin, "worker", "list")] == ["gpu-1"]


def test_queues_are_listed_paused_limited_and_resumed(admin: Command, project: Path) -> None:
    for _ in range(2):
        assert admin("submit", project, "--queue", "night", "--", "ls").returncode == 0
    assert admin("queue", "pause", "night").returncode == 0
    assert "at most 1 job and any number" in admin("queue", "limit", "night", "--jobs", "1").stderr
    assert "at most 3 jobs and any number" in admin("queue", "limit", "night", "--jobs", "3").stderr
    assert "at most 3 jobs and at most 8" in admin("queue", "limit", "night", "--gpus", "8").stderr
    (row,) = rows(admin, "queue", "list")
    assert row == {
        "name": "night", "paused": True, "max_jobs": 3, "max_gpus": 8, "waiting": 2, "running": 0,
        "gpus": 0, "preemption": "never", "preempts_after_s": 60, "most_preempted": 4,
        "guaranteed_gpus": None,
    }  # fmt: skip
    assert admin("queue", "list").stdout.split()[-2:] == ["3", "8"]
    assert admin("queue", "limit", "night", "--jobs", "none").returncode == 0
    assert admin("queue", "resume", "night").returncode == 0
    (row,) = rows(admin, "queue", "list")
    assert (row["paused"], row["max_jobs"], row["max_gpus"]) == (False, None, 8)
    assert "used nigth yet: did you mean night?" in admin("queue", "pause", "nigth").stderr
    told(admin("queue", "resume", "nothing"), 3, "no queue 'nothing'", "forge queue list")


def test_an_owner_is_limited(admin: Command) -> None:
    assert admin("queue", "limit", "--owner", "bob", "--gpus", "4", "--weight", "2").returncode == 0
    assert admin("queue", "limit", "--owner", "bob", "--jobs", "9").returncode == 0
    (row,) = rows(admin, "queue", "list", "--owners")
    limits = {"owner": "bob", "max_jobs": 9, "max_gpus": 4, "weight": 2.0, "when_spent": "hold"}
    limits |= dict.fromkeys(("gpu_hours_per_month", "cost_per_month", "used_gpu_hours"))
    limits |= dict.fromkeys(("used_cost", "spent_at", "guaranteed_gpus"))
    assert row == {**limits, "approve_gpu_hours": None, "approve_cost": None}
    asks = ("--approve-gpu-hours", "8", "--approve-cost", "2.5")
    assert (
        "approval above 8 GPU-hours, a cost of 2.5"
        in admin("queue", "limit", "--owner", "bob", *asks).stderr
    )
    assert admin("queue", "limit", "--owner", "bob", "--approve-gpu-hours", "none").returncode == 0
    (row,) = rows(admin, "queue", "list", "--owners")
    assert row == {**limits, "approve_gpu_hours": None, "approve_cost": 2.5}
    budget = ("--cost-per-month", "0", "--when-spent", "preempt")
    said = admin("queue", "limit", "--owner", "bob", *budget).stderr
    assert said.endswith("approval above a cost of 2.5, a cost of 0 a month, then preempt\n")
    both = ("--gpu-hours-per-month", "9", "--when-spent", "warn")
    said = admin("queue", "limit", "--owner", "bob", *both).stderr
    assert "9 GPU-hours, a cost of 0 a month, then warn (preempt before)" in said
    assert "0.00 of a cost of 0 spent" in admin("queue", "list", "--owners").stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["queue", "limit"], "a queue, an owner or a team"),
        (["queue", "limit", "q", "--owner", "bob", "--jobs", "1"], "a queue, an owner or a team"),
        (["queue", "limit", "q"], "there is nothing to change"),
        (["queue", "limit", "q", "--jobs", "-1"], "--jobs '-1' is not a limit"),
        (["queue", "limit", "q", "--gpus", "99999999999"], "is not a limit"),
        (["queue", "limit", "q", "--weight", "2"], "no weight"),
        (["queue", "limit", "q", "--approve-cost", "2"], "no approvals"),
        (["queue", "limit", "q", "--when-spent", "hold"], "no budget"),
        (["queue", "limit", "--owner", "x", "--cost-per-month", "much"], "'much' is not an amount"),
        (["queue", "limit", "--owner", "x", "--approve-cost", "-1"], "'-1' is not an amount"),
        (["worker", "create", "w", "--label", "zone"], "--label 'zone' is not a label"),
        (["worker", "create", "w", "--expires", "soon"], "--expires: 'soon' is not a duration"),
        (["key", "create", "--owner", "x", "--expires", "0"], "below a second"),
        (["key", "create", "--owner", "x", "--expires", "9999999999d"], "too long"),
        (["key", "create", "--owner", "x", "--public-key-file", "nowhere"], "nowhere"),
        (["events", "--since", "soon"], "--since: 'soon' is neither an age nor a time"),
    ],
)
def test_what_cannot_be_asked_for(forge: Command, arguments: list[str], said: str) -> None:
    told(forge(*arguments), 2, said)


def test_the_trail_is_told_by_job_worker_and_actor(admin: Command, project: Path) -> None:
    job = admin("submit", project, "--", "ls").stdout.strip()
    admin("cancel", job)
    admin("worker", "create", "w")
    everything = rows(admin, "events", "--since", "1h")
    assert rows(admin, "events", "--since", "2026-11-01") == everything
    assert rows(admin, "events", "--since", "yesterday") == everything
    told(admin("events", "--since", "9000-01-01"), 2, "has not come yet")
    assert {"submitted", "worker_created"} <= {str(row["action"]) for row in everything}
    of_job = rows(admin, "events", "--job", job)
    assert [row["job_id"] for row in of_job] == [int(job)] * len(of_job)
    assert of_job[0]["action"] == "submitted"
    (created,) = rows(admin, "events", "--worker", "w")
    actor = str(created["actor"])
    assert actor == "user:ann" or actor.startswith("key:")
    assert created in rows(admin, "events", "--actor", actor)
    assert created in rows(admin, "events", "--actor", "ann")
    assert rows(admin, "events", "--actor", "user:nobody") == []
    assert "Worker w created" in admin("events").stdout
    told(admin("events", "--worker", "nobody"), 3, "no worker has ever been called 'nobody'")


def test_a_template_is_kept_shown_used_and_removed(admin: Command, project: Path) -> None:
    (project / "forge.toml").write_text('queue = "night"\ntimeout = "3h"\n', encoding="utf-8")
    kept = admin("template", "keep", "nightly", project, "--timeout", "2h", "--", "ls -l")
    assert kept.returncode == 0, kept.stderr
    (row,) = rows(admin, "template", "list")
    assert (row["name"], row["spec"]) == (
        "nightly", {"command": ["ls", "-l"], "queue": "night", "timeout_s": 7200, "labels": {},
                    "env": {}, "resources": {}},
    )  # fmt: skip
    shown = admin("template", "show", "nightly").stdout
    assert all(text in shown for text in ("ls -l", "night", "7200"))
    (project / "forge.toml").write_text('queue = "day"\n', encoding="utf-8")
    job = admin("submit", project, "--template", "nightly", "--priority", "3").stdout.strip()
    (listed,) = rows(admin, "ps")
    assert (str(listed["job_id"]), listed["name"], listed["queue"], listed["priority"]) == (
        job, "project", "night", 3,
    )  # fmt: skip
    planned = admin("submit", project, "--template", "nightly", "--dry-run", "-o", "json")
    job_planned = json.loads(planned.stdout)["job"]
    assert (job_planned["command"], job_planned["queue"]) == (["ls", "-l"], "night")
    again = admin("rerun", job, "--priority", "7", "--gpus", "1", "--dry-run", "-o", "json")
    planned_again = json.loads(again.stdout)["job"]
    # With GPUs comes a share of CPUs, as at the first submit.
    assert (planned_again["priority"], "cpus" in planned_again["resources"]) == (7, False)
    assert len(rows(admin, "ps")) == 1
    assert admin("template", "remove", "nightly", "--yes").returncode == 0
    told(admin("template", "show", "nightly"), 3, "'nightly'")
    told(admin("submit", project, "--template", "nightly"), 3, "'nightly'")
