//! Coming back to a back end that others have written meanwhile: what is common to those that can tell what
//! has changed since a snapshot.

use crate::entropy;
use rustix::io::Errno;

/// How the names of snapshots begin that daemons leave.
const PREFIX: &str = "cinnabar-return-";

/// Names of the snapshots that one cache leaves: two hosts of one image don't remove each other's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapNames(String);

impl SnapNames {
    /// Of the cache device with this identity.
    pub fn new(device: [u8; 16]) -> Self {
        Self(format!("{PREFIX}{:032x}-", u128::from_be_bytes(device)))
    }

    /// A name that there was none of before.
    ///
    /// # Errors
    /// There are no random numbers.
    pub fn new_name(&self) -> std::io::Result<String> {
        let number = entropy::bytes().map(u64::from_le_bytes)?;
        Ok(format!("{}{number:016x}", self.0))
    }

    /// Whether it is one of these.
    pub fn has(&self, name: &str) -> bool {
        name.strip_prefix(&self.0).is_some_and(|number| is_hexadecimal(number, 16))
    }

    /// Whether it is one of any cache's.
    pub fn is_any(name: &str) -> bool {
        let rest = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('-'));
        rest.is_some_and(|(device, number)| {
            is_hexadecimal(device, 32) && is_hexadecimal(number, 16)
        })
    }
}

fn is_hexadecimal(text: &str, digits: usize) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    text.len() == digits && text.bytes().all(is_digit)
}

/// Why it is not known what has changed, or why no snapshot was left.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReturnError {
    /// This kind of back end has none.
    #[error("this back end has no snapshots to compare with")]
    None,
    /// Removed, or renamed.
    #[error("the snapshot that was left is not there any more")]
    Gone,
    /// Something happened to it while it was compared.
    #[error("the snapshot, or the image's size, has changed while it was compared")]
    Moved,
    /// Images of this kind are not compared.
    #[error("{0}")]
    Kind(&'static str),
    /// It may write with the snapshots that it knew before this one.
    #[error("another client has the image open")]
    Open,
    /// It was made larger or smaller.
    #[error("the image has another size than the snapshot")]
    Size,
    /// Another client has, or had, the lock.
    #[error("the exclusive lock is not held, or was lost")]
    Lock,
    /// More than is kept.
    #[error("there are too many changes")]
    Many,
    /// The cluster is slow, or many images are compared.
    #[error("comparing it takes too long")]
    TooLong,
    /// The daemon stops.
    #[error("given up: the daemon stops")]
    GivenUp,
    /// The stop is about to end, or a snapshot is being removed for too long.
    #[error("there is not enough time left for it")]
    NoTime,
    /// The kernel has none.
    #[error("no random numbers")]
    NoNumbers,
    /// The cluster refused something, or is silent.
    #[error("{during}: {errno}")]
    Io {
        /// What was tried.
        during: &'static str,
        /// What it said.
        errno: Errno,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_knows_its_own_names_only() {
        let (own, other) = (SnapNames::new([7; 16]), SnapNames::new([8; 16]));
        let name = own.new_name().expect("random numbers");
        assert!(own.has(&name) && !other.has(&name) && SnapNames::is_any(&name));
        assert_ne!(own.new_name().expect("random numbers"), name);
        for users in ["", "before", PREFIX, &format!("{name}0"), &name[..name.len() - 1]] {
            assert!(!own.has(users) && !SnapNames::is_any(users), "{users}");
        }
        let backup = name.replace("return", "backup");
        assert!(!own.has(&backup) && !SnapNames::is_any(&backup));
    }
}
