//! The claim to an image: an object of its own, `cinnabar_claim.ID`, in the image's pool and namespace.
//!
//! It is not the image's metadata: that would change the header, whose version proves that nobody else had
//! the lock. It is made only where there is none, and each later change names the version that it follows:
//! of two hosts one wins. A claim that was not made in time may still come to be there later: it is this
//! log's own, and is found to be old at the next opening. Every function here blocks.

use super::open::{connect, image_id};
use super::spec::RbdSpec;
use super::sys::Cluster;
use crate::claim::{BYTES_MAX, Claim, ClaimErrorKind, parse, render};
use rustix::io::Errno;

/// Tries against another client that changes it at the same time.
const TRIES: u32 = 8;

/// A claim's object.
struct Object {
    cluster: Cluster,
    name: String,
}

/// What is there.
struct Found {
    claim: Claim,
    version: u64,
}

/// See [`Location::read`](crate::claim::Location::read).
pub(crate) fn read_claim(spec: &RbdSpec) -> Result<Option<Claim>, ClaimErrorKind> {
    Ok(Object::of(spec)?.read()?.map(|found| found.claim))
}

/// See [`Location::write`](crate::claim::Location::write).
pub(crate) fn write_claim(spec: &RbdSpec, claim: &Claim) -> Result<(), ClaimErrorKind> {
    let bytes = render(claim)?;
    Object::of(spec)?.change(claim, |cluster, name, version| match version {
        None => cluster.create(name, &bytes).map(drop),
        Some(version) => cluster.overwrite(name, &bytes, version).map(drop),
    })
}

/// See [`Location::remove`](crate::claim::Location::remove).
pub(crate) fn remove_claim(spec: &RbdSpec, claim: &Claim) -> Result<(), ClaimErrorKind> {
    Object::of(spec)?.change(claim, |cluster, name, version| match version {
        None => Ok(()),
        Some(version) => cluster.remove(name, version),
    })
}

impl Object {
    fn of(spec: &RbdSpec) -> Result<Self, ClaimErrorKind> {
        let mut cluster = connect(spec).map_err(|error| ClaimErrorKind::Io {
            during: "connect",
            error: std::io::Error::other(error),
        })?;
        let id = image_id(&mut cluster, &spec.image).map_err(failed("read the image's id"))?;
        Ok(Self { cluster, name: format!("cinnabar_claim.{id}") })
    }

    fn read(&mut self) -> Result<Option<Found>, ClaimErrorKind> {
        let max = BYTES_MAX as usize + 1;
        let found = self.cluster.content(&self.name, max).map_err(failed("read"))?;
        let Some((bytes, version)) = found else { return Ok(None) };
        Ok(Some(Found { claim: parse(&bytes)?, version }))
    }

    /// Changes what is there from what it is known to be, unless it is another's.
    fn change(
        &mut self,
        claim: &Claim,
        to: impl Fn(&mut Cluster, &str, Option<u64>) -> Result<(), Errno>,
    ) -> Result<(), ClaimErrorKind> {
        for _ in 0..TRIES {
            let found = self.read()?;
            if let Some(Found { claim: found, .. }) = &found
                && !found.is_of(claim.write_log, claim.incarnation)
            {
                return Err(ClaimErrorKind::Held(Box::new(found.clone())));
            }
            let version = found.map(|found| found.version);
            match to(&mut self.cluster, &self.name, version) {
                // Another client was quicker; or the answer to an earlier try of the library's was lost.
                Err(Errno::EXIST | Errno::NOENT | Errno::RANGE | Errno::OVERFLOW) => {}
                done => return done.map_err(failed("write")),
            }
        }
        Err(failed("write")(Errno::BUSY))
    }
}

fn failed(during: &'static str) -> impl Fn(Errno) -> ClaimErrorKind {
    move |errno| ClaimErrorKind::Io { during, error: errno.into() }
}
