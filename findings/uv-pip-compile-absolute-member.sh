#!/usr/bin/env bash
# Surprise: what `uv pip compile` makes of a workspace member's pyproject.toml works on one machine.
#
# `uv export` and `uv pip compile` both write a requirements file of the same member of a workspace,
# made to be committed or sent elsewhere. One would expect both to name its sibling alike. uv 0.13.9
# exports a path relative to the workspace's root (not to the member, in whose folder it runs), and
# compiles an absolute `file://` URL of the machine that it ran on. There it is installed without a
# word; the text says nothing of what the sibling's code was.
#
# It decided client/forge_client/project/environment/local.py, through which every lock goes.
#
# Seen on 28 November 2026:
#   uv 0.13.9
#   uv pip compile: -e file://ROOT/packages/lib
#   uv export: -e ./packages/lib
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check uv==0.13.9
uv=$folder/venv/bin/uv

mkdir -p "$folder/root/packages/app" "$folder/root/packages/lib"
cat >"$folder/root/pyproject.toml" <<'TOML'
[tool.uv.workspace]
members = ["packages/*"]
TOML
cat >"$folder/root/packages/lib/pyproject.toml" <<'TOML'
[project]
name = "lib"
version = "1"
requires-python = ">=3.11"

[build-system]
requires = ["uv_build"]
build-backend = "uv_build"
TOML
cat >"$folder/root/packages/app/pyproject.toml" <<'TOML'
[project]
name = "app"
version = "1"
requires-python = ">=3.11"
dependencies = ["lib"]

[tool.uv.sources]
lib = { workspace = true }
TOML

cd "$folder/root/packages/app"
"$uv" lock --quiet
seen=$(
  "$uv" --version | cut -d' ' -f1,2
  echo "uv pip compile: $("$uv" pip compile --quiet --no-header --no-annotate pyproject.toml)"
  echo "uv export: $("$uv" export --quiet --no-header --no-annotate --no-emit-project)"
)
seen=${seen//$folder\/root/ROOT}
echo "$seen"
diff <(echo "$seen") - <<'EXPECTED'
uv 0.13.9
uv pip compile: -e file://ROOT/packages/lib
uv export: -e ./packages/lib
EXPECTED
