//! Which descriptors the event loop watches for the server, and under which names.

use crate::interest::{Interest, Token, Want};
use crate::request::ExportId;
use crate::table::Table;
use rustix::fd::OwnedFd;
use std::os::fd::{AsRawFd, RawFd};

/// What a descriptor is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Listener(ExportId),
    /// The socket of a connection.
    Socket(u64),
    /// The kick of a queue of a connection.
    Kick(u64, u16),
}

/// Everything that is watched.
#[derive(Debug)]
pub(super) struct Watches {
    sources: Table<Source>,
    interests: Vec<Interest>,
    /// Descriptors to be closed when the loop knows that it has to forget them: the front-end holds
    /// the same eventfds, so that closing alone would not end a watch.
    forgotten: Vec<OwnedFd>,
    /// How many of `forgotten` the loop already knows of.
    told: usize,
}

impl Watches {
    pub(super) const fn new() -> Self {
        Self { sources: Table::new(), interests: Vec::new(), forgotten: Vec::new(), told: 0 }
    }

    /// A new name, for a descriptor that is watched for reading from now on.
    pub(super) fn add(&mut self, fd: RawFd, source: Source) -> u64 {
        let key = self.sources.insert(source);
        self.change(key, fd, true, false);
        key
    }

    /// Watch for this from now on.
    pub(super) fn change(&mut self, key: u64, fd: RawFd, read: bool, write: bool) {
        let want = Want::Watch { read, write };
        self.interests.push(Interest { token: Token(key | Token::VHOST), fd, want });
    }

    /// Not to be watched any more, and to be closed.
    pub(super) fn remove(&mut self, key: u64, fd: OwnedFd) {
        self.remove_kept(key, fd.as_raw_fd());
        self.forgotten.push(fd);
    }

    /// Not to be watched any more; its owner closes it.
    pub(super) fn remove_kept(&mut self, key: u64, fd: RawFd) {
        if self.sources.remove(key).is_some() {
            let token = Token(key | Token::VHOST);
            self.interests.push(Interest { token, fd, want: Want::Gone });
        }
    }

    /// What a token stands for, if it still does.
    pub(super) fn source(&self, token: Token) -> Option<Source> {
        self.sources.get(token.0 & !Token::VHOST).copied()
    }

    /// Changes since the last call.
    pub(super) fn take(&mut self) -> std::vec::Drain<'_, Interest> {
        self.forgotten.drain(..self.told);
        self.told = self.forgotten.len();
        self.interests.drain(..)
    }
}
