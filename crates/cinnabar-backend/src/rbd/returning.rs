//! Coming back to an image that others have written meanwhile.
//!
//! At a clean end a snapshot is taken under the exclusive lock, behind the last write. Its number goes into the
//! proof of that end ([`Seen::Left`](super::proof::Seen)). What may differ between it and the image, when that
//! is ours again, is what others have changed. The number decides, not the name: RADOS gives none twice.
//!
//! # Why nothing is missed
//! Each later writer has the snapshot in its snapshot context: it opens the image behind it, for while the lock
//! was ours and the snapshot was there, no other client had a watch on the header. (One that has the image open
//! from before may send its first write with the context from before it got the lock: librbd before 16.2.14 and
//! 17.2.7, Linux before 6.4.) So its first write, discard, removal or rollback of an object has the OSD keep the
//! object as it was. Each object is asked (`list_snaps`) for what it does not share with that; object maps, which
//! may be wrong, are not used.
//! An object that was written here behind an older snapshot and then removed elsewhere is found because it is
//! in *this* snapshot. An object that is neither in the snapshot nor in the image is a hole in both: so there
//! must be no parent, whose bytes could show through one hole and not through the other.
//!
//! The comparison holds the lock from before its beginning until behind its end, and finds the snapshot by its
//! number both times: one that was removed in between, and made again by its name, has another.

use super::client::Client;
use super::lineage::{JOURNALING, MIGRATING};
use super::open;
use super::proof::left;
use super::sys::{Image, Snap};
use crate::proof::ProofError;
use crate::returning::{ReturnError, SnapNames};
use cinnabar_engine::units::ByteSpan;
use cinnabar_engine::volume::ProofToken;
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// Longest wait for each thing that is asked of the cluster, in s.
const ASK_S: u64 = 10;
/// No snapshot is begun with less time: what is given up half-way stays, and nobody knows its number.
const SNAP_S_MIN: u64 = 3;
/// Longest comparison, with the wait for its turn: guests wait as long.
const COMPARE_MAX: Duration = Duration::from_mins(1);
/// Images that are compared at a time, in this process.
const COMPARE_AT_A_TIME: usize = 4;
/// Objects that one question of a comparison is about, between which it can be given up.
const STEP_OBJECTS: u64 = 256;
/// Extents that are kept on the way.
const EXTENTS_MAX: usize = 1 << 22;

impl Client {
    /// [`take_proof`](Self::take_proof) with a snapshot before it, which is asked for until `by` at the
    /// latest. Without one, for whatever reason, it is the ordinary proof.
    pub(crate) fn take_proof_and_snap(
        &self,
        names: &SnapNames,
        by: Instant,
    ) -> Result<Option<ProofToken>, ProofError> {
        let snap = self.leave_snap(names, by);
        let snap = snap.inspect_err(|reason| {
            tracing::warn!(
                image = self.place(), %reason,
                "no snapshot is left: if others write the image, all that is cached of it is dropped"
            );
        });
        self.let_go(snap.ok(), by)
    }

    fn leave_snap(&self, names: &SnapNames, by: Instant) -> Result<u64, ReturnError> {
        // From here on nothing is removed: not what is taken here either.
        let mut upkeep = self.upkeep_by(by).ok_or(ReturnError::NoTime)?;
        upkeep.ends = true;
        let left = || by.saturating_duration_since(Instant::now()).as_secs().min(ASK_S);
        let enough = || Some(left()).filter(|left| *left >= SNAP_S_MIN).ok_or(ReturnError::NoTime);
        let _patience = Patience::new(self.image(), enough()?);
        self.check_lock()?;
        check_kind(self.image())?;
        // Of an image with too many snapshots none could be removed again.
        self.image().snaps().map_err(io("its snapshots"))?;
        self.check_alone()?;
        enough()?;
        let name = names.new_name().map_err(|_| ReturnError::NoNumbers)?;
        self.image().take_snap(&name).map_err(io("taking a snapshot"))?;
        // Who opens the image from here on reads a header with the snapshot.
        self.check_alone()?;
        // Nobody else has had the lock since the image was opened.
        self.check_lock()?;
        let number = self.image().snap_number(&name).map_err(io("its number"))?;
        tracing::debug!(image = self.place(), name, number, "left a snapshot");
        Ok(number)
    }

    /// The number of the snapshot that a recorded proof of this image names.
    pub(crate) fn left_snap(&self, proof: &ProofToken) -> Option<u64> {
        left(proof, self.identity())
    }

