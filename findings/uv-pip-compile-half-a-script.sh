#!/usr/bin/env bash
# Surprise: of the settings of uv in a script's own block, `uv pip compile` obeys `find-links`, and
# passes over `[tool.uv.sources]` and `[[tool.uv.index]]`.
#
# A script with a block of PEP 723 is one of its inputs: it takes the block's dependencies
# and most settings there, and of a pyproject.toml it obeys sources and indexes too. So one would
# expect that it resolves what `uv run` runs. But a package that the script has from a folder, or
# from an index of its own, is looked for in the public index, where something else may have its
# name, and nothing is said. `uv export --script` obeys all of it, and needs no lock either.
#
# It decided client/forge_client/project/environment/locks.py, which exports such a script.
#
# Seen on 29 November 2026:
#   uv 0.13.9
#   find-links: compile inner==1, export inner==1
#   sources: compile inner not found, export ./inner
#   index: compile inner not found, export inner==1
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check uv==0.13.9
uv=$folder/venv/bin/uv

mkdir "$folder/project" "$folder/empty"
cd "$folder/project"
mkdir inner wheels
printf '[project]\nname = "inner"\nversion = "1"\n' >inner/pyproject.toml
touch inner/inner.py
python3 - <<'PYTHON'
from zipfile import ZipFile

with ZipFile("wheels/inner-1-py3-none-any.whl", "w") as wheel:
    wheel.writestr("inner-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: inner\nVersion: 1\n")
    wheel.writestr("inner-1.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
    wheel.writestr("inner-1.dist-info/RECORD", "")
PYTHON

script() {
    printf '# /// script\n# dependencies = ["inner"]\n'
    printf '# %s\n' "$@"
    printf '# ///\n'
}
script '[tool.uv]' 'find-links = ["wheels"]' >find-links.py
script '[tool.uv.sources]' 'inner = { path = "inner" }' >sources.py
script '[[tool.uv.index]]' 'url = "wheels"' 'format = "flat"' >index.py

# An empty folder stands for the public index.
of() {
    "$uv" "$@" --quiet --no-header --no-annotate --default-index "file://$folder/empty" 2>&1 |
        sed -n 's/.*Because inner was not found.*/inner not found/; /^[a-z./]*inner/p' | head -1
}
seen=$(
  "$uv" --version | cut -d' ' -f1,2
  for name in find-links sources index; do
    echo "$name: compile $(of pip compile "$name.py"), export $(of export --script "$name.py")"
  done
)
echo "$seen"
diff <(echo "$seen") - <<'EXPECTED'
uv 0.13.9
find-links: compile inner==1, export inner==1
sources: compile inner not found, export ./inner
index: compile inner not found, export inner==1
EXPECTED
