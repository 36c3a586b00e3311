//! What is at the other end of a connection, so that no client takes all places.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// A client, or those that count as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Peer {
    /// A client of the control socket: an account that may open it may change everything.
    Operator,
    /// An account of this host.
    Account(u32),
    /// Another host.
    Address(IpAddr),
    /// A client on this host whose account is not known: most of them have left already.
    Unknown,
}

impl Peer {
    /// Whether it may do what the daemon may: the control socket's clients, root and the daemon's own account.
    /// Some places are kept for them.
    pub(crate) fn is_operator(self) -> bool {
        match self {
            Self::Operator => true,
            Self::Account(id) => id == 0 || id == rustix::process::geteuid().as_raw(),
            Self::Address(_) | Self::Unknown => false,
        }
    }

    /// Another host, by its address. One host has a whole network of IPv6 addresses (64 bits) to choose from, so
    /// such a network counts as one.
    pub fn of_address(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V6(address) => {
                let network = address.to_bits() & !u128::from(u64::MAX);
                Self::Address(Ipv6Addr::from_bits(network).into())
            }
            address @ IpAddr::V4(_) => Self::Address(address),
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operator => f.write_str("the control socket"),
            Self::Account(id) => write!(f, "account {id}"),
            Self::Address(address) => write!(f, "{address}"),
            Self::Unknown => f.write_str("an unknown account"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_and_the_daemons_account_are_operators() {
        let own = rustix::process::geteuid().as_raw();
        let all = [Peer::Operator, Peer::Account(0), Peer::Account(own)];
        assert!(all.into_iter().all(Peer::is_operator));
        let others = [Peer::Account(own + 1000), Peer::of_address([0, 0, 0, 0].into())];
        assert!(!others.into_iter().any(Peer::is_operator));
        assert!(!Peer::Unknown.is_operator());
    }

    #[test]
    fn a_host_is_one_peer_whatever_address_of_its_network_it_takes() {
        let of = |text: &str| Peer::of_address(text.parse().expect("an address"));
        assert_eq!(of("10.0.0.1"), of("::ffff:10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("2001:db8::1").to_string(), "2001:db8::");
        assert_eq!(Peer::Account(1000).to_string(), "account 1000");
    }
}
