# OpenStack Swift with its S3 interface: one of each server, on one folder.
swift=/tmp/swift
mkdir -p $swift/disks/d1 /etc/swift
cat >/etc/swift/swift.conf <<CONF
[swift-hash]
swift_hash_path_suffix = forge
[storage-policy:0]
name = only
default = yes
CONF
port=6200
for kind in object container account; do
    cat >$swift/$kind.conf <<CONF
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = $port
devices = $swift/disks
mount_check = false
user = root
workers = 1
fallocate_reserve = 0
[pipeline:main]
pipeline = $kind-server
[app:$kind-server]
use = egg:swift#$kind
CONF
    (
        cd /etc/swift
        rm -f $kind.builder $kind.ring.gz
        swift-ring-builder $kind.builder create 6 1 1
        swift-ring-builder $kind.builder add r1z1-127.0.0.1:$port/d1 1
        swift-ring-builder $kind.builder rebalance
    ) >/dev/null
    port=$((port + 1))
done
cat >$swift/proxy.conf <<CONF
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = 8080
user = root
workers = 2
[pipeline:main]
pipeline = catch_errors gatekeeper cache listing_formats s3api tempauth bulk slo dlo proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
[filter:tempauth]
use = egg:swift#tempauth
user_test_test = testtest .admin
[filter:s3api]
use = egg:swift#s3api
[filter:cache]
use = egg:swift#memcache
memcache_servers = 127.0.0.1:11211
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:gatekeeper]
use = egg:swift#gatekeeper
[filter:listing_formats]
use = egg:swift#listing_formats
[filter:bulk]
use = egg:swift#bulk
[filter:slo]
use = egg:swift#slo
[filter:dlo]
use = egg:swift#dlo
CONF
memcached -u root -l 127.0.0.1 -d
for kind in account container object proxy; do
    swift-$kind-server $swift/$kind.conf >$swift/$kind.log 2>&1 &
done
for _ in $(seq 120); do
    (: </dev/tcp/127.0.0.1/8080) 2>/dev/null && break
    sleep 0.5
done
# In the key, %3A is the colon between account and user.
export FORGE_TEST_S3=http://test%3Atest:testtest@127.0.0.1:8080
