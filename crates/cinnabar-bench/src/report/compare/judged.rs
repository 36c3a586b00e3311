//! ECI-Cache's claims by every measure, as tables: a table for each reading, a row for each cache.
//!
//! A cell is the range over ECI-Cache's thresholds; `*` where the paper's figure is reached with every
//! one of them, `+` where it is with some.

use cinnabar_study::compare::{ECI_CLAIMS, Judged, Measures, Premise};
use cinnabar_text::{Table, Unit};

const TITLE: &str = "ECI-Cache over Centaur in the papers' model, demands as published: performance by six means of \
     latency, then per block allocated (both, by volume), lifetime of the SSD. Ranges are over thresholds .3 to \
     .9; * reaches the paper's figure (+17 %, +30 %, +65 %) with all of them, + with some.";

/// All tables.
pub fn render_judged(judged: &[Judged], room: Option<usize>) -> String {
    let mut text = vec![format!("\n{TITLE}\n")];
    let mut readings: Vec<(Premise, &str, f64)> = Vec::new();
    for one in judged {
        let reading = (one.premise, one.aim, one.decay);
        if !readings.contains(&reading) {
            readings.push(reading);
        }
    }
    for (premise, aim, decay) in readings {
        let is = |one: &&Judged| {
            one.premise == premise && one.aim == aim && one.decay.total_cmp(&decay).is_eq()
        };
        let of: Vec<&Judged> = judged.iter().filter(is).collect();
        let memory =
            if decay > 0.0 { "earlier intervals fading" } else { "the last interval only" };
        text.push(format!("\n{}; aim: {aim}; {memory}\n", premise.name()));
        text.push(table(&of).render(room));
    }
    text.concat()
}

fn table(of: &[&Judged]) -> Table {
    let mut header = vec!["CACHE"];
    header.extend(Measures::NAMES);
    header.extend(["A BLOCK", "LIFETIME"]);
    let mut parts: Vec<f64> = Vec::new();
    for one in of {
        if !parts.iter().any(|part| part.total_cmp(&one.part).is_eq()) {
            parts.push(one.part);
        }
    }
    let row = |part: f64| {
        let here: Vec<&Judged> =
            of.iter().filter(|one| one.part.total_cmp(&part).is_eq()).copied().collect();
        let mut row = vec![Unit::Ratio.show(part)];
        for at in 0..Measures::NAMES.len() {
            row.push(range(&here, ECI_CLAIMS.performance, |one| one.performance[at]));
        }
        let last = Measures::NAMES.len() - 1;
        row.push(range(&here, ECI_CLAIMS.per_block, |one| one.per_block[last]));
        row.push(range(&here, ECI_CLAIMS.lifetime, |one| one.lifetime));
        row
    };
    parts.into_iter().map(row).fold(Table::new(1, &header), Table::row)
}

fn range(judged: &[&Judged], claim: Option<f64>, of: impl Fn(&Judged) -> Option<f64>) -> String {
    let found: Vec<f64> = judged.iter().filter_map(|one| of(one)).collect();
    let (low, high) = (
        found.iter().copied().fold(f64::INFINITY, f64::min),
        found.iter().copied().fold(f64::NEG_INFINITY, f64::max),
    );
    if found.is_empty() {
        return "-".to_owned();
    }
    let mark = match claim {
        Some(claim) if low >= claim => "*",
        Some(claim) if high >= claim => "+",
        _ => "",
    };
    let (low, high) = (low * 100.0, high * 100.0);
    if high - low < 0.5 {
        return format!("{low:+.0}{mark}");
    }
    format!("{low:+.0}..{high:+.0}{mark}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(threshold: f64, gain: f64) -> Judged {
        Judged {
            part: 0.3,
            decay: 0.0,
            aim: "own",
            threshold,
            premise: Premise::Measured,
            performance: [Some(gain); 6],
            per_block: [Some(gain); 6],
            lifetime: None,
        }
    }

    #[test]
    fn ranges_are_over_thresholds_and_marked_where_the_claim_is_reached() {
        let text = render_judged(&[judged(0.3, 0.10), judged(0.9, 0.20)], None);
        assert!(text.contains("+10..+20+") && text.contains("the last interval only"), "{text}");
        let text = render_judged(&[judged(0.3, 0.18), judged(0.9, 0.35)], None);
        assert!(text.contains("+18..+35*") && text.contains("+18..+35+"), "{text}");
        assert!(text.lines().last().is_some_and(|line| line.trim_end().ends_with('-')), "{text}");
    }
}
