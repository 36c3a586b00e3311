//! Real files: a log that is written, let go of in the middle, opened again and drained.

use super::*;
use crate::offline::check::CheckOptions;
use cinnabar_backend::Memory;
use cinnabar_backend::claim::{Claim, Location};
use cinnabar_engine::units::{BLOCK_BYTES, ByteSpan};
use cinnabar_engine::{Answer, Op, Payload};
use cinnabar_writeback::WriteLog;
use std::path::PathBuf;

const LOG_BYTES: u64 = 32 << 20;
const VOLUME_BYTES: u64 = 4 << 20;

struct Site {
    folder: tempfile::TempDir,
    /// What the volume holds.
    model: Vec<u8>,
    seed: u64,
}

impl Site {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let site = Self { folder, model: vec![0; VOLUME_BYTES as usize], seed: 1 };
        std::fs::write(site.path("disk"), &site.model).expect("it is written");
        create(&site.path("log"), LOG_BYTES).expect("it is made");
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
        (self.seed >> 33) % below
    }

    fn open(&self) -> OpenLog {
        open(&self.path("log"), &mut ()).expect("it opens")
    }

    fn begin(&self) -> (LogDevice, WriteLog<Memory>) {
        self.open().begin(Config::default()).expect("it begins")
    }

    /// Chunks that the back end lacks.
    fn dirty(&self) -> usize {
        let survey = self.open().survey;
        assert!(survey.volumes.iter().all(|found| found.damage.is_none()));
        survey.volumes.iter().map(|found| found.chunks.len()).sum()
    }

    /// A claim of the volume, beside the disk.
    fn claim(&self) -> Location {
        let location = Location::File(self.path("claim"));
        let uuid = self.open().survey.superblock.uuid;
        let claim = Claim::new(uuid, &self.path("log"), "vm1", 77);
        location.write(&claim).expect("it is claimed");
        location
    }

    fn target(&self) -> Arc<Disk> {
        Arc::new(Disk::open(&self.path("disk"), &OpenOptions::default()).expect("it opens"))
    }

    fn attach(session: &mut Session) -> LogVolumeId {
        Self::attach_to("", session, "vm1")
    }

    fn attach_to(group: &str, session: &mut Session, name: &str) -> LogVolumeId {
        let (name, group) = (name.to_owned(), group.to_owned());
        let size_bytes = VOLUME_BYTES;
        let command = Command::Attach { name, size_bytes, incarnation: 77, group };
        let Ok(Done::Attached(place)) = session.carry_out(command) else { panic!("it attaches") };
        place
    }

    /// Writes, and says what the volume holds now.
    fn write(&mut self, session: &mut Session, place: LogVolumeId, count: u64) {
        for _ in 0..count {
            let first = self.draw(VOLUME_BYTES / 512);
            let sectors = 1 + self.draw(40).min(VOLUME_BYTES / 512 - first - 1);
            let span = ByteSpan::new(first * 512, sectors * 512);
            let byte = 1 + self.draw(255) as u8;
            let (from, to) = (span.offset as usize, span.end() as usize);
            let op = match self.draw(10) {
                0 => Op::Flush,
                1 => {
                    self.model[from..to].fill(0);
                    Op::WriteZeroes { span, fua: false, may_punch: true }
                }
                kind => {
                    self.model[from..to].fill(byte);
                    let data = Memory::alloc(span.blocks() as u32);
                    data.write_at(span.head_bytes(), &vec![byte; span.len as usize]);
                    Op::Write { span, data, fua: kind == 2 }
                }
            };
            session.request(place, op).expect("it is written");
        }
    }

    fn read(session: &mut Session, place: LogVolumeId) -> Vec<u8> {
        let span = ByteSpan::new(0, VOLUME_BYTES);
        let data = Memory::alloc((VOLUME_BYTES / BLOCK_BYTES) as u32);
        let answer = session.request(place, Op::Read { span, data });
        let Ok(Answer::Data(data)) = answer else { panic!("it is read") };
        data.to_vec(0, VOLUME_BYTES)
    }
}

fn rescue_one(
    open: OpenLog,
    volume: &str,
    to: Arc<Disk>,
    kind: Target<'_>,
) -> Result<Rescued, OfflineError> {
    rescue(open, &[Wanted { volume, to, kind }], &mut ()).map(|mut all| all.remove(0))
}

