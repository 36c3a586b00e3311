//! Why a connection ended.
//!
//! Logged and counted in one place, `Server::disconnect`.

/// Declares the reasons once, with what they are called in the log and in metrics.
macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident $metric:literal $text:literal;)*) => {
        /// Why a connection ended.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
        pub enum DisconnectReason {
            $($(#[$doc])* #[error($text)] $name,)*
        }

        impl DisconnectReason {
            /// All of them, in the order of [`Self::index`].
            pub const ALL: [Self; [$($metric),*].len()] = [$(Self::$name),*];

            /// A name for metrics, in `snake_case`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $metric,)* }
            }
        }
    };
}

reasons! {
    /// The front-end closed the socket between two messages.
    PeerClosed "peer_closed" "the front-end closed the connection";
    /// The socket failed.
    Broken "broken" "the connection broke";
    /// The export was removed.
    ExportRemoved "export_removed" "the export was removed";
    /// The server stops.
    Stopping "stopping" "the server stops";
    /// A second front-end of a writable export, or more than [`Limits`](super::Limits) has room for.
    InUse "in_use" "the export is in use by another front-end";
    /// [`Limits::connections_max`](super::Limits::connections_max) was reached.
    TooManyConnections "too_many_connections" "too many connections";
    /// The front-end closed the socket within a message.
    Truncated "truncated" "the front-end closed the connection within a message";
    /// [`Limits::message_ns_max`](super::Limits::message_ns_max) has passed.
    MessageTimeout "message_timeout" "a message took too long to arrive, or its answer is not read";
    /// [`Limits::stop_ns_max`](super::Limits::stop_ns_max) has passed.
    StopTimeout "stop_timeout" "requests took too long to finish when their ring was stopped";
    /// A header of another version, or an impossible length.
    Header "header" "a malformed message header";
    /// A message that is not offered.
    UnknownMessage "unknown_message" "a message this server does not know";
    /// A payload of the wrong length or with impossible values.
    Payload "payload" "a malformed message";
    /// Too many descriptors came with a message, or too few.
    Descriptors "descriptors" "a message with too many or too few file descriptors";
    /// A kick or call that is no eventfd.
    NotEventFd "not_eventfd" "a kick or call is not an eventfd (or /proc is not mounted)";
    /// A ring without a kick.
    NoKick "no_kick" "a ring without a kick (polling mode) is not supported";
    /// Features that were not offered.
    Features "features" "features that were not offered";
    /// The driver does not speak VIRTIO 1.
    Legacy "legacy" "the guest's driver does not speak VIRTIO 1";
    /// A queue that is not there.
    NoQueue "no_queue" "a queue that is not there";
    /// A ring's size or position was changed while it runs.
    RingRuns "ring_runs" "a change of a ring that runs";
    /// A ring's size is no power of two, or too large.
    RingSize "ring_size" "a ring's size is no power of two, or too large";
    /// A ring that is not in the guest's memory, or not aligned.
    RingAddress "ring_address" "a ring outside of the guest's memory, or not aligned";
    /// A region that overlaps another, that is not there, or too many of them.
    Region "region" "a memory region that overlaps another, is unknown, or is too much";
    /// More guest memory than [`Export::memory_bytes_max`](super::Export::memory_bytes_max).
    MemoryMax "memory_max" "the guest has more memory than the volume's memory_max";
    /// Guest memory that is not a memfd nor a file on tmpfs or hugetlbfs.
    NotShared "not_shared" "guest memory that is not shared memory (use memory-backend-memfd,share=on)";
    /// Guest memory behind the end of its file.
    TooShort "too_short" "guest memory behind the end of its file";
    /// The kernel can't map it.
    CannotMap "cannot_map" "guest memory that can't be mapped";
    /// The file under guest memory was truncated, or the memory failed.
    MemoryGone "memory_gone" "guest memory vanished: its file was truncated, or the memory failed";
    /// A log of dirty pages that is not shared memory, or not there.
    LogMemory "log_memory" "a log of dirty pages that is not shared memory, is behind the end of its file, or can't be mapped";
    /// A log of dirty pages that has no bit for some page of the guest's memory.
    LogTooSmall "log_too_small" "a log of dirty pages that does not cover the guest's memory or a used ring";
    /// The file of the log of dirty pages was truncated, or its memory failed.
    LogGone "log_gone" "the log of dirty pages vanished: its file was truncated, or the memory failed";
    /// More memory for notes was asked for before the last was taken.
    Unread "unread" "memory for in-flight notes is asked for again and not received";
    /// The notes of requests under way make no sense.
    Inflight "inflight" "the notes of requests under way make no sense";
    /// More entries are available than a ring has.
    AvailableIndex "available_index" "more requests are offered than a ring can hold";
    /// A descriptor that is not there, or is under way already.
    Descriptor "descriptor" "a descriptor that is not there, or is under way already";
    /// A loop, or a chain longer than any request needs.
    ChainTooLong "chain_too_long" "a descriptor chain that is too long, or a loop";
    /// A descriptor outside of the guest's memory.
    ChainAddress "chain_address" "a descriptor outside of the guest's memory";
    /// An indirect table that is nested, empty or not negotiated.
    Indirect "indirect" "an indirect descriptor table that is nested, empty, or not negotiated";
    /// A device-readable descriptor behind a device-writable one.
    ChainOrder "chain_order" "a readable descriptor behind a writable one";
    /// A request without a whole header, or without room for its status.
    RequestTooShort "request_too_short" "a request without a header or without room for its status";
}

impl DisconnectReason {
    /// Position in [`Self::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Whether this is how connections ordinarily end, as against something to warn of.
    #[must_use]
    pub const fn is_ordinary(self) -> bool {
        matches!(self, Self::PeerClosed | Self::Broken | Self::ExportRemoved | Self::Stopping)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_reason_is_listed_at_its_index_under_a_name_of_its_own() {
        for (at, reason) in DisconnectReason::ALL.into_iter().enumerate() {
            assert_eq!(reason.index(), at);
        }
        let names: BTreeSet<_> = DisconnectReason::ALL.map(DisconnectReason::name).into();
        assert_eq!(names.len(), DisconnectReason::ALL.len());
    }
}
