"""docs/http-api.md names paths that exist, and its examples work."""

from __future__ import annotations

import os
import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from forge_functions import errors
from forge_functions.server import whole_app
from forge_schema.model.states import Role
from support.http.server import server_settings

if TYPE_CHECKING:
    from support.http.api import Api

PAGE = Path(__file__).parents[3] / "docs" / "http-api.md"
NAMED = re.compile(r"`([A-Z]+ /[^`]*)`")
EXAMPLES = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_every_path_of_the_page_exists_and_every_path_is_described() -> None:
    document = whole_app(server_settings("postgresql://none", "file:///none")).openapi()
    offered = {
        f"{method.upper()} {path}": operation.get("description")
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    # It is no part of the description, since it is not JSON.
    named = set(NAMED.findall(PAGE.read_text(encoding="utf-8"))) - {"GET /metrics"}
    assert {one for one in named if "openapi" not in one} <= offered.keys()
    assert [path for path, description in offered.items() if not description] == []


def test_every_example_of_the_page_runs_as_it_is_written(api: Api, tmp_path: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    (tmp_path / "bundle.tar.zst").write_bytes(b"ten bytes!")
    lines = "".join(EXAMPLES.findall(page)).splitlines()
    script = "\n".join(line for line in lines if not line.startswith("# "))
    assert script.count("curl ") == page.count("curl ")
    key = api.keys.create("root", Role.ADMIN)[1]
    # A signature has the time of the shell.
    api.rig.clock.set(datetime.now(UTC))
    shell = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        check=False,
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "URL": api.url, "KEY": key, "no_proxy": "*"},
        capture_output=True,
        text=True,
    )
    assert (shell.returncode, shell.stderr) == (0, ""), shell.stderr
    told = iter(shell.stdout.splitlines())
    for line in lines:
        if line.startswith("# "):
            expected = re.escape(line.removeprefix("# ")).replace("…", ".*")
            assert any(re.fullmatch(expected, one) for one in told), f"{line}\n{shell.stdout}"
    assert '"request_id"' not in shell.stdout


def test_the_page_has_every_status_that_a_path_declares() -> None:
    table = PAGE.read_text(encoding="utf-8").partition("## Errors")[2].partition("\n## ")[0]
    told = {int(status) for status in re.findall(r"^\| (\d{3}) \|", table, re.MULTILINE)}
    assert set(errors.DESCRIPTIONS) <= told
