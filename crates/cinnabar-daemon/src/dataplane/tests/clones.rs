//! Clones over a parent volume. Files stand for them: a clone's file has its own marks where a cluster would show
//! the parent's content, so that what is read tells from where it came; or the same content as the parent's
//! where only the data matter.

use super::client::Client;
use super::rig::{MIB, Rig, SIZE, both, on_threads, pattern};
use super::vhost::Guest;
use cinnabar_config::messages::{
    CommandError, CommandErrorKind, EvictionMode, IoMode, Message, ParentStatus, StartErrorKind,
    State, VolumeConfig, VolumeMode, VolumeStatus,
};
use std::thread::scope;
use std::time::Duration;

const OBJECT: u64 = 64 << 10;
const BLOCK: u64 = 4096;

/// What a clone's file has in place of the parent's content.
fn marked(offset: u64, len: usize) -> Vec<u8> {
    pattern(offset + (1 << 40), len)
}

fn volume(rig: &Rig, name: &str) -> VolumeStatus {
    let status = rig.status();
    status.volumes.into_iter().find(|one| one.config.name == name).expect("it is in the status")
}

fn parent(rig: &Rig, name: &str) -> ParentStatus {
    volume(rig, name).parent.expect("it has a parent")
}

/// Says beside a clone's file of what file it is a clone, and what it has itself.
fn tell(rig: &Rig, name: &str, parent: &str, overlap: u64, own: &[u64]) {
    let parent = rig.path(parent);
    let own: Vec<_> = own.iter().map(|object| format!("own {object}\n")).collect();
    let own = own.concat();
    let text = format!("parent {}\nobject {OBJECT}\noverlap {overlap}\n{own}", parent.display());
    std::fs::write(rig.path(&format!("{name}.raw.clone")), text).expect("a file");
}

/// A rig with the parent volume `golden` and clones; each file of a clone is filled by `content`.
fn with_clones(io: IoMode, clones: &[&str], content: impl Fn(u64, usize) -> Vec<u8>) -> Rig {
    let names: Vec<&str> = ["golden"].iter().chain(clones).copied().collect();
    let mut rig = Rig::new(io, &names);
    rig.config.cache.eviction = EvictionMode::Clock;
    rig.config.volumes[0].read_only = true;
    for volume in &mut rig.config.volumes[1..] {
        volume.parent = Some("golden".into());
    }
    for name in clones {
        std::fs::write(rig.path(&format!("{name}.raw")), content(0, SIZE as usize))
            .expect("a file");
        tell(&rig, name, "golden.raw", SIZE, &[]);
    }
    rig
}

fn add(rig: &Rig, config: &VolumeConfig) -> Result<(), CommandError> {
    let config = Box::new(config.clone());
    rig.ask(|answer| Message::AddVolume(config, answer))
}

