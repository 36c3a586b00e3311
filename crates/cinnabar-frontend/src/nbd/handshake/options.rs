//! One handler for each option.

use super::{Directory, Entering, Handshake, Step, Tls, export_flags, reply};
use crate::nbd::export::{Export, ExportId};
use crate::nbd::proto::{Fields, allocation, info, option, option_reply};
use crate::nbd::reason::DisconnectReason;
use cinnabar_engine::seam::limits::DATA_BYTES_MAX;
use cinnabar_engine::seam::units::BLOCK_BYTES;

/// What a client is told that has not asked for TLS.
const TLS_REQUIRED: &str = "this volume is served over TLS only";

/// Bytes of a part of the answer to a LIST, about.
const LIST_BYTES: usize = 4 << 10;

/// A parsed list of metadata context queries: the export, and which contexts match.
struct MetaQuery {
    export: ExportId,
    matches: bool,
}

/// Why an option is answered with an error.
enum Refusal {
    Malformed,
    UnknownExport,
    NeedsStructured,
}

impl Handshake {
    pub(super) fn option(
        &mut self,
        option: u32,
        data: &[u8],
        directory: &impl Directory,
        output: &mut Vec<u8>,
    ) -> Step {
        if self.tls == Tls::Required {
            return self.before_tls(option, data, output);
        }
        if let Some(reason) = self.forbidden {
            return forbidden(option, reason, output);
        }
        match option {
            option::EXPORT_NAME => self.export_name(data, directory),
            option::ABORT => {
                reply(output, option, option_reply::ACK, &[]);
                Step::Close(DisconnectReason::Requested)
            }
            option::LIST if data.is_empty() => {
                self.list(ExportId(0), directory, output);
                Step::Continue
            }
            option::LIST => {
                refuse(output, option, &Refusal::Malformed);
                Step::Continue
            }
            option::INFO | option::GO => self.info(option, data, directory, output),
            option::STRUCTURED_REPLY => {
                if data.is_empty() {
                    self.structured = true;
                    reply(output, option, option_reply::ACK, &[]);
                } else {
                    refuse(output, option, &Refusal::Malformed);
                }
                Step::Continue
            }
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => {
                self.meta_context(option, data, directory, output);
                Step::Continue
            }
            option::STARTTLS if self.tls == Tls::Started => {
                refuse(output, option, &Refusal::Malformed);
                Step::Continue
            }
            _ => {
                reply(output, option, option_reply::ERR_UNSUP, &[]);
                Step::Continue
            }
        }
    }

    /// Where TLS is required and was not asked for yet, nothing else is answered: not which exports there
    /// are, and not which options.
    fn before_tls(&mut self, option: u32, data: &[u8], output: &mut Vec<u8>) -> Step {
        match option {
            option::STARTTLS if data.is_empty() => {
                self.tls = Tls::Started;
                // Nothing that was agreed on in plain text counts.
                (self.structured, self.allocation_of) = (false, None);
                reply(output, option, option_reply::ACK, &[]);
                return Step::StartTls;
            }
            option::STARTTLS => refuse(output, option, &Refusal::Malformed),
            option::ABORT => {
                reply(output, option, option_reply::ACK, &[]);
                return Step::Close(DisconnectReason::Requested);
            }
            // This way in has no answer that says why not.
            option::EXPORT_NAME => return Step::Close(DisconnectReason::TlsRequired),
            _ => reply(output, option, option_reply::ERR_TLS_REQD, &[TLS_REQUIRED.as_bytes()]),
        }
        Step::Continue
    }

    fn export_name(&mut self, name: &[u8], directory: &impl Directory) -> Step {
        match directory.find(name) {
            // This way in has no answer that says why not.
            Some(export) if directory.unavailable(export.id).is_some() => {
                Step::Close(DisconnectReason::Policy)
            }
            Some(export) => {
                self.entering = Entering { by_name: true, ..Entering::default() };
                Step::Enter(export.id)
            }
            None => Step::Close(DisconnectReason::UnknownExport),
        }
    }

    /// Tells which exports there are, from `first` on: some at a time, for there may be thousands and the client
    /// may not read.
    pub(super) fn list(
        &mut self,
        first: ExportId,
        directory: &impl Directory,
        output: &mut Vec<u8>,
    ) {
        let end = output.len() + LIST_BYTES;
        for export in directory.all_from(first) {
            if output.len() >= end {
                self.listing = Some(export.id);
                return;
            }
            let name = export.name.as_bytes();
            let len = u32::try_from(name.len()).expect("names are short").to_be_bytes();
            let text = export.description.as_bytes();
            reply(output, option::LIST, option_reply::SERVER, &[&len, name, text]);
        }
        self.listing = None;
        reply(output, option::LIST, option_reply::ACK, &[]);
    }

