//! Every deliberate bug is found.

use crate::qos::{direct, scenarios};
use cinnabar_driver::qos::mutant::{Mutant, Mutants};

/// Each bug and a scenario that finds it: named, so that a scenario that no longer can is noticed.
const FOUND_BY: &[(Mutant, &str)] = &[
    (Mutant::NoCreditBack, "service by weight is no advance on a reservation"),
    (Mutant::ReservationOutsideWeight, "reservations count against the weight"),
    (Mutant::LeadUnbounded, "a reservation's lead is forgotten"),
    (Mutant::IdleCredit, "an idle volume gets no credit"),
    (Mutant::NewBeginsLast, "a new volume begins in the middle"),
    (Mutant::StartBehindWaiting, "a heavy volume needs no queue"),
    (Mutant::ForgetAtOnce, "one request at a time jumps no queue"),
    (Mutant::HeldCredit, "a limited volume gets no credit"),
    (Mutant::LimitIgnored, "limits hold"),
    (Mutant::ReservationBeyondLimit, "limits hold after a stall"),
    (Mutant::LimitCatchesUp, "limits hold after a stall"),
    (Mutant::LimitFromArrival, "a limit lets a few requests at a time through"),
    (Mutant::LimitForgetsLateness, "limits hold"),
    (Mutant::WeightsFirst, "reservations hold"),
    (Mutant::TagsFromDispatch, "reservations hold"),
    (Mutant::PauseForgetsLateness, "reservations hold for a few requests at a time"),
    (Mutant::ReservationsByWeight, "reservations hold"),
    (Mutant::LengthIgnored, "weights in proportion"),
    (Mutant::FlushFree, "flushes count"),
    (Mutant::ProofWaits, "exempt operations pass"),
    (Mutant::DepthIgnored, "another depth counts"),
    (Mutant::RemovedKeepsDepth, "a volume is removed with requests waiting"),
    (Mutant::OldTagsKept, "other limits count at once"),
    (Mutant::OldShareKept, "other weights count at once"),
    (Mutant::NoTurnByWeight, "oversold reservations starve no volume"),
    (Mutant::NoWakeUp, "limits hold"),
    (Mutant::ClockBack, "a clock that steps back stands"),
    (Mutant::WithdrawnTakesAll, "a withdrawn request leaves the others"),
    (Mutant::LastInFirstOut, "weights in proportion"),
    (Mutant::SharedQueue, "no tenant is refused for another one's requests"),
];

#[test]
fn each_is_found() {
    let mut missed = Vec::new();
    for mutant in Mutant::ALL {
        let (_, name) =
            FOUND_BY.iter().find(|(found, _)| found == mutant).expect("it is in the table");
        let mut all = scenarios::ALL.iter().chain(direct::ALL);
        let (_, run) = all.find(|(other, _)| other == name).expect("there is such a scenario");
        match run(Mutants::only(*mutant)) {
            Ok(()) => missed.push(format!("{mutant:?}: not by \"{name}\"")),
            Err(wrong) => println!("{mutant:?}: {wrong}"),
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}
