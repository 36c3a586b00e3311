//! Groups of volumes that share a server or device, and what each volume gets of it
//! (docs/design/qos.md).
//!
//! A group has one scheduler for all data threads. In a group of which no volume has a setting, I/O
//! passes by: all that it costs is a look at a number.

use super::data_thread::ThreadMessage;
use super::plane::DataPlane;
use cinnabar_backend::disk::{DiskKind, Identity};
use cinnabar_backend::model::OpKind;
use cinnabar_backend::spec::Place;
use cinnabar_backend::work::IoInfo;
use cinnabar_backend::{BackendSpec, Disk};
use cinnabar_config::messages::{QosGroupStatus, VolumeConfig, VolumeQosStatus};
use cinnabar_driver::qos::limits::WAITING_MAX;
use cinnabar_driver::qos::{Client, ClientId, ClientReport, Config, Op, Scheduler, Settings, Work};
use cinnabar_driver::qos_queue::{Turn, turns_of_left};
use cinnabar_engine::units::Instant;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// What the write log has on its way to a back end at a time, in I/Os of a limit: a window of single
/// pages, each a little more than one, and some trims.
const DESTAGE_WINDOW_IOS: u32 = 2048;
/// Time-outs for which what the write log brings may wait for its turn, its limit aside: that others
/// come first is no fault of the back end's.
const DESTAGE_TIMEOUTS: u32 = 10;

/// The groups that have volumes.
#[derive(Default)]
pub(super) struct Groups {
    /// By name, of those that the operator has configured.
    depths: BTreeMap<String, usize>,
    by_name: BTreeMap<String, Weak<Group>>,
    made: u32,
}

/// Volumes on one server or device.
pub(super) struct Group {
    /// Threads know it by that; none has another one's.
    pub(super) number: u32,
    name: String,
    /// Volumes with settings of their own.
    configured: AtomicU32,
    scheduler: Mutex<Scheduler>,
}

/// What a volume is in its group, from its installation to its end.
pub(super) struct VolumeQos {
    pub(super) group: Arc<Group>,
    guest: ClientId,
    destage: ClientId,
    state: Mutex<State>,
    /// What it writes to its back end comes from the write log.
    destages: AtomicBool,
    /// It leaves: its I/O waits for nothing.
    left: AtomicBool,
}

#[derive(Clone, Copy)]
struct State {
    settings: Settings,
    /// What the write log has of it is to reach the back end soon.
    hurried: bool,
}

impl Groups {
    /// With the depths that the operator has given, by name.
    pub(super) fn new(depths: impl Iterator<Item = (String, usize)>) -> Self {
        Self { depths: depths.collect(), ..Self::default() }
    }

    pub(super) fn of(&mut self, config: &VolumeConfig, disk: &Disk) -> Arc<Group> {
        let name = config.qos_group.clone().unwrap_or_else(|| name_of(config, disk));
        self.by_name.retain(|_, group| group.strong_count() > 0);
        if let Some(group) = self.by_name.get(&name).and_then(Weak::upgrade) {
            return group;
        }
        self.made += 1;
        let depth = self.depths.get(&name).copied().unwrap_or(Config::default().depth);
        let group = Arc::new(Group::new(self.made, name.clone(), depth));
        self.by_name.insert(name, Arc::downgrade(&group));
        group
    }

    /// Those in which requests take turns.
    pub(super) fn status(&self) -> Vec<QosGroupStatus> {
        let all = self.by_name.values().filter_map(Weak::upgrade);
        all.filter(|group| group.is_active()).map(|group| group.status()).collect()
    }
}

/// What volumes have in common that load the same server or device.
fn name_of(config: &VolumeConfig, disk: &Disk) -> String {
    match disk.identity() {
        Identity::Server(place) => {
            let spec = BackendSpec::parse(&config.backend, Path::new("/"));
            match spec.map(|spec| spec.place) {
                Ok(Place::Nbd(server)) => {
                    let export = server.export.len() + 1;
                    format!("nbd:{}", &place[..place.len().saturating_sub(export)])
                }
                // The pool's OSDs.
                Ok(Place::Rbd(image)) => {
                    format!("rbd:{}:{}", image.conf.display(), image.pool)
                }
                _ => place,
            }
        }
        Identity::Inode(..) if disk.kind() == DiskKind::Block => {
            format!("device:{}", disk.path().display())
        }
        Identity::Inode(device, _) => {
            format!("file-system:{}:{}", rustix::fs::major(device), rustix::fs::minor(device))
        }
    }
}

