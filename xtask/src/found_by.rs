//! What would find each fault of the past again, and when: `docs/design/found-by.csv`, checked against the
//! tests that are there.
//!
//! A row is `fault;source;program;test;note`. The test must exist. One that waits for `nightly` needs a
//! note that says why that is soon enough; so does a fault that no test finds.

use crate::programs::list;
use crate::shell::root;
use crate::slow::SLOW;
use crate::tier::Tier;
use crate::tiers::{Built, CLIENTS};
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;

const TABLE: &str = "docs/design/found-by.csv";
const HEADING: &str = "fault;source;program;test;note";

/// A fault and the test that finds it; none if `test` is empty.
#[derive(Debug, PartialEq, Eq)]
struct Row<'a> {
    fault: &'a str,
    program: &'a str,
    test: &'a str,
    note: &'a str,
}

/// Checks the table, and prints how many faults each tier finds.
pub(crate) fn check(built: &Built) -> Result<()> {
    let text = std::fs::read_to_string(root().join(TABLE)).context(TABLE)?;
    let (mut lists, mut wrong) = (Lists { built, tests: BTreeMap::new() }, Vec::new());
    let mut found = [(Tier::Quick, 0), (Tier::Ci, 0), (Tier::Nightly, 0)];
    let mut nowhere = 0;
    for row in rows(&text)? {
        let tier =
            if row.test.is_empty() { None } else { Some(lists.tier(row.program, row.test)?) };
        match tier {
            Some(Some(tier)) => {
                found.iter_mut().filter(|(of, _)| *of == tier).for_each(|(_, count)| *count += 1);
                if tier == Tier::Nightly && row.note.is_empty() {
                    wrong.push(format!(
                        "{}: {} is in nightly, without a reason",
                        row.fault, row.test
                    ));
                }
            }
            Some(None) => {
                wrong.push(format!("{}: {} has no test {}", row.fault, row.program, row.test));
            }
            None => {
                nowhere += 1;
                if row.note.is_empty() {
                    wrong.push(format!("{}: no test, without a reason", row.fault));
                }
            }
        }
    }
    if !wrong.is_empty() {
        bail!("{TABLE}:\n{}", wrong.join("\n"));
    }
    for (tier, count) in found {
        println!("{count} faults of the past would be found by {}", tier.name());
    }
    println!("{nowhere} by no test");
    Ok(())
}

fn rows(text: &str) -> Result<Vec<Row<'_>>> {
    let mut lines = text.lines();
    ensure!(lines.next() == Some(HEADING), "{TABLE} does not begin with {HEADING}");
    lines.filter(|line| !line.is_empty()).map(row).collect()
}

fn row(line: &str) -> Result<Row<'_>> {
    let fields: Vec<&str> = line.split(';').map(str::trim).collect();
    let [fault, _, program, test, note] = fields[..] else {
        bail!("{TABLE}: {} fields instead of 5: {line}", fields.len());
    };
    Ok(Row { fault, program, test, note })
}

/// The tests of programs, listed when they are first asked for.
struct Lists<'a> {
    built: &'a Built,
    tests: BTreeMap<(String, Option<Tier>), Vec<String>>,
}

impl Lists<'_> {
    /// The tier of a test; none if the program does not have it.
    fn tier(&mut self, program: &str, test: &str) -> Result<Option<Tier>> {
        if program == CLIENTS {
            for tier in [Tier::Quick, Tier::Ci, Tier::Nightly] {
                if self.has(program, Some(tier), test)? {
                    return Ok(Some(tier));
                }
            }
            return Ok(None);
        }
        let slow = SLOW.iter().find(|slow| slow.program == program && slow.tests.contains(&test));
        let tier = slow.map_or(Tier::Quick, |slow| slow.tier);
        Ok(self.has(program, None, test)?.then_some(tier))
    }

    fn has(&mut self, program: &str, tier: Option<Tier>, test: &str) -> Result<bool> {
        let key = (program.to_owned(), tier);
        if !self.tests.contains_key(&key) {
            let listed = list(self.built.tests(program)?, tier)?;
            self.tests.insert(key.clone(), listed);
        }
        Ok(self.tests[&key].iter().any(|one| one == test))
    }
}

#[cfg(test)]
mod tests {
    use super::{HEADING, Row, rows};

    #[test]
    fn a_row_has_five_fields() {
        let text = format!("{HEADING}\nstale read;CHANGELOG;cinnabar-engine;read::tests::a;\n");
        let row = Row {
            fault: "stale read",
            program: "cinnabar-engine",
            test: "read::tests::a",
            note: "",
        };
        assert_eq!(rows(&text).expect("a table"), [row]);
        assert!(rows(&format!("{HEADING}\na;b;c\n")).is_err());
        assert!(rows("a;b;c;d;e\n").is_err(), "no heading");
    }
}
