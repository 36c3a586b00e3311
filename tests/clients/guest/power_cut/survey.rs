//! The judgement on a history: each image by itself, and all of them together.

use super::backend::{DISK, after, before, log};
use super::check::{Verdict, Wrong};
use super::history::History;
use super::images::{Finding, Look, Mistake, legal, look_at, mistaken, replay};
use anyhow::{Result, bail, ensure};
use e2e::disk_log::{DiskLog, Replay, copy_sparse};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::path::PathBuf;
use std::time::Instant;

/// Illegal images that are kept.
const KEPT_MAX: usize = 3;

/// What is known of one history.
#[derive(Debug)]
pub(super) struct Survey<'h> {
    history: &'h History,
    /// Commits that an image of a point has, at the least.
    floors: BTreeMap<usize, u64>,
}

impl<'h> Survey<'h> {
    /// Nothing but what the guest was told.
    pub(super) fn new(history: &'h History) -> Self {
        let mut survey = Self { history, floors: BTreeMap::new() };
        if history.setting.is_synchronous() {
            for ack in &history.acks {
                survey.raise(ack.point(), ack.commits);
            }
        }
        survey
    }

    /// Looks at images of what happened, after so many flushes or all, and hands back how many there
    /// were.
    ///
    /// # Errors
    /// When one is illegal; it is kept.
    pub(super) fn legal(&mut self, flushes: Option<usize>) -> Result<usize> {
        let findings = self.look(flushes)?;
        let wrong = self.all_wrong(&findings);
        if let Some((_, _, first)) = wrong.first() {
            let (kept, count) = (self.keep(&wrong)?, wrong.len());
            let of = findings.len();
            bail!(
                "{count} of {of} images are illegal; the first: {first}\nkept: {}",
                kept.display()
            );
        }
        self.check_end()?;
        Ok(findings.len())
    }

    /// Looks at images of a guest whose flushes were lost on the way to the daemon.
    ///
    /// # Errors
    /// When none is illegal: then legal images of others prove nothing.
    pub(super) fn illegal(&mut self, flushes: Option<usize>) -> Result<()> {
        let findings = self.look(flushes)?;
        ensure!(!self.all_wrong(&findings).is_empty(), "lost flushes are not found");
        Ok(())
    }

    /// Looks at images of what did not happen: each kind of mistake must be found.
    ///
    /// # Errors
    /// When one is not: then legal images prove nothing.
    pub(super) fn mistakes(&self, images: usize) -> Result<()> {
        for mistake in [Mistake::LostWrite, Mistake::Reordered] {
            let replay = self.replay()?;
            let looks = mistaken(replay.log(), mistake, images, self.history.setting.seed);
            let findings = look_at(replay, &looks, &self.history.site.path(""))?;
            let wrong = self.all_wrong(&findings);
            let count = findings.len();
            println!("  {mistake:?}: {count} images, {}", tally(&wrong));
            ensure!(!wrong.is_empty(), "{mistake:?} is not found in {count} images");
        }
        Ok(())
    }

    /// Looks at images of what happened.
    fn look(&mut self, flushes: Option<usize>) -> Result<Vec<Finding>> {
        let start = Instant::now();
        let History { setting, took, site, .. } = self.history;
        let replay = self.replay()?;
        let log = replay.log();
        let (points, entries) = (log.points().len(), log.entries().len());
        let looks = legal(log, flushes, setting.seed);
        let findings = look_at(replay, &looks, &site.path(""))?;
        // An image of a later flush has what one of an earlier flush had.
        for finding in findings.iter().filter(|finding| finding.look.is_exact) {
            if let Verdict::Legal { commits } = finding.verdict {
                self.raise(finding.look.point, commits);
            }
        }
        let (count, seconds) = (findings.len(), start.elapsed().as_secs_f64());
        let exact = findings.iter().filter(|finding| finding.look.is_exact).count();
        println!(
            "{setting}, {entries} entries and {points} flushes in {:.0} s; {count} images, {exact} of \
             them exact, in {seconds:.0} s ({:.0} a minute), at most {} commits behind, {}",
            took.as_secs_f64(),
            count as f64 * 60.0 / seconds,
            self.lag(),
            tally(&self.all_wrong(&findings))
        );
        Ok(findings)
    }

