"""Debian releases in folders: built once, kept, and given the clone with its environment.

All that needs the network happens here, outside of the namespaces, which have none.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from grounds.declaration import PLAIN, TREES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from grounds.declaration import Ground, Tree

HERE, CLONE = Path(__file__).parent, Path(__file__).parents[2]
THERE = Path("home") / PLAIN / "forge"
SCRIPTS = Path("/usr/share/debootstrap/scripts")
# How this machine reaches Debian's mirror and the package index.
SETUP = (
    *("/etc/apt/apt.conf.d", "/etc/pip.conf", "/etc/resolv.conf"),
    *("/etc/ssl/certs/ca-certificates.crt", "/root/.config/pip", "/root/.pip"),
)
MIRROR = "apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Component: main'"


def prepared(ground: Ground, trees: Path) -> Path:
    """Return the ground's tree, with its packages and the clone as it is now."""
    tree = TREES[ground.tree]
    folder = trees / tree.suite
    if not (folder / "usr/bin/apt-get").exists():
        _bootstrap(tree, folder)
    _set_up(folder)
    _install(folder, (*tree.packages, *ground.packages))
    # The package of certificates writes its own list.
    _set_up(folder)
    _chroot(
        folder,
        f"id {PLAIN} >/dev/null 2>&1 || useradd --create-home --shell /bin/bash {PLAIN};"
        f"! getent group docker >/dev/null || usermod --append --groups docker {PLAIN};"
        f"mkdir -p /home/{PLAIN}/kept",
    )
    _clone(folder)
    _image(folder)
    kept = f"home/{PLAIN}/kept"
    if ground.fetch:
        _chroot(folder, f"cd /{kept} && {ground.fetch}", ground.variables)
    if ground.fetch_here:
        script, *words = ground.fetch_here
        subprocess.run(["bash", HERE / script, *words], cwd=folder / kept, check=True)
    return folder


def _bootstrap(tree: Tree, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    mirror = _said(MIRROR).split("\n")[0]
    script = [str(SCRIPTS / tree.script)] if tree.script else []
    words = ["debootstrap", "--variant=minbase", tree.suite, str(folder), mirror, *script]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    # No package starts its service.
    no = folder / "usr/sbin/policy-rc.d"
    no.write_text("#!/bin/sh\nexit 101\n", encoding="utf-8")
    no.chmod(0o755)


def _set_up(folder: Path) -> None:
    for place in map(Path, SETUP):
        there = folder / place.relative_to("/")
        if place.is_dir():
            shutil.copytree(place, there, dirs_exist_ok=True)
        elif place.exists():
            there.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(place, there)


def _install(folder: Path, packages: tuple[str, ...]) -> None:
    has = "dpkg-query --show --showformat='${db:Status-Status} ${Package}\n'"
    installed = set(_chroot(folder, has).split("\n"))
    missing = [name for name in packages if f"installed {name}" not in installed]
    if missing:
        names = " ".join(missing)
        _chroot(folder, f"apt-get update -qq && {INSTALL} {names} >/dev/null")


INSTALL = "DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends"


def _clone(folder: Path) -> None:
    """Bring the clone as it is now, with changes that are not committed, and its environment."""
    there = folder / THERE
    if not (there / ".git").exists():
        subprocess.run(["git", "clone", "-q", "--no-hardlinks", CLONE, there], check=True)
    head = _said(f"git -C {CLONE} rev-parse HEAD")
    # It may be another user's since the last run.
    git = f"git -c safe.directory='*' -C {there}"
    changed = f"git -C {CLONE} ls-files -z --modified --others --exclude-standard"
    _said(
        f"{git} fetch -q {CLONE} HEAD && {git} reset -q --hard {head} && {git} clean -qfd;"
        f"{changed} | tar -C {CLONE} --ignore-failed-read --null -T - -c | tar -C {there} -x"
    )
    _chroot(folder, f"cd /{THERE} && chown -R root: . && make -s .venv/dev.stamp .venv/demo.stamp")


def _image(folder: Path) -> None:
    """Bring the tests' image as a tar, which is made without the tree."""
    tar = Path(_said(f"{CLONE}/.ci/base-image.sh --tar"))
    there = folder / "root/.cache/forge-ci" / tar.name
    if not there.exists():
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(tar, there)


def _chroot(folder: Path, command: str, variables: Mapping[str, str] | None = None) -> str:
    kept = {name: value for name, value in os.environ.items() if "proxy" in name.lower()}
    environment = {**kept, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}
    mounted = 'mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" && exec chroot "$@"'
    ran = subprocess.run(
        ["unshare", "--mount", "sh", "-c", mounted, "sh", folder, "sh", "-ec", command],
        env={**environment, "LANG": "C.UTF-8", **(variables or {})},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return ran.stdout.strip()


def _said(command: str) -> str:
    words = ["bash", "-o", "pipefail", "-c", command]
    return subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
