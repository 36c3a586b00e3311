//! Bad command lines, bad requests to the control socket and to the metrics' port.

use super::daemon::free_port;
use super::rig::{PATIENCE, Site, finish, pattern};

#[test]
fn bad_command_lines_end_with_a_hint() {
    let site = Site::new();
    let foreign = site.disk("foreign.img", 24 << 20);
    site.write("empty.img", "");
    for (args, code) in [
        (&["frobnicate"][..], 2),
        (&["serve"], 2),
        (&["serve", "--config", "none.toml"], 2),
        (&["serve", "--config", "c.toml", "--demo"], 2),
        (&["serve", "--demo", "--dir", "/proc/none"], 2),
        (&["status", "--socket", "none.sock"], 1),
        (&["status", "--interval", "0"], 2),
        (&["volume", "list"], 1),
        (&["volume", "add", "a/b", "--backend", "file:x"], 2),
        (&["volume", "add", "a", "--backend", "x"], 2),
        (&["volume", "add", "a", "--backend", "file:x", "--share-min", "lots"], 2),
        (&["volume", "set", "a", "--mode", "fast"], 2),
        (&["config", "check", "none.toml"], 2),
        (&["volume", "invalidate", "a/b"], 2),
        (&["volume", "invalidate", "a", "--range", "4096"], 2),
        (&["volume", "invalidate", "a", "--range", "0+0"], 2),
        (&["volume", "invalidate", "a", "--range", "1G+1"], 2),
        (&["volume", "invalidate", "a", "--range", "0+4096", "--socket", "none.sock"], 1),
        (&["cache"], 2),
        (&["cache", "replace"], 2),
        (&["cache", "replace", "new.img", "--size", "8G"], 2),
        (&["cache", "replace", "new.img", "--socket", "none.sock"], 1),
        (&["cache", "abandon", "--socket", "none.sock"], 1),
        (&["cache", "check"], 2),
        (&["cache", "check", "none.img"], 2),
        (&["cache", "check", "."], 2),
        (&["cache", "check", "/dev/null"], 2),
        (&["cache", "check", "foreign.img"], 2),
        (&["cache", "check", "empty.img"], 2),
        (&["cache", "dump", "none.img"], 2),
        (&["cache", "dump", "foreign.img"], 2),
        (&["cache", "dump", "foreign.img", "--what", "everything"], 2),
        (&["cache", "repair", "none.img"], 2),
        (&["cache", "repair", "foreign.img"], 2),
        (&["cache", "repair", "foreign.img", "--cold", "--yes"], 2),
        (&["trace", "record", "a", "--out", "none/r.csv"], 2),
    ] {
        let ended = site.run(args);
        assert_eq!(ended.code, Some(code), "{args:?}: {ended:?}");
        assert_eq!(ended.stdout, "", "{args:?}");
        let last = ended.stderr.lines().last().unwrap_or_default();
        assert!(last.starts_with("hint: "), "{args:?}: {ended:?}");
        assert!(!ended.stderr.contains('\x1b'), "no colours where nobody sees them: {ended:?}");
    }
    assert!(std::fs::read(foreign).expect("it is ours") == pattern(0, 24 << 20), "left alone");
    let mut command = site.command(&["status"]);
    command.env("CINNABAR_LOG", "what=is=this").args(["--socket", "none.sock"]);
    assert_eq!(finish(&mut command).code, Some(1), "only serve has a log");
}

