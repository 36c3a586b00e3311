//! The conversation before the first request: straight-line, bounded in replies, bytes and memory.
//!
//! Fixed newstyle only; `GO`, or `EXPORT_NAME` with servers that know no better. TLS is not spoken.

use super::export_info::Export;
use super::proto::{self, be16, be32, be64, info, option, option_reply};
use std::io::{self, Read, Write};

/// Replies to one option; a server has a handful to give.
const REPLIES_MAX: u32 = 64;
/// Longest reply to an option; what is not of use is read and dropped.
const REPLY_BYTES_MAX: u32 = 64 << 10;

/// Why a handshake came to nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Something else listens there.
    #[error("it is no NBD server")]
    Stranger,
    /// A server that knows no options, or can't say no to them.
    #[error("it speaks the old style of NBD only")]
    OldStyle,
    /// No such export.
    #[error("it has no export {0:?}")]
    Export(String),
    /// TLS is demanded.
    #[error("it demands TLS, which is not supported")]
    Tls,
    /// Not to us.
    #[error("it refuses this client")]
    Policy,
    /// It is about to end.
    #[error("it is shutting down")]
    Shutdown,
    /// Another error.
    #[error("it refuses with error {0:#x}")]
    Other(u32),
    /// It broke the protocol.
    #[error("it breaks the protocol: {0}")]
    Protocol(&'static str),
}

impl Refusal {
    /// A line that helps.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Stranger | Self::Protocol(_) => "check the address",
            Self::OldStyle => "use a server that speaks fixed newstyle NBD (all of this decade do)",
            Self::Export(_) => "nbdinfo --list URI shows the exports it has",
            Self::Tls => "use a unix socket, or a tunnel (ssh, WireGuard, stunnel) in front of it",
            Self::Policy | Self::Other(_) => "see the server's log",
            Self::Shutdown => "start it again",
        }
    }
}

