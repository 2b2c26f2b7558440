"""The server and the key: flags, variables, forge.toml, and invalid values."""

from __future__ import annotations

from pathlib import Path

import pytest
from forge_client import settings
from forge_client.connection import connect
from forge_client.errors import ClientError
from forge_client.http.backend import HttpBackend
from forge_client.running import Running
from forge_schema.http_client import in_the_clear

URL = "https://forge.example"
KEY = "fgk_0123456789abcdef"


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def refusal(code: str) -> pytest.RaisesExc[ClientError]:
    return pytest.RaisesExc(
        ClientError, check=lambda error: (error.code, error.exit_code) == (code, 6)
    )


def test_flags_come_before_variables_before_forge_toml(monkeypatch: pytest.MonkeyPatch) -> None:
    project = {"url": "https://toml.example"}
    assert settings.load({}, project).server().url == "https://toml.example"
    monkeypatch.setenv("FORGE_URL", "https://env.example")
    assert settings.load({}, project).server().url == "https://env.example"
    assert settings.load({"url": URL}, project).server().url == URL


def test_what_is_named_further_in_front_decides_between_server_and_database(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    database = "postgresql:///x"
    assert settings.load({}, {"database_url": database}).url is None
    monkeypatch.setenv("FORGE_URL", URL)
    chosen = settings.load({}, {"database_url": database})
    assert (chosen.url, chosen.database_url) == (URL, None)
    chosen = settings.load({"database_url": database}, {})
    assert (chosen.url, chosen.connection().database_url) == (None, database)
    monkeypatch.delenv("FORGE_URL")
    monkeypatch.setenv("FORGE_DATABASE_URL", database)
    assert settings.load({"url": URL}, {}).server().url == URL


def test_a_named_forge_up_comes_before_a_server_in_the_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORGE_URL", URL)
    (tmp_path / "up").mkdir()
    Running(
        dir=tmp_path / "up", pid=1, database_url="postgresql:///up", store_url="file:///s",
        version="0",
    ).announce()  # fmt: skip
    assert settings.load({}, {}).url == URL
    chosen = settings.load({"dir": tmp_path / "up"}, {})
    assert chosen.connection().database_url == "postgresql:///up"


@pytest.mark.parametrize("layer", ["options", "variables", "forge.toml"])
def test_a_server_and_a_database_named_at_once_are_refused(
    layer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = {"url": URL, "database_url": "postgresql:///x"}
    if layer == "variables":
        for name, value in both.items():
            monkeypatch.setenv(f"FORGE_{name.upper()}", value)
    flags, project = (both if layer == name else {} for name in ("options", "forge.toml"))
    with refusal("settings_invalid") as caught:
        settings.load(flags, project)
    assert layer in caught.value.message


def test_a_store_is_not_named_besides_a_server() -> None:
    with refusal("settings_invalid"):
        settings.load({"url": URL, "store_url": "file:///store"}, {})
    # One in the variables is for the other way.
    assert settings.load({"url": URL}, {"store_url": "file:///store"}).url == URL


def test_what_needs_the_database_says_that_a_server_is_named() -> None:
    with refusal("database_not_named"):
        settings.load({"url": URL}, {}).connection()


def test_the_key_comes_from_a_variable_or_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "key"
    file.write_text(f"\n  {KEY}-file\n", encoding="utf-8")
    assert settings.load({"url": URL}, {}).server().key is None
    monkeypatch.setenv("FORGE_API_KEY", KEY)
    assert settings.load({"url": URL}, {}).server().key == KEY
    assert settings.load({"url": URL, "api_key_file": file}, {}).server().key == f"{KEY}-file"
    monkeypatch.setenv("FORGE_API_KEY_FILE", str(file))
    with refusal("settings_invalid"):
        settings.load({"url": URL}, {})
    assert settings.load({"url": URL, "api_key": f"{KEY}-sdk"}, {}).server().key == f"{KEY}-sdk"
    monkeypatch.delenv("FORGE_API_KEY")
    assert settings.load({"url": URL}, {}).server().key == f"{KEY}-file"
    assert settings.load({"url": URL, "api_key": KEY}, {}).server().key == KEY


@pytest.mark.parametrize("said", ["", "short", "two words of it", "naïve-naïve", f"fgw_1_{KEY}"])
def test_what_is_no_key_is_refused_and_not_shown(tmp_path: Path, said: str) -> None:
    (tmp_path / "key").write_text(said, encoding="utf-8")
    flags = {"url": URL, "api_key_file": tmp_path / "key"}
    with refusal("server_invalid") as caught:
        settings.load(flags, {}).server()
    assert str(tmp_path / "key") in caught.value.message
    assert not said or said not in caught.value.message + caught.value.hint


def test_a_key_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xff")
    for name in ("missing", "bytes", "."):
        with refusal("server_invalid"):
            settings.load({"url": URL, "api_key_file": tmp_path / name}, {}).server()


def test_the_key_is_in_no_text_of_the_settings() -> None:
    chosen = settings.load({"url": URL, "api_key": KEY}, {})
    assert KEY not in repr(chosen) + repr(chosen.server()) + str(chosen.model_dump())


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://forge.example/", URL),
        ("http://127.0.0.1:8900", "http://127.0.0.1:8900"),
        ("https://x.example/stage/", "https://x.example/stage"),
        ("http://[::1]:8900", "http://[::1]:8900"),
    ],
)
def test_a_servers_url(url: str, expected: str) -> None:
    assert settings.load({"url": url}, {}).server().url == expected


@pytest.mark.parametrize(
    "url",
    [
        "forge.example", "ftp://forge.example", "https://", "https://x:99999", "https://x:0",
        "https://ann:hunter2@x.example", "https://x.example?key=hunter2", "https://x.example#a",
        "https://[::1", "https://x.example/a b",
    ],
)  # fmt: skip
def test_what_is_no_servers_url_is_refused_and_not_shown(url: str) -> None:
    with refusal("server_invalid") as caught:
        settings.load({"url": url}, {}).server()
    assert "hunter2" not in caught.value.message + caught.value.hint


def test_a_switch_that_is_neither_on_nor_off_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORGE_INSECURE_SKIP_VERIFY", "perhaps")
    with refusal("settings_invalid") as caught:
        settings.load({"url": URL}, {})
    assert "FORGE_INSECURE_SKIP_VERIFY" in caught.value.message


def test_certificates_are_verified_unless_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings.load({"url": URL}, {}).server().verify
    monkeypatch.setenv("FORGE_INSECURE_SKIP_VERIFY", "true")
    assert not settings.load({"url": URL}, {}).server().verify


def test_the_owner_is_the_keys_unless_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "ann")
    assert settings.load({"url": URL}, {}).job_owner is None
    assert settings.load({"database_url": "postgresql:///x"}, {}).job_owner == "ann"
    monkeypatch.setenv("FORGE_OWNER", "bob")
    assert settings.load({"url": URL}, {}).job_owner == "bob"


def test_only_a_key_on_a_network_travels_in_the_clear() -> None:
    clear = {url: in_the_clear(url) for url in (URL, "http://localhost:1", "http://x:1")}
    assert clear == {URL: False, "http://localhost:1": False, "http://x:1": True}


def test_a_server_that_is_named_is_what_is_asked() -> None:
    with connect(settings.load({"url": URL, "api_key": KEY}, {})) as backend:
        assert isinstance(backend, HttpBackend)
