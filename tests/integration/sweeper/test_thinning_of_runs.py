"""The thinning of checkpoints that consist of the parts of several ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from forge_schema.queue.thinning import PENDING, Thinning
from support.gangs.ranks import Rank, Ranks

if TYPE_CHECKING:
    from pathlib import Path

    from support.queue.rig import Rig


@pytest.fixture
def ranks(rig: Rig, tmp_path: Path) -> Ranks:
    return Ranks(rig, tmp_path)


def thin(ranks: Ranks, keep: int = 1, *, everywhere: bool = True) -> int:
    assert ranks.run is not None
    thinning = Thinning(ranks.rig.database, ranks.store)
    return thinning.thin(ranks.run.fences[0], keep, everywhere=everywhere)


def store(members: list[Rank], content: str) -> None:
    for number, one in enumerate(members):
        one.store(**{f"shard-{number}": f"{content} of {number}"})


def rows(ranks: Ranks) -> dict[int, list[int]]:
    """Return the numbers of the rows of each rank in the current run."""
    assert ranks.run is not None
    tokens = [fence.token for fence in ranks.run.fences]
    found: dict[int, list[int]] = {rank: [] for rank in range(len(tokens))}
    for row in ranks.rig.rows("SELECT token, number FROM checkpoint ORDER BY number"):
        if row["token"] in tokens:
            found[tokens.index(row["token"])].append(row["number"])
    return found


def objects(ranks: Ranks) -> int:
    return len(list(ranks.store.list("jobs/")))


def sound(ranks: Ranks, nodes: int = 2) -> list[Rank]:
    """Begin the next run, which finds the newest checkpoint undamaged."""
    members = ranks.begin(nodes)
    assert not any("skipped" in one.attempt.folders.log.read_text() for one in members)
    return members


def test_a_checkpoint_goes_with_the_parts_of_all_ranks(ranks: Ranks) -> None:
    members = ranks.begin(2)
    for number in range(4):
        store(members, str(number))
    assert objects(ranks) == 16
    assert thin(ranks) == 8
    assert (ranks.names, rows(ranks)) == (["1.3", "1.0"], {0: [0, 3], 1: [0, 3]})
    assert objects(ranks) == 8
    assert sound(ranks)[1].files == {"shard-0": "3 of 0", "shard-1": "3 of 1"}


def test_what_may_become_complete_stays_with_its_objects(ranks: Ranks) -> None:
    members = ranks.begin(2)
    for number in range(3):
        store(members, str(number))
    # Rank 0 is ahead, and the other one has uploaded what it has not recorded.
    for number in (3, 4):
        members[0].store(**{"shard-0": f"{number} of 0"})
    thin(ranks)
    assert (ranks.names, rows(ranks)) == (["1.2", "1.0"], {0: [0, 2, 3, 4], 1: [0, 2]})
    members[1].store(**{"shard-1": "4 of 1"})
    assert ranks.names[0] == "1.4"
    thin(ranks)
    assert rows(ranks) == {0: [0, 4], 1: [0, 3]}
    members[1].write(**{"shard-1": "early"})
    members[1].sync.step()
    before = objects(ranks)
    thin(ranks)
    assert objects(ranks) == before
    members[0].store(**{"shard-0": "5 of 0"})
    members[1].sync.step()
    assert sound(ranks)[0].files == {"shard-0": "5 of 0", "shard-1": "early"}


def test_commits_that_are_half_stored_do_not_pile_up(ranks: Ranks) -> None:
    zero, one = ranks.begin(2)

    def commit(member: Rank, step: int) -> None:
        member.write(**{f"of-{member.attempt.grant.rank}": str(step)})
        member.commit(step)
        member.sync.step()

    # This one is ahead: rank 0 will commit the last of these steps.
    for step in range(3):
        commit(one, step)
    commit(zero, 2)
    assert ranks.names == ["1.0"]
    for step in range(3, 6 + PENDING):
        commit(zero, step)
        thin(ranks)
    # Step 2 is the newest complete one.
    assert rows(ranks) == {0: [0, *range(4, 4 + PENDING)], 1: [2]}
    commit(one, 5 + PENDING)
    thin(ranks)
    assert (ranks.names, rows(ranks)[1]) == ([f"1.{3 + PENDING}", "1.0"], [2, 3])
    assert rows(ranks)[0] == [0, 3 + PENDING]
    assert sound(ranks)[1].files["of-1"] == str(5 + PENDING)


def test_what_an_ended_run_left_half_goes_and_what_the_next_needs_stays(ranks: Ranks) -> None:
    members = ranks.begin(3)
    store(members, "whole")
    store(members[:2], "half")
    two = ranks.begin(2)
    two[0].store(new="1")
    two[1].sync.step()
    assert ranks.names == ["2.0", "1.0"]
    two[1].write(**{"shard-1": "changed"})
    two[0].store(new="2")
    # The first run's half checkpoint: two manifests with a file each.
    assert thin(ranks) == 4
    assert ranks.rig.count("checkpoint") == 3 + 3
    two[1].sync.step()
    for _ in range(3):
        two[0].store(new="3")
        two[1].sync.step()
        ranks.rig.clock.advance(1)
    thin(ranks)
    expected = {"shard-0": "whole of 0", "shard-1": "changed", "shard-2": "whole of 2", "new": "3"}
    assert sound(ranks, 3)[2].files == expected


def test_until_a_run_has_a_complete_checkpoint_what_it_restored_stays(ranks: Ranks) -> None:
    members = ranks.begin(2)
    for number in range(3):
        store(members, str(number))
    members = ranks.begin(2)
    members[0].store(new="1")
    thin(ranks)
    assert ranks.names == ["1.2", "1.1", "1.0"]
    members[1].sync.step()
    thin(ranks)
    assert ranks.names == ["2.0", "1.0"]
    assert sound(ranks)[1].files == {"shard-0": "2 of 0", "shard-1": "2 of 1", "new": "1"}


def test_what_another_job_starts_from_keeps_all_its_parts(ranks: Ranks) -> None:
    members = ranks.begin(2)
    for number in range(4):
        store(members, str(number))
    source = members[0].attempt.fence.job_id
    asked = {"job_id": source, "attempt": 1, "number": 1}
    child = ranks.rig.submit(nodes=2, from_checkpoint=asked)
    thin(ranks)
    assert rows(ranks) == {0: [0, 1, 3], 1: [0, 1, 3]}
    of_child = ranks.begin(2, job=child)
    assert of_child[0].files == {"shard-0": "1 of 0", "shard-1": "1 of 1"}