    /// Commits that the guest knew of and the back end did not have, at most.
    fn lag(&self) -> u64 {
        let acks = self.history.acks.iter();
        let lags = acks.map(|ack| ack.commits.saturating_sub(self.floor(ack.point())));
        lags.max().unwrap_or(0)
    }

    /// The whole log makes the disk that the server left, and that has everything.
    fn check_end(&self) -> Result<()> {
        let mut replay = self.replay()?;
        let entries = replay.log().entries().len();
        replay.advance(entries)?;
        let difference = replay.first_difference(&after(&self.history.site))?;
        ensure!(
            difference.is_none(),
            "the log does not make the disk, from byte {difference:?} on"
        );
        let end = Look { base: entries, pieces: Vec::new(), point: entries, is_exact: true };
        let findings = look_at(replay, &[end], &self.history.site.path(""))?;
        let commits = self.history.setting.commits;
        match &findings[..] {
            [Finding { verdict: Verdict::Legal { commits: found }, .. }] => {
                ensure!(*found == commits, "{found} of {commits} commits at the end");
                Ok(())
            }
            other => bail!("the end: {other:?}"),
        }
    }

    fn all_wrong<'f>(&self, findings: &'f [Finding]) -> Vec<(&'f Finding, Wrong, String)> {
        let wrong = |finding: &'f Finding| {
            let (what, why) = self.wrong(finding)?;
            let Look { base, pieces, .. } = &finding.look;
            let setting = &self.history.setting;
            Some((
                finding,
                what,
                format!("{setting}: {base} entries and {pieces:?}: {what:?}: {why}"),
            ))
        };
        findings.iter().filter_map(wrong).collect()
    }

    /// What is wrong with an image, if anything.
    fn wrong(&self, finding: &Finding) -> Option<(Wrong, String)> {
        match &finding.verdict {
            Verdict::Illegal { what, why } => Some((*what, why.clone())),
            Verdict::Legal { commits } => {
                let floor = self.floor(finding.look.point);
                let why =
                    || format!("{commits} are there, {floor} were acknowledged or there before");
                (*commits < floor).then(|| (Wrong::Commits, why()))
            }
        }
    }

    fn raise(&mut self, point: usize, commits: u64) {
        let floor = self.floors.entry(point).or_default();
        *floor = commits.max(*floor);
    }

    fn floor(&self, point: usize) -> u64 {
        self.floors.range(..=point).map(|(_, floor)| *floor).max().unwrap_or(0)
    }

    fn replay(&self) -> Result<Replay> {
        let log = DiskLog::open(&log(&self.history.site), DISK)?;
        replay(log, &before(&self.history.site), &self.history.site.path("base.raw"))
    }

    /// Keeps the first illegal images, with what is needed to make any other one.
    fn keep(&self, wrong: &[(&Finding, Wrong, String)]) -> Result<PathBuf> {
        let name = format!("cinnabar-power-cut-{}", self.history.setting.seed);
        let folder = tempfile::Builder::new().prefix(&name).tempdir()?.keep();
        let mut replay = self.replay()?;
        let mut text = format!("{:#?}\n", self.history.acks);
        for (number, (finding, _, why)) in wrong.iter().enumerate() {
            writeln!(text, "\nimage {number}: {why}")?;
            if number < KEPT_MAX {
                replay.advance(finding.look.base)?;
                let image = folder.join(format!("image{number}.raw"));
                replay.image(&image, &finding.look.pieces)?;
            }
        }
        std::fs::write(folder.join("why.txt"), text)?;
        for file in ["before.raw", "disk.raw", "disk.log", "cinnabar.log", "guest.console"] {
            copy_sparse(&File::open(self.history.site.path(file))?, &folder.join(file))?;
        }
        Ok(folder)
    }
}

/// How many images are illegal, by what is wrong with them.
fn tally(wrong: &[(&Finding, Wrong, String)]) -> String {
    let mut counts: BTreeMap<Wrong, usize> = BTreeMap::new();
    for (_, what, _) in wrong {
        *counts.entry(*what).or_default() += 1;
    }
    if counts.is_empty() { "all legal".into() } else { format!("illegal: {counts:?}") }
}
