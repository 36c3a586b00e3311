//! The handshake (fixed newstyle) as a state machine: bytes in, bytes and decisions out.
//!
//! Everything a client may send here is small: options beyond [`OPTION_BYTES_MAX`] end the
//! connection, and so does one option too many.

mod options;

use super::export::{Export, ExportId};
use super::limits::OPTION_BYTES_MAX;
use super::proto::{self, export_flag, handshake_flag, option, option_reply};
use super::reason::DisconnectReason;

/// The exports a client may see.
pub trait Directory {
    /// The export of this name. The empty name stands for the only export, if there is only one.
    fn find(&self, name: &[u8]) -> Option<&Export>;
    /// The reason why no client may enter this export now, or `None`.
    fn unavailable(&self, id: ExportId) -> Option<&str> {
        let _ = id;
        None
    }
    /// All of them, in the order of their ids.
    fn all(&self) -> impl Iterator<Item = &Export>;
    /// The same from this id on.
    fn all_from(&self, first: ExportId) -> impl Iterator<Item = &Export> {
        self.all().filter(move |export| export.id >= first)
    }
}

/// What was agreed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Agreed {
    /// Whether the client agreed on structured replies.
    pub structured: bool,
    /// Block status with `base:allocation`.
    pub block_status: bool,
}

/// What became of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing was taken: a whole message needs more bytes.
    NeedMore,
    /// A message was taken and answered, or a part of a long answer was given.
    Continue,
    /// A message was taken: the client wants to enter this export. To be answered with
    /// [`Handshake::grant`] or [`Handshake::refuse`] before the next step.
    Enter(ExportId),
    /// A message was taken and granted: the output is to be sent, and everything from then on goes over TLS.
    /// Nothing of the input that is left may be taken.
    StartTls,
    /// The connection is to be closed once the output is sent.
    Close(DisconnectReason),
}

/// The handshake with one client.
#[derive(Debug)]
pub struct Handshake {
    options_left: u32,
    flags_seen: bool,
    fixed_newstyle: bool,
    no_zeroes: bool,
    structured: bool,
    /// The export for which `base:allocation` was chosen.
    allocation_of: Option<ExportId>,
    /// How the client asked to enter.
    entering: Entering,
    tls: Tls,
    /// Why this client gets nothing.
    forbidden: Option<&'static str>,
    /// The client is told which exports there are, from this id on.
    listing: Option<ExportId>,
}

/// Where the handshake stands with TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tls {
    /// Not to be had.
    None,
    /// Nothing else is granted before.
    Required,
    /// It was granted.
    Started,
}

/// How a client asked to enter, and what the answer is to contain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Entering {
    by_name: bool,
    wants_name: bool,
    wants_description: bool,
}

/// The first bytes of a connection, sent by the server.
#[must_use]
pub fn greeting() -> [u8; proto::GREETING_BYTES] {
    let flags = handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES;
    let mut bytes = [0; proto::GREETING_BYTES];
    bytes[..8].copy_from_slice(&proto::GREETING_MAGIC.to_be_bytes());
    bytes[8..16].copy_from_slice(&proto::OPTION_MAGIC.to_be_bytes());
    bytes[16..].copy_from_slice(&flags.to_be_bytes());
    bytes
}

impl Handshake {
    /// A handshake of at most `options_max` options.
    #[must_use]
    pub fn new(options_max: u32) -> Self {
        Self {
            options_left: options_max,
            flags_seen: false,
            fixed_newstyle: false,
            no_zeroes: false,
            structured: false,
            allocation_of: None,
            entering: Entering::default(),
            tls: Tls::None,
            forbidden: None,
            listing: None,
        }
    }

    /// The same, and the client must use TLS before anything else.
    #[must_use]
    pub fn requiring_tls(self) -> Self {
        Self { tls: Tls::Required, ..self }
    }

    /// From now on this client is refused whatever it asks for, with this reason, one line.
    pub fn forbid(&mut self, reason: &'static str) {
        self.forbidden = Some(reason);
    }

    /// Whether [`Self::step`] goes on though nothing was received.
    pub(super) const fn is_listing(&self) -> bool {
        self.listing.is_some()
    }

