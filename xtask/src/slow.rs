//! Tests that are put off: by program, until which tier.
//!
//! One that takes longer than some seconds is named here, or it is made quicker. Those that have found a
//! bug are in `ci`; what is left for `nightly` repeats, with more seeds or more clients, what a quicker one
//! does.

use crate::programs::{Program, list};
use crate::tier::Tier;
use anyhow::{Result, ensure};

/// Tests of a program that are put off.
#[derive(Debug)]
pub(crate) struct Slow {
    pub(crate) program: &'static str,
    /// Where they run.
    pub(crate) tier: Tier,
    pub(crate) tests: &'static [&'static str],
}

impl Slow {
    /// A name that no test has would put off nothing, and a test that was renamed would run too early.
    ///
    /// # Errors
    /// When the program has no such test.
    pub(crate) fn check(&self, program: &Program) -> Result<()> {
        let missing = self.missing(&list(program, None)?);
        ensure!(
            missing.is_empty(),
            "{} has no tests {missing:?} (xtask/src/slow.rs)",
            self.program
        );
        Ok(())
    }

    /// Which of them are not among those `there`.
    fn missing(&self, there: &[String]) -> Vec<&str> {
        self.tests.iter().copied().filter(|test| there.iter().all(|one| one != test)).collect()
    }
}

/// All of them.
pub(crate) const SLOW: &[Slow] = &[];

#[cfg(test)]
mod tests {
    use super::{SLOW, Slow};
    use crate::tier::Tier;

    #[test]
    fn a_test_that_is_gone_is_missed() {
        let slow = Slow { program: "x", tier: Tier::Ci, tests: &["a::b", "a::c"] };
        assert_eq!(slow.missing(&["a::b".to_owned(), "a::cc".to_owned()]), ["a::c"]);
    }

    #[test]
    fn a_program_stands_once_in_each_tier_and_a_test_once() {
        for (at, slow) in SLOW.iter().enumerate() {
            assert_ne!(slow.tier, Tier::Quick);
            let mut later = SLOW[at + 1..].iter().filter(|other| other.program == slow.program);
            let twice = later.any(|other| {
                other.tier == slow.tier || other.tests.iter().any(|test| slow.tests.contains(test))
            });
            assert!(!twice, "{}", slow.program);
        }
    }
}
