//! Volumes that are removed by force while their back ends are silent.

use super::migrate::{out, two};
use super::rig::{Rig, both};
use crate::dataplane::forced::{Look, Removal};
use crate::dataplane::plane::DataPlane;
use cinnabar_config::messages::{
    CommandError, CommandErrorKind, IoMode, Message, MigrationRole, VolumeConfig,
};
use cinnabar_engine::units;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const STEP: Duration = Duration::from_millis(5);
/// Of what a test does not wait for.
const LONG: Duration = Duration::from_hours(1);
/// Of what it does.
const SHORT: Duration = Duration::from_millis(50);

/// Stands between two sockets, and passes nothing on while it is told so.
struct Between {
    silent: Arc<AtomicBool>,
    ends: Arc<AtomicBool>,
}

impl Between {
    fn start(own: &Path, server: &Path) -> Self {
        let listener = UnixListener::bind(own).expect("a socket");
        listener.set_nonblocking(true).expect("a socket");
        let between = Self { silent: Arc::default(), ends: Arc::default() };
        let (silent, ends) = (Arc::clone(&between.silent), Arc::clone(&between.ends));
        let server = server.to_owned();
        std::thread::spawn(move || {
            while !ends.load(SeqCst) {
                let Ok((client, _)) = listener.accept() else {
                    std::thread::sleep(STEP);
                    continue;
                };
                client.set_nonblocking(false).expect("a socket");
                let server = UnixStream::connect(&server).expect("it listens");
                let copies =
                    [client.try_clone(), server.try_clone()].map(|copy| copy.expect("one"));
                let [other_client, other_server] = copies;
                pass(client, server, &silent, &ends);
                pass(other_server, other_client, &silent, &ends);
            }
        });
        between
    }
}

impl Drop for Between {
    fn drop(&mut self) {
        self.ends.store(true, SeqCst);
    }
}

fn pass(
    mut from: UnixStream,
    mut to: UnixStream,
    silent: &Arc<AtomicBool>,
    ends: &Arc<AtomicBool>,
) {
    let (silent, ends) = (Arc::clone(silent), Arc::clone(ends));
    std::thread::spawn(move || {
        let mut piece = vec![0; 64 << 10];
        while let Ok(read @ 1..) = from.read(&mut piece) {
            while silent.load(SeqCst) && !ends.load(SeqCst) {
                std::thread::sleep(STEP);
            }
            if to.write_all(&piece[..read]).is_err() {
                break;
            }
        }
        let _gone = to.shutdown(std::net::Shutdown::Both);
    });
}

/// Starts a data plane whose back ends may be silent for so long, and whose volumes may end for so long then.
fn start(rig: &mut Rig, (silence_max, end_max): (Duration, Duration)) -> JoinHandle<()> {
    let (config, (tell, told)) = (rig.config.clone(), std::sync::mpsc::channel());
    let runs = std::thread::spawn(move || {
        let (mut plane, commands) = DataPlane::start(&config).expect("it starts");
        (plane.forced.silence_max, plane.forced.end_max) = (silence_max, end_max);
        tell.send(commands).expect("the test waits");
        assert_eq!(plane.run(), Ok(()));
        assert!(plane.forced.is_empty(), "nothing is kept of what is gone, or stays");
        plane.end();
    });
    rig.adopt(told.recv().expect("it starts"));
    runs
}

fn stop(rig: &Rig, runs: JoinHandle<()>) {
    let deadline = Duration::from_mins(1);
    rig.ask(|answer| Message::Stop { deadline, answer }).expect("it stops");
    runs.join().expect("no panic");
}

fn removal(
    rig: &Rig,
    name: &str,
    (force, discard_dirty): (bool, bool),
) -> tokio::sync::oneshot::Receiver<Result<(), CommandError>> {
    let name = name.to_owned();
    rig.send(|answer| Message::RemoveVolume { name, force, discard_dirty, answer })
}

fn remove(rig: &Rig, name: &str, force: bool) -> Result<(), CommandError> {
    removal(rig, name, (force, false)).blocking_recv().expect("an answer")
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_mins(1);
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(STEP);
    }
}

fn is_there(rig: &Rig, name: &str) -> bool {
    rig.status().volumes.iter().any(|volume| volume.config.name == name)
}

fn add(rig: &Rig, config: VolumeConfig) -> Result<(), CommandError> {
    rig.ask(|answer| Message::AddVolume(Box::new(config), answer))
}

/// Waits until a request of this volume is under way at its back end.
fn until_under_way(rig: &Rig, name: &str) {
    wait_for("it is under way", || {
        let volumes = rig.status().volumes;
        let volume = volumes.into_iter().find(|volume| volume.config.name == name);
        volume.expect("it serves").oldest.is_some()
    });
}

