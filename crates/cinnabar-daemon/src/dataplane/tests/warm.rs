//! What is hot comes along with a volume that is taken: from one data plane's cache to the other's, over
//! as much of the control API as that needs.

use super::client::Client;
use super::migrate::{Host, Model, out, two};
use super::rig::{MIB, SIZE, both};
use cinnabar_config::messages::{
    CommandError, Commands, HotPage, IoMode, Message, MigrationRole, WarmStatus,
};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::io::Write;
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const BLOCK: u64 = 4096;
const BLOCKS: u64 = SIZE / BLOCK;

/// What is about to be sent: whether it is blocks, and the body. Gives what is sent; `None`: the
/// connection ends.
type Meddle = Box<dyn FnMut(bool, Vec<u8>) -> Option<Vec<u8>> + Send>;
pub(super) type Meddler = Arc<Mutex<Option<Meddle>>>;

fn meddle(host: &Host, meddle: impl FnMut(bool, Vec<u8>) -> Option<Vec<u8>> + Send + 'static) {
    *host.meddler.lock().expect("no test panics there") = Some(Box::new(meddle));
}

pub(super) fn ask<T>(
    commands: &Commands,
    message: impl FnOnce(cinnabar_config::messages::AnswerTo<T>) -> Message,
) -> Result<T, CommandError> {
    let (answer, answered) = tokio::sync::oneshot::channel();
    commands.send(message(answer))?;
    answered.blocking_recv().unwrap_or_else(|_| Err(CommandError::gone()))
}

/// As `cinnabar-control` does.
pub(super) fn answer_hot(
    mut stream: TcpStream,
    text: &str,
    commands: &Commands,
    meddler: &Meddler,
) {
    assert!(text.contains("Authorization: Bearer 0123456789abcdef\r\n"), "{text}");
    let is_fetch = text.starts_with("POST ");
    let (name, body) = ("vm1".to_owned(), text.split("\r\n\r\n").nth(1).expect("a body"));
    let said = if is_fetch {
        let asked: serde_json::Value = serde_json::from_str(body).expect("JSON");
        let blocks = asked["blocks"].as_array().expect("a list").iter();
        let blocks = blocks.map(|block| block.as_u64().expect("a number")).collect();
        let epoch = asked["epoch"].as_u64().expect("a number");
        ask(commands, |answer| Message::HotBlocks { name, epoch, blocks, answer })
    } else {
        let number = |key: &str| {
            let rest = text.split(&format!("{key}=")).nth(1).expect("it is there");
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            digits.parse::<u64>().expect("a number")
        };
        let (epoch, after, limit) = (number("epoch"), number("after"), number("limit") as usize);
        ask(commands, |answer| Message::Hot { name, epoch, after, limit, answer })
            .map(|page| page_text(epoch, &page).into_bytes())
    };
    let (code, body) = match said {
        Ok(body) => match meddler.lock().expect("no test panics there").as_mut() {
            Some(meddle) => match meddle(is_fetch, body) {
                Some(body) => (200, body),
                None => return,
            },
            None => (200, body),
        },
        Err(error) => (409, serde_json::json!({ "error": error.message }).to_string().into_bytes()),
    };
    // The asker may be gone.
    let _ = write!(stream, "HTTP/1.1 {code} X\r\ncontent-length: {}\r\n\r\n", body.len());
    let _ = stream.write_all(&body);
}

fn page_text(epoch: u64, page: &HotPage) -> String {
    let HotPage { blocks, next, proof, size_bytes } = page;
    let hex = |byte: &u8| format!("{byte:02x}");
    let proof = proof.map(|proof| proof.iter().map(hex).collect::<Vec<_>>().concat());
    serde_json::json!({
        "epoch": epoch, "blocks": blocks, "next": next, "proof": proof, "size_bytes": size_bytes,
    })
    .to_string()
}

fn warm(host: &Host) -> WarmStatus {
    host.migration().warm.expect("something was to come along")
}

