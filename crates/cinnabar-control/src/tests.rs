//! The control API over HTTP: what reaches the data plane, and what does not.

use super::headers::OF_ALL;
use super::server::{AddressListener, serve};
use super::{Control, Phase, describe, http};
use cinnabar_config::ApiConfig;
use cinnabar_config::messages::{DataStatus, Message, Waker, channel};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

const RIGHT: &str = "authorization: Bearer 0123456789abcdef\r\n";
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug)]
struct Nobody;

impl Waker for Nobody {
    fn wake(&self) {}
}

/// A served address above a data plane that counts its messages and answers none.
pub(crate) struct Site {
    pub(crate) port: u16,
    messages: Arc<AtomicUsize>,
    /// Of those, other than questions for the status.
    changes: Arc<AtomicUsize>,
    _dir: tempfile::TempDir,
    _until: oneshot::Sender<()>,
}

impl Site {
    fn new(with_token: bool) -> Self {
        Self::serving(with_token, None, |control, api| http::router(control, &hosts(), Some(api)))
    }

    /// One that serves metrics and nothing else.
    fn of_metrics() -> Self {
        Self::serving(false, None, |control, _| http::router(control, &hosts(), None))
    }

    /// One whose data plane answers questions for the status with this, and with the page or without it.
    pub(crate) fn answering(status: DataStatus, page: bool) -> Self {
        let without: fn(&Arc<Control>, &ApiConfig) -> axum::Router = |control, api| {
            http::router(control, &hosts(), Some(&ApiConfig { page: false, ..api.clone() }))
        };
        let with: fn(&Arc<Control>, &ApiConfig) -> axum::Router =
            |control, api| http::router(control, &hosts(), Some(api));
        Self::serving(true, Some(status), if page { with } else { without })
    }

    /// The address for daemons on other hosts.
    fn of_peers() -> Self {
        Self::serving(true, None, |control, api| {
            http::peers(control, api.token_file.as_ref().expect("there is one"))
        })
    }

    fn serving(
        with_token: bool,
        status: Option<DataStatus>,
        routes: fn(&Arc<Control>, &ApiConfig) -> axum::Router,
    ) -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let token = dir.path().join("token");
        std::fs::write(&token, "0123456789abcdef\n").expect("it is ours");
        let private = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&token, private).expect("it is ours");
        let token_file = with_token.then_some(token);
        let api = ApiConfig { token_file, page: true };
        let (commands, queue) = channel(Arc::new(Nobody));
        let messages = Arc::new(AtomicUsize::new(0));
        let changes = Arc::new(AtomicUsize::new(0));
        let counts = (Arc::clone(&messages), Arc::clone(&changes));
        std::thread::spawn(move || {
            for message in &queue {
                counts.0.fetch_add(1, Ordering::SeqCst);
                let changes = usize::from(!matches!(message, Message::Status(_)));
                counts.1.fetch_add(changes, Ordering::SeqCst);
                if let (Message::Status(answer), Some(status)) = (message, &status) {
                    drop(answer.send(Ok(status.clone())));
                }
            }
        });
        let control = Control::new("/".into(), "/control.sock".into(), Duration::from_secs(1));
        control.enter(Phase::Serving(commands));
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("a socket");
        let port = listener.local_addr().expect("it is bound").port();
        let (until, ended) = oneshot::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).expect("it listens");
                let listener = AddressListener::new(listener);
                let routes = routes(&control, &api);
                tokio::select! {
                    () = serve(listener, routes, PATIENCE) => {}
                    _ended = ended => {}
                }
            });
        });
        Self { port, messages, changes, _dir: dir, _until: until }
    }

    /// Messages that the data plane has got since the last look.
    pub(crate) fn reached(&self) -> usize {
        self.messages.swap(0, Ordering::SeqCst)
    }

    /// Sends this and reads what comes; empty if there is no answer. `ends`: nothing follows, which
    /// gives up what the server has under way; else the answer is waited for.
    pub(crate) fn raw(&self, request: &[u8], ends: bool, patience: Duration) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("it listens");
        stream.set_read_timeout(Some(patience)).expect("a time-out");
        // What is refused early may break the pipe.
        let _refused_early = stream.write_all(request);
        if ends {
            let _gone = stream.shutdown(Shutdown::Write);
        }
        let mut answer = Vec::new();
        let _cut_off = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// The status code, and the body, which must be an error's with a hint unless all went well.
    fn ask(&self, method: &str, path: &str, headers: &str, body: &str) -> (u16, String) {
        let len = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\n{headers}connection: close\r\ncontent-length: {len}\r\n\r\n{body}"
        );
        let answer = self.raw(request.as_bytes(), false, PATIENCE);
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
        let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a code");
        if code >= 400 && path.starts_with("/v1") && method != "HEAD" {
            let error: Value = serde_json::from_str(body).expect(body);
            assert!(error["error"].is_string() && error["hint"].is_string(), "{answer}");
        }
        assert_eq!(code == 401, head.to_lowercase().contains("www-authenticate: bearer"), "{head}");
        (code, body.to_owned())
    }
}