#[test]
fn a_slow_or_long_request_to_the_control_socket_is_refused() {
    use std::io::{Read, Write};
    let site = Site::new();
    site.config("");
    let mut daemon = site.serve();
    let socket = site.path("control.sock");
    let long = "x".repeat(100_000);
    let answer = super::http::send(&socket, "POST", "/v1/volumes", &long).expect("an answer");
    assert_eq!(answer.code, 413, "{answer:?}");
    for (method, path, body, code) in [
        ("GET", "/v2/status", "", 404),
        ("PUT", "/v1/volumes", "", 405),
        ("POST", "/v1/volumes", "", 400),
        ("POST", "/v1/volumes", "{\"name\":\"a\"}", 400),
        ("POST", "/v1/volumes", "{\"name\":\"a\",\"backend\":\"file:x\",\"colour\":1}", 400),
        ("POST", "/v1/volumes", "{\"name\":\"a/b\",\"backend\":\"file:x\"}", 422),
        ("POST", "/v1/volumes", "{\"name\":\"a\",\"backend\":\"file:none\"}", 422),
        ("PATCH", "/v1/volumes/none", "{\"mode\":\"write-through\"}", 404),
        ("PATCH", "/v1/volumes/none", "{}", 422),
        ("DELETE", "/v1/volumes/none", "", 404),
        ("POST", "/v1/volumes/none/invalidate", "", 400),
        ("POST", "/v1/volumes/none/invalidate", "{\"offset\":1}", 422),
        ("POST", "/v1/volumes/none/invalidate", "{\"offset\":1,\"len\":0}", 422),
        ("POST", "/v1/cache/replace", "{}", 400),
        ("POST", "/v1/cache/replace", "{\"device\":\"\"}", 422),
        ("POST", "/v1/cache/replace", "{\"device\":\"a\",\"size\":\"8G\"}", 422),
        ("GET", "/v1/cache/replace", "", 405),
    ] {
        let answer = super::http::send(&socket, method, path, body).expect("an answer");
        assert_eq!(answer.code, code, "{method} {path} {body}: {answer:?}");
        assert!(answer.json()["error"].is_string(), "{method} {path} {body}: {answer:?}");
        assert!(answer.json()["hint"].is_string(), "{method} {path} {body}: {answer:?}");
    }
    // Garbage, and a client that never finishes.
    let mut lazy = std::os::unix::net::UnixStream::connect(&socket).expect("it listens");
    lazy.write_all(b"GET /v1/status HTT").expect("it is read");
    let mut rude = std::os::unix::net::UnixStream::connect(&socket).expect("it listens");
    rude.write_all(&[0xFF; 3000]).expect("it is read");
    rude.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    let mut rest = Vec::new();
    let _thrown_out = rude.read_to_end(&mut rest);
    assert_eq!(site.status()["volumes"].as_array().map(Vec::len), Some(0));
    assert!(daemon.is_running());
    daemon.stop();
}

#[test]
fn the_metrics_port_is_for_metrics() {
    let site = Site::new();
    let port = free_port();
    site.config(&format!("[control]\nhttp = \"127.0.0.1:{port}\"\n"));
    let daemon = site.serve();
    let get = |path: &str| super::http::get_tcp(port, path).expect("an answer");
    assert_eq!(get("/v1/ready").code, 200);
    assert_eq!(get("/v1/status").code, 404, "what could be changed is not on a port");
    assert_eq!(get("/v1/volumes").code, 404);
    let metrics = get("/metrics");
    assert!(metrics.head.contains("text/plain; version=0.0.4"), "{}", metrics.head);
    assert!(metrics.body.contains("cinnabar_cache_capacity_bytes"), "{}", metrics.body);
    daemon.stop();
}

#[test]
fn the_api_over_http_changes_nothing_without_the_token() {
    use std::os::unix::fs::PermissionsExt;
    let site = Site::new();
    let port = free_port();
    site.disk("vm1.raw", 8 << 20);
    site.config(&format!(
        "[control]\nhttp = \"127.0.0.1:{port}\"\napi = true\ntoken_file = \"token\"\n"
    ));
    let start = ["serve", "--config", "c.toml"];
    let missing = site.run(&start);
    assert_eq!(missing.code, Some(2), "{missing:?}");
    assert!(missing.stderr.contains("token_file"), "{missing:?}");
    site.write("token", "0123456789abcdef0123456789abcdef\n");
    let set_mode = |mode| {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(site.path("token"), permissions).expect("it is ours");
    };
    set_mode(0o644);
    let open = site.run(&start);
    assert_eq!(open.code, Some(2), "{open:?}");
    assert!(open.stderr.lines().last().is_some_and(|hint| hint.contains("0600")), "{open:?}");
    set_mode(0o600);
    let daemon = site.serve();
    let volume = "{\"name\":\"vm1\",\"backend\":\"file:vm1.raw\"}";
    let add = |headers: &str| {
        super::http::send_tcp(port, "POST", "/v1/volumes", headers, volume).expect("an answer")
    };
    for (headers, code) in [
        ("host: localhost\r\n", 401),
        ("host: localhost\r\nauthorization: Bearer 0123456789abcdef\r\n", 401),
        ("host: evil.example\r\n", 421),
    ] {
        let answer = add(headers);
        assert_eq!(answer.code, code, "{headers}: {answer:?}");
        assert!(answer.json()["hint"].is_string(), "{answer:?}");
    }
    let volumes = || super::http::get_tcp(port, "/v1/volumes").expect("an answer").json();
    assert_eq!(volumes().as_array().map(Vec::len), Some(0));
    let token = "authorization: Bearer 0123456789abcdef0123456789abcdef\r\n";
    let answer = add(&format!("host: localhost\r\n{token}"));
    assert_eq!(answer.code, 201, "{answer:?}");
    assert_eq!(volumes()[0]["name"], "vm1");
    // What the program prints is what the daemon serves.
    let served = super::http::get_tcp(port, "/v1/openapi.json").expect("an answer");
    assert_eq!(site.ask(&["api", "describe"]).trim_end(), served.body);
    daemon.stop();
}
