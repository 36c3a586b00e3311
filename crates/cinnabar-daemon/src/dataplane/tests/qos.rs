//! Volumes that take turns at a back end: reservations, limits, neighbours that flood it or are silent,
//! and ends of all kinds while requests wait.
//!
//! Back ends are models without a bound of their own, so that a group's depth and the model's latency
//! are its capacity: a depth of 8 and 10 ms are 800 I/Os a second at most. How exact rates are is a
//! matter of `turns`, in virtual time: here a busy machine may make all of them lower.

use super::client::Client;
use super::rig::{Rig, both, on_threads, pattern};
use cinnabar_config::messages::{
    CommandErrorKind, DataStatus, IoMode, Message, QosGroupConfig, VolumeChange, VolumeMode,
};
use cinnabar_driver::qos::{ClientReport, Settings};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const EIO: u32 = 5;
/// What a read of 4 KiB counts.
const COST: f64 = 1.0625;
const SLOW: &str = "ssd,read=10ms,write=10ms,flush=10ms,bandwidth=0,depth=0";

fn settings(reservation: u32, limit: u32, weight: u32) -> Settings {
    let limit_iops = (limit > 0).then_some(limit);
    Settings { reservation_iops: reservation, limit_iops, weight }
}

/// Volumes in one group of this depth, whose reads all go to their back ends.
fn rig(io: IoMode, depth: usize, volumes: &[(&str, Settings)]) -> Rig {
    let names: Vec<&str> = volumes.iter().map(|(name, _)| *name).collect();
    let mut rig = Rig::new(io, &names);
    for (volume, (_, qos)) in rig.config.volumes.iter_mut().zip(volumes) {
        volume.backend = format!("sim:{SLOW}:{}", volume.backend);
        volume.mode = VolumeMode::PassThrough;
        volume.backend_timeout = Duration::ZERO;
        volume.qos_group = Some("nas".into());
        volume.qos = *qos;
    }
    rig.config.qos_groups = vec![QosGroupConfig { name: "nas".into(), depth }];
    rig
}

fn set(rig: &Rig, name: &str, qos: Settings) {
    let (name, change) =
        (name.to_owned(), VolumeChange { qos: Some(qos), ..VolumeChange::default() });
    assert_eq!(rig.ask(|answer| Message::SetVolume { name, change, answer }), Ok(()));
}

fn guest(status: &DataStatus, name: &str) -> ClientReport {
    let volume = status.volumes.iter().find(|volume| volume.config.name == name);
    volume.expect("it is there").qos.as_ref().expect("it takes turns").guest
}

fn begun(report: &ClientReport) -> u64 {
    report.by_reservation + report.by_weight
}

/// A guest that keeps so many reads under way until it is told to stop.
struct Load {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl Load {
    fn begin(rig: &Rig, name: &str, count: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (mut client, told) = (rig.client(name), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            let offset = |n: u64| n * 37 % 2048 * 4096;
            let mut asked = 0;
            let mut ask = |client: &mut Client| {
                asked += 1;
                client.ask(offset(asked), 4096);
            };
            (0..count).for_each(|_| ask(&mut client));
            let mut done = 0;
            while !told.load(Relaxed) {
                let (cookie, data) = client.answer(4096);
                assert_eq!(data, Ok(pattern(offset(cookie), 4096)));
                done += 1;
                ask(&mut client);
            }
            for _ in 0..count {
                assert!(client.answer(4096).1.is_ok());
            }
            done
        });
        Self { stop, thread }
    }

    fn end(self) -> u64 {
        self.stop.store(true, Relaxed);
        self.thread.join().expect("its answers are right")
    }
}

/// How many I/Os of a volume begin, in I/Os a second of cost, while the test waits.
fn rate(rig: &Rig, name: &str, seconds: f64) -> f64 {
    let from = Instant::now();
    let before = guest(&rig.status(), name);
    std::thread::sleep(Duration::from_secs_f64(seconds));
    let (after, lasted) = (guest(&rig.status(), name), from.elapsed());
    (begun(&after) - begun(&before)) as f64 * COST / lasted.as_secs_f64()
}

