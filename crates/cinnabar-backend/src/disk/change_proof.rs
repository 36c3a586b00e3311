//! How files prove that they were not written: who they are, how large, when they last changed, and
//! what time it was.
//!
//! Called through [`Proof`]. Block devices and NBD servers have nothing to prove it with; RBD images
//! and hybrid volumes have their own ways.
//!
//! Change times can be coarse (a kernel tick of 4 ms; a second on some file systems): a write right
//! after one of this process could get the same one. So the proof of a clean detach is only given
//! once the file system's own clock has moved past the change time, which a file touched beside it
//! tells. How two proofs are compared: [`cinnabar_driver::change_proof`].

use super::clock::{Clock, stamp_ns};
use super::remote::Remote;
use super::{Disk, DiskKind, SyncExtent};
use crate::proof::{Proof, ProofError};
use cinnabar_driver::ChangeProof;
use cinnabar_engine::mutant::Mutants;
use cinnabar_engine::volume::{Belief, ProofToken, Recorded};
use rustix::fd::AsFd;
use rustix::fs::{AtFlags, StatxFlags, statx};
use std::time::{Duration, Instant};

/// How long to wait for the file system's clock; some count in two seconds.
const CLOCK_WAIT_MAX: Duration = Duration::from_millis(2500);
/// How often to look.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// What the layout of the 64 bytes is called.
const LAYOUT: u64 = 2;

impl Proof for Disk {
    /// Takes the file's own change time for the time where no clock can be had: that
    /// proves less, never more.
    fn read_proof(&self) -> Result<Option<ProofToken>, ProofError> {
        #[cfg(feature = "ceph")]
        if let Some(Remote::Rbd(image)) = self.remote() {
            return image.read_proof();
        }
        if let Some(Remote::Hybrid(volume)) = self.remote() {
            return Ok(volume.read_proof());
        }
        if self.kind != DiskKind::File {
            return Ok(None);
        }
        let seen = look(self)?;
        Ok(Some(seen.at(time_or(self, seen.change_ns)).pack()))
    }

    /// Usually takes 5 to 10 ms, at most 2.5 s.
    fn take_proof(&self) -> Result<Option<ProofToken>, ProofError> {
        flush(self)?;
        #[cfg(feature = "ceph")]
        if let Some(Remote::Rbd(image)) = self.remote() {
            return image.take_proof();
        }
        if let Some(Remote::Hybrid(volume)) = self.remote() {
            return Ok(volume.read_proof());
        }
        if self.kind != DiskKind::File {
            return Ok(None);
        }
        let seen = look(self)?;
        let clock = Clock::of(self)?;
        let since = Instant::now();
        let now_ns = loop {
            let now_ns = clock.now_ns()?;
            if now_ns > seen.change_ns {
                break now_ns;
            }
            if since.elapsed() >= CLOCK_WAIT_MAX {
                return Err(ProofError::Clock);
            }
            std::thread::sleep(LOOK_EVERY);
        };
        if look(self)? == seen {
            Ok(Some(seen.at(now_ns).pack()))
        } else {
            Err(ProofError::Changed)
        }
    }

    fn prove(&self) -> Result<Option<ProofToken>, ProofError> {
        flush(self)?;
        self.read_proof()
    }

    fn judge(&self, recorded: &Recorded, now: Option<&ProofToken>) -> Belief {
        #[cfg(feature = "ceph")]
        if let Some(Remote::Rbd(_)) = self.remote() {
            return crate::rbd::judge(recorded, now);
        }
        if let Some(Remote::Hybrid(_)) = self.remote() {
            return crate::hybrid::judge(recorded, now);
        }
        judge(recorded, now)
    }

    fn judge_elsewhere(&self, recorded: &Recorded, now: Option<&ProofToken>) -> Belief {
        if self.is_remote() {
            return self.judge(recorded, now);
        }
        judge_elsewhere(recorded, now)
    }
}

/// Not fdatasync for a file: the change time itself must survive a power cut.
fn flush(disk: &Disk) -> Result<(), ProofError> {
    disk.sync(SyncExtent::All).map_err(ProofError::Flush)
}

