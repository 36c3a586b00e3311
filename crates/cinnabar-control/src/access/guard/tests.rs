//! What reaches the routes, with and without the token.

use super::*;
use axum::http::HeaderValue;
use axum::http::header::HOST;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::fs::{Permissions, set_permissions, write};
use std::os::unix::fs::PermissionsExt;

const TOKEN: &str = "0123456789abcdef";
const METHODS: [Method; 5] =
    [Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS];

struct Site {
    _dir: tempfile::TempDir,
    path: PathBuf,
    guard: Guard,
}

fn site() -> Site {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join("token");
    keep(&path, TOKEN);
    let guard = Guard::new(Hosts::default(), Some(path.clone()));
    Site { _dir: dir, path, guard }
}

fn keep(path: &std::path::Path, token: &str) {
    write(path, token).expect("it is ours");
    set_permissions(path, Permissions::from_mode(0o600)).expect("it is ours");
}

/// The verdict on a request with these `Authorization` headers.
fn ask(guard: &Guard, method: &Method, authorization: &[&[u8]]) -> Result<(), Refusal> {
    let mut headers = HeaderMap::new();
    headers.insert(HOST, HeaderValue::from_static("127.0.0.1"));
    for value in authorization {
        headers.append(AUTHORIZATION, HeaderValue::from_bytes(value).expect("a value"));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    match guard.check(method, &Uri::from_static("/v1/volumes"), &headers)? {
        None => Ok(()),
        Some(given) => runtime.block_on(guard.check_token(given)),
    }
}

#[test]
fn reading_needs_no_token_and_changing_does() {
    let site = site();
    for method in [Method::GET, Method::HEAD] {
        assert_eq!(ask(&site.guard, &method, &[]), Ok(()));
    }
    for method in METHODS {
        let ask = |values: &[&[u8]]| ask(&site.guard, &method, values);
        assert_eq!(ask(&[]), Err(Refusal::NoToken));
        assert_eq!(ask(&[b"Bearer 0123456789abcdef"]), Ok(()));
        assert_eq!(ask(&[b"bearer  0123456789abcdef "]), Ok(()));
        assert_eq!(ask(&[b"Bearer 0123456789abcdeg"]), Err(Refusal::WrongToken));
        assert_eq!(ask(&[b"Bearer "]), Err(Refusal::WrongToken));
        for value in [&b"Basic 0123456789abcdef"[..], b"0123456789abcdef", b"Bearer", b"", b"\xFF"]
        {
            assert_eq!(ask(&[value]), Err(Refusal::NoToken), "{value:?}");
        }
        let right = &b"Bearer 0123456789abcdef"[..];
        assert_eq!(ask(&[right, right]), Err(Refusal::NoToken), "twice");
        assert_eq!(ask(&[b"Bearer nothing", right]), Err(Refusal::NoToken), "twice");
    }
}

#[test]
fn without_a_token_file_nothing_may_change() {
    for method in METHODS {
        let guard = Guard::new(Hosts::default(), None);
        assert_eq!(ask(&guard, &method, &[b"Bearer "]), Err(Refusal::NoChanges));
        assert_eq!(ask(&guard, &method, &[]), Err(Refusal::NoChanges));
    }
}

#[test]
fn a_replaced_file_replaces_the_token_and_one_that_is_open_to_others_ends_it() {
    let site = site();
    let ask = |value: &[u8]| ask(&site.guard, &Method::POST, &[value]);
    keep(&site.path, "another token?".repeat(2).replace(' ', "-").as_str());
    assert_eq!(ask(b"Bearer 0123456789abcdef"), Err(Refusal::WrongToken));
    keep(&site.path, TOKEN);
    assert_eq!(ask(b"Bearer 0123456789abcdef"), Ok(()));
    set_permissions(&site.path, Permissions::from_mode(0o644)).expect("it is ours");
    assert_eq!(ask(b"Bearer 0123456789abcdef"), Err(Refusal::NoTokenFile));
    std::fs::remove_file(&site.path).expect("it is ours");
    assert_eq!(ask(b"Bearer 0123456789abcdef"), Err(Refusal::NoTokenFile));
}

#[test]
fn drawn_headers_never_pass_for_the_token() {
    let site = site();
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(18);
    for round in 0..3000 {
        let mut value = b"Bearer 0123456789abcdef".to_vec();
        for _ in 0..rng.random_range(1..4) {
            let at = rng.random_range(0..value.len());
            match rng.random_range(0..3) {
                0 => value[at] = rng.random_range(0x20..0x7F),
                1 => value.insert(at, rng.random_range(0x80..=0xFF)),
                _ => drop(value.remove(at)),
            }
        }
        let text = String::from_utf8_lossy(&value).to_ascii_lowercase();
        // The scheme and the spaces may vary, the token may not.
        let same =
            text.starts_with("bearer ") && value.split_at(7).1.trim_ascii() == TOKEN.as_bytes();
        let verdict = ask(&site.guard, &Method::POST, &[&value]);
        assert_eq!(verdict.is_ok(), same, "round {round}: {value:?}: {verdict:?}");
    }
}
