//! A claim, and what threads knew of the log when they began to look for one.

use super::*;
use crate::dataplane::tests::rig::Rig;
use cinnabar_config::messages::IoMode;

/// Two volumes on one back end: one waits for the other's lock, and was to open it before that had joined.
#[test]
fn a_claim_that_was_made_meanwhile_is_not_an_old_one() {
    let rig = Rig::new(IoMode::Threads, &[]);
    let (config, mut other) = (rig.volume("vm1"), rig.volume("vm2"));
    other.backend.clone_from(&config.backend);
    let log = KnownLog { uuid: [7; 16], in_use: InUse::default() };
    let known = Known { dir: PathBuf::new(), log: Some(log.clone()), ledger: None };
    let place = ClaimPlace::At(known.location(&config));
    let claim = Claim::new([7; 16], Path::new("/log"), "vm1", 77);
    let mut claims = Claims { place, claim, held: false, in_use: log.in_use };
    assert_eq!(claims.make(), Ok(()));
    let error = known.check(&other).expect_err("it has a place");
    assert!(
        error.message.contains("volume \"vm1\" of this daemon's write log"),
        "{}",
        error.message
    );
    assert!(known.check(&config).is_ok(), "it is its own");
    // It has left, and could not take its claim away.
    claims.in_use.with(|own| own.places.clear());
    assert!(
        known.check(&other).is_ok() && claims.place.location().read().is_ok_and(|of| of.is_none())
    );
    // With a number it is that of a newer log, unless this one has the number or knows that the volume has left.
    assert_eq!(claims.make(), Ok(()));
    claims.claim.number = 2;
    claims.renew();
    let know = |place: Option<u64>, left: bool| {
        let places = place.map(|number| (77, ("vm1".to_owned(), number))).into_iter().collect();
        let left = left.then_some(77).into_iter().collect();
        claims.in_use.with(|own| *own = OwnClaims { places, left });
    };
    for place in [None, Some(1)] {
        know(place, false);
        let error = known.check(&config).expect_err("it is of a newer log");
        assert!(error.message.contains("an older copy"), "{}", error.message);
    }
    know(Some(2), false);
    assert!(known.check(&config).is_ok());
    know(None, true);
    assert!(known.check(&config).is_ok());
    assert!(claims.place.location().read().is_ok_and(|found| found.is_none()));
}
