//! Volumes that take turns at a back end, over a port that notes what it gets and a clock that the test
//! moves: what each gets is exact.

use super::rig::Rig;
use crate::dataplane::io_table::{IoEvent, IoTable};
use crate::dataplane::qos::{Groups, VolumeQos};
use crate::dataplane::volume::VolumeIo;
use cinnabar_backend::disk::OpenOptions;
use cinnabar_backend::port::{Interest, Port, PortEvent, Waker};
use cinnabar_backend::{BackendSpec, Disk, Done, FileId, Job, Memory};
use cinnabar_config::messages::IoMode;
use cinnabar_driver::VolumeLife;
use cinnabar_driver::qos::Settings;
use cinnabar_engine::mutant::Mutants;
use cinnabar_engine::units::Instant;
use cinnabar_engine::{IoId, IoOp, Payload, Slice};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::os::fd::RawFd;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

const MS: u64 = 1_000_000;
const DEPTH: usize = 4;
/// Of each operation: 800 a second.
const SERVICE_NS: u64 = 5 * MS;
/// What a read of 4 KiB counts.
const COST: f64 = 1.0625;

/// Notes the tokens of the jobs it takes.
struct Noting {
    files: u32,
    tokens: Rc<RefCell<Vec<u64>>>,
}

impl Port for Noting {
    fn name(&self) -> &'static str {
        "noting"
    }
    fn waker(&self) -> Waker {
        unreachable!("nobody waits")
    }
    fn register(&mut self, _: Arc<Disk>) -> rustix::io::Result<FileId> {
        self.files += 1;
        Ok(FileId(self.files))
    }
    fn unregister(&mut self, _: FileId) {}
    fn submit(&mut self, job: Job) {
        self.tokens.borrow_mut().push(job.token);
    }
    fn watch(&mut self, _: RawFd, _: u64, _: Interest) {}
    fn unwatch(&mut self, _: u64) {}
    fn wait(&mut self, _: Option<Duration>, _: &mut Vec<PortEvent>) -> rustix::io::Result<()> {
        Ok(())
    }
    fn in_flight(&self) -> usize {
        0
    }
}

/// An I/O table with volumes in one group, each of which asks for 32 reads at a time.
struct World {
    io_table: IoTable,
    tokens: Rc<RefCell<Vec<u64>>>,
    volumes: Vec<Arc<VolumeIo>>,
    /// When what is under way ends.
    ends: BTreeSet<(u64, u64)>,
    now_ns: u64,
    asked: u64,
    /// By volume: when each of its reads ended, in ns.
    done: Vec<Vec<u64>>,
}

impl World {
    fn new(settings: &[Settings]) -> Self {
        let rig = Rig::new(IoMode::Threads, &[]);
        let tokens = Rc::default();
        let port = Noting { files: 0, tokens: Rc::clone(&tokens) };
        let mut io_table = IoTable::new(Box::new(port), Duration::ZERO);
        let mut groups = Groups::new([("nas".to_owned(), DEPTH)].into_iter());
        let mut volumes = Vec::new();
        for (key, settings) in settings.iter().enumerate() {
            let mut config = rig.volume(&format!("vm{key}"));
            (config.qos_group, config.qos) = (Some("nas".into()), *settings);
            let spec = BackendSpec::parse(&config.backend, Path::new("/")).expect("a file");
            let disk = Disk::open_backend(&spec, &OpenOptions::default()).expect("it is there");
            let life = VolumeLife::new(config.name.clone(), key as u64 + 1, Mutants::default());
            let qos = VolumeQos::join(groups.of(&config, &disk), key as u64 + 1, config.qos);
            let io = Arc::new(VolumeIo::new(&config, disk, Vec::new(), &life, qos));
            io_table.install(key, Arc::clone(&io)).expect("there is room");
            volumes.push(io);
        }
        let done = vec![Vec::new(); settings.len()];
        let ends = BTreeSet::new();
        let mut world = Self { io_table, tokens, volumes, ends, now_ns: MS, asked: 0, done };
        for volume in 0..settings.len() {
            (0..32).for_each(|_| world.ask(volume));
        }
        world
    }

