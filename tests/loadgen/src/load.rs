//! A device over vhost-user, and one load on it.

use anyhow::{Context, Result, ensure};
use blkio::{Blkio, Blkioq, Completion, MemoryRegion, ReqFlags};
use hdrhistogram::Histogram;
use std::mem::MaybeUninit;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Reads that are compared with a file.
const COMPARED: u64 = 2000;
/// Entries of the queue, as QEMU has them by default.
const QUEUE_SIZE: i32 = 128;
/// Longest wait for a completion.
const PATIENCE: Duration = Duration::from_secs(30);

/// A device, its one queue, and memory for `depth` reads.
pub(crate) struct Device {
    queue: Blkioq,
    blocks: u64,
    bytes: usize,
    memory: MemoryRegion,
    started: Vec<Instant>,
    completions: Vec<MaybeUninit<Completion>>,
    /// Keeps the memory mapped; dropped after the queue.
    _keep: Blkio,
}

/// What came of a load.
pub(crate) struct Measured {
    operations: u64,
    took: Duration,
    /// This process's own CPU time meanwhile.
    cpu: Duration,
    /// Latencies in ns.
    latencies: Histogram<u64>,
}

/// Pseudorandom numbers (splitmix64).
pub(crate) struct Rng(pub(crate) u64);

impl Device {
    pub(crate) fn connect(socket: &Path, depth: usize, bytes: usize, poll: bool) -> Result<Self> {
        ensure!(depth > 0 && bytes > 0 && bytes.is_multiple_of(512), "bad depth or size");
        let mut device = Blkio::new("virtio-blk-vhost-user")?;
        device.set_str("path", socket.to_str().context("the path is not text")?)?;
        // The server may be writable or not; this only reads.
        device.set_bool("read-only", true)?;
        device.connect()?;
        device.set_i32("num-queues", i32::from(!poll))?;
        device.set_i32("num-poll-queues", i32::from(poll))?;
        // Three descriptors a request, none of them indirect.
        let wanted = (depth * 4).next_power_of_two().max(QUEUE_SIZE as usize);
        let most = device.get_i32("max-queue-size")?;
        device.set_i32("queue-size", i32::try_from(wanted)?.min(most))?;
        let mut outcome = device.start()?;
        let queues = if poll { &mut outcome.poll_queues } else { &mut outcome.queues };
        let queue = queues.pop().context("the server gave no queue")?;
        let align = usize::try_from(device.get_u64("mem-region-alignment")?)?.max(4096);
        let memory = device.alloc_mem_region((depth * bytes).next_multiple_of(align))?;
        device.map_mem_region(&memory)?;
        let blocks = device.get_u64("capacity")? / bytes as u64;
        ensure!(blocks > 0, "the device is smaller than a read");
        let completions = (0..depth).map(|_| MaybeUninit::uninit()).collect();
        let started = vec![Instant::now(); depth];
        Ok(Self { queue, blocks, bytes, memory, started, completions, _keep: device })
    }

    /// Reads some blocks and compares them with a file.
    pub(crate) fn compare(&mut self, file: &Path, rng: &mut Rng) -> Result<()> {
        let file = std::fs::File::open(file).context("opening the file to compare with")?;
        let mut expected = vec![0; self.bytes];
        for _ in 0..COMPARED {
            let offset = rng.below(self.blocks) * self.bytes as u64;
            self.submit(0, offset);
            self.wait(|_, _| {})?;
            file.read_exact_at(&mut expected, offset)?;
            // SAFETY: the region has `depth * bytes` bytes; the only read into them has completed,
            // so nothing writes them.
            let got =
                unsafe { std::slice::from_raw_parts(self.memory.addr as *const u8, self.bytes) };
            ensure!(got == expected, "{} bytes at {offset} are not the file's", self.bytes);
        }
        Ok(())
    }

    /// Keeps `depth` reads under way for this long.
    pub(crate) fn run(&mut self, length: Duration, rng: &mut Rng) -> Result<Measured> {
        let mut latencies = Histogram::new_with_bounds(1, 60_000_000_000, 3)?;
        let mut operations = 0;
        let cpu = cpu_time();
        let begin = Instant::now();
        let end = begin + length;
        let mut under_way = 0;
        for slot in 0..self.started.len() {
            self.submit(slot, rng.below(self.blocks) * self.bytes as u64);
            under_way += 1;
        }
        let mut again = Vec::with_capacity(under_way);
        let mut took = length;
        while under_way > 0 {
            let now = self.wait(|slot, latency| {
                again.push(slot);
                latencies.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
            })?;
            under_way -= again.len();
            if now < end {
                operations += again.len() as u64;
                took = now - begin;
                for slot in again.drain(..) {
                    self.submit(slot, rng.below(self.blocks) * self.bytes as u64);
                    under_way += 1;
                }
            }
            again.clear();
        }
        Ok(Measured { operations, took, cpu: cpu_time().saturating_sub(cpu), latencies })
    }

    fn submit(&mut self, slot: usize, offset: u64) {
        self.started[slot] = Instant::now();
        let buffer = (self.memory.addr + slot * self.bytes) as *mut u8;
        self.queue.read(offset, buffer, self.bytes, slot, ReqFlags::empty());
    }

    /// Waits for completions and reports each one's slot and latency; returns the time when they
    /// were seen.
    fn wait(&mut self, mut done: impl FnMut(usize, Duration)) -> Result<Instant> {
        let mut patience = PATIENCE;
        let count = self
            .queue
            .do_io(&mut self.completions, 1, Some(&mut patience), None)
            .context("waiting for the server")?;
        let now = Instant::now();
        for completion in &self.completions[..count] {
            // SAFETY: `do_io` has filled the first `count` places.
            let completion = unsafe { completion.assume_init_ref() };
            ensure!(completion.ret == 0, "a read failed: {}", completion.ret);
            let slot = completion.user_data;
            done(slot, now - self.started[slot]);
        }
        Ok(now)
    }
}

impl Measured {
    /// One line; latencies in us.
    pub(crate) fn to_json(&self) -> String {
        let us = |quantile| self.latencies.value_at_quantile(quantile) as f64 / 1000.0;
        serde_json::json!({
            "operations": self.operations,
            "iops": self.operations as f64 / self.took.as_secs_f64(),
            "mean_us": self.latencies.mean() / 1000.0,
            "client_us": self.cpu.as_secs_f64() * 1e6 / self.operations.max(1) as f64,
            "p50_us": us(0.5),
            "p99_us": us(0.99),
        })
        .to_string()
    }
}

/// CPU time of this process so far, user and system.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec.cast_unsigned() as u32)
}

impl Rng {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % end
    }
}
