//! Opening an image: the connection, the image, its exclusive lock, and what all that proves.

use super::error::RbdError;
use super::lineage;
use super::proof::{Identity, Step};
use super::spec::RbdSpec;
use super::sys::{Ancestor, Cluster, Image, Locker, Look};
use crate::lineage::{Lineage, Snapshot};
use cinnabar_hybrid::librados::lock_state::{FENCE_S, TAKE_AFTER, now_ns};
use cinnabar_hybrid::librados::owner::{self, Owner};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::sync::Arc;

/// As what an image is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// For writing, under the exclusive lock. `by_word`: the operator vouches that another daemon of ours
    /// that has it is dead.
    Owner {
        by_word: bool,
    },
    Snapshot,
    /// For reading, while another host writes it.
    Standby,
}

/// What an opening waits for.
pub(crate) enum Wait<'a> {
    /// Another client, which has the lock.
    Holder(&'a str),
    /// The end of what a client that was fenced off may serve from its cache.
    Lease,
}

/// Asked to wait a little; false: no longer.
pub(super) type Waits<'a> = dyn FnMut(Wait<'_>) -> bool + 'a;

/// Longest wait for the cluster while an image is opened or closed, in s.
const OPEN_S: u64 = 10;
/// `RBD_FEATURE_EXCLUSIVE_LOCK`.
const EXCLUSIVE_LOCK: u64 = 1 << 2;
/// The name that a holder gives librbd's own lock, before the number of its watch.
const AUTO: &str = "auto ";

/// An image that is open, and locked unless it is a snapshot.
pub(super) struct Opened {
    /// What looks at the header from now on. Goes before the image, whose connection it uses.
    pub(super) look: Look,
    pub(super) image: Image,
    pub(super) identity: Identity,
    pub(super) size_bytes: u64,
    pub(super) held: Held,
    pub(super) snapshot: Option<Snapshot>,
    /// Of a clone that is to be served beside its parent.
    pub(super) lineage: Option<Lineage>,
}

/// As what it is open.
#[derive(Debug)]
pub(super) enum Held {
    /// For writing, under the exclusive lock.
    Image {
        /// Its header object.
        header: String,
        /// The lock.
        own: Locker,
        /// Version of the header as it was found, if nobody can have come in between; else 0.
        found: u64,
        /// When it was looked who has the lock, in ns of [`now_ns`].
        seen_ns: u64,
    },
    /// For reading, with the version of its header before it was opened.
    Standby(u64),
    /// A snapshot, by its number.
    Snap(u64),
}

impl Held {
    /// When the lock was seen last, in ns of [`now_ns`]; 0 without one.
    pub(super) fn seen_ns(&self) -> u64 {
        match self {
            Self::Image { seen_ns, .. } => *seen_ns,
            Self::Snap(_) | Self::Standby(_) => 0,
        }
    }

    /// The lock, if it has one.
    pub(super) fn own(&self) -> Option<&Locker> {
        match self {
            Self::Image { own, .. } => Some(own),
            Self::Snap(_) | Self::Standby(_) => None,
        }
    }
}

/// Opens an image; `is_clone`: it is to say what it has itself. `bell` is an eventfd that looks at the
/// header ring.
pub(super) fn open(
    spec: &RbdSpec,
    (mode, is_clone): (Mode, bool),
    bell: &Arc<OwnedFd>,
    wait: &mut Waits<'_>,
) -> Result<Opened, RbdError> {
    match (mode, &spec.snap) {
        (Mode::Snapshot, None) => return Err(RbdError::NeedsSnap),
        (Mode::Owner { .. } | Mode::Standby, Some(_)) => return Err(RbdError::SnapReadOnly),
        _ => {}
    }
    let mut cluster = connect(spec)?;
    let (fsid, pool) = (cluster.fsid().map_err(io("fsid"))?, cluster.pool_number());
    let known = match mode {
        // What changes the header from here on is noticed.
        Mode::Standby => Some(known_header(&mut cluster, spec)?),
        Mode::Owner { .. } | Mode::Snapshot => None,
    };
    let image = match mode {
        Mode::Owner { .. } => Image::open(cluster, &spec.image),
        Mode::Snapshot | Mode::Standby => {
            Image::open_to_read(cluster, &spec.image, spec.snap.as_deref())
        }
    };
    let image = image.map_err(|errno| open_error(spec, errno))?;
    let size_bytes = image.size_bytes().map_err(io("size"))?;
    if size_bytes == 0 {
        return Err(RbdError::Empty);
    }
    if !size_bytes.is_multiple_of(512) {
        return Err(RbdError::OddSize(size_bytes));
    }
    let id = image.id().map_err(io("image id"))?;
    let header = format!("rbd_header.{id}");
    let look = Look::new(&image.cluster(), &spec.namespace, &header, Arc::clone(bell))
        .map_err(io("the header"))?;
    let held = match (&spec.snap, known, mode) {
        (Some(snap), ..) => Held::Snap(image.snap_number(snap).map_err(io("snapshot id"))?),
        (None, Some((known, version)), _) => {
            check(&image)?;
            if known != id {
                // Another one has taken its name meanwhile.
                return Err(RbdError::Io { during: "image id", errno: Errno::AGAIN });
            }
            Held::Standby(version)
        }
        (None, None, mode) => {
            check(&image)?;
            lock(spec, &image, header, mode == Mode::Owner { by_word: true }, wait)?
        }
    };
    let snapshot = match (&held, &spec.snap) {
        (Held::Snap(number), Some(snap)) => {
            let names = [spec.pool.clone(), spec.image.clone(), snap.clone()];
            let (namespace, image_id) = (spec.namespace.clone(), id.clone());
            let ancestor = Ancestor { pool, namespace, image_id, snap: *number, names };
            Some(lineage::snapshot(fsid, &ancestor))
        }
        _ => None,
    };
    let lineage = (is_clone && matches!(mode, Mode::Owner { .. }))
        .then(|| lineage::read(spec, &image, fsid, &id))
        .transpose()?;
    let identity = Identity::new(fsid, pool, &spec.namespace, &id);
    // What is given up may still land, even behind another client's writes: nothing is.
    set_patience(&image.cluster(), 0);
    Ok(Opened { look, image, identity, size_bytes, held, snapshot, lineage })
}

