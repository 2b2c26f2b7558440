"""The image of a sandbox: a single program that waits for SIGTERM, and needs no registry.

The program is made here, byte by byte: the kernel's headers of an executable, and a few
instructions. It blocks SIGTERM and then waits for it, because the kernel delivers a signal to the
first process of a container only if that handles it. Any other end needs SIGKILL.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import struct
import tarfile
from functools import cache
from typing import TYPE_CHECKING

from forge_worker.runners.images.image import find
from forge_worker.runners.images.reference import PAUSE, parse

if TYPE_CHECKING:
    from docker import DockerClient

PROGRAM = "/pause"
BASE = 0x400000
HEADERS = 64 + 56
X86_64 = (
    "31ff"  # xor edi, edi            SIG_BLOCK
    "488d352e000000"  # lea rsi, [rip + set]
    "31d2"  # xor edx, edx
    "41ba08000000"  # mov r10d, 8             the size of the set
    "b80e000000"  # mov eax, 14             rt_sigprocmask
    "0f05"  # syscall
    "488d3d18000000"  # wait: lea rdi, [rip + set]
    "31f6"  # xor esi, esi
    "31d2"  # xor edx, edx            without a time limit
    "b880000000"  # mov eax, 128            rt_sigtimedwait
    "0f05"  # syscall
    "85c0"  # test eax, eax
    "78ea"  # js wait                 interrupted
    "31ff"  # xor edi, edi
    "b8e7000000"  # mov eax, 231            exit_group
    "0f05"  # syscall
    "0040000000000000"  # set: SIGTERM
)
AARCH64 = (
    "000080d2"  # mov x0, 0               SIG_BLOCK
    "e1010010"  # adr x1, set
    "020080d2"  # mov x2, 0
    "030180d2"  # mov x3, 8               the size of the set
    "e81080d2"  # mov x8, 135             rt_sigprocmask
    "010000d4"  # svc 0
    "40010010"  # wait: adr x0, set
    "010080d2"  # mov x1, 0
    "020080d2"  # mov x2, 0               without a time limit
    "030180d2"  # mov x3, 8
    "281180d2"  # mov x8, 137             rt_sigtimedwait
    "010000d4"  # svc 0
    "40ffff37"  # tbnz w0, 31, wait       interrupted
    "000080d2"  # mov x0, 0
    "c80b80d2"  # mov x8, 94              exit_group
    "010000d4"  # svc 0
    "0040000000000000"  # set: SIGTERM
)
# The architecture in an image's configuration, the number in an executable's header, the program.
MACHINES = {"x86_64": ("amd64", 62, X86_64), "aarch64": ("arm64", 183, AARCH64)}


def program(machine: str) -> bytes:
    """Return the program as a 64-bit ELF file with one segment: the file itself."""
    _, number, instructions = MACHINES[machine]
    code = bytes.fromhex(instructions)
    size = HEADERS + len(code)
    ident = b"\x7fELF\2\1\1".ljust(16, b"\0")
    entry, segments = BASE + HEADERS, 64
    file = struct.pack(
        "<16sHHIQQQIHHHHHH", ident, 2, number, 1, entry, segments, 0, 0, 64, 56, 1, 0, 0, 0
    )
    readable_executable = 5
    segment = struct.pack("<IIQQQQQQ", 1, readable_executable, 0, BASE, BASE, size, size, 0x10000)
    return file + segment + code


@cache
def pause_image(machine: str = "") -> tuple[str, bytes] | None:
    """Return the image's name and its tar, as of `docker save`; None for an unknown machine.

    The same program always makes the same image, so loading it twice changes nothing.
    """
    machine = machine or platform.machine()
    if machine not in MACHINES:
        return None
    layer = _tar({PROGRAM.lstrip("/"): program(machine)})
    config = {
        "architecture": MACHINES[machine][0],
        "os": "linux",
        "config": {"Entrypoint": [PROGRAM]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    described = json.dumps(config).encode()
    name = f"{PAUSE}:{hashlib.sha256(described).hexdigest()[:12]}"
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    files = {"config.json": described, "layer.tar": layer}
    return name, _tar({**files, "manifest.json": json.dumps(manifest).encode()})


def loaded(client: DockerClient) -> str | None:
    """Return the image's name, once the engine has it; None for an unknown machine."""
    if (known := pause_image()) is None:
        return None
    name, tar = known
    if find(client, parse(name)) is None:
        for _ in client.api.load_image(tar):  # type: ignore[no-untyped-call]  # the stubs lack types
            pass
    return name


def _tar(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(content), 0o755
            tar.addfile(info, io.BytesIO(content))
    return packed.getvalue()
