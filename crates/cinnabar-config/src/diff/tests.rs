//! Each key by its name.

use super::*;
use crate::file;
use cinnabar_text::toml_reader::Source;
use std::path::Path;

const BASE: &str = "/base";

fn parse(text: &str) -> Config {
    let source = Source { file: Path::new("c.toml"), text };
    file::parse(source, Path::new(BASE)).expect(text)
}

/// A file with this line in a section, and the rest of what that needs.
fn file_with(section: &str, line: &str) -> Config {
    let of = |name: &str| if name == section { line } else { "" };
    let device = if line.starts_with("device =") { "" } else { "device = \"c\"\n" };
    let size = if line.starts_with("size =") { "" } else { "size = \"1GiB\"\n" };
    let log = if line.starts_with("write_log =") { "" } else { "write_log = \"w\"\n" };
    let memory = if line.starts_with("write_memory =") { "" } else { "write_memory = \"m\"\n" };
    let http = if line.starts_with("http =") { "" } else { "http = \"[::1]:1\"\n" };
    let api = if line.starts_with("api =") { "" } else { "api = true\n" };
    let peers = if line.starts_with("peers =") { "" } else { "peers = \"[::1]:2\"\n" };
    let token =
        if line.starts_with("peers_token_file =") { "" } else { "peers_token_file = \"t\"\n" };
    parse(&format!(
        "[cache]\n{device}{size}{log}{memory}{}\n[control]\n{http}{api}{peers}{token}{}\n[manager]\n{}\n\
         [[volume]]\n{}\n{}\n{}\n",
        of("cache"),
        of("control"),
        of("manager"),
        if line.starts_with("name =") { "" } else { "name = \"v\"" },
        if line.starts_with("backend =") { "" } else { "backend = \"file:v\"" },
        of("volume"),
    ))
}

