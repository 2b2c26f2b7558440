"""Impossible rows cannot be stored: outcomes, fences, limits, history, the audit trail."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from itertools import product
from typing import TYPE_CHECKING

import psycopg
import pytest
from forge_schema.model.states import (
    BUDGETS,
    TERMINAL_STATES,
    Asked,
    Budget,
    Reason,
    Standing,
    State,
)

if TYPE_CHECKING:
    from support.queue.rig import Rig

NONCE = "'00000000-0000-0000-0000-000000000001'"
SHA = f"'{'ab' * 32}'"
OUTCOME = "INSERT INTO outcome (job_id, attempt, finished_at, state, reason, token, nonce) VALUES"
LEASE = (
    "INSERT INTO lease (job_id, rank, worker_id, lane_id, nice, failures, losses, preemptions,"
    " ready_at, claimed_at, attempt, expires_at, progress) VALUES (1, 0, 1, 1, 0,"
)
ATTEMPT = (
    "INSERT INTO attempt_row (job_id, attempt, rank, token, worker_id, lane_id, ready_at, reason,"
    f" nonce, claimed_at, finished_at) VALUES (1, %s, 0, 1, 1, 1, now(), 'oom', {NONCE},"
)
SUCCESS = (
    "INSERT INTO outcome (job_id, attempt, state, reason, token, nonce, worker_id, lane_id,"
    " ready_at, devices, gpu_seconds, finished_at, claimed_at)"
    f" VALUES (9, 1, 'succeeded', 'succeeded', 1, {NONCE}, 1, 1, now(), '{{}}', 0"
)
JOB = (
    "INSERT INTO job (lane_id, owner, name, spec, submitted_at, {})"
    " VALUES (1, 'ann', 'n', '{{}}', now(), {})"
)
WORKER = (
    "INSERT INTO worker (name, boot_id, registered_at, last_seen_at, cpus, memory_mb, disk_mb, {})"
    " VALUES ('x', gen_random_uuid(), now(), now(), {})"
)
FORMING = (
    "INSERT INTO forming (job_id, pool, lane_id, nice, since, deadline, turns)"
    " VALUES (9, 'cpu', 1, 0, now(), now() + '{}', {})"
)
TEST = "INSERT INTO test_result VALUES (1, 1, {}, 1, 's', 'n', 'passed', {}, NULL, now())"

IMPOSSIBLE = {
    (
        "state_has_its_reason",
        "an outcome in a state that is none",
    ): f"{OUTCOME} (9, 1, now(), 'running', 'oom', 1, {NONCE})",
    (
        "state_has_its_reason",
        "a success for another reason",
    ): f"{OUTCOME} (9, 1, now(), 'succeeded', 'oom', 1, {NONCE})",
    (
        "state_has_its_reason",
        "a failure that succeeded",
    ): f"{OUTCOME} (9, 1, now(), 'failed', 'succeeded', 1, {NONCE})",
    (
        "state_has_its_reason",
        "a dead job that was cancelled",
    ): f"{OUTCOME} (9, 1, now(), 'dead', 'cancelled', 1, {NONCE})",
    (
        "state_has_its_reason",
        "a failure for that of another job",
    ): f"{OUTCOME} (9, 1, now(), 'failed', 'dependency_failed', 1, {NONCE})",
    (
        "state_has_its_reason",
        "a cancel for another reason",
    ): f"{OUTCOME} (9, 1, now(), 'cancelled', 'oom', 1, {NONCE})",
    (
        "token_whole",
        "a success without a token",
    ): f"{OUTCOME} (9, 1, now(), 'succeeded', 'succeeded', NULL, NULL)",
    (
        "token_whole",
        "a failure with half a token",
    ): f"{OUTCOME} (9, 1, now(), 'failed', 'oom', 1, NULL)",
    (
        "token_whole",
        "a cancel with half a token",
    ): f"{OUTCOME} (9, 1, now(), 'cancelled', 'cancelled', 1, NULL)",
    ("outcome_pkey", "a second outcome"): f"{OUTCOME} (1, 1, now(), 'failed', 'oom', 1, {NONCE})",
    (None, "a reason nobody knows"): f"{OUTCOME} (9, 1, now(), 'failed', 'tired', 1, {NONCE})",
    (
        "progress_is_share",
        "a lease more than finished",
    ): f"{LEASE} 0, 0, 0, now(), now(), 1, now() + '1 s', 1.5)",
    ("deadline_after_since", "a gang that formed before it began"): FORMING.format("0 s", 1),
    ("turns_positive", "a gang that never had a turn"): FORMING.format("1 s", 0),
    ("grows_beyond_least", "a gang that grows to its least"): FORMING.replace(
        "turns)", "turns, grows)"
    ).format("1 s", "1, 2"),
    ("expected_before_deadline", "a gang that forms after its turn"): FORMING.replace(
        "turns)", "turns, expected_at)"
    ).format("1 s", "1, now() + '1 s'"),
    ("lease_pkey", "a second lease of one rank"): "INSERT INTO lease SELECT * FROM lease",
    ("ready_pkey", "a job twice in ready"): "INSERT INTO ready SELECT * FROM ready",
    ("scheduled_pkey", "a job twice in scheduled"): "INSERT INTO scheduled SELECT * FROM scheduled",
    ("line_whole", "a job in no line with a cap"): "UPDATE held SET parallel = 1",
    ("parallel_positive", "a cap of none"): "UPDATE held SET line = 'ann/s', parallel = 0",
    ("cap_positive", "a sweep's cap of none"): "INSERT INTO sweep_cap VALUES ('ann/s', 0)",
    ("approval_object", "an approval of nothing"): "UPDATE held SET approval = 'null'",
    ("held_pkey", "a job twice in held"): "INSERT INTO held SELECT * FROM held",
    (
        "finished_after_claimed",
        "an attempt that ended before it began",
    ): f"{ATTEMPT % 1} now(), now() - interval '1 s')",
    ("counted", "an attempt zero"): f"{ATTEMPT % 0} now(), now())",
    (
        "attempt_whole",
        "half a success",
    ): "INSERT INTO outcome SELECT 9, state, reason, attempt, token, nonce, exit_code, detail,"
    " finished_at, worker_id, lane_id, ready_at FROM outcome",
    ("attempt_whole", "a success that ended before it began"): f"{SUCCESS}, now(), now() + '1 s')",
    ("attempt_whole", "a failure that is its attempt"): f"{SUCCESS}, now(), now())".replace(
        "'succeeded', 'succeeded'", "'failed', 'oom'"
    ),
    ("job_lane", "a job of no lane"): JOB.format("nice", "0").replace("(1, 'ann'", "(99, 'ann'"),
    ("job_lane", "a job that leaves its lane for none"): "UPDATE job SET lane_id = 99",
    ("job_lane", "a lane that left its jobs"): "DELETE FROM lane",
    ("bundle_digest_sha256", "a job whose bundle is no digest"): JOB.format(
        "bundle_digest", "'abc'"
    ),
    ("budgets_not_negative", "a job with a negative budget"): JOB.format("max_losses", "-1"),
    ("timeout_positive", "a job without time"): JOB.format("timeout_s", "0"),
    ("backoff_not_negative", "a job with a negative pause"): JOB.format("backoff_s", "-1"),
    ("idempotency_whole", "a key without its content"): JOB.format("idempotency_key", "'k'"),
    ("idempotency_whole", "a content without its key"): JOB.format("content_digest", "'c'"),
    (
        "job_idempotency",
        "a key twice",
    ): "INSERT INTO job (lane_id, owner, name, spec, submitted_at, idempotency_key,"
    " content_digest) SELECT lane_id, owner, name, spec, submitted_at, idempotency_key,"
    " content_digest FROM job",
    ("cpus_positive", "a shape without a CPU"): "INSERT INTO shape (cpus) VALUES (0)",
    (
        "memory_not_negative",
        "a shape with negative memory",
    ): "INSERT INTO shape (memory_mb) VALUES (-1)",
    ("disk_positive", "a shape without disk"): "INSERT INTO shape (disk_mb) VALUES (0)",
    ("devices_not_negative", "a shape with negative GPUs"): "INSERT INTO shape (gpus) VALUES (-1)",
    ("nodes_positive", "a shape on no node"): "INSERT INTO shape (nodes) VALUES (0)",
    (
        "labels_object",
        "a shape whose labels are a list",
    ): "INSERT INTO shape (labels) VALUES ('[]')",
    (
        "shape_distinct",
        "a shape twice",
    ): "INSERT INTO shape SELECT (SELECT max(id) + 1 FROM shape), accelerator, gpus,"
    " gpu_model, vram_mb, cpus, memory_mb, disk_mb, labels, nodes, target FROM shape",
    ("lane_shape", "a lane of no shape"): "INSERT INTO lane (shape_id, queue, owner) "
    "VALUES (99, 'default', 'ann')",
    ("lane_queue", "a lane of no queue"): "INSERT INTO lane (shape_id, queue, owner) "
    "VALUES (1, 'none', 'ann')",
    ("lane_owner", "a lane of no owner"): "INSERT INTO lane (shape_id, queue, owner) "
    "VALUES (1, 'default', 'no')",
    ("lane_distinct", "a lane twice"): "INSERT INTO lane (shape_id, queue, owner) "
    "SELECT shape_id, queue, owner FROM lane",
    (
        "limits_not_negative",
        "a negative limit",
    ): "INSERT INTO queue (name, max_jobs) VALUES ('x', -1)",
    (
        "guarantee_not_negative",
        "less than nothing that is guaranteed",
    ): "INSERT INTO queue (name, guaranteed_gpus) VALUES ('x', -1)",
    (
        "guarantee_not_negative",
        "an owner to whom less than nothing is guaranteed",
    ): "INSERT INTO owner_quota (owner, guaranteed_gpus) VALUES ('x', -1)",
    (
        "team_guarantee_not_negative",
        "a team to which less than nothing is guaranteed",
    ): "INSERT INTO team (name, created_at, guaranteed_gpus) VALUES ('x', now(), -1)",
    (
        "slot_kind",
        "a slot of no limit",
    ): "INSERT INTO slot (kind, name, n) VALUES ('queue', 'default', 1)",
    (
        "weight_positive",
        "an owner without weight",
    ): "INSERT INTO owner_quota (owner, weight) VALUES ('x', 0)",
    (
        "limits_not_negative",
        "an owner's negative limit",
    ): "INSERT INTO owner_quota (owner, max_gpus) VALUES ('x', -1)",
    (
        "approvals_not_negative",
        "an owner who may spend less than nothing",
    ): "INSERT INTO owner_quota (owner, approve_cost) VALUES ('x', -1)",
    (
        "budgets_not_negative",
        "an owner with less than no budget",
    ): "INSERT INTO owner_quota (owner, cost_per_month) VALUES ('x', -1)",
    (
        "when_spent_known",
        "an owner whose jobs are deleted then",
    ): "INSERT INTO owner_quota (owner, when_spent) VALUES ('x', 'delete')",
    (
        "team_limits_not_negative",
        "a team's negative limit",
    ): "INSERT INTO team (name, created_at, max_gpus) VALUES ('x', now(), -1)",
    (
        "team_budgets_not_negative",
        "a team with less than no budget",
    ): "INSERT INTO team (name, created_at, gpu_hours_per_month) VALUES ('x', now(), -1)",
    (
        "team_when_spent_known",
        "a team whose jobs are deleted then",
    ): "INSERT INTO team (name, created_at, when_spent) VALUES ('x', now(), 'delete')",
    (
        "preemption_known",
        "a queue that preempts in another way",
    ): "INSERT INTO queue (name, preemption) VALUES ('x', 'random')",
    (
        "preemption_bounds",
        "a queue that preempts no job at once",
    ): "INSERT INTO queue (name, most_preempted) VALUES ('x', 0)",
    ("capacity_positive", "a worker without a CPU"): WORKER.format("version", "0, 1, 1, ''"),
    ("gpus_array", "a worker whose GPUs are no list"): WORKER.format("gpus", "1, 1, 1, '{}'"),
    ("labels_object", "a worker whose labels are no object"): WORKER.format(
        "labels", "1, 1, 1, '[]'"
    ),
    ("gangs_after_unreached", "a worker left out of gangs for nothing"): WORKER.format(
        "gangs_after", "1, 1, 1, now()"
    ),
    ("speed_object", "a worker whose speed is no object"): WORKER.format("speed", "1, 1, 1, '[]'"),
    ("worker_name", "a worker twice"): WORKER.format("version", "1, 1, 1, ''").replace(
        "'x'", "'w'"
    ),
    (
        "former_worker_pkey",
        "a worker removed twice",
    ): "INSERT INTO former_worker VALUES (1, 'w'), (1, 'v')",
    (
        "no_self_dependency",
        "a job that waits for itself",
    ): "INSERT INTO dependency VALUES (1, 1, 'after')",
    ("dependency_needs", "a wait for no job"): "INSERT INTO dependency VALUES (1, 99, 'after')",
    (
        "last_of_schedule",
        "a schedule with a last job and no last time",
    ): "INSERT INTO schedule (owner, name, cron, spec, next_at, last_job_id)"
    " VALUES ('ann', 'n', '* * * * *', '{}', now(), 1)",
    (
        "schedule_last_job",
        "a schedule whose last job does not exist",
    ): "INSERT INTO schedule (owner, name, cron, spec, next_at, last_due_at, last_job_id)"
    " VALUES ('ann', 'n', '* * * * *', '{}', now(), now(), 99)",
    ("extent_sound", "an empty log chunk"): f"INSERT INTO log_chunk "
    f"VALUES (1, 1, 0, 0, 1, 'k', 0, 0, {SHA}, now())",
    ("sha256_form", "a log chunk without a digest"): "INSERT INTO log_chunk "
    "VALUES (1, 1, 0, 0, 1, 'k', 0, 1, '', now())",
    ("bytes_not_negative", "an artifact of negative size"): f"INSERT INTO artifact "
    f"VALUES (1, 1, 'p', 1, 'k', -1, {SHA}, now())",
    ("sizes_not_negative", "a checkpoint of negative size"): "INSERT INTO checkpoint "
    "VALUES (1, 1, 1, 1, 'k', 1, -1, now())",
    ("other_ranks_follow", "a checkpoint of rank 1 that follows none"): "INSERT INTO checkpoint "
    "VALUES (1, 1, 1, 1, 'k', 1, 1, now(), 1, 2, NULL)",
    ("nodes_positive", "a checkpoint of no machine"): "INSERT INTO checkpoint "
    "VALUES (1, 1, 1, 1, 'k', 1, 1, now(), 0, 0, NULL)",
    (
        "hash_sha256",
        "a key's hash that is no SHA-256",
    ): "INSERT INTO api_key (id, owner, role, hash, created_at)"
    " VALUES ('k', 'ann', 'admin', '\\x00', now())",
    ("role_known", "a role nobody has"): "INSERT INTO api_key (id, owner, role, hash, created_at)"
    " VALUES ('k', 'ann', 'king', decode(repeat('00', 32), 'hex'), now())",
    (
        "standing_role_known",
        "a person with a role nobody has",
    ): "INSERT INTO standing (actor, owner, role, at) VALUES ('oidc:ann', 'ann', 'king', now())",
    (
        "public_key_ed25519",
        "a public key of another kind",
    ): "INSERT INTO api_key (id, owner, role, hash, public_key, created_at)"
    " VALUES ('k', 'ann', 'admin', decode(repeat('00', 32), 'hex'), '\\x00', now())",
    ("token_hash_sha256", "a worker's token that is no SHA-256"): WORKER.format(
        "token_hash", "1, 1, 1, '\\x00'"
    ),
    ("worker_public_key_ed25519", "a worker's key of another kind"): WORKER.format(
        "public_key", "1, 1, 1, '\\x00'"
    ),
    ("pinned_labels_object", "pinned labels that are no object"): WORKER.format(
        "pinned_labels", "1, 1, 1, '[]'"
    ),
    ("condition_object", "a machine's condition that is no object"): WORKER.format(
        "condition", "1, 1, 1, '[]'"
    ),
    (
        "values_object",
        "a result that is no object",
    ): "INSERT INTO result VALUES (1, 1, 1, '[]', now())",
    (
        "notification_kind",
        "a notification by fax",
    ): "INSERT INTO notification (owner, name, kind, target, events, created_at)"
    " VALUES ('ann', 'n', 'fax', 'x', '{}', now())",
    (
        "notification_of_whom",
        "a notification about a team and everyone",
    ): "INSERT INTO notification (owner, name, kind, target, events, created_at, everyone, team)"
    " VALUES ('ann', 'n', 'slack', 'x', '{}', now(), true, 'nlp')",
    (
        "delivery_state",
        "a message in a state that is none",
    ): "INSERT INTO delivery (notification_id, event, subject, at, state, next_at)"
    " VALUES (1, 'failed', 1, now(), 'lost', now())",
    ("one_notifier", "a second notifier"): "INSERT INTO notifier (id) VALUES (2)",
    ("number_not_negative", "a test before the first"): TEST.format(-1, 0),
    ("seconds_not_negative", "a test that ended before it began"): TEST.format(0, -1),
    ("source_whole", "half a checkpoint to start from"): "UPDATE job SET source_job_id = 1",
    ("one_row", "a second memory of the sweepers"): "INSERT INTO sweeper (id) VALUES (2)",
    ("one_row", "a second id of the queue"): "INSERT INTO identity (id) VALUES (2)",
}
REFUSALS = (psycopg.IntegrityError, psycopg.errors.InvalidTextRepresentation)


@pytest.fixture(scope="module")
def peopled(shared_rig: Rig) -> Rig:
    """One job in each place, job 1 finished, and a worker `w`; refused rows change nothing."""
    shared_rig.submit(idempotency_key="k")
    worker = shared_rig.worker()
    shared_rig.finish(worker.claim_one())
    shared_rig.submit()
    worker.claim_one()
    shared_rig.submit(delay_s=60)
    shared_rig.submit(after_ok=[shared_rig.submit()])
    places = ("outcome", "lease", "scheduled", "ready", "held")
    assert [shared_rig.count(place) for place in places] == [1, 1, 1, 1, 1]
    return shared_rig


@pytest.mark.parametrize(("constraint", "what"), IMPOSSIBLE)
def test_an_impossible_row_is_refused(peopled: Rig, constraint: str | None, what: str) -> None:
    with pytest.raises(REFUSALS) as refused:
        peopled.rows(IMPOSSIBLE[constraint, what].replace("%", "%%"))
    assert refused.value.diag.constraint_name == constraint


def test_every_check_has_a_row_that_it_refuses(shared_rig: Rig) -> None:
    rows = shared_rig.rows(
        "SELECT conname FROM pg_constraint"
        " WHERE contype = 'c' AND connamespace = 'public'::regnamespace"
    )
    assert {row["conname"] for row in rows} <= {constraint for constraint, _ in IMPOSSIBLE}


CHANGES = ("UPDATE {} SET job_id = job_id", "DELETE FROM {}", "TRUNCATE {}")


@pytest.mark.parametrize("part", ["", "_default", "_2031_01"])
def test_history_and_audit_trail_refuse_every_change(rig: Rig, part: str) -> None:
    if part == "_default":
        rig.clock.set(datetime(2031, 6, 1, tzinfo=UTC))
    rig.submit()
    rig.finish(rig.worker().claim_one(), Reason.OOM)
    for table, change in product(("attempt_row", "event"), CHANGES):
        before = rig.rows(f"SELECT * FROM {table}")
        assert rig.rows(f"SELECT 1 FROM {table}{part}")
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="append-only"):
            rig.rows(change.format(table + part))
        assert rig.rows(f"SELECT * FROM {table}") == before


@pytest.mark.parametrize("change", CHANGES)
def test_a_success_is_history_too_and_leaves_only_with_its_job(rig: Rig, change: str) -> None:
    rig.submit()
    rig.finish(rig.worker().claim_one())
    (before,) = rig.rows("SELECT * FROM attempt")
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="append-only"):
        rig.rows(change.format("outcome"))
    with pytest.raises(psycopg.errors.Error, match="attempt"):
        rig.rows(change.format("attempt"))
    assert rig.rows("SELECT * FROM attempt") == [before]


def test_the_states_of_the_view_are_the_states_of_the_protocol(peopled: Rig) -> None:
    rows = peopled.rows("SELECT state, pg_typeof(state)::text AS kind FROM job_status")
    assert {row["kind"] for row in rows} == {"state"}
    assert {row["state"] for row in rows} == {"succeeded", "running", "scheduled", "ready", "held"}


def test_exactly_the_terminal_states_can_be_an_outcome(rig: Rig) -> None:
    stored = set()
    for n, (state, reason) in enumerate(product(State, Reason)):
        with suppress(psycopg.errors.CheckViolation):
            rig.rows(f"{OUTCOME} ({n}, 1, now(), '{state}', '{reason}', 1, {NONCE})")
            stored.add((state, reason))
    ends = {Budget.SUCCESS: {State.SUCCEEDED}, Budget.CANCEL: {State.CANCELLED}}
    fails = {State.FAILED, State.DEAD}
    assert stored == {(s, r) for r in Reason for s in ends.get(r.budget, fails)}
    assert {state for state, _ in stored} == TERMINAL_STATES


def test_the_words_of_the_protocol_agree_with_each_other() -> None:
    assert set(BUDGETS) == set(Reason)
    assert set(BUDGETS.values()) == set(Budget)
    assert {standing.value for standing in Standing} == {*(a.value for a in Asked), "ok", "lost"}
    asked = {asked.value for asked in Asked} - {Asked.ENDED} | {Reason.RUN_ENDED}
    assert asked <= {reason.value for reason in Reason}
    assert {state for state in State if state.terminal} == TERMINAL_STATES
