"""The systemd units and the cloud-init of infra/: valid, hardened, and consistent."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from forge_worker.runners.docker import network
from support.cloud.cloudformation import INFRA, filled_in, of_type, parsed
from support.services import require

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAMS = ("forge-worker", "forge-server", "forge-sweeper")
VALUES = {
    "Url": "https://abc123.execute-api.eu-west-1.amazonaws.com",
    "Labels": "pool=spot",
    "DefaultImage": "",
    "Package": "forge-queue[worker] @ https://files.example/forge.whl",
    "AWSRegion": "eu-west-1",
}
# systemd's own scale, from 0 to 10; unhardened is 9.6.
EXPOSED = {"forge-worker": 3.0, "forge-server": 1.5, "forge-sweeper": 1.5}


def unit(program: str) -> str:
    return (INFRA / f"{program}.service").read_text(encoding="utf-8")


def systemd(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run systemd-analyze, which needs no running systemd."""
    require(shutil.which("systemd-analyze"), "systemd-analyze (Debian's package systemd)")
    return subprocess.run(
        ["systemd-analyze", *arguments], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("program", PROGRAMS)
def test_systemd_takes_the_unit(program: str, tmp_path: Path) -> None:
    # systemd-analyze insists that the program exists.
    here = Path(sys.executable).with_name(program)
    installed = tmp_path / f"{program}.service"
    text = unit(program)
    assert f"ExecStart=/opt/forge/bin/{program}\n" in text
    installed.write_text(text.replace(f"/opt/forge/bin/{program}", str(here)), encoding="utf-8")
    ended = systemd("verify", "--man=no", installed)
    assert (ended.returncode, ended.stdout + ended.stderr) == (0, "")


def test_systemd_takes_the_nightly_backup_and_lets_it_do_little(tmp_path: Path) -> None:
    source = INFRA.parent / "lambda" / "forge_functions" / "init"
    text = (source / "forge-backup.service").read_text(encoding="utf-8")
    forge = str(Path(sys.executable).with_name("forge"))
    (tmp_path / "forge-backup.service").write_text(text.replace("/opt/forge/bin/forge", forge))
    shutil.copy(source / "forge-backup.timer", tmp_path)
    for name in ("forge-backup.service", "forge-backup.timer"):
        ended = systemd("verify", "--man=no", tmp_path / name)
        assert (ended.returncode, ended.stdout + ended.stderr) == (0, "")
    ended = systemd("security", "--offline=true", "--no-pager", source / "forge-backup.service")
    level = re.search(r"exposure level for .*: (\d+\.\d)", ended.stdout)
    assert level is not None, ended.stdout + ended.stderr
    assert float(level[1]) <= 4.5, ended.stdout


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_unit_lets_its_program_do_little(program: str) -> None:
    ended = systemd("security", "--offline=true", "--no-pager", INFRA / f"{program}.service")
    level = re.search(r"exposure level for .*: (\d+\.\d)", ended.stdout)
    assert level is not None, ended.stdout + ended.stderr
    assert float(level[1]) <= EXPOSED[program], ended.stdout


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_unit_holds_no_secret_and_comes_back(program: str) -> None:
    text = unit(program)
    name = program.removeprefix("forge-")
    assert f"EnvironmentFile=/etc/forge/{name}.env\n" in text
    assert not re.search(r"^Environment=.*(TOKEN|SECRET|URL)", text, re.MULTILINE)
    assert "Restart=always\n" in text
    assert "StartLimitIntervalSec=0\n" in text


def test_restart_of_the_worker_leaves_its_jobs_and_their_files_alone() -> None:
    lines = unit("forge-worker").splitlines()
    assert {"RestartKillSignal=SIGUSR2", "KillMode=process"} <= {*lines}
    # systemd empties a unit's own /tmp when it stops.
    assert not [line for line in lines if line.startswith("PrivateTmp")]
    assert "ReadWritePaths=-/run/lock /tmp /var/tmp" in lines


@pytest.fixture
def cloud_init() -> dict[str, Any]:
    """The cloud-init as a machine receives it."""
    text = filled_in((INFRA / "cloud-init" / "worker.yaml").read_text(encoding="utf-8"), **VALUES)
    assert text.startswith("#cloud-config\n"), "cloud-init looks at the first line"
    loaded: dict[str, Any] = yaml.safe_load(text)
    return loaded


def written(cloud_init: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    for file in cloud_init["write_files"]:
        yield file["path"], file["permissions"], file["content"]


def test_the_template_has_this_very_cloud_init() -> None:
    (machine,) = of_type(parsed("workers.yaml"), "AWS::EC2::LaunchTemplate").values()
    user_data = machine["LaunchTemplateData"]["UserData"]["Fn::Base64"]["Fn::Sub"]
    assert user_data == (INFRA / "cloud-init" / "worker.yaml").read_text(encoding="utf-8")
    # AWS accepts 16 KB, counted after the names are filled in.
    assert len(filled_in(user_data, **VALUES).encode()) < 15_000


def test_a_machine_has_the_unit_of_this_folder(cloud_init: dict[str, Any]) -> None:
    contents = {path: content for path, _, content in written(cloud_init)}
    for program in ("forge-worker", "forge-metadata"):
        assert contents[f"/etc/systemd/system/{program}.service"] == unit(program)


def test_a_machine_starts_with_commands_that_no_shell_reads(cloud_init: dict[str, Any]) -> None:
    commands = cloud_init["runcmd"]
    assert all(isinstance(command, list) for command in commands), "a text goes through a shell"
    assert ["/opt/forge/bin/pip", "install", "--no-cache-dir", VALUES["Package"]] in commands
    assert commands[-1] == ["systemctl", "enable", "--now", "forge-worker.service"]


def test_what_a_machine_writes_is_closed_and_without_secrets(cloud_init: dict[str, Any]) -> None:
    for path, permissions, content in written(cloud_init):
        assert permissions == ("0600" if path.endswith(".env") else "0644"), path
        assert not re.search(r"FORGE_TOKEN=\w|fg[wk]_|password", content), path


def test_systemd_takes_the_unit_with_its_addition(
    cloud_init: dict[str, Any], tmp_path: Path
) -> None:
    contents = {path: content for path, _, content in written(cloud_init)}
    for path, content in contents.items():
        if path.startswith("/etc/systemd/system/"):
            file = tmp_path / path.removeprefix("/etc/systemd/system/")
            file.parent.mkdir(exist_ok=True)
            # What pip and cloud-init put there.
            there = content.replace("/opt/forge/bin/", f"{Path(sys.executable).parent}/")
            file.write_text(there, encoding="utf-8")
    ended = systemd("verify", "--man=no", tmp_path / "forge-worker.service")
    assert (ended.returncode, ended.stdout + ended.stderr) == (0, "")
    addition = contents["/etc/systemd/system/forge-worker.service.d/enrol.conf"]
    script = re.search(r"ExecStartPre=\S+ (\S+) (\S+)", addition)
    assert script is not None
    assert script[1] in contents
    assert f"Environment=FORGE_TOKEN_FILE={script[2]}\n" in addition


def test_systemd_takes_the_unit_of_the_metadata_block() -> None:
    ended = systemd("verify", "--man=no", INFRA / "forge-metadata.service")
    assert (ended.returncode, ended.stdout + ended.stderr) == (0, "")
    assert re.search(r"^Wants=.*forge-metadata.service", unit("forge-worker"), re.MULTILINE)
    assert re.search(r"^After=.*forge-metadata.service", unit("forge-worker"), re.MULTILINE)


def test_the_block_is_made_once_and_is_what_the_worker_relies_on(tmp_path: Path) -> None:
    require(os.geteuid() == 0 and shutil.which("iptables"), "root, and iptables")
    found = re.search(r"ExecStart=/bin/sh -euc '(.*?)'\n", unit("forge-metadata"), re.DOTALL)
    assert found is not None
    script = found[1].replace("$$", "$").replace("\\\n", " ")
    script = script.replace(str(network.MADE_BY_ROOT), str(tmp_path))
    twice = f"{script}\n{script}\niptables -t raw -S PREROUTING"
    words = ["unshare", "--net", "sh", "-euc", twice]
    ended = subprocess.run(words, capture_output=True, text=True, check=True)
    rules = [line for line in ended.stdout.splitlines() if line.startswith("-A")]
    assert len(rules) == 2 * len(network.METADATA)
    for address in network.METADATA:
        assert sum(f"-d {address} -i {network.BRIDGE} " in rule for rule in rules) == 2
    assert (tmp_path / network.BRIDGE).exists()
