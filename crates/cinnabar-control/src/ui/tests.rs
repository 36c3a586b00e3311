//! The page over HTTP: what every answer says to browsers, who is refused, what viewers cost.

use super::sampler::VIEWERS_MAX;
use crate::headers::{KEPT, OF_ALL, OF_PAGE};
use crate::tests::Site;
use cinnabar_config::status::raw::{CacheStatus, DataStatus, SizeStatus, State};
use cinnabar_engine::seam::counters::{CacheCounters, RamBytes};
use cinnabar_engine::seam::health::Health;
use cinnabar_policy::planning::Totals;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);
const VIEWS: [&str; 7] = [
    "/ui/",
    "/ui/shares?range=5m",
    "/ui/backends",
    "/ui/ssd",
    "/ui/recovery",
    "/ui/events",
    "/ui/what-if",
];

pub(super) fn status() -> DataStatus {
    let cache = CacheStatus {
        device: "/cache.img".into(),
        state: State::Serving,
        reason: String::new(),
        throttled: false,
        size: SizeStatus::default(),
        health: Health::Serving,
        loaded: None,
        io: "threads".into(),
        shards: 1,
        threads: 1,
        counters: CacheCounters { cached_blocks: 4711, ..CacheCounters::default() },
        losses: 0,
        replacements: 0,
        detached_blocks: 0,
        ram: RamBytes::default(),
        edge_ram_bytes: 0,
        write_log: None,
        io_totals: Totals::default(),
    };
    DataStatus { cache, volumes: Vec::new(), qos_groups: Vec::new() }
}

fn site() -> Site {
    Site::answering(status(), true)
}

/// The status code, the head in lower case, and the body.
fn get(site: &Site, path: &str, headers: &str) -> (u16, String, String) {
    let request = format!("GET {path} HTTP/1.1\r\n{headers}connection: close\r\n\r\n");
    let answer = site.raw(request.as_bytes(), false, PATIENCE);
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a code");
    (code, head.to_lowercase(), body.to_owned())
}

const HOST: &str = "host: 127.0.0.1:9320\r\n";

#[test]
fn every_answer_is_strict_with_browsers() {
    let site = site();
    let others = ["/ui/chart/hits.svg", "/ui/chart/ram.csv", "/ui/chart/ram.html", "/ui/page.js"];
    let failing =
        ["/ui/none", "/ui/volumes/none", "/ui/chart/none.svg", "/ui/?range=2h", "/ui/?x=1"];
    for path in VIEWS.into_iter().chain(others).chain(failing).chain(["/ui/page.css"]) {
        let (code, head, body) = get(&site, path, HOST);
        let expected = match path {
            "/ui/?range=2h" | "/ui/?x=1" => 400,
            _ if failing.contains(&path) => 404,
            _ => 200,
        };
        assert_eq!(code, expected, "{path}: {body}");
        for (name, value) in OF_ALL.into_iter().chain(OF_PAGE) {
            let line = format!("{name}: {}", value.to_lowercase());
            let is_kept = name == KEPT && path.starts_with("/ui/page.");
            assert_eq!(head.contains(&line), !is_kept, "{path}: {line}: {head}");
        }
        assert!(!body.contains(" style=") && !body.contains("javascript:"), "{path}");
    }
    let (code, head, _) = get(&site, "/", HOST);
    assert!(code == 307 && head.contains("location: /ui/"), "{head}");
    let looks = site.reached();
    assert!(looks < VIEWS.len() + others.len(), "pages share a status that is fresh: {looks}");
}