impl Group {
    fn new(number: u32, name: String, depth: usize) -> Self {
        let config = Config { depth, waiting_max: WAITING_MAX, ..Config::default() };
        let scheduler = Scheduler::new(config).expect("depths are checked when they are read");
        Self { number, name, configured: AtomicU32::new(0), scheduler: Mutex::new(scheduler) }
    }

    /// Whether a volume of it has settings of its own: only then does I/O wait for its turn.
    pub(super) fn is_active(&self) -> bool {
        self.configured.load(Relaxed) > 0
    }

    /// The scheduler of all threads; held for a batch at most.
    pub(super) fn scheduler(&self) -> MutexGuard<'_, Scheduler> {
        // A scheduler that has panicked is not to be believed, but a daemon aborts on a panic.
        self.scheduler.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn status(&self) -> QosGroupStatus {
        QosGroupStatus { name: self.name.clone(), report: self.scheduler().report() }
    }

    fn count(&self, is: bool, was: bool) {
        match (is, was) {
            (true, false) => drop(self.configured.fetch_add(1, SeqCst)),
            (false, true) => drop(self.configured.fetch_sub(1, SeqCst)),
            _ => {}
        }
    }
}

impl VolumeQos {
    /// A volume joins a group, under a number that no other volume has had there.
    pub(super) fn join(group: Arc<Group>, number: u64, settings: Settings) -> Self {
        let mut scheduler = group.scheduler();
        let mut add = |work, settings| {
            let client = Client { volume: number, work };
            scheduler.add(0, client, settings).expect("a group has room for all volumes")
        };
        let state = State { settings, hurried: false };
        let guest = add(Work::Guest, settings);
        let destage = add(Work::Destage, destage_settings(state, false));
        drop(scheduler);
        group.count(settings != Settings::default(), false);
        let (destages, left) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { group, guest, destage, state: Mutex::new(state), destages, left }
    }

    /// The same volume in another attachment.
    pub(super) fn joins_again(&self, number: u64) -> Self {
        let State { settings, hurried } = *self.state();
        let again = Self::join(Arc::clone(&self.group), number, settings);
        again.set_destages(Instant::default(), self.destages.load(Relaxed));
        if hurried {
            again.hurry(Instant::default());
        }
        again
    }

    /// How long an I/O may wait and take, with this time-out of the volume's. The write log sends a
    /// whole window at once, of which the last may wait for as long as the limit makes it; given up
    /// earlier, the window would be repeated, and given up, again and again.
    pub(super) fn bound(&self, timeout: Duration, client: Option<ClientId>) -> Duration {
        if client != Some(self.destage) {
            return timeout;
        }
        let limit = self.state().settings.limit_iops;
        let by_limit = limit.map_or(0, |limit| DESTAGE_WINDOW_IOS.div_ceil(limit.max(1)));
        timeout * DESTAGE_TIMEOUTS + Duration::from_secs(u64::from(by_limit))
    }

    /// The same of what the write log asks for.
    pub(super) fn bound_of_log(&self, timeout: Duration, writes: bool) -> Duration {
        let takes_turns = writes && self.group.is_active() && self.destages.load(Relaxed);
        self.bound(timeout, takes_turns.then_some(self.destage))
    }

    /// Who asks for an I/O that waits for its turn; `None`: it does not wait.
    pub(super) fn client(&self, what: &IoInfo) -> Option<ClientId> {
        if !self.group.is_active() || self.left.load(Relaxed) {
            return None;
        }
        let writes = what.kind != OpKind::Read;
        Some(if writes && self.destages.load(Relaxed) { self.destage } else { self.guest })
    }

    /// Other settings, from now on.
    pub(super) fn set(&self, now: Instant, settings: Settings) {
        let was = std::mem::replace(&mut self.state().settings, settings);
        // Not before: what has waited since a moment ago waits under the new settings.
        self.tell(now);
        if !self.left.load(Relaxed) {
            self.group.count(settings != Settings::default(), was != Settings::default());
        }
    }