    /// What may differ between the snapshot of this number and the image now: whole extents, in order.
    pub(crate) fn changed_since(
        &self,
        number: u64,
        given_up: &AtomicBool,
    ) -> Result<Vec<ByteSpan>, ReturnError> {
        let by = Instant::now() + COMPARE_MAX;
        let _turn = Turn::wait(by, given_up)?;
        let _alone = self.upkeep();
        let _patience = Patience::new(self.image(), ASK_S);
        self.check_lock()?;
        check_kind(self.image())?;
        let image = self.image();
        let step_bytes = image.layout().map_err(io("its layout"))?.object_bytes * STEP_OBJECTS;
        let snap = find(image, number)?;
        let size_bytes = self.size_bytes();
        let is_same = || image.size_bytes().map(|now| now == size_bytes && now == snap.size_bytes);
        if !is_same().map_err(io("size"))? {
            return Err(ReturnError::Size);
        }
        let mut found = Vec::new();
        let mut offset = 0;
        while offset < size_bytes {
            go_on(by, given_up)?;
            let len = step_bytes.clamp(1, size_bytes - offset);
            let extents = image.diff(&snap.name, offset, len).map_err(io("comparing it"))?;
            if found.len() + extents.len() > EXTENTS_MAX {
                return Err(ReturnError::Many);
            }
            found.extend(extents.into_iter().map(|(offset, len)| ByteSpan::new(offset, len)));
            offset += len;
        }
        // By the same name it was this one all the time, for a number is not given again.
        if find(image, number)? != snap || !is_same().map_err(io("size"))? {
            return Err(ReturnError::Moved);
        }
        check_kind(image)?;
        self.check_lock()?;
        Ok(found)
    }

    /// Removes what earlier ends have left: snapshots of these names, and the one of this number if it is one
    /// of any daemon's. Gives how many.
    pub(crate) fn sweep_snaps(
        &self,
        names: &SnapNames,
        number: Option<u64>,
    ) -> Result<usize, ReturnError> {
        // What is taken at the end is in no list that is made before.
        let snaps = {
            let upkeep = self.upkeep();
            if upkeep.ends {
                return Ok(0);
            }
            self.image().snaps().map_err(io("its snapshots"))?
        };
        let of_ours = |snap: &&Snap| {
            let named = number == Some(snap.number) && SnapNames::is_any(&snap.name);
            named || names.has(&snap.name)
        };
        let mut removed = 0;
        for snap in snaps.iter().filter(of_ours) {
            let upkeep = self.upkeep();
            if upkeep.ends {
                break;
            }
            self.image().remove_snap(snap.number).map_err(io("removing a snapshot"))?;
            removed += 1;
        }
        Ok(removed)
    }

    /// That no other client has the image open, which each that may write it shows by a watch.
    fn check_alone(&self) -> Result<(), ReturnError> {
        let own = self.image().cluster().instance();
        let watches = self.image().watches().map_err(io("its watches"))?;
        let others = watches.iter().any(|(client, _)| *client != own);
        if others { Err(ReturnError::Open) } else { Ok(()) }
    }

    fn check_lock(&self) -> Result<(), ReturnError> {
        let version = self.version_under_lock().map_err(|error| match error {
            ProofError::Io { during, errno } => ReturnError::Io { during, errno },
            _ => ReturnError::Lock,
        })?;
        version.map(drop).ok_or(ReturnError::Lock)
    }
}

fn go_on(by: Instant, given_up: &AtomicBool) -> Result<(), ReturnError> {
    if given_up.load(Relaxed) {
        return Err(ReturnError::GivenUp);
    }
    if Instant::now() >= by { Err(ReturnError::TooLong) } else { Ok(()) }
}

/// Comparisons that are under way.
static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);

/// One of the few comparisons at a time.
struct Turn;

impl Turn {
    fn wait(by: Instant, given_up: &AtomicBool) -> Result<Self, ReturnError> {
        let one_more = |count: usize| (count < COMPARE_AT_A_TIME).then_some(count + 1);
        while UNDER_WAY.fetch_update(Relaxed, Relaxed, one_more).is_err() {
            go_on(by, given_up)?;
            thread::sleep(Duration::from_millis(20));
        }
        Ok(Self)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        UNDER_WAY.fetch_sub(1, Relaxed);
    }
}

/// Whether an image is of a kind whose comparison is complete.
fn check_kind(image: &Image) -> Result<(), ReturnError> {
    let features = image.features().map_err(io("features"))?;
    if features & (JOURNALING | MIGRATING) != 0 {
        return Err(ReturnError::Kind("it has a journal, or is being migrated"));
    }
    if image.parent().map_err(io("its parent"))?.is_some() {
        return Err(ReturnError::Kind("it is a clone"));
    }
    if !image.layout().map_err(io("its layout"))?.is_plain() {
        return Err(ReturnError::Kind("its data are striped over several objects"));
    }
    Ok(())
}

fn find(image: &Image, number: u64) -> Result<Snap, ReturnError> {
    let snaps = image.snaps().map_err(io("its snapshots"))?;
    let found = snaps.into_iter().find(|snap| snap.number == number);
    found.filter(|snap| SnapNames::is_any(&snap.name)).ok_or(ReturnError::Gone)
}

fn io(during: &'static str) -> impl Fn(Errno) -> ReturnError {
    move |errno| ReturnError::Io { during, errno }
}

/// A bound for what is asked of the cluster, for as long as this lives. What is given up here may still be
/// done: a snapshot that nobody knows the number of, no write.
struct Patience<'a>(&'a Image);

impl<'a> Patience<'a> {
    fn new(image: &'a Image, seconds: u64) -> Self {
        open::set_patience(&image.cluster(), seconds);
        Self(image)
    }
}

impl Drop for Patience<'_> {
    fn drop(&mut self) {
        open::set_patience(&self.0.cluster(), 0);
    }
}