/// A server, and a data plane to be started whose volume `vm1` is there, behind what can be silent.
fn behind_a_server(mut rig: Rig) -> (Rig, Between, Rig) {
    let mut server = Rig::new(IoMode::Auto, &["vm1"]);
    server.config.volumes[0].shared = true;
    server.start();
    let between = Between::start(&rig.path("between.sock"), &server.path("vm1.sock"));
    rig.config.volumes[0].backend = format!("nbd:unix:{}:vm1", rig.path("between.sock").display());
    rig.config.volumes[0].backend_timeout = Duration::ZERO;
    (server, between, rig)
}

#[test]
fn a_silent_server_is_given_up_and_the_answer_says_what_that_costs() {
    both(given_up);
}

fn given_up(io: IoMode) {
    let (mut server, between, mut rig) = behind_a_server(Rig::new(io, &["vm1", "good"]));
    let runs = start(&mut rig, (SHORT, LONG));
    let volume = rig.config.volumes[0].clone();
    let mut client = rig.client("vm1");
    assert_eq!(client.write(0, &[1; 4096], true), Ok(()));
    between.silent.store(true, SeqCst);
    client.ask_to_write(4096, &[2; 4096]);
    until_under_way(&rig, "vm1");
    let error = remove(&rig, "vm1", true).expect_err("it costs something");
    assert_eq!(error.kind, CommandErrorKind::Io, "{error}");
    for told in ["is removed", "given up", "may still be carried out", "dropped"] {
        assert!(error.message.contains(told), "{error}");
    }
    assert!(!is_there(&rig, "vm1"));
    assert_eq!(rig.client("good").write(0, &[3; 4096], true), Ok(()));
    between.silent.store(false, SeqCst);
    assert_eq!(add(&rig, volume), Ok(()), "its name and its addresses are free");
    assert_eq!(rig.client("vm1").read(0, 4096), Ok(vec![1; 4096]));
    stop(&rig, runs);
    server.stop();
}

#[test]
fn a_removal_by_force_takes_the_place_of_one_that_waits() {
    both(|io| {
        let (mut server, between, mut rig) = behind_a_server(Rig::new(io, &["vm1"]));
        let runs = start(&mut rig, (LONG, LONG));
        let mut client = rig.client("vm1");
        between.silent.store(true, SeqCst);
        client.ask_to_write(4096, &[2; 4096]);
        until_under_way(&rig, "vm1");
        let mut last = removal(&rig, "vm1", (true, false));
        for _ in 0..2 {
            let next = removal(&rig, "vm1", (true, false));
            let earlier = std::mem::replace(&mut last, next);
            let error = earlier.blocking_recv().expect("an answer").expect_err("another has it");
            assert!(error.message.contains("by force"), "{error}");
        }
        between.silent.store(false, SeqCst);
        assert_eq!(last.blocking_recv().expect("an answer"), Ok(()), "it has had time");
        assert!(!is_there(&rig, "vm1"));
        stop(&rig, runs);
        server.stop();
    });
}

/// Its removal has not begun: it may serve again in a moment, and keeps its server.
#[test]
fn a_volume_that_is_handed_over_is_not_given_up() {
    let (mut a, mut b) = two(IoMode::Auto);
    a.stop();
    let (mut server, between, rig) =
        behind_a_server(std::mem::replace(&mut a.rig, Rig::new(IoMode::Auto, &[])));
    a.rig = rig;
    a.start();
    out(&a, &b);
    let mut client = a.client();
    between.silent.store(true, SeqCst);
    client.ask_to_write(4096, &[2; 4096]);
    until_under_way(&a.rig, "vm1");
    let (name, from) = ("vm1".into(), Some(b.identity()));
    let given = a.rig.send(|answer| Message::Give { name, epoch: 0, from, answer });
    wait_for("it is being handed over", || a.migration().role == MigrationRole::Giving);
    let error = remove(&a.rig, "vm1", true).expect_err("another host may have it in a moment");
    assert_eq!(error.kind, CommandErrorKind::Busy, "{error}");
    assert!(error.message.contains("is a standby"), "{error}");
    between.silent.store(false, SeqCst);
    assert!(given.blocking_recv().expect("an answer").expect("it is given").free);
    a.stop();
    b.stop();
    server.stop();
}

#[test]
fn a_volume_whose_writes_the_log_brings_back_is_not_waited_for_and_keeps_its_server() {
    both(drains);
}

