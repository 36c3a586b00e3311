//! Where a server listens: `unix:PATH` or `tcp:IP:PORT`.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// Longest path of a unix socket, in bytes (`sun_path` less its terminating zero).
pub const UNIX_PATH_BYTES_MAX: usize = 107;

/// An address to listen at.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// A unix stream socket. Relative paths are relative to the working directory; to use another
    /// folder, join the path first.
    Unix(PathBuf),
    /// A TCP socket; port 0 lets the kernel choose.
    Tcp(SocketAddr),
}

/// Why a text is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// Neither `unix:` nor `tcp:`.
    #[error("'{0}' is neither unix:PATH nor tcp:IP:PORT")]
    Scheme(String),
    /// Nothing behind `unix:`.
    #[error("the path of the unix socket is empty")]
    EmptyPath,
    /// A path that does not fit in a socket address.
    #[error("the path of the unix socket has {0} bytes, {UNIX_PATH_BYTES_MAX} are possible")]
    PathTooLong(usize),
    /// Not an IP address and a port.
    #[error("'{0}' is not IP:PORT (an IPv6 address in brackets; a name is not looked up)")]
    Tcp(String),
}

impl Address {
    /// Checks what the type can't: that a unix path is not empty and fits.
    ///
    /// # Errors
    /// [`AddressError::EmptyPath`], [`AddressError::PathTooLong`].
    pub fn check(&self) -> Result<(), AddressError> {
        match self {
            Self::Unix(path) if path.as_os_str().is_empty() => Err(AddressError::EmptyPath),
            Self::Unix(path) if path.as_os_str().len() > UNIX_PATH_BYTES_MAX => {
                Err(AddressError::PathTooLong(path.as_os_str().len()))
            }
            Self::Unix(_) | Self::Tcp(_) => Ok(()),
        }
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let address = if let Some(path) = text.strip_prefix("unix:") {
            Self::Unix(PathBuf::from(path))
        } else if let Some(socket) = text.strip_prefix("tcp:") {
            // "localhost" is worth a special case: it is what people write, and needs no resolver.
            let literal = socket
                .strip_prefix("localhost:")
                .map_or_else(|| socket.to_owned(), |port| format!("127.0.0.1:{port}"));
            Self::Tcp(literal.parse().map_err(|_| AddressError::Tcp(socket.to_owned()))?)
        } else {
            return Err(AddressError::Scheme(text.to_owned()));
        };
        address.check()?;
        Ok(address)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(socket) => write!(f, "tcp:{socket}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_parse_and_print_alike() {
        for text in ["unix:vm1.sock", "unix:/run/a b.sock", "tcp:127.0.0.1:10809", "tcp:[::1]:1"] {
            let address: Address = text.parse().expect("a valid address");
            assert_eq!(address.to_string(), text);
        }
        let local: Address = "tcp:localhost:10809".parse().expect("a valid address");
        assert_eq!(local.to_string(), "tcp:127.0.0.1:10809");
    }

    #[test]
    fn wrong_addresses_are_named() {
        let long = format!("unix:{}", "x".repeat(108));
        for (text, error) in [
            ("vm1.sock", AddressError::Scheme("vm1.sock".into())),
            ("unix:", AddressError::EmptyPath),
            (&long, AddressError::PathTooLong(108)),
            ("tcp:10809", AddressError::Tcp("10809".into())),
            ("tcp:example.org:1", AddressError::Tcp("example.org:1".into())),
            ("tcp:127.0.0.1:70000", AddressError::Tcp("127.0.0.1:70000".into())),
        ] {
            assert_eq!(text.parse::<Address>(), Err(error), "{text}");
        }
    }
}
