"""Pages of jobs by a filter: against the filter's meaning said in Python, and by keyset."""

from __future__ import annotations

import fnmatch
import re
from datetime import timedelta
from operator import eq, ge, gt, le, lt
from typing import TYPE_CHECKING, Any

import pytest
from forge_schema.job_filter import Filter, parse
from forge_schema.model.attempt_records import MetricRecord
from forge_schema.model.quantities import moment
from forge_schema.model.states import Reason, State
from forge_schema.queue.cancel_retry import JobActs
from forge_schema.read import job_pages
from forge_schema.read.job_pages import page

if TYPE_CHECKING:
    from support.queue.rig import Rig

FILTERS = (
    "",
    "state:running",
    "state:running,queued",
    "state:held",
    "state:queued",
    "state:queued,failed owner:ann",
    "state:failed queue:night",
    "state:held,running owner:ann",
    "state:succeeded",
    "state:failed,cancelled",
    "state:failed owner:ann",
    "owner:a*",
    "owner:bob queue:night",
    "queue:n?ght",
    "queue:none",
    "name:res*",
    "name:resnet-1,RESNET-2",
    'net "1"',
    "7 12,40 owner:bob",
    "id:7,40 state:succeeded,failed",
    "param:lr",
    "param:lr=1e-2",
    "param:lr=0.0*,lr=0.1 param:net=res*",
    "param:lr>0.001 param:lr<=0.1",
    "param:lr>=1,lr<1e-2 owner:ann",
    "param:net=50",
    "param:lr=0.01 state:failed",
    "metric:loss",
    "metric:loss<0.3",
    "metric:loss.min<=0.2 metric:loss.max>=1",
    "metric:loss.best<0.2,acc.best=0.5",
    "metric:loss=NaN",
    "metric:a.b>3 owner:ann",
    "result:best.acc>=0.5",
    "result:note=good* state:succeeded",
    "result:nope",
    "net state:succeeded,running",
    "label:zone=eu*",
    "label:zone label:disk=ssd",
    "label:zone=us,zone=eu*",
    "label:nope",
    "worker:w1",
    "worker:w* state:running",
    "worker:w1 state:queued",
    "reason:oom",
    "reason:oom,timeout owner:bob",
    "reason:succeeded",
    "reason:oom state:failed",
    "kind:test",
    "kind:command state:failed",
    "sweep:s1",
    "sweep:s1,s2 state:queued",
    "sweep:s*",
    "experiment:e1",
    "experiment:e0,e1 state:queued",
    "experiment:e*",
    "since:1h",
    "since:1h state:queued,failed",
    "since:3h queue:night",
    "tag:paper",
    "tag:paper tag:v1,v2 owner:ann",
    "tag:v*",
    "archived:yes",
    "archived:yes,no tag:paper",
    "archived:yes,no",
)


# Which table of a run a term is about.
TABLES = {"param": "parameters", "metric": "metrics", "result": "result"}


@pytest.fixture(scope="module")
def past(shared_rig: Rig) -> Rig:
    """Jobs of every state, of two owners, over some hours."""
    rig = shared_rig
    ends = (Reason.SUCCEEDED, Reason.OOM, Reason.TIMEOUT, Reason.EXIT_CODE, Reason.CANCELLED)
    for n in range(60):
        more: dict[str, Any] = {
            "labels": [{}, {"zone": "eu-1"}, {"zone": "us", "disk": "ssd"}][n % 3]
        }
        more |= {"kind": "test"} if n % 7 == 0 else {}
        more |= {"sweep": f"s{n % 3}"} if n % 5 == 0 else {}
        more |= {"experiment": f"e{n % 3}"} if n % 2 == 0 else {}
        more |= {"delay_s": 86_400} if n % 11 == 0 else {}
        lr = {"lr": (0.001, 0.01, 0.1, 1, 1.5)[n % 5]} if n % 8 else {}
        more |= {"parameters": {**lr, "net": ("resnet", "vgg", 50, "50", True)[n % 5]}}
        queue, owner = ("night" if n % 4 == 0 else "default"), ("bob" if n % 3 == 0 else "ann")
        rig.submit(name=f"resnet-{n % 6}", queue=queue, owner=owner, max_failures=0, **more)
        rig.clock.advance(300)
        if n % 3 == 2:
            labels = {"zone": "eu-1" if n % 2 else "us", "disk": "ssd"}
            for grant in rig.worker(f"w{n % 2}", labels=labels).claim(2):
                job_id = grant.fence.job_id
                if job_id % 4 < 2:
                    last: Any = "NaN" if job_id % 3 else 1 / job_id
                    lines: list[Any] = [
                        {"loss": 1.5, "acc": 0.5},
                        {"loss": 0.1 + job_id / 100, "a.b": job_id},
                    ]
                    lines += [{"loss": last, "acc": 0.25}]
                    said = [MetricRecord(n, n, values) for n, values in enumerate(lines)]
                    assert rig.records.add_metrics(grant.fence, said)
                if job_id % 6:
                    result = {"best": {"acc": job_id / 60}, "note": f"good {job_id}"}
                    assert rig.records.add_result(grant.fence, result)
                    rig.finish(grant, ends[job_id % 5])
    acts = JobActs(rig.database, owner=None, actor="user:ann")
    none: dict[str, Any] = {"note": None, "add": (), "remove": (), "archived": None}
    acts.annotate(range(1, 61, 2), **{**none, "add": ["paper"]})
    acts.annotate(range(2, 61, 3), **{**none, "add": ["v1", "paper"]})
    acts.annotate(range(4, 61, 4), **{**none, "add": ["v2"], "archived": True})
    acts.annotate(range(20, 40), **{**none, "archived": True})
    for owner in ("ann", "bob"):
        rig.submit(owner=owner, after_ok=[rig.submit(owner=owner, delay_s=86_400)])
    return rig


