//! The thread of a server: jobs in, requests out over its connections, replies back, and all of it
//! again after an outage.
//!
//! It owns all state; others talk to it by mail.

use super::backoff::Backoff;
use super::client::{Mailbox, Sink};
use super::dialer::{DialEvent, Dialed, Dialing, Target};
use super::export_info::ExportInfo;
use super::job::{Job, Next};
use super::link::{Answer, Link};
use super::proto;
use super::socket;
use super::unflushed::Unflushed;
use crate::port::{Extent, FileId, Task, Whole};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::Errno;
use slab::Slab;
use std::collections::VecDeque;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// How often at least it is looked for jobs that have waited too long.
const LOOK_EVERY_MAX: Duration = Duration::from_secs(1);
/// A request that is not given up, and gets no answer for so long, is sent again over new
/// connections: these may be dead without anything having said so.
const RENEW_AFTER: Duration = Duration::from_mins(5);
/// Longest wait for a server that is left to close its end, so that it has counted us out.
const LEAVE_MAX: Duration = Duration::from_secs(1);
/// How often an outage is reported.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// See the module.
pub(super) struct Worker {
    target: Target,
    mailbox: Arc<Mailbox>,
    /// Of the connections there are, or were last.
    export: ExportInfo,
    /// None while the server is out of reach.
    links: Vec<Link>,
    jobs: Slab<Job>,
    /// Of those, the ones that have something to ask.
    ready: VecDeque<usize>,
    unflushed: Unflushed,
    /// Whom to tell of a restart: each port that had a job of data, in order of the first ones.
    tellers: Vec<(Arc<dyn Sink>, FileId)>,
    backoff: Backoff,
    /// Outages so far.
    outages: u64,
    outage: Option<Outage>,
    /// Attempts to end it, and further connections afterwards.
    dialing: Option<Dialing>,
    /// When an outage was last told of.
    told: Option<Instant>,
    /// New connections are wanted, as soon as no write is under way on those that there are.
    renew: bool,
    /// The server is not waited for, nor dialed, any more.
    given_up: bool,
    /// It is to be left as soon as nothing is under way; told then.
    rest: Option<mpsc::Sender<()>>,
    /// It was left, and is dialed again when something is asked.
    rests: bool,
    next_look: Instant,
    /// When the connections that there are, or were last, were made.
    connected: Instant,
    answers: Vec<Answer>,
    polls: Vec<libc::pollfd>,
}

/// The server is out of reach.
struct Outage {
    since: Instant,
    /// The server is there but not what it was, or was given up: jobs are not kept waiting.
    refused: bool,
}

impl Worker {
    pub(super) fn new(
        target: Target,
        export: ExportInfo,
        connections: Vec<Dialed>,
        mailbox: Arc<Mailbox>,
    ) -> Self {
        let link = |dialed: Dialed| Link::new(dialed.socket, export.dialect);
        let backoff = Backoff::new(target.spec.give_up);
        Self {
            target,
            mailbox,
            export,
            links: connections.into_iter().map(link).collect(),
            jobs: Slab::new(),
            ready: VecDeque::new(),
            unflushed: Unflushed::new(export.size_bytes),
            tellers: Vec::new(),
            backoff,
            outages: 0,
            outage: None,
            dialing: None,
            told: None,
            renew: false,
            given_up: false,
            rest: None,
            rests: false,
            next_look: Instant::now(),
            connected: Instant::now(),
            answers: Vec::new(),
            polls: Vec::new(),
        }
    }

    /// Works until the mailbox is closed.
    pub(super) fn run(mut self) {
        while !self.read_mail() {
            loop {
                self.ask();
                self.look_for_old_jobs();
                let rung = self.wait();
                self.receive();
                if rung {
                    break;
                }
            }
        }
        self.close();
    }

    /// True if there will be no more.
    fn read_mail(&mut self) -> bool {
        let mail = self.mailbox.take();
        for (task, sink) in mail.tasks {
            self.accept(task, sink);
        }
        for (outage, news) in mail.news {
            self.hear(outage, news);
        }
        self.renew |= mail.renew && !self.given_up;
        self.rest = mail.rest.or(self.rest.take());
        if mail.given_up && !self.given_up {
            self.give_up();
        }
        mail.closed
    }

    /// All there is fails, and what comes. Writes that the server has got can't be called back: it may still
    /// carry them out.
    fn give_up(&mut self) {
        (self.given_up, self.renew) = (true, false);
        let reason = "it was given up";
        tracing::warn!(server = %self.target.spec, under_way = self.jobs.len(), "an NBD server is given up");
        self.links.clear();
        self.ready.clear();
        self.dialing = None;
        // What an earlier attempt still brings is not heard.
        self.outages += 1;
        self.outage = Some(Outage { since: Instant::now(), refused: true });
        self.mailbox.set_trouble(Some(reason.into()));
        for job in self.jobs.drain() {
            job.finish(Err(Errno::TIMEDOUT));
        }
    }

