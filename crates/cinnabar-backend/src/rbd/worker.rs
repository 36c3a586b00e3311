//! The thread of an image: tasks in, calls of librbd out, completions back.
//!
//! librados repeats by itself what a lost connection owes, for as long as it takes: a cluster that is out of reach shows here by completions that do not come. Another
//! client that takes the lock shows by an error, which is final: the volume has to be attached again.

use super::error::RbdError;
use super::job::Job;
use super::mailbox::{Mailbox, Registration, drain};
use super::open::{self, Held, Mode, Opened};
use super::spec::RbdSpec;
use super::sys::Image;
use super::view::View;
use super::watched::{self, Looked, Verdict, Watched};
use crate::nbd::Sink;
use crate::port::{Extent, FileId, Task, Whole};
use cinnabar_driver::CloneMap;
use cinnabar_engine::units::ByteSpan;
use cinnabar_hybrid::librados::lock_state::SeenLock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Calls under way at once; the others wait here.
const DEPTH_MAX: usize = 256;
/// How often it is looked how long the oldest job has waited.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A job that waits for so long is told of, and again as often.
const SILENT_AFTER: Duration = Duration::from_secs(10);

const LOST: &str = "another client has taken the image's lock, or the cluster has fenced this one off: \
    nothing of it is served until the volume is removed and added again";

/// See the module.
pub(super) struct Worker {
    /// Goes before the image, whose connection it uses.
    watched: Watched,
    image: Arc<Image>,
    /// What it has itself, as long as it has the lock.
    own: Option<Arc<CloneMap>>,
    mailbox: Arc<Mailbox>,
    /// Announces completions, and answers of looks.
    events: Arc<OwnedFd>,
    spec: RbdSpec,
    /// For the log.
    name: String,
    /// What a standby has read.
    view: Option<View>,
    /// For how long the lock counts as held.
    lease: Arc<SeenLock>,
    /// Of the image now: all of it is void when the lock is lost.
    size_bytes: Box<dyn Fn() -> u64 + Send>,
    read_only: bool,
    waiting: VecDeque<Box<Job>>,
    /// Jobs with a call under way: when each came, by number.
    under_way: BTreeMap<u64, Instant>,
    next_number: u64,
    /// Whom to tell that the lock is lost: each port that knows the disk, by its name there. It may
    /// have cached blocks of an earlier life, and never a job.
    ports: Vec<(Arc<dyn Sink>, FileId)>,
    /// None of them was told of the last loss.
    untold: bool,
    lost: bool,
    released: bool,
    /// When something last completed.
    heard: Instant,
    /// The cluster is silent, and that was told.
    silent: bool,
    /// Since when.
    silent_since: Instant,
    told: Option<Instant>,
    collected: Vec<(Box<Job>, Result<u64, Errno>)>,
}

impl Worker {
    pub(super) fn new(
        image: Arc<Image>,
        mailbox: Arc<Mailbox>,
        events: Arc<OwnedFd>,
        spec: RbdSpec,
        (watched, lease): (Watched, Arc<SeenLock>),
        (held, own): (&Held, Option<Arc<CloneMap>>),
        size_bytes: Box<dyn Fn() -> u64 + Send>,
    ) -> Self {
        let view = match held {
            Held::Standby(version) => Some(View::new(*version)),
            Held::Image { .. } | Held::Snap(_) => None,
        };
        let read_only = held.own().is_none();
        Self {
            watched,
            image,
            own,
            mailbox,
            events,
            name: spec.image_spec(),
            spec,
            view,
            lease,
            size_bytes,
            read_only,
            waiting: VecDeque::new(),
            under_way: BTreeMap::new(),
            next_number: 0,
            ports: Vec::new(),
            untold: true,
            lost: false,
            released: false,
            heard: Instant::now(),
            silent: false,
            silent_since: Instant::now(),
            told: None,
            collected: Vec::new(),
        }
    }

    /// Works until the mailbox is closed and nothing is under way.
    pub(super) fn run(mut self) {
        loop {
            let mail = self.mailbox.take();
            self.released |= mail.released;
            for port in mail.ports {
                self.note_port(port);
            }
            for (task, sink) in mail.tasks {
                self.accept(task, sink);
            }
            if mail.closed {
                self.refuse_waiting(Errno::CANCELED);
                self.give_up_view(Errno::CANCELED);
                if self.under_way.is_empty() {
                    break;
                }
            }
            self.start();
            self.wait();
            self.collect();
            self.watch();
            self.look();
        }
        if self.view.is_some() {
            open::set_closing_patience(&self.image.cluster());
        }
        // The image may be closed here, which takes as long as the cluster does.
    }

