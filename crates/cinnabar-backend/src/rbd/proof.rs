//! How an image proves that nobody else wrote it: by the version of its header object.
//!
//! A client that writes an image with the feature exclusive-lock must take its lock first, and that changes
//! the header object (`rbd_header.ID`), whose version RADOS raises with each change. Our own writes do
//! not change it: librbd is told to keep no times of access. So the same version means that nobody
//! has taken the lock since, whether the volume was detached or the daemon was killed. There is no
//! window within which another's write would pass for ours, as there is with files.
//!
//! # Taking and releasing the lock
//! Both change the header, so that there is a moment between a version that was read and a lock that
//! is held. Versions tell what happened then. Each change raises them by at least one (by more if
//! other objects of the placement group change meanwhile). Another client that took the lock and let
//! go of it makes two changes beside ours ([`Step`]). A rise by no more than ours and one shows that
//! there was none; any other proves nothing.
//!
//! A watch of the header is no change, but the next change's version skips one for it, and every
//! opening brings one. So the rise is counted from a change that we make ourselves, under the
//! condition that the header has the version that was found (`open::note_owner`).
//!
//! # Snapshots
//! A snapshot can't be written: the same one is the proof.
//!
//! # A snapshot that was left
//! The proof of a clean end may also name a snapshot of the image that was taken then, under the lock and
//! behind the last write ([`Seen::Left`]). If others have written since, what may differ from it is what they
//! have changed (`returning`).

use cinnabar_engine::volume::{Belief, ProofToken, Recorded};

/// What the layout of the 64 bytes is called, of an image and of a snapshot.
const IMAGE: u64 = 0x3000_0001;
const SNAP: u64 = 0x3000_0002;
const LEFT: u64 = 0x3000_0003;

/// Which image it is, whatever it is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    /// The cluster.
    pub(super) fsid: [u8; 16],
    /// The pool's number, which no later pool gets.
    pub(super) pool: i64,
    /// A hash of the namespace and of the image's id, which no later image gets.
    pub(super) image: u64,
}

impl Identity {
    pub(super) fn new(fsid: [u8; 16], pool: i64, namespace: &str, image_id: &str) -> Self {
        Self { fsid, pool, image: fnv1a(&[namespace.as_bytes(), b"\0", image_id.as_bytes()]) }
    }
}

/// A change of the lock by ourselves, by how many changes of the header it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// One change: the lock that was free is taken, or ours is released.
    One,
    /// Two: the lock of a dead client is broken, and taken.
    Two,
}

impl Step {
    /// Whether nobody else can have had the lock between these two versions, neither of which was
    /// read while another client had it.
    pub(super) fn was_alone(self, before: u64, after: u64) -> bool {
        let own = match self {
            Self::One => 1,
            Self::Two => 2,
        };
        // Another's lock and release are two more.
        before < after && after - before < own + 2
    }
}

/// What a token holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// Of an image that this process has locked, or has just released.
    Image {
        /// Version of the header now.
        version: u64,
        /// Version under which the image was found at its opening; 0 if that is not known.
        found: u64,
    },
    /// A snapshot, by its number.
    Snap(u64),
    /// Of an image that was let go of, when nobody else had written it since it was opened.
    Left {
        /// Version of the header then; 0 if another client may have had the lock before it was read.
        version: u64,
        /// Number of the snapshot that was taken before.
        snap: u64,
    },
}

impl Seen {
    pub(super) fn pack(&self, identity: &Identity) -> ProofToken {
        let (layout, first, second) = match *self {
            Self::Image { version, found } => (IMAGE, version, found),
            Self::Snap(number) => (SNAP, number, 0),
            Self::Left { version, snap } => (LEFT, version, snap),
        };
        let mut bytes = [0; 64];
        bytes[..8].copy_from_slice(&layout.to_le_bytes());
        bytes[8..24].copy_from_slice(&identity.fsid);
        // The last eight bytes are the driver's.
        let fields = [identity.pool.cast_unsigned(), identity.image, first, second];
        for (place, field) in bytes[24..56].chunks_exact_mut(8).zip(fields) {
            place.copy_from_slice(&field.to_le_bytes());
        }
        ProofToken(bytes)
    }

    /// What a token says, if it is one of an image's.
    fn unpack(token: &ProofToken) -> Option<(Identity, Self)> {
        let field = |at: usize| token.0.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
        let fsid = token.0[8..24].try_into().ok()?;
        let identity = Identity { fsid, pool: field(24)?.cast_signed(), image: field(32)? };
        let seen = match field(0)? {
            IMAGE => Self::Image { version: field(40)?, found: field(48)? },
            SNAP => Self::Snap(field(40)?),
            LEFT => Self::Left { version: field(40)?, snap: field(48)? },
            _ => return None,
        };
        Some((identity, seen))
    }
}

/// See [`Proof::judge`](crate::Proof::judge).
pub(crate) fn judge(recorded: &Recorded, now: Option<&ProofToken>) -> Belief {
    let then = recorded.proof.as_ref().and_then(Seen::unpack);
    let (Some((whose, then)), Some((who, now))) = (then, now.and_then(Seen::unpack)) else {
        return Belief::Unknown;
    };
    if whose != who {
        return Belief::Changed;
    }
    match (then, now) {
        (Seen::Snap(then), Seen::Snap(now)) if then == now => Belief::Unchanged,
        (Seen::Image { version, .. } | Seen::Left { version, .. }, Seen::Image { found, .. }) => {
            if found == 0 || version == 0 {
                Belief::Unknown
            } else if version == found {
                Belief::Unchanged
            } else if version < found {
                // Another's lock, or a change of our own that another shard's record knows of.
                Belief::Unknown
            } else {
                Belief::Changed
            }
        }
        _ => Belief::Changed,
    }
}