    fn close(mut self) {
        self.mailbox.set_trouble(None);
        let idle = self.jobs.is_empty();
        for link in self.links.drain(..).filter(|_| idle) {
            drop(link.leave());
        }
        for job in self.jobs.drain() {
            job.finish(Err(Errno::CANCELED));
        }
    }

    /// Takes a task, or answers it on the spot.
    fn accept(&mut self, mut task: Task, sink: Arc<dyn Sink>) {
        if let Whole::Extents { span } = task.whole() {
            // All is data: the client does not ask for more.
            task.extents = vec![Extent { len: span.len, hole: false }];
            return sink.done(task.finish(Ok(())));
        }
        let job = Job::new(task, sink, Instant::now());
        if let Some(result) = job.verdict(&self.export) {
            return job.finish(result);
        }
        if self.outage.as_ref().is_some_and(|outage| outage.refused) {
            return job.finish(Err(Errno::IO));
        }
        if job.span.len > 0 {
            self.note_teller(&job);
        }
        let key = self.jobs.insert(job);
        self.ready.push_back(key);
        if self.rests {
            self.begin_outage(Instant::now());
        }
    }

    /// A port with data of the disk hears of a restart once, by the name that the disk has there now.
    fn note_teller(&mut self, job: &Job) {
        let (sink, file) = job.teller();
        match self.tellers.iter_mut().find(|(known, _)| Arc::ptr_eq(known, sink)) {
            Some((_, known)) => *known = file,
            None => self.tellers.push((Arc::clone(sink), file)),
        }
    }

    /// Makes requests of what is ready, as far as there is room, and sends them.
    fn ask(&mut self) {
        self.renew_if_quiet();
        self.rest_if_quiet();
        while !self.renew
            && let Some(&key) = self.ready.front()
        {
            let Some(link) = self.links.iter_mut().min_by_key(|link| link.load()) else { break };
            if !link.has_room() {
                break;
            }
            self.ready.pop_front();
            let job = &mut self.jobs[key];
            if !job.has_piece() {
                // A part of it has failed; it ends when the others are answered.
                continue;
            }
            let piece = job.piece(&self.export, || self.unflushed.begin());
            link.ask(key, piece);
            if job.has_piece() {
                self.ready.push_back(key);
            }
        }
        let mut broken = None;
        for link in &mut self.links {
            if let Err(error) = link.send(&self.jobs) {
                broken.get_or_insert(error.to_string());
            }
        }
        if let Some(reason) = broken {
            self.lose(&reason);
        }
    }

    /// Connects again if that is wanted. A server goes on with what came over a connection that is
    /// gone: a write that is asked for twice could be done once more after a newer one, so those
    /// under way are waited for, and nothing else is asked meanwhile.
    fn renew_if_quiet(&mut self) {
        let writes = || self.jobs.iter().any(|(_, job)| job.is_write_under_way());
        if self.renew && self.outage.is_none() && !writes() {
            self.renew = false;
            self.lose("its export has grown");
        }
    }

    /// Sleeps until there is mail (then true), a connection is ready, or it is time to look.
    fn wait(&mut self) -> bool {
        self.polls.clear();
        let bell = self.mailbox.bell().as_raw_fd();
        self.polls.push(libc::pollfd { fd: bell, events: libc::POLLIN, revents: 0 });
        self.polls.extend(self.links.iter().map(Link::poll));
        // While no attempt is under way, the next look is also the next attempt.
        let at_rest = self.jobs.is_empty()
            && (self.outage.is_none() || self.dialing.is_some() || self.given_up);
        let timeout = if at_rest {
            -1
        } else {
            let left = self.next_look.saturating_duration_since(Instant::now());
            i32::try_from(left.as_millis()).unwrap_or(i32::MAX).saturating_add(1)
        };
        // SAFETY: the list is a live exclusive borrow of that length.
        let count = unsafe {
            libc::poll(self.polls.as_mut_ptr(), self.polls.len() as libc::nfds_t, timeout)
        };
        if count < 0 {
            // A signal; whatever is ready still is.
            self.polls.iter_mut().for_each(|poll| poll.revents = 0);
        }
        self.polls[0].revents != 0
    }