def fits(wanted: Filter, job: dict[str, Any]) -> bool:
    """Tell whether a job fits a filter; an independent reading of the docs."""
    plain = {
        k: str(job[k])
        for k in ("state", "owner", "queue", "reason", "kind", "sweep", "experiment", "worker")
    } | {"archived": "yes" if job["archived"] else "no"}
    for key, values in wanted.terms.items():
        if key == "state":
            meant = {"queued": ("ready", "scheduled"), "failed": ("failed", "dead")}
            good = any(job["state"] in meant.get(v, (v,)) for v in values)
        elif key == "since":
            good = job["submitted_at"] >= moment(values[0], job["now"])
        elif key == "id":
            good = str(job["job_id"]) in values
        elif key == "name":
            good = any(fnmatch.fnmatchcase(job["name"].lower(), v.lower()) for v in values)
        else:
            good = any(fnmatch.fnmatchcase(plain[key], v) for v in values)
        if not good:
            return False
    for labels in wanted.each("label"):
        pairs = [(n, v if s else "*") for n, s, v in (label.partition("=") for label in labels)]
        if not any(
            n in job["labels"] and fnmatch.fnmatchcase(job["labels"][n], v) for n, v in pairs
        ):
            return False
    figures = {key: job[table] for key, table in TABLES.items()}
    if not all(
        any(is_so(text, figures[key]) for text in said)
        for key, said in wanted.repeated
        if key in figures
    ):
        return False
    return kept(wanted, job) and all(word.lower() in job["name"].lower() for word in wanted.words)


def kept(wanted: Filter, job: dict[str, Any]) -> bool:
    """Tell whether a filter wants a job with these tags, and archived ones if it is."""
    if job["archived"] and not {"archived", "id"} & set(wanted.terms):
        return False
    return all(
        any(fnmatch.fnmatchcase(tag, v) for tag in job["tags"] for v in tags)
        for tags in wanted.each("tag")
    )


def is_so(text: str, figures: dict[str, Any]) -> bool:
    """Tell whether a term's value is true of a job's parameters, metrics or result."""
    name, sign, said = re.fullmatch(r"([\w.]+)([<=>]*)(.*)", text).groups()  # type: ignore[union-attr]
    value = figures.get(name)
    if value is None or not sign:
        return value is not None
    if sign == "=" and fnmatch.fnmatchcase(str(value), said):
        return True
    compared = {"<": lt, "<=": le, "=": eq, ">=": ge, ">": gt}[sign]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return (
        is_number
        and re.search(r"\d", said) is not None
        and "*" not in said
        and compared(value, float(said))
    )


def everything(rig: Rig) -> list[dict[str, Any]]:
    rows = rig.rows(
        "SELECT job_status.*, job.kind, job.sweep, shape.labels,"
        " coalesce(job.spec -> 'parameters', '{}') AS parameters,"
        " forge_now() AS now"
        " FROM job_status JOIN job ON job.id = job_status.job_id JOIN lane ON lane.id = job.lane_id"
        " JOIN shape ON shape.id = lane.shape_id ORDER BY job_id DESC"
    )
    of_runs = {run["job_id"]: run for run in rig.rows("SELECT job_id, metrics, result FROM runs")}
    for row in rows:
        row["metrics"], row["result"] = {}, {}
        for name, told in of_runs[row["job_id"]]["metrics"].items():
            row["metrics"] |= {name: told["last"]}
            row["metrics"] |= {f"{name}.{kind}": told[kind] for kind in ("min", "max")}
            row["metrics"][f"{name}.best"] = told["min" if name == "loss" else "max"]
        for name, value in (of_runs[row["job_id"]]["result"] or {}).items():
            inner = value if isinstance(value, dict) else {}
            row["result"] |= {name: value, **{f"{name}.{key}": v for key, v in inner.items()}}
    return rows


# How many jobs a page looks at, and how many ready ones count as few: as they are, and tiny.
@pytest.mark.parametrize(("look", "few"), [(job_pages.LOOK, job_pages.SORTABLE), (15, 3)])
def test_a_filter_finds_what_it_says(
    past: Rig, monkeypatch: pytest.MonkeyPatch, look: int, few: int
) -> None:
    monkeypatch.setattr(job_pages, "LOOK", look)
    monkeypatch.setattr(job_pages, "SORTABLE", few)
    jobs = everything(past)
    assert {job["state"] for job in jobs} == {s.value for s in State}
    assert sum(job["archived"] for job in jobs) > 15
    exact = f"since:{(past.clock.now - timedelta(hours=2)).isoformat()}"
    for text in (*FILTERS, exact, "since:today", "since:yesterday owner:ann"):
        wanted = parse(text)
        for scope in (None, ["ann"], ["ann", "bob"]):
            mine = [job for job in jobs if scope is None or job["owner"] in scope]
            expected = [job["job_id"] for job in mine if fits(wanted, job)]
            assert found(past, wanted, scope) == expected, (text, scope)


def test_a_filter_by_id_chooses_among_jobs(past: Rig) -> None:
    rows = job_pages.among(past.database, parse("7,9 owner:ann,bob"), [7, 8])
    assert [row["job_id"] for row in rows] == [7]


def found(rig: Rig, wanted: Filter, scope: list[str] | None) -> list[int]:
    """Return what all pages hold."""
    ids: list[int] = []
    before = None
    for _ in range(100):
        got = page(rig.database, wanted, scope=scope, before=before, count=13)
        ids += [job["job_id"] for job in got.jobs]
        if got.before is None:
            return ids
        assert before is None or got.before < before
        before = got.before
    raise AssertionError(f"{wanted} has no end")
