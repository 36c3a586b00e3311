//! The machine: what is installed on it, and what a day on it looks like.
//!
//! State goes from day to day: files stay where they are until something moves them.

use super::Settings;
use super::background::Background;
use super::browser::Browser;
use super::day::Day;
use super::disk::{Disk, Zipf, count, pick};
use super::documents::Documents;
use super::parameters::{
    APPLICATION_SIZE, APPLICATIONS, BOOT_GAP_SECONDS, FILE_SKIPPED, GAP_SECONDS, LOGON_SECONDS,
    LONE_BLOCKS, SHARES,
};
use super::script::Script;
use crate::generate::Chance;
use crate::record::Record;

/// When updates are installed, in seconds of the day.
const UPDATE_S: f64 = 16.0 * 3600.0;

#[derive(Debug)]
pub(super) struct Machine {
    settings: Settings,
    disk: Disk,
    boot: Script,
    logon: Script,
    applications: Vec<Script>,
    popularity: Zipf,
    documents: Documents,
    browser: Browser,
    background: Background,
}

impl Machine {
    pub(super) fn new(settings: Settings) -> Self {
        let mut chance = Chance::new(settings.seed, 0);
        let chance = &mut chance;
        let mut disk = Disk::new(settings.disk_bytes);
        let requests = f64::from(settings.requests_per_day);
        let mut part = |share: f64, chance: &mut Chance| {
            // What is passed over is not read: the rest is to be the share.
            let whole = requests * share / (1.0 - FILE_SKIPPED);
            Script::new(count(whole), &mut disk.system, chance)
        };
        let boot = part(SHARES.boot_reads, chance);
        let logon = part(SHARES.logon_reads, chance);
        let applications = (0..APPLICATIONS)
            .map(|_| {
                let size = requests * APPLICATION_SIZE * (0.3 + 1.4 * chance.unit());
                Script::new(count(size), &mut disk.programs, chance)
            })
            .collect();
        let documents = Documents::new(settings.requests_per_day, &mut disk, chance);
        let browser = Browser::new(settings.requests_per_day, &disk, chance);
        Self {
            settings,
            boot,
            logon,
            applications,
            popularity: Zipf::new(APPLICATIONS),
            documents,
            browser,
            background: Background::new(settings.requests_per_day),
            disk,
        }
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The requests of a day, in order of time.
    pub(super) fn day(&mut self, number: u32) -> Vec<Record> {
        let mut day = Day::new(self.settings, number);
        self.start(&mut day);
        self.applications(&mut day);
        self.documents.day(&mut day, &mut self.disk);
        self.browser.day(&mut day);
        self.reads(&mut day);
        self.background.day(&mut day, &self.disk);
        self.updates(&mut day);
        let every = self.settings.scan_every_days;
        if every > 0 && (number + 1).is_multiple_of(every) {
            Background::scan(&mut day, &self.disk);
        }
        day.into_records()
    }

    fn start(&mut self, day: &mut Day) {
        let from_s = day.boot_s;
        let (to_s, _) = self.boot.play(day, from_s, BOOT_GAP_SECONDS, usize::MAX);
        self.background.beside(day, &self.disk, from_s, to_s, SHARES.boot_writes);
        let from_s = to_s + day.chance.exponential(LOGON_SECONDS).min(5.0 * LOGON_SECONDS);
        let (to_s, _) = self.logon.play(day, from_s, GAP_SECONDS, usize::MAX);
        self.background.beside(day, &self.disk, from_s, to_s, SHARES.logon_writes);
    }

    fn applications(&mut self, day: &mut Day) {
        let mut left = day.budget(SHARES.application_reads);
        let mut started = vec![false; self.applications.len()];
        while left > 0 {
            let nth = self.popularity.rank(APPLICATIONS, &mut day.chance);
            let at_s = day.user_moment();
            let application = &self.applications[nth];
            left -= if std::mem::replace(&mut started[nth], true) {
                application.play_warm(day, at_s, GAP_SECONDS, left)
            } else {
                application.play(day, at_s, GAP_SECONDS, left).1
            };
        }
    }

    /// Single reads: half of programs that run, a third of metadata, the rest of anything.
    fn reads(&mut self, day: &mut Day) {
        for _ in 0..day.budget(SHARES.background_reads) {
            let at_s = day.user_moment();
            let rng = day.chance.unit();
            if rng < 0.5 {
                let nth = self.popularity.rank(APPLICATIONS, &mut day.chance);
                let (block, blocks) = self.applications[nth].any_request(&mut day.chance);
                day.read(at_s, block, blocks);
            } else if rng < 0.85 {
                self.background.read_metadata(day, &self.disk, at_s);
            } else {
                let blocks = pick(LONE_BLOCKS, &mut day.chance);
                let archive = &self.disk.archive;
                let block = archive.first + day.chance.below(archive.blocks - blocks);
                day.read(at_s, block, blocks);
            }
        }
    }

    /// Files replaced late in the day; the next boot and the next starts read the new ones.
    fn updates(&mut self, day: &mut Day) {
        let mut left = day.budget(SHARES.update_writes);
        let mut at_s = UPDATE_S;
        let installed =
            self.boot.requests() + self.applications.iter().map(Script::requests).sum::<usize>();
        let of_boot = self.boot.requests() as f64 / installed as f64;
        while left > 0 {
            let written = if day.chance.with(of_boot) {
                self.boot.update(day, &mut self.disk.system, at_s, left)
            } else {
                let nth = day.chance.below(APPLICATIONS as u64) as usize;
                self.applications[nth].update(day, &mut self.disk.programs, at_s, left)
            };
            left -= written;
            at_s += day.chance.exponential(1.0);
        }
    }
}