    /// Takes one message off the front of `input`, appends what is to be sent to `output`, and
    /// returns how many bytes it took.
    pub fn step(
        &mut self,
        input: &[u8],
        directory: &impl Directory,
        output: &mut Vec<u8>,
    ) -> (usize, Step) {
        if let Some(first) = self.listing {
            self.list(first, directory, output);
            return (0, Step::Continue);
        }
        if !self.flags_seen {
            return self.client_flags(input);
        }
        let Some(header) = input.first_chunk::<{ proto::OPTION_HEADER_BYTES }>() else {
            return (0, Step::NeedMore);
        };
        let close = |reason| (0, Step::Close(reason));
        let mut fields = proto::Fields(header);
        if fields.u64() != Some(proto::OPTION_MAGIC) {
            return close(DisconnectReason::OptionMagic);
        }
        let (Some(option), Some(len)) = (fields.u32(), fields.u32()) else {
            return (0, Step::NeedMore);
        };
        if len > OPTION_BYTES_MAX {
            return close(DisconnectReason::OptionTooLong);
        }
        let end = proto::OPTION_HEADER_BYTES + len as usize;
        let Some(data) = input.get(proto::OPTION_HEADER_BYTES..end) else {
            return (0, Step::NeedMore);
        };
        let Some(left) = self.options_left.checked_sub(1) else {
            return close(DisconnectReason::TooManyOptions);
        };
        self.options_left = left;
        if !self.fixed_newstyle && option != option::EXPORT_NAME {
            return close(DisconnectReason::NotFixedNewstyle);
        }
        (end, self.option(option, data, directory, output))
    }

    fn client_flags(&mut self, input: &[u8]) -> (usize, Step) {
        const KNOWN: u32 = (handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES) as u32;
        let Some(flags) = proto::Fields(input).u32() else {
            return (0, Step::NeedMore);
        };
        if flags & !KNOWN != 0 {
            return (0, Step::Close(DisconnectReason::ClientFlags));
        }
        self.flags_seen = true;
        self.fixed_newstyle = flags & u32::from(handshake_flag::FIXED_NEWSTYLE) != 0;
        self.no_zeroes = flags & u32::from(handshake_flag::NO_ZEROES) != 0;
        (proto::CLIENT_FLAGS_BYTES, Step::Continue)
    }

    /// Lets the client enter `export`, which it asked for.
    pub fn grant(&self, export: &Export, output: &mut Vec<u8>) -> Agreed {
        let agreed = Agreed {
            structured: self.structured,
            block_status: self.structured && self.allocation_of == Some(export.id),
        };
        if self.entering.by_name {
            output.extend_from_slice(&export.size_bytes.to_be_bytes());
            output.extend_from_slice(&export_flags(export, self.structured).to_be_bytes());
            if !self.no_zeroes {
                output.extend_from_slice(&[0; proto::EXPORT_NAME_ZEROES]);
            }
        } else {
            self.describe(option::GO, export, self.entering, output);
        }
        agreed
    }

    /// Turns the client away from the export it asked for.
    pub fn refuse(&self, message: &str, output: &mut Vec<u8>) -> Step {
        if self.entering.by_name {
            return Step::Close(DisconnectReason::Policy);
        }
        reply(output, option::GO, option_reply::ERR_POLICY, &[message.as_bytes()]);
        Step::Continue
    }
}

/// The transmission flags that announce the export's features to the client.
fn export_flags(export: &Export, structured: bool) -> u16 {
    // Our flush covers every connection, so several connections are always safe.
    let mut flags = export_flag::HAS_FLAGS
        | export_flag::SEND_FLUSH
        | export_flag::SEND_CACHE
        | export_flag::CAN_MULTI_CONN;
    flags |= if export.read_only {
        export_flag::READ_ONLY
    } else {
        export_flag::SEND_FUA | export_flag::SEND_TRIM | export_flag::SEND_WRITE_ZEROES
    };
    if structured {
        // A read is answered in one chunk in any case.
        flags |= export_flag::SEND_DF;
    }
    flags
}

/// Appends a reply to an option, its data in `parts`.
fn reply(output: &mut Vec<u8>, option: u32, kind: u32, parts: &[&[u8]]) {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    let len = u32::try_from(len).expect("a reply's parts are names and numbers");
    output.extend_from_slice(&proto::OPTION_REPLY_MAGIC.to_be_bytes());
    output.extend_from_slice(&option.to_be_bytes());
    output.extend_from_slice(&kind.to_be_bytes());
    output.extend_from_slice(&len.to_be_bytes());
    for part in parts {
        output.extend_from_slice(part);
    }
}
