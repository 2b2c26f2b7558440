"""The sources of the client's settings, and their order."""

from __future__ import annotations

import json
import os
import subprocess
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
from forge_client import default_paths, settings
from forge_client.errors import ClientError
from forge_client.http import logins
from forge_client.login_link import LASTS, key_for
from forge_client.running import Running, all_running, find, latest_dir

if TYPE_CHECKING:
    from forge_client.backend import Backend


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def up(folder: Path, pid: int = 1) -> Running:
    folder.mkdir()
    running = Running(
        dir=folder, pid=pid, database_url=f"postgresql:///{folder.name}", store_url="file:///s",
        version="0",
    )  # fmt: skip
    running.announce()
    return running


def test_flags_come_before_variables_before_forge_toml(monkeypatch: pytest.MonkeyPatch) -> None:
    project = {"database_url": "toml", "store_url": "toml"}
    assert settings.load({}, project).database_url == "toml"
    monkeypatch.setenv("FORGE_DATABASE_URL", "env")
    chosen = settings.load({}, project)
    assert (chosen.database_url, chosen.store_url) == ("env", "toml")
    assert settings.load({"database_url": "flag"}, project).database_url == "flag"
    assert settings.load({"database_url": None}, project).database_url == "env"


def test_what_is_no_url_is_told_with_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    places = [({"url": "nowhere"}, {}, "url 'nowhere'"), ({}, {"url": "x:1"}, "toml: url 'x:1'")]
    for flags, project, said in places:
        with pytest.raises(ClientError, match=f"{said} is not a server's URL"):
            settings.load(flags, project).server()
    for text, said in (("127.0.0.1:8900", "FORGE_URL '127.0.0.1:8900' is"), ("u:p@x", "_URL is")):
        monkeypatch.setenv("FORGE_URL", text)
        with pytest.raises(ClientError, match=f"{said} not a server's URL"):
            settings.load({}, {}).server()


def test_an_empty_variable_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORGE_DATABASE_URL", "")
    assert settings.load({}, {"database_url": "toml"}).database_url == "toml"


def test_the_owner_is_the_login_name_unless_said_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "ann")
    assert settings.load({}, {}).owner == "ann"
    monkeypatch.setenv("FORGE_OWNER", "bob")
    assert settings.load({}, {}).owner == "bob"


def test_a_running_forge_up_is_found_from_anywhere(tmp_path: Path) -> None:
    running = up(tmp_path / "here")
    connection = settings.load({}, {}).connection()
    assert connection.database_url == running.database_url
    assert connection.store() == running.store_url
    assert connection.up_dir == running.dir


