"""The program in a sandbox, and its image."""

import io
import json
import platform
import subprocess
import tarfile
from pathlib import Path

import psutil
import pytest
from forge_worker.runners.docker.pause import MACHINES, pause_image, program
from support.waiting import eventually

# The numbers of the architectures in an executable's header.
NUMBERS = {"x86_64": b"\x3e\0", "aarch64": b"\xb7\0"}


@pytest.mark.parametrize("machine", NUMBERS)
def test_program_is_an_executable_of_the_machine(machine: str, tmp_path: Path) -> None:
    file = tmp_path / "pause"
    file.write_bytes(program(machine))
    file.chmod(0o755)
    assert file.read_bytes()[18:20] == NUMBERS[machine]
    if machine == platform.machine():
        with subprocess.Popen([file]) as waits:
            eventually(lambda: psutil.Process(waits.pid).status() == psutil.STATUS_SLEEPING)
            waits.terminate()
            assert waits.wait() == 0


def test_image_is_the_same_each_time_and_named_after_its_content() -> None:
    assert set(MACHINES) == set(NUMBERS)
    made = pause_image("x86_64")
    pause_image.cache_clear()
    assert made == pause_image("x86_64")
    names = set()
    for machine in NUMBERS:
        found = pause_image(machine)
        assert found is not None
        name, packed = found
        with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
            (entry,) = json.load(tar.extractfile("manifest.json") or io.BytesIO())
        assert entry["RepoTags"] == [name]
        names.add(name)
    assert len(names) == len(NUMBERS)
    assert pause_image("riscv64") is None
