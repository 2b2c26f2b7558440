#!/usr/bin/env bash
# Surprise: `uv pip install --no-deps ./package` fails because of dependencies that it does not install.
#
# With --no-deps, only the package itself is built, and one would expect the places of its
# dependencies not to matter: uv's lock names them all, each with its own line. But uv 0.13.9 reads
# [tool.uv.sources] of a folder that it builds, and refuses a member of a workspace whose workspace is
# not around it, as in an image or a bundle that has only the members which are needed. pip builds the
# same folder. --no-sources (UV_NO_SOURCES=1) makes uv build it too.
#
# It decided UV_NO_SOURCES in worker/forge_worker/prepare/pip_install.py.
#
# Seen on 28 November 2026:
#   uv 0.13.9
#   uv pip install --no-deps: `other` references a workspace in `tool.uv.sources`
#   with UV_NO_SOURCES=1: installed 1
#   pip 26.3: installed 1
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check uv==0.13.9 pip==26.3
bin=$folder/venv/bin

mkdir -p "$folder/member/src/member"
touch "$folder/member/src/member/__init__.py"
cat >"$folder/member/pyproject.toml" <<'TOML'
[project]
name = "member"
version = "1"
dependencies = ["other"]

[tool.uv.sources]
other = { workspace = true }

[build-system]
requires = ["hatchling==1.27.0"]
build-backend = "hatchling.build"
TOML

installed() {
  find "$1" -maxdepth 1 -name 'member-1.dist-info' | wc -l
}

cd "$folder"
seen=$(
  "$bin/uv" --version | cut -d' ' -f1,2
  echo "uv pip install --no-deps: $("$bin/uv" pip install --no-deps --target one ./member 2>&1 |
    grep -o '`other` references a workspace in `tool.uv.sources`')"
  UV_NO_SOURCES=1 "$bin/uv" pip install --quiet --no-deps --target two ./member
  echo "with UV_NO_SOURCES=1: installed $(installed two)"
  "$bin/pip" install --quiet --disable-pip-version-check --no-deps --target three ./member
  echo "pip 26.3: installed $(installed three)"
)
echo "$seen"
diff <(echo "$seen") - <<'EXPECTED'
uv 0.13.9
uv pip install --no-deps: `other` references a workspace in `tool.uv.sources`
with UV_NO_SOURCES=1: installed 1
pip 26.3: installed 1
EXPECTED