    /// Reads from the connections that are ready, and deals with what was answered.
    fn receive(&mut self) {
        let mut broken = None;
        for (link, poll) in self.links.iter_mut().zip(&self.polls[1..]) {
            if poll.revents & !libc::POLLOUT != 0
                && let Err(error) = link.receive(&mut self.jobs, &mut self.answers)
            {
                broken.get_or_insert(error.to_string());
            }
        }
        let mut answers = std::mem::take(&mut self.answers);
        let now = Instant::now();
        for (flight, error) in answers.drain(..) {
            if error == Some(proto::SHUTDOWN) {
                // Of no account: the connections are given up, and it is asked for again.
                broken.get_or_insert_with(|| "the server is shutting down".into());
                continue;
            }
            self.backoff.reset();
            let result = error.map_or(Ok(()), |error| Err(errno(error)));
            self.answered(flight.owner, flight.len, result, now);
        }
        self.answers = answers;
        if let Some(reason) = broken {
            self.lose(&reason);
        }
    }

    fn answered(&mut self, key: usize, len: u32, result: Result<(), Errno>, now: Instant) {
        let job = &mut self.jobs[key];
        match job.answered(len, result, &self.export, now) {
            // More to ask: it has been in the queue all the while.
            None | Some(Next::Ask) => {}
            Some(Next::FlushUnflushed) => {
                self.unflushed.note(job.span);
                self.ready.push_back(key);
            }
            Some(Next::EndUnflushed) => {
                if self.export.flush {
                    self.unflushed.note(job.span);
                }
                self.finish(key);
            }
            Some(Next::End(mark)) => {
                if let Some(mark) = mark {
                    self.unflushed.end(mark);
                }
                self.finish(key);
            }
        }
    }

    fn finish(&mut self, key: usize) {
        let job = self.jobs.remove(key);
        let mut result = job.result;
        if job.is_flush() {
            let failed = result.err().filter(|errno| *errno != Errno::OPNOTSUPP);
            result = self.mailbox.note_flush(failed).map_or(result, Err);
        }
        if result.is_err() {
            // It may have had more to ask.
            self.ready.retain(|ready| *ready != key);
        }
        job.finish(result);
    }

    /// A connection is of no use any more, and with it none is: all that was under way begins again
    /// on the next ones.
    fn lose(&mut self, reason: &str) {
        self.links.clear();
        self.ready.clear();
        let failed: Vec<usize> =
            self.jobs.iter().filter(|(_, job)| job.result.is_err()).map(|(key, _)| key).collect();
        for key in failed {
            self.finish(key);
        }
        let mut keys: Vec<(Instant, usize)> = Vec::with_capacity(self.jobs.len());
        for (key, job) in &mut self.jobs {
            job.restart();
            keys.push((job.since, key));
        }
        keys.sort_unstable();
        self.ready.extend(keys.into_iter().map(|(_, key)| key));
        let now = Instant::now();
        if self.may_tell(now) {
            tracing::warn!(
                server = %self.target.spec, reason, under_way = self.jobs.len(),
                "lost an NBD server; connecting again"
            );
        }
        self.mailbox.set_trouble(Some(reason.into()));
        self.begin_outage(now);
    }

    fn begin_outage(&mut self, now: Instant) {
        self.rests = false;
        self.outages += 1;
        self.outage = Some(Outage { since: now, refused: false });
        self.dial();
    }

    /// Leaves the server if that is wanted, so that it has places for others. Nothing is under way then, and no
    /// attempt to reach it goes on.
    fn rest_if_quiet(&mut self) {
        let Some(told) = self.rest.take_if(|_| self.jobs.is_empty()) else { return };
        if self.given_up {
            return;
        }
        let sockets: Vec<OwnedFd> = self.links.drain(..).map(Link::leave).collect();
        socket::wait_for_ends(&sockets, LEAVE_MAX);
        // What an earlier attempt still brings is not heard.
        self.outages += 1;
        (self.outage, self.dialing, self.rests) = (None, None, true);
        self.backoff.reset();
        self.mailbox.set_trouble(None);
        let _ = told.send(());
    }

    fn dial(&mut self) {
        let (target, backoff) = (self.target.clone(), self.backoff);
        // The next outage continues where this one begins, unless the server answers something.
        self.backoff.pause();
        match Dialing::start(target, backoff, self.outages, Arc::clone(&self.mailbox)) {
            Ok(dialing) => self.dialing = Some(dialing),
            Err(error) => {
                // Tried again with the next look for old jobs.
                tracing::error!(server = %self.target.spec, %error, "cannot connect again");
                self.dialing = None;
            }
        }
    }

