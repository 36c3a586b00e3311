//! The end of a disk, and jobs that make no sense.

use crate::rig::{Rig, dirty, everywhere, file, pattern, slices};
use cinnabar_backend::port::JobOp;
use cinnabar_engine::Slices;
use cinnabar_engine::units::ByteSpan;
use rustix::io::Errno;

#[test]
fn what_lies_past_the_end_reads_as_zeros() {
    everywhere(|mode, folder| {
        // 10 sectors: one block and two sectors.
        let bytes = pattern(5120, 1);
        let mut rig = Rig::new(mode, &file(folder, &bytes));
        let mut expected = bytes;
        expected.resize(8192, 0);
        assert!(rig.read(0, 8192) == expected);
        assert!(rig.read(4096, 4096) == expected[4096..]);
        assert!(rig.read(8192, 4096) == [0; 4096]);
        assert!(rig.read(1 << 40, 4096) == [0; 4096]);
    });
}

#[test]
fn the_last_sectors_can_be_written() {
    everywhere(|mode, folder| {
        let path = file(folder, &[0; 5120]);
        let mut rig = Rig::new(mode, &path);
        rig.write(4096, &pattern(1024, 2), true);
        let on_disk = std::fs::read(&path).expect("the file is there");
        assert!(on_disk.len() == 5120 && on_disk[4096..] == pattern(1024, 2));
    });
}

#[test]
fn nothing_reaches_past_the_end() {
    everywhere(|mode, folder| {
        let path = file(folder, &[1; 8192]);
        let mut rig = Rig::new(mode, &path);
        for (offset, len) in [(4096, 8192), (8192, 4096), (u64::MAX - 4095, 4096)] {
            let data = dirty(len);
            let data = slices(&data, len);
            let op = JobOp::Write { offset, pages: Vec::new(), data, fua: false };
            assert_eq!(rig.run(op).result, Err(Errno::INVAL), "write {len} at {offset}");
            let span = ByteSpan::new(offset, len);
            assert_eq!(rig.run(JobOp::Trim { span }).result, Err(Errno::INVAL));
            let op = JobOp::WriteZeroes { span, may_punch: true };
            assert_eq!(rig.run(op).result, Err(Errno::INVAL));
        }
        assert_eq!(std::fs::read(&path).expect("the file is there"), [1; 8192]);
    });
}

#[test]
fn a_file_that_was_cut_off_is_an_error_not_zeros() {
    everywhere(|mode, folder| {
        let path = file(folder, &vec![1; 65_536]);
        let mut rig = Rig::new(mode, &path);
        let other = std::fs::OpenOptions::new().write(true).open(&path).expect("it opens");
        other.set_len(32_768).expect("it shrinks");
        let data = dirty(16_384);
        let data = slices(&data, 16_384);
        let done = rig.run(JobOp::Read { offset: 24_576, pages: Vec::new(), data });
        assert_eq!(done.result, Err(Errno::NODATA));
    });
}

#[test]
fn writes_to_a_read_only_disk_fail() {
    everywhere(|mode, folder| {
        let path = file(folder, &[1; 8192]);
        let options = cinnabar_backend::disk::OpenOptions { read_only: true, ..crate::rig::soon() };
        let mut rig = Rig::with(mode, &path, &options);
        let data = dirty(4096);
        let data = slices(&data, 4096);
        let op = JobOp::Write { offset: 0, pages: Vec::new(), data, fua: false };
        assert_eq!(rig.run(op).result, Err(Errno::BADF));
        assert_eq!(rig.read(0, 4096), [1; 4096]);
    });
}

#[test]
fn empty_jobs_end_well() {
    everywhere(|mode, folder| {
        let mut rig = Rig::new(mode, &file(folder, &[1; 8192]));
        let (pages, data) = (Vec::new(), Slices::new());
        let op = JobOp::Read { offset: 0, pages, data };
        assert_eq!(rig.run(op).result, Ok(()));
        for fua in [false, true] {
            let (pages, data) = (Vec::new(), Slices::new());
            assert_eq!(rig.run(JobOp::Write { offset: 0, pages, data, fua }).result, Ok(()));
        }
    });
}
