//! Under which names the API is served, and to pages of which origin.
//!
//! DNS rebinding: a page of `evil.example` lets that name lead to 127.0.0.1; its browser then sends
//! requests here that it takes for requests to the page's own host. They carry `Host: evil.example`.
//! An IP address as `Host` cannot be rebound.

use crate::access::Refusal;
use axum::http::header::{HOST, HeaderMap, HeaderName, ORIGIN};
use axum::http::uri::{Authority, Uri};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Names beside IP addresses and `localhost`, in lower case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts(Vec<String>);

impl Hosts {
    /// Allows these names, too, without ports.
    pub fn new(allowed: impl IntoIterator<Item = String>) -> Self {
        Self(allowed.into_iter().map(|name| name.to_ascii_lowercase()).collect())
    }

    /// Checks where a request was sent, and by a page of which host if a browser sent it.
    ///
    /// # Errors
    /// [`Refusal::NoHost`], [`Refusal::WrongHost`], [`Refusal::WrongOrigin`].
    pub fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Refusal> {
        let host = single(headers, &HOST).map_err(|()| Refusal::NoHost)?.ok_or(Refusal::NoHost)?;
        let authority = Authority::try_from(host).map_err(|_| Refusal::NoHost)?;
        // A request line with a host of its own counts before the header.
        for authority in [Some(&authority), uri.authority()].into_iter().flatten() {
            if !self.allows(authority) {
                return Err(Refusal::WrongHost);
            }
        }
        let wrong = Refusal::WrongOrigin;
        let Some(origin) = single(headers, &ORIGIN).map_err(|()| wrong)? else { return Ok(()) };
        // A proxy may speak TLS to the browser.
        let page = ["http://", "https://"].iter().find_map(|scheme| origin.strip_prefix(scheme));
        match page {
            Some(page) if page.eq_ignore_ascii_case(host) => Ok(()),
            _ => Err(wrong),
        }
    }

    fn allows(&self, authority: &Authority) -> bool {
        let host = authority.host().to_ascii_lowercase();
        // What is left is a port, or nothing: the parser takes more.
        let rest = authority.as_str().get(authority.host().len()..).unwrap_or("@");
        let port = rest.strip_prefix(':').map(str::parse::<u16>);
        if authority.as_str().contains('@') || !(rest.is_empty() || matches!(port, Some(Ok(_)))) {
            return false;
        }
        match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(address) => address.parse::<Ipv6Addr>().is_ok(),
            None => {
                host == "localhost" || host.parse::<Ipv4Addr>().is_ok() || self.0.contains(&host)
            }
        }
    }
}

/// A header that must not come twice.
pub(crate) fn single<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<Option<&'h str>, ()> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(Some).map_err(|_| ()),
        (Some(_), Some(_)) => Err(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn check(headers: &[(HeaderName, &str)], uri: &str) -> Result<(), Refusal> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(name, HeaderValue::from_str(value).expect("a value"));
        }
        let hosts = Hosts::new(["Cache.example".to_owned()]);
        hosts.check(&uri.parse().expect("a URI"), &map)
    }

    #[test]
    fn addresses_localhost_and_allowed_names_are_served() {
        for host in [
            "127.0.0.1",
            "127.0.0.1:9320",
            "192.0.2.7",
            "[::1]",
            "[::1]:9320",
            "localhost",
            "LocalHost:80",
            "cache.example",
            "CACHE.example:443",
        ] {
            assert_eq!(check(&[(HOST, host)], "/"), Ok(()), "{host}");
        }
    }

    #[test]
    fn names_that_may_be_rebound_are_not() {
        for host in [
            "evil.example",
            "localhost.evil.example",
            "localhost.",
            "127.0.0.1.evil.example",
            "127.1",
            "0x7f000001",
            "2130706433",
            "0177.0.0.1",
            "evil@127.0.0.1",
            "cache.example.evil",
            "xcache.example",
            "[::1]evil.example",
            "localhost:evil.example",
            "localhost:",
            "127.0.0.1:99999",
        ] {
            assert_eq!(check(&[(HOST, host)], "/"), Err(Refusal::WrongHost), "{host}");
        }
        assert_eq!(check(&[(HOST, "localhost")], "http://evil.example/"), Err(Refusal::WrongHost));
        for host in ["", "a b", "[::1", "/", "localhost/x", "http://localhost"] {
            assert!(check(&[(HOST, host)], "/").is_err(), "{host:?}");
        }
        assert_eq!(check(&[], "/"), Err(Refusal::NoHost));
        assert_eq!(check(&[(HOST, "localhost"), (HOST, "localhost")], "/"), Err(Refusal::NoHost));
    }

    #[test]
    fn a_page_of_another_origin_is_refused() {
        let with = |origin: &str| check(&[(HOST, "127.0.0.1:9320"), (ORIGIN, origin)], "/");
        assert_eq!(with("http://127.0.0.1:9320"), Ok(()));
        assert_eq!(with("https://127.0.0.1:9320"), Ok(()));
        for origin in [
            "null",
            "",
            "http://127.0.0.1",
            "http://127.0.0.1:9321",
            "http://127.0.0.1:9320/",
            "http://localhost:9320",
            "http://evil.example",
            "file://127.0.0.1:9320",
            "127.0.0.1:9320",
        ] {
            assert_eq!(with(origin), Err(Refusal::WrongOrigin), "{origin:?}");
        }
        let same = "http://localhost";
        let twice = [(HOST, "localhost"), (ORIGIN, same), (ORIGIN, same)];
        assert_eq!(check(&twice, "/"), Err(Refusal::WrongOrigin));
    }
}