    fn ask(&mut self, volume: usize) {
        self.asked += 1;
        // The name says whose it is.
        let id = IoId(self.asked * 16 + volume as u64);
        let data = std::iter::once(Slice { data: Memory::alloc(1), at: 0, len: 4096 }).collect();
        let now = Instant(self.now_ns);
        self.io_table.backend_io(now, (0, id), volume, IoOp::Read { offset: 0, data });
    }

    fn run(&mut self, until_ns: u64) {
        while self.now_ns < until_ns {
            let mut letters = Vec::new();
            self.io_table.take_turns(Instant(self.now_ns), &mut letters);
            assert!(letters.is_empty(), "there is one thread");
            for token in self.tokens.borrow_mut().drain(..) {
                self.ends.insert((self.now_ns + SERVICE_NS, token));
            }
            assert!(self.ends.len() <= DEPTH, "{} at a time", self.ends.len());
            let end = self.ends.first().map(|(at, _)| *at);
            let due = self.io_table.deadline().map(|at| at.0.max(self.now_ns + 1));
            let Some(next) = end.into_iter().chain(due).min() else { panic!("it is stuck") };
            self.now_ns = next;
            while self.ends.first().is_some_and(|(at, _)| *at <= next) {
                let (_, token) = self.ends.pop_first().expect("just seen");
                let done = Done { token, result: Ok(()), pages: Vec::new(), extents: Vec::new() };
                self.io_table.io_done(Instant(next), done);
            }
            for told in std::mem::take(&mut self.io_table.told) {
                let IoEvent::Done(0, done) = told else { panic!("only reads end") };
                assert!(done.result.is_ok());
                let volume = (done.id.0 % 16) as usize;
                self.done[volume].push(next);
                self.ask(volume);
            }
        }
    }

    /// I/Os a second of a volume, by cost, in a window of seconds.
    fn rate(&self, volume: usize, from_s: f64, to_s: f64) -> f64 {
        let within = |at: &&u64| (from_s..to_s).contains(&(**at as f64 / 1e9));
        self.done[volume].iter().filter(within).count() as f64 * COST / (to_s - from_s)
    }

    /// The most in any second.
    fn most(&self, volume: usize) -> f64 {
        let done = &self.done[volume];
        let within = |from: usize| {
            let end = done[from] + 1000 * MS;
            done[from..].iter().take_while(move |at| **at < end)
        };
        (0..done.len()).map(|from| within(from).count()).max().unwrap_or(0) as f64 * COST
    }
}

fn settings(reservation_iops: u32, limit: u32, weight: u32) -> Settings {
    Settings { reservation_iops, limit_iops: (limit > 0).then_some(limit), weight }
}

#[test]
fn each_volume_gets_its_due_within_five_per_cent() {
    let volumes = [settings(200, 0, 1), settings(0, 100, 10_000), settings(0, 0, 10_000)];
    let mut world = World::new(&volumes);
    world.run(4000 * MS);
    for second in 1..4 {
        let rate = |volume| world.rate(volume, f64::from(second), f64::from(second + 1));
        let (reserved, limited, flood) = (rate(0), rate(1), rate(2));
        assert!((190.0..=210.0).contains(&reserved), "{reserved} in second {second}");
        assert!((95.0..=105.0).contains(&limited), "{limited} in second {second}");
        assert!((800.0..=860.0).contains(&(reserved + limited + flood)), "{flood}");
    }
    assert!(world.most(1) <= 105.0, "{}", world.most(1));
    // Other settings count at once, though requests have waited for seconds.
    world.volumes[0].qos.set(Instant(world.now_ns), settings(400, 0, 1));
    world.volumes[1].qos.set(Instant(world.now_ns), settings(0, 50, 10_000));
    world.run(6000 * MS);
    let (reserved, limited) = (world.rate(0, 4.0, 6.0), world.rate(1, 4.0, 6.0));
    assert!((380.0..=420.0).contains(&reserved), "{reserved}");
    assert!((45.0..=55.0).contains(&limited), "{limited}");
    // Alone with a limit, nothing but the I/O table's own deadline brings it on.
    let mut alone = World::new(&[settings(0, 100, 100)]);
    alone.run(3000 * MS);
    let rate = alone.rate(0, 1.0, 3.0);
    assert!((95.0..=105.0).contains(&rate), "{rate}");
}
