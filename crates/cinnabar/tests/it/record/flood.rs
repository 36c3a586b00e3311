//! Readers that are too slow, and too many of them: guests don't notice, the daemon does not grow.

use super::{attach, site};
use crate::http;
use crate::nbd::{FLAGS, greet, option, request};
use crate::rig::{PATIENCE, Site};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;

/// More than the buffer and all sockets on the way hold.
const REQUESTS: u64 = 150_000;
/// Requests sent before their replies are read.
const BATCH: u64 = 50;

/// A recording that nobody reads yet, past its head.
fn record(site: &Site, body: &str) -> BufReader<UnixStream> {
    let mut stream = UnixStream::connect(site.path("control.sock")).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    let len = body.len();
    // Version 1.0: the answer is not chunked.
    let head = format!(
        "POST /v1/recordings HTTP/1.0\r\nhost: localhost\r\ncontent-length: {len}\r\n\r\n{body}"
    );
    stream.write_all(head.as_bytes()).expect("it is read");
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        assert!(reader.read_line(&mut line).expect("a head") > 0, "an answer");
    }
    reader
}

fn id_of(reader: &mut BufReader<UnixStream>) -> u64 {
    let mut line = String::new();
    reader.read_line(&mut line).expect("the first word");
    let word: serde_json::Value = serde_json::from_str(&line).expect("it is JSON");
    assert_eq!(word["word"], "began", "{line}");
    word["id"].as_u64().expect("a number")
}

/// Reads single sectors, as fast as it goes.
fn flood(site: &Site) {
    let mut stream = greet(&site.path("a.sock")).expect("it listens");
    stream.write_all(&FLAGS).expect("it is read");
    stream.write_all(&option(1, b"a")).expect("it is read");
    stream.read_exact(&mut [0; 10]).expect("size and flags");
    let mut replies = vec![0; BATCH as usize * (16 + 512)];
    for batch in 0..REQUESTS / BATCH {
        let numbers = batch * BATCH..(batch + 1) * BATCH;
        let bytes: Vec<u8> = numbers.flat_map(|at| request(0, at, at % 1024 * 512, 512)).collect();
        stream.write_all(&bytes).expect("they are read");
        stream.read_exact(&mut replies).expect("all are answered");
    }
}

#[test]
fn a_reader_that_sleeps_costs_requests_that_are_counted() {
    let site = site();
    let daemon = site.serve();
    let mut reader = record(&site, "{\"volumes\":[\"a\"]}");
    let id = id_of(&mut reader);
    flood(&site);
    let edges = site.status()["cache"]["ram_bytes"]["edges"].as_u64().expect("a count");
    assert!(edges < 64 << 20, "{edges} bytes");
    let path = format!("/v1/recordings/{id}");
    let socket = site.path("control.sock");
    let answer = http::send(&socket, "DELETE", &path, "").expect("an answer");
    assert_eq!(answer.code, 204, "{answer:?}");
    // Awake again: what was kept comes, then the end.
    let mut rest = String::new();
    reader.read_to_string(&mut rest).expect("the rest");
    let (words, requests): (Vec<&str>, Vec<&str>) =
        rest.lines().partition(|line| line.starts_with('{'));
    let words: Vec<serde_json::Value> =
        words.iter().map(|word| serde_json::from_str(word).expect("it is JSON")).collect();
    let reads = requests.iter().filter(|line| line.contains(",0,R,")).count() as u64;
    let dropped = words.iter().rev().find(|word| word["word"] == "dropped").expect("some were");
    let dropped = dropped["requests"].as_u64().expect("a count");
    assert!(reads >= 65_536 && dropped > 0, "{reads} read, {dropped} dropped");
    assert_eq!(reads + dropped, REQUESTS, "each one is there or counted");
    assert_eq!(words.last().map(|word| &word["reason"]), Some(&"asked".into()), "{words:?}");
    daemon.stop();
}

#[test]
fn recordings_are_bounded_in_number() {
    let site = site();
    let daemon = site.serve();
    let mut readers: Vec<_> = (0..8).map(|_| record(&site, "{\"all\":true}")).collect();
    for reader in &mut readers {
        id_of(reader);
    }
    let ended = site.run(&["trace", "record", "a", "--out", "r.csv"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("8 recordings are under way"), "{ended:?}");
    assert!(ended.stderr.trim_end().lines().last().is_some_and(|line| line.starts_with("hint: ")));
    assert!(!site.path("r.csv").exists());
    // The socket is for others, too, and the guests notice nothing.
    assert_eq!(site.status()["volumes"].as_array().map(Vec::len), Some(2));
    attach(&site, "a").read(0, 4096).expect("it reads");
    readers.clear();
    let start = std::time::Instant::now();
    let args = ["trace", "record", "a", "--out", "r.csv", "--duration", "10ms"];
    while site.run(&args).code != Some(0) {
        assert!(start.elapsed() < PATIENCE, "the places are not free again");
    }
    daemon.stop();
}