pub(super) fn connect(spec: &RbdSpec) -> Result<Cluster, RbdError> {
    let mut cluster = Cluster::new(&spec.id).map_err(io("librados"))?;
    cluster.read_conf(&spec.conf).map_err(|errno| {
        // What its absence is called there.
        let errno = if errno == Errno::INVAL { Errno::NOENT } else { errno };
        RbdError::Conf { path: spec.conf.display().to_string(), errno }
    })?;
    let (open_s, fence_s) = (OPEN_S.to_string(), FENCE_S.to_string());
    for (option, value) in [
        // What is acknowledged is on the disks of all replicas.
        ("rbd_cache", "false"),
        ("rbd_plugins", ""),
        // Our own writes leave the header as it is: its version is the proof.
        ("rbd_mtime_update_interval", "0"),
        ("rbd_atime_update_interval", "0"),
        // A lock that librbd breaks by itself.
        ("rbd_blocklist_expire_seconds", &fence_s),
        ("client_mount_timeout", &open_s),
        ("rados_mon_op_timeout", &open_s),
        ("rados_osd_op_timeout", &open_s),
        // What takes longer fails; that is no reason to give up the image's object map for good.
        ("rbd_invalidate_object_map_on_timeout", "false"),
        // It is told by errors.
        ("log_to_stderr", "false"),
        ("err_to_stderr", "false"),
    ] {
        cluster.set(option, value).map_err(io("librados' options"))?;
    }
    let user = |errno| RbdError::User { id: spec.id.clone(), errno };
    cluster.connect().map_err(|errno| match errno {
        Errno::TIMEDOUT => RbdError::NoMonitor(OPEN_S),
        errno => user(errno),
    })?;
    cluster.enter(&spec.pool, &spec.namespace).map_err(|errno| match errno {
        Errno::NOENT => RbdError::NoPool(spec.pool.clone()),
        Errno::PERM | Errno::ACCESS => caps(spec, "see the pool"),
        Errno::TIMEDOUT => RbdError::NoMonitor(OPEN_S),
        errno => RbdError::Io { during: "entering the pool", errno },
    })?;
    Ok(cluster)
}

/// Longest id of an image, in bytes, with what stands before it.
const ID_BYTES_MAX: usize = 256;

/// The id of an image, by its name.
pub(super) fn image_id(cluster: &mut Cluster, image: &str) -> Result<String, Errno> {
    let found = cluster.content(&format!("rbd_id.{image}"), ID_BYTES_MAX)?;
    let id = found.as_ref().and_then(|(bytes, _)| text_of(bytes));
    id.map(str::to_owned).ok_or(Errno::NOENT)
}

/// A text as Ceph encodes it: its length in four bytes, and its bytes.
fn text_of(bytes: &[u8]) -> Option<&str> {
    let (len, text) = bytes.split_first_chunk::<4>()?;
    let text = text.get(..u32::from_le_bytes(*len) as usize)?;
    std::str::from_utf8(text).ok().filter(|text| !text.is_empty() && !text.contains('\0'))
}

