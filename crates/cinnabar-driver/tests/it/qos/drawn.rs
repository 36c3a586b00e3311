//! Drawn groups of volumes, against what mClock promises of any group whose reservations fit: each
//! volume gets its part by weight, but at least its reservation and at most its limit.

use crate::qos::judge::{Verdict, between};
use crate::qos::world::{Guest, Load, World, guest};
use cinnabar_driver::qos::Op;
use cinnabar_driver::qos::mutant::{Mutant, Mutants};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// What the server does in a second, in I/Os.
const CAPACITY: u32 = 8000;

/// Two to nine volumes; reservations take at most 80 % of the server.
fn draw(rng: &mut Xoshiro256PlusPlus) -> Vec<Guest> {
    let number = rng.random_range(2..10u64);
    (0..number)
        .map(|volume| {
            let most = CAPACITY / 10 * 8 / number as u32;
            let reservation = [0, rng.random_range(1..=most)][rng.random_range(0..2)];
            let more = rng.random_range(20..4000u32);
            let limit = [0, reservation + more][rng.random_range(0..2)];
            let weight = rng.random_range(1..=1000);
            let mut guest = guest(volume, reservation, limit, weight, Load::Closed(64));
            let length = [0, 4096, 8192, 65_536][rng.random_range(0..4)];
            guest.op = Op::Read { length };
            guest
        })
        .collect()
}

/// What each shall get: `max(reservation, min(limit, x * weight))`, with the `x` that uses the server
/// up, or all limits if they are less.
fn due(guests: &[Guest]) -> Vec<f64> {
    let at = |x: f64| -> Vec<f64> {
        let part = |guest: &Guest| {
            let limit = guest.settings.limit_iops.map_or(f64::INFINITY, f64::from);
            let weight = f64::from(guest.settings.weight);
            (x * weight).min(limit).max(f64::from(guest.settings.reservation_iops))
        };
        guests.iter().map(part).collect()
    };
    let (mut low, mut high) = (0.0, f64::from(CAPACITY));
    for _ in 0..100 {
        let middle = f64::midpoint(low, high);
        let fits = at(middle).iter().sum::<f64>() <= f64::from(CAPACITY);
        *(if fits { &mut low } else { &mut high }) = middle;
    }
    at(low)
}

fn judge(seed: u64, mutants: Mutants) -> Verdict {
    let guests = draw(&mut Xoshiro256PlusPlus::seed_from_u64(seed));
    let due = due(&guests);
    let settings: Vec<_> = guests.iter().map(|guest| guest.settings).collect();
    let log = World::new(mutants, 8, u64::from(CAPACITY), guests).run(4000).log;
    log.clean()?;
    for (seat, due) in due.into_iter().enumerate() {
        let what = format!("seed {seed}, guest {seat} of {settings:?}");
        // The server's own speed is drawn, too; and one request more or less.
        between(&what, log.rate(seat, 1000, 4000), 0.95 * due - 1.0, 1.05 * due + 1.0)?;
        if let Some(limit) = settings[seat].limit_iops {
            let most = log.most_in_a_second(seat);
            between(&what, most, 0.0, 1.02 * f64::from(limit) + 2.0)?;
        }
        let reserved = f64::from(settings[seat].reservation_iops);
        log.each_second(seat, (1, 4), (0.95 * reserved - 2.0, f64::INFINITY))?;
    }
    Ok(())
}

#[test]
fn any_group_gets_its_due() {
    let wrong: Vec<String> = (0..60).filter_map(|seed| judge(seed, Mutants::NONE).err()).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Guests with few requests at a time, too: each gets at least what it would beside busy neighbours, as far
/// as so few requests can.
fn judge_few(seed: u64, mutants: Mutants) -> Verdict {
    let rng = &mut Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut guests = draw(rng);
    let due = due(&guests);
    let few: Vec<usize> = guests.iter().map(|_| [1, 2, 4, 8, 64][rng.random_range(0..5)]).collect();
    for (guest, few) in guests.iter_mut().zip(&few) {
        guest.load = Load::Closed(*few);
    }
    let settings: Vec<_> = guests.iter().map(|guest| guest.settings).collect();
    let channels = [1, 2, 4, 8][rng.random_range(0..4)];
    let log = World::new(mutants, channels, u64::from(CAPACITY), guests).run(4000).log;
    log.clean()?;
    for (seat, due) in due.into_iter().enumerate() {
        // One at a time could have a channel of the server, without any wait.
        let can = few[seat].min(channels) as f64 * f64::from(CAPACITY) / channels as f64;
        if due <= 0.6 * can {
            let what =
                format!("seed {seed}, guest {seat} of {few:?}, {channels} channels, {settings:?}");
            between(&what, log.rate(seat, 1000, 4000), 0.95 * due - 1.0, f64::INFINITY)?;
        }
    }
    Ok(())
}

#[test]
fn few_requests_at_a_time_are_enough() {
    let wrong: Vec<String> =
        (0..100).filter_map(|seed| judge_few(seed, Mutants::NONE).err()).collect();
    assert!(wrong.is_empty(), "{} {}", wrong.len(), wrong.join("\n"));
}

/// The judge can fail a group.
#[test]
fn bugs_are_noticed_in_drawn_groups() {
    let few = |seed| judge_few(seed, Mutants::only(Mutant::ForgetAtOnce)).is_err();
    assert!((0..60).any(few));
    for mutant in [Mutant::ReservationOutsideWeight, Mutant::TagsFromDispatch, Mutant::LimitIgnored]
    {
        let found = (0..60).any(|seed| judge(seed, Mutants::only(mutant)).is_err());
        assert!(found, "{mutant:?}");
    }
}
