# Podman behind the socket that docker-py and the `docker` command know.
mkdir -p /run/podman /etc/containers/registries.conf.d
# Docker takes registries on loopback without TLS of itself.
printf '[[registry]]\nlocation = "127.0.0.1"\ninsecure = true\n' \
    >/etc/containers/registries.conf.d/forge-tests.conf
podman system service --time=0 unix:///run/podman/podman.sock >/tmp/podman.log 2>&1 &
export DOCKER_HOST=unix:///run/podman/podman.sock
engine_answers /tmp/podman.log
export FORGE_TEST_IMAGE=forge-test-base:latest
.ci/base-image.sh