#[test]
fn what_was_acknowledged_reaches_the_back_end_after_the_session_was_let_go_of() {
    let mut site = Site::new();
    for round in 0..4 {
        let (disk, log) = site.begin();
        let place = log.places().next().unwrap_or(LogVolumeId(0));
        let target = site.target();
        let mut session = Session::new(log, disk, Some((target, place))).expect("a session");
        let place = Site::attach(&mut session);
        assert!(Site::read(&mut session, place) == site.model, "before round {round}");
        site.write(&mut session, place, 150);
        assert!(Site::read(&mut session, place) == site.model, "after round {round}");
    }
    assert!(site.dirty() > 0);
    let dirty = site.dirty();
    let error = rescue_one(site.open(), "vm1", site.target(), Target::BackEnd(None))
        .expect_err("nothing says that it is its own");
    assert!(error.to_string().contains("no claim"), "{error}");
    std::fs::copy(site.path("disk"), site.path("copy")).expect("it is copied");
    let copy = Disk::open(&site.path("copy"), &OpenOptions::default()).expect("it opens");
    rescue_one(site.open(), "vm1", Arc::new(copy), Target::Copy).expect("it is drained");
    assert!(std::fs::read(site.path("copy")).expect("it is read") == site.model);
    assert_eq!(site.dirty(), dirty, "the log keeps them");
    let claim = site.claim();
    let kind = Target::BackEnd(Some(&claim));
    // A log with a lower number than the claim is an older copy.
    let own = claim.read().expect("it is read").expect("it is there");
    claim.write(&Claim { number: 1, ..own.clone() }).expect("it is claimed");
    let error = rescue_one(site.open(), "vm1", site.target(), kind);
    assert!(error.expect_err("it is older").to_string().contains("an older copy"));
    // So is one that knows nothing of the volume, unless nothing was acknowledged yet.
    let other = Claim { volume: "vm2".to_owned(), number: 1, ..own.clone() };
    claim.write(&other).expect("it is claimed");
    let error = site.open().release_old_claim("vm2", &claim).expect_err("it may be elsewhere");
    assert!(error.to_string().contains("an older copy"));
    claim.write(&own).expect("it is claimed");
    let rescued = rescue_one(site.open(), "vm1", site.target(), kind).expect("it is drained");
    assert!(rescued.blocks > 0 && rescued.writes > 0);
    assert!(std::fs::read(site.path("disk")).expect("it is read") == site.model);
    assert_eq!(site.dirty(), 0);
    // Interrupted at its very end: the log remembers who has left.
    let Location::File(path) = &claim else { unreachable!("it is a file") };
    std::fs::remove_file(path).expect("it is there");
    claim.write(&Claim { number: 1, ..own }).expect("it is claimed");
    assert!(site.open().release_old_claim("vm1", &claim).expect("it has left"));
}

#[test]
fn a_target_that_is_too_small_and_a_volume_that_is_not_there_are_refused() {
    let mut site = Site::new();
    let (disk, log) = site.begin();
    let mut session =
        Session::new(log, disk, Some((site.target(), LogVolumeId(0)))).expect("a session");
    let place = Site::attach(&mut session);
    site.write(&mut session, place, 20);
    drop(session);
    std::fs::write(site.path("small"), vec![0; 8192]).expect("it is written");
    let small = Disk::open(&site.path("small"), &OpenOptions::default()).expect("it opens");
    let error =
        rescue_one(site.open(), "vm1", Arc::new(small), Target::Copy).expect_err("too small");
    assert!(error.to_string().contains("8192"), "{error}");
    let error = rescue_one(site.open(), "vm2", site.target(), Target::Copy).expect_err("not there");
    assert!(error.to_string().contains("vm2"), "{error}");
}