/// Why there is no export.
#[derive(Debug)]
pub enum Trouble {
    /// The stream failed or ended.
    Io(io::Error),
    /// The server said no.
    Refused(Refusal),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Refusal> for Trouble {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

const fn broken(what: &'static str) -> Trouble {
    Trouble::Refused(Refusal::Protocol(what))
}

/// Enters an export. Afterwards the stream is at the first byte of the first reply.
///
/// # Errors
/// [`Trouble`]; the stream is of no use then.
pub fn enter(stream: &mut (impl Read + Write), name: &str) -> Result<Export, Trouble> {
    let no_zeroes = greet(stream)?;
    let structured = agree_on_structured(stream)?;
    if let Some(export) = go(stream, name, structured)? {
        return Ok(export);
    }
    enter_by_name(stream, name, structured, no_zeroes)
}

/// Takes the greeting and answers it. True if both leave out the zeros.
fn greet(stream: &mut (impl Read + Write)) -> Result<bool, Trouble> {
    let mut magic = [0; 16];
    stream.read_exact(&mut magic)?;
    if be64(&magic, 0) != proto::GREETING_MAGIC {
        return Err(Refusal::Stranger.into());
    }
    match be64(&magic, 8) {
        proto::OPTION_MAGIC => {}
        proto::OLD_STYLE_MAGIC => return Err(Refusal::OldStyle.into()),
        _ => return Err(Refusal::Stranger.into()),
    }
    let mut flags = [0; 2];
    stream.read_exact(&mut flags)?;
    let flags = be16(&flags, 0);
    if flags & proto::FIXED_NEWSTYLE == 0 {
        return Err(Refusal::OldStyle.into());
    }
    let ours = flags & (proto::FIXED_NEWSTYLE | proto::NO_ZEROES);
    stream.write_all(&u32::from(ours).to_be_bytes())?;
    Ok(ours & proto::NO_ZEROES != 0)
}

fn agree_on_structured(stream: &mut (impl Read + Write)) -> Result<bool, Trouble> {
    ask(stream, option::STRUCTURED_REPLY, &[])?;
    match reply(stream, option::STRUCTURED_REPLY, &mut [])? {
        (option_reply::ACK, _) => Ok(true),
        (option_reply::ERR_TLS_REQD, _) => Err(Refusal::Tls.into()),
        (kind, _) if kind & option_reply::ERROR != 0 => Ok(false),
        _ => Err(broken("an unknown reply to an option")),
    }
}

/// Enters with `GO`; `None` if the server does not know it.
fn go(
    stream: &mut (impl Read + Write),
    name: &str,
    structured: bool,
) -> Result<Option<Export>, Trouble> {
    let mut wish = (name.len() as u32).to_be_bytes().to_vec();
    wish.extend(name.as_bytes());
    wish.extend(1_u16.to_be_bytes());
    wish.extend(info::BLOCK_SIZE.to_be_bytes());
    ask(stream, option::GO, &wish)?;
    let mut sizes = None;
    let mut blocks = None;
    for _ in 0..REPLIES_MAX {
        let mut data = [0; 14];
        let (kind, len) = reply(stream, option::GO, &mut data)?;
        match kind {
            option_reply::ACK => {
                let (size_bytes, flags) = sizes.ok_or(broken("an export without a size"))?;
                return Ok(Some(Export { size_bytes, flags, blocks, structured }));
            }
            option_reply::INFO if len < 2 => return Err(broken("a reply that is too short")),
            option_reply::INFO => match (be16(&data, 0), len) {
                (info::EXPORT, 12) => sizes = Some((be64(&data, 2), be16(&data, 10))),
                (info::BLOCK_SIZE, 14) => blocks = Some((be32(&data, 2), be32(&data, 10))),
                (info::EXPORT | info::BLOCK_SIZE, _) => {
                    return Err(broken("information of a wrong length"));
                }
                _ => {}
            },
            option_reply::ERR_UNSUP => return Ok(None),
            kind if kind & option_reply::ERROR != 0 => return Err(refusal(kind, name).into()),
            _ => return Err(broken("an unknown reply to an option")),
        }
    }
    Err(broken("too many replies to an option"))
}

/// The old way in: the server answers with the size, or hangs up.
fn enter_by_name(
    stream: &mut (impl Read + Write),
    name: &str,
    structured: bool,
    no_zeroes: bool,
) -> Result<Export, Trouble> {
    ask(stream, option::EXPORT_NAME, name.as_bytes())?;
    let mut data = [0; 10];
    stream.read_exact(&mut data).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => Refusal::Export(name.into()).into(),
        _ => Trouble::Io(error),
    })?;
    if !no_zeroes {
        stream.read_exact(&mut [0; proto::EXPORT_NAME_ZEROES])?;
    }
    let (size_bytes, flags) = (be64(&data, 0), be16(&data, 8));
    Ok(Export { size_bytes, flags, blocks: None, structured })
}

fn refusal(kind: u32, name: &str) -> Refusal {
    match kind {
        option_reply::ERR_UNKNOWN => Refusal::Export(name.into()),
        option_reply::ERR_TLS_REQD => Refusal::Tls,
        option_reply::ERR_POLICY => Refusal::Policy,
        option_reply::ERR_SHUTDOWN => Refusal::Shutdown,
        _ => Refusal::Other(kind),
    }
}

fn ask(stream: &mut impl Write, option: u32, data: &[u8]) -> io::Result<()> {
    let mut bytes = proto::OPTION_MAGIC.to_be_bytes().to_vec();
    bytes.extend(option.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
    stream.write_all(&bytes)
}

/// The next reply: its type, and the length of its data, of which `keep` gets the beginning.
fn reply(stream: &mut impl Read, option: u32, keep: &mut [u8]) -> Result<(u32, usize), Trouble> {
    let mut head = [0; 20];
    stream.read_exact(&mut head)?;
    if be64(&head, 0) != proto::OPTION_REPLY_MAGIC {
        return Err(broken("no reply to an option"));
    }
    if be32(&head, 8) != option {
        return Err(broken("a reply to another option"));
    }
    let (kind, len) = (be32(&head, 12), be32(&head, 16));
    if len > REPLY_BYTES_MAX {
        return Err(broken("a reply that is too long"));
    }
    let len = len as usize;
    let kept = len.min(keep.len());
    stream.read_exact(&mut keep[..kept])?;
    let mut rest = len - kept;
    let mut waste = [0; 512];
    while rest > 0 {
        let part = rest.min(waste.len());
        stream.read_exact(&mut waste[..part])?;
        rest -= part;
    }
    Ok((kind, len))
}

#[cfg(test)]
mod tests;