    /// Something came of dialing.
    fn hear(&mut self, about: u64, news: DialEvent) {
        if about != self.outages {
            return;
        }
        match news {
            DialEvent::Connected(dialed) if self.outage.is_none() => {
                if dialed.export == self.export {
                    self.links.push(Link::new(dialed.socket, self.export.dialect));
                }
            }
            DialEvent::Connected(dialed) => self.regain(dialed),
            DialEvent::Failed(error) => {
                let now = Instant::now();
                let refused = error.is_final();
                let Some(outage) = &mut self.outage else { return };
                if self.told.is_none_or(|told| now - told >= TELL_EVERY)
                    || refused && !outage.refused
                {
                    self.told = Some(now);
                    let away_s = (now - outage.since).as_secs_f64();
                    let hint = error.hint();
                    tracing::warn!(server = %self.target.spec, away_s, reason = %error, hint, "still no connection");
                }
                outage.refused = refused;
                self.mailbox.set_trouble(Some(error.to_string()));
                if refused {
                    self.fail(|_| true, Errno::IO);
                }
            }
        }
    }

    /// The server is back. What it may have lost is reported before anything is sent to it.
    fn regain(&mut self, dialed: Dialed) {
        let now = Instant::now();
        self.export = dialed.export;
        self.unflushed.grow(self.export.size_bytes);
        self.connected = now;
        self.links.push(Link::new(dialed.socket, self.export.dialect));
        let ranges = self.unflushed.take();
        if let Some(outage) = self.outage.take()
            && self.may_tell(now)
        {
            let away_s = (now - outage.since).as_secs_f64();
            tracing::info!(
                server = %self.target.spec, away_s, under_way = self.jobs.len(),
                unflushed_ranges = ranges.len(), "the NBD server is back"
            );
        }
        self.mailbox.set_trouble(None);
        if !ranges.is_empty() {
            for (at, (sink, file)) in self.tellers.iter().enumerate() {
                sink.restarted(*file, ranges.clone(), at == 0);
            }
        }
        // What it can't do any more.
        let refused: Vec<(usize, Result<(), Errno>)> = (self.jobs.iter())
            .filter_map(|(key, job)| Some((key, job.verdict(&self.export)?)))
            .collect();
        for (key, result) in refused {
            self.ready.retain(|ready| *ready != key);
            self.jobs.remove(key).finish(result);
        }
    }

    fn may_tell(&mut self, now: Instant) -> bool {
        let tell = self.told.is_none_or(|told| now - told >= TELL_EVERY);
        if tell {
            self.told = Some(now);
        }
        tell
    }

    /// Looks for jobs that got no further for too long: they are given up if there is a bound, else
    /// asked for again over new connections, in case only these are dead. What of a job is with the
    /// server can't be called back; its answer must not find the memory in use by others, so the
    /// connections go.
    fn look_for_old_jobs(&mut self) {
        let now = Instant::now();
        if now < self.next_look {
            return;
        }
        if self.outage.is_some() && self.dialing.is_none() && !self.given_up {
            self.dial();
        }
        let give_up = self.target.spec.give_up;
        let bound = give_up.unwrap_or(RENEW_AFTER);
        self.next_look = now + LOOK_EVERY_MAX.min(bound / 4);
        let connected = self.connected;
        // These connections have had their time since they were made.
        let since =
            |job: &Job| if give_up.is_some() { job.since } else { job.since.max(connected) };
        let is_old = |job: &Job| now - since(job) >= bound;
        if !self.jobs.iter().any(|(_, job)| is_old(job)) {
            return;
        }
        if self.jobs.iter().any(|(_, job)| is_old(job) && job.outstanding > 0) {
            self.lose(&format!("a request got no answer in {} s", bound.as_secs()));
        }
        if give_up.is_some() {
            self.fail(is_old, Errno::TIMEDOUT);
        }
    }

    /// Ends the jobs that are meant; none of them may be under way.
    fn fail(&mut self, meant: impl Fn(&Job) -> bool, errno: Errno) {
        let keys: Vec<usize> =
            self.jobs.iter().filter(|(_, job)| meant(job)).map(|(key, _)| key).collect();
        if keys.is_empty() {
            return;
        }
        let jobs = &self.jobs;
        self.ready.retain(|key| !meant(&jobs[*key]));
        tracing::warn!(server = %self.target.spec, count = keys.len(), "requests fail");
        for key in keys {
            self.jobs.remove(key).finish(Err(errno));
        }
    }
}

/// What the protocol's errors mean here.
fn errno(error: u32) -> Errno {
    match error {
        1 => Errno::PERM,
        12 => Errno::NOMEM,
        22 => Errno::INVAL,
        28 => Errno::NOSPC,
        95 => Errno::OPNOTSUPP,
        _ => Errno::IO,
    }
}