/// The file system's time, or `otherwise` if that can't be learned.
fn time_or(disk: &Disk, otherwise: i64) -> i64 {
    match Clock::of(disk).and_then(|clock| clock.now_ns()) {
        Ok(now_ns) => now_ns,
        Err(error) => {
            let path = disk.path.display();
            tracing::debug!(%path, reason = %error, "its file system does not tell the time");
            otherwise
        }
    }
}

/// What the proof is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    device: u64,
    inode: u64,
    /// 0 where the file system keeps none.
    birth_ns: i64,
    size_bytes: u64,
    change_ns: i64,
}

/// A proof: what was seen, and when by the file system's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamped {
    seen: Seen,
    now_ns: i64,
}

impl Seen {
    fn at(self, now_ns: i64) -> Stamped {
        Stamped { seen: self, now_ns }
    }

    /// Who it is, whatever was written.
    fn identity(&self) -> (u64, u64, i64, u64) {
        (self.device, self.inode, self.birth_ns, self.size_bytes)
    }
}

impl Stamped {
    fn unpacked(&self) -> ChangeProof<(u64, u64, i64, u64)> {
        let (seen, now_ns) = (&self.seen, self.now_ns);
        ChangeProof { identity: seen.identity(), change_ns: seen.change_ns, now_ns }
    }

    fn pack(self) -> ProofToken {
        let Self { seen, now_ns } = self;
        let fields = [
            LAYOUT,
            seen.device,
            seen.inode,
            seen.birth_ns.cast_unsigned(),
            seen.size_bytes,
            seen.change_ns.cast_unsigned(),
            now_ns.cast_unsigned(),
        ];
        let mut bytes = [0; 64];
        for (place, field) in bytes.chunks_exact_mut(8).zip(fields) {
            place.copy_from_slice(&field.to_le_bytes());
        }
        ProofToken(bytes)
    }

    /// What `proof` says, if it has this layout: another version, or another kind of backend under
    /// the same name, may have made it.
    fn unpack(proof: &ProofToken) -> Option<Self> {
        let mut fields = [0; 8];
        for (field, place) in fields.iter_mut().zip(proof.0.chunks_exact(8)) {
            *field = u64::from_le_bytes(place.try_into().ok()?);
        }
        // The last one is the driver's.
        let [layout, device, inode, birth, size_bytes, change, now, _] = fields;
        let birth_ns = birth.cast_signed();
        let seen = Seen { device, inode, birth_ns, size_bytes, change_ns: change.cast_signed() };
        (layout == LAYOUT).then(|| seen.at(now.cast_signed()))
    }
}

/// See [`Proof::judge`].
fn judge(recorded: &Recorded, now: Option<&ProofToken>) -> Belief {
    let then = recorded.proof.as_ref().and_then(Stamped::unpack);
    let (Some(then), Some(now)) = (then, now.and_then(Stamped::unpack)) else {
        return Belief::Unknown;
    };
    then.unpacked().judge(recorded.written, &now.unpacked(), Mutants::default())
}

/// See [`Proof::judge_elsewhere`]: a mounted file system has another device number on each host.
fn judge_elsewhere(recorded: &Recorded, now: Option<&ProofToken>) -> Belief {
    let device = |proof: &ProofToken| Some(Stamped::unpack(proof)?.seen.device);
    let here = now.and_then(device);
    let as_here = |proof: &ProofToken| {
        let mut then = Stamped::unpack(proof)?;
        then.seen.device = here?;
        Some(then.pack())
    };
    let proof = recorded.proof.as_ref().and_then(as_here);
    judge(&Recorded { proof, written: recorded.written }, now)
}

fn look(disk: &Disk) -> Result<Seen, ProofError> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let seen = statx(disk.as_fd(), "", AtFlags::EMPTY_PATH, wanted)
        .map_err(|errno| ProofError::Io { during: "stat", errno })?;
    let has_birth = StatxFlags::from_bits_retain(seen.stx_mask).contains(StatxFlags::BTIME);
    Ok(Seen {
        device: u64::from(seen.stx_dev_major) << 32 | u64::from(seen.stx_dev_minor),
        inode: seen.stx_ino,
        birth_ns: if has_birth { stamp_ns(seen.stx_btime) } else { 0 },
        size_bytes: seen.stx_size,
        change_ns: stamp_ns(seen.stx_ctime),
    })
}

#[cfg(test)]
mod tests;
