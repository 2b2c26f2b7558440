"""Dashboards for Grafana, and alerts: their files are complete, and query only what exists."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import psycopg
import pytest
import yaml
from forge_schema.model.lease import Usage
from forge_schema.model.states import Reason, Role
from support.http.exposition import Exposition
from support.workers.worker import bed

if TYPE_CHECKING:
    from support.http.api import Api
    from support.nvml.fake import FakeNvml
    from support.queue.rig import Rig

FOLDER = Path(__file__).parents[3] / "infra" / "grafana"
RULES = yaml.safe_load((FOLDER.parent / "monitoring" / "rules.yml").read_text(encoding="utf-8"))
FILES = ("forge-sql.json", "forge-prometheus.json")
NEEDED = {"uid", "title", "schemaVersion", "version", "panels", "templating", "time", "refresh"}
KINDS = {"stat", "table", "timeseries"}
NAME = re.compile(r"\bforge_[a-z_]+")
# What Grafana expands its macros to.
MACROS = (
    (r"\$__timeFilter\((\w+)\)", r"\1 BETWEEN '2030-12-25T00:00:00Z' AND '2031-01-20T00:00:00Z'"),
    (r"\$__timeGroup\((\w+), '1h'\)", r"floor(extract(epoch FROM \1) / 3600) * 3600"),
)


def dashboard(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / name).read_text(encoding="utf-8"))
    return found


def queries(name: str, field: str) -> list[tuple[str, str]]:
    """Return each panel's title with each of its queries."""
    panels = dashboard(name)["panels"]
    return [(panel["title"], target[field]) for panel in panels for target in panel["targets"]]


@pytest.mark.parametrize("name", FILES)
def test_a_dashboard_has_what_grafana_needs(name: str) -> None:
    found = dashboard(name)
    assert set(found) >= NEEDED
    source = found["templating"]["list"][0]
    assert (source["type"], source["name"]) == ("datasource", "datasource")
    ids = [panel["id"] for panel in found["panels"]]
    assert len(ids) == len(set(ids)) > 10
    taken: set[tuple[int, int]] = set()
    for panel in found["panels"]:
        assert panel["type"] in KINDS
        place = panel["gridPos"]
        assert 0 < place["w"] <= 24 - place["x"]
        cells = {
            (place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])
        }
        assert not cells & taken, f"{panel['title']} lies on another"
        taken |= cells
        refs = [target["refId"] for target in panel["targets"]]
        assert len(refs) == len(set(refs)) > 0
        for asked in (panel, *panel["targets"]):
            assert asked["datasource"] == {"type": source["query"], "uid": "${datasource}"}


def test_every_sql_query_runs_and_has_something_to_show(rig: Rig) -> None:
    worker = rig.worker(gpus=[{"uuid": "GPU-1", "name": "A100", "vram_mb": 1}])
    used = Usage(gpu_seconds=60, energy_j=5, cost=2)
    for reason in (Reason.SUCCEEDED, Reason.EXIT_CODE, Reason.PREEMPTED):
        rig.submit(gpus=1, max_failures=0)
        grant = worker.claim_one()
        rig.clock.advance(60)
        rig.finish(grant, reason, usage=used)
    rig.submit(gpus=9)
    empty = []
    with psycopg.connect(rig.url, autocommit=True) as connection:
        for title, asked in queries("forge-sql.json", "rawSql"):
            for macro, meaning in MACROS:
                asked = re.sub(macro, meaning, asked)  # noqa: PLW2901  step by step
            assert "$_" not in asked
            rows = connection.execute(asked.encode()).fetchall()
            if not any(value is not None for row in rows for value in row):
                empty.append(title)
    assert empty == []


def test_every_metric_that_is_asked_for_is_told(
    api: Api, rig: Rig, tmp_path: Path, nvml: FakeNvml
) -> None:
    nvml.gpu("GPU-a")
    told = Exposition(api.key("ann", Role.ADMIN).call("GET", "/metrics").text).names
    (tmp_path / "bed").mkdir()
    with bed("process", tmp_path / "bed", rig.url) as made:
        made.environment = nvml.environment
        worker = made.worker(metrics_port=0, sample_s=0.2, gpus="all", max_jobs=1)
        port = re.search(r"metrics_served .*port=(\d+)", worker.output)
        assert port
        told |= Exposition(httpx.get(f"http://127.0.0.1:{port[1]}/metrics", timeout=60).text).names
    expressions = [text for _, text in queries("forge-prometheus.json", "expr")]
    expressions += [rule["expr"] for rule in RULES["groups"][0]["rules"]]
    asked = {name for text in expressions for name in NAME.findall(text)}
    assert len(asked) > 20
    assert asked <= told
