//! What is different between two configurations, key by key, by the names of the guide.
//!
//! A key that is not listed here still shows: as [`ANOTHER`].

use crate::settings::{CacheConfig, QosGroupConfig, VolumeChange, VolumeConfig};
use crate::{Config, ControlConfig, ManagerConfig, TlsConfig};

/// A difference that has no name here.
pub const ANOTHER: &str = "another key";

pub use crate::volume_keys::LIVE_VOLUME_KEYS;

/// Keys of `[manager]` that can be changed while it plans.
pub const LIVE_MANAGER_KEYS: [&str; 10] = [
    "allocator",
    "apply",
    "step_percent",
    "prices",
    "ssd_read_us",
    "ssd_write_us",
    "backend_read_us",
    "backend_write_us",
    "omega_percent",
    "ssd_budget",
];

/// The keys in which two values of a type differ. What else differs shows as well, unnamed.
macro_rules! differing {
    ($old:expr, $new:expr; $($key:literal: $($field:ident).+),+ $(,)?) => {{
        let (old, new) = ($old, $new);
        let mut keys = Vec::new();
        let mut rest = old.clone();
        $(
            if old.$($field).+ != new.$($field).+ {
                keys.push($key);
            }
            rest.$($field).+.clone_from(&new.$($field).+);
        )+
        if rest != *new {
            keys.push(ANOTHER);
        }
        keys
    }};
}

/// Whether configurations differ in a section that has no function here.
pub fn differ_elsewhere(old: &Config, new: &Config) -> bool {
    let mut rest = old.clone();
    rest.file.clone_from(&new.file);
    rest.path.clone_from(&new.path);
    rest.given = new.given;
    rest.base.clone_from(&new.base);
    rest.cache.clone_from(&new.cache);
    rest.lock_wait_max = new.lock_wait_max;
    rest.control.clone_from(&new.control);
    rest.tls.clone_from(&new.tls);
    rest.manager = new.manager;
    rest.volumes.clone_from(&new.volumes);
    rest.qos_groups.clone_from(&new.qos_groups);
    // They follow from the rest.
    rest.lines.clone_from(&new.lines);
    rest.warnings.clone_from(&new.warnings);
    rest != *new
}

/// Keys of `[cache]` that differ.
pub fn cache_keys(old: &CacheConfig, new: &CacheConfig) -> Vec<&'static str> {
    // The keys of the write log belong to it as long as there is one.
    let (mut old, mut keys) = (old.clone(), Vec::new());
    if let (Some(before), Some(after)) = (&mut old.write_log, &new.write_log) {
        let memory = (&before.memory, &after.memory);
        if let (Some(from), Some(to)) = memory {
            keys.extend(
                differing!(from, to; "write_memory": path, "write_memory_size": size_bytes),
            );
        } else if memory.0 != memory.1 {
            keys.push("write_memory");
        }
        before.memory.clone_from(&after.memory);
        keys.extend(differing!(&*before, after;
            "write_log": path,
            "write_log_mirror": mirror,
            "write_log_size": size_bytes,
            "dirty_max_percent": dirty_max_percent,
            "rpo_s": rpo,
            "destage_pace": pace,
            "drain_on_stop": drain_on_stop,
        ));
        before.clone_from(after);
    }
    let mut all = differing!(&old, new;
        "device": device,
        "size": size_bytes,
        "size_max": size_max_bytes,
        "io": io,
        "force": force,
        "required": required,
        "crash_safe": crash_safe,
        "device_timeout_s": device_timeout,
        "state_dir": state_dir,
        "eviction": eviction,
        "endurance": endurance,
        "probation": probation_bytes,
        "shards": shards,
        "threads": threads,
        "client_memory": client_memory_bytes,
        "poll_us": poll_max,
        "write_log": write_log,
    );
    all.extend(keys);
    all
}

/// Keys of `[control]` that differ.
pub fn control_keys(old: &ControlConfig, new: &ControlConfig) -> Vec<&'static str> {
    let (mut old, mut keys) = (old.clone(), Vec::new());
    if let (Some(before), Some(after)) = (&mut old.api, &new.api) {
        keys.extend(differing!(&*before, after; "token_file": token_file));
        before.clone_from(after);
    }
    if let (Some(before), Some(after)) = (&mut old.http_tls, &new.http_tls) {
        keys.extend(differing!(&*before, after;
            "http_tls": clients_known,
            "http_tls_allow": allow,
        ));
        before.clone_from(after);
    }
    if let (Some(before), Some(after)) = (&mut old.peers, &new.peers) {
        keys.extend(differing!(&*before, after;
            "peers": address,
            "peers_token_file": token_file,
        ));
        before.clone_from(after);
    }
    let mut all = differing!(&old, new;
        "socket": socket,
        "socket_group": socket_group,
        "http": http,
        "http_tls": http_tls,
        "allowed_hosts": allowed_hosts,
        "api": api,
        "peers": peers,
        "stop_wait_s": stop_wait_max,
    );
    all.extend(keys);
    all
}

