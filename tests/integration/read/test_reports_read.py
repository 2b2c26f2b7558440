"""Who reads the reports, and in which form: the command, HTTP, a role in the database, the page."""

from __future__ import annotations

import csv
import io
import json
import re
import secrets
import tomllib
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from forge_schema.database import report_role
from forge_schema.database.migrate import upgrade
from forge_schema.database.statements import views
from forge_schema.database.tables import metadata
from forge_schema.model.states import Role
from forge_schema.read.report_definitions import REPORTS
from forge_schema.read.reports import Reports
from psycopg import sql
from support.client.command import command
from support.past.varied import fill

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.http.api import Api
    from support.queue.rig import Rig

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "reporting.md").read_text(encoding="utf-8")
COLUMNS = ROOT / "schema" / "forge_schema" / "read" / "views.toml"
QUESTIONS = re.findall(r"^ *```sql\n(.*?)^ *```", PAGE, re.MULTILINE | re.DOTALL)
# The second is for views that nobody can write to.
CANNOT_WRITE = (
    psycopg.errors.InsufficientPrivilege,
    psycopg.errors.ObjectNotInPrerequisiteState,
)
EVIL = '=cmd|"a",b'


@pytest.fixture(scope="module")
def filled(shared_rig: Rig) -> Rig:
    fill(shared_rig, steps=12)
    shared_rig.submit(name=EVIL)
    return shared_rig


@contextmanager
def login(url: str) -> Iterator[str]:
    """Give the URL of a user who is in the role and nothing else."""
    name = f"reader_{secrets.token_hex(4)}"
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {name} LOGIN IN ROLE {report_role.ROLE}")
        yield url.replace("postgres@", f"{name}@", 1)
        admin.execute(f"DROP OWNED BY {name}")
        admin.execute(f"DROP ROLE {name}")


def test_the_role_reads_every_view_and_nothing_else(database_url: str) -> None:
    with login(database_url) as url, psycopg.connect(url, autocommit=True) as reader:
        for view in views():
            reader.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(view)))
            with pytest.raises(CANNOT_WRITE):
                reader.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier(view)))
        for table in metadata.tables:
            for act in ("SELECT * FROM {}", "DELETE FROM {}"):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    reader.execute(sql.SQL(act).format(sql.Identifier(table)))


def test_who_might_read_a_view_may_after_an_upgrade(database_url: str) -> None:
    name = f"Odd {secrets.token_hex(4)}"
    role = sql.Identifier(name)
    with psycopg.connect(database_url, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE ROLE {}").format(role))
        admin.execute(sql.SQL("GRANT SELECT ON cost TO {} WITH GRANT OPTION").format(role))
        admin.execute("GRANT SELECT ON sla TO PUBLIC")
        before = readers(admin)
        upgrade(database_url)
        assert readers(admin) == before
        assert ("cost", f'"{name}"', True) in before
        assert {view for view, who, _ in before if who == report_role.ROLE} == set(views())
        admin.execute(sql.SQL("DROP OWNED BY {}").format(role))
        admin.execute(sql.SQL("DROP ROLE {}").format(role))


def readers(admin: psycopg.Connection[tuple[object, ...]]) -> set[tuple[str, str, bool]]:
    with admin.cursor() as cursor:
        return set(report_role.granted(cursor))


def test_a_user_who_may_make_no_roles_upgrades_without_one(
    empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = secrets.token_hex(4)
    monkeypatch.setattr(report_role, "ROLE", f"forge_report_{token}")
    name = f"migrator_{token}"
    with psycopg.connect(empty_database_url, autocommit=True) as admin:
        database = sql.Identifier(admin.info.dbname)
        admin.execute(f"CREATE ROLE {name} LOGIN")
        admin.execute(sql.SQL("ALTER DATABASE {} OWNER TO {}").format(database, sql.SQL(name)))
        url = empty_database_url.replace("postgres@", f"{name}@", 1)
        upgrade(url)
        assert not report_role.exists(admin)
        admin.execute(f"CREATE ROLE forge_report_{token} NOLOGIN")
        upgrade(url)
        assert {view for view, *_ in readers(admin)} == set(views())
        admin.execute(f"REASSIGN OWNED BY {name} TO postgres")
        for role in (name, f"forge_report_{token}"):
            admin.execute(f"DROP OWNED BY {role}")
            admin.execute(f"DROP ROLE {role}")


def test_the_command_prints_each_form(filled: Rig, tmp_path: Path) -> None:
    forge = command(tmp_path, FORGE_DATABASE_URL=filled.url, FORGE_STORE_URL=tmp_path.as_uri())
    wanted = Reports(filled.database).rows("jobs")
    listed = forge("report", "list", "-o", "jsonl").stdout.splitlines()
    assert [json.loads(line)["report"] for line in listed] == list(REPORTS)
    by_json = json.loads(forge("report", "show", "jobs", "-o", "json").stdout)
    assert [row["job_id"] for row in by_json] == [row["job_id"] for row in wanted]
    by_csv = list(csv.DictReader(io.StringIO(forge("report", "show", "jobs", "-o", "csv").stdout)))
    assert by_csv[0]["name"] == f"'{EVIL}"
    assert [row["job_id"] for row in by_csv] == [str(row["job_id"]) for row in wanted]
    assert [row["submitted_at"] for row in by_csv] == [row["submitted_at"] for row in by_json]
    told = forge("report", "show", "jobs", "--by", "owner, state", "-n", "1")
    assert told.stdout.split()[:3] == ["OWNER", "STATE", "JOBS"]
    assert "more than 1 row" in told.stderr
    twice = forge("report", "show", "jobs", "--by", "owner", "--by", "state")
    assert twice.stdout.split()[:3] == ["OWNER", "STATE", "JOBS"]


def test_the_command_writes_parquet_into_a_pipe_and_to_no_terminal(
    filled: Rig, tmp_path: Path
) -> None:
    forge = command(tmp_path, FORGE_DATABASE_URL=filled.url, FORGE_STORE_URL=tmp_path.as_uri())
    written = tmp_path / "cost.parquet"
    with forge.started("report", "show", "cost", "--since", "7d", "-o", "parquet") as process:
        assert isinstance(process.stdout, io.TextIOWrapper)
        written.write_bytes(process.stdout.buffer.read())
    from pyarrow import parquet  # noqa: PLC0415  slow to load, in each test process

    found = parquet.read_table(written).to_pylist()
    wanted = Reports(filled.database).rows("cost", since="7d")
    assert sorted(map(str, found)) == sorted(map(str, wanted))


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["nothing"], 3, "no report 'nothing'"),
        (["cost", "--by", "owner,price"], 2, "group by one or more of owner, queue, job_id"),
        (["cost", "--since", "lately"], 2, "2026-11-01"),
        (["cost", "--until", "lately"], 2, "2026-11-01"),
        (["queue_demand", "--since", "7d"], 2, "shows the current state"),
    ],
)
def test_the_command_says_what_it_cannot_do(
    filled: Rig, tmp_path: Path, arguments: list[str], code: int, words: str
) -> None:
    forge = command(tmp_path, FORGE_DATABASE_URL=filled.url, FORGE_STORE_URL=tmp_path.as_uri())
    told = forge("report", "show", *arguments)
    assert (told.returncode, told.stdout) == (code, "")
    assert words in told.stderr


