# The release's own engine, with the image of the tests. DOCKER_FEATURES are of its configuration.
echo "{\"features\": ${DOCKER_FEATURES:-{\}}}" >/tmp/daemon.json
dockerd --config-file /tmp/daemon.json --data-root "/var/lib/docker${DOCKER_FEATURES:+-other}" \
    --host unix:///run/docker.sock >/tmp/dockerd.log 2>&1 &
engine_answers /tmp/dockerd.log
export FORGE_TEST_IMAGE=forge-test-base:latest
.ci/base-image.sh
