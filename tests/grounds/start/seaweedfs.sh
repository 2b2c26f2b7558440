# SeaweedFS from its wheel, which `fetch` has put into /home/tester/kept.
mkdir -p /tmp/weed
cat >/tmp/weed/keys.json <<'JSON'
{"identities": [{"name": "test", "credentials": [{"accessKey": "test", "secretKey": "testtest"}],
                 "actions": ["Admin", "Read", "Write", "List", "Tagging"]}]}
JSON
# It would take what memory there is: 13 GB in a quarter of an hour of faults.
GOMEMLIMIT=4GiB /home/tester/kept/weed/bin/weed server -dir=/tmp/weed -ip=127.0.0.1 -s3 -s3.port=8333 \
    -s3.config=/tmp/weed/keys.json -volume.max=3000 -master.volumeSizeLimitMB=256 \
    -master.telemetry=false >/tmp/weed.log 2>&1 &
export FORGE_TEST_S3=http://test:testtest@127.0.0.1:8333
for _ in $(seq 120); do
    (: </dev/tcp/127.0.0.1/8333) 2>/dev/null && break
    sleep 0.5
done
