//! The configuration of a throw-away cluster: small, quick to start, slow where it should be.

use std::path::Path;

/// OSDs of each device class, by number.
pub const SSD_OSDS: [u32; 2] = [0, 1];
/// See [`SSD_OSDS`].
pub const HDD_OSDS: [u32; 2] = [2, 3];

/// Longest delay of a message of an "HDD" OSD, in s: reads of some 8 ms, writes of two hops.
const HDD_DELAY_S: f64 = 0.016;

/// The whole of `ceph.conf`. Nothing in it leads out of `folder` or of the loopback.
pub(super) fn conf(folder: &Path, fsid: &str, port: u16) -> String {
    let dir = folder.display();
    let hdd: String = HDD_OSDS
        .map(|number| {
            format!(
                "[osd.{number}]\nms_inject_delay_type = client\nms_inject_delay_probability = 1\n\
                 ms_inject_delay_max = {HDD_DELAY_S}\n"
            )
        })
        .concat();
    format!(
        "[global]
fsid = {fsid}
mon_host = [v2:127.0.0.1:{port}]
mon_initial_members = a
run_dir = {dir}
admin_socket = {dir}/$name.asok
log_file = {dir}/$name.log
crash_dir = {dir}/crash
ms_bind_msgr1 = false
ms_bind_msgr2 = true
ms_bind_ipv4 = true
ms_bind_ipv6 = false
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
auth_client_required = cephx
auth_service_required = cephx
auth_cluster_required = cephx
osd_pool_default_size = 2
osd_pool_default_min_size = 1
osd_pool_default_pg_autoscale_mode = off
osd_crush_chooseleaf_type = 0

[client]
keyring = {dir}/$name.keyring
log_file =
admin_socket =

[mon]
mon_data = {dir}/mon.$id
keyring = {dir}/mon.keyring
mon_allow_pool_size_one = true
mon_allow_pool_delete = true
mon_pg_warn_min_per_osd = 0
mon_data_avail_warn = 1
mon_data_avail_crit = 0
mon_warn_on_insecure_global_id_reclaim_allowed = false
mon_osd_adjust_heartbeat_grace = false
mon_osd_min_down_reporters = 1
paxos_propose_interval = 0.05
paxos_min_wait = 0.01

[osd]
osd_data = {dir}/osd.$id
keyring = {dir}/osd.$id/keyring
osd_objectstore = bluestore
osd_crush_update_on_start = false
osd_class_update_on_start = false
osd_op_queue = wpq
osd_op_num_shards = 2
osd_heartbeat_interval = 1
osd_heartbeat_grace = 4
osd_min_pg_log_entries = 250
osd_max_pg_log_entries = 500
osd_scrub_min_interval = 1000000
osd_scrub_max_interval = 2000000
osd_deep_scrub_interval = 2000000
bluestore_block_size = 4294967296
bluestore_cache_autotune = false
bluestore_cache_size = 67108864
bluestore_fsck_on_mkfs = false
{hdd}"
    )
}

/// What the monitor is told in one session, once it is there. A pool for each device class.
pub(super) fn commands(uuids: &[(u32, String)]) -> String {
    let mut lines = Vec::new();
    for (number, uuid) in uuids {
        // They are numbered in this order.
        lines.push(format!("osd new {uuid}"));
        lines.push(format!("osd crush add {number} 1 root=default host=here"));
    }
    for (class, osds) in [("ssd", SSD_OSDS), ("hdd", HDD_OSDS)] {
        let osds = osds.map(|number| format!("osd.{number}")).join(" ");
        lines.push(format!("osd crush set-device-class {class} {osds}"));
        lines.push(format!("osd crush rule create-replicated {class} default osd {class}"));
        lines.push(format!("osd pool create {class} 64 64 replicated {class}"));
        lines.push(format!("osd pool application enable {class} rbd"));
    }
    lines.join("\n") + "\n"
}
