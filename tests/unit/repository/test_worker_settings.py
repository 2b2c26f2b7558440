"""The help and the variables say the same as the settings themselves."""

from __future__ import annotations

import os
import subprocess
from typing import Any

import psutil
import pytest
from forge_schema.program.help import Setting
from forge_worker.settings import help as help_text
from forge_worker.settings.help import profile_rows, table
from forge_worker.settings.settings import WorkerSettings
from pydantic_settings import CliApp
from support.warm.process import Warm

NEEDED = {"FORGE_DATABASE_URL": "postgresql://x/y", "FORGE_STORE_URL": "file:///store"}
# A value for each setting which is not its default, as a variable has it.
GIVEN = {
    "url": "http://a", "token_file": "/token", "signing_key_file": "/key", "tls_ca": "/ca",
    "database_url": "postgresql://z",
    "store_url": "file:///z", "worker_name": "w", "worker_dir": "/w", "labels": "a=b", "tags": "t",
    "process_user": "nobody",
    "profile": "light", "gpus": "none", "runner": "docker", "default_image": "i", "network": "none",
    "allowed_images": "a,b", "pull": "never", "extra_mounts": "/a:/b", "secrets_dir": "/s",
    "gang_network": "host", "advertise_address": "10.0.0.5",
    "lock_dir": "/l", "spot": "aws", "spot_url": "http://127.0.0.1:9",
    "spot_machine": "yes",
    "exec_url": "http://b",
    "lease_ttl_s": "200", "lease_policy": "strict",
}  # fmt: skip


def test_help_has_every_setting() -> None:
    said = help_text.text()
    for setting in table():
        assert f"  {setting.flag}  [{setting.variable}]\n" in said
    assert {setting.name for setting in table()} == set(WorkerSettings.model_fields)
    words = " ".join(said.split())
    assert all(f"{flag} {value}" in words for _, flag, value in profile_rows())
    assert "lambda" not in said
    assert max(map(len, said.splitlines())) < 100
    assert said.index("--url") < said.index("--cpus") < said.index("--status")


# A token of its own is tried with the settings about servers.
@pytest.mark.parametrize("setting", [s for s in table() if s.name != "token"], ids=lambda s: s.name)
def test_every_setting_has_a_variable_and_a_flag(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {**NEEDED}
    if setting.name in ("url", "token_file"):
        environment = {"FORGE_STATUS": "1"}
    if setting.name == "on_idle_exit":
        environment |= {"FORGE_EXIT_AFTER_IDLE": "15m"}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    before = CliApp.run(WorkerSettings, cli_args=[])
    is_switch = isinstance(getattr(before, setting.name), bool)
    value = GIVEN.get(setting.name, str(not getattr(before, setting.name)) if is_switch else "42")
    flag, _, place = setting.flag.partition(" ")
    by_flag = CliApp.run(WorkerSettings, cli_args=[flag, value] if place else [flag])
    monkeypatch.setenv(setting.variable, value)
    by_variable = CliApp.run(WorkerSettings, cli_args=[])
    found: list[Any] = [getattr(by, setting.name) for by in (before, by_flag, by_variable)]
    assert found[1] == found[2] != found[0]


@pytest.mark.parametrize(
    ("profile", "said"),
    [
        ("benchmark", {"max_jobs": 1, "memory_reserve_mb": 0}),
        ("test", {"max_jobs": 4 * (psutil.cpu_count() or 1), "poll_s": 1}),
        ("light", {"max_jobs": 2, "cpus": max(1, (psutil.cpu_count() or 1) / 2)}),
        ("", {"max_jobs": 64, "max_cpu_percent": None}),
    ],
)
def test_profile_sets_defaults(
    profile: str, said: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**NEEDED, "FORGE_PROFILE": profile}.items():
        monkeypatch.setenv(name, value)
    read = CliApp.run(WorkerSettings, cli_args=[])
    assert {name: getattr(read, name) for name in said} == said


def test_what_is_set_besides_a_profile_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**NEEDED, "FORGE_MAX_JOBS": "7", "FORGE_CPUS": "3"}.items():
        monkeypatch.setenv(name, value)
    flags = ["--profile", "light", "--cpus", "1.5", "--max-cpu-percent", "99"]
    read = CliApp.run(WorkerSettings, cli_args=flags)
    assert (read.max_jobs, read.cpus, read.max_cpu_percent) == (7, 1.5, 99)
    assert read.max_memory_percent == 70
    assert CliApp.run(WorkerSettings, cli_args=["--profile", "test"]).max_jobs == 7


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--nope"], "unrecognized arguments: --nope; --help lists the flags"),
        (["--max-jobs"], "argument --max-jobs: expected one argument"),
        (["--profile", "fast"], "--profile: "),
        (["--max-cpu-percent", "101"], "--max-cpu-percent: "),
    ],
)
def test_wrong_flags_are_named_in_a_line(words: list[str], said: str) -> None:
    with Warm(
        "forge_worker.main",
        ["forge-worker", *words],
        env={"PATH": os.environ["PATH"], "HOME": "/nowhere", **NEEDED},
        stderr=subprocess.PIPE,
        text=True,
    ) as worker:
        told = worker.communicate(timeout=60)[1]
    assert worker.returncode == 2
    assert said in told
    assert len(told.splitlines()) == 1
