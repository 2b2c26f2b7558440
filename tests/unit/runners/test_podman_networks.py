"""Networks of Podman's containers, by what Podman 5.4.2 answers to Docker's requests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import pytest
from docker.errors import APIError
from forge_worker.runners.docker import network
from forge_worker.runners.docker.container import Containers
from forge_worker.runners.docker.sandboxes import SANDBOX_LABEL, Sandboxes
from forge_worker.runners.engines import PODMAN, EngineKind
from forge_worker.runners.runner import FOLDER_LABEL

if TYPE_CHECKING:
    from pathlib import Path

LONGEST_INTERFACE = 15


@dataclass
class Podman:
    """A client and an engine; it makes a bridge with the first container of a network only."""

    interfaces: Path
    kind: EngineKind = field(default_factory=lambda: EngineKind(PODMAN, "5.4.2"))
    nets: dict[str, dict[str, Any]] = field(default_factory=dict)
    busy: set[str] = field(default_factory=set)
    listed: list[dict[str, Any]] = field(default_factory=list)
    shows: bool = True

    @property
    def client(self) -> Any:  # noqa: ANN401  as far as it is asked
        return self

    api = client

    def create_network(self, name: str, **said: Any) -> None:  # noqa: ANN401  as above
        if name in self.nets:
            raise APIError(f"network name {name} already used: network already exists")
        self.nets[name] = said

    def networks(self, **asked: Any) -> list[dict[str, Any]]:  # noqa: ANN401  as above
        label = asked.get("filters", {}).get("label", "=").partition("=")
        return [
            {"Name": name, "Id": "b5e17d4096c1d10f", "EnableIPv6": False, "Options": {},
             "Labels": said["labels"]}
            for name, said in self.nets.items()
            if not asked.get("filters") or said["labels"].get(label[0]) == label[2]
        ]  # fmt: skip

    def remove_network(self, name: str) -> None:
        if name in self.busy or name not in self.nets:
            raise APIError("network is being used")
        del self.nets[name]

    def create_host_config(self, **_: object) -> None:
        """Nothing of it matters here."""

    def create_container(self, *_: object, **__: object) -> dict[str, str]:
        return {"Id": "1"}

    def start(self, _: str) -> None:
        if self.shows:
            (self.interfaces / "forge0").mkdir()
            (self.interfaces / "forge0" / "ifindex").write_text("7\n")

    def remove_container(self, *_: object, **__: object) -> None:
        for part in sorted(self.interfaces.rglob("*"), reverse=True):
            part.unlink() if part.is_file() else part.rmdir()

    def containers(self, **_: object) -> list[dict[str, Any]]:
        return self.listed


@pytest.fixture
def podman(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Podman:
    monkeypatch.setattr(network, "INTERFACES", tmp_path)
    monkeypatch.setattr(network, "loaded", lambda _: "pause")
    return Podman(tmp_path)


@pytest.fixture
def rules(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The words that iptables was called with; it knows no rule yet."""
    called: list[tuple[str, ...]] = []

    def iptables(_: str, verb: str, *words: str) -> tuple[str, str]:
        called.append((verb, *words))
        return "", "no such rule" if verb == "-C" else ""

    monkeypatch.setattr(network, "_program", lambda: "iptables")
    monkeypatch.setattr(network, "_iptables", iptables)
    return called


def test_bridge_is_seen_by_a_container_and_the_rules_are_for_all(
    podman: Podman, rules: list[tuple[str, ...]]
) -> None:
    assert network.Network().ensure(podman.client, podman.kind) == ""
    made = [rule for rule in rules if rule[0] == "-I"]
    assert len(made) == 2 * len(network.METADATA)
    assert all("-i forge+" in " ".join(rule) for rule in made)
    assert podman.nets["forge"]["options"][network.BRIDGE_OPTION] == "forge0"


def test_podman_whose_bridges_are_elsewhere_starts_nothing(
    podman: Podman, rules: list[tuple[str, ...]]
) -> None:
    podman.shows = False
    why = network.Network().ensure(podman.client, podman.kind)
    assert why.endswith("is not on this machine")
    rootless = EngineKind(PODMAN, "5.4.2", rootless=True)
    why = network.Network().ensure(podman.client, rootless)
    assert why.startswith("rootless Podman 5.4.2 has its own networks")
    assert rules == []


def test_each_container_has_a_network_that_goes_with_it(podman: Podman) -> None:
    names = ["forge-7-3-11111111", "forge-7-3-22222222"]
    engine = cast("Any", podman)
    assert [network.network_of(engine, name, "folder") for name in names] == names
    assert network.network_of(engine, names[0], "folder") == names[0]
    options = [podman.nets[name]["options"] for name in names]
    bridges = {one[network.BRIDGE_OPTION] for one in options}
    assert len(bridges) == 2
    assert all(b.startswith("forge") and len(b) <= LONGEST_INTERFACE for b in bridges)
    # Podman keeps networks with this option apart.
    assert {one[network.APART_OPTION] for one in options} == {"false"}
    network.remove_network(engine, names[0])
    network.remove_network(engine, names[0])
    assert list(podman.nets) == names[1:]
    docker = Podman(podman.interfaces, EngineKind())
    assert network.network_of(cast("Any", docker), names[0], "folder") == network.NETWORK


def test_networks_of_a_killed_agent_are_swept_and_no_others(podman: Podman) -> None:
    engine = cast("Any", podman)
    for name, folder in (("gone", "f"), ("busy", "f"), ("starts", "f"), ("others", "g")):
        network.network_of(engine, name, folder)
    containers = Containers()
    containers.use("starts")
    podman.busy.add("busy")
    Sandboxes(engine, containers, network.NETWORK).tidy("f")
    assert set(podman.nets) == {"busy", "starts", "others"}


def test_sandbox_whose_job_is_still_there_stays(
    podman: Podman, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Podman would remove neither, and say so for a minute."""
    gone: list[str] = []
    monkeypatch.setattr(
        "forge_worker.runners.docker.sandboxes.remove_container", lambda _, it: gone.append(it)
    )
    podman.listed = [
        {"Id": "1", "Names": ["/forge-sandbox-1"], "Labels": {SANDBOX_LABEL: "forge-sandbox-2"}},
        {"Id": "2", "Names": ["/forge-sandbox-2"], "Labels": {SANDBOX_LABEL: ""}},
    ]
    podman.nets["x"] = {"labels": {FOLDER_LABEL: "g"}}
    Sandboxes(cast("Any", podman), Containers(), network.NETWORK).tidy("f")
    assert gone == ["1"]
