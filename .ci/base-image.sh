#!/usr/bin/env bash
# Put the image forge-test-base:latest (Debian with python3 and numpy) into the Docker engine.
#
# It is made without an image registry: debootstrap, then `docker import`. The tree is kept as a
# tar outside the clone, so that another clone, or an engine that lost its images, needs seconds.
# `base-image.sh --tar` makes only the tar, and prints where it is.
set -euo pipefail

image=forge-test-base:latest
suite=bookworm
packages=python3,python3-numpy
cache=${XDG_CACHE_HOME:-$HOME/.cache}/forge-ci

# The recipe is this file: any change to it makes another tar and another image.
recipe=$(sha256sum "${BASH_SOURCE[0]}" | cut -c1-16)
tar=$cache/forge-test-base-$recipe.tar

in_engine() {
    [ "$(docker image inspect --format '{{index .Config.Labels "forge.recipe"}}' "$image" 2>/dev/null)" = "$recipe" ]
}

# The mirror that this machine itself uses, for whichever release; empty means debootstrap's own
# default. Others that it knows, such as that of security updates, have not the whole release.
mirror() {
    apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Component: main' \
        "Codename: $(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)" 2>/dev/null | head -n 1
}

clean_up() {
    umount "$stage/tree/proc" "$stage/tree/sys" 2>/dev/null || true
    rm -rf --one-file-system "$stage"
}

build_tree() {
    stage=$(mktemp -d "$cache/stage.XXXXXX")
    trap clean_up EXIT
    local from
    from=$(mirror)
    echo "base image: debootstrap $suite (about a minute; its log: $cache/debootstrap.log)"
    debootstrap --variant=minbase --include="$packages" "$suite" "$stage/tree" ${from:+"$from"} \
        >"$cache/debootstrap.log" 2>&1 || { tail -n 30 "$cache/debootstrap.log" >&2; exit 1; }
    rm -rf "$stage"/tree/var/cache/apt/* "$stage"/tree/var/lib/apt/lists/* "$stage"/tree/usr/share/doc/*
    tar -C "$stage/tree" --numeric-owner --one-file-system -cf "$stage/tree.tar" .
    # Renamed only when whole, so that a run cut short leaves no broken cache.
    mv "$stage/tree.tar" "$tar"
}

if [ "${1:-}" = --tar ]; then
    mkdir -p "$cache"
    [ -s "$tar" ] || build_tree >&2
    echo "$tar"
    exit
fi
if in_engine; then
    echo "base image: $image is there (recipe $recipe)"
    exit 0
fi
mkdir -p "$cache"
[ -s "$tar" ] || build_tree
echo "base image: docker import $tar"
docker import \
    --change "LABEL forge.recipe=$recipe" \
    --change 'ENV LANG=C.UTF-8' \
    --change 'CMD ["python3"]' \
    "$tar" "$image" >/dev/null
in_engine || { echo "base image: $image is not what was imported" >&2; exit 1; }
docker run --rm --network none "$image" python3 -c 'import numpy, sys; print("base image: python", sys.version.split()[0], "numpy", numpy.__version__)'