/// Keys of `[tls]` that differ.
pub fn tls_keys(old: &TlsConfig, new: &TlsConfig) -> Vec<&'static str> {
    differing!(old, new;
        "certificate": certificate,
        "key": key,
        "client_ca": client_ca,
        "threads": threads,
    )
}

/// Keys of `[manager]` that differ.
#[allow(clippy::float_cmp, reason = "they differ if they were written otherwise")]
pub fn manager_keys(old: &ManagerConfig, new: &ManagerConfig) -> Vec<&'static str> {
    let mut new = *new;
    // It follows from another one.
    new.rules.prices.lambda_us = old.rules.prices.lambda_us;
    differing!(old, &new;
        "interval_s": every,
        "allocator": rules.allocator,
        "apply": apply,
        "step_percent": rules.steadiness.step_max,
        "decay_percent": monitor.decay,
        "sample_blocks": monitor.sampling,
        "seed": monitor.seed,
        "prices": measured,
        "ssd_read_us": rules.prices.ssd_read_us,
        "ssd_write_us": rules.prices.ssd_write_us,
        "backend_read_us": rules.prices.backend_read_us,
        "backend_write_us": rules.prices.backend_write_us,
        "omega_percent": rules.prices.omega,
        "ssd_budget": ssd_bytes_a_day,
    )
}

/// Keys of a `[[volume]]` that differ.
pub fn volume_keys(old: &VolumeConfig, new: &VolumeConfig) -> Vec<&'static str> {
    let (mut old, mut keys) = (old.clone(), Vec::new());
    if let (Some(before), Some(after)) = (&mut old.peer, &new.peer) {
        keys.extend(differing!(&*before, after;
            "migrate_peer": address,
            "migrate_token_file": token_file,
        ));
        before.clone_from(after);
    }
    if let (Some(before), Some(after)) = (&mut old.socket.tls, &new.socket.tls) {
        keys.extend(differing!(&*before, after; "tls_allow": allow));
        before.clone_from(after);
    }
    let mut all = differing!(&old, new;
        "name": name,
        "backend": backend,
        "mode": mode,
        "ack": ack,
        "share_min": share_min,
        "share_max": share_max,
        "auto_mode": auto_mode,
        "weight": weight,
        "nbd": nbd,
        "vhost_user": vhost_user,
        "socket_mode": socket.mode,
        "socket_group": socket.group,
        "nbd_tls": socket.tls,
        "claim": claim,
        "read_only": read_only,
        "shared": shared,
        "exclusive": exclusive,
        "format": raw,
        "return_snapshot": return_snapshot,
        "bypass_sequential": bypass_sequential_bytes,
        "bypass_large": bypass_large_bytes,
        "fill_limit": fill_limit_bytes,
        "memory_max": memory_max_bytes,
        "backend_timeout_s": backend_timeout,
        "iops_reservation": qos.reservation_iops,
        "iops_limit": qos.limit_iops,
        "iops_weight": qos.weight,
        "guest_iops_limit": guest_iops_limit,
        "guest_bytes_limit": guest_bytes_limit,
        "qos_group": qos_group,
        "write_group": write_group,
        "parent": parent,
        "migrate_peer": peer,
        "migrate_warm_rate": warm.rate_bytes,
        "migrate_warm_for_s": warm.time_max,
    );
    all.extend(keys);
    all
}

/// Names of `[[qos_group]]` that differ, came or went.
pub fn group_names(old: &[QosGroupConfig], new: &[QosGroupConfig]) -> Vec<String> {
    let other = new.iter().filter(|group| !old.contains(group));
    let mut names: Vec<String> = other.map(|group| group.name.clone()).collect();
    let gone = old.iter().filter(|group| !new.iter().any(|other| other.name == group.name));
    names.extend(gone.map(|group| group.name.clone()));
    names
}

/// What a volume that is served as `now` says is to be told so that these keys are as `new` says; all
/// others stay. The second is what it has then.
pub fn change_of(
    keys: &[&str],
    now: &VolumeConfig,
    new: &VolumeConfig,
) -> (VolumeChange, VolumeConfig) {
    let has = |key: &str| keys.contains(&key);
    let mut then = now.clone();
    if has("iops_reservation") {
        then.qos.reservation_iops = new.qos.reservation_iops;
    }
    if has("iops_limit") {
        then.qos.limit_iops = new.qos.limit_iops;
    }
    if has("iops_weight") {
        then.qos.weight = new.qos.weight;
    }
    let change = VolumeChange {
        mode: has("mode").then_some(new.mode),
        mode_from: None,
        ack: has("ack").then_some(new.ack),
        share_min: has("share_min").then_some(new.share_min),
        share_max: has("share_max").then_some(new.share_max),
        fill_limit_bytes: has("fill_limit").then_some(new.fill_limit_bytes),
        qos: (then.qos != now.qos).then_some(then.qos),
        guest_iops_limit: has("guest_iops_limit").then_some(new.guest_iops_limit),
        guest_bytes_limit: has("guest_bytes_limit").then_some(new.guest_bytes_limit),
    };
    then.apply(change);
    (change, then)
}

#[cfg(test)]
mod tests;