#[test]
fn a_write_group_is_brought_to_its_back_ends_together() {
    let site = Site::new();
    let (disk, log) = site.begin();
    let mut session = Session::new(log, disk, None).expect("a session");
    let places = ["vm1", "vm2"].map(|name| Site::attach_to("vm", &mut session, name));
    for round in 1..6 {
        for place in places {
            let data = Memory::alloc(1);
            data.write_at(0, &[round; 4096]);
            let span = ByteSpan::new(u64::from(round) * BLOCK_BYTES, BLOCK_BYTES);
            session.request(place, Op::Write { span, data, fua: false }).expect("it is written");
            session.request(place, Op::Flush).expect("it is durable");
        }
    }
    drop(session);
    std::fs::copy(site.path("disk"), site.path("second")).expect("it is copied");
    std::fs::copy(site.path("disk"), site.path("copy")).expect("it is copied");
    let open =
        |name| Arc::new(Disk::open(&site.path(name), &OpenOptions::default()).expect("it opens"));
    let claims = [site.claim(), Location::File(site.path("claim2"))];
    let claim = claims[0].read().expect("it is read").expect("it is there");
    claims[1].write(&Claim { volume: "vm2".to_owned(), ..claim }).expect("it is claimed");
    let kinds = [0, 1].map(|which| Target::BackEnd(Some(&claims[which])));
    let alone = rescue_one(site.open(), "vm2", open("second"), kinds[1]);
    let error = alone.expect_err("its order with the other one would be lost");
    assert!(error.to_string().contains("in a write group with \"vm1\""), "{error}");
    // A copy is no member's back end.
    rescue_one(site.open(), "vm2", open("copy"), Target::Copy).expect("it is drained");
    let all = [("vm1", "disk", kinds[0]), ("vm2", "second", kinds[1])]
        .map(|(volume, to, kind)| Wanted { volume, to: open(to), kind });
    let done = rescue(site.open(), &all, &mut ()).expect("they are drained");
    assert!(done.iter().all(|of| of.blocks == 5 && of.claim_released), "{done:?}");
    for name in ["disk", "second", "copy"] {
        let bytes = std::fs::read(site.path(name)).expect("it is read");
        assert!((0..6).all(|round| bytes[round * 4096] == round as u8), "{name}");
    }
    assert!(site.open().survey.volumes.is_empty());
}

/// Pages whose checksum is right and whose fields are not: a log that another program, or an attacker,
/// has written. It is refused, or shown as damaged.
#[test]
fn a_hostile_log_costs_no_more_than_an_error() {
    use crate::offline::Image;
    use crate::offline::check::CheckOptions;
    use crate::offline::dump::{DumpOptions, Part};
    use cinnabar_engine::metadata::codec::Writer;
    use cinnabar_writeback::format::{directory_offset, offset_of};
    use std::os::unix::fs::FileExt;
    let mut site = Site::new();
    let (disk, log) = site.begin();
    let mut session = Session::new(log, disk, None).expect("a session");
    let place = Site::attach(&mut session);
    site.write(&mut session, place, 60);
    drop(session);
    let path = site.path("log");
    let file = std::fs::OpenOptions::new().read(true).write(true).open(&path).expect("it opens");
    let mut headers: Vec<u64> = (0..2).map(|copy| directory_offset(0, copy)).collect();
    for found in &site.open().survey.volumes {
        headers.extend(found.chunks.iter().map(|header| offset_of(header.slot)));
    }
    let mut opened = 0;
    for _ in 0..150 {
        let at = headers[site.draw(headers.len() as u64) as usize];
        let mut page = [0; 4096];
        file.read_exact_at(&mut page, at).expect("it is read");
        let was = page;
        for _ in 0..=site.draw(3) {
            // Most fields are near the front.
            let bytes = [160, 4000][site.draw(2) as usize];
            let field = 4 + site.draw(bytes) as usize;
            let value = match site.draw(4) {
                0 => u64::MAX,
                1 => 1 << site.draw(64),
                2 => site.draw(1 << 31),
                _ => 0,
            };
            let len = 1 + site.draw(8) as usize;
            page[field..field + len].copy_from_slice(&value.to_le_bytes()[..len]);
        }
        Writer::new(&mut page).seal();
        file.write_all_at(&page, at).expect("it is written");
        let image = Image::open(&path).expect("it opens");
        let copies = recognise(&image).expect("its superblock is as it was");
        let checked = check(&image, "log", &copies, CheckOptions { all: true }, &mut ());
        assert!(checked.is_ok(), "{checked:?}");
        let parts = Part::ALL.to_vec();
        let options = DumpOptions { parts, entries: true, shard: None };
        let mut emit = |_| std::ops::ControlFlow::Continue(());
        dump(&image, "log", &copies, &options, &mut (), &mut emit).expect("it is dumped");
        drop(image);
        // What begins writes records: the directory is put back as it was, too.
        let mut places = [0; 4 * 4096];
        file.read_exact_at(&mut places, directory_offset(0, 0)).expect("it is read");
        if let Ok(found) = open(&path, &mut ()) {
            opened += u32::from(found.begin(Config::default()).is_ok());
        }
        file.write_all_at(&places, directory_offset(0, 0)).expect("it is written");
        file.write_all_at(&was, at).expect("it is put back");
    }
    assert!(opened > 30, "{opened}");
}

