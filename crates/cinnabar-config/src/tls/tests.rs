//! TLS in a configuration file, right and wrong.

use crate::settings::TlsAccess;
use crate::{Config, ConfigError, HttpTls, file};
use cinnabar_text::toml_reader::Source;
use std::path::Path;

const TLS: &str = "[tls]\ncertificate = \"pki/server.pem\"\nkey = \"/etc/key.pem\"\n";
const CA: &str = "client_ca = \"clients.pem\"\n";

fn parse(text: &str) -> Result<Config, ConfigError> {
    let text = format!("[cache]\ndevice = \"cache.img\"\n{text}");
    file::parse(Source { file: Path::new("c.toml"), text: &text }, Path::new("/base"))
}

fn volume(keys: &str) -> String {
    format!("[[volume]]\nname = \"v\"\nbackend = \"file:v\"\n{keys}\n")
}

#[test]
fn files_and_rules_are_read() {
    let keys = "nbd = \"tcp:0.0.0.0:10809\"\nnbd_tls = \"require\"\ntls_allow = [\"host-a\", \"b.example\"]";
    let http =
        "[control]\nhttp = \"0.0.0.0:9320\"\nhttp_tls = \"require\"\nhttp_tls_allow = [\"ops\"]\n";
    let config = parse(&format!("{http}{TLS}{CA}threads = 4\n{}", volume(keys))).expect("all keys");
    let tls = config.tls.as_ref().expect("it is given");
    assert_eq!(tls.certificate, Path::new("/base/pki/server.pem"));
    assert_eq!(tls.key, Path::new("/etc/key.pem"));
    assert_eq!(tls.client_ca.as_deref(), Some(Path::new("/base/clients.pem")));
    assert_eq!(tls.threads, 4);
    let allow = vec!["host-a".to_owned(), "b.example".to_owned()];
    assert_eq!(config.volumes[0].socket.tls, Some(TlsAccess { allow }));
    let http = HttpTls { clients_known: true, allow: vec!["ops".to_owned()] };
    assert_eq!(config.control.http_tls, Some(http));
    assert_eq!(config.control.http, "0.0.0.0:9320".parse().ok());
    assert!(config.warnings.is_empty(), "{:?}", config.warnings);
}

#[test]
fn without_it_all_is_as_before() {
    let config = parse(&volume("nbd = \"tcp:0.0.0.0:10809\"\nnbd_tls = \"none\"")).expect("right");
    assert_eq!((config.tls, config.control.http_tls), (None, None));
    assert_eq!(config.volumes[0].socket.tls, None);
    assert!(config.warnings[0].contains("nbd_tls = \"require\""), "{:?}", config.warnings);
    // The server's certificate alone.
    let text = format!("[control]\nhttp = \"127.0.0.1:9320\"\nhttp_tls = \"server\"\n{TLS}");
    let config = parse(&text).expect("clients need none");
    assert_eq!(config.control.http_tls, Some(HttpTls { clients_known: false, allow: Vec::new() }));
    assert_eq!(config.tls.map(|tls| tls.threads), Some(2));
}

#[test]
fn what_is_wrong_with_tls_is_told() {
    let tcp = "nbd = \"tcp:127.0.0.1:10809\"\n";
    let require = format!("{tcp}nbd_tls = \"require\"\n");
    let http = "[control]\nhttp = \"127.0.0.1:9320\"\n";
    let both = format!("{TLS}{CA}");
    for (text, line, message) in [
        ("[tls]\nkey = \"k\"".to_owned(), 3, "[tls] has no certificate"),
        ("[tls]\ncertificate = \"c\"".to_owned(), 3, "[tls] has no key"),
        ("[tls]\ncertificate = \"\"\nkey = \"k\"".to_owned(), 4, "certificate is not a path"),
        (format!("{TLS}threads = 0"), 6, "threads: 0 is not possible"),
        (format!("{TLS}ca = \"x\""), 6, "unknown key \"ca\" in [tls]"),
        (volume(&require), 7, "nbd_tls needs a section [tls]"),
        (format!("{TLS}{}", volume(&require)), 10, "nbd_tls needs client_ca"),
        (format!("{both}{}", volume("nbd_tls = \"require\"")), 10, "nbd_tls is for NBD over TCP"),
        (
            format!("{both}{}", volume(&format!("{tcp}nbd_tls = \"on\""))),
            11,
            "unknown value \"on\"",
        ),
        (format!("{both}{}", volume("tls_allow = [\"a\"]")), 10, "tls_allow without nbd_tls"),
        (format!("{both}{}", volume(&format!("{require}tls_allow = []"))), 7, "tls_allow is empty"),
        (format!("{both}{}", volume(&format!("{require}tls_allow = [1]"))), 12, "not a name"),
        (format!("{both}{}", volume(&format!("{require}tls_allow = [\"\"]"))), 12, "is no name"),
        ("[control]\nhttp_tls = \"server\"".to_owned(), 4, "http_tls without http"),
        (format!("{http}http_tls = \"server\""), 5, "http_tls needs a section [tls]"),
        (format!("{http}http_tls = \"on\""), 5, "http_tls: unknown value \"on\""),
        (format!("{http}http_tls = \"require\"\n{TLS}"), 5, "http_tls needs client_ca"),
        (format!("{http}http_tls_allow = [\"a\"]\n{both}"), 5, "http_tls_allow without http_tls"),
        (
            format!("{http}http_tls = \"server\"\nhttp_tls_allow = [\"a\"]\n{both}"),
            5,
            "http_tls_allow with http_tls = \"server\"",
        ),
        (
            format!("[control]\nhttp = \"0.0.0.0:9320\"\nhttp_tls = \"server\"\n{both}"),
            4,
            "not a loopback address",
        ),
    ] {
        let error = parse(&text).expect_err(&text);
        assert!(error.message.contains(message), "{text}: {error}");
        assert!(!error.hint.is_empty() && !error.to_string().contains('\n'), "{text}: {error}");
        // An empty list has no line of its own.
        if !message.contains("is empty") {
            assert_eq!(error.line, Some(line), "{text}: {error}");
        }
    }
}

#[test]
fn memory_is_acknowledged_to_this_host_only_whatever_protects_the_way() {
    let keys = "nbd = \"tcp:192.0.2.7:10809\"\nnbd_tls = \"require\"\nack = \"memory\"";
    let error = parse(&format!("{TLS}{CA}{}", volume(keys))).expect_err("another host outlives it");
    assert!(error.message.contains("ack = \"memory\""), "{error}");
}
