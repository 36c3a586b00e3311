//! NBD servers as they are written: `nbd:unix:/run/vm1.sock:vm1`, `nbd:tcp:[::1]:10809`.

use super::proto::NAME_BYTES_MAX;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Most connections that can be asked for.
const CONNECTIONS_MAX: u8 = 16;
/// Connections unless said otherwise.
const CONNECTIONS: u8 = 4;
/// Most that can be asked for: a day.
const GIVE_UP_S_MAX: u64 = 86_400;
/// Longest path of a unix socket.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NbdAddress {
    /// A unix socket.
    Unix(PathBuf),
    /// A host, by name or number, and a port.
    Tcp {
        /// Name or address, without brackets.
        host: String,
        port: u16,
    },
}

/// A server's export, not yet connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdSpec {
    /// Where.
    pub address: NbdAddress,
    /// Name of the export; empty is the server's default.
    pub export: String,
    /// Most connections, used only if the server says that they see each other's writes.
    pub connections: u8,
    /// How long a request that makes no progress is waited for and repeated; `None`: as long as
    /// it takes.
    pub give_up: Option<Duration>,
}

/// Why a text is no NBD server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NbdSpecError {
    /// Neither `unix:` nor `tcp:`.
    #[error("{0:?} is no address of an NBD server")]
    Address(String),
    /// The path of a unix socket.
    #[error("the path of a unix socket has 1 to {SOCKET_PATH_BYTES_MAX} bytes")]
    Path,
    #[error("{0:?} is no host (an IPv6 address stands in brackets)")]
    Host(String),
    #[error("{0:?} is no port (1 to 65535)")]
    Port(String),
    #[error("the name of an export has at most {NAME_BYTES_MAX} bytes")]
    Export,
    /// An option.
    #[error(
        "{0:?} is no option (connections=1 to {CONNECTIONS_MAX}, give_up_s=1 to {GIVE_UP_S_MAX}, 0 = never)"
    )]
    Option(String),
}

impl NbdSpec {
    /// Parses what follows `nbd`: `[,key=value...]:unix:PATH[:EXPORT]` or
    /// `[,key=value...]:tcp:HOST:PORT[:EXPORT]`. A relative path is taken from `base`; it can't hold
    /// a colon, an export can.
    ///
    /// # Errors
    /// [`NbdSpecError`].
    pub fn parse(text: &str, base: &Path) -> Result<Self, NbdSpecError> {
        let (options, place) =
            text.split_once(':').ok_or_else(|| NbdSpecError::Address(text.into()))?;
        let (address, export) = if let Some(rest) = place.strip_prefix("unix:") {
            let (path, export) = rest.split_once(':').unwrap_or((rest, ""));
            (unix(path, base)?, export)
        } else if let Some(rest) = place.strip_prefix("tcp:") {
            tcp(rest)?
        } else {
            return Err(NbdSpecError::Address(place.into()));
        };
        if export.len() > NAME_BYTES_MAX {
            return Err(NbdSpecError::Export);
        }
        let mut spec =
            Self { address, export: export.into(), connections: CONNECTIONS, give_up: None };
        for option in options.split(',').skip(1) {
            spec.set(option).ok_or_else(|| NbdSpecError::Option(option.into()))?;
        }
        Ok(spec)
    }

    fn set(&mut self, option: &str) -> Option<()> {
        match option.split_once('=')? {
            ("connections", count) => {
                let range = 1..=CONNECTIONS_MAX;
                self.connections = count.parse().ok().filter(|count| range.contains(count))?;
            }
            ("give_up_s", seconds) => {
                let range = 0..=GIVE_UP_S_MAX;
                let seconds = seconds.parse().ok().filter(|seconds| range.contains(seconds))?;
                self.give_up = (seconds > 0).then(|| Duration::from_secs(seconds));
            }
            _ => return None,
        }
        Some(())
    }

    /// What it is, however the rest is written: equal for two texts that name one export of one
    /// address. A socket's path is the real one if it exists.
    pub fn place(&self) -> String {
        let address = match &self.address {
            NbdAddress::Unix(path) => {
                let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.clone());
                format!("unix:{}", path.display())
            }
            NbdAddress::Tcp { host, port } => format!("tcp:{}:{port}", host.to_ascii_lowercase()),
        };
        format!("{address}:{}", self.export)
    }
}

fn unix(path: &str, base: &Path) -> Result<NbdAddress, NbdSpecError> {
    let whole = base.join(path);
    if path.is_empty() || whole.as_os_str().len() > SOCKET_PATH_BYTES_MAX {
        return Err(NbdSpecError::Path);
    }
    Ok(NbdAddress::Unix(whole))
}

