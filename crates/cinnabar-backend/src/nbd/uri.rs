//! NBD servers as other clients write them: `nbd+unix:///vm1?socket=/run/vm1.sock`,
//! `nbd://host:10809/vm1`.
//!
//! The URI one gives to QEMU or `nbdinfo` can be given to our commands, too.

use super::address::{NbdSpec, NbdSpecError};
use std::path::Path;

/// Port of servers that are written without one, the one IANA assigned.
const PORT: u16 = 10_809;
/// Longest URI.
const TEXT_BYTES_MAX: usize = 8192;

/// Why a text is no URI of an NBD server that we can use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NbdUriError {
    /// Not `nbd` or `nbd+unix`; encryption is among what we lack.
    #[error("{0:?} is not supported (only \"nbd://\" and \"nbd+unix://\")")]
    Scheme(String),
    /// Too long.
    #[error("a URI has at most {TEXT_BYTES_MAX} bytes")]
    Length,
    /// `%` without two hexadecimal digits, or bytes that are no text.
    #[error(
        "{0:?} is not properly encoded (\"%\" and two hexadecimal digits; UTF-8, no zero byte)"
    )]
    Encoding(String),
    /// A user's name, which only encrypted connections have.
    #[error("a user name ({0:?}) is for encrypted connections, which are not supported")]
    User(String),
    /// TCP without a host.
    #[error("the host is missing")]
    Host,
    /// A host with a unix socket: most likely the export with a slash too few.
    #[error("a host ({0:?}) has no place with a unix socket; three slashes precede the export")]
    HostWithSocket(String),
    /// A unix socket that is not named.
    #[error("\"?socket=PATH\" is missing")]
    Socket,
    /// Our own way to write servers ends the path at a colon.
    #[error("the path of the socket, {0:?}, holds a colon, which is not supported")]
    Colon(String),
    /// Something behind `?` or `#`.
    #[error("unknown parameter {0:?} (known: socket, connections, give_up_s)")]
    Parameter(String),
    /// A parameter came twice.
    #[error("parameter {0:?} is given twice")]
    Twice(String),
    /// A part that is well written and makes no sense.
    #[error(transparent)]
    Part(#[from] NbdSpecError),
}

/// Whether a text claims to be such a URI, and so should be judged as one.
pub fn is_uri(text: &str) -> bool {
    text.split_once("://").is_some_and(|(scheme, _)| {
        let scheme = scheme.split_once('+').map_or(scheme, |(family, _)| family);
        scheme == "nbd" || scheme == "nbds"
    })
}

/// Parses `nbd://HOST[:PORT][/EXPORT]` or `nbd+unix:///[EXPORT]?socket=PATH`. A relative path is
/// taken from `base`. `connections=N` and `give_up_s=N` may follow as parameters; whatever else
/// is there is refused, as the format's description advises.
///
/// # Errors
/// [`NbdUriError`].
pub fn parse(text: &str, base: &Path) -> Result<NbdSpec, NbdUriError> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(NbdUriError::Length);
    }
    let (scheme, rest) = text.split_once("://").unwrap_or((text, ""));
    if let Some((_, fragment)) = rest.split_once('#') {
        return Err(NbdUriError::Parameter(format!("#{fragment}")));
    }
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, export) = place.split_once('/').unwrap_or((place, ""));
    if let Some((user, _)) = authority.split_once('@') {
        return Err(NbdUriError::User(user.into()));
    }
    let export = decoded(export)?;
    let (socket, options) = parameters(query)?;
    // What `NbdSpec` parses is put together again, so that each part is judged in one place.
    let address = match (scheme, socket) {
        ("nbd", None) => format!("tcp:{}", host_and_port(authority)?),
        ("nbd", Some(_)) => return Err(NbdUriError::Parameter("socket".into())),
        ("nbd+unix", None) => return Err(NbdUriError::Socket),
        ("nbd+unix", Some(_)) if !authority.is_empty() => {
            return Err(NbdUriError::HostWithSocket(authority.into()));
        }
        ("nbd+unix", Some(path)) if path.contains(':') => return Err(NbdUriError::Colon(path)),
        ("nbd+unix", Some(path)) => format!("unix:{path}"),
        _ => return Err(NbdUriError::Scheme(format!("{scheme}://"))),
    };
    Ok(NbdSpec::parse(&format!("{options}:{address}:{export}"), base)?)
}

