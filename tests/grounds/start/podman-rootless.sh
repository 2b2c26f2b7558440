# Podman of the plain user who runs the tests, with ids of its own to map.
echo "$user:100000:65536" | tee /etc/subuid >/etc/subgid
export XDG_RUNTIME_DIR=/run/user/tests
install -d -o "$user" -m 700 "$XDG_RUNTIME_DIR"
as_user=(setpriv --reuid "$user" --regid "$user" --init-groups env "HOME=/home/$user")
export DOCKER_HOST=unix://$XDG_RUNTIME_DIR/podman.sock
"${as_user[@]}" podman system service --time=0 "$DOCKER_HOST" >/tmp/podman.log 2>&1 &
engine_answers /tmp/podman.log
export FORGE_TEST_IMAGE=forge-test-base:latest
# The tar of the image is in root's cache.
docker import --change 'ENV LANG=C.UTF-8' --change 'CMD ["python3"]' \
    "$(.ci/base-image.sh --tar)" "$FORGE_TEST_IMAGE" >/dev/null
