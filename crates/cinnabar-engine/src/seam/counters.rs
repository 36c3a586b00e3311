//! What the engine counts: plain integers, read by the driver between two events.

/// Block reads or writes that did not use the cache, by reason, in blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bypassed {
    /// Part of a long sequential run.
    pub sequential: u64,
    /// A single large request.
    pub large: u64,
    /// The volume is in pass-through mode.
    pub pass_through: u64,
    /// A write in write-around mode.
    pub write_around: u64,
    /// A write that the volume's history says is not worth keeping.
    pub write_not_reused: u64,
    /// No free buffer or segment at that moment.
    pub no_space: u64,
    /// The index was still being loaded.
    pub loading: u64,
    /// The cache device is not in use.
    pub no_device: u64,
}

/// Blocks written to flash, by what earned it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Admitted {
    /// The share still had free room.
    pub filling: u64,
    /// Used again while in probation.
    pub referenced: u64,
    /// Missed again soon after it had left (ghost hit).
    pub ghost: u64,
    /// Plain CLOCK admits everything.
    pub all: u64,
    /// Written out by a clean stop.
    pub clean_stop: u64,
}

/// What was read, and what each way of admission would have made of it: estimates by small simulations
/// of sampled blocks (docs/design/eviction.md), in blocks of the whole cache. Expected gain: the
/// misses of [`open`](Self::open) less those of the way taken; actual gain: less
/// [`read_misses`](Self::read_misses).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trials {
    /// Blocks read.
    pub reads: u64,
    /// Of those, not cached.
    pub read_misses: u64,
    /// Times that another way was taken.
    pub changes: u64,
    /// As thrifty, and what comes back waits in probation, too.
    pub closed: Trial,
    /// Through probation; written blocks by their volume's history.
    pub thrifty: Trial,
    /// Through probation, reads and writes alike.
    pub probation: Trial,
    /// Everything.
    pub open: Trial,
}

/// What one way of admission would have cost, in blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trial {
    /// Shards that take it now.
    pub shards: u64,
    /// Blocks read that were not cached.
    pub read_misses: u64,
    /// Blocks written to flash, without metadata and what is reinserted.
    pub flash_writes: u64,
}

/// Counters of one volume. "Blocks" are 4 KiB blocks touched by requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeCounters {
    /// Read requests.
    pub reads: u64,
    /// Write requests (data; trims and zeroes are apart).
    pub writes: u64,
    /// Flush requests.
    pub flushes: u64,
    /// Trim requests.
    pub trims: u64,
    /// Write-zeroes requests.
    pub zeroes: u64,
    /// Blocks touched by reads; `read_hits + misses`.
    pub blocks_read: u64,
    /// Blocks touched by writes.
    pub blocks_written: u64,
    /// Read blocks served from RAM or SSD.
    pub read_hits: u64,
    /// Of those, from RAM (probation, open segments).
    pub read_hits_ram: u64,
    /// Of those, from segments that were not on flash yet.
    pub read_hits_staged: u64,
    /// Read blocks fetched from the backend.
    pub misses: u64,
    /// Read requests with both.
    pub partial_hits: u64,
    /// Written blocks that were cached.
    pub write_hits: u64,
    /// By reason.
    pub bypassed: Bypassed,
    /// Backend read operations.
    pub backend_reads: u64,
    /// Backend write operations (data, trims and zeroes).
    pub backend_writes: u64,
    /// Backend flushes.
    pub backend_flushes: u64,
    /// Bytes read from the backend.
    pub backend_read_bytes: u64,
    /// Bytes written to the backend.
    pub backend_write_bytes: u64,
    /// Backend operations that failed.
    pub backend_errors: u64,
    /// Backend operations that took longer than the driver's bound.
    pub backend_overdue: u64,
    /// Writes, trims and zeroes that had to wait for an invalidation record.
    pub invalidation_waits: u64,
    /// Those to cached blocks that waited for none, in active regions.
    pub region_writes: u64,
    /// Blocks dropped by the operator's word.
    pub invalidated_blocks: u64,
    /// Blocks of an earlier run that were not believed at its attach; complete once the index is
    /// loaded.
    pub dropped_blocks: u64,
    /// Requests refused as invalid.
    pub refused: u64,
    /// Blocks that had earned flash while the volume's cap on fills let nothing in.
    pub capped_blocks: u64,
    /// Blocks of this volume in RAM or on flash now.
    pub cached_blocks: u64,
    /// Blocks of its own share now, as far as it has one: what it may keep while others want more.
    pub share_blocks: u64,
    /// Shards in which it has a share of its own; in the others it is one of those that share a part.
    pub own_shares: u64,
}

