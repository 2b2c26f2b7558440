#!/usr/bin/env bash
# inside.sh USER COMMAND [NAME=VALUE...] [START...]: in a ground's namespaces, start its services,
# then run the command as the user in the clone.
set -euo pipefail
user=$1 command=$2
shift 2
cd /home/tester/forge
# Wait for the engine that DOCKER_HOST names, whose log this is.
engine_answers() {
    for _ in $(seq 120); do
        docker info >/dev/null 2>&1 && return
        sleep 0.5
    done
    tail -n 30 "$1"
    exit 1
}
for one in "$@"; do
    case $one in
    *=*) export "${one?}" ;;
    *) . "tests/grounds/start/$one.sh" ;;
    esac
done
chown -R "$user:" /home/tester/forge
home=$(getent passwd "$user" | cut -d: -f6)
setpriv --reuid "$user" --regid "$user" --init-groups env HOME="$home" USER="$user" LOGNAME="$user" \
    bash -c "$command"
