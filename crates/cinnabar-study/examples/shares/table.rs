//! A row for each size of cache: what `urd` has over `centaur`, in the mean of the seeds and at worst.

use crate::sets::Set;

/// Latency of reads and of all, in total and by volume; SSD writes; room.
const MEASURES: usize = 6;

/// A size and a seed.
pub(crate) struct Row {
    part: f64,
    seed: u64,
    /// Of `urd` over `centaur`, 1 being as much.
    over: [f64; MEASURES],
}

/// Latencies, SSD writes, room.
type Found = ([f64; 4], f64, f64);

impl Row {
    pub(crate) fn new(part: f64, seed: u64, urd: Found, centaur: Found) -> Self {
        let mut over = [0.0; MEASURES];
        for (over, (urd, centaur)) in over.iter_mut().zip(urd.0.iter().zip(&centaur.0)) {
            *over = urd / centaur;
        }
        (over[4], over[5]) = (urd.1 / centaur.1, urd.2 / centaur.2);
        Self { part, seed, over }
    }
}

pub(crate) fn print(set: &Set, rows: &[Row]) {
    println!("{}: urd over centaur in %, mean of the seeds (worst)", set.name);
    println!("| cache | reads | reads, by volume | all | all, by volume | SSD writes | room |");
    println!("|---|--:|--:|--:|--:|--:|--:|");
    let mut parts: Vec<f64> = Vec::new();
    for row in rows {
        if !parts.iter().any(|part| part.total_cmp(&row.part).is_eq()) {
            parts.push(row.part);
        }
    }
    for part in parts {
        let here: Vec<&Row> = rows.iter().filter(|row| row.part.total_cmp(&part).is_eq()).collect();
        let cell = |at: usize| {
            let values = here.iter().map(|row| (row.over[at] - 1.0) * 100.0);
            let mean = values.clone().sum::<f64>() / here.len() as f64;
            format!("{mean:+.1} ({:+.1})", values.fold(f64::NEG_INFINITY, f64::max))
        };
        let cells: Vec<String> = (0..MEASURES).map(cell).collect();
        println!("| {:.0} % | {} |", part * 100.0, cells.join(" | "));
    }
    let both = |row: &&Row| row.over[4] > 1.0 && (row.over[0] > 1.0 || row.over[1] > 1.0);
    let worse: Vec<String> = rows
        .iter()
        .filter(both)
        .map(|row| format!("{:.0} % with seed {}", row.part * 100.0, row.seed))
        .collect();
    println!(
        "more writes and longer reads: {}",
        if worse.is_empty() { "nowhere".to_owned() } else { worse.join(", ") }
    );
}
