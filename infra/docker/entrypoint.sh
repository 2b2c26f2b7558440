#!/bin/sh
# Settings that are secrets come as files, /run/secrets/forge_database_url for FORGE_DATABASE_URL,
# so that they are neither in a settings file nor in the output of `docker inspect`.
set -eu
for file in "${FORGE_SECRETS:-/run/secrets}"/forge_*; do
    [ -f "$file" ] || continue
    name=$(basename "$file" | tr '[:lower:]' '[:upper:]')
    value=$(cat "$file")
    export "$name=$value"
done
exec "$@"