#[test]
fn a_reservation_holds_beside_a_neighbour_that_floods_the_back_end() {
    both(|io| {
        let volumes = [("calm", settings(200, 0, 1)), ("flood", settings(0, 0, 10_000))];
        let mut rig = rig(io, 8, &volumes);
        rig.start();
        let loads = [Load::begin(&rig, "flood", 64), Load::begin(&rig, "calm", 64)];
        std::thread::sleep(Duration::from_millis(1500));
        let status = rig.status();
        let [group] = &status.qos_groups[..] else { panic!("one group") };
        assert_eq!((group.name.as_str(), group.report.depth), ("nas", 8));
        assert_eq!(group.report.reservations.reserved_iops, 200);
        assert!(group.report.under_way <= 8, "{group:?}");
        let (calm, flood) = (guest(&status, "calm"), guest(&status, "flood"));
        assert!(calm.by_reservation > 10 * calm.by_weight, "{calm:?}");
        // By weight it would have one of ten thousand. A machine too busy for the reservation has
        // the calm one take nearly all.
        let (calm_ios, flood_ios) = (begun(&calm) as f64 * COST, begun(&flood) as f64 * COST);
        let due = (200.0 * 1.5_f64).min(0.9 * (calm_ios + flood_ios));
        assert!(calm_ios > 0.8 * due, "{calm_ios} of {flood_ios}");
        assert!(flood.weight_queued_ns > 0 && flood.by_reservation == 0, "{flood:?}");
        for load in loads {
            load.end();
        }
        assert!(rig.stop().clean);
    });
}

#[test]
fn a_limit_holds_and_changes_while_requests_wait() {
    both(|io| {
        let mut rig = rig(io, 32, &[("vm", settings(0, 100, 100))]);
        rig.start();
        let load = Load::begin(&rig, "vm", 16);
        std::thread::sleep(Duration::from_millis(100));
        let found = rate(&rig, "vm", 2.0);
        assert!((25.0..=105.0).contains(&found), "{found}");
        assert!(guest(&rig.status(), "vm").held_ns > 0);
        set(&rig, "vm", settings(0, 400, 100));
        let found = rate(&rig, "vm", 1.0);
        assert!((106.0..=420.0).contains(&found), "{found}");
        // Held back for seconds, and let go of at once.
        set(&rig, "vm", settings(0, 1, 100));
        std::thread::sleep(Duration::from_millis(300));
        set(&rig, "vm", settings(0, 0, 200));
        let found = rate(&rig, "vm", 1.0);
        assert!(found > 10.0, "{found}");
        // Without any setting it passes by, and nothing stays behind.
        set(&rig, "vm", Settings::default());
        let status = rig.status();
        assert!(status.qos_groups.is_empty() && status.volumes[0].qos.is_none());
        std::thread::sleep(Duration::from_millis(50));
        assert!(load.end() > 0);
        assert!(rig.stop().clean);
    });
}

#[test]
fn without_settings_nothing_takes_turns() {
    let mut rig = rig(IoMode::Auto, 1, &[("vm", Settings::default())]);
    rig.start();
    let from = Instant::now();
    let load = Load::begin(&rig, "vm", 64);
    std::thread::sleep(Duration::from_millis(500));
    // One at a time would be 100 a second.
    let rate = load.end() as f64 / from.elapsed().as_secs_f64();
    assert!(rate > 105.0, "{rate}");
    let status = rig.status();
    assert!(status.qos_groups.is_empty() && status.volumes[0].qos.is_none());
    assert!(rig.stop().clean);
}

/// Requests of a guest that wait for seconds each.
fn ask_for_much(client: &mut Client, count: u64) {
    (0..count).for_each(|n| client.ask(n * 4096, 4096));
}

