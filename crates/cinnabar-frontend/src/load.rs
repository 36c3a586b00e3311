//! What connections hold, and how much more they may.
//!
//! Called by both servers.

/// Requests and bytes of buffers, held or let go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) requests: u64,
    pub(crate) bytes: u64,
}

impl std::ops::AddAssign for Load {
    fn add_assign(&mut self, other: Self) {
        self.requests += other.requests;
        self.bytes += other.bytes;
    }
}

impl std::ops::SubAssign for Load {
    fn sub_assign(&mut self, other: Self) {
        self.requests -= other.requests;
        self.bytes -= other.bytes;
    }
}

/// What one connection and what all of them may hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) connection: Load,
    pub(crate) total: Load,
}

impl Bounds {
    /// Adds one request with `bytes` bytes of buffer to both loads, if there is room.
    pub(crate) fn reserve(&self, own: &mut Load, total: &mut Load, bytes: u64) -> bool {
        // A connection may have half of what is free at most. So n greedy ones leave 1/(n + 2) of
        // the server to the next.
        let requests_free = self.total.requests.saturating_sub(total.requests);
        let bytes_free = self.total.bytes.saturating_sub(total.bytes);
        let requests_max = self.connection.requests.min(requests_free / 2);
        let bytes_max = self.connection.bytes.min(bytes_free / 2);
        let fits = own.requests < requests_max && (bytes == 0 || own.bytes + bytes <= bytes_max);
        if fits {
            let more = Load { requests: 1, bytes };
            *own += more;
            *total += more;
        }
        fits
    }
}