#[test]
fn other_hosts_origins_and_sites_are_refused() {
    let site = site();
    for path in VIEWS.into_iter().chain(["/", "/ui/page.js", "/ui/live", "/ui/chart/ram.csv"]) {
        let code = |headers: &str| {
            let (code, head, _) = get(&site, path, headers);
            for (name, value) in OF_ALL.into_iter().chain(OF_PAGE) {
                let line = format!("{name}: {}", value.to_lowercase());
                assert!(head.contains(&line), "{path}: {line}: {head}");
            }
            code
        };
        assert_eq!(code("host: evil.example\r\n"), 421, "{path}");
        assert_eq!(code(&format!("{HOST}origin: http://evil.example\r\n")), 403, "{path}");
        let cross = format!("{HOST}sec-fetch-site: cross-site\r\n");
        assert_eq!(code(&format!("{cross}sec-fetch-mode: no-cors\r\n")), 403, "{path}");
        let framed = format!("{cross}sec-fetch-mode: navigate\r\nsec-fetch-dest: iframe\r\n");
        assert_eq!(code(&framed), 403, "{path}");
    }
    assert_eq!(site.reached(), 0);
    let link =
        "sec-fetch-site: cross-site\r\nsec-fetch-mode: navigate\r\nsec-fetch-dest: document\r\n";
    assert_eq!(get(&site, "/ui/", &format!("{HOST}{link}")).0, 200);
    let (code, ..) = get(&site, "/v1/version", &format!("{HOST}{link}"));
    assert_eq!(code, 200, "the API has its own rules");
}

#[test]
fn a_page_shows_the_status_and_without_the_key_there_is_none() {
    let site = site();
    let (_, head, body) = get(&site, "/ui/", HOST);
    assert!(head.contains("content-type: text/html; charset=utf-8"), "{head}");
    assert!(body.contains("<data id=\"cache:cached_blocks\" value=\"4711\">"), "{body}");
    assert!(body.contains("shares are not managed"), "why there is no plan: {body}");
    let without = Site::answering(status(), false);
    for path in ["/", "/ui/", "/ui/page.js", "/ui/live"] {
        assert_eq!(get(&without, path, HOST).0, 404, "{path}");
    }
    assert_eq!(get(&without, "/v1/version", HOST).0, 200);
}

#[test]
fn what_does_not_change_is_sent_once() {
    let site = site();
    let (_, head, body) = get(&site, "/ui/page.js", HOST);
    assert!(head.contains("content-type: text/javascript") && !body.is_empty(), "{head}");
    let tag = head.lines().find_map(|line| line.strip_prefix("etag: ")).expect("a tag");
    let again = get(&site, "/ui/page.js", &format!("{HOST}if-none-match: {tag}\r\n"));
    assert_eq!((again.0, again.2.as_str()), (304, ""));
    assert_eq!(get(&site, "/ui/page.css", &format!("{HOST}if-none-match: {tag}\r\n")).0, 200);
}

/// Watches a page.
fn viewer(site: &Site) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", site.port)).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    write!(stream, "GET /ui/live?view=overview HTTP/1.1\r\n{HOST}\r\n").expect("it takes it");
    stream
}

/// Reads until this comes.
fn until(stream: &mut TcpStream, wanted: &str) -> String {
    let (mut text, mut piece) = (String::new(), [0; 4096]);
    let begun = Instant::now();
    while !text.contains(wanted) {
        assert!(begun.elapsed() < PATIENCE, "{wanted}: {text}");
        let read = stream.read(&mut piece).expect("it goes on");
        assert!(read > 0, "{wanted}: it ended: {text}");
        text += &String::from_utf8_lossy(&piece[..read]);
    }
    text
}

#[test]
fn one_look_a_second_serves_all_viewers_and_none_is_made_without_them() {
    let site = site();
    let mut viewers: Vec<TcpStream> = (0..VIEWERS_MAX / 2).map(|_| viewer(&site)).collect();
    for viewer in &mut viewers {
        let text = until(viewer, "event: facts");
        assert!(text.contains("200 OK") && text.contains("event: hello"), "{text}");
    }
    let (code, ..) = get(&site, "/ui/live", HOST);
    assert_eq!(code, 429, "one more of this account");
    assert_eq!(get(&site, "/ui/", HOST).0, 200, "but it can be read");
    site.reached();
    std::thread::sleep(Duration::from_millis(3300));
    let looks = site.reached();
    assert!((1..=4).contains(&looks), "{looks} looks in 3.3 s");
    drop(viewers);
    // The server notices that they have gone when it next has something for them.
    std::thread::sleep(Duration::from_millis(3500));
    site.reached();
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(site.reached(), 0, "there is no viewer");
    until(&mut viewer(&site), "event: facts");
}
