//! Opening an image: the connection, the image, its exclusive lock, and what all that proves.

use super::error::RbdError;
use super::owner::{self, Owner};
use super::proof::{Identity, Step};
use super::spec::RbdSpec;
use super::sys::{Cluster, Image, Locker, Look};
use rustix::io::Errno;

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
    },
    /// A snapshot, by its number.
    Snap(u64),
}

impl Held {
    /// The lock, if it has one.
    pub(super) fn own(&self) -> Option<&Locker> {
        match self {
            Self::Image { own, .. } => Some(own),
            Self::Snap(_) => None,
        }
    }
}

/// Opens an image. `wait` is asked to wait a little while another client, which it is told, has the
/// lock; false: no longer.
pub(super) fn open(
    spec: &RbdSpec,
    read_only: bool,
    wait: &mut dyn FnMut(&str) -> bool,
) -> Result<Opened, RbdError> {
    match spec.snap {
        None if read_only => return Err(RbdError::NeedsSnap),
        Some(_) if !read_only => return Err(RbdError::SnapReadOnly),
        _ => {}
    }
    let cluster = connect(spec)?;
    let (fsid, pool) = (cluster.fsid().map_err(io("fsid"))?, cluster.pool_number());
    let image = Image::open(cluster, &spec.image, spec.snap.as_deref())
        .map_err(|errno| open_error(spec, errno))?;
    let size_bytes = image.size_bytes().map_err(io("size"))?;
    if size_bytes == 0 {
        return Err(RbdError::Empty);
    }
    if !size_bytes.is_multiple_of(512) {
        return Err(RbdError::OddSize(size_bytes));
    }
    let id = image.id().map_err(io("image id"))?;
    let header = format!("rbd_header.{id}");
    let look = Look::new(&image.cluster(), &spec.namespace, &header).map_err(io("the header"))?;
    let held = match &spec.snap {
        Some(snap) => Held::Snap(image.snap_number(snap).map_err(io("snapshot id"))?),
        None => lock(spec, &image, header, wait)?,
    };
    let identity = Identity::new(fsid, pool, &spec.namespace, &id);
    // What is given up may still land, even behind another client's writes: nothing is.
    set_patience(&image.cluster(), 0);
    Ok(Opened { look, image, identity, size_bytes, held })
}

pub(super) fn connect(spec: &RbdSpec) -> Result<Cluster, RbdError> {
    let mut cluster = Cluster::new(&spec.id).map_err(io("librados"))?;
    cluster.read_conf(&spec.conf).map_err(|errno| {
        // What its absence is called there.
        let errno = if errno == Errno::INVAL { Errno::NOENT } else { errno };
        RbdError::Conf { path: spec.conf.display().to_string(), errno }
    })?;
    let open_s = OPEN_S.to_string();
    for (option, value) in [
        // What is acknowledged is on the disks of all replicas.
        ("rbd_cache", "false"),
        ("rbd_plugins", ""),
        // Our own writes leave the header as it is: its version is the proof.
        ("rbd_mtime_update_interval", "0"),
        ("rbd_atime_update_interval", "0"),
        ("client_mount_timeout", &open_s),
        ("rados_mon_op_timeout", &open_s),
        ("rados_osd_op_timeout", &open_s),
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

/// Takes the exclusive lock, once no other living client has it.
fn lock(
    spec: &RbdSpec,
    image: &Image,
    header: String,
    wait: &mut dyn FnMut(&str) -> bool,
) -> Result<Held, RbdError> {
    for (option, value) in image.settings().map_err(io("its configuration"))? {
        if caches(&option, &value) {
            return Err(RbdError::Cached(format!("{option} = {}", value.escape_debug())));
        }
    }
    if image.features().map_err(io("features"))? & EXCLUSIVE_LOCK == 0 {
        return Err(RbdError::NoExclusiveLock);
    }
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
        if !is_dead(image, &locker, owner.as_ref()).map_err(failed)? {
            let holder = describe(&locker, owner.as_ref());
            if wait(&holder) {
                continue;
            }
            return Err(RbdError::InUse(holder));
        }
        // A client that was away for a while comes back with another watch, and renames its lock.
        if image.cluster().locker(&header).map_err(failed)?.as_ref() != Some(&locker) {
            continue;
        }
        tracing::info!(
            image = spec.image_spec(),
            client = locker.client,
            "taking over the lock of a client that is gone"
        );
        image.cluster().fence(&locker.address).map_err(|errno| match errno {
            Errno::PERM | Errno::ACCESS => caps(spec, "fence off the client that held the lock"),
            errno => RbdError::Io { during: "fencing off the former holder", errno },
        })?;
        // Fencing takes a while; the header is as it was as long as its version is.
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
    let own = image.cluster().locker(&header).map_err(failed)?;
    let own = own.filter(|own| own.client == format!("client.{client}"));
    let own = own.ok_or_else(|| RbdError::InUse("another client".into()))?;
    let alone = step.was_alone(before, now);
    tracing::debug!(image = spec.image_spec(), found, before, now, ?step, alone, "locked");
    Ok(Held::Image { header, own, found: if alone { found } else { 0 } })
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

/// Whether the client that has the lock is known to be gone: a daemon of this host whose process
/// there is no more, or a client that the cluster has forgotten.
fn is_dead(image: &Image, locker: &Locker, owner: Option<&Owner>) -> Result<bool, Errno> {
    if owner.is_some_and(Owner::is_dead) {
        return Ok(true);
    }
    // A lock that was made by hand (`rbd lock add`) has no watch.
    let Some(watch) = locker.cookie.strip_prefix(AUTO).and_then(|number| number.parse().ok())
    else {
        return Ok(false);
    };
    let watches: Vec<u64> = image.watches()?;
    Ok(!watches.contains(&watch))
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