    fn info(
        &mut self,
        option: u32,
        data: &[u8],
        directory: &impl Directory,
        output: &mut Vec<u8>,
    ) -> Step {
        let Some((name, wants)) = parse_info(data) else {
            refuse(output, option, &Refusal::Malformed);
            return Step::Continue;
        };
        let Some(export) = directory.find(name) else {
            refuse(output, option, &Refusal::UnknownExport);
            return Step::Continue;
        };
        if let Some(reason) = directory.unavailable(export.id) {
            reply(output, option, option_reply::ERR_POLICY, &[reason.as_bytes()]);
            return Step::Continue;
        }
        if option == option::GO {
            self.entering = wants;
            return Step::Enter(export.id);
        }
        self.describe(option, export, wants, output);
        Step::Continue
    }

    /// Appends everything about an export that was asked for, and the final ACK.
    pub(super) fn describe(
        &self,
        option: u32,
        export: &Export,
        wants: Entering,
        output: &mut Vec<u8>,
    ) {
        let mut tell = |kind: u16, parts: [&[u8]; 3]| {
            let kind = kind.to_be_bytes();
            reply(output, option, option_reply::INFO, &[&kind, parts[0], parts[1], parts[2]]);
        };
        let flags = export_flags(export, self.structured).to_be_bytes();
        tell(info::EXPORT, [&export.size_bytes.to_be_bytes(), &flags, &[]]);
        if wants.wants_name {
            tell(info::NAME, [export.name.as_bytes(), &[], &[]]);
        }
        if wants.wants_description && !export.description.is_empty() {
            tell(info::DESCRIPTION, [export.description.as_bytes(), &[], &[]]);
        }
        // Sent without being requested: it costs a client nothing and saves it from EINVAL.
        let best = u32::try_from(BLOCK_BYTES).expect("a block is small").to_be_bytes();
        let longest = u32::try_from(DATA_BYTES_MAX).expect("checked in limits.rs").to_be_bytes();
        tell(info::BLOCK_SIZE, [&export.min_block_bytes.to_be_bytes(), &best, &longest]);
        reply(output, option, option_reply::ACK, &[]);
    }

    fn meta_context(
        &mut self,
        option: u32,
        data: &[u8],
        directory: &impl Directory,
        output: &mut Vec<u8>,
    ) {
        let set = option == option::SET_META_CONTEXT;
        // Only a successful choice counts, and it replaces the one before.
        if set {
            self.allocation_of = None;
        }
        let query = match parse_meta_query(data, set, self.structured, directory) {
            Ok(query) => query,
            Err(refusal) => return refuse(output, option, &refusal),
        };
        if query.matches {
            // A list has no use for the number, and the protocol wants it to be 0.
            let id = if set { allocation::ID } else { 0 }.to_be_bytes();
            reply(output, option, option_reply::META_CONTEXT, &[&id, allocation::NAME]);
            if set {
                self.allocation_of = Some(query.export);
            }
        }
        reply(output, option, option_reply::ACK, &[]);
    }
}

/// Answers a client that gets nothing.
fn forbidden(option: u32, reason: &str, output: &mut Vec<u8>) -> Step {
    match option {
        option::EXPORT_NAME => return Step::Close(DisconnectReason::Policy),
        option::ABORT => {
            reply(output, option, option_reply::ACK, &[]);
            return Step::Close(DisconnectReason::Requested);
        }
        _ => reply(output, option, option_reply::ERR_POLICY, &[reason.as_bytes()]),
    }
    Step::Continue
}

fn parse_info(data: &[u8]) -> Option<(&[u8], Entering)> {
    let mut fields = Fields(data);
    let name = fields.string()?;
    let count = fields.u16()?;
    let mut wants = Entering::default();
    for _ in 0..count {
        match fields.u16()? {
            info::NAME => wants.wants_name = true,
            info::DESCRIPTION => wants.wants_description = true,
            _ => {}
        }
    }
    fields.is_empty().then_some((name, wants))
}

fn parse_meta_query(
    data: &[u8],
    set: bool,
    structured: bool,
    directory: &impl Directory,
) -> Result<MetaQuery, Refusal> {
    let mut fields = Fields(data);
    let name = fields.string().ok_or(Refusal::Malformed)?;
    let count = fields.u32().ok_or(Refusal::Malformed)?;
    // No query at all lists everything, but sets nothing.
    let mut matches = count == 0 && !set;
    for _ in 0..count {
        let query = fields.string().ok_or(Refusal::Malformed)?;
        matches |= query == allocation::NAME || (!set && query == allocation::NAMESPACE);
    }
    if !fields.is_empty() {
        return Err(Refusal::Malformed);
    }
    if !structured {
        return Err(Refusal::NeedsStructured);
    }
    let export = directory.find(name).ok_or(Refusal::UnknownExport)?.id;
    Ok(MetaQuery { export, matches })
}

fn refuse(output: &mut Vec<u8>, option: u32, refusal: &Refusal) {
    let (kind, message) = match refusal {
        Refusal::Malformed => (option_reply::ERR_INVALID, "malformed option"),
        Refusal::UnknownExport => (option_reply::ERR_UNKNOWN, "no such export"),
        Refusal::NeedsStructured => {
            (option_reply::ERR_INVALID, "negotiate structured replies first")
        }
    };
    reply(output, option, kind, &[message.as_bytes()]);
}