/// `HOST:PORT[:EXPORT]`, a host of colons in brackets.
fn tcp(text: &str) -> Result<(NbdAddress, &str), NbdSpecError> {
    let wrong = || NbdSpecError::Host(text.into());
    let (host, rest) = match text.strip_prefix('[') {
        Some(text) => {
            let (host, rest) = text.split_once(']').ok_or_else(wrong)?;
            host.parse::<std::net::Ipv6Addr>().map_err(|_| wrong())?;
            (host, rest.strip_prefix(':').ok_or_else(wrong)?)
        }
        None => text.split_once(':').ok_or_else(wrong)?,
    };
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-._:%".contains(letter);
    if host.is_empty() || host.len() > 255 || !host.chars().all(plain) {
        return Err(NbdSpecError::Host(host.into()));
    }
    let (port, export) = rest.split_once(':').unwrap_or((rest, ""));
    match port.parse() {
        Ok(0) | Err(_) => Err(NbdSpecError::Port(port.into())),
        Ok(port) => Ok((NbdAddress::Tcp { host: host.into(), port }, export)),
    }
}

impl fmt::Display for NbdAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp { host, port } if host.contains(':') => write!(f, "tcp:[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "tcp:{host}:{port}"),
        }
    }
}

impl fmt::Display for NbdSpec {
    /// As it is parsed, options that are not the default included.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nbd")?;
        if self.connections != CONNECTIONS {
            write!(f, ",connections={}", self.connections)?;
        }
        if let Some(give_up) = self.give_up {
            write!(f, ",give_up_s={}", give_up.as_secs())?;
        }
        write!(f, ":{}", self.address)?;
        if self.export.is_empty() { Ok(()) } else { write!(f, ":{}", self.export) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<NbdSpec, NbdSpecError> {
        NbdSpec::parse(text.strip_prefix("nbd").expect("an nbd text"), Path::new("/base"))
    }

    #[test]
    fn display_parses_back() {
        for (text, shown) in [
            ("nbd:unix:a.sock", "nbd:unix:/base/a.sock"),
            ("nbd:unix:/run/a.sock:vm1", "nbd:unix:/run/a.sock:vm1"),
            ("nbd:unix:/run/a.sock:a:b c", "nbd:unix:/run/a.sock:a:b c"),
            ("nbd:tcp:host.example:10809", "nbd:tcp:host.example:10809"),
            ("nbd:tcp:[::1]:10809:vm1", "nbd:tcp:[::1]:10809:vm1"),
            ("nbd,connections=4:tcp:h:1:", "nbd:tcp:h:1"),
            ("nbd,connections=1,give_up_s=9:tcp:h:1", "nbd,connections=1,give_up_s=9:tcp:h:1"),
            ("nbd,give_up_s=300:tcp:h:1", "nbd,give_up_s=300:tcp:h:1"),
            ("nbd,give_up_s=0:tcp:h:1", "nbd:tcp:h:1"),
        ] {
            let spec = parse(text).expect(text);
            assert_eq!(spec.to_string(), shown);
            assert_eq!(parse(shown).expect(shown), spec);
        }
    }

    #[test]
    fn requests_are_waited_for_without_bound_unless_told() {
        assert_eq!(parse("nbd:tcp:h:1").expect("well-formed").give_up, None);
        let bounded = parse("nbd,give_up_s=9:tcp:h:1").expect("well-formed");
        assert_eq!(bounded.give_up, Some(Duration::from_secs(9)));
    }

    #[test]
    fn errors_say_what_is_wrong() {
        for (text, part) in [
            ("nbd", "is no address"),
            ("nbd:", "is no address"),
            ("nbd:file:x", "is no address"),
            ("nbd:unix:", "1 to 107 bytes"),
            (&format!("nbd:unix:/{}", "a".repeat(107)), "1 to 107 bytes"),
            ("nbd:tcp:host", "is no host"),
            ("nbd:tcp:::1:10809", "is no host"),
            ("nbd:tcp:[::1:10809", "is no host"),
            ("nbd:tcp:[host]:10809", "is no host"),
            ("nbd:tcp:ho st:10809", "is no host"),
            ("nbd:tcp:host:0", "\"0\" is no port"),
            ("nbd:tcp:host:70000", "is no port"),
            ("nbd:tcp:host:nbd", "is no port"),
            ("nbd,connections=0:tcp:h:1", "\"connections=0\" is no option"),
            ("nbd,give_up_s=86401:tcp:h:1", "is no option"),
            ("nbd,tls=on:tcp:h:1", "is no option"),
            ("nbd,:tcp:h:1", "\"\" is no option"),
            (&format!("nbd:tcp:h:1:{}", "x".repeat(4097)), "at most 4096 bytes"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.to_string().contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn one_export_has_one_place() {
        let place = |text| parse(text).expect("well-formed").place();
        assert_eq!(place("nbd:tcp:Host:1:a"), place("nbd,connections=1:tcp:host:1:a"));
        assert_ne!(place("nbd:tcp:host:1:a"), place("nbd:tcp:host:1:b"));
    }
}