/// The host as it stands in the URI, and the port or the usual one.
fn host_and_port(authority: &str) -> Result<String, NbdUriError> {
    // A port's colon comes behind the bracket of an IPv6 address.
    let behind = authority.rfind(']').unwrap_or(0);
    let (host, port) = match authority[behind..].find(':').map(|colon| behind + colon) {
        Some(colon) => (&authority[..colon], &authority[colon + 1..]),
        None => (authority, ""),
    };
    if host.is_empty() {
        return Err(NbdUriError::Host);
    }
    let bad = |what: NbdSpecError| Err(NbdUriError::Part(what));
    if host.contains('%') {
        // No host's name needs it, and what it stands for could be a colon.
        return bad(NbdSpecError::Host(host.into()));
    }
    match port {
        "" => Ok(format!("{host}:{PORT}")),
        _ if port.bytes().all(|byte| byte.is_ascii_digit()) => Ok(format!("{host}:{port}")),
        _ if port.contains(':') => bad(NbdSpecError::Host(authority.into())),
        _ => bad(NbdSpecError::Port(port.into())),
    }
}

/// The socket, and the other parameters as `,key=value...`.
fn parameters(query: &str) -> Result<(Option<String>, String), NbdUriError> {
    let mut socket = None;
    let mut seen = Vec::new();
    let mut options = String::new();
    for part in query.split('&').filter(|part| !part.is_empty()) {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        let (key, value) = (decoded(key)?, decoded(value)?);
        if !["socket", "connections", "give_up_s"].contains(&key.as_str()) {
            return Err(NbdUriError::Parameter(key));
        }
        if seen.contains(&key) {
            return Err(NbdUriError::Twice(key));
        }
        match key.as_str() {
            "socket" => socket = Some(value),
            // These are numbers; a colon or comma would end the option where it stands.
            _ if !value.bytes().all(|byte| byte.is_ascii_digit()) => {
                return Err(NbdSpecError::Option(format!("{key}={value}")).into());
            }
            _ => options.extend([",", &key, "=", &value]),
        }
        seen.push(key);
    }
    Ok((socket, options))
}

