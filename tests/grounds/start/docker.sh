# The release's own engine, with the image of the tests. DOCKER_FEATURES are of its configuration.
echo "{\"features\": ${DOCKER_FEATURES:-{\}}}" >/tmp/daemon.json
dockerd --config-file /tmp/daemon.json --data-root "/var/lib/docker${DOCKER_FEATURES:+-other}" \
    --host unix:///run/docker.sock >/tmp/dockerd.log 2>&1 &
for _ in $(seq 120); do
    docker info >/dev/null 2>&1 && break
    sleep 0.5
done
docker info >/dev/null || { tail -n 30 /tmp/dockerd.log; exit 1; }
export FORGE_TEST_IMAGE=forge-test-base:latest
.ci/base-image.sh