fn wait_for(rig: &Rig, name: &str, waiting: usize) {
    while guest(&rig.status(), name).waiting < waiting {
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_volume_is_removed_while_its_requests_wait() {
    on_threads(|_| {
        let volumes = [("held", settings(0, 1, 100)), ("other", settings(0, 0, 200))];
        let mut rig = rig(IoMode::Auto, 4, &volumes);
        rig.start();
        let mut client = rig.client("held");
        ask_for_much(&mut client, 40);
        wait_for(&rig, "held", 39);
        let neighbour = Load::begin(&rig, "other", 8);
        let from = Instant::now();
        assert_eq!(rig.remove("held", false), Err(CommandErrorKind::Busy));
        assert_eq!(rig.remove("held", true), Ok(()));
        assert!(from.elapsed() < Duration::from_secs(15), "{:?}", from.elapsed());
        assert!(rig.status().volumes.iter().all(|volume| volume.config.name == "other"));
        assert!(neighbour.end() > 0);
        assert_eq!(rig.status().qos_groups[0].report.clients, 2, "guest and destage of one");
        assert!(rig.stop().clean);
    });
}

#[test]
fn a_stop_does_not_wait_for_turns() {
    on_threads(|_| {
        let mut rig = rig(IoMode::Auto, 4, &[("held", settings(0, 1, 100))]);
        rig.start();
        let mut client = rig.client("held");
        ask_for_much(&mut client, 40);
        wait_for(&rig, "held", 39);
        let from = Instant::now();
        assert!(rig.stop().clean);
        assert!(from.elapsed() < Duration::from_secs(15), "{:?}", from.elapsed());
        // What was asked for before the stop is answered.
        for _ in 0..40 {
            assert!(client.answer(4096).1.is_ok());
        }
    });
}

#[test]
fn a_silent_back_end_holds_up_neither_its_guest_nor_its_neighbours() {
    both(|io| {
        let volumes = [("silent", settings(0, 0, 10_000)), ("good", settings(100, 0, 1))];
        let mut rig = rig(io, 2, &volumes);
        let file =
            rig.config.volumes[0].backend.rsplit_once(":file:").expect("a file").1.to_owned();
        rig.config.volumes[0].backend = format!("sim:network,packet=4s:file:{file}");
        rig.config.volumes[0].backend_timeout = Duration::from_secs(1);
        rig.start();
        let mut client = rig.client("silent");
        let from = Instant::now();
        ask_for_much(&mut client, 16);
        wait_for(&rig, "silent", 14);
        let mut good = rig.client("good");
        // Two places are taken for a second, and then it has turns again and again.
        for n in 0..10 {
            assert_eq!(good.read(n * 4096, 4096), Ok(pattern(n * 4096, 4096)));
        }
        assert!(from.elapsed() < Duration::from_millis(3500), "{:?}", from.elapsed());
        // Those that waited behind the depth have the same time as those under way.
        for _ in 0..16 {
            assert_eq!(client.answer(4096).1, Err(EIO));
        }
        assert!(from.elapsed() < Duration::from_millis(3500), "{:?}", from.elapsed());
        while guest(&rig.status(), "silent").waiting > 0 {
            std::thread::sleep(Duration::from_millis(2));
        }
        assert!(guest(&rig.status(), "silent").withdrawn >= 10);
        // What hangs is cut off.
        rig.stop_within(Duration::from_secs(2));
    });
}

#[test]
fn destage_is_a_client_of_its_own() {
    let mut rig = Rig::write_back(IoMode::Auto, &["vm"]);
    rig.config.volumes[0].qos = settings(0, 50, 100);
    rig.start();
    let mut client = rig.client("vm");
    for n in 0..30 {
        assert_eq!(client.write(n * 65_536, &[7; 4096], false), Ok(()));
    }
    let from = Instant::now();
    let flush = |rig: &Rig| rig.ask(|answer| Message::FlushVolume { name: "vm".into(), answer });
    assert_eq!(flush(&rig), Ok(()));
    let status = rig.status();
    let qos = status.volumes[0].qos.as_ref().expect("it takes turns");
    let destage = qos.destage.expect("in write-back mode");
    assert!(begun(&destage) > 0 && destage.held_ns > 0, "{destage:?}");
    let least = begun(&destage) as f64 / 50.0 - 0.05;
    assert!(from.elapsed().as_secs_f64() > 0.5 * least, "{least}");
    // Found by itself: the file system of the file.
    assert!(qos.group.starts_with("file-system:"), "{}", qos.group);
    // What is in the log does not wait for its limit when the volume leaves.
    set(&rig, "vm", settings(0, 1, 100));
    for n in 0..30 {
        assert_eq!(client.write(n * 65_536, &[8; 4096], false), Ok(()));
    }
    client.leave();
    let from = Instant::now();
    assert!(rig.stop().clean);
    assert!(from.elapsed() < Duration::from_secs(10), "{:?}", from.elapsed());
}