/// A part of the URI with `%xx` replaced by the bytes they stand for.
fn decoded(part: &str) -> Result<String, NbdUriError> {
    let wrong = || NbdUriError::Encoding(part.into());
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.as_bytes().iter();
    while let Some(&byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(*rest.next()?).to_digit(16).map(|digit| digit as u8);
        match (digit(), digit()) {
            (Some(high), Some(low)) => bytes.push(high << 4 | low),
            _ => return Err(wrong()),
        }
    }
    if bytes.contains(&0) {
        return Err(wrong());
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shown(text: &str) -> Result<String, NbdUriError> {
        assert!(is_uri(text), "{text}");
        parse(text, Path::new("/base")).map(|spec| spec.to_string())
    }

    #[test]
    fn uris_are_the_servers_they_name() {
        for (text, expected) in [
            ("nbd://host.example", "nbd:tcp:host.example:10809"),
            ("nbd://host:10810/", "nbd:tcp:host:10810"),
            ("nbd://host:/vm1", "nbd:tcp:host:10809:vm1"),
            ("nbd://127.0.0.1:1//vm1", "nbd:tcp:127.0.0.1:1:/vm1"),
            ("nbd://[::1]/vm1", "nbd:tcp:[::1]:10809:vm1"),
            ("nbd://[::1]:9/a/b", "nbd:tcp:[::1]:9:a/b"),
            ("nbd://h/hello%20w%C3%B6rld", "nbd:tcp:h:10809:hello wörld"),
            (
                "nbd://h/a:b?connections=1&give_up_s=9",
                "nbd,connections=1,give_up_s=9:tcp:h:10809:a:b",
            ),
            ("nbd+unix:///vm1?socket=/run/a.sock", "nbd:unix:/run/a.sock:vm1"),
            ("nbd+unix:///?socket=a%20b.sock", "nbd:unix:/base/a b.sock"),
            ("nbd+unix://?socket=a.sock", "nbd:unix:/base/a.sock"),
            (
                "nbd+unix:///vm1?connections=2&socket=a,b.sock",
                "nbd,connections=2:unix:/base/a,b.sock:vm1",
            ),
            ("nbd+unix:///100%25?socket=a+b", "nbd:unix:/base/a+b:100%"),
        ] {
            assert_eq!(shown(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn errors_say_what_is_wrong() {
        let long = format!("nbd://h/{}", "x".repeat(8192));
        let export = format!("nbd://h/{}", "x".repeat(4097));
        let path = format!("nbd+unix:///?socket=/{}", "x".repeat(107));
        for (text, part) in [
            ("nbds://host", "\"nbds://\" is not supported"),
            ("nbd+vsock:///?socket=x", "\"nbd+vsock://\" is not supported"),
            ("nbds+unix:///?socket=x", "\"nbds+unix://\" is not supported"),
            ("nbd://", "the host is missing"),
            ("nbd:///vm1", "the host is missing"),
            ("nbd://:10809/vm1", "the host is missing"),
            ("nbd://me@host/vm1", "a user name (\"me\")"),
            ("nbd://host:99999", "\"99999\" is no port"),
            ("nbd://host:0", "\"0\" is no port"),
            ("nbd://host:x", "\"x\" is no port"),
            ("nbd://::1/vm1", "the host is missing"),
            ("nbd://fe80::1/vm1", "is no host"),
            ("nbd://[::1/vm1", "is no host"),
            ("nbd://[::1]x/vm1", "is no host"),
            ("nbd://ho%20st/vm1", "is no host"),
            ("nbd://host%3a1/vm1", "is no host"),
            ("nbd://host?socket=a", "unknown parameter \"socket\""),
            ("nbd://host/vm1#top", "unknown parameter \"#top\""),
            ("nbd://host?tls-type=psk", "unknown parameter \"tls-type\""),
            ("nbd://host?connections=0", "\"connections=0\" is no option"),
            ("nbd://host?connections=1:tcp", "\"connections=1:tcp\" is no option"),
            ("nbd://host?connections=1&connections=1", "given twice"),
            ("nbd+unix:///vm1", "\"?socket=PATH\" is missing"),
            ("nbd+unix:///vm1?socket=", "1 to 107 bytes"),
            ("nbd+unix://vm1?socket=a", "three slashes precede"),
            ("nbd+unix:///vm1?socket=a:b", "holds a colon"),
            ("nbd+unix:///vm1?socket=a%3ab", "holds a colon"),
            ("nbd+unix:///vm1?socket=%00a", "not properly encoded"),
            ("nbd://h/%", "not properly encoded"),
            ("nbd://h/%4", "not properly encoded"),
            ("nbd://h/%zz", "not properly encoded"),
            ("nbd://h/%ff", "not properly encoded"),
            (long.as_str(), "at most 8192 bytes"),
            (export.as_str(), "at most 4096 bytes"),
            (path.as_str(), "1 to 107 bytes"),
        ] {
            let error = shown(text).expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn only_what_looks_like_one_is_one() {
        for text in ["nbd", "nbd:unix:a", "/nbd://x", "http://x", "file:nbd://x", "a://nbd://"] {
            assert!(!is_uri(text), "{text}");
        }
    }

    proptest! {
        /// Whatever is written, it is refused or means what its other form means.
        #[test]
        fn nothing_panics_or_changes_its_meaning(
            text in "nbd(\\+unix)?://[a-c0-9%:@/?=&.\\[\\]#ö,-]{0,24}(\\?socket=[a-c%:,/0-9]{1,8})?",
            any in "\\PC*",
        ) {
            let _any = parse(&any, Path::new("/base"));
            if let Ok(spec) = parse(&text, Path::new("/base")) {
                let shown = spec.to_string();
                let again = NbdSpec::parse(shown.strip_prefix("nbd").expect("it begins so"), Path::new("/"));
                prop_assert_eq!(again, Ok(spec));
            }
        }
    }
}