fn drains(io: IoMode) {
    let (mut server, between, mut rig) = behind_a_server(Rig::write_back(io, &["vm1"]));
    rig.config.volumes[0].claim = Some(rig.path("vm1.claim"));
    let runs = start(&mut rig, (SHORT, LONG));
    let volume = rig.config.volumes[0].clone();
    for discards in [false, true] {
        let mut client = rig.client("vm1");
        assert_eq!(client.write(0, &[3; 4096], true), Ok(()), "it is in the write log");
        between.silent.store(true, SeqCst);
        assert_eq!(client.write(0, &[4 + u8::from(discards); 4096], true), Ok(()), "in the log");
        for _ in 0..2 {
            let error = remove(&rig, "vm1", true).expect_err("its back end is silent");
            assert_eq!(error.kind, CommandErrorKind::Busy, "{error}");
            assert!(error.message.contains("lacks writes of the write log"), "{error}");
            assert!(error.hint.contains("--discard-dirty"), "{error}");
        }
        if discards {
            let answer = removal(&rig, "vm1", (true, true)).blocking_recv().expect("an answer");
            let error = answer.expect_err("its server is given up");
            assert_eq!(error.kind, CommandErrorKind::Io, "{error}");
        }
        between.silent.store(false, SeqCst);
        wait_for("it is gone", || !is_there(&rig, "vm1"));
        wait_for("it is back", || add(&rig, volume.clone()).is_ok());
        if !discards {
            assert_eq!(rig.client("vm1").read(0, 4096), Ok(vec![4; 4096]), "nothing is lost");
        }
    }
    stop(&rig, runs);
    server.stop();
}

/// An entry for a volume that is not removed, as the log leaves one that refuses to let go.
#[test]
fn what_is_not_removed_keeps_its_server() {
    let (mut server, _between, rig) = behind_a_server(Rig::new(IoMode::Auto, &["vm1"]));
    let (mut plane, commands) = DataPlane::start(&rig.config).expect("it starts");
    let key = plane.order[0];
    wait_for("it serves", || {
        plane.turn().expect("it turns");
        plane.volumes[key].life.serving().is_some()
    });
    plane.forced.silence_max = Duration::ZERO;
    let now = plane.data_thread.clock.now();
    plane.force_out(now, key, false);
    assert!(!plane.forced.is_empty());
    plane.look_at_forced(now);
    assert!(plane.forced.is_empty() && plane.volumes[key].failed.is_none());
    drop(commands);
    assert_eq!(plane.run(), Ok(()));
    plane.end();
    server.stop();
}

#[test]
fn a_server_that_is_slow_is_not_a_silent_one() {
    let at = units::Instant;
    let silence_max = Duration::from_nanos(10);
    let look = |one: Removal, now, count, began: Option<u64>| {
        one.look(at(now), silence_max, (count, began.map(at)), true)
    };
    let one = Removal::new((0, 0), false, 3);
    assert_eq!(look(one, 100, 3, Some(90)), Look::GiveUp);
    assert_eq!(look(one, 100, 4, Some(90)), Look::GiveUp);
    assert_eq!(look(one, 100, 3, Some(91)), Look::Again(at(101)), "not for so long");
    assert_eq!(look(one, 100, 2, Some(50)), Look::Again(at(110)), "some of it has ended");
    assert_eq!(look(one, 100, 3, None), Look::Again(at(110)), "it waits for its turn here");
    let unknown = one.look(at(100), silence_max, (3, None), false);
    assert_eq!(unknown, Look::Tell(at(110)), "its thread does not say");
    assert_eq!(look(one, 100, 0, None), Look::Again(at(110)), "it is not the back end");
    assert_eq!(look(Removal { seen: 0, ..one }, 100, 0, None), Look::Tell(at(110)));
    assert_eq!(look(Removal { drains: true, ..one }, 100, 3, Some(50)), Look::Leave);
    assert_eq!(look(Removal { given_up: true, ..one }, 100, 3, Some(50)), Look::Leave);
}

/// Starts a data plane whose volume takes so long for a write, and has one under way.
fn with_slow_writes(io: IoMode, write: &str) -> (Rig, JoinHandle<()>) {
    let mut rig = Rig::new(io, &["slow"]);
    let file = rig.config.volumes[0].backend.clone();
    rig.config.volumes[0].backend = format!("sim:network,read=1ms,write={write},flush=1ms:{file}");
    rig.config.volumes[0].backend_timeout = Duration::ZERO;
    let runs = start(&mut rig, (SHORT, LONG));
    rig.client("slow").ask_to_write(4096, &[9; 4096]);
    (rig, runs)
}

#[test]
fn what_can_not_be_called_back_is_told() {
    both(|io| {
        let (rig, _runs_on) = with_slow_writes(io, "1000s");
        until_under_way(&rig, "slow");
        let error = remove(&rig, "slow", true).expect_err("it is not gone");
        assert_eq!(error.kind, CommandErrorKind::Busy, "{error}");
        assert!(error.message.contains("can't be called back"), "{error}");
        assert_eq!(remove(&rig, "slow", false).expect_err("it goes").kind, CommandErrorKind::Busy);
        assert!(is_there(&rig, "slow"));
    });
}

#[test]
fn what_can_not_be_called_back_ends_by_itself() {
    both(|io| {
        let (rig, runs) = with_slow_writes(io, "300ms");
        // On a busy machine it may have ended by now.
        if let Err(error) = remove(&rig, "slow", true) {
            assert_eq!(error.kind, CommandErrorKind::Busy, "{error}");
        }
        wait_for("it ends by itself", || !is_there(&rig, "slow"));
        assert_eq!(add(&rig, rig.config.volumes[0].clone()), Ok(()), "nothing of it is left");
        stop(&rig, runs);
    });
}
