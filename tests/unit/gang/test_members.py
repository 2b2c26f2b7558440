"""What a member is told about its gang, and what it believes of the others."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from forge_schema.model.lease import Member
from forge_worker.gang.launchers import variables
from forge_worker.gang.members import Gang, MemberUnreadable, peer_of
from support.gangs.peers import NONCE, gang, peer

if TYPE_CHECKING:
    from pydantic import JsonValue

NVIDIA: dict[str, Any] = {"gpus": 8, "vendor": "nvidia"}


def test_each_member_has_its_place() -> None:
    said = variables(gang(1, nodes=3, **NVIDIA), per_gpu=False)
    expected = {
        "RANK": "1",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "3",
        "LOCAL_WORLD_SIZE": "1",
        "NNODES": "3",
        "NODE_RANK": "1",
        "MASTER_ADDR": "10.0.0.5",
        "MASTER_PORT": "29500",
        "FORGE_BACKEND": "nccl",
        "FORGE_SPEED_SHARE": "0.333333",
    }
    assert {name: said[name] for name in expected} == expected


def test_a_launcher_for_each_gpu_counts_processes() -> None:
    mixed = Gang(1, (peer(0, gpus=4, vendor="nvidia"), peer(1, gpus=2, vendor="nvidia")))
    said = variables(mixed, per_gpu=True)
    places = {name: said[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK")}
    assert places == {"RANK": "4", "WORLD_SIZE": "6", "LOCAL_WORLD_SIZE": "2", "NODE_RANK": "1"}


def test_the_interface_is_the_one_that_was_checked() -> None:
    said = variables(gang(address="127.0.0.1"), per_gpu=False)
    assert (said["GLOO_SOCKET_IFNAME"], said["NCCL_SOCKET_IFNAME"]) == ("lo", "=lo")
    # All of 127.0.0.0/8 is the loopback's.
    assert variables(gang(address="127.0.0.9"), per_gpu=False)["GLOO_SOCKET_IFNAME"] == "lo"
    # In a container on the bridge, no interface has the address.
    published = variables(gang(address="127.0.0.1", publishes=True), per_gpu=False)
    assert not any(name.endswith("IFNAME") for name in published)


def test_the_job_learns_of_all_members_and_of_no_secret() -> None:
    said = json.loads(variables(gang(1, **NVIDIA), per_gpu=False)["FORGE_GANG"])
    assert said["rank"] == 1
    assert [one["address"] for one in said["members"]] == ["10.0.0.5", "10.0.0.6"]
    assert [one["gpus"] for one in said["members"]] == [8, 8]
    assert NONCE not in json.dumps(said)


def test_the_job_learns_at_which_port_each_member_listens() -> None:
    ports = Gang(0, (peer(0), peer(1, program_port=29507)))
    said = json.loads(variables(ports, per_gpu=False)["FORGE_GANG"])
    assert [one["port"] for one in said["members"]] == [29500, 29507]


@pytest.mark.parametrize(
    ("members", "backend"),
    [
        ([NVIDIA, NVIDIA], "nccl"),
        ([{"gpus": 1, "vendor": "amd"}, {"gpus": 2, "vendor": "amd"}], "nccl"),
        ([NVIDIA, {"gpus": 8, "vendor": "amd"}], "gloo"),
        ([NVIDIA, {}], "gloo"),
        ([{}, {}], "gloo"),
        ([{"gpus": 1, "vendor": "apple"}, {"gpus": 1, "vendor": "apple"}], "gloo"),
    ],
)
def test_all_members_use_one_backend(members: list[dict[str, object]], backend: str) -> None:
    mixed = [peer(rank, **said) for rank, said in enumerate(members)]
    assert {Gang(rank, mixed).backend for rank in range(2)} == {backend}


def told_shares(*members: dict[str, Any], per_gpu: bool = False) -> list[float]:
    peers = [peer(rank, **said) for rank, said in enumerate(members)]
    ranks = range(len(peers))
    said = [variables(Gang(rank, peers), per_gpu=per_gpu)["FORGE_SPEED_SHARE"] for rank in ranks]
    return [float(share) for share in said]


FAST: dict[str, Any] = {"speed": 300.0, "method": "torch"}
SLOW: dict[str, Any] = {"speed": 100.0, "method": "torch"}


def test_the_batch_is_shared_by_measured_speed() -> None:
    assert told_shares(FAST, SLOW) == [0.75, 0.25]


@pytest.mark.parametrize(
    "other",
    [
        {},
        {"speed": 100.0},
        {"method": "torch"},
        {"speed": 100.0, "method": "numpy"},
    ],
)
def test_the_shares_are_equal_unless_all_were_measured_alike(other: dict[str, Any]) -> None:
    assert told_shares(FAST, other) == [0.5, 0.5]
    assert told_shares(other, FAST, SLOW) == [0.333333] * 3


def test_speeds_without_a_method_are_not_compared() -> None:
    assert told_shares({"speed": 300.0}, {"speed": 100.0}) == [0.5, 0.5]


def test_a_process_on_several_gpus_has_the_speed_of_all() -> None:
    assert told_shares({**SLOW, "gpus": 3}, {**SLOW, "gpus": 1}) == [0.75, 0.25]


def test_each_process_on_one_gpu_has_a_share_of_its_own() -> None:
    # Of 2 * 100 + 3 * 200.
    members = {**SLOW, "gpus": 2}, {**SLOW, "gpus": 3, "speed": 200.0}
    assert told_shares(*members, per_gpu=True) == [0.125, 0.25]
    # One of the five.
    assert told_shares({**SLOW, "gpus": 2}, {"gpus": 3}, per_gpu=True) == [0.2, 0.2]


def test_the_job_learns_of_the_speeds_and_of_how_they_were_measured() -> None:
    said = json.loads(variables(Gang(0, (peer(0, **FAST), peer(1))), per_gpu=False)["FORGE_GANG"])
    assert [(one["speed"], one["method"]) for one in said["members"]] == [
        (300.0, "torch"),
        (None, None),
    ]


def test_a_member_is_believed_as_it_described_itself() -> None:
    told = peer(1, gpus=2, vendor="amd", speed=2.5)
    newer = {**told.details(), "color": "blue"}
    assert peer_of(Member(1, "gpu-1", 1, newer)) == told
    assert {"rank", "worker"}.isdisjoint(told.details())


@pytest.mark.parametrize(
    "change",
    [
        {"address": "gpu-1.example"},
        {"address": "10.0.0.6; rm -rf /"},
        {"port": 0},
        {"port": "many"},
        {"nonce": "short"},
        {"speed": 0},
        {"method": 5},
    ],
)
def test_a_member_that_cannot_be_understood_is_named(change: dict[str, JsonValue]) -> None:
    details = {**peer(1).details(), **change}
    with pytest.raises(MemberUnreadable, match=r"rank 1 \(worker gpu-1\).*" + next(iter(change))):
        peer_of(Member(1, "gpu-1", 1, details))


@pytest.mark.parametrize(
    ("members", "hints"),
    [
        ([{**FAST, "batch": 64}, {**SLOW, "batch": 64}], ["64", "21"]),
        ([{"batch": 64}, {"batch": 16}], ["16", "16"]),
        ([{**FAST, "batch": 64}, SLOW], [None, None]),
    ],
)
def test_the_batch_hint_follows_speed_and_memory(
    members: list[dict[str, Any]], hints: list[str | None]
) -> None:
    peers = tuple(peer(rank, **changes) for rank, changes in enumerate(members))
    told = [variables(Gang(rank, peers), per_gpu=False) for rank in range(len(peers))]
    assert [one.get("FORGE_BATCH_SIZE_HINT") for one in told] == hints