/// The number of the snapshot that was left, if the token is of an end that left one of this image: in
/// another pool the number may be another snapshot's.
#[cfg_attr(not(feature = "ceph"), allow(dead_code, reason = "tested without images"))]
pub(super) fn left(token: &ProofToken, of: &Identity) -> Option<u64> {
    match Seen::unpack(token)? {
        (identity, Seen::Left { snap, .. }) if identity == *of => Some(snap),
        _ => None,
    }
}

/// FNV-1a: names are told apart, nothing is defended.
fn fnv1a(parts: &[&[u8]]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.iter());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(image: &str) -> Identity {
        Identity::new([7; 16], 3, "", image)
    }

    fn belief(then: &Seen, now: &Seen) -> Belief {
        let recorded = Recorded { proof: Some(then.pack(&identity("a"))), written: true };
        judge(&recorded, Some(&now.pack(&identity("a"))))
    }

    #[test]
    fn the_version_found_is_compared_with_the_one_recorded() {
        let then = Seen::Image { version: 40, found: 12 };
        let now = |found| Seen::Image { version: 90, found };
        assert_eq!(belief(&then, &now(40)), Belief::Unchanged);
        assert_eq!(belief(&then, &now(41)), Belief::Unknown);
        assert_eq!(belief(&then, &now(39)), Belief::Changed);
        assert_eq!(belief(&then, &now(0)), Belief::Unknown);
        assert_eq!(belief(&then, &Seen::Snap(40)), Belief::Changed);
        assert_eq!(belief(&Seen::Snap(4), &Seen::Snap(4)), Belief::Unchanged);
        assert_eq!(belief(&Seen::Snap(4), &Seen::Snap(5)), Belief::Changed);
    }

    #[test]
    fn an_end_that_left_a_snapshot_proves_as_much_as_any() {
        let left = |version| Seen::Left { version, snap: 7 };
        let now = |found| Seen::Image { version: 90, found };
        assert_eq!(belief(&left(40), &now(40)), Belief::Unchanged);
        assert_eq!(belief(&left(40), &now(43)), Belief::Unknown);
        assert_eq!(belief(&left(40), &now(39)), Belief::Changed);
        // Another client may have come before the version was read.
        for found in [0, 1, 40] {
            assert_eq!(belief(&left(0), &now(found)), Belief::Unknown, "{found}");
        }
        let token = |seen: &Seen| seen.pack(&identity("a"));
        let named = |token: &ProofToken| super::left(token, &identity("a"));
        assert_eq!(named(&token(&left(40))), Some(7));
        assert_eq!(named(&token(&left(40)).of_attachment(9)), Some(7));
        assert_eq!(named(&left(40).pack(&identity("b"))), None, "of another image");
        assert_eq!(named(&token(&now(40))), None);
        assert_eq!(named(&token(&Seen::Snap(7))), None);
        assert_eq!(named(&ProofToken([2; 64])), None);
    }

    #[test]
    fn another_image_is_another_volume() {
        let seen = Seen::Image { version: 40, found: 40 };
        let token = |identity: &Identity| seen.pack(identity);
        let recorded = Recorded { proof: Some(token(&identity("a"))), written: false };
        assert_eq!(judge(&recorded, Some(&token(&identity("a")))), Belief::Unchanged);
        for other in [
            identity("b"),
            Identity::new([7; 16], 4, "", "a"),
            Identity::new([8; 16], 3, "", "a"),
            Identity::new([7; 16], 3, "n", "a"),
        ] {
            assert_eq!(judge(&recorded, Some(&token(&other))), Belief::Changed, "{other:?}");
        }
        let file = Recorded { proof: Some(ProofToken([2; 64])), written: false };
        assert_eq!(judge(&file, Some(&token(&identity("a")))), Belief::Unknown);
        assert_eq!(judge(&recorded, None), Belief::Unknown);
    }

    #[test]
    fn the_driver_has_its_eight_bytes() {
        let (who, seen) = (identity("a"), Seen::Image { version: 1, found: u64::MAX });
        let token = seen.pack(&who).of_attachment(u64::MAX);
        assert_eq!(Seen::unpack(&token), Some((who, seen)));
    }

    /// Against all that can happen between two versions: up to two other clients have the lock and
    /// let go of it, and other objects of the placement group change.
    #[test]
    fn a_rise_that_has_room_for_another_lock_proves_nothing() {
        for (step, own) in [(Step::One, 1), (Step::Two, 2)] {
            for others in 0..3_u64 {
                for strangers in 0..4_u64 {
                    let after = 100 + own + 2 * others + strangers;
                    let alone = step.was_alone(100, after);
                    assert!(!alone || others == 0, "{step:?} {others} {strangers}");
                    assert!(alone || 2 * others + strangers > 1, "needlessly strict");
                }
            }
            assert!(!step.was_alone(100, 100) && !step.was_alone(100, 99));
        }
    }
}