    /// Whether what it writes comes from the write log from now on.
    pub(super) fn set_destages(&self, now: Instant, destages: bool) {
        self.destages.store(destages, Relaxed);
        self.state().hurried = false;
        self.tell(now);
    }

    /// It is to leave the write log: its limit holds nothing of that back.
    pub(super) fn hurry(&self, now: Instant) {
        self.state().hurried = true;
        self.tell(now);
    }

    /// It leaves its group. What waits may begin at once: the turns, by thread.
    pub(super) fn leave(&self, now: Instant) -> Vec<(usize, Turn)> {
        if self.left.swap(true, SeqCst) {
            return Vec::new();
        }
        let mut tokens = Vec::new();
        let mut scheduler = self.group.scheduler();
        for client in [self.guest, self.destage] {
            scheduler.remove(now.0, client, &mut tokens).expect("it leaves once");
        }
        drop(scheduler);
        self.group.count(false, self.state().settings != Settings::default());
        turns_of_left(&tokens).collect()
    }

    /// What it has had, if requests take turns in its group.
    pub(super) fn status(&self) -> Option<VolumeQosStatus> {
        if !self.group.is_active() || self.left.load(Relaxed) {
            return None;
        }
        let scheduler = self.group.scheduler();
        let of = |client| scheduler.client(client).unwrap_or_default();
        let destage = self.destages.load(Relaxed).then(|| of(self.destage));
        let guest: ClientReport = of(self.guest);
        Some(VolumeQosStatus { group: self.group.name.clone(), guest, destage })
    }

    fn tell(&self, now: Instant) {
        let state = *self.state();
        let destages = self.destages.load(Relaxed);
        let mut scheduler = self.group.scheduler();
        // A volume that has left has no settings any more.
        let _ = scheduler.change(now.0, self.guest, state.settings);
        let _ = scheduler.change(now.0, self.destage, destage_settings(state, destages));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for VolumeQos {
    fn drop(&mut self) {
        // Nothing of it is under way when it is let go of.
        drop(self.leave(Instant::default()));
    }
}

/// The write log gets what the guest would get if it wrote through: the same reservation, limit and
/// weight, apart from those of its reads. Only then does a reservation count.
fn destage_settings(State { settings, hurried }: State, destages: bool) -> Settings {
    let reservation_iops = if destages { settings.reservation_iops } else { 0 };
    let limit_iops = settings.limit_iops.filter(|_| !hurried);
    Settings { reservation_iops, limit_iops, ..settings }
}

/// What an operation counts as.
pub(super) fn op_of(what: &IoInfo) -> Op {
    let length = u32::try_from(what.len).unwrap_or(u32::MAX);
    match what.kind {
        OpKind::Read => Op::Read { length },
        OpKind::Write => Op::Write { length },
        OpKind::Discard => Op::Clear,
        OpKind::Flush => Op::Flush,
    }
}

impl DataPlane {
    /// Settings of a volume have changed: what waits may begin under them.
    pub(super) fn change_qos(&mut self, key: usize) {
        let now = self.data_thread.clock.now();
        let volume = &self.volumes[key];
        volume.io.qos.set(now, volume.config.qos);
        let group = Arc::clone(&volume.io.qos.group);
        self.data_thread.io_table.ask_group(&group);
    }

    /// The writes of a volume come from the write log from now on, or not any more.
    pub(super) fn set_destages(&mut self, now: Instant, key: usize, destages: bool) {
        self.volumes[key].io.qos.set_destages(now, destages);
    }

    /// A volume is to leave the write log.
    pub(super) fn hurry_destage(&mut self, now: Instant, key: usize) {
        let qos = &self.volumes[key].io.qos;
        qos.hurry(now);
        let group = Arc::clone(&qos.group);
        self.data_thread.io_table.ask_group(&group);
    }

    /// A volume is about to leave: nothing of it waits for a turn any more.
    pub(super) fn leave_group(&mut self, key: usize) {
        let now = self.data_thread.clock.now();
        let qos = &self.volumes[key].io.qos;
        let (number, turns) = (qos.group.number, qos.leave(now));
        for (thread, turn) in turns {
            if thread == 0 {
                self.data_thread.io_table.admit(now, number, turn);
            } else {
                self.data_thread.send(thread, ThreadMessage::Turn(number, turn));
            }
        }
    }
}
