//! Whether the lock is still ours: the header is looked at every few seconds, whatever else there is
//! to do.

use super::sys::{Locker, Look, Seen};
use cinnabar_hybrid::librados::lock_state::now_ns;
use rustix::io::Errno;
use std::time::{Duration, Instant};

/// How often it is looked.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(3);

/// What a look shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// All is as it was.
    Ours,
    /// The lock is ours again, perhaps after another's: librbd has taken it again. Nothing that is
    /// cached is to be believed.
    Regained,
    /// It is another's or nobody's, or the cluster has fenced this client off.
    Lost,
    /// The question failed.
    Unknown(Errno),
}

/// What a look has shown.
pub(super) struct Looked {
    pub(super) verdict: Verdict,
    /// The header's version, if it answered.
    pub(super) version: Option<u64>,
    /// When the look began, in ns of [`now_ns`].
    pub(super) began_ns: u64,
}

/// See the module.
pub(super) struct Watched {
    look: Look,
    /// The lock; none of a snapshot or a standby, which may be read by any client that is not fenced off.
    own: Option<Seen>,
    /// When the last look began.
    since: Instant,
    began_ns: u64,
    under_way: bool,
}

impl Watched {
    pub(super) fn new(look: Look, own: Option<&Locker>) -> Self {
        let seen = |own: &Locker| Seen { client: own.client.clone(), cookie: own.cookie.clone() };
        let since = Instant::now();
        Self { look, own: own.map(seen), since, began_ns: 0, under_way: false }
    }

    /// When the look under way began.
    pub(super) fn under_way(&self) -> Option<Instant> {
        self.under_way.then_some(self.since)
    }

    /// Looks again if it is time to, or `at_once`; or what the look has shown that was under way.
    pub(super) fn step(&mut self, now: Instant, at_once: bool) -> Option<Looked> {
        let answer = if self.under_way {
            let answer = self.look.taken()?;
            self.under_way = false;
            answer
        } else {
            if now.duration_since(self.since) < LOOK_EVERY && !at_once {
                return None;
            }
            (self.since, self.began_ns) = (now, now_ns());
            match self.look.start() {
                Ok(()) => {
                    self.under_way = true;
                    return None;
                }
                Err(errno) => Err(errno),
            }
        };
        let version = answer.as_ref().ok().map(|(_, version)| *version);
        let verdict = judge(&mut self.own, answer.map(|(seen, _)| seen));
        Some(Looked { verdict, version, began_ns: self.began_ns })
    }
}

/// What an answer means to who has `own`.
fn judge(own: &mut Option<Seen>, answer: Result<Option<Seen>, Errno>) -> Verdict {
    let seen = match answer {
        Ok(seen) => seen,
        // Fenced off, or the image is gone.
        Err(Errno::SHUTDOWN | Errno::NOENT) => return Verdict::Lost,
        Err(errno) => return Verdict::Unknown(errno),
    };
    match (own, seen) {
        (None, _) => Verdict::Ours,
        (Some(own), Some(seen)) if own.client == seen.client => {
            if own.cookie == seen.cookie {
                return Verdict::Ours;
            }
            *own = seen;
            Verdict::Regained
        }
        _ => Verdict::Lost,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_own_lock_counts() {
        let seen =
            |client: &str, cookie: &str| Seen { client: client.into(), cookie: cookie.into() };
        let mut own = Some(seen("client.1", "auto 7"));
        let same = own.clone();
        assert_eq!(judge(&mut own, Ok(same)), Verdict::Ours);
        assert_eq!(judge(&mut own, Ok(Some(seen("client.2", "auto 7")))), Verdict::Lost);
        assert_eq!(judge(&mut own, Ok(None)), Verdict::Lost);
        assert_eq!(judge(&mut own, Err(Errno::SHUTDOWN)), Verdict::Lost);
        assert_eq!(judge(&mut own, Err(Errno::IO)), Verdict::Unknown(Errno::IO));
        // After a loss of the watch, once.
        let again = Some(seen("client.1", "auto 8"));
        assert_eq!(judge(&mut own, Ok(again.clone())), Verdict::Regained);
        assert_eq!(judge(&mut own, Ok(again)), Verdict::Ours);
        // A snapshot has no lock; the image's may be anyone's.
        assert_eq!(judge(&mut None, Ok(Some(seen("client.2", "auto 7")))), Verdict::Ours);
        assert_eq!(judge(&mut None, Err(Errno::SHUTDOWN)), Verdict::Lost);
    }
}