/// An image's id, and the version of its header.
fn known_header(cluster: &mut Cluster, spec: &RbdSpec) -> Result<(String, u64), RbdError> {
    let id = image_id(cluster, &spec.image).map_err(|errno| open_error(spec, errno))?;
    let version = cluster.version(&format!("rbd_header.{id}"));
    Ok((id, version.map_err(|errno| open_error(spec, errno))?))
}

/// How long operations may take from now on, in s; 0: as long as they do.
pub(super) fn set_patience(cluster: &Cluster, seconds: u64) {
    let seconds = seconds.to_string();
    // That of monitors can't be changed any more; they are asked for little.
    let set = cluster.set("rados_osd_op_timeout", &seconds);
    if let Err(errno) = set.and_then(|()| cluster.apply()) {
        tracing::warn!(%errno, "librados does not take a time-out");
    }
}

/// What bounds closing an image that the cluster is silent about.
pub(super) fn set_closing_patience(cluster: &Cluster) {
    set_patience(cluster, OPEN_S);
}

/// Whether what an owner acknowledges is on the disks, and one host writes at a time.
fn check(image: &Image) -> Result<(), RbdError> {
    for (option, value) in image.settings().map_err(io("its configuration"))? {
        if caches(&option, &value) {
            return Err(RbdError::Cached(format!("{option} = {}", value.escape_debug())));
        }
    }
    if image.features().map_err(io("features"))? & EXCLUSIVE_LOCK == 0 {
        return Err(RbdError::NoExclusiveLock);
    }
    Ok(())
}

/// Takes the exclusive lock, once no other living client has it.
fn lock(
    spec: &RbdSpec,
    image: &Image,
    header: String,
    by_word: bool,
    wait: &mut Waits<'_>,
) -> Result<Held, RbdError> {
    // Whose lease is over.
    let mut waited_for = None;
    let failed = |errno| access(spec, "lock the image", errno);
    let client = image.cluster().instance();
    let own_text = Owner::this(client).map(|owner| owner.to_string()).unwrap_or_default();
    let (found, before, step) = loop {
        // Under the version that is read first, nobody else may have the lock.
        let found = image.cluster().version(&header).map_err(failed)?;
        let Some(locker) = image.cluster().locker(&header).map_err(failed)? else {
            match note_owner(image, &header, &own_text, found).map_err(failed)? {
                Some(before) => break (found, before, Step::One),
                None => continue,
            }
        };
        let text = image.cluster().attribute(&header, owner::NAME, owner::BYTES_MAX);
        let owner = text.and_then(|text| Owner::parse(&text));
        let owner = owner.filter(|owner| locker.client == format!("client.{}", owner.client));
        let Some(gone) = gone(image, &locker, owner.as_ref(), by_word).map_err(failed)? else {
            let holder = describe(&locker, owner.as_ref());
            if wait(Wait::Holder(&holder)) {
                continue;
            }
            return Err(RbdError::InUse(holder));
        };
        // A client that was away for a while comes back with another watch, and renames its lock.
        if image.cluster().locker(&header).map_err(failed)?.as_ref() != Some(&locker) {
            continue;
        }
        tracing::info!(
            image = spec.image_spec(),
            client = locker.client,
            ?gone,
            "taking over the lock of a client that is gone"
        );
        image.cluster().fence(&locker.address).map_err(|errno| match errno {
            Errno::PERM | Errno::ACCESS => caps(spec, "fence off the client that held the lock"),
            errno => RbdError::Io { during: "fencing off the former holder", errno },
        })?;
        if gone.may_live(&locker.address) && waited_for.as_ref() != Some(&locker.client) {
            // Behind this no look of its own shows it its lock: the header's OSD knows of the fence.
            image.cluster().version(&header).map_err(failed)?;
            outwait(wait).map_err(|()| RbdError::InUse(describe(&locker, owner.as_ref())))?;
            waited_for = Some(locker.client.clone());
        }
        // That takes a while; the header is as it was as long as its version is.
        let found = image.cluster().version(&header).map_err(failed)?;
        let Some(before) = note_owner(image, &header, &own_text, found).map_err(failed)? else {
            continue;
        };
        match image.cluster().break_lock(&header, &locker) {
            Ok(()) => break (found, before, Step::Two),
            // Another client was quicker.
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(failed(errno)),
        }
    };
    image.lock().map_err(|errno| match errno {
        Errno::ROFS | Errno::BUSY | Errno::AGAIN => RbdError::InUse("another client".into()),
        errno => failed(errno),
    })?;
    // The client that had it before may have been fenced off by others, whose map an OSD may still lack:
    // what is read with the newest map comes behind its last write.
    image.cluster().wait_for_map().map_err(failed)?;
    let now = image.cluster().version(&header).map_err(failed)?;
    let seen_ns = now_ns();
    let own = image.cluster().locker(&header).map_err(failed)?;
    let own = own.filter(|own| own.client == format!("client.{client}"));
    let own = own.ok_or_else(|| RbdError::InUse("another client".into()))?;
    let alone = step.was_alone(before, now);
    tracing::debug!(image = spec.image_spec(), found, before, now, ?step, alone, "locked");
    Ok(Held::Image { header, own, found: if alone { found } else { 0 }, seen_ns })
}

