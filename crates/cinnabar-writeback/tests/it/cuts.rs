//! The daemon is killed at each store to the write memory, and within it: what was acknowledged is
//! there.

use crate::memory::Mem;
use crate::rig::Rig;
use cinnabar_engine::units::ByteSpan;
use cinnabar_engine::{Op, RequestId};
use cinnabar_writeback::mutant::{Mutant, Mutants};
use cinnabar_writeback::{Command, Config, LogVolumeId};

const BLOCKS: u64 = 12;
/// Bytes of the store at which it is killed that still happen. Stores are of 8, 80 and 4096 bytes.
const PREFIXES: [usize; 4] = [0, 7, 79, 2048];

/// What a guest has written, by block: values in order, and the requests that brought them.
struct Script {
    rig: Rig,
    place: LogVolumeId,
    written: Vec<Vec<(u64, RequestId)>>,
}

impl Script {
    fn is_killed(&self) -> bool {
        self.rig.file.as_ref().is_some_and(|(file, _)| file.is_killed())
    }

    fn note(&mut self, first: u64, count: u64, value: u64, id: RequestId) {
        for block in first..first + count {
            self.written[block as usize].push((value, id));
        }
    }

    fn write(&mut self, block: u64, count: u64, value: u64) {
        if !self.is_killed() {
            let id = self.rig.write(self.place, block, count, value);
            self.note(block, count, value, id);
        }
    }

    /// The first sectors of a block.
    fn write_part(&mut self, block: u64, value: u64) {
        if !self.is_killed() {
            let (span, data) = (ByteSpan::new(block * 4096, 1024), Mem::of(0, &[value; 2]));
            let id = self.rig.submit(self.place, Op::Write { span, data, fua: false });
            self.note(block, 1, value, id);
        }
    }

    fn zero(&mut self, block: u64, count: u64) {
        if !self.is_killed() {
            let span = ByteSpan::new(block * 4096, count * 4096);
            let op = Op::WriteZeroes { span, fua: false, may_punch: true };
            let id = self.rig.submit(self.place, op);
            self.note(block, count, 0, id);
        }
    }

    fn flush(&mut self) {
        if !self.is_killed() {
            self.rig.submit(self.place, Op::Flush);
        }
    }

    /// So many I/Os of the log's device end.
    fn end(&mut self, count: usize) {
        for _ in 0..count {
            if !self.is_killed() && self.rig.ssd.under_way() > 0 {
                self.rig.end_log(0, Ok(()));
            }
        }
    }

    fn run(&mut self) {
        self.write(1, 3, 1);
        self.write(2, 1, 2);
        self.write_part(2, 3);
        self.zero(3, 4);
        self.write(4, 1, 4);
        self.write(4, 2, 5);
        self.flush();
        // The next epoch, while the one before is on its way.
        self.write(2, 1, 6);
        self.write(2, 1, 7);
        self.end(1);
        self.write_part(9, 8);
        self.write(2, 1, 9);
        self.end(20);
        self.zero(1, 2);
        self.write(1, 1, 10);
        self.flush();
        self.end(1);
        // A memory of 64 pages is used more than once.
        for value in 11..26 {
            self.write(value % 4, 8, value);
            if value.is_multiple_of(5) {
                self.flush();
            }
            self.end(1);
        }
        self.end(3);
        self.write(0, BLOCKS, 50);
        self.write(0, BLOCKS, 51);
    }
}

/// Runs the script, killed after so many stores; false: it came to its end.
fn cut(stores: u32, bytes: usize, mutants: Mutants) -> bool {
    let config = Config { destage_after_ns: u64::MAX / 2, mutants, ..Config::default() };
    let mut rig = Rig::with_memory(config, 64);
    let place = rig.attach("a", BLOCKS, 1);
    rig.control(Command::Acknowledge { place, memory: true });
    rig.file.as_ref().expect("there is one").0.kill_after(stores, bytes);
    let mut script = Script { rig, place, written: vec![Vec::new(); BLOCKS as usize] };
    script.run();
    let killed = script.is_killed();
    let Script { mut rig, written, .. } = script;
    let answered: Vec<usize> = written
        .iter()
        .map(|all| all.iter().rposition(|(_, id)| rig.ok(*id)).map_or(0, |at| at + 1))
        .collect();
    assert!(rig.log.counters().absorbed > 10 || killed, "{:?}", rig.log.counters());
    // What was on its way to the device has not happened: memory has it.
    rig.ssd.forget();
    rig.reopen().unwrap_or_else(|error| panic!("{stores} stores, {bytes} bytes: {error}"));
    let place = rig.attach("a", BLOCKS, 1);
    for (block, found) in (0..).zip(rig.read(place, 0, BLOCKS)) {
        let all = &written[block];
        let mut legal = vec![0; usize::from(answered[block] == 0)];
        legal.extend(all[answered[block].saturating_sub(1)..].iter().map(|(value, _)| *value));
        let found = found.expect("a sector is never torn");
        assert!(
            legal.contains(&found),
            "{stores} stores, {bytes} bytes: block {block} holds {found}, not one of {legal:?}"
        );
    }
    killed
}

/// Cuts everywhere; gives the number of stores.
fn cut_all(mutants: Mutants) -> u32 {
    let mut stores = 0;
    while PREFIXES.map(|bytes| cut(stores, bytes, mutants)).contains(&true) {
        stores += 1;
    }
    stores
}

#[test]
fn what_was_acknowledged_is_there_wherever_the_stream_of_stores_is_cut() {
    let stores = cut_all(Mutants::default());
    assert!(stores > 300, "only {stores} stores");
}

#[test]
fn a_wrong_order_of_stores_is_found() {
    for mutant in [Mutant::AckBeforePublish, Mutant::ReplacedInPlace, Mutant::MemoryClearedEarly] {
        let found = std::panic::catch_unwind(|| cut_all(Mutants::only(mutant)));
        assert!(found.is_err(), "{mutant:?}");
    }
}