/// Waits until it has ended.
fn ended(host: &Host) -> WarmStatus {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let status = host.migration().warm.filter(|warm| warm.ended.is_some());
        if let Some(warm) = status {
            return warm;
        }
        assert!(Instant::now() < until, "it does not end: {:?}", host.migration());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Reads every block of a part, so that it is cached.
fn read_all(client: &mut Client, blocks: std::ops::Range<u64>) {
    blocks.for_each(|block| drop(client.read(block * BLOCK, BLOCK as u32).expect("it is read")));
}

/// Blocks of which most reads are of a few: nine in ten of a quarter of them.
fn skewed(rng: &mut Xoshiro256PlusPlus) -> u64 {
    let hot = rng.random_range(0..10) < 9;
    let block = if hot { rng.random_range(0..BLOCKS / 4) } else { rng.random_range(0..BLOCKS) };
    // Not all in one place.
    block * 1031 % BLOCKS
}

/// The guest's hits of its reads, and the reads, of so many reads.
fn load(host: &Host, client: &mut Client, seed: u64, reads: u64, pause: Duration) -> (u64, u64) {
    let counters = || host.rig.status().volumes[0].counters;
    let (before, mut rng) = (counters(), Xoshiro256PlusPlus::seed_from_u64(seed));
    for _ in 0..reads {
        client.read(skewed(&mut rng) * BLOCK, BLOCK as u32).expect("it is read");
        std::thread::sleep(pause);
    }
    let after = counters();
    let (hits, misses) = (after.read_hits - before.read_hits, after.misses - before.misses);
    (hits, hits + misses)
}

#[test]
fn the_hit_ratio_is_soon_what_it_was() {
    both(|io| {
        for comes in [true, false] {
            let (mut a, mut b) = two(io);
            b.rig.config.volumes[0].warm.rate_bytes = if comes { 100_000_000 } else { 0 };
            b.stop();
            b.start();
            out(&a, &b);
            let mut model = Model::new();
            let (mut at_a, mut at_b) = (a.client(), b.client());
            model.write(&mut at_a, 0, 4096, 1, false);
            load(&a, &mut at_a, 1, 8000, Duration::ZERO);
            let (hits, reads) = load(&a, &mut at_a, 2, 1000, Duration::ZERO);
            let before = hits as f64 / reads as f64;
            assert!(before > 0.8, "{before}");
            model.write(&mut at_b, 4096, 4096, 2, false);
            assert_eq!(b.migration().role, MigrationRole::Owner);
            let (hits, reads) = load(&b, &mut at_b, 3, 500, Duration::from_millis(2));
            assert_eq!(reads, 500, "what comes along is not counted as the guest's");
            let ratio = hits as f64 / reads as f64;
            eprintln!("{io:?}, {comes}: {before:.3} before, {ratio:.3} behind the hand-over");
            if comes {
                assert!(ratio >= 0.8 * before, "{ratio} of {before}: {:?}", warm(&b));
                let warm = ended(&b);
                assert!(warm.fetched > 400 && warm.bytes == warm.fetched * BLOCK, "{warm:?}");
                assert_eq!(warm.listed, warm.fetched + warm.skipped, "{warm:?}");
                assert_eq!(warm.arrivals, 1);
            } else {
                assert!(ratio < 0.8 * before, "a host that begins cold: {ratio} of {before}");
                assert!(b.migration().warm.is_none());
            }
            model.check(&mut at_b, "the new owner");
            drop((at_a, at_b));
            b.stop();
            a.stop();
        }
    });
}

#[test]
fn what_comes_along_never_overwrites_what_was_written_since() {
    both(|io| {
        let (mut a, mut b) = two(io);
        out(&a, &b);
        let mut model = Model::new();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
        let (mut at_a, mut at_b) = (a.client(), b.client());
        for host in [&a, &b] {
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(8);
            // Answers are late, behind writes to what they hold.
            meddle(host, move |_, body| {
                std::thread::sleep(Duration::from_millis(rng.random_range(0..12)));
                Some(body)
            });
        }
        let mut came = 0;
        for round in 0..6_u64 {
            let (to, host) = if round % 2 == 0 { (&mut at_b, &b) } else { (&mut at_a, &a) };
            let mut stamp = 1 + round * 100_000;
            let mut next = || {
                stamp += 1;
                stamp
            };
            model.write(to, 0, 4096, next(), false);
            let until = Instant::now() + Duration::from_mins(1);
            let mut steps = 0;
            while warm(host).ended.is_none() || steps < 400 {
                steps += 1;
                assert!(Instant::now() < until, "it ends");
                let block = rng.random_range(0..BLOCKS - 8);
                let (at, count) = (block * BLOCK, rng.random_range(1..8) * 4096);
                match rng.random_range(0..10) {
                    0..5 => {
                        let sector = rng.random_range(0..8) * 512;
                        let len = rng.random_range(1..40) * 512;
                        model.write(to, at + sector, len.min(28_672), next(), false);
                    }
                    5 => {
                        to.zero(at, count as u32).expect("zeroed");
                        model.0[at as usize..at as usize + count].fill(0);
                    }
                    _ => {
                        let found = to.read(at, count as u32).expect("read");
                        let (from, to) = (at as usize, at as usize + count);
                        assert!(found == model.0[from..to], "round {round}, block {block}");
                    }
                }
            }
            // Twice: from wherever it comes, and from the cache.
            for look in 0..2 {
                model.check(to, &format!("round {round}, look {look}"));
            }
            came += warm(host).fetched;
        }
        assert!(came > 500, "blocks have come along: {came}");
        drop((at_a, at_b));
        b.stop();
        a.stop();
        assert!(std::fs::read(a.rig.path("vm1.raw")).expect("the file") == model.0);
    });
}

/// Host A has read all of the volume and hands it over; host B is warming.
fn handed_over(io: IoMode, prepare: impl FnOnce(&mut Host, &mut Host)) -> (Host, Host, Model) {
    let (mut a, mut b) = two(io);
    prepare(&mut a, &mut b);
    out(&a, &b);
    let (mut model, mut at_a) = (Model::new(), a.client());
    model.write(&mut at_a, 0, 4096, 1, false);
    read_all(&mut at_a, 0..BLOCKS);
    b.take(false).expect("it is taken");
    (a, b, model)
}

fn end((mut a, mut b, model): (Host, Host, Model)) {
    model.check(&mut b.client(), "the new owner");
    b.stop();
    a.stop();
    assert!(std::fs::read(a.rig.path("vm1.raw")).expect("the file") == model.0);
}

#[test]
fn an_owner_that_is_gone_in_the_middle_costs_what_it_would_have_sent() {
    let all = handed_over(IoMode::Auto, |a, _| {
        let mut answers = 0;
        meddle(a, move |is_fetch, body| {
            answers += u32::from(is_fetch);
            (answers < 3).then_some(body)
        });
    });
    let warm = ended(&all.1);
    assert!(warm.fetched > 0 && warm.fetched <= 512, "{warm:?}");
    assert!(warm.ended.as_ref().is_some_and(|why| why.contains("connection ended")), "{warm:?}");
    end(all);
}

#[test]
fn only_what_the_hand_over_has_left_is_sent() {
    let (mut a, mut b, mut model) = handed_over(IoMode::Auto, |_, _| {});
    let warm = ended(&b);
    assert_eq!(warm.ended.as_deref(), Some("all that the other host has named is through"));
    assert!(warm.fetched >= BLOCKS * 9 / 10, "{warm:?}");
    let page = |host: &Host, epoch, after| {
        let (name, limit) = ("vm1".to_owned(), 7);
        host.rig.ask(|answer| Message::Hot { name, epoch, after, limit, answer })
    };
    let blocks = |host: &Host, epoch, blocks| {
        let name = "vm1".to_owned();
        host.rig.ask(|answer| Message::HotBlocks { name, epoch, blocks, answer })
    };
    // B's epoch is the next one.
    let epoch = b.migration().epoch - 1;
    let first = page(&a, epoch, 0).expect("it is kept");
    assert!((1..=7).contains(&first.blocks.len()) && first.next.is_some(), "{first:?}");
    assert!(!blocks(&a, epoch, vec![first.blocks[0]]).expect("it is kept").is_empty());
    let none = blocks(&a, epoch, vec![u64::MAX]).expect("a miss is a miss");
    assert_eq!(none.len(), 24, "no more than a head");
    assert!(blocks(&a, epoch, (0..257).collect()).is_err(), "too many");
    assert!(page(&a, epoch, u64::MAX).expect("a page").blocks.is_empty());
    for wrong in [0, epoch - 1, epoch + 1, u64::MAX] {
        assert!(page(&a, wrong, 0).is_err() && blocks(&a, wrong, vec![0]).is_err(), "{wrong}");
    }
    assert!(page(&b, epoch, 0).is_err(), "B has the volume");
    // A takes it back: what it kept is no more than its cache.
    model.write(&mut a.client(), 4096, 4096, 9, false);
    let refused = page(&a, epoch, 0).expect_err("it is gone");
    assert!(refused.message.contains("nothing is kept of epoch"), "{refused:?}");
    assert!(blocks(&a, epoch, vec![0]).is_err());
    model.check(&mut a.client(), "the owner again");
    a.stop();
    b.stop();
}

/// The first answer may be lost, and the volume taken by force: then the other host's epoch may be the very
/// number of the hand-over, and what is kept here older than what it has written.
#[test]
fn nothing_is_kept_for_a_host_that_has_counted_on() {
    let all = handed_over(IoMode::Auto, |_, b| {
        b.rig.config.volumes[0].warm.rate_bytes = 0;
        b.stop();
        b.start();
    });
    let a = &all.0;
    let epoch = all.1.migration().epoch - 1;
    let page = || {
        let (name, limit) = ("vm1".to_owned(), 7);
        a.rig.ask(|answer| Message::Hot { name, epoch, after: 0, limit, answer })
    };
    let asks = |knows| {
        let (name, from) = ("vm1".to_owned(), Some(all.1.identity()));
        a.rig.ask(|answer| Message::Give { name, epoch: knows, from, answer }).expect("an answer")
    };
    assert!(page().is_ok());
    // It has not heard the answer, and asks again.
    let given = asks(0);
    assert!(given.free && given.epoch == epoch && page().is_ok(), "{given:?}");
    let given = asks(epoch);
    assert!(given.free && given.epoch == epoch, "the same number: {given:?}");
    assert!(page().is_err(), "it may have written since");
    asks(0);
    assert!(page().is_err(), "and so it stays");
    end(all);
}

#[test]
fn a_back_end_that_others_change_makes_nothing_believed() {
    let all = handed_over(IoMode::Auto, |a, _| {
        let mut is_first = true;
        meddle(a, move |_, body| {
            // As if it had been changed before the volume was taken: the proof sent is an older one.
            if std::mem::take(&mut is_first) {
                let mut page: serde_json::Value = serde_json::from_slice(&body).expect("a page");
                let proof = page["proof"].as_str().expect("a file proves something").to_owned();
                // The change time of the file is the sixth field.
                let at = 2 * 5 * 8;
                let other = if &proof[at..=at] == "0" { "1" } else { "0" };
                page["proof"] = format!("{}{other}{}", &proof[..at], &proof[at + 1..]).into();
                return Some(page.to_string().into_bytes());
            }
            panic!("nothing else is asked for");
        });
    });
    let warm = ended(&all.1);
    let why = warm.ended.as_deref();
    assert_eq!(why, Some("the back end was changed after the hand-over"), "{warm:?}");
    assert_eq!(warm.fetched, 0);
    end(all);
}

#[test]
fn answers_that_are_none_end_it_in_one_line() {
    type Bad = fn(bool, Vec<u8>) -> Vec<u8>;
    let bads: [(&str, Bad); 8] = [
        ("something else", |is_fetch, body| if is_fetch { body } else { b"<html>".to_vec() }),
        ("something else than blocks", |is_fetch, body| if is_fetch { vec![0; 100] } else { body }),
        ("another epoch", |is_fetch, mut body| {
            body[8] ^= u8::from(is_fetch);
            body
        }),
        ("another length", |is_fetch, mut body| {
            body.truncate(body.len() - usize::from(is_fetch));
            body
        }),
        ("not asked for", |is_fetch, mut body| {
            if is_fetch {
                body[24..32].fill(0xff);
            }
            body
        }),
        ("damaged", |is_fetch, mut body| {
            // The last byte of each.
            let step = 16 + BLOCK as usize;
            let all = if is_fetch { body.len() } else { 0 };
            (23..all).step_by(step).skip(1).for_each(|at| body[at] ^= 1);
            body
        }),
        ("too long", |_, mut body| {
            body.resize(4 << 20, b' ');
            body
        }),
        ("more blocks than were asked for", |is_fetch, body| {
            if is_fetch {
                return body;
            }
            let mut page: serde_json::Value = serde_json::from_slice(&body).expect("a page");
            page["blocks"] = (0..1025).collect::<Vec<u64>>().into();
            page.to_string().into_bytes()
        }),
    ];
    for (expected, bad) in bads {
        let all = handed_over(IoMode::Auto, |a, _| {
            meddle(a, move |is_fetch, body| Some(bad(is_fetch, body)));
        });
        let warm = ended(&all.1);
        assert!(warm.ended.as_ref().is_some_and(|why| why.contains(expected)), "{warm:?}");
        assert_eq!(warm.fetched, 0, "{expected}");
        end(all);
    }
}

#[test]
fn a_damaged_block_is_left_out() {
    let all = handed_over(IoMode::Auto, |a, _| {
        meddle(a, |is_fetch, mut body| {
            if is_fetch && body.len() > 24 {
                let last = body.len() - 1;
                body[last] ^= 1;
            }
            Some(body)
        });
    });
    let warm = ended(&all.1);
    assert!(warm.skipped > 0 && warm.fetched > BLOCKS / 2, "{warm:?}");
    end(all);
}

#[test]
fn it_keeps_the_rate_and_ends_when_its_time_is_over() {
    let begun = Instant::now();
    let all = handed_over(IoMode::Auto, |_, b| {
        let settings = &mut b.rig.config.volumes[0].warm;
        (settings.rate_bytes, settings.time_max) = (MIB, Duration::from_secs(2));
        b.stop();
        b.start();
    });
    let warm = ended(&all.1);
    // One request may be ahead of its time.
    assert!(warm.bytes >= MIB && warm.bytes <= 3 * MIB, "{warm:?}");
    assert_eq!(warm.ended.as_deref(), Some("its time is over"));
    assert!(begun.elapsed() >= Duration::from_secs(2));
    end(all);
}

#[test]
fn a_stop_does_not_wait_for_the_other_host() {
    let (mut a, mut b, _) = handed_over(IoMode::Auto, |a, _| {
        meddle(a, |_, body| {
            std::thread::sleep(Duration::from_secs(4));
            Some(body)
        });
    });
    assert!(warm(&b).ended.is_none());
    let begun = Instant::now();
    b.stop();
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    a.stop();
}
