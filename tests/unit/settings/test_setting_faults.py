"""What forge-server, forge-sweeper and forge-worker say about wrong settings, and their help."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from forge_functions import program, server
from forge_functions.settings import FunctionsSettings
from forge_schema.program.help import text
from forge_schema.sweeper import main as sweeper
from forge_worker import main as worker

if TYPE_CHECKING:
    from pathlib import Path

GOOD = {
    "FORGE_DATABASE_URL": "postgresql:///forge",
    "FORGE_STORE_URL": "file:///store",
    "FORGE_SERVER_SECRET": "s" * 32,
}
MAKE = "FORGE_SERVER_SECRET=$(python3 -c 'import secrets; print(secrets.token_hex(32))')"


def told(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    flags: list[str],
    variables: dict[str, str],
) -> tuple[object, list[str]]:
    """Return the exit code of a program that does not start, and its lines."""
    for module in (program, sweeper, worker):
        monkeypatch.setattr(module, "hide", lambda: None)
        monkeypatch.setattr(module, "configure_log", lambda *_: None)
    mains = {
        "forge-server": program.main,
        "forge-sweeper": sweeper.main,
        "forge-worker": worker.main,
    }
    monkeypatch.setattr(sys, "argv", [name, *flags])
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    with pytest.raises(SystemExit) as ended:
        mains[name]()
    lines = capsys.readouterr().err.splitlines()
    assert all(line.startswith(f"{name}: ") for line in lines)
    return ended.value.code, [line.removeprefix(f"{name}: ") for line in lines]


def test_a_server_says_all_that_is_missing_with_an_example(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, lines = told(monkeypatch, capsys, "forge-server", [], {"FORGE_STORE_URL": ""})
    assert code == 2
    assert [line.partition(";")[0] for line in lines] == [
        "FORGE_DATABASE_URL (--database-url) is missing",
        "FORGE_STORE_URL (--store-url) is missing",
        "FORGE_SERVER_SECRET (--server-secret) is missing",
    ]
    assert lines[2].endswith(f"; for example {MAKE}")


def test_a_server_says_all_that_is_wrong_and_shows_no_secret(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = {
        "FORGE_SERVER_SECRET": "hidden",
        "FORGE_DATABASE_URL": "postgresql://ann:hidden@[/x",
        "FORGE_PREPARE": "maybe",
        "FORGE_STORE_URL": "s4://x",
    }
    flags = ["--port", "lots", "--tls-cert", "nope.pem"]
    code, lines = told(monkeypatch, capsys, "forge-server", flags, wrong)
    assert code == 2
    short = "FORGE_SERVER_SECRET (--server-secret): has 6 of at least 32 characters"
    assert f"{short}; for example {MAKE}" in lines
    assert "FORGE_PREPARE (--prepare): write true or false, and not 'maybe'" in lines
    assert "--port: write a whole number, and not 'lots'; for example FORGE_PORT=8900" in lines
    assert "--tls-cert: nope.pem cannot be read: No such file or directory" in lines
    assert [
        line for line in lines if line.startswith("FORGE_STORE_URL (--store-url): 's4://x' has")
    ]
    assert [
        line for line in lines if line.startswith("FORGE_DATABASE_URL (--database-url): end of")
    ]
    assert len(lines) == 6
    assert "hidden" not in "".join(lines)


@pytest.mark.parametrize(
    "case",
    [
        ("forge-server", ["--ssl", "x"], {}, 2, "did you mean --tls-cert and --tls-key?"),
        ("forge-server", [], {"FORGE_OIDC_ROLES": "{"}, 2, "_ROLES (--oidc-roles): it is not JSON"),
        ("forge-server", ["--tls-cert=x"], {}, 1, "--tls-cert: x cannot be read: No such file"),
        ("forge-server", [], {"FORGE_DATABASE_URL": "mysql://x"}, 1, "does not begin with post"),
        ("forge-sweeper", [], {"FORGE_SWEEP_S": "soon"}, 2, "_SWEEP_S (--sweep-s): write a number"),
        ("forge-sweeper", ["--offlin-s", "9"], {}, 2, "did you mean --offline-s?"),
        ("forge-sweeper", [], {"FORGE_STORE_URL": "s3://"}, 1, "it names no bucket"),
        ("forge-worker", [], {"FORGE_MAX_JOBS": "lots"}, 2, "FORGE_MAX_JOBS (--max-jobs): write"),
        ("forge-worker", [], {"FORGE_STORE_URL": "file:rel"}, 1, "_URL (--store-url): 'file:rel'"),
        ("forge-worker", ["--name", "x"], {}, 2, "did you mean --worker-name?"),
        ("forge-worker", ["--worker-id=x"], {}, 2, "did you mean --worker-name?"),
        ("forge-worker", ["--server-url=http://x"], {}, 2, "did you mean --url?"),
        ("forge-worker", ["--queue", "night"], {}, 2, "jobs of all queues"),
        ("forge-worker", ["-v"], {}, 2, "did you mean --verbose?"),
        ("forge-worker", ["--persistent"], {}, 2, "a worker stays unless --ephemeral"),
    ],
)  # fmt: skip
def test_a_wrong_setting_is_one_line_that_says_where_it_was_given(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    case: tuple[str, list[str], dict[str, str], int, str],
) -> None:
    name, flags, variables, code, said = case
    found, (line,) = told(monkeypatch, capsys, name, flags, {**GOOD, **variables})
    assert (found, said in line) == (code, True), line


def test_a_certificate_without_its_key_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "cert.pem").write_text("no certificate", encoding="utf-8")
    flags = ["--tls-cert", str(tmp_path / "cert.pem")]
    _, (line,) = told(monkeypatch, capsys, "forge-server", flags, GOOD)
    assert line.startswith(f"--tls-cert: {tmp_path / 'cert.pem'}: no usable certificate")


def test_help_has_every_setting_in_a_group_with_a_plain_type(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for main, kind in ((program.main, FunctionsSettings), (sweeper.main, sweeper.ProcessSettings)):
        monkeypatch.setattr(sys, "argv", ["program", "--help"])
        main()
        said = capsys.readouterr().out
        for name in kind.model_fields:
            assert f"[FORGE_{name.upper()}]" in said
        assert not [
            word for word in ("Others:", "SecretStr", "null", "dict[") if f" {word}" in said
        ]
    assert "--database-url TEXT  [FORGE_DATABASE_URL]" in said
    assert callable(server.main)
    assert text("", []) == ""
