//! What a server said of its export, and whether it will do.
//!
//! Called at the end of each handshake.

use super::error::NbdError;
use super::proto::export_flag as flag;
use super::receiver::Dialect;

/// Longest payload to a server that names no bound: the protocol's word for those.
const PAYLOAD_BYTES_MAX: u32 = 32 << 20;
/// Longest trim or zeroing at a time: nothing but patience bounds these.
const RANGE_BYTES_MAX: u32 = 128 << 20;

/// An export, as the handshake brought it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Export {
    pub size_bytes: u64,
    /// Transmission flags.
    pub flags: u16,
    /// Smallest and largest block in bytes, if the server told.
    pub blocks: Option<(u32, u32)>,
    /// Structured replies were agreed on.
    pub structured: bool,
}

/// An export that will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportInfo {
    /// Its size in bytes, a multiple of `align_bytes`.
    pub size_bytes: u64,
    /// Alignment of requests: 512 or 4096.
    pub align_bytes: u32,
    /// Longest payload of a request, a multiple of `align_bytes`.
    pub payload_bytes_max: u32,
    /// Longest trim or zeroing.
    pub range_bytes_max: u32,
    /// Writes are refused.
    pub read_only: bool,
    /// Knows FLUSH. Else what it has replied to is as durable as it gets.
    pub flush: bool,
    /// Knows FUA.
    pub fua: bool,
    /// Knows TRIM.
    pub trim: bool,
    /// Knows `WRITE_ZEROES`.
    pub zeroes: bool,
    /// Several connections see each other's writes and flush them.
    pub multi: bool,
    /// How it replies.
    pub dialect: Dialect,
}

impl ExportInfo {
    /// Judges an export; `read_only` is how the volume is to be used.
    ///
    /// # Errors
    /// [`NbdError`] if it can't be a volume.
    pub fn judge(export: &Export, read_only: bool) -> Result<Self, NbdError> {
        let has = |bit| export.flags & flag::HAS_FLAGS != 0 && export.flags & bit != 0;
        let (min, max) = export.blocks.unwrap_or((1, PAYLOAD_BYTES_MAX));
        if !min.is_power_of_two() || max < min {
            return Err(NbdError::BlockSizes { min, max });
        }
        if min > 4096 {
            return Err(NbdError::BlockSize(min));
        }
        let align_bytes = if min <= 512 { 512 } else { 4096 };
        if export.size_bytes == 0 {
            return Err(NbdError::Empty);
        }
        // What fits an offset of the kernel's fits everywhere.
        if !export.size_bytes.is_multiple_of(u64::from(align_bytes))
            || export.size_bytes > i64::MAX.cast_unsigned()
        {
            return Err(NbdError::OddSize { size: export.size_bytes, align: align_bytes });
        }
        let payload_bytes_max = max.min(PAYLOAD_BYTES_MAX) / align_bytes * align_bytes;
        if payload_bytes_max == 0 {
            return Err(NbdError::BlockSizes { min, max });
        }
        if has(flag::READ_ONLY) && !read_only {
            return Err(NbdError::ReadOnly);
        }
        Ok(Self {
            size_bytes: export.size_bytes,
            align_bytes,
            payload_bytes_max,
            range_bytes_max: RANGE_BYTES_MAX,
            read_only: has(flag::READ_ONLY) || read_only,
            flush: has(flag::SEND_FLUSH),
            fua: has(flag::SEND_FUA),
            trim: has(flag::SEND_TRIM),
            zeroes: has(flag::SEND_WRITE_ZEROES),
            multi: has(flag::CAN_MULTI_CONN),
            dialect: if export.structured { Dialect::Structured } else { Dialect::Simple },
        })
    }

    /// Whether a volume that was attached with `self` can go on with `now`.
    ///
    /// # Errors
    /// [`NbdError::Resized`], [`NbdError::Coarser`].
    pub fn check_successor(&self, now: &Self) -> Result<(), NbdError> {
        // What has grown is served as far as it went before.
        if now.size_bytes < self.size_bytes {
            return Err(NbdError::Resized { before: self.size_bytes, now: now.size_bytes });
        }
        if now.align_bytes > self.align_bytes {
            return Err(NbdError::Coarser { before: self.align_bytes, now: now.align_bytes });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn export(size_bytes: u64, flags: u16, blocks: Option<(u32, u32)>) -> Export {
        Export { size_bytes, flags: flags | flag::HAS_FLAGS, blocks, structured: true }
    }

    fn judge(size_bytes: u64, blocks: Option<(u32, u32)>) -> Result<ExportInfo, NbdError> {
        ExportInfo::judge(&export(size_bytes, 0, blocks), false)
    }

    #[test]
    fn block_sizes_become_an_alignment_and_a_bound() {
        for (blocks, align, max) in [
            (None, 512, 32 << 20),
            (Some((1, u32::MAX)), 512, 32 << 20),
            (Some((512, 65_536)), 512, 65_536),
            (Some((1024, 65_536)), 4096, 65_536),
            (Some((4096, 70_000)), 4096, 69_632),
        ] {
            let export = judge(1 << 20, blocks).expect("it will do");
            assert_eq!((export.align_bytes, export.payload_bytes_max), (align, max), "{blocks:?}");
        }
        for blocks in [(0, 512), (513, 1024), (512, 256), (1024, 1024), (1, 100)] {
            let error = judge(1 << 20, Some(blocks)).expect_err("impossible");
            assert!(matches!(error, NbdError::BlockSizes { .. }), "{blocks:?}: {error}");
        }
        assert_eq!(judge(1 << 20, Some((8192, 65_536))), Err(NbdError::BlockSize(8192)));
    }

    #[test]
    fn sizes_are_whole_blocks() {
        assert_eq!(judge(0, None), Err(NbdError::Empty));
        assert_eq!(judge(513, None), Err(NbdError::OddSize { size: 513, align: 512 }));
        let odd = NbdError::OddSize { size: 512, align: 4096 };
        assert_eq!(judge(512, Some((4096, 65_536))), Err(odd));
        assert!(judge(u64::MAX - 511, None).is_err(), "beyond any offset");
    }

    #[test]
    fn flags_count_only_with_the_flag_that_says_so() {
        let mute = Export { flags: flag::SEND_FLUSH, ..export(4096, 0, None) };
        assert!(!ExportInfo::judge(&mute, false).expect("it will do").flush);
        let read_only = export(4096, flag::READ_ONLY, None);
        assert_eq!(ExportInfo::judge(&read_only, false), Err(NbdError::ReadOnly));
        assert!(ExportInfo::judge(&read_only, true).expect("it is not written").read_only);
    }

    #[test]
    fn a_successor_is_no_smaller_and_has_no_larger_blocks() {
        let before = judge(1 << 20, None).expect("it will do");
        assert_eq!(before.check_successor(&before), Ok(()));
        let larger = judge(2 << 20, None).expect("it will do");
        assert_eq!(before.check_successor(&larger), Ok(()));
        assert!(matches!(larger.check_successor(&before), Err(NbdError::Resized { .. })));
        let coarser = judge(1 << 20, Some((4096, 65_536))).expect("it will do");
        assert!(matches!(before.check_successor(&coarser), Err(NbdError::Coarser { .. })));
        assert_eq!(coarser.check_successor(&before), Ok(()));
    }
}
