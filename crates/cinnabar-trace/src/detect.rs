//! Recognises a trace's format by its beginning, never by its name.
//!
//! The rules, in this order:
//!
//! 1. Nothing at all is an empty trace in canonical form.
//! 2. What begins as a packed file does is refused, by the packer's name: tar, zip, bzip2 ..., and
//!    also gzip, xz and zstd within one of these.
//! 3. Bytes below 32 other than tab and line ends make a file binary. Then: blktrace, by its magic
//!    number; vscsi of version 1 or 2, if all whole records say so; oracleGeneral, if in all whole
//!    records time does not go back and the next access is behind the access or none.
//! 4. Text: the first of 256 lines that some format takes decides. So a bad first line is reported as
//!    such, and a file that is no trace is distinguished from a damaged trace. A format takes a line
//!    that its parser takes: a recognised trace can be read.
//!
//! Most formats of text differ in every line, by where the operation stands and how it is written:
//! `1,0,R,0,512` is canonical, `1,R,0,512,0` Alibaba's, `1,0,512,1,0` Tencent's, `1,0,512,R,0` SPC's;
//! `x,y,z,Read,...` with seven fields is MSR's. `SSDsim` and `DiskSim` both have five numbers, and differ
//! in the unit of time: a decimal point in a time, or flags above 1, in any of the lines, is `DiskSim`'s.
//! fio, Systor '17 and tracefs have a header; the latter two are also known without.

use crate::canonical;
use crate::error::{Problem, Unknown};
use crate::format::Format;
use crate::formats::{
    self, Binary, Text, alibaba, arc, disksim, fio, fiu, msr, oracle, spc, ssdsim, systor, tencent,
};
use crate::lines::LINE_BYTES_MAX;
use crate::sink::Sink;
use crate::source::Packing;
use formats::blkparse::BlkParse;
use formats::blktrace::BlkTrace;
use formats::tracefs::TraceFs;
use formats::vscsi::Vscsi;

/// How much of a trace is looked at.
pub(crate) const HEAD_BYTES: usize = 64 << 10;
const LINES_MAX: usize = 256;
/// Most characters shown of a line that no format takes.
const SHOWN_CHARS_MAX: usize = 60;
const TAR_MAGIC_AT: usize = 257;

/// Formats of text whose parser recognises its own lines. No two of them take the same line, except
/// that `DiskSim` takes what `SSDsim` does.
const BY_LINE: [Format; 10] = [
    Format::Canonical,
    Format::Msr,
    Format::Spc,
    Format::Alibaba,
    Format::Tencent,
    Format::Systor,
    Format::Fiu,
    Format::SsdSim,
    Format::DiskSim,
    Format::Arc,
];

/// How the lines or records of a format are read; the canonical form has its own reader.
pub(crate) enum Parser {
    Canonical,
    Text(Box<dyn Text>),
    Binary(Box<dyn Binary>),
}

/// The parser of a format, for a trace that begins so.
pub(crate) fn parser(format: Format, head: &[u8]) -> Parser {
    let text: Box<dyn Text> = match format {
        Format::Canonical => return Parser::Canonical,
        Format::Vscsi1 => return Parser::Binary(Box::new(Vscsi::V1)),
        Format::Vscsi2 => return Parser::Binary(Box::new(Vscsi::V2)),
        Format::OracleGeneral => return Parser::Binary(Box::new(oracle::Oracle)),
        Format::BlkTrace => return Parser::Binary(Box::new(BlkTrace::new(head))),
        Format::Msr => Box::new(msr::Msr::default()),
        Format::Spc => Box::new(spc::Spc),
        Format::Alibaba => Box::new(alibaba::Alibaba),
        Format::Tencent => Box::new(tencent::Tencent),
        Format::Systor => Box::new(systor::Systor),
        Format::Fiu => Box::new(fiu::Fiu::default()),
        Format::BlkParse => Box::new(BlkParse::new(head)),
        Format::TraceFs => Box::new(TraceFs),
        Format::Fio2 => Box::new(fio::Fio::new(false)),
        Format::Fio3 => Box::new(fio::Fio::new(true)),
        Format::SsdSim => Box::new(ssdsim::SsdSim),
        Format::DiskSim => Box::new(disksim::DiskSim),
        Format::Arc => Box::new(arc::Arc),
    };
    Parser::Text(text)
}

