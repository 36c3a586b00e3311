//! ECI-Cache's claims by every measure, a line for each cache and reading: ranges over its thresholds.

use crate::sets::Set;
use cinnabar_study::compare::{Judged, judge};

pub(crate) fn print(set: &Set) {
    let judged = judge(set.input(), &set.options(1), |_, _| {}).expect("it can be compared");
    println!("{}: ECI-Cache over Centaur in %, range over thresholds .3 to .9", set.name);
    println!(
        "| prices | aim | decay | cache | reads | by volume | writes | by volume | both | by volume | a block | lifetime |"
    );
    println!("|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|");
    let mut done: Vec<&Judged> = Vec::new();
    let same = |a: &Judged, b: &Judged| {
        (a.premise, a.aim) == (b.premise, b.aim)
            && a.decay.total_cmp(&b.decay).is_eq()
            && a.part.total_cmp(&b.part).is_eq()
    };
    for one in &judged {
        if done.iter().any(|other| same(one, other)) {
            continue;
        }
        done.push(one);
        let here: Vec<&Judged> = judged.iter().filter(|other| same(one, other)).collect();
        let range = |of: &dyn Fn(&Judged) -> Option<f64>| {
            let found: Vec<f64> = here.iter().filter_map(|one| of(one)).collect();
            let low = found.iter().copied().fold(f64::INFINITY, f64::min) * 100.0;
            let high = found.iter().copied().fold(f64::NEG_INFINITY, f64::max) * 100.0;
            if found.is_empty() { "-".to_owned() } else { format!("{low:+.0} to {high:+.0}") }
        };
        let mut cells: Vec<String> = (0..6).map(|at| range(&|one| one.performance[at])).collect();
        cells.push(range(&|one| one.per_block[5]));
        cells.push(range(&|one| one.lifetime));
        println!(
            "| {} | {} | {} | {:.0} % | {} |",
            one.premise.name(),
            one.aim,
            one.decay,
            one.part * 100.0,
            cells.join(" | ")
        );
    }
}
