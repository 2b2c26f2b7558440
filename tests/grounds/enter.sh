#!/usr/bin/env bash
# enter.sh TREE COMMAND...: run COMMAND in the tree as root, within mount, network and process
# namespaces of its own. Whatever it started ends with it.
set -euo pipefail
if [ "$1" != --inside ]; then
    # On the disk: tests want more room than half of the memory.
    scratch=$(mktemp -d "$1/var/tmp/ground.XXXXXX")
    trap 'rm -rf --one-file-system "$scratch"' EXIT
    unshare --mount --net --pid --fork --kill-child --propagation private \
        bash "${BASH_SOURCE[0]}" --inside "$scratch" "$@"
    exit
fi
scratch=$2 tree=$3
shift 3
ip link set lo up
# A network that leads nowhere: without any, Open MPI 5.0.7 does not start.
ip link add eth0 type veth peer name nowhere
ip address add 198.51.100.1/24 dev eth0
ip link set eth0 up
ip link set nowhere up
mount --bind "$tree" "$tree"
mount -t proc proc "$tree/proc"
mount -t sysfs sysfs "$tree/sys"
mount --rbind /sys/fs/cgroup "$tree/sys/fs/cgroup"
mount --rbind /dev "$tree/dev"
mount -t tmpfs tmpfs "$tree/run"
chmod 1777 "$scratch"
mount --bind "$scratch" "$tree/tmp"
# Folders with packages that pip knows: some tests build projects or images.
known=$(cat /etc/pip.conf /root/.config/pip/pip.conf /root/.pip/pip.conf 2>/dev/null || true)
for folder in $(printf '%s\n' "$known" | grep -oE '(file://| )/[^ ]+' | sed 's#^ *\(file://\)\?##; s#/simple$##'); do
    [ -d "$folder" ] || continue
    mkdir -p "$tree$folder"
    mount --bind -o ro "$folder" "$tree$folder"
done
cd "$tree"
mkdir -p old
pivot_root . old
cd /
umount -l /old
exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
    LANG=C.UTF-8 "$@"