/// The format of a trace that begins so.
pub(crate) fn detect(head: &[u8]) -> Result<Format, Unknown> {
    if head.is_empty() {
        return Ok(Format::Canonical);
    }
    if let Some(packer) = packer(head) {
        return Err(Unknown::Packed(packer));
    }
    let is_text = |&byte: &u8| byte >= b' ' || matches!(byte, b'\t' | b'\n' | b'\r');
    if head.iter().all(is_text) { of_text(head) } else { of_binary(head).ok_or(Unknown::Binary) }
}

fn packer(head: &[u8]) -> Option<&'static str> {
    if Packing::of(head) != Packing::Plain {
        return Some(Packing::of(head).name());
    }
    if head.get(TAR_MAGIC_AT..).is_some_and(|rest| rest.starts_with(b"ustar")) {
        return Some("tar");
    }
    let magics: [(&[u8], &str); 4] = [
        (b"BZh", "bzip2"),
        (b"PK\x03\x04", "zip"),
        (b"7z\xBC\xAF\x27\x1C", "7z"),
        (b"\x04\x22\x4D\x18", "lz4"),
    ];
    magics.into_iter().find(|(magic, _)| head.starts_with(magic)).map(|(_, name)| name)
}

fn of_binary(head: &[u8]) -> Option<Format> {
    if BlkTrace::fits(head) {
        Some(Format::BlkTrace)
    } else if Vscsi::V1.fits(head) {
        Some(Format::Vscsi1)
    } else if Vscsi::V2.fits(head) {
        Some(Format::Vscsi2)
    } else {
        oracle::Oracle::fits(head).then_some(Format::OracleGeneral)
    }
}

fn of_text(head: &[u8]) -> Result<Format, Unknown> {
    let found = lines(head).find_map(of_line);
    match found {
        // The two that look the same: one line that only DiskSim takes is enough.
        Some(Format::SsdSim) => {
            let only_disksim = |line| !takes(Format::SsdSim, line) && takes(Format::DiskSim, line);
            let is_disksim = lines(head).any(only_disksim);
            Ok(if is_disksim { Format::DiskSim } else { Format::SsdSim })
        }
        Some(format) => Ok(format),
        None => Err(Unknown::Text(shown(lines(head).next().unwrap_or_default()))),
    }
}

/// The first lines that are not blank; the last one may be cut short.
fn lines(head: &[u8]) -> impl Iterator<Item = &[u8]> {
    head.split(|&byte| byte == b'\n')
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
        .filter(|line| !line.trim_ascii().is_empty() && line.len() < LINE_BYTES_MAX)
        .take(LINES_MAX)
}

fn of_line(line: &[u8]) -> Option<Format> {
    // There may be more names than lines are looked at.
    if canonical::name_in(line).is_some() {
        return Some(Format::Canonical);
    }
    if line == fio::HEADERS[0].as_bytes() {
        return Some(Format::Fio2);
    }
    if line == fio::HEADERS[1].as_bytes() {
        return Some(Format::Fio3);
    }
    if TraceFs::fits(line) {
        return Some(Format::TraceFs);
    }
    if BlkParse::fits(line) {
        return Some(Format::BlkParse);
    }
    BY_LINE.into_iter().find(|&format| takes(format, line))
}

/// Does the format's own parser take this line?
fn takes(format: Format, line: &[u8]) -> bool {
    let parsed: Result<(), Problem> = match parser(format, &[]) {
        Parser::Canonical => canonical::parse(line).map(|_| ()),
        Parser::Text(mut text) => text.parse(line, &mut Sink::default()),
        Parser::Binary(_) => return false,
    };
    parsed.is_ok()
}

fn shown(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let mut chars = text.chars();
    let mut shown: String =
        chars.by_ref().take(SHOWN_CHARS_MAX).flat_map(char::escape_default).collect();
    if chars.next().is_some() {
        shown.push_str("...");
    }
    shown
}