    /// Takes a task, or answers it on the spot.
    fn accept(&mut self, mut task: Task, sink: Arc<dyn Sink>) {
        if let Whole::Extents { span } = task.whole() {
            task.extents = vec![Extent { len: span.len, hole: false }];
            return sink.done(task.finish(Ok(())));
        }
        let job = Box::new(Job::new(task, sink, self.number()));
        if self.lost {
            return job.finish(Err(Errno::IO));
        }
        if job.writes() && (self.read_only || self.released) {
            return job.finish(Err(Errno::ROFS));
        }
        if job.is_flush() && self.read_only {
            // Nothing was written here.
            return job.finish(Ok(()));
        }
        self.waiting.push_back(job);
    }

    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    /// A port came or went. One that comes too late is told at once.
    fn note_port(&mut self, Registration { sink, file, is_there }: Registration) {
        let place =
            self.ports.iter().position(|(known, name)| Arc::ptr_eq(known, &sink) && *name == file);
        match (place, is_there) {
            (None, true) => {
                if self.lost {
                    self.tell(&sink, file);
                }
                self.ports.push((sink, file));
            }
            (Some(place), false) => {
                self.ports.swap_remove(place);
            }
            (Some(_), true) | (None, false) => {}
        }
    }

    /// Nothing that a port has of the image is to be believed.
    fn tell(&mut self, sink: &Arc<dyn Sink>, file: FileId) {
        let all = ByteSpan::new(0, (self.size_bytes)());
        sink.restarted(file, vec![all], std::mem::take(&mut self.untold));
    }

    fn tell_all(&mut self) {
        // Before anyone hears of it: another client may have written what was the parent's.
        if let Some(own) = &self.own {
            own.lose();
        }
        self.untold = true;
        let ports = std::mem::take(&mut self.ports);
        for (sink, file) in &ports {
            self.tell(sink, *file);
        }
        self.ports = ports;
    }

    /// Starts what waits, as far as there is room.
    fn start(&mut self) {
        if self.view.as_ref().is_some_and(View::is_stale) && !self.opens_again() {
            return;
        }
        while self.under_way.len() < DEPTH_MAX
            && let Some(job) = self.waiting.pop_front()
        {
            self.begin(job);
        }
    }

    fn begin(&mut self, job: Box<Job>) {
        if self.under_way.is_empty() {
            // A silence begins with a call.
            self.heard = Instant::now();
        }
        self.under_way.insert(job.number, job.since);
        if let Err((job, errno)) = self.image.start(job) {
            self.under_way.remove(&job.number);
            self.end(job, Err(errno));
        }
    }

    /// Sleeps until there is mail, something has completed, or it is time to look.
    fn wait(&mut self) {
        let mut polls = [
            PollFd::from_borrowed_fd(self.mailbox.bell(), PollFlags::IN),
            PollFd::new(&*self.events, PollFlags::IN),
        ];
        let idle = self.under_way.is_empty() && self.watched.under_way().is_none();
        let timeout = if idle { watched::LOOK_EVERY } else { LOOK_EVERY };
        let timeout = Timespec::try_from(timeout).expect("seconds");
        // An error is a signal: what is ready is looked at all the same.
        let _ready = poll(&mut polls, Some(&timeout));
    }

    fn collect(&mut self) {
        drain(&*self.events);
        let mut collected = std::mem::take(&mut self.collected);
        self.image.collect(&mut collected);
        if !collected.is_empty() {
            self.note_answer();
        }
        for (mut job, result) in collected.drain(..) {
            match job.ended(result) {
                // Its place among those under way stays its own.
                None if !self.lost => self.begin(job),
                None => self.end(job, Err(Errno::IO)),
                Some(result) => self.end(job, result),
            }
        }
        self.collected = collected;
    }

    fn end(&mut self, job: Box<Job>, mut result: Result<(), Errno>) {
        self.under_way.remove(&job.number);
        // EROFS: a write without the lock. ESHUTDOWN: of a client that was fenced off.
        if let Some(view) = &mut self.view {
            return match result {
                Ok(()) => view.read(job),
                Err(Errno::SHUTDOWN) => view.cut_off(job),
                Err(_) => job.finish(Err(Errno::IO)),
            };
        }
        let is_lost = self.lost
            || result == Err(Errno::SHUTDOWN)
            || job.writes() && result == Err(Errno::ROFS);
        if is_lost {
            self.lose();
            result = Err(Errno::IO);
        }
        if job.is_flush() && !self.lost {
            let failed = result.err().filter(|errno| *errno != Errno::OPNOTSUPP);
            result = self.mailbox.note_flush(failed).map_or(result, Err);
        }
        job.finish(result);
    }

    /// The image may be another client's: nothing that is known of it holds from now on.
    fn lose(&mut self) {
        if std::mem::replace(&mut self.lost, true) {
            return;
        }
        self.lease.lose();
        tracing::error!(image = self.name, "{LOST}");
        self.mailbox.set_trouble(Some(LOST.into()));
        self.tell_all();
        self.refuse_waiting(Errno::IO);
    }

    fn refuse_waiting(&mut self, errno: Errno) {
        for job in self.waiting.drain(..) {
            job.finish(Err(errno));
        }
    }

    fn note_answer(&mut self) {
        let now = Instant::now();
        let hangs = |since| now.duration_since(since) >= SILENT_AFTER;
        if !self.watched.under_way().is_some_and(hangs) && std::mem::take(&mut self.silent) {
            let silent_s = (now - self.silent_since).as_secs_f64();
            tracing::info!(image = self.name, silent_s, "the cluster answers again");
            if !self.lost {
                self.mailbox.set_trouble(None);
            }
        }
        self.heard = now;
    }

