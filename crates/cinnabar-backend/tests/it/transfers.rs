//! Reading, writing, flushing, zeroing and trimming.

use crate::rig::{Rig, dirty, everywhere, file, pattern, slices, soon};
use cinnabar_backend::Memory;
use cinnabar_backend::disk::OpenOptions;
use cinnabar_backend::port::{Extent, JobOp};
use cinnabar_engine::metadata::MetaPage;
use cinnabar_engine::units::ByteSpan;
use cinnabar_engine::{Payload, Slice, Slices};

#[test]
fn what_is_written_is_read_back() {
    everywhere(|mode, folder| {
        let path = file(folder, &vec![0; 1 << 20]);
        let mut rig = Rig::new(mode, &path);
        let bytes = pattern(128 << 10, 1);
        for (offset, fua) in [(0, false), (512 << 10, true)] {
            rig.write(offset, &bytes, fua);
            assert_eq!(rig.read(offset, 128 << 10), bytes);
        }
        assert_eq!(rig.run(JobOp::Flush).result, Ok(()));
        let on_disk = std::fs::read(&path).expect("the file is there");
        assert!(on_disk[..128 << 10] == bytes && on_disk[512 << 10..640 << 10] == bytes);
        assert!(on_disk[128 << 10..512 << 10].iter().all(|&byte| byte == 0));
    });
}

#[test]
fn pages_go_before_data_and_come_back() {
    everywhere(|mode, folder| {
        let path = file(folder, &vec![0; 4 << 20]);
        let mut rig = Rig::new(mode, &path);
        let pages = vec![MetaPage([1; 4096]), MetaPage([2; 4096])];
        let data = Memory::alloc(2);
        data.write_at(0, &pattern(8192, 3));
        // In reverse order, so that nothing can be joined.
        let slices: Slices<Memory> =
            [4096, 0].map(|at| Slice { data: data.clone(), at, len: 4096 }).into_iter().collect();
        let op = JobOp::Write { offset: 8192, pages: pages.clone(), data: slices, fua: true };
        let done = rig.run(op);
        assert_eq!((done.result, &done.pages), (Ok(()), &pages));
        let expected = [&data.to_vec(4096, 4096)[..], &data.to_vec(0, 4096)].concat();
        assert_eq!(rig.read(16_384, 8192), expected);
        let blank = vec![MetaPage::zeroed(); 2];
        let done = rig.run(JobOp::Read { offset: 8192, pages: blank, data: Slices::new() });
        assert_eq!((done.result, done.pages), (Ok(()), pages));
    });
}

#[test]
fn chunks_of_thousands_of_pieces_are_split() {
    everywhere(|mode, folder| {
        // 3000 pieces are three calls of at most 1024.
        let blocks = 3000_u64;
        let path = file(folder, &vec![0; (blocks * 4096) as usize]);
        let mut rig = Rig::new(mode, &path);
        let data = Memory::alloc(blocks as u32);
        let bytes = pattern((blocks * 4096) as usize, 5);
        data.write_at(0, &bytes);
        let pieces = |data: &Memory| -> Slices<Memory> {
            (0..blocks)
                .map(|i| Slice { data: data.clone(), at: (blocks - 1 - i) * 4096, len: 4096 })
                .collect()
        };
        let (pages, offset) = (Vec::new(), 0);
        let op = JobOp::Write { offset, pages, data: pieces(&data), fua: false };
        assert_eq!(rig.run(op).result, Ok(()));
        let on_disk = std::fs::read(&path).expect("the file is there");
        assert!(on_disk[..4096] == bytes[bytes.len() - 4096..]);
        assert!(on_disk[on_disk.len() - 4096..] == bytes[..4096]);
        let back = dirty(blocks * 4096);
        let op = JobOp::Read { offset: 0, pages: Vec::new(), data: pieces(&back) };
        assert_eq!(rig.run(op).result, Ok(()));
        assert!(back.to_vec(0, blocks * 4096) == bytes);
    });
}

