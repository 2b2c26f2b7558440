# One monitor, one storage daemon that keeps all in memory, and a RADOS Gateway in front of them.
ceph=/tmp/ceph
mkdir -p $ceph/mon $ceph/osd $ceph/rgw
fsid=$(cat /proc/sys/kernel/random/uuid)
export CEPH_CONF=$ceph/ceph.conf
cat >$CEPH_CONF <<CONF
[global]
fsid = $fsid
mon_host = v1:127.0.0.1:6789
ms_bind_msgr2 = false
ms_bind_ipv6 = false
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 4
osd_pool_default_pgp_num = 4
osd_pool_default_pg_autoscale_mode = off
osd_objectstore = memstore
# Debian's is relative, and would be looked for in this folder.
osd_class_dir = $(echo /usr/lib/*/rados-classes)
memstore_device_bytes = 6442450944
osd_crush_chooseleaf_type = 0
mon_allow_pool_size_one = true
mon_max_pg_per_osd = 1000
mon_data_avail_crit = 1
log_file = $ceph/\$name.log
run_dir = $ceph
admin_socket =
[mon.a]
mon_data = $ceph/mon
[osd.0]
osd_data = $ceph/osd
[client.rgw.a]
rgw_frontends = beast endpoint=127.0.0.1:7480
rgw_data = $ceph/rgw
CONF
as_root="--setuser root --setgroup root"
monmaptool --create --clobber --fsid "$fsid" --addv a "[v1:127.0.0.1:6789]" $ceph/monmap
ceph-mon --mkfs -i a --monmap $ceph/monmap $as_root
ceph-mon -i a $as_root
for _ in $(seq 60); do
    timeout 5 ceph -s >/dev/null 2>&1 && break
    sleep 1
done
osd=$(cat /proc/sys/kernel/random/uuid)
ceph osd new "$osd" 0
ceph-osd -i 0 --mkfs --osd-uuid "$osd" $as_root
ceph osd crush add osd.0 1.0 host=here root=default
ceph-osd -i 0 $as_root
for _ in $(seq 60); do
    ceph osd stat | grep -q '1 up' && break
    sleep 1
done
radosgw -n client.rgw.a $as_root
radosgw-admin -n client.rgw.a user create --uid=test --display-name=test \
    --access-key=test --secret-key=testtest >/dev/null
for _ in $(seq 120); do
    (: </dev/tcp/127.0.0.1/7480) 2>/dev/null && break
    sleep 0.5
done
export FORGE_TEST_S3=http://test:testtest@127.0.0.1:7480