/// Section, key, and two values of it.
const KEYS: &[(&str, &str, &str, &str)] = &[
    ("cache", "device", "\"a\"", "\"b\""),
    ("cache", "size", "\"1GiB\"", "\"2GiB\""),
    ("cache", "size_max", "\"2GiB\"", "\"3GiB\""),
    ("cache", "io", "\"uring\"", "\"threads\""),
    ("cache", "required", "true", "false"),
    ("cache", "crash_safe", "true", "false"),
    ("cache", "device_timeout_s", "1", "2"),
    ("cache", "state_dir", "\"a\"", "\"b\""),
    ("cache", "eviction", "\"clock\"", "\"probation\""),
    ("cache", "endurance", "\"save\"", "\"hits\""),
    ("cache", "probation", "\"4MiB\"", "\"8MiB\""),
    ("cache", "shards", "1", "2"),
    ("cache", "threads", "1", "2"),
    ("cache", "client_memory", "\"1GiB\"", "\"2GiB\""),
    ("cache", "poll_us", "1", "2"),
    ("cache", "write_log", "\"a\"", "\"b\""),
    ("cache", "write_log_mirror", "\"a\"", "\"b\""),
    ("cache", "write_log_size", "\"1GiB\"", "\"2GiB\""),
    ("cache", "dirty_max_percent", "1", "2"),
    ("cache", "rpo_s", "1", "2"),
    ("cache", "destage_pace", "true", "false"),
    ("cache", "drain_on_stop", "true", "false"),
    ("cache", "write_memory", "\"a\"", "\"b\""),
    ("cache", "write_memory_size", "\"8MiB\"", "\"16MiB\""),
    ("control", "socket", "\"a\"", "\"b\""),
    ("control", "socket_group", "\"a\"", "\"b\""),
    ("control", "http", "\"[::1]:1\"", "\"[::1]:2\""),
    ("control", "api", "true", "false"),
    ("control", "token_file", "\"a\"", "\"b\""),
    ("control", "allowed_hosts", "[\"a\"]", "[\"b\"]"),
    ("control", "peers", "\"[::1]:1\"", "\"[::1]:2\""),
    ("control", "peers_token_file", "\"a\"", "\"b\""),
    ("control", "stop_wait_s", "1", "2"),
    ("manager", "interval_s", "1", "2"),
    ("manager", "allocator", "\"urd\"", "\"centaur\""),
    ("manager", "apply", "true", "false"),
    ("manager", "step_percent", "1", "2"),
    ("manager", "decay_percent", "1", "2"),
    ("manager", "sample_blocks", "64", "128"),
    ("manager", "seed", "1", "2"),
    ("manager", "prices", "\"measured\"", "\"told\""),
    ("manager", "ssd_read_us", "1", "2"),
    ("manager", "ssd_write_us", "1", "2"),
    ("manager", "backend_read_us", "1", "2"),
    ("manager", "backend_write_us", "1", "2"),
    ("manager", "omega_percent", "1", "2"),
    ("manager", "ssd_budget", "\"1TB/day\"", "\"2TB/day\""),
    ("volume", "name", "\"a\"", "\"b\""),
    ("volume", "backend", "\"file:a\"", "\"file:b\""),
    ("volume", "mode", "\"write-around\"", "\"pass-through\""),
    ("volume", "ack", "\"memory\"", "\"durable\""),
    ("volume", "share_min", "\"1%\"", "\"2%\""),
    ("volume", "share_max", "\"1%\"", "\"2%\""),
    ("volume", "auto_mode", "true", "false"),
    ("volume", "weight", "1", "2"),
    ("volume", "nbd", "\"unix:a\"", "\"unix:b\""),
    ("volume", "vhost_user", "\"a\"", "\"b\""),
    ("volume", "socket_mode", "\"0600\"", "\"0666\""),
    ("volume", "socket_group", "\"a\"", "\"b\""),
    ("volume", "claim", "\"a\"", "\"b\""),
    ("volume", "read_only", "true", "false"),
    ("volume", "shared", "true", "false"),
    ("volume", "exclusive", "true", "false"),
    ("volume", "bypass_sequential", "\"1MiB\"", "\"2MiB\""),
    ("volume", "bypass_large", "\"1MiB\"", "\"2MiB\""),
    ("volume", "fill_limit", "\"1MiB\"", "\"2MiB\""),
    ("volume", "backend_timeout_s", "1", "2"),
    ("volume", "iops_reservation", "1", "2"),
    ("volume", "iops_limit", "1", "2"),
    ("volume", "iops_weight", "1", "2"),
    ("volume", "guest_iops_limit", "1", "2"),
    ("volume", "guest_bytes_limit", "\"1MiB\"", "\"2MiB\""),
    ("volume", "qos_group", "\"a\"", "\"b\""),
    ("volume", "migrate_warm_rate", "\"1MB\"", "\"2MB\""),
    ("volume", "migrate_warm_for_s", "1", "2"),
];

#[test]
fn each_key_has_its_name() {
    for (section, key, one, other) in KEYS {
        let [old, new] =
            [one, other].map(|value| file_with(section, &format!("{key} = {value}\n")));
        // Without api no keys that need it.
        let (a, b) = (&old, &new);
        let found = [
            cache_keys(&a.cache, &b.cache),
            control_keys(&a.control, &b.control),
            manager_keys(&a.manager.expect("it is there"), &b.manager.expect("it is there")),
            volume_keys(&a.volumes[0], &b.volumes[0]),
        ];
        let at = ["cache", "control", "manager", "volume"].iter().position(|name| name == section);
        for (number, keys) in found.iter().enumerate() {
            // A default address is made of the name.
            let keys: Vec<&&str> =
                keys.iter().filter(|found| *key != "name" || **found != "nbd").collect();
            if Some(number) == at {
                assert_eq!(keys, [key], "{section}.{key}");
            } else {
                assert!(keys.is_empty(), "{section}.{key}: {keys:?}");
            }
        }
        assert!(volume_keys(&a.volumes[0], &a.volumes[0]).is_empty());
        assert!(!differ_elsewhere(a, b), "{section}.{key}");
    }
}