/// Counters of the cache as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounters {
    /// Blocks that fit on flash (header slots not counted), at the size that the cache has now: of one
    /// that becomes smaller, the size that it is going to have.
    pub capacity_blocks: u64,
    /// Segments that a resize under way has to empty or to make room for, and how many of them are
    /// done; 0 if there is none.
    pub resize_segments: u64,
    /// See there.
    pub resize_segments_done: u64,
    /// Blocks cached now, RAM included: those that may be served, of volumes that are attached, or
    /// were and may come back.
    pub cached_blocks: u64,
    /// Of those, in RAM only.
    pub ram_blocks: u64,
    /// Blocks in chunks that are being filled or written: not on flash yet either.
    pub staged_blocks: u64,
    /// Blocks of which RAM holds some sectors, not counted as cached.
    pub partial_blocks: u64,
    /// Read blocks that were served from such sectors.
    pub partials_read: u64,
    /// Such blocks that became whole by further writes.
    pub partials_completed: u64,
    /// Such blocks that were given up because there were too many.
    pub partials_dropped: u64,
    /// Bytes written to the cache device, metadata included.
    pub flash_written_bytes: u64,
    /// Blocks that entered the cache (RAM or flash).
    pub fills: u64,
    /// By reason.
    pub admitted: Admitted,
    /// What other ways of admission would have brought.
    pub trials: Trials,
    /// Blocks that left flash because room was needed.
    pub evicted_blocks: u64,
    /// Blocks that left probation unused.
    pub rejected_blocks: u64,
    /// Blocks that had earned flash while a plan let nothing in.
    pub throttled_blocks: u64,
    /// Missed blocks that had left, or had been refused, not long ago.
    pub returned_blocks: u64,
    /// Blocks copied forward when their segment was freed.
    pub reinserted_blocks: u64,
    /// Segments freed.
    pub segments_freed: u64,
    /// Blocks read from the SSD whose checksum was wrong.
    pub checksum_failures: u64,
    /// Cache device reads and writes that failed.
    pub device_errors: u64,
    /// Records appended to the journal (invalidations and the rest).
    pub journal_records: u64,
    /// Durable writes of the journal.
    pub journal_writes: u64,
    /// Times the journal's live records were rewritten, to make room.
    pub journal_rebases: u64,
    /// Regions that are active: writes in them wait for no record.
    pub active_regions: u64,
    /// Cached blocks in them at most, which a crash would cost.
    pub doubt_blocks: u64,
    /// Checkpoints completed.
    pub checkpoints: u64,
    /// Times the device was replaced, or the cache went on without one.
    pub device_losses: u64,
    /// Shares that there can be, that of volumes without one of their own included, in all shards.
    pub share_groups_max: u64,
}

/// Bytes of RAM the engine holds, by part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RamBytes {
    /// Address map (index).
    pub address_map: u64,
    /// Block descriptors: key, reference bits, checksum.
    pub descriptors: u64,
    /// Ghost.
    pub ghost: u64,
    /// Data buffers: probation and segments being filled or written.
    pub buffers: u64,
    /// Segments, volumes, requests and the rest.
    pub other: u64,
}

/// Field by field; a field left out does not compile.
macro_rules! add_fields {
    ($name:ident: $($field:ident),+) => {
        impl std::ops::AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                let Self { $($field),+ } = other;
                $(self.$field += $field;)+
            }
        }

        impl std::iter::Sum for $name {
            fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
                all.fold(Self::default(), |mut sum, one| {
                    sum += one;
                    sum
                })
            }
        }
    };
}

add_fields!(Bypassed: sequential, large, pass_through, write_around, write_not_reused, no_space, loading, no_device);
add_fields!(Admitted: filling, referenced, ghost, all, clean_stop);
add_fields!(Trials: reads, read_misses, changes, closed, thrifty, probation, open);
add_fields!(Trial: shards, read_misses, flash_writes);
add_fields!(VolumeCounters: reads, writes, flushes, trims, zeroes, blocks_read, blocks_written, read_hits, read_hits_ram, read_hits_staged, misses, partial_hits, write_hits, bypassed, backend_reads, backend_writes, backend_flushes, backend_read_bytes, backend_write_bytes, backend_errors, backend_overdue, invalidation_waits, region_writes, invalidated_blocks, dropped_blocks, refused, capped_blocks, cached_blocks, share_blocks, own_shares);
add_fields!(CacheCounters: capacity_blocks, resize_segments, resize_segments_done, cached_blocks, ram_blocks, staged_blocks, partial_blocks, partials_read, partials_completed, partials_dropped, flash_written_bytes, fills, admitted, trials, evicted_blocks, rejected_blocks, throttled_blocks, returned_blocks, reinserted_blocks, segments_freed, checksum_failures, device_errors, journal_records, journal_writes, journal_rebases, active_regions, doubt_blocks, checkpoints, device_losses, share_groups_max);
add_fields!(RamBytes: address_map, descriptors, ghost, buffers, other);

impl VolumeCounters {
    /// Of all shards together. Each of them sees every flush.
    pub fn of_shards(all: impl IntoIterator<Item = Self>) -> Self {
        let mut flushes = 0;
        let sum: Self = all.into_iter().inspect(|one| flushes = flushes.max(one.flushes)).sum();
        Self { flushes, ..sum }
    }
}
