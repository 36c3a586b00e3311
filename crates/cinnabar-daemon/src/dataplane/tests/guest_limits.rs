//! Limits of what guests ask for: they hold hits, in every mode and on every data thread, and what is held
//! when something ends.

use super::client::Client;
use super::rig::{MIB, Rig, both, on_threads, pattern};
use super::vhost::Guest;
use cinnabar_config::messages::{CommandErrorKind, IoMode, Message, VolumeChange};
use std::time::{Duration, Instant};

const EIO: u32 = 5;

/// Two volumes, of which the first has a limit.
fn rig(io: IoMode, iops: u32) -> Rig {
    let mut rig = Rig::new(io, &["held", "free"]);
    rig.config.volumes[0].guest_iops_limit = iops;
    rig
}

fn set(rig: &Rig, iops: u32, bytes: u64) {
    let (guest_iops_limit, guest_bytes_limit) = (Some(iops), Some(bytes));
    let change = VolumeChange { guest_iops_limit, guest_bytes_limit, ..VolumeChange::default() };
    let name = "held".to_owned();
    assert_eq!(rig.ask(|answer| Message::SetVolume { name, change, answer }), Ok(()));
}

fn waited(rig: &Rig) -> u64 {
    let status = rig.status();
    assert!(status.volumes.iter().all(|one| one.config.name == "held" || one.guest_waited == 0));
    status.volumes[0].guest_waited
}

