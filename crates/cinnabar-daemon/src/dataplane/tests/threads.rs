//! Volumes that different data threads serve: what must not depend on which one it is.

use super::client::Client;
use super::rig::{MIB, Rig, SIZE, in_way, on_threads, pattern};
use crate::dataplane::data_thread::ThreadEvent;
use crate::dataplane::front::Side;
use crate::dataplane::guests::Forwarded;
use crate::dataplane::plane::DataPlane;
use crate::dataplane::worker::WorkerEvent;
use cinnabar_config::messages::recording::{Ending, Look, Recording};
use cinnabar_config::messages::{EvictionMode, IoMode, Message};
use cinnabar_driver::health_news::HealthNews;
use cinnabar_engine::Op;
use cinnabar_engine::health::{Health, Start};
use cinnabar_engine::units::Instant;
use cinnabar_frontend::{Command, ExportId, Incoming, Ticket};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::scope;
use std::time::Duration;

/// Where one shard's part of a volume ends and another's begins.
const BORDER: u64 = 4 * MIB;
const ESHUTDOWN: u32 = 108;

fn wait_until(what: impl Fn() -> bool) {
    while !what() {
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Bytes that differ from round to round.
fn of_round(round: u64, len: usize) -> Vec<u8> {
    pattern((round + 1) << 32, len)
}

/// More threads than those that serve guests may be at it; guests are served meanwhile.
#[test]
fn shards_are_loaded_side_by_side_and_found_warm() {
    on_threads(|_| {
        let mut rig = Rig::new(IoMode::Auto, &["vm1"]);
        rig.config.cache.eviction = EvictionMode::Clock;
        rig.config.volumes[0].exclusive = true;
        rig.start();
        let mut expected = pattern(0, SIZE as usize);
        assert!(rig.client("vm1").read(0, SIZE as u32).as_ref() == Ok(&expected));
        for round in 0..6 {
            assert!(rig.stop().clean);
            rig.start();
            // Writes to two shards, whether they have been loaded or not; a FLUSH of all.
            let mut client = rig.client("vm1");
            for part in 0..2 {
                let at = part * BORDER + (round + part) * 8192;
                let data = of_round(round * 8 + part, 8192);
                assert_eq!(client.write(at, &data, part == 1), Ok(()));
                expected[at as usize..][..data.len()].copy_from_slice(&data);
            }
            assert_eq!(client.flush(), Ok(()));
            // The status may be asked for at any moment.
            let status = rig.status();
            assert_eq!(status.volumes[0].connections, 1);
            assert!(client.read(0, SIZE as u32).as_ref() == Ok(&expected), "round {round}");
            if round % 2 == 0 {
                // Else the stop comes while it is being loaded, perhaps.
                let loaded = rig.loaded();
                let report = loaded.cache.loaded.expect("it is loaded").report;
                assert_eq!(report.start, Start::Clean, "{report:?}");
                assert!(report.blocks > SIZE / 4096 / 2, "{report:?}");
                assert!(client.read(0, SIZE as u32).as_ref() == Ok(&expected));
                let counters = rig.status().volumes[0].counters;
                assert!(counters.read_hits > SIZE / 4096 / 2, "{counters:?}");
            }
            client.leave();
        }
        assert!(rig.stop().clean);
    });
}

#[test]
fn several_clients_write_and_read_through_the_same_shards() {
    on_threads(|_| {
        let names = ["vm1", "vm2", "vm3", "vm4"];
        let mut rig = Rig::new(IoMode::Auto, &names);
        rig.start();
        let mut clients: Vec<_> = names.iter().map(|name| rig.client(name)).collect();
        scope(|scope| {
            for (number, client) in (0_u64..).zip(&mut clients) {
                scope.spawn(move || {
                    for round in 0..40 {
                        // Each volume has its own order; all of them meet at every shard.
                        let step = number * 2 + 3;
                        let at = (round * step * 61 * 4096) % (SIZE - 65_536);
                        let data = of_round(round * 8 + number, 16_384);
                        assert_eq!(client.write(at, &data, round % 7 == 0), Ok(()));
                        if round % 5 == 0 {
                            assert_eq!(client.flush(), Ok(()));
                        }
                        for _ in 0..3 {
                            assert!(client.read(at, 16_384).as_deref() == Ok(&data[..]));
                        }
                        assert!(client.read(SIZE - 4096, 4096) == Ok(pattern(SIZE - 4096, 4096)));
                    }
                });
            }
        });
        let status = rig.status();
        for volume in &status.volumes {
            assert_eq!(volume.connections, 1);
            assert_eq!(volume.latencies.read.count, 160, "counted once, by whichever thread");
            assert_eq!((volume.latencies.write.count, volume.latencies.flush.count), (40, 8));
        }
        let read: Vec<_> =
            clients.iter_mut().map(|client| client.read(0, SIZE as u32).expect("read")).collect();
        clients.into_iter().for_each(Client::leave);
        assert!(rig.stop().clean);
        for (name, read) in names.iter().zip(read) {
            let file = std::fs::read(rig.path(&format!("{name}.raw"))).expect("it is there");
            assert!(file == read, "{name}: what was read is on the back end");
        }
    });
}

/// A write that two shards share goes by the router, the next one need not: it must not be there
/// first.
#[test]
fn what_overlaps_is_done_in_the_order_in_which_it_came() {
    on_threads(|_| {
        let mut rig = Rig::new(IoMode::Auto, &["vm1"]);
        rig.start();
        let mut client = rig.client("vm1");
        for round in 0..60 {
            let (old, new) = (of_round(2 * round, 131_072), of_round(2 * round + 1, 4096));
            let at = BORDER - 4096 * (1 + round % 16);
            let first = client.ask_to_write(BORDER - 65_536, &old);
            client.ask_to_write(at, &new);
            client.ask(at, 4096);
            let (mut left, mut seen) = (BTreeSet::from([first, first + 1, first + 2]), None);
            while !left.is_empty() {
                let (cookie, result) =
                    client.answer_with(|cookie| if cookie == first + 2 { 4096 } else { 0 });
                let data = result.expect("it is done");
                assert!(left.remove(&cookie), "each is answered once");
                seen = (cookie == first + 2).then_some(data).or(seen);
            }
            assert!(seen.as_deref() == Some(&new[..]), "round {round}: a read behind the write");
            assert!(client.read(at, 4096).as_deref() == Ok(&new[..]), "round {round}");
        }
        client.leave();
        assert!(rig.stop().clean);
    });
}

#[test]
fn a_volume_is_removed_under_its_guests_requests_and_its_place_is_anothers() {
    on_threads(|threads| {
        let mut rig = Rig::new(IoMode::Auto, &["vm1", "vm2"]);
        for volume in &mut rig.config.volumes {
            volume.backend = format!("sim:network,packet=20ms:{}", volume.backend);
        }
        let again: Vec<_> = ["vm3", "vm4"].map(|name| rig.volume(name)).into();
        rig.start();
        let mut gone = Vec::new();
        for name in ["vm1", "vm2"] {
            let mut client = rig.client(name);
            // One shard's, two shards', all shards', and what always goes by the router.
            for at in 0..16 {
                client.ask(at * 65_536, 4096);
                client.ask_to_write(at * 65_536 + 32_768, &[7; 4096]);
            }
            client.ask(BORDER - 4096, 8192);
            client.ask_to_flush();
            client.ask_to_trim(MIB, 65_536);
            gone.push(client);
        }
        assert_eq!(rig.remove("vm1", true), Ok(()));
        // Its key is free: the next volume gets it, perhaps with another thread.
        for config in again {
            let name = config.name.clone();
            assert!(rig.ask(|answer| Message::AddVolume(Box::new(config), answer)).is_ok());
            let mut client = rig.client(&name);
            assert!(client.read(0, 262_144) == Ok(pattern(0, 262_144)), "{name}, {threads}");
            assert_eq!(client.write(8192, &[9; 4096], true), Ok(()));
            assert!(client.read(8192, 4096) == Ok(vec![9; 4096]));
            if name == "vm3" {
                assert_eq!(rig.remove("vm2", true), Ok(()));
            }
            client.leave();
        }
        assert!(gone.iter_mut().all(Client::ends), "their connections have ended");
        assert_eq!(rig.status().volumes.len(), 2);
        assert!(rig.stop().clean);
        for name in ["vm3", "vm4"] {
            let file = std::fs::read(rig.path(&format!("{name}.raw"))).expect("it is there");
            assert!(file[8192..12_288] == [9; 4096] && file[32_768..36_864] != [7; 4096]);
        }
    });
}

#[test]
fn a_client_leaves_in_the_middle_and_the_next_one_finds_its_disk() {
    on_threads(|_| {
        let mut rig = Rig::new(IoMode::Auto, &["vm1", "vm2"]);
        for volume in &mut rig.config.volumes {
            volume.backend = format!("sim:network,packet=10ms:{}", volume.backend);
        }
        rig.start();
        for round in 0..4 {
            for name in ["vm1", "vm2"] {
                let mut client = rig.client(name);
                for at in 0..32 {
                    client.ask(at * 65_536, 16_384);
                }
                client.ask(BORDER - 4096, 8192);
                client.ask_to_flush();
                if round % 2 == 0 {
                    // Some have come back, some are under way.
                    assert!(client.answer_with(reply_bytes).1.is_ok());
                }
                drop(client);
                let mut next = rig.client(name);
                let data = of_round(round, 8192);
                assert_eq!(next.write(BORDER - 4096, &data, false), Ok(()));
                assert!(next.read(BORDER - 4096, 8192).as_deref() == Ok(&data[..]));
                next.leave();
            }
        }
        wait_until(|| rig.status().volumes.iter().all(|volume| volume.connections == 0));
        assert!(rig.stop().clean);
    });
}

/// Of the requests of the test above, by cookies from 1 on.
const fn reply_bytes(cookie: u64) -> usize {
    match cookie {
        1..=32 => 16_384,
        33 => 8192,
        _ => 0,
    }
}

#[test]
fn a_client_that_reads_no_answers_holds_up_nobody() {
    on_threads(|threads| {
        let names: Vec<String> = (0..threads * 2).map(|number| format!("vm{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut rig = Rig::new(IoMode::Auto, &names);
        rig.start();
        let mut greedy = rig.client("vm0");
        for round in 0..200 {
            greedy.ask(round % 32 * 131_072, 131_072);
        }
        for name in &names[1..] {
            let mut client = rig.client(name);
            assert!(client.read(0, 65_536) == Ok(pattern(0, 65_536)), "{name}");
            assert_eq!(client.flush(), Ok(()));
        }
        // A stop gives it its time, and no more.
        assert!(rig.stop_within(Duration::from_secs(8)).clean);
    });
}

#[test]
fn a_recording_misses_nothing_from_its_beginning_to_its_end() {
    on_threads(|_| {
        let mut rig = Rig::new(IoMode::Auto, &["vm1", "vm2"]);
        rig.start();
        let mut clients = [rig.client("vm1"), rig.client("vm2")];
        let mut read = |blocks: std::ops::Range<u64>| {
            for block in blocks {
                for client in &mut clients {
                    assert!(client.read(block * 4096, 4096) == Ok(pattern(block * 4096, 4096)));
                }
            }
        };
        read(0..20);
        let names = Some(vec!["vm2".to_owned()]);
        let recording = rig.ask(|answer| Message::Record { names, answer }).expect("it begins");
        let Recording { id, feed, .. } = recording;
        read(20..40);
        assert_eq!(rig.ask(|answer| Message::EndRecording { id, answer }), Ok(()));
        read(40..60);
        let mut records = Vec::new();
        assert_eq!(feed.take(1000, &mut records), Look::Over(Ending::Asked));
        let offsets: Vec<u64> = records.iter().map(|record| record.offset_bytes / 4096).collect();
        assert_eq!(offsets, (20..40).collect::<Vec<u64>>());
        clients.into_iter().for_each(Client::leave);
        assert!(rig.stop().clean);
    });
}

#[test]
fn a_volume_grows_under_its_guest() {
    on_threads(|_| {
        let mut rig = Rig::new(IoMode::Auto, &["vm1", "vm2"]);
        rig.start();
        for name in ["vm1", "vm2"] {
            let mut client = rig.client(name);
            assert!(client.read(SIZE - 4096, 8192).is_err(), "nothing is there yet");
            let path = rig.path(&format!("{name}.raw"));
            let file = std::fs::OpenOptions::new().write(true).open(path).expect("it opens");
            file.set_len(2 * SIZE).expect("it grows");
            let owned = name.to_owned();
            let size = rig.ask(|answer| Message::ResizeVolume { name: owned, answer });
            assert_eq!(size, Ok(2 * SIZE));
            client.leave();
            let mut next = rig.client(name);
            let data = of_round(1, 8192);
            assert_eq!(next.write(SIZE - 4096, &data, false), Ok(()));
            assert!(next.read(SIZE - 4096, 8192).as_deref() == Ok(&data[..]));
            next.leave();
        }
        assert!(rig.stop().clean);
    });
}

#[test]
fn a_stop_answers_what_the_guests_of_every_thread_have_asked() {
    on_threads(|_| {
        let names = ["vm1", "vm2", "vm3"];
        let mut rig = Rig::new(IoMode::Auto, &names);
        for volume in &mut rig.config.volumes {
            volume.backend = format!("sim:network,packet=100ms:{}", volume.backend);
        }
        rig.start();
        let mut clients: Vec<_> = names.iter().map(|name| rig.client(name)).collect();
        for client in &mut clients {
            for at in 0..8 {
                client.ask_to_write(at * 131_072, &[5; 4096]);
            }
        }
        wait_until(|| rig.status().volumes.iter().all(|volume| volume.oldest.is_some()));
        let report = rig.stop();
        assert!(report.clean && report.cut_off == 0, "{report:?}");
        for client in &mut clients {
            let mut answered = 0;
            while let Some((_, result)) = client.next_answer() {
                // What the server had not read when it began to stop is refused, or not read.
                assert!(result.is_ok() || result == Err(ESHUTDOWN), "{result:?}");
                answered += 1;
            }
            assert!(answered > 0, "what was under way is answered");
        }
    });
}

#[test]
fn volumes_come_and_go_on_all_threads_while_others_serve() {
    on_threads(|_| {
        let mut rig = Rig::new(IoMode::Auto, &["vm1", "vm2"]);
        let coming: Vec<_> = (3..7).map(|number| rig.volume(&format!("vm{number}"))).collect();
        rig.start();
        let stop = Arc::new(AtomicBool::new(false));
        let readers: Vec<_> = ["vm1", "vm2"]
            .map(|name| {
                let (mut client, stop) = (rig.client(name), Arc::clone(&stop));
                std::thread::spawn(move || {
                    let mut block = 0;
                    while !stop.load(Relaxed) {
                        block = (block + 97) % (SIZE / 4096);
                        let read = client.read(block * 4096, 4096);
                        assert!(read == Ok(pattern(block * 4096, 4096)), "block {block}");
                    }
                    client.leave();
                })
            })
            .into();
        for round in 0..3 {
            for config in &coming {
                let config = Box::new(config.clone());
                assert!(rig.ask(|answer| Message::AddVolume(config, answer)).is_ok());
            }
            for config in &coming {
                let mut client = rig.client(&config.name);
                assert!(client.read(4096, 4096) == Ok(pattern(4096, 4096)), "round {round}");
                client.ask(8192, 4096);
                assert_eq!(rig.remove(&config.name, true), Ok(()));
            }
        }
        stop.store(true, Relaxed);
        for reader in readers {
            reader.join().expect("no panic");
        }
        assert!(rig.stop().clean);
    });
}

/// At a start whose cache device failed, what other threads had passed on was dropped with what the
/// engines had said: guests waited for ever.
#[test]
fn what_guests_asked_for_outlives_engines_that_could_not_open() {
    let rig = Rig::new(IoMode::Auto, &["vm1"]);
    let (mut plane, _commands) = DataPlane::start(&rig.config).expect("it starts");
    let request =
        Incoming { ticket: Ticket(1), export: ExportId(0), command: Command::Engine(Op::Flush) };
    let arrived = Instant::default();
    let passed = Forwarded { side: Side::Nbd, arrived, attachment: 0, request };
    let news = HealthNews { number: 1, health: Health::Opening };
    plane.heard.push(WorkerEvent::DataThread(1, ThreadEvent::Health(0, news)));
    plane.heard.push(WorkerEvent::Forwarded(1, passed));
    plane.forget_engines();
    let of_guests = |heard: &&WorkerEvent| matches!(heard, WorkerEvent::Forwarded(1, _));
    assert_eq!(plane.heard_early.iter().filter(of_guests).count(), 1);
    let of_engine = |heard: &WorkerEvent| matches!(heard, WorkerEvent::DataThread(..));
    assert!(!plane.heard_early.iter().any(of_engine));
    plane.end();
}

/// The status waited for a thread that did not turn, for as long as that lasted.
#[test]
fn the_status_comes_without_a_thread_that_does_not_turn_and_names_it() {
    for holds_shard in [false, true] {
        in_way(2, |io| status_beside_a_thread_that_hangs(io, holds_shard));
    }
}

fn status_beside_a_thread_that_hangs(io: IoMode, holds_shard: bool) {
    let rig = Rig::new(io, &["vm0", "vm1"]);
    let (mut plane, _commands) = DataPlane::start(&rig.config).expect("it starts");
    let (release, hangs) = std::sync::mpsc::sync_channel::<()>(0);
    let (begin, begun) = std::sync::mpsc::sync_channel(0);
    plane.shard_set.workers[0].order(move |hands| {
        let hang = || {
            begin.send(()).expect("the test waits");
            let _ = hangs.recv();
        };
        if holds_shard {
            let _ = hands.data_thread.try_ask(1, |_| hang());
        } else {
            hang();
        }
    });
    begun.recv().expect("it hangs");
    for _ in 0..3 {
        let begun = std::time::Instant::now();
        let status = plane.status();
        assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
        let told = "data thread cinnabar-data-1 does not answer";
        assert!(status.cache.reason.contains(told), "{}", status.cache.reason);
        for volume in &status.volumes {
            assert!(volume.reason.contains(told), "{}", volume.reason);
        }
        plane.look_around(plane.data_thread.clock.now());
    }
    drop(release);
    wait_until(|| !plane.status().cache.reason.contains("does not answer"));
    assert!(plane.status().volumes.iter().all(|volume| volume.reason.is_empty()));
    plane.end();
}

/// The time of all was used up by the first one, and the next one was told to be silent, too.
#[test]
fn a_thread_that_turns_is_not_named_beside_one_that_does_not() {
    on_threads(|threads| {
        if threads < 3 {
            return;
        }
        let rig = Rig::new(IoMode::Auto, &["vm0", "vm1", "vm2"]);
        let (plane, _commands) = DataPlane::start(&rig.config).expect("it starts");
        let (release, hangs) = std::sync::mpsc::sync_channel::<()>(0);
        plane.shard_set.workers[0].order(move |_| {
            let _ = hangs.recv();
        });
        for _ in 0..3 {
            let reason = plane.status().cache.reason;
            assert_eq!(reason, "data thread cinnabar-data-1 does not answer");
        }
        drop(release);
        wait_until(|| plane.status().cache.reason.is_empty());
        plane.end();
    });
}