/// Whether a setting has librbd acknowledge what is not on the disks of all replicas. An image's own
/// ones, and its pool's, go before ours.
fn caches(option: &str, value: &str) -> bool {
    match option {
        "rbd_cache" => value != "false",
        "rbd_plugins" => !value.is_empty(),
        "rbd_persistent_cache_mode" => value != "disabled",
        _ => false,
    }
}

/// Notes for the next daemon here who has the image, if the header is as it was found. `None`: it is
/// not. Gives the version from which the change of the lock is counted: versions skip what is not seen
/// in them, such as the watch that came with the opening, at the next change only.
pub(super) fn note_owner(
    image: &Image,
    header: &str,
    text: &str,
    found: u64,
) -> Result<Option<u64>, Errno> {
    match image.cluster().set_attribute(header, (owner::NAME, text), found) {
        Ok(version) => Ok(Some(version)),
        Err(Errno::RANGE | Errno::OVERFLOW) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// How it is known that a client is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gone {
    /// A daemon of this host, whose process there is no more.
    Process,
    /// The cluster has forgotten it. It may be cut off, or stopped.
    Watch,
    /// A daemon that the operator vouches for. It may be, too.
    Word,
}

impl Gone {
    /// Whether the client with this address may still serve what it has cached.
    fn may_live(self, address: &str) -> bool {
        self != Self::Process || owner::may_live_elsewhere(address)
    }
}

/// Waits until what a client that was fenced off may have cached is not served there any more.
fn outwait(wait: &mut Waits<'_>) -> Result<(), ()> {
    let (since, lease_ns) = (now_ns(), TAKE_AFTER.as_nanos());
    while u128::from(now_ns().saturating_sub(since)) < lease_ns {
        if !wait(Wait::Lease) {
            return Err(());
        }
    }
    Ok(())
}

/// Whether the client that has the lock is known to be gone, and how.
fn gone(
    image: &Image,
    locker: &Locker,
    owner: Option<&Owner>,
    by_word: bool,
) -> Result<Option<Gone>, Errno> {
    if owner.is_some_and(Owner::is_dead) {
        return Ok(Some(Gone::Process));
    }
    // The word is of another daemon, not of clients of any kind.
    if by_word && owner.is_some() {
        return Ok(Some(Gone::Word));
    }
    // A lock that was made by hand (`rbd lock add`) has no watch.
    let number = locker.cookie.strip_prefix(AUTO).and_then(|number| number.parse::<u64>().ok());
    let Some(watch) = number else { return Ok(None) };
    let watches = image.watches()?;
    Ok((!watches.iter().any(|(_, number)| *number == watch)).then_some(Gone::Watch))
}

fn describe(locker: &Locker, owner: Option<&Owner>) -> String {
    let Locker { client, address, cookie } = locker;
    let (client, address) = (client.escape_debug(), address.escape_debug());
    match owner {
        Some(owner) => format!("{} ({client} at {address})", owner.describe()),
        None if cookie.starts_with(AUTO) => format!("{client} at {address}"),
        None => format!("{client} at {address}, with a lock made by hand (rbd lock ls)"),
    }
}

fn open_error(spec: &RbdSpec, errno: Errno) -> RbdError {
    let whole = || RbdSpec { snap: None, ..spec.clone() }.image_spec();
    match errno {
        // Which of the two is not there is not told.
        Errno::NOENT if spec.snap.is_some() => RbdError::NoSnap(spec.image_spec()),
        Errno::NOENT => RbdError::NoImage(whole()),
        errno => access(spec, "open the image", errno),
    }
}

fn access(spec: &RbdSpec, doing: &'static str, errno: Errno) -> RbdError {
    match errno {
        Errno::PERM | Errno::ACCESS => caps(spec, doing),
        Errno::TIMEDOUT => RbdError::Silent("opening it"),
        errno => RbdError::Io { during: "opening it", errno },
    }
}

fn caps(spec: &RbdSpec, doing: &'static str) -> RbdError {
    RbdError::Caps { id: spec.id.clone(), doing }
}

fn io(during: &'static str) -> impl Fn(Errno) -> RbdError {
    move |errno| match errno {
        Errno::TIMEDOUT => RbdError::Silent(during),
        errno => RbdError::Io { during, errno },
    }
}
