"""Checkpoints of all ranks of a run: stored in parts, restored as a whole, by whichever ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from forge_worker.job_io.occasions import SOON_S, CheckpointRequest
from support.gangs.ranks import Rank, Ranks

if TYPE_CHECKING:
    from pathlib import Path

    from support.queue.rig import Rig


@pytest.fixture
def ranks(rig: Rig, tmp_path: Path) -> Ranks:
    return Ranks(rig, tmp_path)


def sent(ranks: Ranks) -> list[str]:
    """Return the files, not the manifests, that travelled since the last call."""
    keys = [key for key in ranks.store.given if "/checkpoints/files/" in key]
    ranks.store.given.clear()
    return keys


def complete(members: list[Rank]) -> None:
    """Store what there is, rank 0 first."""
    for one in members:
        one.sync.step()


def test_every_rank_gets_the_files_of_all(ranks: Ranks) -> None:
    first = ranks.begin(3)
    for number, one in enumerate(first):
        one.write(**{f"shard-{number}": str(number), "log": f"of {number}"})
    complete(first[:2])
    assert ranks.names == []
    first[2].sync.step()
    assert ranks.names == ["1.0"]
    second = ranks.begin(3)
    shards = {f"shard-{number}": str(number) for number in range(3)}
    for number, one in enumerate(second):
        # Of a path that several have stored, each has its own.
        assert one.files == {**shards, "log": f"of {number}"}


def test_a_rank_uploads_early_and_counts_once_rank_0_has_stored(ranks: Ranks) -> None:
    zero, one = ranks.begin(2)
    one.store(shard="1")
    assert len(sent(ranks)) == 1
    assert ranks.rig.count("checkpoint") == 0
    zero.store(latest="1")
    assert len(sent(ranks)) == 1
    one.sync.step()
    assert (sent(ranks), ranks.names) == ([], ["1.0"])
    # Nothing new of rank 0: no new part either.
    one.store(shard="2")
    one.sync.step()
    assert ranks.rig.count("checkpoint") == 2
    # Nothing new of this rank: a part all the same.
    zero.store(latest="2")
    one.sync.step()
    zero.store(latest="3")
    one.sync.step()
    assert ranks.names == ["1.2", "1.1", "1.0"]


def test_what_rank_0s_files_name_is_in_the_parts_of_all(ranks: Ranks) -> None:
    zero, one = ranks.begin(2)
    one.store(step1="1")
    zero.store(latest="step1")
    one.store(step2="2")
    # The other machine is lost before it has stored what comes next.
    zero.store(latest="step2")
    assert ranks.names == ["1.0"]
    for member in ranks.begin(2):
        assert member.files == {"latest": "step1", "step1": "1", "step2": "2"}


def test_the_last_part_follows_whatever_rank_0_stores_later(ranks: Ranks) -> None:
    zero, one, two = ranks.begin(3)
    one.write(shard="1")
    one.end()
    # It has written nothing, and has nothing to say.
    two.end()
    zero.write(latest="1")
    zero.end()
    assert ranks.names == ["1.0"]
    assert ranks.begin(2)[1].files == {"latest": "1", "shard": "1"}


def test_foreign_files_are_not_stored_unless_they_are_changed(ranks: Ranks) -> None:
    zero, one = ranks.begin(2)
    zero.write(latest="1", config="a")
    one.write(shard="1")
    complete([zero, one])
    zero, one = ranks.begin(2)
    sent(ranks)
    zero.store(latest="2")
    one.write(config="b")
    one.sync.step()
    assert len(sent(ranks)) == 2
    zero, one = ranks.begin(2)
    assert zero.files == {"latest": "2", "config": "a", "shard": "1"}
    assert one.files == {"latest": "2", "config": "b", "shard": "1"}


def test_rank_0_takes_over_the_files_of_ranks_that_are_gone(ranks: Ranks) -> None:
    four = ranks.begin(4)
    for number, one in enumerate(four):
        one.write(**{f"shard-{number}": "old"})
    complete(four)
    two = ranks.begin(2)
    sent(ranks)
    # Rank 0 has changed one of them, and removed another one.
    (two[0].attempt.folders.checkpoint / "shard-2").unlink()
    two[0].write(**{"shard-3": "new"})
    complete(two)
    assert len(sent(ranks)) == 1
    three = ranks.begin(3)
    expected = {"shard-0": "old", "shard-1": "old", "shard-3": "new"}
    assert [one.files for one in three] == [expected] * 3
    # What rank 2 was only given is not its own again.
    three[0].write(**{"shard-3": "newer"})
    complete(three)
    assert [one.files["shard-3"] for one in ranks.begin(4)] == ["newer"] * 4


def test_a_file_where_another_rank_has_a_folder_does_no_harm(ranks: Ranks) -> None:
    zero, one = ranks.begin(2)
    zero.write(state="file")
    (one.attempt.folders.checkpoint / "state").mkdir()
    (one.attempt.folders.checkpoint / "state" / "part").write_text("1")
    complete([zero, one])
    zero, one, two = ranks.begin(3)
    assert zero.files == two.files == {"state": "file"}
    assert one.files == {"state/part": "1"}


def test_a_damaged_part_has_every_rank_start_from_the_checkpoint_before(ranks: Ranks) -> None:
    members = ranks.begin(2)
    for content in ("one", "two"):
        members[0].write(latest=content)
        members[1].write(shard=content)
        complete(members)
    newest = ranks.gateway.restorable(members[0].attempt.fence.job_id)[0]
    ranks.store.put(newest["companions"][0]["key"], b"damaged")
    for member in ranks.begin(2):
        assert member.files == {"latest": "one", "shard": "one"}
        assert "checkpoint 1.1 was skipped" in member.attempt.folders.log.read_text()


def test_another_job_starts_from_a_runs_checkpoint(ranks: Ranks) -> None:
    members = ranks.begin(2)
    members[0].write(latest="1")
    members[1].write(shard="1")
    complete(members)
    source = members[0].attempt.fence.job_id
    child = ranks.rig.submit(nodes=2, from_checkpoint={"job_id": source})
    sent(ranks)
    of_child = ranks.begin(3, job=child)
    assert [one.files for one in of_child] == [{"latest": "1", "shard": "1"}] * 3
    of_child[0].write(more="2")
    complete(of_child)
    # Each its own files, as the child's own objects.
    keys = sent(ranks)
    assert len(keys) == 3
    assert all(key.startswith(f"jobs/{child}/") for key in keys)
    rows = ranks.rig.rows("SELECT rank, files FROM checkpoint WHERE job_id = %s", child)
    assert {row["rank"]: row["files"] for row in rows} == {0: 2, 1: 1, 2: 0}


def test_an_agent_that_adopts_a_rank_goes_on_with_what_is_its_own(ranks: Ranks) -> None:
    members = ranks.begin(2)
    members[0].write(latest="1")
    members[1].write(shard="1")
    complete(members)
    zero, one = ranks.begin(2)
    zero.store(latest="2")
    one.write(shard="2")
    one.sync.step()
    sent(ranks)
    adopted = ranks.again(one.attempt)
    adopted.sync.recall()
    adopted.sync.step()
    assert (sent(ranks), ranks.names) == ([], ["2.0", "1.0"])
    assert ranks.rig.count("checkpoint") == 4
    zero.store(latest="3")
    adopted.sync.step()
    assert ranks.names == ["2.1", "2.0", "1.0"]
    # One that was killed before this rank stored anything: rank 0's row is not its own.
    zero, one = ranks.begin(2)
    zero.store(latest="4")
    adopted = ranks.again(one.attempt)
    adopted.sync.recall()
    sent(ranks)
    adopted.sync.step()
    assert (sent(ranks), ranks.names[0]) == ([], "3.0")
    assert ranks.begin(2)[0].files == {"latest": "4", "shard": "2"}


def test_only_commits_count_once_there_is_one(ranks: Ranks) -> None:
    zero, one = ranks.begin(2)
    complete([zero, one])
    zero.store(latest="0")
    assert len(sent(ranks)) == 1
    zero.write(latest="1")
    zero.commit(100)
    zero.sync.step()
    one.write(shard="1")
    one.commit(100)
    one.sync.step()
    rows = ranks.rig.jobs.checkpoints(zero.attempt.fence.job_id)
    assert [(row["number"], row["step"]) for row in rows] == [(1, 100), (0, None)]
    # Half of the next step, which nobody has committed: not now, and not at the end.
    for member in (zero, one):
        member.write(half="x")
        member.sync.step()
        member.attempt.folders.save.touch()
        member.sync.step()
    zero.end()
    one.commit(200)
    one.end()
    assert ranks.names == ["1.1", "1.0"]
    assert ranks.begin(2)[0].files == {"latest": "1", "shard": "1"}


def test_a_pending_commit_is_stored_at_the_end_and_never_twice(ranks: Ranks) -> None:
    zero, one = ranks.begin(2)
    for member in (zero, one):
        member.write(**{f"of-{member.attempt.grant.rank}": "1"})
        member.commit(1)
        member.end()
    assert ranks.names == ["1.0"]
    for member in (zero, one):
        # An agent that starts now knows what is stored, with its cursors or without.
        adopted = ranks.again(member.attempt)
        adopted.end()
        member.attempt.cursors.keep(committed=0)
        adopted = ranks.again(member.attempt)
        adopted.sync.recall()
        adopted.end()
    assert ranks.rig.count("checkpoint") == 2
    # The same step once more, in another file, as `job.save_now` writes it: only what is new.
    new = zero.attempt.folders.control / "new"
    new.write_text("1")
    new.rename(zero.attempt.folders.save)
    zero.end()
    assert ranks.rig.count("checkpoint") == 2
    zero.write(more="2")
    zero.end()
    assert ranks.names == ["1.1", "1.0"]


def test_a_step_committed_while_the_folder_is_copied_is_the_one_that_is_stored(
    ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    zero, _ = ranks.begin(2)
    zero.write(state="1")
    zero.commit(1)
    snapshots = zero.sync._snapshots
    still = snapshots.still

    def meanwhile(*words: object) -> bool:
        found = still(*words)  # type: ignore[arg-type]
        if not (zero.attempt.folders.checkpoint / "next").exists():
            zero.write(next="2")
            zero.commit(2)
        return found

    monkeypatch.setattr(snapshots, "still", meanwhile)
    zero.sync.step()
    (row,) = ranks.rig.rows("SELECT step, files FROM checkpoint")
    assert (row["step"], row["files"]) == (2, 2)


def test_a_rank_that_commits_no_steps_while_rank_0_does_is_told_once(ranks: Ranks) -> None:
    zero, one, two = ranks.begin(3)
    for step in range(4):
        zero.write(latest=str(step))
        zero.commit(step)
        two.commit(step)
        complete([zero, one, two])
    said = [member.attempt.folders.log.read_text() for member in (zero, one, two)]
    assert [text.count("this rank has committed none") for text in said] == [0, 1, 0]
    assert ranks.names == []


@pytest.mark.parametrize("said", ["-1", "1.5", "hundred", "9" * 30, "1 2", "1" * 100, "٣"])
def test_what_is_no_step_is_only_a_touch_and_said_once(ranks: Ranks, said: str) -> None:
    zero, _ = ranks.begin(2)
    zero.commit(said)
    zero.store(state="1")
    zero.store(state="2")
    rows = ranks.rig.rows("SELECT step FROM checkpoint")
    assert [row["step"] for row in rows] == [None, None]
    log = zero.attempt.folders.log.read_text()
    assert log.count("$FORGE_CHECKPOINT_FILE does not hold the number of a step") == 1


def test_a_file_that_is_a_link_commits_nothing(ranks: Ranks) -> None:
    zero, _ = ranks.begin(2)
    elsewhere = ranks.root / "elsewhere"
    elsewhere.write_text("7")
    zero.attempt.folders.save.symlink_to(elsewhere)
    zero.store(state="1")
    assert ranks.rig.row("SELECT step FROM checkpoint")["step"] is None


def test_after_a_request_a_rank_looks_soon_for_rank_0s_checkpoint(ranks: Ranks) -> None:
    _, one = ranks.begin(2)
    call = CheckpointRequest(one.attempt, one.sync)
    call.step()
    assert one.sync.period_s == 30
    one.attempt.folders.save.touch()
    call.step()
    pauses = []
    for _ in range(8):
        pauses.append(one.sync.period_s)
        one.sync.step()
    assert pauses == [SOON_S, 1, 2, 4, 8, 16, 30, 30]


def test_a_server_that_knows_only_rank_0s_checkpoints_is_sent_no_others(
    ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    zero, one = ranks.begin(2)
    monkeypatch.setattr(ranks.gateway, "newest_checkpoints", lambda _: None)
    one.store(shard="1")
    one.end()
    assert (ranks.store.given, ranks.rig.count("checkpoint")) == ([], 0)
    zero.store(latest="1")
    assert ranks.rig.count("checkpoint") == 1
