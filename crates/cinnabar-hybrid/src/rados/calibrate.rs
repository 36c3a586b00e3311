//! The probe: what both pools take for requests of several lengths, one at a time.
//!
//! It works on objects of its own, [`OBJECTS`] of [`OBJECT_BYTES`] in each pool, and removes them. Other load on the
//! pools is measured with it: it belongs on a volume that is quiet. Devices' memory is asked not to keep anything,
//! but what OSDs or disks have cached anyhow is quicker than a disk.

use super::curves::encode_curves;
use super::names::{self, Prefix};
use super::place::{Connected, RadosPlace};
use crate::librados::{Pool, ReadOp, WriteOp};
use crate::pools::OpenError;
use cinnabar_placement::{Curve, Device, Point};
use rustix::io::Errno;
use std::time::{Duration, Instant};

/// Objects in each pool.
const OBJECTS: u32 = 8;
const OBJECT_BYTES: u64 = 4 << 20;
/// Lengths that are measured, in bytes.
const LENGTHS: [u32; 6] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];
/// For how long each of eight curves' lengths is measured in a pool.
const TIME: Duration = Duration::from_millis(90);
/// Requests of each length, at most; at least [`SAMPLES_MIN`], however long they take.
const SAMPLES_MAX: usize = 64;
const SAMPLES_MIN: usize = 3;

/// What the probe measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Calibration {
    /// The HDD pool.
    pub slow: Device,
    /// The SSD pool.
    pub fast: Device,
    /// How long it took.
    pub took: Duration,
}

impl RadosPlace {
    /// Measures both pools and stores the result with the volume, which another client may own. Takes some
    /// seconds, and up to 10 s more if the cluster is silent.
    ///
    /// # Errors
    /// [`OpenError`]; above all if a pool does not answer or is full.
    pub fn calibrate(&self) -> Result<Calibration, OpenError> {
        let begun = Instant::now();
        let connected = Connected::to(self.spec())?;
        let prefix = Connected::prefix(&connected.heads()?.header()?);
        let measured = |pool: &Pool, what: &str| {
            let (client, seed) = (connected.cluster.instance(), connected.cluster.instance());
            let probe = Probe { pool, prefix: &prefix, client, rng: seed | 1 };
            probe
                .measure()
                .map_err(|errno| connected.failed(&format!("measure the {what} pool"), errno))
        };
        let (slow, fast) = (measured(&connected.slow, "slow")?, measured(&connected.fast, "fast")?);
        let op = WriteOp::new()
            .compare_entry(names::POOLS, connected.pools_text()?.as_bytes())
            .set_entry(names::CURVES, &encode_curves([&slow, &fast]));
        let stored = connected.table.write(&connected.object, op);
        stored.map_err(|errno| connected.failed("store the curves", errno))?;
        Ok(Calibration { slow, fast, took: begun.elapsed() })
    }
}

struct Probe<'a> {
    pool: &'a Pool,
    prefix: &'a Prefix,
    client: u64,
    rng: u64,
}

impl Probe<'_> {
    fn measure(mut self) -> Result<Device, Errno> {
        let measured = self.run();
        let mut removed = Ok(());
        for number in 0..OBJECTS {
            let gone = self.pool.write(&self.name(number), WriteOp::new().remove());
            removed = removed.and(match gone {
                Ok(_) | Err(Errno::NOENT) => Ok(()),
                Err(errno) => Err(errno),
            });
        }
        let device = measured?;
        removed.map(|()| device)
    }

    fn run(&mut self) -> Result<Device, Errno> {
        let mut bytes = vec![0; OBJECT_BYTES as usize];
        for eight in bytes.chunks_exact_mut(8) {
            // Nothing that a store compresses away.
            eight.copy_from_slice(&self.roll().to_le_bytes());
        }
        for number in 0..OBJECTS {
            self.pool.write(&self.name(number), WriteOp::new().write(0, &bytes).uncached())?;
        }
        Ok(Device {
            read: self.curve(None, false)?,
            write: self.curve(Some(&bytes), false)?,
            read_on: self.curve(None, true)?,
            write_on: self.curve(Some(&bytes), true)?,
        })
    }

    /// Times of reads, or of writes of these bytes; each going on where the one before ended, or anywhere.
    fn curve(&mut self, bytes: Option<&[u8]>, goes_on: bool) -> Result<Curve, Errno> {
        let (mut points, mut highest) = (Vec::new(), 1.0);
        for length in LENGTHS {
            let ns = self.median_ns(bytes, length, goes_on)?;
            // What takes less than a shorter one takes is noise.
            highest = f64::max(highest, ns);
            points.push(Point { length, ns: highest });
        }
        Curve::new(&points).map_err(|_| Errno::RANGE)
    }

    fn median_ns(
        &mut self,
        bytes: Option<&[u8]>,
        length: u32,
        goes_on: bool,
    ) -> Result<f64, Errno> {
        let (begun, slots) = (Instant::now(), OBJECT_BYTES / u64::from(length));
        let all = slots * u64::from(OBJECTS);
        let (mut times, mut slot) = (Vec::new(), self.roll() % all);
        while times.len() < SAMPLES_MIN || times.len() < SAMPLES_MAX && begun.elapsed() < TIME {
            slot = if goes_on { slot + 1 } else { self.roll() } % all;
            let name = self.name((slot / slots) as u32);
            let (offset, length) = (slot % slots * u64::from(length), length as usize);
            let since = Instant::now();
            match bytes {
                None => drop(self.pool.read(&name, ReadOp::new().read(offset, length).uncached())?),
                Some(bytes) => {
                    let write = WriteOp::new().assert_exists().write(offset, &bytes[..length]);
                    self.pool.write(&name, write.uncached())?;
                }
            }
            times.push(since.elapsed().as_nanos() as f64);
        }
        times.sort_by(f64::total_cmp);
        Ok(times[times.len() / 2])
    }

    fn name(&self, number: u32) -> String {
        self.prefix.probe(self.client, number)
    }

    /// A number of Marsaglia's xorshift.
    fn roll(&mut self) -> u64 {
        self.rng ^= self.rng << 13;
        self.rng ^= self.rng >> 7;
        self.rng ^= self.rng << 17;
        self.rng
    }
}
