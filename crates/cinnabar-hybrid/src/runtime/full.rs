//! Writes that met a full fast pool: their extent leaves it, and they go on in the slow one.

use super::Kind;
use super::requests::Part;
use super::worker::Worker;
use crate::pools::{Answer, OpError};
use cinnabar_placement::Pool;
use cinnabar_placement::volume::{MoveEnd, Ticket};
use rustix::io::Errno;

impl Worker {
    /// A part of a request has ended, or has to wait for its extent to leave a full pool.
    pub(super) fn part_ended(
        &mut self,
        part: Part,
        ticket: Ticket,
        result: Result<Answer, OpError>,
    ) {
        self.volume.end(ticket, result.is_ok(), &mut self.actions);
        let full = matches!(result, Err(OpError::NoSpace(Pool::Fast)));
        if full && self.requests.kind(part.request) != Kind::Read {
            let extent = self.volume.header().geometry.extent_of(part.offset);
            if self.volume.leave_fast(extent, &mut self.actions) {
                return self.full.push((extent, part));
            }
        }
        // After that another owner may have written what was read.
        let fenced = self.volume.is_fenced().then_some(Errno::IO);
        let failed = result.err().map(|error| error.errno()).or(fenced);
        self.end_part(part, failed.map_or(Ok(()), Err));
    }

    /// A move has ended: what waited for it goes on, or fails.
    pub(super) fn move_ended(&mut self, extent: u32, outcome: MoveEnd) {
        let left = match outcome {
            MoveEnd::Moved(Pool::Slow) => true,
            MoveEnd::GivenUp(_) => false,
            MoveEnd::Moved(Pool::Fast) | MoveEnd::CleanedUp => return,
        };
        let waiting = self.full.extract_if(.., |(of, _)| *of == extent);
        for (_, part) in waiting.collect::<Vec<_>>() {
            if left {
                self.begin(part);
            } else {
                self.end_part(part, Err(Errno::NOSPC));
            }
        }
    }
}
