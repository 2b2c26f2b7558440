"""What a container engine is, by its system information: Docker or Podman, with what rights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

PODMAN = "Podman"
# Podman looks there, and its answers to Docker's requests do not say so.
CDI_FOLDERS = ("/etc/cdi", "/var/run/cdi")
# The first that was seen to; 5.1 did not.
PODMAN_ASSIGNS = [5, 4]
CONTAINERD = "io.containerd.snapshotter.v1"


@dataclass(frozen=True, slots=True)
class Kind:
    """An engine: `rootless` means that its root is the user that runs it, and no other user.

    `remaps` is whether all ids in its containers are others outside; `limits` whether it can limit
    memory and CPUs. Devices are described in the folders `cdi`. It stores images in `containerd`,
    or by itself.
    """

    name: str = "Docker"
    version: str = ""
    rootless: bool = False
    remaps: bool = False
    limits: bool = True
    containerd: bool = False
    cdi: tuple[Path, ...] = ()

    @property
    def podman(self) -> bool:
        return self.name == PODMAN

    @property
    def separates(self) -> bool:
        """Whether the containers of one network can be kept from each other."""
        return not self.podman

    @property
    def confines_builds(self) -> bool:
        """Whether a build has the network that it is asked for: Podman 5.8 gives the machine's."""
        return not self.podman

    @property
    def outlived(self) -> bool:
        """Whether containers run on when the engine stops."""
        return self.podman

    @property
    def assigns(self) -> bool:
        """Whether the engine heeds Docker's requests for devices: older Podmans ignore them."""
        parts = [int(part) for part in self.version.split(".")[:2] if part.isdecimal()]
        return not self.podman or parts >= PODMAN_ASSIGNS

    def __str__(self) -> str:
        """Return it for people."""
        return f"{'rootless ' if self.rootless else ''}{self.name} {self.version}".rstrip()


def kind_of(info: Mapping[str, Any]) -> Kind:
    """Return what an engine is, by its system information."""
    # Podman answers Docker's requests; what it says of its builder is its own.
    podman = "BuildahVersion" in info
    security = [str(word).partition(",")[0] for word in info.get("SecurityOptions") or []]
    folders = info.get("CDISpecDirs") or (CDI_FOLDERS if podman else ())
    rootless = "name=rootless" in security or bool(info.get("Rootless"))
    return Kind(
        name=PODMAN if podman else "Docker",
        version=str(info.get("ServerVersion") or ""),
        rootless=rootless,
        remaps="name=userns" in security,
        # It says that it can, and then leaves limits out.
        limits=not (rootless and info.get("CgroupVersion") == "1"),
        containerd=any(CONTAINERD in row for row in info.get("DriverStatus") or []),
        cdi=tuple(Path(folder) for folder in folders),
    )
