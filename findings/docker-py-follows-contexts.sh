#!/usr/bin/env bash
# Surprise: docker-py 7.2.0's from_env() connects to the engine of the Docker context in use, and
# to the default socket if that context does not exist; 7.1.0 knows no contexts.
#
# from_env() sounds as if DOCKER_HOST decided, and so it did: code beside it that reads DOCKER_HOST
# "else /var/run/docker.sock" was right for years. Since 7.2.0 it looks at another engine than the
# client does, as soon as somebody has run `docker context use` (the installer of rootless Docker
# and Docker Desktop do). The docker command refuses a context that is missing; docker-py takes the
# default socket without a word, which may be another engine.
#
# It decided worker/forge_worker/runners/engines.py: one place resolves the address, and a
# context that leads nowhere is an error.
#
# Seen on 28 November 2026:
#   docker 7.1.0: context in use -> /var/run/docker.sock; context missing -> /var/run/docker.sock
#   docker 7.2.0: context in use -> /run/user/1000/docker.sock; context missing -> /var/run/docker.sock
#   docker 7.2.0: DOCKER_HOST -> /of/the/environment
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for version in 7.1.0 7.2.0; do
    python3 -m venv "$folder/$version"
    "$folder/$version/bin/pip" install --quiet --disable-pip-version-check "docker==$version"
done

export DOCKER_CONFIG=$folder/config
unset DOCKER_HOST DOCKER_CONTEXT
cat >"$folder/look.py" <<'PYTHON'
import json
import os
from hashlib import sha256
from pathlib import Path

import docker

config = Path(os.environ["DOCKER_CONFIG"])
meta = config / "contexts" / "meta" / sha256(b"rootless").hexdigest() / "meta.json"
meta.parent.mkdir(parents=True, exist_ok=True)
host = {"Host": "unix:///run/user/1000/docker.sock", "SkipTLSVerify": False}
meta.write_text(json.dumps({"Name": "rootless", "Metadata": {}, "Endpoints": {"docker": host}}))


def place(context):
    (config / "config.json").write_text(json.dumps({"currentContext": context}))
    # With a version, it does not connect.
    api = docker.from_env(version="1.44").api
    return api.get_adapter(api.base_url).socket_path


print(
    f"docker {docker.__version__}: context in use -> {place('rootless')};"
    f" context missing -> {place('nosuch')}"
)
if docker.__version__ == "7.2.0":
    os.environ["DOCKER_HOST"] = "unix:///of/the/environment"
    print(f"docker {docker.__version__}: DOCKER_HOST -> {place('rootless')}")
PYTHON

seen=$("$folder/7.1.0/bin/python" "$folder/look.py"; "$folder/7.2.0/bin/python" "$folder/look.py")
echo "$seen"
diff <(echo "$seen") - <<'EXPECTED'
docker 7.1.0: context in use -> /var/run/docker.sock; context missing -> /var/run/docker.sock
docker 7.2.0: context in use -> /run/user/1000/docker.sock; context missing -> /var/run/docker.sock
docker 7.2.0: DOCKER_HOST -> /of/the/environment
EXPECTED