fn hosts() -> [String; 1] {
    ["cache.example".into()]
}

/// Every operation of the description: method, path, a body that is fine.
fn operations() -> Vec<(String, String, &'static str)> {
    let document: Value = serde_json::from_str(describe::text()).expect("it is JSON");
    let paths = document["paths"].as_object().expect("paths");
    let operations = paths.iter().flat_map(|(path, item)| {
        item.as_object().expect("a path").keys().map(move |method| {
            let body = match (method.as_str(), path.as_str()) {
                ("post", "/v1/volumes") => r#"{"name":"vm1","backend":"file:/vm1.raw"}"#,
                ("patch", _) => r#"{"mode":"write-around"}"#,
                ("post", "/v1/cache/replace") => r#"{"device":"new.img"}"#,
                ("post", "/v1/recordings") => r#"{"all":true}"#,
                ("post", "/v1/policy/plan" | "/v1/reload") => "{}",
                ("put", _) | ("post", "/v1/cache/resize") => r#"{"size":"1GiB"}"#,
                ("post", path) if path.ends_with("invalidate") => "{}",
                ("post", path) if path.ends_with("/give") => r#"{"epoch":1}"#,
                ("post", path) if path.ends_with("/hot") => r#"{"epoch":1,"blocks":[7]}"#,
                ("post", path) if path.ends_with("/migrate-out") => {
                    r#"{"to":"http://localhost:9321","token_file":"/token"}"#
                }
                ("post", path) if path.ends_with("/migrate-in") => r#"{"take":true}"#,
                _ => "",
            };
            let path = path.replace("{name}", "vm1").replace("{id}", "1");
            (method.to_uppercase(), path, body)
        })
    });
    operations.collect()
}

fn changes() -> Vec<(String, String, &'static str)> {
    let changes: Vec<_> = operations().into_iter().filter(|(method, ..)| method != "GET").collect();
    assert!(changes.len() >= 9, "{changes:?}");
    changes
}

#[test]
fn without_the_token_nothing_reaches_the_data_plane_and_with_it_everything_does() {
    let site = Site::new(true);
    for (method, path, body) in changes() {
        for wrong in [
            "",
            "authorization: Bearer 0123456789abcdeg\r\n",
            "authorization: Bearer \r\n",
            "authorization: Basic 0123456789abcdef\r\n",
            "x-authorization: Bearer 0123456789abcdef\r\n",
            "authorization: Bearer wrong\r\nauthorization: Bearer 0123456789abcdef\r\n",
        ] {
            let (code, _) = site.ask(&method, &path, &format!("host: localhost\r\n{wrong}"), body);
            assert_eq!(code, 401, "{method} {path} {wrong:?}");
        }
        assert_eq!(site.reached(), 0, "{method} {path}");
        let (code, _) = site.ask(&method, &path, &format!("host: [::1]\r\n{RIGHT}"), body);
        if path.starts_with("/v1/policy/") || path == "/v1/reload" {
            assert_eq!(code, 422, "there is no manager, and no file: {method} {path}");
            continue;
        }
        assert_eq!(code, 503, "the data plane does not answer: {method} {path}");
        assert!(site.reached() > 0, "{method} {path}");
    }
    for method in ["PUT", "OPTIONS", "TRACE", "MKCOL"] {
        let (code, _) = site.ask(method, "/v1/volumes", "host: localhost\r\n", "");
        assert_eq!(code, 401, "{method}");
    }
    let none = Site::new(false);
    for (method, path, body) in changes() {
        let (code, _) = none.ask(&method, &path, &format!("host: localhost\r\n{RIGHT}"), body);
        assert_eq!(code, 403, "{method} {path}");
    }
    assert_eq!(none.reached(), 0);
}