def test_a_command_waits_while_the_workers_of_a_forge_up_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loading = replace(up(tmp_path / "here", pid=os.getpid()), loading=True)
    loading.write()
    waits: list[float] = []

    def loads(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            loading.loaded("")

    monkeypatch.setattr(time, "sleep", loads)
    settings.load({}, {}).connection()
    assert len(waits) == 3
    replace(loading, pid=gone()).write()
    settings.load({}, {}).connection()
    assert len(waits) == 3


def gone() -> int:
    """Return the id of a process that has ended."""
    with subprocess.Popen(["true"]) as ended:
        pass
    return ended.pid


def test_a_named_folder_comes_before_the_latest_forge_up(tmp_path: Path) -> None:
    first = up(tmp_path / "first")
    up(tmp_path / "second")
    assert latest_dir() == tmp_path / "second"
    chosen = settings.load({"dir": first.dir}, {}).connection()
    assert chosen.database_url == first.database_url


def test_a_named_database_never_gets_the_store_of_a_forge_up(tmp_path: Path) -> None:
    up(tmp_path / "here")
    connection = settings.load({"database_url": "postgresql:///mine"}, {}).connection()
    with pytest.raises(ClientError) as caught:
        connection.store()
    assert caught.value.code == "store_not_named"


def test_what_a_forge_up_writes_is_for_its_user_alone(tmp_path: Path) -> None:
    up(tmp_path / "here")
    for path in (tmp_path / "here" / "connection.json", default_paths.pointer()):
        assert path.stat().st_mode & 0o777 == 0o600


def test_without_a_forge_up_the_error_says_what_to_do() -> None:
    with pytest.raises(ClientError) as caught:
        settings.load({}, {}).connection()
    assert (caught.value.code, caught.value.exit_code) == ("not_running", 5)
    assert "forge up" in caught.value.hint
    assert "FORGE_DATABASE_URL" in caught.value.hint


def test_a_stopped_forge_up_removes_only_what_it_wrote(tmp_path: Path) -> None:
    first, second = up(tmp_path / "first"), up(tmp_path / "second")
    first.withdraw()
    assert find() == second
    second.withdraw()
    assert not default_paths.pointer().exists()
    with pytest.raises(ClientError):
        find()


def test_of_several_forge_ups_it_is_said_which_one_is_used(tmp_path: Path) -> None:
    first = up(tmp_path / "first")
    assert settings.load({}, {}).note() == ""
    second = up(tmp_path / "second")
    assert settings.load({}, {}).note() == (
        f"using the forge up in {second.dir} (another runs in {first.dir};"
        " --dir or FORGE_DIR chooses)"
    )
    assert settings.load({"dir": first.dir}, {}).note() == ""
    assert settings.load({"database_url": "postgresql:///mine"}, {}).note() == ""
    third = up(tmp_path / "third")
    assert f"others run in {second.dir} and {first.dir};" in settings.load({}, {}).note()
    second.withdraw()
    third.withdraw()
    assert find() == first
    assert settings.load({}, {}).note() == (
        f"using the forge up in {first.dir} (the one in {third.dir} has stopped)"
    )
    # Once.
    assert settings.load({}, {}).note() == ""


def test_a_killed_forge_up_does_not_count_as_running(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    killed = up(tmp_path / "killed", ended.pid)
    assert all_running() == []
    last = up(tmp_path / "last")
    assert (all_running(), settings.load({}, {}).note()) == ([last], "")
    assert killed.dir != last.dir


@pytest.mark.parametrize("text", ["", "{", "[]", json.dumps({"dir": 3})])
def test_a_spoilt_pointer_is_as_good_as_none(text: str) -> None:
    default_paths.pointer().parent.mkdir(parents=True)
    default_paths.pointer().write_text(text, encoding="utf-8")
    assert latest_dir() == default_paths.default_dir()


SERVER = "https://forge.example"


@pytest.mark.parametrize("key_file", [False, True])
def test_a_key_goes_to_no_server_that_only_a_folder_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, key_file: bool
) -> None:
    (tmp_path / "key").write_text("fgk_mine_000000")
    flags: dict[str, object] = {"api_key_file": tmp_path / "key"} if key_file else {}
    if not key_file:
        monkeypatch.setenv("FORGE_API_KEY", "fgk_mine_000000")
    for url in (SERVER, "http://127.0.0.1:8900"):
        found = settings.load(flags, {"url": url})
        assert found.asks_about() == url
        with pytest.raises(ClientError, match="was never sent") as refused:
            found.server()
        assert "FORGE_URL" in refused.value.hint
        logins.trust(url)
        assert found.asks_about() is None
        assert found.server().key == "fgk_mine_000000"
    assert settings.load({"url": "https://mine.example", **flags}, {"url": SERVER}).server().key
    monkeypatch.setenv("FORGE_URL", "https://mine.example")
    assert settings.load(flags, {"url": "https://stranger.example"}).server().key


def test_to_a_folders_server_a_key_travels_encrypted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORGE_API_KEY", "fgk_mine_000000")
    logins.trust("http://forge.example")
    with pytest.raises(ClientError, match="unencrypted"):
        settings.load({}, {"url": "http://forge.example"}).server()
    assert settings.load({"url": "http://forge.example"}, {}).server().key


def test_without_a_key_a_folders_server_needs_no_question() -> None:
    found = settings.load({}, {"url": SERVER})
    assert found.asks_about() is None
    assert found.server().key is None


def test_links_to_the_dashboard_of_a_forge_up_share_a_key(tmp_path: Path) -> None:
    keys: list[SimpleNamespace] = []

    def create_key(owner: str, role: str, *, name: str, lasts: timedelta) -> SimpleNamespace:
        ends = datetime.now(UTC) + lasts
        keys.append(SimpleNamespace(id=f"k{len(keys)}", revoked_at=None, expires_at=ends))
        return SimpleNamespace(id=keys[-1].id, text=f"{owner} {role} {name} {len(keys)}"[-1])

    admin = SimpleNamespace(create_key=create_key, api_keys=lambda: keys)
    running, backend = up(tmp_path / "here"), cast("Backend", SimpleNamespace(admin=admin))
    assert [key_for(running, backend, owner) for owner in ("ann", "ann", "bob")] == ["1", "1", "2"]
    keys[0].revoked_at = datetime.now(UTC)
    keys[1].expires_at -= LASTS
    assert [key_for(running, backend, owner) for owner in ("ann", "bob")] == ["3", "4"]
    assert {file.stat().st_mode & 0o777 for file in running.dir.glob("dashboard-key-*")} == {0o600}
