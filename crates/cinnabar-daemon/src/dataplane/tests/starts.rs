//! Starts with hundreds of volumes. What each of them lacks is drawn by a seed: it waits for that, and all
//! others are served at once.

use super::rig::{Rig, pattern};
use cinnabar_config::messages::{IoMode, NbdAddress, State, VolumeConfig};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::Duration;

/// What a volume lacks at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lack {
    Nothing,
    /// There is no such file.
    BackEnd,
    /// Something else is where its socket is to be.
    Address,
    /// Its server takes connections, and says nothing.
    Words,
}

/// A start of so many volumes.
struct Start {
    rig: Rig,
    lacks: Vec<Lack>,
    /// Servers that say nothing.
    silent: Vec<UnixListener>,
}

impl Start {
    fn new(volumes: usize, lack: impl FnMut(usize) -> Lack) -> Self {
        crate::open_files::raise();
        let mut rig = Rig::new(IoMode::Auto, &["vm"]);
        let usual = rig.config.volumes.pop().expect("one");
        let lacks: Vec<Lack> = (0..volumes).map(lack).collect();
        let mut silent = Vec::new();
        for (at, lack) in lacks.iter().enumerate() {
            let name = format!("vm{at}");
            let disk = rig.path(&format!("{name}.raw"));
            let socket = rig.path(&format!("{name}.sock"));
            let mut backend = format!("file:{}", disk.display());
            match lack {
                Lack::Nothing => std::fs::write(&disk, pattern(0, 8192)).expect("a file"),
                Lack::BackEnd => {}
                Lack::Address => {
                    std::fs::write(&disk, pattern(0, 8192)).expect("a file");
                    std::fs::write(&socket, []).expect("a file");
                }
                Lack::Words => {
                    let server = rig.path(&format!("{name}.server"));
                    silent.push(UnixListener::bind(&server).expect("a socket"));
                    backend = format!("nbd:unix:{}:{name}", server.display());
                }
            }
            let nbd = Some(NbdAddress::Unix(socket));
            rig.config.volumes.push(VolumeConfig { name, backend, nbd, ..usual.clone() });
        }
        Self { rig, lacks, silent }
    }

    fn of(&self, lack: Lack) -> impl Iterator<Item = String> {
        let all = self.lacks.iter().enumerate();
        all.filter(move |(_, one)| **one == lack).map(|(at, _)| format!("vm{at}"))
    }

    fn path(&self, name: &str, end: &str) -> PathBuf {
        self.rig.path(&format!("{name}.{end}"))
    }

    /// How many volumes wait; all others are served.
    fn waiting(&self) -> usize {
        let volumes = self.rig.status().volumes;
        assert_eq!(volumes.len(), self.lacks.len());
        let waits = |state| state == State::Waiting;
        volumes.iter().filter(|volume| waits(volume.state) && !volume.reason.is_empty()).count()
    }

    fn read_all_of(&self, lack: Lack) {
        for name in self.of(lack) {
            let mut client = self.rig.client(&name);
            assert!(client.read(4096, 4096) == Ok(pattern(4096, 4096)), "{name}");
            client.leave();
        }
    }

    /// Waits until no more than these wait.
    fn once_waiting(&self, volumes: usize) {
        while self.waiting() > volumes {
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// What lacks comes, but for words.
    fn mend(&self) {
        for name in self.of(Lack::BackEnd) {
            std::fs::write(self.path(&name, "raw"), pattern(0, 8192)).expect("a file");
        }
        for name in self.of(Lack::Address) {
            std::fs::remove_file(self.path(&name, "sock")).expect("it was in the way");
        }
    }
}

/// `CINNABAR_RUNS` says of how many seeds.
#[test]
fn of_hundreds_of_volumes_those_that_lack_nothing_are_served() {
    let seeds = std::env::var("CINNABAR_RUNS").map_or(2, |n| n.parse().expect("a number"));
    for seed in 0..seeds {
        eprintln!("seed {seed}");
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let volumes = rng.random_range(200..400);
        let healthy = rng.random_range(0.2..1.0);
        let mut start = Start::new(volumes, |_| {
            if rng.random_bool(healthy) {
                Lack::Nothing
            } else if rng.random_bool(0.5) {
                Lack::BackEnd
            } else {
                Lack::Address
            }
        });
        start.rig.start();
        let served = start.of(Lack::Nothing).count();
        assert_eq!(start.waiting(), volumes - served, "seed {seed}");
        start.read_all_of(Lack::Nothing);
        start.mend();
        start.once_waiting(0);
        start.read_all_of(Lack::BackEnd);
        start.read_all_of(Lack::Address);
        assert!(start.rig.stop().clean, "seed {seed}");
    }
}

/// There are more of them than threads to wait for them, and they come first.
#[test]
fn servers_that_say_nothing_keep_no_volume_from_being_served_for_good() {
    const SILENT: usize = 264;
    let mut start =
        Start::new(SILENT + 40, |at| if at < SILENT { Lack::Words } else { Lack::Nothing });
    start.rig.start();
    start.once_waiting(SILENT);
    start.read_all_of(Lack::Nothing);
    assert_eq!(start.silent.len(), SILENT);
    assert!(start.rig.stop().clean);
}