#[test]
fn daemons_on_other_hosts_get_little_and_nothing_without_the_token() {
    let site = Site::of_peers();
    let asked = [
        ("GET", "/v1/identity", ""),
        ("POST", "/v1/volumes/vm1/give?from=01", r#"{"epoch":1}"#),
        ("GET", "/v1/volumes/vm1/hot?epoch=1", ""),
        ("POST", "/v1/volumes/vm1/hot", r#"{"epoch":1,"blocks":[7]}"#),
    ];
    for (method, path, body) in asked {
        let (code, _) = site.ask(method, path, "host: host-b\r\n", body);
        assert_eq!(code, 401, "{method} {path}");
        assert_eq!(site.reached(), 0, "{method} {path}");
        let (code, _) = site.ask(method, path, &format!("host: host-b\r\n{RIGHT}"), body);
        assert_eq!(code, 503, "the data plane does not answer: {method} {path}");
        assert!(site.reached() > 0, "{method} {path}");
    }
    for (method, path, body) in operations() {
        if !asked.iter().any(|(_, known, _)| known.split('?').next() == Some(path.as_str())) {
            let (code, _) = site.ask(&method, &path, &format!("host: host-b\r\n{RIGHT}"), body);
            assert_eq!(code, 404, "{method} {path}");
        }
    }
    assert_eq!(site.reached(), 0);
}

#[test]
fn reading_needs_no_token() {
    let site = Site::new(false);
    for host in ["127.0.0.1:9320", "localhost", "cache.example"] {
        let ask = |path: &str| site.ask("GET", path, &format!("host: {host}\r\n"), "");
        assert_eq!(ask("/v1/version").0, 200, "{host}");
        assert!(ask("/v1/openapi.json").1.contains("\"3.1.0\""), "{host}");
        assert_eq!(ask("/v1/ready").0, 200, "{host}");
        assert_eq!(ask("/v1/none").0, 404, "{host}");
        assert_eq!(site.reached(), 0);
        assert_eq!((ask("/v1/status").0, ask("/metrics").0, site.reached()), (503, 503, 2));
    }
}

#[test]
fn other_hosts_and_origins_reach_nothing() {
    let site = Site::new(true);
    let metrics = ("GET".to_owned(), "/metrics".to_owned(), "");
    for (method, path, body) in operations().into_iter().chain([metrics]) {
        let ask = |headers: &str| site.ask(&method, &path, &format!("{RIGHT}{headers}"), body).0;
        assert_eq!(ask("host: evil.example\r\n"), 421, "{method} {path}");
        assert_eq!(ask("host: localhost\r\nhost: localhost\r\n"), 421, "{method} {path}");
        assert_eq!(ask(""), 421, "{method} {path}");
        let host = "host: localhost\r\n";
        assert_eq!(ask(&format!("{host}origin: http://evil.example\r\n")), 403, "{method} {path}");
        assert_eq!(ask(&format!("{host}origin: null\r\n")), 403, "{method} {path}");
    }
    assert_eq!(site.reached(), 0);
}

/// Metrics alone were read by pages that let their own name lead to this address.
#[test]
fn other_hosts_and_origins_reach_no_metrics_without_the_api() {
    let site = Site::of_metrics();
    for path in ["/metrics", "/v1/ready"] {
        let ask = |headers: &str| site.ask("GET", path, headers, "").0;
        assert_eq!(ask("host: evil.example\r\n"), 421, "{path}");
        assert_eq!(ask(""), 421, "{path}");
        let other = "host: localhost\r\norigin: http://evil.example\r\n";
        assert_eq!(ask(other), 403, "{path}");
        assert_eq!(site.reached(), 0, "{path}");
        let expected = if path == "/metrics" { 503 } else { 200 };
        for host in ["127.0.0.1:9320", "localhost", "cache.example"] {
            assert_eq!(ask(&format!("host: {host}\r\n")), expected, "{host} {path}");
        }
        site.reached();
    }
    assert_eq!(site.ask("GET", "/ui/", "host: localhost\r\n", "").0, 404);
    assert_eq!(site.reached(), 0);
}

/// Refusals as well as answers, of metrics, the API and other hosts' daemons.
#[test]
fn no_answer_is_guessed_at_or_loaded_by_other_sites() {
    let sites = [Site::new(true), Site::of_metrics(), Site::of_peers()];
    for site in &sites {
        for path in ["/metrics", "/v1/version", "/v1/openapi.json", "/v1/none", "/v1/ready"] {
            for host in ["localhost", "evil.example"] {
                let request =
                    format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
                let answer = site.raw(request.as_bytes(), false, PATIENCE).to_lowercase();
                for (name, value) in OF_ALL {
                    assert!(answer.contains(&format!("{name}: {value}\r\n")), "{path}: {answer}");
                }
            }
        }
    }
    let cross = "host: localhost\r\nsec-fetch-site: cross-site\r\nsec-fetch-mode: no-cors\r\n";
    for site in &sites[..2] {
        site.reached();
        assert_eq!(site.ask("GET", "/metrics", cross, "").0, 403);
        assert_eq!(site.reached(), 0);
    }
}

#[test]
fn long_heads_and_bodies_are_refused() {
    let site = Site::new(true);
    let headers = format!("host: localhost\r\n{RIGHT}");
    let long = "x".repeat(70_000);
    assert_eq!(site.ask("POST", "/v1/volumes", &headers, &long).0, 413);
    assert_eq!(site.ask("POST", "/v1/volumes", "host: localhost\r\n", &long).0, 413);
    let endless = format!(
        "POST /v1/volumes HTTP/1.1\r\n{headers}transfer-encoding: chunked\r\n\r\n{}",
        "3e8\r\n".to_owned() + &"x".repeat(1000) + "\r\n"
    );
    let cut_off = site.raw(endless.as_bytes(), true, PATIENCE);
    assert!(cut_off.is_empty() || cut_off.starts_with("HTTP/1.1 400"), "{cut_off}");
    let head = format!("GET /v1/version HTTP/1.1\r\nhost: localhost\r\nx: {long}\r\n\r\n");
    let answer = site.raw(head.as_bytes(), true, PATIENCE);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
    assert_eq!(site.reached(), 0);
}

#[test]
fn drawn_requests_without_the_token_change_nothing_and_leave_the_server_well() {
    let parts: [&[u8]; 26] = [
        b"POST",
        b"DELETE",
        b"PATCH",
        b"GET",
        b" ",
        b"/v1/volumes",
        b"/v1/cache/abandon",
        b"%00",
        b"/../",
        b"?force=true",
        b" HTTP/1.1",
        b" HTTP/1.0",
        b"\r\n",
        b"\n",
        b"host: localhost\r\n",
        b"host: evil.example\r\n",
        b"authorization: Bearer ",
        b"content-length: 5\r\n",
        b"content-length: -1\r\n",
        b"transfer-encoding: chunked\r\n",
        b"ffffffffffffffff\r\n",
        b"0\r\n\r\n",
        b"\r\n\r\n",
        b"{\"name\":\"a\"}",
        b"\0",
        b"\xFF\xFE",
    ];
    let site = Site::new(true);
    let good = "POST /v1/cache/abandon HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(18);
    for round in 0..600 {
        let mut request = if round % 2 == 0 { good.as_bytes().to_vec() } else { Vec::new() };
        for _ in 0..rng.random_range(1..12) {
            let part = parts[rng.random_range(0..parts.len())];
            let at = rng.random_range(0..=request.len());
            request.splice(at..at, part.iter().copied());
        }
        let answer = site.raw(&request, round % 4 < 2, Duration::from_millis(50));
        assert!(answer.is_empty() || answer.starts_with("HTTP/1."), "{round}: {answer}");
        let changes = site.changes.load(Ordering::SeqCst);
        assert_eq!(changes, 0, "{round}: {:?}: {answer}", String::from_utf8_lossy(&request));
    }
    // An account has only so many places, and on a busy machine those that have left are still there.
    let good = "GET /v1/version HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let is_well = || site.raw(good.as_bytes(), false, PATIENCE).starts_with("HTTP/1.1 200");
    let begin = Instant::now();
    while !is_well() {
        assert!(begin.elapsed() < PATIENCE, "it answers again");
        std::thread::sleep(Duration::from_millis(50));
    }
}
