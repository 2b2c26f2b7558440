"""The members of a run, as each describes itself to the others, and their shares of a batch."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from ipaddress import ip_address
from math import isfinite
from typing import Annotated

from forge_schema.model.errors import ForgeError
from forge_schema.model.lease import Member
from forge_schema.model.worker import DEVICES, Speed
from pydantic import AfterValidator, Field, JsonValue, TypeAdapter, ValidationError

LEAST = 1

NVIDIA_OR_AMD = ("nvidia", "amd")
# Not for the job: these are of the check of the network only.
PRIVATE = ("port", "nonce", "program_port", "publishes")

Address = Annotated[str, AfterValidator(lambda text: str(ip_address(text)))]
Port = Annotated[int, Field(ge=1, le=65535)]


@dataclass(frozen=True, slots=True)
class RankPace:
    """How fast a rank computes, in GFLOPS of fp32, and how that was measured; None if unknown."""

    speed: float | None = None
    method: str | None = None


def pace_of(speed: Speed | None, accelerator: str, cpus: float) -> RankPace:
    """Return a rank's pace: of its GPU, or of the CPUs lent to it.

    It is unknown if that was not measured, and where Python alone measured it, which tells nothing
    about training.

    Args:
        speed: what its machine measured.
        accelerator: the device it computes on: `cuda`, `rocm`, `mps` or `cpu`.
        cpus: number of CPUs lent to it.
    """
    if speed is None or accelerator not in DEVICES:
        return RankPace()
    rates: Mapping[str, float] = getattr(speed, accelerator)
    # What is not above zero was not measured, and other members would not accept it.
    if (rate := rates.get("fp32", 0)) <= 0:
        return RankPace()
    rate = rate * cpus / max(speed.cpus, 1) if accelerator == "cpu" else rate
    return RankPace(rate, speed.method)


def shares(speeds: Sequence[float | None]) -> list[float]:
    """Return each rank's share of the batch; they sum to 1.

    The shares are equal if a speed is unknown. The speeds must be of one method and type of
    number, since others are not comparable.
    """
    known = _known(speeds)
    whole = sum(known)
    return [float(speed / whole) for speed in known]


def batches(speeds: Sequence[float | None], tops: Sequence[int]) -> list[int]:
    """Return each rank's batch in proportion to its speed, as large as fits into all memories.

    Each is at least 1.

    Args:
        speeds: as for `shares`.
        tops: how many samples each rank's memory holds, at least 1.
    """
    known = _known(speeds)
    per_speed = min(
        (top / speed for top, speed in zip(tops, known, strict=True)), default=Fraction(0)
    )
    return [max(LEAST, int(speed * per_speed)) for speed in known]


def _known(speeds: Sequence[float | None]) -> list[Fraction]:
    usable = [speed for speed in speeds if speed is not None and isfinite(speed) and speed > 0]
    if len(usable) < len(speeds):
        return [Fraction(1)] * len(speeds)
    return [Fraction(speed) for speed in usable]


class MemberUnreadable(ForgeError):
    """The description of another member cannot be understood."""


@dataclass(frozen=True, slots=True)
class Peer:
    """One member of a run; memory in MiB.

    `speed` is that of each of its GPUs, or of its CPUs together, in GFLOPS of fp32; None if it was
    not measured. Speeds by different methods are not comparable.

    `batch` is how many samples are a good start for one of its processes, by memory alone.

    `port` is where it answers the check of the network, to those who know the `nonce`. At its
    `program_port` its program may listen; that of rank 0 is the `master_port`. If it `publishes`,
    its container is on a bridge, and the others reach only this port, so it answers there.
    """

    rank: int
    worker: str
    address: Address
    port: Port
    nonce: Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
    program_port: Port
    master_port: Port | None = None
    gpus: int = 0
    vendor: str = ""
    cpus: float = 1.0
    memory_mb: int = 0
    speed: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    method: str | None = None
    batch: Annotated[int, Field(ge=1)] | None = None
    publishes: bool = False

    @property
    def processes(self) -> int:
        """How many processes a launcher starts here: one for each GPU, or one without GPUs."""
        return max(1, self.gpus)

    def __str__(self) -> str:
        return f"rank {self.rank} (worker {self.worker}, {self.address})"

    def details(self) -> dict[str, JsonValue]:
        """Return what the others are told."""
        fields = asdict(self)
        return {name: fields[name] for name in fields if name not in {"rank", "worker"}}


PEER = TypeAdapter(Peer)


def peer_of(member: Member) -> Peer:
    """Return a member as it described itself; fields of a newer version are left out.

    Raises:
        MemberUnreadable: its description is incomplete or invalid.
    """
    fields = {**member.details, "rank": member.rank, "worker": member.worker}
    try:
        return PEER.validate_python(fields)
    except ValidationError as error:
        fault = error.errors()[0]
        where = ".".join(map(str, fault["loc"]))
        raise MemberUnreadable(
            f"rank {member.rank} (worker {member.worker}) described itself in a way that this"
            f" worker does not understand: {where}: {fault['msg']}",
            hint="run the same version of forge-worker on all machines of a gang",
        ) from error


@dataclass(frozen=True, slots=True)
class Gang:
    """All members of a run by rank, seen from the member `rank`."""

    rank: int
    peers: Sequence[Peer]

    @property
    def own(self) -> Peer:
        return self.peers[self.rank]

    @property
    def master(self) -> Peer:
        return self.peers[0]

    @property
    def master_port(self) -> int:
        """The port of rank 0's program."""
        assert self.master.master_port is not None  # noqa: S101 - rank 0 always has one
        return self.master.master_port

    @property
    def nodes(self) -> int:
        return len(self.peers)

    @property
    def processes(self) -> int:
        """How many processes a launcher starts on all machines."""
        return sum(peer.processes for peer in self.peers)

    @property
    def secret(self) -> str:
        """What only the members of this run know, as hexadecimal digits."""
        return hashlib.sha256("".join(peer.nonce for peer in self.peers).encode()).hexdigest()

    @property
    def backend(self) -> str:
        """The backend for all: `nccl` if every member has GPUs of one vendor, else `gloo`."""
        vendors = {peer.vendor if peer.gpus else "" for peer in self.peers}
        return "nccl" if len(vendors) == 1 and vendors <= {*NVIDIA_OR_AMD} else "gloo"

    def shares(self, *, per_gpu: bool) -> list[float]:
        """Return each rank's share of the batch; they sum to 1.

        If a launcher starts a process for each GPU (`per_gpu`), each of them is a rank. The shares
        are equal unless all members were measured by the same method.
        """
        return shares(self._speeds(per_gpu=per_gpu))

    def batches(self, *, per_gpu: bool) -> list[int]:
        """Return each rank's initial batch, with which their steps end together; [] if unknown."""
        tops = [peer.batch for peer in self.peers for _ in range(_ranks(peer, per_gpu=per_gpu))]
        known = [top for top in tops if top is not None]
        return batches(self._speeds(per_gpu=per_gpu), known) if len(known) == len(tops) else []

    def _speeds(self, *, per_gpu: bool) -> list[float | None]:
        alike = len({peer.method for peer in self.peers}) == 1 and self.own.method
        return [
            peer.speed * (1 if per_gpu else peer.processes) if alike and peer.speed else None
            for peer in self.peers
            for _ in range(_ranks(peer, per_gpu=per_gpu))
        ]

    def described(self) -> str:
        """Return the gang as JSON for the job."""
        members = [_described(peer) for peer in self.peers]
        return json.dumps({"rank": self.rank, "members": members})


def _described(peer: Peer) -> dict[str, JsonValue]:
    fields = {name: value for name, value in asdict(peer).items() if name not in PRIVATE}
    return {**fields, "port": peer.program_port}


def _ranks(peer: Peer, *, per_gpu: bool) -> int:
    return peer.processes if per_gpu else 1
