//! A log on two devices while it is opened: what fails, hangs, or is not what it should be.

use super::{SEGMENTS, Two};
use crate::memory::Mem;
use crate::ssd::Ssd;
use cinnabar_engine::metadata::MetaPage;
use cinnabar_writeback::Config;
use cinnabar_writeback::format::{bytes_of, directory_offset};
use cinnabar_writeback::mirror::{Half, HalfState, force_alone, start};
use cinnabar_writeback::mutant::Mutants;
use cinnabar_writeback::recover::{Media, OpenError, format, open, superblock};
use std::cell::Cell;
use std::io::{Error, ErrorKind, Result as IoResult};

#[test]
fn a_device_is_not_stamped_before_the_log_is_known_to_open() {
    let mut two = Two::new(Mutants::default());
    force_alone(&two.ssds[0]).expect("it works");
    two.ssds[1] = two.ssds[0].beside();
    let half = |media, bytes| Some(Half { media, bytes });
    let whole = bytes_of(SEGMENTS);
    let halves = [half(&two.ssds[0], whole), half(&two.ssds[1], whole - 4096)];
    let pair = start::<Mem, Ssd>(halves, 1, Config::default().mutants).expect("one is whole");
    let mut log = open::<Mem>(&pair, pair.bytes(), Config::default()).expect("it works");
    let mirror = pair.finish(&mut log).expect("one is whole");
    assert_eq!(mirror.states(), [HalfState::Member, HalfState::Gone]);
    assert!(matches!(mirror.missing(1), Some(OpenError::MirrorSmaller { .. })));
    assert!(superblock(&two.ssds[1]).is_err(), "nothing was written to it");
    for copy in 0..2 {
        two.ssds[0].rot_page(directory_offset(0, copy) / 4096);
    }
    assert!(matches!(two.reopen([true, true]), Err(OpenError::Directory(0))));
    assert!(superblock(&two.ssds[1]).is_err(), "nothing was written to it");
}

/// A device that takes so many writes and no more.
struct Failing<'a>(&'a Ssd, Cell<u32>);

impl Media<Mem> for Failing<'_> {
    fn read_pages(&self, offset: u64, pages: &mut [MetaPage]) -> IoResult<()> {
        self.0.read_pages(offset, pages)
    }
    fn read_data(&self, offset: u64, blocks: u32) -> IoResult<Mem> {
        self.0.read_data(offset, blocks)
    }
    fn write_page(&self, offset: u64, page: &MetaPage) -> IoResult<()> {
        let left = self.1.get().checked_sub(1).ok_or_else(|| Error::other("it fails"))?;
        self.1.set(left);
        self.0.write_page(offset, page)
    }
    fn flush(&self) -> IoResult<()> {
        self.0.flush()
    }
}

/// A device got its superblock before it was marked as being filled: alone, it was served as an empty
/// log, and claims of the log's volumes were removed.
#[test]
fn a_device_that_fails_while_it_is_filled_is_never_served_alone() {
    for writes in 0..12 {
        let source = Ssd::default();
        format(&source, bytes_of(SEGMENTS), [9; 16]).expect("it is large enough");
        let target = source.beside();
        let half = |media| Some(Half { media, bytes: bytes_of(SEGMENTS) });
        let devices = [Failing(&source, u32::MAX.into()), Failing(&target, writes.into())];
        let halves = [half(&devices[0]), half(&devices[1])];
        let pair = start::<Mem, _>(halves, 7, Mutants::default()).expect("one is a log");
        let mut log = open::<Mem>(&pair, pair.bytes(), Config::default()).expect("it is empty");
        let mirror = pair.finish(&mut log).expect("the other one is there");
        assert_eq!(mirror.states(), [HalfState::Member, HalfState::Gone], "{writes} writes");
        let whole = Half { media: &target, bytes: bytes_of(SEGMENTS) };
        let alone = start::<Mem, Ssd>([None, Some(whole)], 8, Mutants::default());
        assert!(alone.is_err(), "{writes} writes: it is served");
    }
}

/// A device that is silent after so many I/Os.
struct Silent<'a> {
    ssd: &'a Ssd,
    left: Cell<u32>,
    /// It was asked again.
    asked: Cell<bool>,
}

impl<'a> Silent<'a> {
    fn new(ssd: &'a Ssd, after: u32) -> Self {
        Self { ssd, left: after.into(), asked: false.into() }
    }

    fn ask(&self) -> IoResult<()> {
        match self.left.get() {
            0 => {
                self.asked.set(true);
                Err(Error::other("it was not to be asked again"))
            }
            1 => {
                self.left.set(0);
                Err(Error::from(ErrorKind::TimedOut))
            }
            left => {
                self.left.set(left - 1);
                Ok(())
            }
        }
    }
}