fn once(what: &str, reached: impl Fn() -> bool) {
    let until = std::time::Instant::now() + Duration::from_mins(1);
    while !reached() {
        assert!(std::time::Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn what_a_clone_lacks_is_read_from_its_parents_cache() {
    both(|io| {
        let mut rig = with_clones(io, &["vm1", "vm2"], marked);
        // It has the objects 2 and 3, and its parent is shorter.
        tell(&rig, "vm1", "golden.raw", SIZE - 2 * OBJECT, &[2, 3]);
        rig.start();
        let (mut vm1, mut vm2) = (rig.client("vm1"), rig.client("vm2"));
        let len = OBJECT as usize;
        assert!(vm1.read(0, OBJECT as u32) == Ok(pattern(0, len)), "the parent's");
        assert!(vm1.read(2 * OBJECT, OBJECT as u32) == Ok(marked(2 * OBJECT, len)), "its own");
        let end = SIZE - 2 * OBJECT;
        assert!(vm1.read(end - BLOCK, 4096) == Ok(pattern(end - BLOCK, 4096)));
        assert!(vm1.read(end, 4096) == Ok(marked(end, 4096)), "beyond the overlap");
        let mixed = 2 * OBJECT - BLOCK;
        assert!(vm1.read(mixed, 8192) == Ok(marked(mixed, 8192)), "as the clone shows it");
        let status = parent(&rig, "vm1");
        assert_eq!((status.name.as_str(), status.reason.as_str()), ("golden", ""));
        assert_eq!((status.reads, status.blocks), (2, OBJECT / BLOCK + 1));
        assert_eq!((status.objects, status.own_objects), ((SIZE / OBJECT) - 2, 2));
        let golden = volume(&rig, "golden").counters;
        assert_eq!(golden.blocks_read, OBJECT / BLOCK + 1, "all of it is counted there");
        let own = volume(&rig, "vm1").counters;
        assert_eq!(own.blocks_read, OBJECT / BLOCK + 3, "and none of it here");

        // The other clone finds what the first one has filled.
        assert!(vm2.read(0, OBJECT as u32) == Ok(pattern(0, len)));
        let after = volume(&rig, "golden").counters;
        assert_eq!(after.backend_read_bytes, golden.backend_read_bytes, "read once");
        assert_eq!(after.read_hits - golden.read_hits, OBJECT / BLOCK);
        assert_eq!(volume(&rig, "vm2").counters.backend_read_bytes, 0);
        assert_eq!(volume(&rig, "vm2").counters.cached_blocks, 0, "not cached a second time");

        // Whatever changes an object makes it the clone's own, as far as it reaches, and no other's.
        let object = |number: u64| number * OBJECT;
        assert_eq!(vm1.write(object(10) + 512, &[1; 512], false), Ok(()));
        assert_eq!(vm1.trim(object(20), OBJECT as u32), Ok(()));
        assert_eq!(vm1.zero(object(31) - 4096, 8192), Ok(()));
        for own in [10, 20, 30, 31] {
            let at = object(own) + 8192;
            let expected = if own == 20 { vec![0; 4096] } else { marked(at, 4096) };
            assert!(vm1.read(at, 4096) == Ok(expected), "object {own}");
        }
        for other in [9, 11, 19, 21, 29, 32] {
            let at = object(other) + 8192;
            assert!(vm1.read(at, 4096) == Ok(pattern(at, 4096)), "object {other}");
        }
        assert!(vm2.read(object(10), 4096) == Ok(pattern(object(10), 4096)), "another clone");
        let mut written = marked(object(10), 1024);
        written[512..].fill(1);
        assert!(vm1.read(object(10), 1024) == Ok(written));
        assert_eq!(parent(&rig, "vm1").own_objects, 6);
        assert_eq!((vm1.flush(), vm2.flush()), (Ok(()), Ok(())));

        // Warm behind a restart, by the parent's own proof.
        assert!(rig.stop().clean);
        rig.start();
        rig.loaded();
        assert!(rig.client("vm2").read(0, OBJECT as u32) == Ok(pattern(0, len)));
        let golden = volume(&rig, "golden").counters;
        assert_eq!((golden.read_hits, golden.backend_reads), (OBJECT / BLOCK, 0));
        assert!(rig.stop().clean);
    });
}

#[test]
fn without_its_parent_a_clone_reads_by_itself() {
    both(|io| {
        let mut rig = with_clones(io, &["vm1"], marked);
        std::fs::rename(rig.path("golden.raw"), rig.path("away")).expect("it goes");
        rig.start();
        let mut vm1 = rig.client("vm1");
        assert!(vm1.read(0, 4096) == Ok(marked(0, 4096)), "the parent waits for its back end");
        assert_eq!(parent(&rig, "vm1").reason, "volume \"golden\" does not serve");
        std::fs::rename(rig.path("away"), rig.path("golden.raw")).expect("it comes back");
        once("the parent comes", || parent(&rig, "vm1").reason.is_empty());
        assert!(vm1.read(OBJECT, 4096) == Ok(pattern(OBJECT, 4096)));
        assert_eq!(rig.remove("golden", true), Ok(()));
        assert!(vm1.read(2 * OBJECT, 4096) == Ok(marked(2 * OBJECT, 4096)), "it was removed");
        assert_eq!(parent(&rig, "vm1").reason, "volume \"golden\" does not serve");
        let golden = rig.config.volumes[0].clone();
        assert_eq!(add(&rig, &golden), Ok(()));
        assert!(vm1.read(3 * OBJECT, 4096) == Ok(pattern(3 * OBJECT, 4096)), "it is back");

        // One that gives up sooner than the clone is not used.
        assert_eq!(rig.remove("golden", true), Ok(()));
        let hasty = VolumeConfig { backend_timeout: Duration::from_secs(29), ..golden };
        assert_eq!(add(&rig, &hasty), Ok(()));
        let reason = parent(&rig, "vm1").reason;
        assert!(reason.contains("shorter than its own"), "{reason}");
        assert!(vm1.read(4 * OBJECT, 4096) == Ok(marked(4 * OBJECT, 4096)));
        assert!(rig.stop().clean);
    });
}

#[test]
fn a_read_that_the_parent_fails_is_read_from_the_clone() {
    both(|io| {
        let mut rig = with_clones(io, &["vm1", "vm2"], marked);
        let socket = rig.path("vm2.vhost");
        let volume = &mut rig.config.volumes[2];
        (volume.nbd, volume.vhost_user) = (None, Some(socket.clone()));
        rig.start();
        let mut vm1 = rig.client("vm1");
        let mut guest = Guest::start(&socket);
        assert!(guest.read(0, 4096) == pattern(0, 4096));
        // What it had there can't be read any more, but for what is cached.
        let file = std::fs::File::options().write(true).open(rig.path("golden.raw"));
        file.and_then(|file| file.set_len(OBJECT)).expect("it is cut short");
        assert!(vm1.read(8 * OBJECT, 4096) == Ok(marked(8 * OBJECT, 4096)));
        assert!(guest.read(8 * OBJECT / 512, 8192) == marked(8 * OBJECT, 8192));
        assert!(guest.read(0, 4096) == pattern(0, 4096), "it was cached");
        let (first, second) = (parent(&rig, "vm1"), parent(&rig, "vm2"));
        assert_eq!((first.reads, first.blocks, first.repeated), (1, 0, 1));
        assert_eq!((second.reads, second.blocks, second.repeated), (3, 2, 1));
        drop(guest);
        rig.stop();
    });
}

#[test]
fn a_clone_of_another_snapshot_is_refused_in_one_line() {
    let mut rig = with_clones(IoMode::Auto, &["vm1", "vm2"], marked);
    tell(&rig, "vm1", "other.raw", SIZE, &[]);
    rig.start();
    let vm1 = volume(&rig, "vm1");
    assert_eq!(vm1.state, State::Waiting);
    let (wanted, found) = (rig.path("other.raw"), rig.path("golden.raw"));
    let line = format!(
        "it is a clone of {}, and volume \"golden\", its parent, is {}",
        wanted.display(),
        found.display()
    );
    assert!(vm1.reason.ends_with(&line) && !vm1.reason.contains('\n'), "{}", vm1.reason);
    assert!(rig.client("vm2").read(0, 4096) == Ok(pattern(0, 4096)), "others are served");
    // An operator is told.
    assert_eq!(rig.remove("vm1", true), Ok(()));
    let config = rig.config.volumes[1].clone();
    let error = add(&rig, &config).expect_err("it is another one's clone");
    assert!(error.kind == CommandErrorKind::Invalid && error.message.ends_with(&line), "{error:?}");
    // One that comes behind its clone is not used.
    assert_eq!(rig.remove("golden", true), Ok(()));
    assert_eq!(add(&rig, &config), Ok(()));
    assert_eq!(add(&rig, &rig.config.volumes[0].clone()), Ok(()));
    assert_eq!(parent(&rig, "vm1").reason, line);
    assert!(rig.client("vm1").read(0, 4096) == Ok(marked(0, 4096)));
    // Nor is one that is written.
    assert_eq!(rig.remove("golden", true), Ok(()));
    let written = VolumeConfig { read_only: false, ..rig.config.volumes[0].clone() };
    assert_eq!(add(&rig, &written), Ok(()));
    let reason = parent(&rig, "vm2").reason;
    assert!(reason.contains("is written"), "{reason}");
    assert!(rig.stop().clean);
}

#[test]
fn a_back_end_that_can_not_say_what_it_has_itself_is_refused() {
    let mut rig = with_clones(IoMode::Auto, &["vm1"], marked);
    std::fs::remove_file(rig.path("vm1.raw.clone")).expect("it was there");
    let error = rig.try_start().expect_err("it is a file");
    assert_eq!(error.kind, StartErrorKind::Settings);
    assert!(error.message.contains("only an RBD image can say"), "{error}");
    // One that is no clone any more is served, all of it its own.
    std::fs::write(rig.path("vm1.raw.clone"), format!("object {OBJECT}\noverlap 0\n")).expect("it");
    rig.start();
    assert!(rig.client("vm1").read(0, 4096) == Ok(marked(0, 4096)));
    assert_eq!(parent(&rig, "vm1").reason, "the image is no clone (any more)");
    assert!(rig.stop().clean);
}

/// Guests of several clones, two at each, that write and read blocks of their own in objects which they share.
/// Each read must give what its guest wrote last, or what the parent has.
fn write_and_read(rig: &Rig, clones: &[&str], rounds: u64) {
    scope(|scope| {
        for (number, name) in (0_u64..).zip(clones) {
            for guest in 0..2 {
                let socket = rig.path(&format!("{name}.sock"));
                scope.spawn(move || {
                    let mut client = Client::connect(&socket, name);
                    let mut rng: u64 = number * 2 + guest + 1;
                    let mut below = |end: u64| {
                        rng = rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
                        (rng >> 33) % end
                    };
                    let mut expected = pattern(0, SIZE as usize);
                    for round in 0..rounds {
                        // Every other block of the volume.
                        let at = below(SIZE / BLOCK / 2) * 2 * BLOCK + guest * BLOCK;
                        let (sector, sectors) = (below(4) * 512, 1 + below(4));
                        let place = (at + sector) as usize..(at + sector + sectors * 512) as usize;
                        if below(12) == 0 {
                            let data = marked((number << 50) + round * SIZE, place.len());
                            assert_eq!(
                                client.write(place.start as u64, &data, below(9) == 0),
                                Ok(())
                            );
                            expected[place].copy_from_slice(&data);
                        } else {
                            let len = place.len() as u32;
                            let found = client.read(place.start as u64, len);
                            assert!(
                                found.as_deref() == Ok(&expected[place.clone()]),
                                "{name} {place:?}"
                            );
                        }
                    }
                    client.leave();
                });
            }
        }
        // The parent comes and goes meanwhile.
        for _ in 0..3 {
            std::thread::sleep(Duration::from_millis(30));
            assert_eq!(rig.remove("golden", true), Ok(()));
            std::thread::sleep(Duration::from_millis(10));
            assert_eq!(add(rig, &rig.config.volumes[0].clone()), Ok(()));
        }
    });
}

#[test]
fn guests_read_what_they_wrote_last() {
    on_threads(|_| {
        let mut rig = with_clones(IoMode::Auto, &["vm1", "vm2", "vm3"], pattern);
        for volume in &mut rig.config.volumes[1..] {
            volume.shared = true;
        }
        rig.start();
        write_and_read(&rig, &["vm1", "vm2", "vm3"], 3000);
        for name in ["vm1", "vm2", "vm3"] {
            let status = parent(&rig, name);
            assert!(status.reads > 100 && status.own_objects > 10, "{status:?}");
        }
        assert!(rig.stop().clean);
    });
}

#[test]
fn so_do_guests_whose_writes_are_in_the_write_log() {
    let mut rig = with_clones(IoMode::Auto, &["vm1", "vm2"], pattern);
    rig.config.cache.write_log = Rig::write_back(IoMode::Auto, &[]).config.cache.write_log;
    let path = rig.path("writes.img");
    if let Some(log) = &mut rig.config.cache.write_log {
        log.path = path;
    }
    for volume in &mut rig.config.volumes[1..] {
        (volume.shared, volume.mode) = (true, VolumeMode::WriteBack);
    }
    rig.start();
    write_and_read(&rig, &["vm1", "vm2"], 3000);
    for name in ["vm1", "vm2"] {
        let status = parent(&rig, name);
        assert!(status.reads > 100, "{status:?}");
    }
    // What the log alone has, and what it has brought to the back end, are the clone's.
    let mut vm1 = rig.client("vm1");
    assert_eq!(vm1.write(7 * MIB, &[9; 4096], false), Ok(()));
    assert!(vm1.read(7 * MIB, 4096) == Ok(vec![9; 4096]));
    assert_eq!(vm1.flush(), Ok(()));
    assert!(vm1.read(7 * MIB, 4096) == Ok(vec![9; 4096]));
    vm1.leave();
    assert!(rig.stop().clean);
}