/// A file with TLS everywhere, and what it says otherwise.
fn file_with_tls(from: &str, to: &str) -> Config {
    let text = "[cache]\ndevice = \"c\"\nsize = \"1GiB\"\n\
        [tls]\ncertificate = \"c\"\nkey = \"k\"\nclient_ca = \"ca\"\nthreads = 1\n\
        [control]\nhttp = \"[::1]:1\"\nhttp_tls = \"require\"\nhttp_tls_allow = [\"a\"]\n\
        [[volume]]\nname = \"v\"\nbackend = \"file:v\"\nnbd = \"tcp:0.0.0.0:1\"\n\
        nbd_tls = \"require\"\ntls_allow = [\"b\"]\n";
    assert!(text.contains(from), "{from}");
    parse(&text.replacen(from, to, 1))
}

#[test]
fn each_key_of_tls_has_its_name() {
    let old = file_with_tls("", "");
    for (from, to, named) in [
        ("certificate = \"c\"", "certificate = \"d\"", "tls.certificate"),
        ("key = \"k\"", "key = \"l\"", "tls.key"),
        ("client_ca = \"ca\"", "client_ca = \"cb\"", "tls.client_ca"),
        ("threads = 1", "threads = 2", "tls.threads"),
        (
            "http_tls = \"require\"\nhttp_tls_allow = [\"a\"]",
            "http_tls = \"server\"",
            "control.http_tls control.http_tls_allow",
        ),
        ("http_tls = \"require\"\nhttp_tls_allow = [\"a\"]", "", "control.http_tls"),
        ("http_tls_allow = [\"a\"]", "http_tls_allow = [\"b\"]", "control.http_tls_allow"),
        ("nbd_tls = \"require\"\ntls_allow = [\"b\"]", "", "volume.nbd_tls"),
        ("tls_allow = [\"b\"]", "tls_allow = [\"c\"]", "volume.tls_allow"),
    ] {
        let new = file_with_tls(from, to);
        let tls = [&old, &new].map(|config| config.tls.as_ref().expect("it is there"));
        let found = [
            ("tls", tls_keys(tls[0], tls[1])),
            ("control", control_keys(&old.control, &new.control)),
            ("volume", volume_keys(&old.volumes[0], &new.volumes[0])),
        ];
        let found = found
            .iter()
            .flat_map(|(section, keys)| keys.iter().map(move |key| format!("{section}.{key}")));
        assert_eq!(found.collect::<Vec<_>>().join(" "), named);
        assert!(!differ_elsewhere(&old, &new), "{named}");
    }
}

#[test]
fn what_has_no_name_shows_all_the_same() {
    let old = ManagerConfig::default();
    let new = ManagerConfig { change_min: 0.5, ..old };
    assert_eq!(manager_keys(&old, &new), [ANOTHER]);
}

#[test]
fn groups_that_came_went_or_changed_are_named() {
    let group = |name: &str, depth| QosGroupConfig { name: name.into(), depth };
    let old = [group("a", 1), group("b", 1), group("c", 1)];
    let new = [group("a", 1), group("b", 2), group("d", 1)];
    assert_eq!(group_names(&old, &new), ["b", "d", "c"]);
}

#[test]
fn only_what_is_asked_for_changes() {
    let [old, new] = ["mode = \"write-around\"\niops_limit = 5\n", "share_max = \"50%\"\n"]
        .map(|lines| file_with("volume", lines).volumes.remove(0));
    let (change, then) = change_of(&["share_max"], &old, &new);
    let expected = VolumeChange {
        share_max: Some(crate::settings::Share::Percent(50.0)),
        ..Default::default()
    };
    assert_eq!(change, expected);
    assert_eq!(volume_keys(&old, &then), ["share_max"]);
    let (change, then) = change_of(LIVE_VOLUME_KEYS, &old, &new);
    assert_eq!(change.qos, Some(new.qos));
    assert_eq!(volume_keys(&then, &new), Vec::<&str>::new());
    assert_eq!(change_of(&[], &old, &new), (VolumeChange::default(), old));
}
