"""Valid job requests, and the messages for invalid ones."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from forge_client import ClientError
from forge_client.project.request import Request, refused
from forge_schema.model.spec import JobSpec, as_asked
from forge_schema.model.states import Launcher
from pydantic import ValidationError

DIGEST = "75b4391a48f354b19e4f883ab80ec86b5bcefae3a664feec682ba8b1ec998d4a"
RICH: dict[str, Any] = {
    "env": {"A": "ä"},
    "parameters": {"lr": 1e-5, "on": True},
    "resources": {"gpus": 2, "memory_mb": 512},
    "labels": {"b": "1", "a": "2"},
    "stall": {"silent_log_s": 5},
}
RICH_DIGEST = "82ad684f2f662f6a2326f165cc25fcd67d30acbfa603d79a9899f1ac58386b21"


def refusal(**asked: Any) -> str:  # noqa: ANN401  fields of all types
    with pytest.raises(ValidationError) as caught:
        JobSpec(name="j", owner="ann", command=["ls"], **asked)
    return refused(caught.value.errors()[0]).message


def test_a_name_that_no_secret_may_have_is_refused_in_words() -> None:
    for name in ("BAD-NAME", "", "1ST", "é", "A" * 101, "A\n"):
        said = refusal(secrets=["GOOD", name])
        assert said.startswith(f"secrets: {name!r} is not a valid name of a secret: use up to")
    assert "FORGE_X is reserved" in refusal(secrets=["FORGE_X"])
    kept = JobSpec(name="j", owner="ann", command=["ls"], secrets=["_a1", "A" * 100])
    assert kept.payload()["secrets"] == ["_a1", "A" * 100]


def test_braces_that_would_match_nothing_are_refused() -> None:
    for pattern in ("{last,best}.pt", "runs/{a,}/x", "*.{pt,ckpt}"):
        assert "are not expanded: name each pattern on its own" in refusal(checkpoint=[pattern])
    kept = ["{epoch}.pt", "a,b.pt", "{a"]
    job = JobSpec(name="j", owner="ann", command=["ls"], checkpoint=kept)
    assert job.payload()["checkpoint"] == kept


def test_what_a_job_may_not_say_of_signals_and_stalls_is_told_in_the_words_of_forge_toml() -> None:
    assert refusal(preempt_signal="SIGKILL") == (
        "preempt_signal: must be 'SIGTERM', 'SIGINT', 'SIGHUP', 'SIGUSR1' or 'SIGUSR2'"
    )
    lacking = "stall: set one of no_progress, silent_log and idle_gpu"
    assert refusal(stall={"idle_gpu_percent": 10}) == refusal(stall={}) == lacking
    said = refusal(stall={"silent_log_s": 0})
    assert said.startswith("stall.silent_log: must be greater than 0")
    assert refusal(grace_s=-1).startswith("grace: ")
    assert refusal(resources={"memory_mb": -1}).startswith("memory: ")
    # What is unknown is called as it was written.
    with pytest.raises(ClientError, match="no field 'grace_s'"):
        Request().changed({"grace_s": 5})


@pytest.mark.parametrize(
    ("written", "fields"),
    [
        ({"gpus": -1}, {"resources": {"gpus": -1}}),
        ({"streams": 0}, {"tuning": {"streams": 0}}),
        ({"memory": "0"}, {"resources": {"memory_mb": 0}}),
        ({"timeout": "0s"}, {"timeout_s": 0}),
        ({"idle_gpu_percent": 100}, {"stall": {"idle_gpu_s": 60, "idle_gpu_percent": 100}}),
    ],
)
def test_numbers_out_of_bounds_are_refused_in_the_queues_words_before_it_is_asked(
    written: dict[str, Any], fields: dict[str, Any]
) -> None:
    with pytest.raises(ClientError) as refused_here:
        Request().changed(written)
    assert refused_here.value.message == refusal(**fields)


def test_a_text_that_is_too_long_is_refused_with_its_length() -> None:
    assert refusal(experiment="e" * 201) == "experiment: must be at most 200 long, not 201"
    assert refusal(experiment="") == "experiment: must not be empty"


def test_an_image_without_a_name_is_refused() -> None:
    assert refusal(image="") == "image: it is empty: name an image, or leave it out"


@pytest.mark.parametrize("asked", [{"gpu_model": "a100*"}, {"vram_mb": 40_000}])
def test_where_it_is_said_what_a_gpu_is_like_it_is_said_how_many(asked: dict[str, Any]) -> None:
    assert "set gpus=1 too" in refusal(resources=asked)
    # A project's file may name a model, and one of its jobs want no GPU.
    for gpus in (0, 1):
        job = {"name": "j", "owner": "a", "command": ["ls"], "resources": {"gpus": gpus, **asked}}
        assert JobSpec.model_validate(job).resources.gpus == gpus


def test_a_jobs_digest_is_that_of_older_versions_which_stored_it() -> None:
    plain = JobSpec(name="j", owner="ann", command=["ls"])
    assert plain.content_digest() == DIGEST
    # A default that is named is a default, and the key is no content.
    named = plain.model_copy(update={"max_failures": 3, "idempotency_key": "k"})
    assert named.content_digest() == DIGEST
    rich = JobSpec(name="j", owner="ann", command=["ls"], **RICH)
    assert rich.content_digest() == RICH_DIGEST


def test_what_is_stored_has_no_default_but_those_that_workers_of_0_2_0_need() -> None:
    stored = JobSpec(name="j", owner="ann", command=["ls"]).payload()
    needed = {"cpus": 1.0, "gpus": 0, "memory_mb": None, "disk_mb": 10240}
    assert stored.pop("resources") == needed
    assert stored == {"command": ["ls"], "env": {}, "grace_s": 30, "checkpoint_interval_s": 30}
    whole = as_asked({**stored, "resources": needed})
    assert whole["image"] is None
    assert whole["resources"] == {**needed, "accelerator": "any", "gpu_model": "*", "vram_mb": 0}


def test_jobs_share_a_lane_exactly_if_they_share_a_shape_a_queue_and_an_owner() -> None:
    plain = JobSpec(name="j", owner="ann", command=["ls"])
    same: list[dict[str, Any]] = [{"name": "k"}, {"resources": {"cpus": None}}, {"priority": 3}]
    for asked in same:
        assert JobSpec(**{**plain.model_dump(), **asked}).lane() == plain.lane()
    others: list[dict[str, Any]] = [{"queue": "q"}, {"owner": "bob"}, {"labels": {"a": "b"}}]
    others += [{"image": "x"}, {"dockerfile": "D"}, {"kind": "custom", "handler": "h"}]
    others += [{"resources": {"gpus": 1}}, {"target": "local"}]
    lanes = {JobSpec(**{**plain.model_dump(), **asked}).lane() for asked in others}
    assert len(lanes | {plain.lane()}) == len(others) + 1


def test_a_gang_asks_for_machines_and_for_how_they_start_together() -> None:
    plain = JobSpec(name="j", owner="ann", command=["ls"], nodes=1)
    assert {"nodes", "launcher", "same"} & plain.payload().keys() == set()
    gang = JobSpec(
        name="j", owner="ann", command=["ls"], nodes=4, launcher=Launcher.TORCHRUN, same="zone"
    )
    payload, shape = gang.payload(), gang.shape()
    assert (payload["nodes"], payload["launcher"], payload["same"]) == (4, "torchrun", "zone")
    assert (shape["nodes"], shape["labels"]["zone"]) == (4, "*")
    wanted = gang.model_copy(update={"labels": {"zone": "eu-*"}})
    assert wanted.shape()["labels"]["zone"] == "eu-*"
    assert len({plain.lane(), gang.lane(), gang.model_copy(update={"nodes": 3}).lane()}) == 3


def test_a_gang_with_a_range_of_machines_needs_its_least() -> None:
    fixed = JobSpec(name="j", owner="ann", command=["ls"], nodes=2)
    ranged = fixed.model_copy(update={"max_nodes": 8})
    assert JobSpec(**ranged.model_dump()) == ranged
    assert "max_nodes" not in fixed.payload()
    wider = JobSpec(name="j", owner="ann", command=["ls"], nodes=2, max_nodes=8).payload()
    assert (wider["nodes"], wider["max_nodes"]) == (2, 8)
    assert (ranged.lane(), ranged.shape()) == (fixed.lane(), fixed.shape())


def test_what_only_a_gang_has_is_refused_without_one() -> None:
    for alone in ({"launcher": "ray"}, {"same": "zone"}):
        assert "is for jobs on several machines: set nodes to 2 or more" in refusal(**alone)
    said = refusal(launcher="mpirun", resources={"gpus": 8})
    assert "-- mpirun -np 8 PROGRAM" in said
    assert "1000" in refusal(nodes=1001)
    assert "a range of machines begins with 2 or more" in refusal(max_nodes=8)
    assert "a range of machines begins with 2 or more" in refusal(max_nodes=8, launcher="torchrun")
    assert "cannot go from 4 to 2: the least comes first" in refusal(nodes=4, max_nodes=2)
    assert "torchrun" in refusal(nodes=2, launcher="slurm")


@pytest.mark.parametrize("launcher", ["torchrun", "accelerate", "deepspeed"])
def test_a_launcher_starts_a_job_on_one_machine_that_knows_how(launcher: str) -> None:
    spec = JobSpec(name="j", owner="ann", command=["train.py"], launcher=Launcher(launcher))
    assert spec.payload()["launcher"] == launcher
    # Workers of 0.2.0 run the command alone: they do not have that word.
    assert spec.shape()["labels"] == {"forge.runs": "*projects*launchers*"}
    with_image = JobSpec(**{**spec.model_dump(), "image": "i"})
    assert with_image.shape()["labels"] == {"forge.runs": "*images*launchers*"}


def test_inputs_have_sound_names_and_sources_and_say_what_the_worker_must_offer() -> None:
    spec = partial(JobSpec, name="j", command=["a"], owner="ann")
    sources = {
        "data": "s3://bucket/a",
        "base": "artifact:7/out",
        "tok": "hf://org/name@v1",
        "own": "folder:sets",
        "/mnt/set": "folder:/mnt/set",
    }
    labels = spec(inputs=sources).shape()["labels"]
    offered = {name for name in labels if name.startswith("forge.input.")}
    kinds = ("s3", "artifact", "hf", "folder:sets", "folder:/mnt/set")
    assert offered == {f"forge.input.{kind}" for kind in kinds}
    # Elsewhere than it is, only a container can have it.
    for image, kind in (("a", "*images*"), (None, "*projects*")):
        placed = spec(image=image, inputs={"/data": "folder:/mnt/set"}).shape()["labels"]
        assert placed["forge.input.paths"] == kind
    wrong = {
        "a b": "s3://bucket",
        "/forge/x": "folder:x",
        "/a/../b": "folder:x",
        "x": "az://bucket",
        "y": "artifact:0",
        "z": "artifact:7/../8",
        "v": "s3://user:password@bucket",
        "w": "folder:a*",
    }
    for name, source in wrong.items():
        with pytest.raises(ValidationError):
            spec(inputs={name: source})
    with pytest.raises(ValidationError, match="write s3://bucket/a, with the secrets AWS_ENDPOINT"):
        spec(inputs={"x": "gs://bucket/a"})
    for both in (("a", "A"), ("/a", "/a/b")):
        with pytest.raises(ValidationError, match="overlap"):
            spec(inputs=dict.fromkeys(both, "folder:x"))