    /// Looks at the lock now and then.
    fn watch(&mut self) {
        // What is lost stays so; and releasing it is no loss, which a look under way may see.
        if self.watched.under_way().is_none() && (self.lost || self.mailbox.is_released()) {
            return;
        }
        loop {
            let waits = self.view.as_ref().is_some_and(View::waits);
            let before = self.watched.under_way().is_some();
            let looked = self.watched.step(Instant::now(), waits);
            let begins = !before && self.watched.under_way().is_some();
            match (&mut self.view, looked) {
                (_, Some(looked)) => self.looked(&looked),
                (Some(view), None) if begins => return view.looks(),
                (_, None) => return,
            }
        }
    }

    fn looked(&mut self, looked: &Looked) {
        let Looked { verdict, version, began_ns } = *looked;
        if !matches!(verdict, Verdict::Unknown(Errno::TIMEDOUT)) {
            self.note_answer();
        }
        if self.view.is_some() {
            return self.looked_at_header(verdict, version);
        }
        match verdict {
            Verdict::Ours => self.lease.confirm(began_ns),
            _ if self.lost || self.mailbox.is_released() => {}
            Verdict::Lost => self.lose(),
            Verdict::Regained => {
                tracing::warn!(
                    image = self.name,
                    "the lock was lost and taken again; nothing cached is believed"
                );
                self.tell_all();
            }
            Verdict::Unknown(errno) => {
                tracing::warn!(image = self.name, %errno, "who has the lock can't be told");
            }
        }
    }

    /// What a standby has read is good, or has to be read again.
    fn looked_at_header(&mut self, verdict: Verdict, version: Option<u64>) {
        let view = self.view.as_mut().expect("of a standby");
        match (verdict, version) {
            (Verdict::Lost, _) => view.outdated(),
            (Verdict::Unknown(errno), _) => {
                tracing::warn!(image = self.name, %errno, "a standby can't look at the image's header");
                self.give_up_view(Errno::IO);
            }
            (_, version) => {
                for job in view.found(version.unwrap_or_default()) {
                    job.finish(Ok(()));
                }
            }
        }
    }

    fn give_up_view(&mut self, errno: Errno) {
        let jobs = self.view.as_mut().map(View::give_up).unwrap_or_default();
        for job in jobs {
            job.finish(Err(errno));
        }
    }

    /// Opens the image of a standby again, once nothing of it is under way. True if it is open.
    fn opens_again(&mut self) -> bool {
        if !self.under_way.is_empty() {
            return false;
        }
        let opened = open::open(&self.spec, (Mode::Standby, false), &self.events, &mut |_| false);
        let opened = opened.and_then(|opened| {
            let announced = opened.image.announce(self.events.as_fd());
            announced.map_err(|errno| RbdError::Io { during: "completions", errno })?;
            Ok(opened)
        });
        match opened {
            Ok(Opened { look, image, held: Held::Standby(version), .. }) => {
                tracing::debug!(
                    image = self.name,
                    version,
                    "the header has changed: opened it again"
                );
                self.watched = Watched::new(look, None);
                let old = std::mem::replace(&mut self.image, Arc::new(image));
                open::set_closing_patience(&old.cluster());
                drop(old);
                self.mailbox.set_trouble(None);
                let view = self.view.as_mut().expect("of a standby");
                let (jobs, goes_on) = view.opened(version);
                for mut job in jobs.into_iter().rev() {
                    if goes_on {
                        job.again();
                        self.waiting.push_front(job);
                    } else {
                        job.finish(Err(Errno::IO));
                    }
                }
                true
            }
            Ok(_) => unreachable!("a standby was asked for"),
            Err(error) => {
                tracing::warn!(image = self.name, reason = %error, "a standby can't open the image again");
                self.mailbox.set_trouble(Some(error.to_string()));
                self.give_up_view(Errno::IO);
                self.refuse_waiting(Errno::IO);
                false
            }
        }
    }

    /// Looks whether the cluster has been silent for too long. A job that ends shows no more than
    /// that its own object's OSD answers, if any had to: a look that hangs counts by itself.
    fn look(&mut self) {
        let now = Instant::now();
        let oldest = self.under_way.values().min().map(|_| self.heard);
        let Some(since) = oldest.into_iter().chain(self.watched.under_way()).min() else { return };
        let silent = now.saturating_duration_since(since);
        if silent < SILENT_AFTER {
            return;
        }
        if !std::mem::replace(&mut self.silent, true) {
            self.silent_since = since;
        }
        let text = format!("the cluster does not answer (for {} s)", silent.as_secs());
        if self.told.is_none_or(|told| now - told >= SILENT_AFTER) {
            self.told = Some(now);
            let under_way = self.under_way.len() + self.waiting.len();
            tracing::warn!(image = self.name, under_way, "{text}");
        }
        if !self.lost {
            self.mailbox.set_trouble(Some(text));
        }
    }
}
