#!/usr/bin/env bash
# Surprise: catatonit 0.1.7, the init of `podman run --init`, starts its program with SIGTSTP,
# SIGTTIN and SIGTTOU blocked; tini 0.19.0, the init of `docker run --init`, blocks nothing.
#
# A program that stops itself with SIGTSTP, or a shell that wants to suspend its job, waits for a
# signal that never comes, with Podman only; and a mask is inherited by all that the program starts.
# One would expect an init to undo what it set for itself before it starts its program.
#
# It decided docs/container-security.md ("Podman and rootless engines"), and what
# tests/integration/runners/test_runner_contract.py accepts there.
#
# Seen on 28 November 2026, with Debian 12's packages (the same with 0.2.1-2 of later releases):
#   catatonit 0.1.7-1: SIGTSTP, SIGTTIN, SIGTTOU
#   tini 0.19.0-1: none
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
fetch() {
    apt-get download "$1=$2*" >/dev/null 2>&1
    dpkg-deb --extract "$1"_*.deb "$1"
}
# Whichever build of these versions.
fetch catatonit 0.1.7-1
fetch tini 0.19.0-1

cat >mask.py <<'PYTHON'
import signal

blocked = sorted(one.name for one in signal.pthread_sigmask(signal.SIG_BLOCK, []))
print(", ".join(blocked) or "none")
PYTHON

# An init wants to be the first process.
starts() {
    unshare --user --map-root-user --pid --fork "$@" -- python3 mask.py
}
version() {
    dpkg-deb --field "$1"_*.deb Version | cut -d+ -f1
}
seen="catatonit $(version catatonit): $(starts catatonit/usr/bin/catatonit)
tini $(version tini): $(starts tini/usr/bin/tini)"
echo "$seen"
diff <(echo "$seen") - <<'EXPECTED'
catatonit 0.1.7-1: SIGTSTP, SIGTTIN, SIGTTOU
tini 0.19.0-1: none
EXPECTED