fn wait_for(rig: &Rig, count: u64) {
    while waited(rig) < count {
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn answers(client: &mut Client, count: usize, len: usize) -> Vec<Result<Vec<u8>, u32>> {
    (0..count).map(|_| client.answer(len).1).collect()
}

/// That long at least, less what a limit catches up on.
fn lasted(from: Instant, seconds: f64) {
    let elapsed = from.elapsed().as_secs_f64();
    assert!(elapsed > seconds - 0.05, "{elapsed} s instead of {seconds}");
}

#[test]
fn hits_are_held_to_a_guests_own_limit_and_those_of_a_neighbour_are_not() {
    on_threads(|_| {
        let mut rig = rig(IoMode::Auto, 50);
        rig.start();
        let (mut held, mut free) = (rig.client("held"), rig.client("free"));
        assert!(held.read(0, 4096).is_ok() && free.read(0, 4096).is_ok());
        let from = Instant::now();
        (0..51).for_each(|_| held.ask(0, 4096));
        for _ in 0..200 {
            assert_eq!(free.read(0, 4096), Ok(pattern(0, 4096)));
        }
        wait_for(&rig, 48);
        assert_eq!(answers(&mut held, 51, 4096), vec![Ok(pattern(0, 4096)); 51]);
        lasted(from, 1.0);
        let status = rig.status();
        assert!(status.volumes.iter().all(|one| one.counters.misses <= 1), "hits");
        assert_eq!(status.volumes[0].latencies.read.count, 52);
        // Bytes alone, and then no limit for what is held already.
        set(&rig, 0, MIB);
        let from = Instant::now();
        (0..2).for_each(|_| held.ask(0, MIB as u32));
        assert_eq!(answers(&mut held, 2, MIB as usize), vec![Ok(pattern(0, MIB as usize)); 2]);
        lasted(from, 1.0);
        let before = waited(&rig);
        set(&rig, 1, 0);
        (0..30).for_each(|_| held.ask(0, 4096));
        wait_for(&rig, before + 28);
        let from = Instant::now();
        set(&rig, 0, 0);
        assert!(answers(&mut held, 30, 4096).iter().all(Result::is_ok));
        assert!(from.elapsed() < Duration::from_secs(15), "{:?}", from.elapsed());
        assert!(rig.stop().clean);
    });
}

#[test]
fn so_are_those_of_a_virtual_machine() {
    on_threads(|_| {
        let mut rig = rig(IoMode::Auto, 50);
        let socket = rig.path("held.vhost");
        let volume = &mut rig.config.volumes[0];
        (volume.nbd, volume.vhost_user) = (None, Some(socket.clone()));
        rig.start();
        let mut guest = Guest::start(&socket);
        let from = Instant::now();
        for _ in 0..51 {
            assert_eq!(guest.read(8, 512), pattern(4096, 512));
        }
        lasted(from, 1.0);
        assert!(waited(&rig) > 0);
        drop(guest);
        assert!(rig.stop().clean);
    });
}

#[test]
fn writes_to_the_write_log_are_held_to_it() {
    let mut rig = Rig::write_back(IoMode::Auto, &["held", "free"]);
    rig.config.volumes[0].guest_iops_limit = 50;
    rig.start();
    let (mut held, mut free) = (rig.client("held"), rig.client("free"));
    let from = Instant::now();
    for n in 0..50 {
        held.ask_to_write(n * 4096, &[7; 4096]);
    }
    held.ask_to_flush();
    assert_eq!(free.write(0, &[8; 4096], true), Ok(()));
    assert!(answers(&mut held, 51, 0).iter().all(Result::is_ok));
    lasted(from, 1.0);
    set(&rig, 0, 0);
    assert!(held.read(0, 50 * 4096) == Ok(vec![7; 50 * 4096]));
    assert!(rig.stop().clean);
    let file = std::fs::read(rig.path("held.raw")).expect("it is there");
    assert!(
        file[..50 * 4096].iter().all(|byte| *byte == 7) && file[50 * 4096..][..4096] != [7; 4096]
    );
}

#[test]
fn a_volume_is_removed_while_requests_are_held() {
    on_threads(|_| {
        let mut rig = rig(IoMode::Auto, 1);
        rig.start();
        let (mut held, mut free) = (rig.client("held"), rig.client("free"));
        (0..40).for_each(|_| held.ask(0, 4096));
        wait_for(&rig, 38);
        let from = Instant::now();
        assert_eq!(rig.remove("held", false), Err(CommandErrorKind::Busy));
        assert_eq!(rig.remove("held", true), Ok(()));
        assert!(from.elapsed() < Duration::from_secs(15), "{:?}", from.elapsed());
        assert!(held.ends());
        assert_eq!(free.read(0, 4096), Ok(pattern(0, 4096)));
        // Another volume at its place has nothing of it.
        let config = Box::new(rig.volume("held"));
        assert_eq!(rig.ask(|answer| Message::AddVolume(config, answer)), Ok(()));
        let mut again = rig.client("held");
        for _ in 0..100 {
            assert_eq!(again.read(0, 4096), Ok(pattern(0, 4096)));
        }
        assert!(rig.status().volumes.iter().all(|volume| volume.guest_waited == 0));
        assert!(rig.stop().clean);
    });
}

#[test]
fn a_stop_lets_go_on_what_is_held() {
    on_threads(|_| {
        let mut rig = rig(IoMode::Auto, 1);
        rig.start();
        let mut held = rig.client("held");
        for n in 0..40 {
            held.ask_to_write(n * 4096, &[7; 4096]);
        }
        wait_for(&rig, 38);
        let from = Instant::now();
        assert!(rig.stop().clean);
        assert!(from.elapsed() < Duration::from_secs(15), "{:?}", from.elapsed());
        assert_eq!(answers(&mut held, 40, 0), vec![Ok(Vec::new()); 40]);
        let file = std::fs::read(rig.path("held.raw")).expect("it is there");
        assert!(file[..40 * 4096].iter().all(|byte| *byte == 7));
    });
}

#[test]
fn what_is_held_for_longer_than_its_time_fails() {
    both(|io| {
        let mut rig = rig(io, 2);
        rig.config.volumes[0].backend_timeout = Duration::from_secs(1);
        rig.start();
        let mut held = rig.client("held");
        assert!(held.read(0, 4096).is_ok());
        let from = Instant::now();
        (0..10).for_each(|_| held.ask(0, 4096));
        let answers = answers(&mut held, 10, 4096);
        assert!(answers[0].is_ok(), "the first one was in time");
        assert!(answers[3..].iter().all(|answer| *answer == Err(EIO)), "three at most were");
        lasted(from, 1.0);
        assert!(from.elapsed() < Duration::from_secs(15), "{:?}", from.elapsed());
        assert!(rig.stop().clean);
    });
}

#[test]
fn what_is_held_of_a_client_that_is_gone_is_not_done() {
    both(|io| {
        let mut rig = rig(io, 1);
        rig.start();
        let mut gone = rig.client("held");
        for n in 0..20 {
            gone.ask_to_write(n * 4096, &[7; 4096]);
        }
        wait_for(&rig, 18);
        drop(gone);
        while rig.status().volumes[0].connections > 0 {
            std::thread::sleep(Duration::from_millis(2));
        }
        let (mut held, from) = (rig.client("held"), Instant::now());
        assert_eq!(held.write(10 * 4096, &[8; 4096], false), Ok(()));
        assert!(from.elapsed() < Duration::from_secs(10), "{:?}", from.elapsed());
        set(&rig, 0, 0);
        let expected = [pattern(9 * 4096, 4096), vec![8; 4096], pattern(11 * 4096, 4096)].concat();
        assert!(held.read(9 * 4096, 3 * 4096) == Ok(expected));
        assert!(rig.stop().clean);
    });
}
