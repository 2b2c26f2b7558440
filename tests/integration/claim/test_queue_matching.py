"""Matching: a worker gets only jobs that it can serve, and jobs nobody can serve stay ready."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from forge_schema.model.states import State
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

if TYPE_CHECKING:
    from support.queue.rig import Rig

A100 = {"name": "NVIDIA A100-SXM4-80GB", "uuid": "GPU-a", "vram_mb": 81_920}
RTX = {"name": "NVIDIA GeForce RTX 3090", "uuid": "GPU-b", "vram_mb": 24_576}
MI300 = {"name": "AMD Instinct MI300X", "uuid": "GPU-c", "vram_mb": 196_608}
CUDA: dict[str, Any] = {"accelerator": "cuda", "gpus": [A100, RTX]}
TWINS = {**CUDA, "gpus": [A100, RTX, {**RTX, "uuid": "GPU-d"}]}

FITS = [
    ({}, {}),
    ({"cpus": 8}, {"cpus": 8}),
    ({"cpus": 0.5}, {"cpus": 0.5}),
    ({"memory_mb": 512}, {"memory_mb": 512}),
    ({"disk_mb": 700}, {"disk_mb": 700}),
    ({"accelerator": "cpu"}, {}),
    ({"accelerator": "any"}, CUDA),
    ({"accelerator": "cuda"}, CUDA),
    ({"gpus": 2}, TWINS),
    ({"gpus": 1, "gpu_model": "a100*"}, CUDA),
    ({"gpus": 1, "gpu_model": "A100-SXM4-80GB"}, CUDA),
    ({"gpus": 1, "gpu_model": "nvidia a100*"}, CUDA),
    ({"gpus": 1, "gpu_model": "*rtx*"}, CUDA),
    ({"gpus": 1, "gpu_model": "a?00*"}, CUDA),
    ({"gpus": 1, "gpu_model": "h100*|a100*"}, CUDA),
    ({"gpus": 1, "gpu_model": "a100-sxm4-80gb | h100"}, CUDA),
    ({"gpus": 1, "vram_mb": 81_920}, CUDA),
    ({"gpus": 2, "vram_mb": 20_000}, TWINS),
    ({"gpus": 1, "gpu_model": "instinct*"}, {"accelerator": "rocm", "gpus": [MI300]}),
    ({"gpus": 0, "gpu_model": "h100*"}, {}),
    ({"labels": {"zone": "eu"}}, {"labels": {"zone": "eu", "more": "1"}}),
    ({"labels": {"zone": "EU"}}, {"labels": {"zone": "eu"}}),
    ({"labels": {"zone": "eu-*"}}, {"labels": {"zone": "eu-west"}}),
    ({"labels": {"zone": "*"}}, {"labels": {"zone": ""}}),
    ({"labels": {"a": "1", "b": "?"}}, {"labels": {"a": "1", "b": "2"}}),
    ({"labels": {"a": "50%"}}, {"labels": {"a": "50%"}}),
    ({"target": "auto"}, {"local": True}),
    ({"target": "local"}, {"local": True}),
    ({"target": "worker"}, {"local": False}),
    ({"spot": "never"}, {}),
    ({"spot": "prefer"}, {}),
    ({"spot": "only"}, {"labels": {"forge.spot": "yes"}}),
    ({"max_price": 2.5}, {"price_per_hour": 2.5}),
    ({"max_price": 0}, {"price_per_hour": 0}),
]
FITS_NOT = [
    ({"cpus": 8.1}, {"cpus": 8}),
    ({"memory_mb": 513}, {"memory_mb": 512}),
    ({"disk_mb": 701}, {"disk_mb": 700}),
    ({"accelerator": "cuda"}, {}),
    ({"accelerator": "cpu"}, CUDA),
    ({"accelerator": "rocm"}, CUDA),
    ({"gpus": 1}, {}),
    ({"gpus": 2}, CUDA),
    ({"gpus": 3}, TWINS),
    ({"gpus": 2, "gpu_model": "a100*"}, CUDA),
    ({"gpus": 1, "gpu_model": "h100*"}, CUDA),
    ({"gpus": 1, "gpu_model": "100*"}, CUDA),
    ({"gpus": 1, "gpu_model": "h100*|100*"}, CUDA),
    ({"gpus": 1, "vram_mb": 81_921}, CUDA),
    ({"gpus": 2, "vram_mb": 30_000}, CUDA),
    ({"gpus": 1, "gpu_model": "*3090", "vram_mb": 30_000}, CUDA),
    ({"gpus": 1, "vram_mb": 1}, {"accelerator": "cuda", "gpus": [{"name": "Unknown"}]}),
    ({"labels": {"zone": "eu"}}, {}),
    ({"labels": {"zone": "eu"}}, {"labels": {"zone": "us"}}),
    ({"labels": {"zone": "eu-*"}}, {"labels": {"zone": "eu"}}),
    ({"labels": {"zone": "*"}}, {"labels": {"other": "x"}}),
    ({"labels": {"a": "1", "b": "2"}}, {"labels": {"a": "1"}}),
    ({"labels": {"a": "5%"}}, {"labels": {"a": "50"}}),
    ({"labels": {"a": "_"}}, {"labels": {"a": "x"}}),
    ({"labels": {"a": "e"}}, {"labels": {"a": "eu"}}),
    ({"target": "local"}, {"local": False}),
    ({"target": "worker"}, {"local": True}),
    ({"spot": "never"}, {"labels": {"forge.spot": "yes"}}),
    ({"spot": "only"}, {}),
    ({"max_price": 2.5}, {"price_per_hour": 2.6}),
    ({"max_price": 2.5}, {}),
]


@pytest.mark.parametrize(("wanted", "machine"), FITS)
def test_a_worker_that_has_what_is_wanted_is_granted_the_job(
    rig: Rig, wanted: dict[str, Any], machine: dict[str, Any]
) -> None:
    job_id = rig.submit(**wanted)
    assert rig.worker(**machine).claim_one().fence.job_id == job_id


@pytest.mark.parametrize(("wanted", "machine"), FITS_NOT)
def test_a_worker_that_lacks_something_is_not_granted_the_job(
    rig: Rig, wanted: dict[str, Any], machine: dict[str, Any]
) -> None:
    job_id = rig.submit(priority=9, **wanted)
    other = rig.submit()
    assert rig.worker(**machine).claim_one().fence.job_id == other
    assert rig.state(job_id) == State.READY


def test_a_waiting_job_goes_to_the_first_worker_that_can_serve_it(rig: Rig) -> None:
    job_id = rig.submit(labels={"zone": "moon"})
    rig.worker("earth").claim(count=9)
    assert rig.state(job_id) == State.READY
    assert rig.worker("moon", labels={"zone": "moon"}).claim_one().fence.job_id == job_id


def test_a_worker_that_registers_anew_with_more_is_matched_anew(rig: Rig) -> None:
    rig.submit(gpus=1)
    assert rig.worker().claim() == []
    assert rig.worker(**CUDA).claim_one().attempt == 1


@settings(
    max_examples=300,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    pattern=st.text("ab*?%_\\.[ß", max_size=6),
    value=st.text("abAB%_\\.[ß", max_size=6),
)
def test_a_glob_knows_stars_question_marks_and_no_other_magic(
    rig: Rig, pattern: str, value: str
) -> None:
    parts = {"*": ".*", "?": "."}
    regex = "".join(parts.get(char) or re.escape(char) for char in pattern.lower())
    wanted = re.fullmatch(regex, value.lower(), re.DOTALL) is not None
    assert rig.row("SELECT forge_glob(%s, %s) AS matches", pattern, value)["matches"] is wanted
