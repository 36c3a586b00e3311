//! What can happen next in a small world.

use super::tape::Tape;
use std::fmt;

/// Blocks, or sectors, of a volume: reduced modulo its size where they are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub volume: u8,
    /// First block.
    pub block: u16,
    pub blocks: u8,
    /// Sectors cut off at both ends of the range.
    pub cut: u8,
}

/// What a guest or an operator asks of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    Read,
    /// A write, durable or not.
    Write {
        /// Durable.
        fua: bool,
    },
    /// Zeroes, or a trim.
    Zero {
        trim: bool,
        /// Durable.
        fua: bool,
    },
    Flush,
    /// An operator's invalidation.
    Invalidate,
}

/// How an I/O ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Well,
    /// With an error, and nothing has happened.
    Failed,
    /// With an error, and all of it has happened.
    FailedDone,
    /// With an error, and the first half has happened.
    FailedHalf,
}

/// What becomes of I/O under way, and of what is not durable, at a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crash {
    /// The host loses power: the SSD loses what was not flushed.
    pub host: bool,
    /// So do the backends' hosts.
    pub backends: bool,
    /// Chooses what of it is kept: 0 nothing that was under way, 1 all of it, others each its own.
    pub fate: u8,
}

/// The cache device of the next session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    Same,
    /// None.
    Away,
    /// Another one: the one that was there before, or a new one.
    Other,
}

/// What happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// These kinds of I/O are held from now on; see [`Class`](super::class::Class). Bit 14: and wakes.
    Hold(u16),
    /// A request.
    Submit(Ask, Place),
    /// So many single blocks, one after the other, from a place on.
    Row(Ask, Place, u8),
    /// The next requests are given to the engine in one batch.
    Batch(u8),
    /// An I/O that is held ends.
    Complete(u8, End),
    /// All held I/O of one kind ends well, in one batch.
    CompleteAll(u8),
    /// A backend I/O that is held takes longer than the bound.
    Overdue(u8),
    /// Time passes, in ms.
    Time(u16),
    /// The engine is woken although it did not ask for it, or before its time.
    Wake,
    /// New modes and shares of a volume.
    Plan(u8, u8),
    /// A volume is detached, or attached again.
    Toggle(u8),
    /// A volume that is not attached is forgotten.
    Forget(u8),
    /// Another host writes a volume that is not attached.
    Foreign(Place),
    /// Another device is to take the place of the one in use.
    Replace,
    /// What that waits for beside the engine happens: the new device is formatted, or the host has
    /// recorded that the volumes are its own.
    NextOfDevice,
    /// A cached block or a page of metadata rots.
    Rot(u8),
    /// The device fails from now on.
    DeviceFails,
    /// The engine dies.
    Crash(Crash, Device),
    /// A clean stop, and a start with this device.
    Stop(Device),
}

impl Move {
    /// A small number for its kind.
    pub(super) const fn kind(&self) -> u64 {
        match self {
            Self::Hold(_) | Self::Batch(_) => 0,
            Self::Submit(ask, _) | Self::Row(ask, ..) => match ask {
                Ask::Read => 1,
                Ask::Write { .. } => 2,
                Ask::Zero { trim: false, .. } => 3,
                Ask::Zero { trim: true, .. } => 4,
                Ask::Flush => 5,
                Ask::Invalidate => 6,
            },
            Self::Complete(..) | Self::CompleteAll(_) => 7,
            Self::Overdue(_) => 8,
            Self::Time(_) => 9,
            Self::Wake => 10,
            Self::Plan(..) => 11,
            Self::Toggle(_) => 12,
            Self::Forget(_) => 13,
            Self::Foreign(_) => 14,
            Self::Replace | Self::NextOfDevice => 15,
            Self::Rot(_) => 16,
            Self::DeviceFails => 17,
            Self::Crash(Crash { host: false, .. }, _) => 18,
            Self::Crash(..) => 19,
            Self::Stop(_) => 20,
        }
    }

    /// The next move of a tape; `None` when it has ended.
    pub(super) fn from_tape(tape: &mut Tape<'_>) -> Option<Self> {
        let code = tape.next()?;
        Some(match code {
            0..40 => Self::Submit(ask(code), place(tape)),
            40..70 => {
                let place = place(tape);
                Self::Row(ask(code % 3), place, tape.byte() % 64 + 1)
            }
            70..95 => Self::Hold(u16::from_le_bytes([tape.byte(), tape.byte()])),
            95..120 => Self::Hold(1 << (code % 15)),
            120..126 => Self::Batch(code % 4 + 2),
            126..150 => Self::Complete(tape.byte(), End::Well),
            150..156 => Self::Complete(tape.byte(), End::Failed),
            156..159 => Self::Complete(tape.byte(), End::FailedDone),
            159..162 => Self::Complete(tape.byte(), End::FailedHalf),
            162..180 => Self::CompleteAll(code % 14),
            180..183 => Self::Overdue(tape.byte()),
            183..198 => Self::Time([1, 500, 1000, 1000, 3500][usize::from(code % 5)]),
            198..204 => Self::Wake,
            204..208 => Self::Plan(code % 2, tape.byte()),
            208..214 => Self::Toggle(code % 2),
            214..217 => Self::Forget(code % 2),
            217..220 => Self::Foreign(place(tape)),
            220..222 => Self::Replace,
            222 => Self::NextOfDevice,
            223..226 => Self::Rot(tape.byte()),
            226 => Self::DeviceFails,
            227..244 => {
                let fate = tape.byte();
                let (host, backends) = (code % 3 == 1, fate & 0xC0 == 0xC0);
                Self::Crash(Crash { host, backends, fate: fate & 0x3F }, device(code))
            }
            244..=255 => Self::Stop(device(code)),
        })
    }
}

const fn device(code: u8) -> Device {
    match code {
        242 | 254 => Device::Away,
        243 | 255 => Device::Other,
        _ => Device::Same,
    }
}

const fn ask(code: u8) -> Ask {
    match code % 20 {
        0 | 3 | 6 | 9 | 12 => Ask::Read,
        1 | 4 | 7 => Ask::Write { fua: false },
        10 | 13 => Ask::Write { fua: true },
        2 | 5 => Ask::Zero { trim: false, fua: false },
        8 => Ask::Zero { trim: false, fua: true },
        11 => Ask::Zero { trim: true, fua: false },
        14 => Ask::Zero { trim: true, fua: true },
        15..=17 => Ask::Flush,
        _ => Ask::Invalidate,
    }
}

fn place(tape: &mut Tape<'_>) -> Place {
    let (flags, block) = (tape.byte(), tape.byte());
    // Few blocks in all, most of the time: they shall meet.
    let block = if flags & 2 == 0 { u16::from(block % 8) } else { u16::from(block) * 3 };
    let blocks = match flags >> 2 & 7 {
        0..=3 => 1,
        4 => 2,
        5 => 5,
        6 => 64,
        _ => 255,
    };
    let cut = if flags & 0x80 == 0 { 0 } else { flags >> 5 & 3 };
    Place { volume: flags & 1, block, blocks, cut }
}

impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hold(classes) => write!(f, "hold {classes:#017b}"),
            other => write!(f, "{other:?}"),
        }
    }
}