/// Eight seconds went by over segments that the device does not have.
#[test]
fn a_dump_ends_where_the_device_does() {
    use crate::offline::Image;
    use crate::offline::dump::{DumpOptions, Part};
    use cinnabar_writeback::format::SEGMENT_PAGES;
    struct Steps(u64);
    impl Watch for Steps {
        fn at(&mut self, _: &'static str, _: u64, _: u64) {
            self.0 += 1;
        }
    }
    let site = Site::new();
    let image = Image::open(&site.path("log")).expect("it opens");
    let mut copies = recognise(&image).expect("it is a log");
    for copy in copies.iter_mut().flatten() {
        copy.segments = 0x20_008;
    }
    let options = DumpOptions { parts: vec![Part::Chunks], entries: true, shard: None };
    let (mut steps, mut emit) = (Steps(0), |_| std::ops::ControlFlow::Continue(()));
    dump(&image, "log", &copies, &options, &mut steps, &mut emit).expect("it is dumped");
    let most = LOG_BYTES / BLOCK_BYTES / u64::from(SEGMENT_PAGES);
    assert!((1..=most).contains(&steps.0), "{} segments of {most} were looked at", steps.0);
}

/// A log on two devices that both hold everything, at work.
fn mirrored(site: &Site) -> Session {
    let paths = ["log", "mirror"].map(|name| site.path(name));
    let found = paths.each_ref().map(|path| {
        open_write_log(path, Some(LOG_BYTES), &OpenOptions::default()).expect("it is there")
    });
    let disks: LogHalves = found.map(|found| Some(Arc::new(found.disk)));
    let pair = halves::start_pair(&disks).expect("they belong together");
    let log = cinnabar_writeback::recover::open(&pair, pair.bytes(), Config::default());
    let mut log = log.expect("it opens");
    let mirror = pair.finish(&mut log).expect("it begins");
    Session::new(log, LogDevice::mirrored(disks, mirror), None).expect("a session")
}

/// Acknowledged writes are on both halves, and nowhere else.
fn mirrored_site() -> Site {
    let mut site = Site::new();
    // The first command has the other half filled.
    let mut session = mirrored(&site);
    Site::attach(&mut session);
    drop(session);
    let mut session = mirrored(&site);
    let place = Site::attach(&mut session);
    site.write(&mut session, place, 100);
    drop(session);
    site
}

fn both(site: &Site) -> Result<OpenLog, OfflineError> {
    let (log, mirror) = (site.path("log"), site.path("mirror"));
    open_with_memory((&log, Some(&mirror)), &Remembered::Noted, &mut ())
}

#[test]
fn a_half_is_not_used_alone_before_the_operator_says_so() {
    for lost in ["log", "mirror"] {
        let site = mirrored_site();
        let other = site.path(if lost == "log" { "mirror" } else { "log" });
        let error = open(&other, &mut ()).err().expect("its other half may be newer");
        assert!(error.to_string().contains("its other half"), "{error}");
        assert!(error.hint().contains("--mirror") && error.hint().contains("--alone"), "{error}");
        std::fs::remove_file(site.path(lost)).expect("it is there");
        let error = both(&site).err().expect("one of them is lost");
        let text = error.to_string();
        assert!(text.contains("its other half") && text.contains("no such file"), "{text}");
        let (mark, was) = stand_alone(&other).expect("it is complete");
        assert!(!was && mark.generation > 0);
        assert!(stand_alone(&other).expect("it is complete").1, "it is so already");
        for mirror in [None, Some(site.path(lost))] {
            let opened = open_with_memory((&other, mirror.as_deref()), &Remembered::Noted, &mut ());
            let opened = opened.expect("it counts alone");
            assert_eq!(opened.missing.is_some(), mirror.is_some());
            let done =
                rescue_one(opened, "vm1", site.target(), Target::Copy).expect("it is drained");
            assert!(done.blocks > 0, "the log keeps them");
            assert!(std::fs::read(site.path("disk")).expect("it is read") == site.model);
        }
    }
}

