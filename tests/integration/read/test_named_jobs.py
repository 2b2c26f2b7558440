"""Jobs by name: whose come first, what is ambiguous, and whose cannot be named."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from forge_client import ClientError
from forge_schema.model.errors import ForgeError
from forge_schema.read.job_pages import job_named
from support.client.command import command
from support.client.reaching import WAYS, reaching

if TYPE_CHECKING:
    from pathlib import Path

    from support.queue.rig import Rig


@pytest.fixture(scope="module")
def past(shared_rig: Rig) -> dict[str, int]:
    """Jobs of two owners, oldest first."""
    made = [
        ("a", "resnet"), ("b", "resnet-50"), ("c", "vgg"), ("d", "vgg"), ("e", "100%_"), ("f", "7"),
    ]  # fmt: skip
    jobs = {key: shared_rig.submit(name=name, owner="ann", queue=key) for key, name in made}
    return {
        **jobs,
        "his": shared_rig.submit(name="vit", owner="bob"),
        "same": shared_rig.submit(name="resnet", owner="bob"),
    }


@pytest.mark.parametrize(
    ("handle", "job"),
    [
        ("resnet", "a"),  # though resnet-50 begins with it, and bob's is newer
        ("resnet-", "b"),
        ("res", "resnet-50' or"),
        ("vgg", "or"),
        ("vg", "or"),
        ("100%", "e"),
        ("1__", "no job"),
        (" @last ", "f"),
        ("@1", "f"),
        ("@2", "e"),
        ("@6", "a"),
        ("@7", "no job"),
        ("", "no job"),
        ("vit", "his"),
        ("0", "no job"),
        ("99999999999999999999", "no job"),
    ],
)
def test_a_handle_names_one_job_or_none(
    shared_rig: Rig, past: dict[str, int], handle: str, job: str
) -> None:
    def named() -> int:
        return job_named(shared_rig.database, handle, owner="ann", others=None)

    if job in past:
        assert named() == past[job]
    else:
        with pytest.raises(ForgeError, match=job):
            named()


def test_digits_are_an_id_even_if_a_job_has_that_name(
    shared_rig: Rig, past: dict[str, int]
) -> None:
    assert past["f"] != 7
    assert job_named(shared_rig.database, "7", owner="ann", others=[]) == 7


def test_a_mistyped_name_is_answered_with_one_that_is_there(
    shared_rig: Rig, past: dict[str, int]
) -> None:
    for handle, owner, near in (("rsenet-50", "ann", "resnet-50"), ("rsenet", "bob", "resnet")):
        with pytest.raises(ForgeError) as refused:
            job_named(shared_rig.database, handle, owner=owner, others=[])
        assert refused.value.hint.startswith(f"did you mean '{near}'? `forge ps`"), past


def test_who_sees_only_their_own_jobs_names_only_these(
    shared_rig: Rig, past: dict[str, int]
) -> None:
    def named(handle: str, owner: str) -> int:
        return job_named(shared_rig.database, handle, owner=owner, others=[])

    assert named("resnet", "bob") == past["same"]
    assert named("@last", "bob") == past["same"]
    for handle, owner in (("vit", "ann"), ("vgg", "bob"), ("@last", "cleo")):
        with pytest.raises(ForgeError, match="no job"):
            named(handle, owner)


def test_an_ambiguous_name_lists_the_newest_jobs(rig: Rig) -> None:
    jobs = rig.submit_many(7, name="x", owner="ann")
    with pytest.raises(ForgeError) as refused:
        job_named(rig.database, "x", owner="ann", others=[])
    listed = ", ".join(map(str, jobs[:1:-1]))
    assert refused.value.message == f"'x' could be job {listed} or 2 more"
    assert f"the newest of them is {jobs[-1]}" in refused.value.hint


@pytest.mark.parametrize("way", WAYS)
def test_both_ways_take_names(way: str, rig: Rig, tmp_path: Path) -> None:
    one, two = rig.submit(name="one"), rig.submit(name="two")
    with reaching(way, rig, (tmp_path / "store").as_uri()) as client:
        assert [client.job(handle).id for handle in (one, "one", "@last")] == [one, one, two]
        with pytest.raises(ClientError) as refused:
            client.job("three")
        assert (refused.value.code, refused.value.exit_code) == ("job_unknown", 3)


def test_commands_take_names(rig: Rig, tmp_path: Path) -> None:
    one, two = rig.submit(name="one"), rig.submit(name="two")
    (tmp_path / "store").mkdir()
    forge = command(
        tmp_path, FORGE_DATABASE_URL=rig.url, FORGE_STORE_URL=(tmp_path / "store").as_uri(),
        FORGE_OWNER="ann",
    )  # fmt: skip
    logged = forge("logs")
    assert f"job {two} 'two', your newest" in logged.stderr, logged.stderr
    three = forge("submit", "--name", "three", "--after-ok", "one,@last", "--", "ls").stdout.strip()
    shown = json.loads(forge("show", "three", "-o", "json").stdout)["job"]
    assert [needed["job_id"] for needed in shown["dependencies"]] == [one, two]
    assert forge("cancel", "one", "@2").returncode == 0
    assert [rig.state(job) for job in (one, two)] == ["cancelled", "cancelled"]
    assert str(shown["job_id"]) == three
