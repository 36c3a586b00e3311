//! Volumes that are removed by force while their back ends are silent.

use super::rig::{Rig, in_way};
use cinnabar_messages::{CommandError, CommandErrorKind, IoMode, Message, VolumeConfig};
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

const STEP: Duration = Duration::from_millis(5);

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

fn remove(rig: &Rig, name: &str, force: bool) -> Result<(), CommandError> {
    let name = name.to_owned();
    rig.ask(|answer| Message::RemoveVolume { name, force, discard_dirty: false, answer })
}

fn add(rig: &Rig, config: VolumeConfig) -> Result<(), CommandError> {
    rig.ask(|answer| Message::AddVolume(Box::new(config), answer))
}

/// Waits until a request of this volume is under way at its back end.
fn until_under_way(rig: &Rig, name: &str) {
    let waits = |rig: &Rig| {
        let volumes = rig.status().volumes;
        let volume = volumes.into_iter().find(|volume| volume.config.name == name);
        volume.expect("it serves").oldest.is_some()
    };
    while !waits(rig) {
        std::thread::sleep(STEP);
    }
}

#[test]
fn a_silent_server_is_given_up_and_the_answer_says_what_that_costs() {
    for way in 0..3 {
        in_way(way, given_up);
    }
}

fn given_up(io: IoMode) {
    let mut server = Rig::new(IoMode::Auto, &["vm1"]);
    server.config.volumes[0].shared = true;
    server.start();
    let mut rig = Rig::new(io, &["vm1", "good"]);
    let between = Between::start(&rig.path("between.sock"), &server.path("vm1.sock"));
    rig.config.volumes[0].backend = format!("nbd:unix:{}:vm1", rig.path("between.sock").display());
    rig.config.volumes[0].backend_timeout = Duration::ZERO;
    rig.start();
    let volume = rig.config.volumes[0].clone();
    for begun in [false, true] {
        let mut client = rig.client("vm1");
        assert_eq!(client.write(0, &[1; 4096], true), Ok(()));
        between.silent.store(true, SeqCst);
        client.ask_to_write(4096, &[2; 4096]);
        until_under_way(&rig, "vm1");
        let first = begun.then(|| {
            // Another one takes its place.
            let name = "vm1".to_owned();
            rig.send(|answer| Message::RemoveVolume {
                name,
                force: true,
                discard_dirty: false,
                answer,
            })
        });
        let error = remove(&rig, "vm1", true).expect_err("it costs something");
        assert_eq!(error.kind, CommandErrorKind::Io, "{error}");
        for told in ["is removed", "given up", "may still be carried out", "dropped"] {
            assert!(error.message.contains(told), "{error}");
        }
        if let Some(first) = first {
            let error = first.blocking_recv().expect("an answer").expect_err("another has it");
            assert!(error.message.contains("by force"), "{error}");
        }
        assert!(rig.status().volumes.iter().all(|volume| volume.config.name != "vm1"));
        assert_eq!(rig.client("good").write(0, &[3; 4096], true), Ok(()));
        between.silent.store(false, SeqCst);
        assert_eq!(add(&rig, volume.clone()), Ok(()), "its name and its addresses are free");
        assert_eq!(rig.client("vm1").read(0, 4096), Ok(vec![1; 4096]));
    }
    rig.stop();
    server.stop();
}

#[test]
fn what_can_not_be_called_back_is_told_and_ends_by_itself() {
    for way in 0..3 {
        in_way(way, told);
    }
}

fn told(io: IoMode) {
    let mut rig = Rig::new(io, &["slow"]);
    let file = rig.config.volumes[0].backend.clone();
    rig.config.volumes[0].backend = format!("sim:network,read=1ms,write=8s,flush=1ms:{file}");
    rig.config.volumes[0].backend_timeout = Duration::ZERO;
    rig.start();
    let volume = rig.config.volumes[0].clone();
    let mut client = rig.client("slow");
    client.ask_to_write(4096, &[9; 4096]);
    until_under_way(&rig, "slow");
    let error = remove(&rig, "slow", true).expect_err("it is not gone");
    assert_eq!(error.kind, CommandErrorKind::Busy, "{error}");
    assert!(error.message.contains("can't be called back"), "{error}");
    assert_eq!(remove(&rig, "slow", false).expect_err("it goes").kind, CommandErrorKind::Busy);
    while rig.status().volumes.iter().any(|volume| volume.config.name == "slow") {
        std::thread::sleep(STEP);
    }
    assert_eq!(add(&rig, volume), Ok(()), "nothing of it is left");
    assert_eq!(rig.client("slow").read(4096, 4096), Ok(vec![9; 4096]));
    rig.stop();
}