impl Media<Mem> for Silent<'_> {
    fn read_pages(&self, offset: u64, pages: &mut [MetaPage]) -> IoResult<()> {
        self.ask()?;
        self.ssd.read_pages(offset, pages)
    }
    fn read_data(&self, offset: u64, blocks: u32) -> IoResult<Mem> {
        self.ask()?;
        self.ssd.read_data(offset, blocks)
    }
    fn write_page(&self, offset: u64, page: &MetaPage) -> IoResult<()> {
        self.ask()?;
        self.ssd.write_page(offset, page)
    }
    fn flush(&self) -> IoResult<()> {
        self.ask()?;
        Media::<Mem>::flush(self.ssd)
    }
}

/// One half hung: the start waited for it, again and again, or ended.
#[test]
fn a_half_that_is_overdue_at_the_start_is_not_there() {
    for (slow, after) in (0..2).flat_map(|slow| (1..120).map(move |after| (slow, after))) {
        let mut two = Two::new(Mutants::default());
        two.write(1, 7);
        two.settle();
        // In one of three runs the marks say that one is alone.
        let alone = after % 3 == 0;
        if alone {
            force_alone(&two.ssds[1 - slow]).expect("it works");
        }
        two.ssds.iter().for_each(Ssd::forget);
        let devices = [0, 1]
            .map(|half| Silent::new(&two.ssds[half], if half == slow { after } else { u32::MAX }));
        let half = |media| Some(Half { media, bytes: bytes_of(SEGMENTS) });
        let halves = [half(&devices[0]), half(&devices[1])];
        let opened = start::<Mem, Silent<'_>>(halves, 9, two.mutants).and_then(|pair| {
            let mut log = open(&pair, pair.bytes(), Config::default())?;
            let mirror = pair.finish(&mut log)?;
            Ok((log, mirror))
        });
        let what = format!("half {slow} after {after}");
        assert!(!devices[slow].asked.get(), "{what}: it was asked again");
        let in_time = devices[slow].left.get() > 0;
        match opened {
            Ok((_, mirror)) => {
                let gone = mirror.states()[slow] == HalfState::Gone;
                assert_eq!(gone, !in_time, "{what}: {:?}", mirror.states());
                assert_eq!(mirror.missing(slow).is_some(), gone, "{what}");
                assert_eq!(mirror.states()[1 - slow], HalfState::Member, "{what}");
            }
            // Its mark was not read: it may have gone on alone.
            Err(OpenError::HalfMissing) => assert!(!alone && after < 4, "{what}"),
            Err(error) => panic!("{what}: {error}"),
        }
        two.reopen([slow == 1, slow == 0])
            .or_else(|error| {
                assert!(
                    matches!(error, OpenError::HalfMissing) && (in_time || after < 4),
                    "{what}"
                );
                force_alone(&two.ssds[1 - slow]).expect("it works");
                two.reopen([slow == 1, slow == 0])
            })
            .expect("it is alone");
        assert_eq!(two.read(1), Ok(Some(7)), "{what}");
    }
}

/// What is wrong, bytes of the device, and what happens to it.
type Wrong = (&'static str, u64, fn(&Ssd));

/// Whatever is wrong with one device, the other one is served if it is known to hold everything.
#[test]
fn a_device_that_can_not_be_used_does_not_end_the_start() {
    let two = Two::new(Mutants::default());
    let whole = bytes_of(SEGMENTS);
    let wrong: [Wrong; 5] = [
        ("it is smaller than its log", whole - 4096, |_| {}),
        ("it has no size", 0, |_| {}),
        ("no superblock can be read", whole, |ssd| (0..2).for_each(|page| ssd.spoil(page))),
        ("no mark can be read", whole, |ssd| (516..518).for_each(|page| ssd.spoil(page))),
        ("no mark is whole", whole, |ssd| (516..518).for_each(|page| ssd.rot_page(page))),
    ];
    for (what, bytes, harm) in wrong {
        let [good, bad] = [two.ssds[0].copy(), two.ssds[1].copy()];
        harm(&bad);
        let given = |media, bytes| Some(Half { media, bytes });
        let alone = start::<Mem, Ssd>([None, given(&bad, bytes)], 9, Mutants::default());
        let own = !matches!(alone, Err(OpenError::HalfMissing) | Ok(_));
        assert!(own, "{what}: its own error: {:?}", alone.err());
        let halves = || [given(&good, whole), given(&bad, bytes)];
        assert!(start::<Mem, Ssd>(halves(), 9, Mutants::default()).is_err(), "{what}");
        force_alone(&good).expect("it works");
        let pair = start::<Mem, Ssd>(halves(), 9, Mutants::default()).expect(what);
        let mut log = open::<Mem>(&pair, pair.bytes(), Config::default()).expect(what);
        let mirror = pair.finish(&mut log).expect(what);
        assert_eq!(mirror.states(), [HalfState::Member, HalfState::Gone], "{what}");
        assert!(mirror.missing(1).is_some() && mirror.missing(0).is_none(), "{what}");
    }
}
