#!/usr/bin/env bash
# Surprise: a local ray.init() of Ray 2.60.0 changes how later clusters of that user start.
#
# A local ray.init() makes a token in ~/.ray/auth_token, and nothing removes it. From then on, "ray
# start --head" of the same user demands this token from whoever joins, though nobody asked for it
# and RAY_AUTH_MODE is unset. Meanwhile "ray health-check", which scripts use to wait for the head,
# sends no token: it fails on the very same machine.
#
# One would expect a local cluster to concern nobody else. Give each cluster a token by
# RAY_AUTH_TOKEN, and RAY_AUTH_MODE=token to all commands that ask it.
#
# It decided that worker/forge_worker/gang/launchers.py and runners/process/runner.py give each
# cluster and each job a token of its own.
#
# Seen on 29 November 2026:
#   ray 2.60.0
#   token before: no; after a local ray.init(): yes
#   health-check of a head that is started now: fails
#   with RAY_AUTH_MODE=token: succeeds
set -euo pipefail

folder=$(mktemp -d)
export HOME="$folder/home" RAY_TMPDIR="$folder" PYTHONWARNINGS=ignore
unset RAY_AUTH_MODE RAY_AUTH_TOKEN RAY_AUTH_TOKEN_PATH RAY_ADDRESS
mkdir "$HOME"
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check ray==2.60.0
PATH="$folder/venv/bin:$PATH"

port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
head=
finish() {
    [ -z "$head" ] || { kill "$head"; wait "$head" || true; }
    rm -rf "$folder"
}
trap finish EXIT

has_token() { [ -e "$HOME/.ray/auth_token" ] && echo yes || echo no; }
checked() {
    for _ in $(seq "$1"); do
        if timeout 60 ray health-check --address="127.0.0.1:$port" >/dev/null 2>&1; then
            echo succeeds
            return
        fi
        sleep 2
    done
    echo fails
}

before=$(has_token)
python3 -c 'import ray; ray.init("local", num_cpus=1, include_dashboard=False)' >/dev/null 2>&1
after=$(has_token)
RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S=0 ray start --head --block --num-cpus=1 --port="$port" \
    --node-ip-address=127.0.0.1 --include-dashboard=false --disable-usage-stats >/dev/null 2>&1 &
head=$!
with=$(RAY_AUTH_MODE=token checked 30)
# The head answers by now.
without=$(checked 3)
seen="ray $(python3 -c 'import ray; print(ray.__version__)')
token before: $before; after a local ray.init(): $after
health-check of a head that is started now: $without
with RAY_AUTH_MODE=token: $with"
echo "$seen"
diff <(echo "$seen") - <<'EXPECTED'
ray 2.60.0
token before: no; after a local ray.init(): yes
health-check of a head that is started now: fails
with RAY_AUTH_MODE=token: succeeds
EXPECTED