def test_http_shows_owners_their_own_rows_and_admins_all(filled: Rig, shared_api: Api) -> None:
    admin, bob = shared_api.key("root", Role.ADMIN), shared_api.key("bob", Role.VIEWER)
    assert admin.get("/api/v1/reports")["items"] == list(REPORTS)
    owned = [name for name, report in REPORTS.items() if report.owned]
    assert bob.get("/api/v1/reports")["items"] == owned
    reports = Reports(filled.database)
    for name, report in REPORTS.items():
        path = f"/api/v1/reports/{name}?count=10000"
        rows = admin.get(path)["items"]
        assert len(rows) == len(reports.rows(name, count=10_000))
        if report.owned:
            own = bob.get(path)["items"]
            assert sorted(map(str, own)) == sorted(str(r) for r in rows if r["owner"] == "bob")
            groups = bob.get(f"/api/v1/reports/{name}?by=owner")["items"]
            assert {group["owner"] for group in groups} <= {"bob"}
        else:
            assert bob.call("GET", path).json()["code"] == "forbidden"


def test_http_refuses_what_it_cannot_answer(shared_api: Api) -> None:
    admin = shared_api.key("root", Role.ADMIN)
    for query, code in (
        ("by=job_id;DROP", "report_column_unknown"),
        ("since=soon", "since_invalid"),
        ("count=0", "invalid"),
        ("until=soon", "since_invalid"),
        ("till=7d", "invalid"),
    ):
        answer = admin.call("GET", f"/api/v1/reports/cost?{query}")
        assert (answer.status_code, answer.json()["code"]) == (422, code)


def test_the_page_has_twenty_questions_that_run(filled: Rig) -> None:
    assert len(QUESTIONS) == len(re.findall(r"^\d+\. .*\?$", PAGE, re.MULTILINE)) == 20
    with psycopg.connect(filled.url) as connection:
        for question in QUESTIONS:
            connection.execute(question.encode())


def test_the_reference_tells_every_view_column_by_column(filled: Rig) -> None:
    told = tomllib.loads(COLUMNS.read_text(encoding="utf-8"))
    assert sorted([*told, "job_status"]) == views(), f"each view has its columns in {COLUMNS}"
    with psycopg.connect(filled.url) as connection:
        for name, view in told.items():
            cursor = connection.execute(
                sql.SQL("SELECT * FROM {} LIMIT 0").format(sql.Identifier(name))
            )
            columns = [column for names in view["columns"] for column in names.split(", ")]
            found = [column.name for column in cursor.description or []]
            assert sorted(columns) == sorted(found), f"[{name}.columns] in {COLUMNS}"
