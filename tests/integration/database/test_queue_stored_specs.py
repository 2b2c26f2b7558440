"""The tables hold every job spec that validation accepts; others are rejected."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from forge_schema.model.fields import is_name
from forge_schema.model.spec import MAX_INTEGER, UNASKED, YEAR_S, JobSpec, Resources, as_asked
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from support.queue.rig import spec

if TYPE_CHECKING:
    from support.queue.rig import Rig

TEXTS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=200
)
SEEN = st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=200)
NAMES = SEEN.filter(is_name) | st.sampled_from(
    ["%", "a'b", '"', "\\", "ü" * 200, "{}", "NULL", "🎈" * 200]
)
RESOURCES = st.builds(
    Resources,
    accelerator=st.sampled_from(["any", "cpu", "cuda", "rocm", "mps"]),
    gpus=st.integers(0, 64),
    gpu_model=NAMES,
    vram_mb=st.integers(0, MAX_INTEGER),
    cpus=st.floats(0.01, 4096),
    memory_mb=st.integers(1, MAX_INTEGER),
    disk_mb=st.integers(1, MAX_INTEGER),
)
SPECS = st.builds(
    JobSpec,
    name=NAMES,
    command=st.lists(TEXTS, min_size=1, max_size=5),
    owner=NAMES,
    queue=NAMES,
    priority=st.integers(-1000, 1000),
    env=st.dictionaries(st.sampled_from(["A", "PATH", "ü", "x y"]), TEXTS),
    image=st.none() | st.sampled_from(["python:3.11", f"localhost:5000/a/b@sha256:{'0' * 64}"]),
    resources=RESOURCES,
    labels=st.dictionaries(TEXTS.filter(lambda t: len(t) < 20), st.just("v*"), max_size=3),
    max_failures=st.integers(0, 10_000),
    max_losses=st.integers(0, 10_000),
    max_preemptions=st.integers(0, 10_000),
    backoff_s=st.integers(0, 86_400),
    timeout_s=st.none() | st.integers(1, YEAR_S),
    delay_s=st.floats(0, YEAR_S),
    idempotency_key=st.none() | NAMES,
)


@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(wanted=SPECS)
def test_whatever_a_spec_accepts_is_stored_and_read_back(rig: Rig, wanted: JobSpec) -> None:
    (job_id,) = rig.queue.submit([wanted.model_copy(update={"idempotency_key": None})])
    stored = rig.jobs.job(job_id)
    assert (stored["name"], stored["owner"], stored["queue"], stored["priority"]) == (
        wanted.name,
        wanted.owner,
        wanted.queue,
        wanted.priority,
    )
    assert stored["spec"] == as_asked(wanted.payload())
    asked, needs = wanted.resources, stored["spec"]["resources"]
    assert stored["spec"]["image"] == wanted.image
    assert [needs[name] for name in UNASKED] == [getattr(asked, name) for name in UNASKED]
    assert stored["timeout_s"] == wanted.timeout_s


def test_the_largest_labels_that_a_spec_accepts_are_stored(rig: Rig) -> None:
    # Text that does not compress, since an index entry may be stored compressed.
    labels = {f"{n:02}{chr(0x4E00 + 37 * n) * 3}": chr(0x5E00 + 91 * n) * 9 for n in range(29)}
    widest = "".join(chr(0x4E00 + 7 * n) for n in range(200))
    job_id = rig.submit(labels=labels, gpus=1, gpu_model=widest, queue=widest, owner=widest)
    assert rig.places(job_id) == ["ready"]
    with pytest.raises(ValidationError, match="labels"):
        spec(labels={**labels, "more": "x" * 200})


@pytest.mark.parametrize(
    "changes",
    [
        {"command": []},
        {"command": [""]},
        {"command": ["a\0b"]},
        {"name": ""},
        {"name": "x" * 201},
        {"name": "\0"},
        {"name": "\ud800"},
        {"owner": ""},
        {"queue": "a\0"},
        {"image": "a\0"},
        {"gpu_model": "a\0"},
        {"labels": {"a\0": "b"}},
        {"labels": {"a": "b\0"}},
        {"labels": {"a": ""}},
        {"idempotency_key": "\0"},
        {"env": {"A": "\0"}},
        {"env": {"": "x"}},
        {"env": {"A=B": "x"}},
        {"env": {"FORGE_JOB_ID": "1"}},
        {"env": {"LD_PRELOAD": "x"}},
        {"env": {"NVIDIA_VISIBLE_DEVICES": "all"}},
        {"priority": 1001},
        {"cpus": 0.0099},
        {"cpus": float("nan")},
        {"cpus": float("inf")},
        {"gpus": -1},
        {"memory_mb": 2**31},
        {"disk_mb": 2**31},
        {"vram_mb": 2**31},
        {"max_failures": -1},
        {"max_losses": 40_000},
        {"backoff_s": -1},
        {"timeout_s": 0},
        {"timeout_s": 2**31},
        {"delay_s": float("inf")},
        {"delay_s": float("nan")},
        {"checkpoint_interval_s": float("inf")},
        {"bundle_digest": "abc"},
        {"unheard_of": 1},
    ],
    ids=repr,
)
def test_what_cannot_be_stored_or_run_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        spec(**changes)