#[test]
fn large_single_buffers_go_through() {
    everywhere(|mode, folder| {
        let len = 32 << 20;
        let path = file(folder, &vec![0; len]);
        let mut rig = Rig::new(mode, &path);
        let bytes = pattern(len, 9);
        rig.write(0, &bytes, false);
        assert!(rig.read(0, len as u64) == bytes);
    });
}

#[test]
fn zeroing_zeroes_whether_or_not_it_may_punch() {
    everywhere(|mode, folder| {
        let bytes = pattern(4 << 20, 2);
        let path = file(folder, &bytes);
        let mut rig = Rig::new(mode, &path);
        for (offset, len, may_punch) in [
            (4096, 8192, true),
            (65_536, 3 << 19, false),
            (2 << 20, 512, true),
            ((3 << 20) + 512, 1024, false),
        ] {
            let span = ByteSpan::new(offset, len);
            assert_eq!(rig.run(JobOp::WriteZeroes { span, may_punch }).result, Ok(()));
            let mut around = bytes[(offset as usize & !4095)..].to_vec();
            around[offset as usize & 4095..][..len as usize].fill(0);
            let length = (len + 8191) & !4095;
            assert!(rig.read(offset & !4095, length) == around[..length as usize], "{offset}");
        }
        let size = std::fs::metadata(&path).expect("the file is there").len();
        assert_eq!(size, 4 << 20, "the size stays");
    });
}

#[test]
fn trimming_makes_holes_and_extents_show_them() {
    everywhere(|mode, folder| {
        let path = file(folder, &pattern(1 << 20, 4));
        let mut rig = Rig::new(mode, &path);
        let span = ByteSpan::new(256 << 10, 256 << 10);
        assert_eq!(rig.run(JobOp::Trim { span }).result, Ok(()));
        let done = rig.run(JobOp::Extents { span: ByteSpan::new(4096, 2 << 20) });
        assert_eq!(done.result, Err(rustix::io::Errno::INVAL), "past the end");
        let done = rig.run(JobOp::Extents { span: ByteSpan::new(4096, (1 << 20) - 4096) });
        let (data, hole) =
            (|len: u64| Extent { len, hole: false }, |len: u64| Extent { len, hole: true });
        let expected = [data((256 << 10) - 4096), hole(256 << 10), data(512 << 10)];
        assert_eq!((done.result, &done.extents[..]), (Ok(()), &expected[..]));
    });
}

#[test]
fn the_page_cache_does_where_direct_io_does_not() {
    everywhere(|mode, folder| {
        let path = file(folder, &pattern(65_536, 6));
        let options = OpenOptions { direct: false, ..soon() };
        let mut rig = Rig::with(mode, &path, &options);
        assert!(!rig.disk.is_direct() && rig.disk.align_bytes() == 512);
        rig.write(512, &pattern(1024, 7), true);
        assert_eq!(rig.read(512, 1024), pattern(1024, 7));
        assert_eq!(rig.run(JobOp::Flush).result, Ok(()));
    });
}

#[test]
fn reading_into_one_slice_of_a_buffer_leaves_the_rest() {
    everywhere(|mode, folder| {
        let path = file(folder, &pattern(65_536, 8));
        let mut rig = Rig::new(mode, &path);
        let data = dirty(12_288);
        let slice: Slices<Memory> =
            std::iter::once(Slice { data: data.clone(), at: 4096, len: 4096 }).collect();
        let done = rig.run(JobOp::Read { offset: 8192, pages: Vec::new(), data: slice });
        assert_eq!(done.result, Ok(()));
        assert!(data.to_vec(4096, 4096) == pattern(65_536, 8)[8192..12_288]);
        assert!(data.to_vec(0, 4096).iter().chain(&data.to_vec(8192, 4096)).all(|&b| b == 0xee));
        drop(slices(&data, 4096));
    });
}