#[test]
fn both_halves_are_rescued_and_stay_halves() {
    let site = mirrored_site();
    let options = CheckOptions { all: true };
    let paths = [site.path("log"), site.path("mirror")];
    let paths = [paths[0].as_path(), paths[1].as_path()];
    let before = paths.map(|path| std::fs::read(path).expect("it is read"));
    let report = check_mirrored(paths, options, &mut ()).expect("it is checked");
    assert!(
        !report.damaged && report.next_start.kind == crate::offline::report::StartKind::Recover
    );
    let halves: Vec<_> = report.halves.iter().map(|half| (half.mark, half.next_start)).collect();
    assert_eq!(halves, [("both", "member"); 2]);
    assert!(before == paths.map(|path| std::fs::read(path).expect("it is read")), "only looked at");
    // One half alone is checked, and not started.
    let image = crate::offline::Image::open(paths[0]).expect("it opens");
    let copies = recognise(&image).expect("it is a log");
    let alone = check(&image, "log", &copies, options, &mut ()).expect("it is checked");
    assert!(!alone.damaged && alone.next_start.kind == crate::offline::report::StartKind::Refuse);
    assert!(alone.next_start.text.contains("its other half"), "{}", alone.next_start.text);
    drop(image);

    let opened = both(&site).expect("they belong together");
    let location = Location::File(site.path("claim"));
    let claim = Claim::new(opened.survey.superblock.uuid, paths[0], "vm1", 77);
    location.write(&claim).expect("it is claimed");
    let kind = Target::BackEnd(Some(&location));
    rescue_one(opened, "vm1", site.target(), kind).expect("it is drained");
    assert!(std::fs::read(site.path("disk")).expect("it is read") == site.model);
    let report = check_mirrored(paths, options, &mut ()).expect("it is checked");
    assert!(report.halves.iter().all(|half| half.next_start == "member"), "{:?}", report.halves);
    assert!(report.volumes.iter().all(|volume| volume.dirty_chunks == 0));
}

#[test]
fn a_check_says_what_a_start_makes_of_a_copy_and_of_an_empty_half() {
    let site = mirrored_site();
    let check = |log: &str, mirror: &str| {
        let (log, mirror) = (site.path(log), site.path(mirror));
        check_mirrored([&log, &mirror], CheckOptions { all: true }, &mut ()).expect("a report")
    };
    std::fs::copy(site.path("log"), site.path("copy")).expect("it is copied");
    for copy in ["log", "copy"] {
        let start = check("log", copy).next_start;
        assert!(start.kind == crate::offline::report::StartKind::Refuse);
        assert!(start.text.contains("a copy of the other"), "{}", start.text);
    }
    let empty = std::fs::File::create(site.path("empty")).expect("it is made");
    empty.set_len(LOG_BYTES).expect("it is made");
    assert!(check("log", "empty").next_start.kind == crate::offline::report::StartKind::Refuse);
    stand_alone(&site.path("log")).expect("it is complete");
    let report = check("log", "empty");
    let halves: Vec<_> = report.halves.iter().map(|half| (half.mark, half.next_start)).collect();
    assert_eq!(halves, [("alone", "member"), ("none", "filled")]);
    // A rescue leaves it as it is.
    let (log, empty) = (site.path("log"), site.path("empty"));
    let opened = open_with_memory((&log, Some(&empty)), &Remembered::Noted, &mut ());
    let opened = opened.expect("the other one counts");
    rescue_one(opened, "vm1", site.target(), Target::Copy).expect("it is drained");
    let bytes = std::fs::read(empty).expect("it is read");
    assert!(bytes.iter().all(|byte| *byte == 0));
}

/// Each half has bad pages; together they have everything.
#[test]
fn halves_that_are_rotten_in_different_places_are_one_log() {
    use std::os::unix::fs::FileExt;
    let site = mirrored_site();
    for (number, name) in ["log", "mirror"].into_iter().enumerate() {
        let file = std::fs::OpenOptions::new().write(true).open(site.path(name)).expect("it opens");
        for segment in 0..4_u64 {
            let first = 768 + segment * 256;
            for page in (first..first + 256).skip(3 + number).step_by(2).take(20) {
                file.write_all_at(&[0x5a; 64], page * BLOCK_BYTES).expect("it is written");
            }
        }
    }
    let opened = both(&site).expect("they have everything together");
    assert!(opened.survey.volumes.iter().all(|found| found.damage.is_none()));
    rescue_one(opened, "vm1", site.target(), Target::Copy).expect("it is drained");
    assert!(std::fs::read(site.path("disk")).expect("it is read") == site.model);
}
