//! Sizes, versions, and what is left of two copies.

use super::*;

fn example() -> Superblock {
    let geometry = Geometry::for_device(64 << 20).expect("a good size");
    let mut superblock = Superblock::format([7; 16], geometry);
    superblock.state = DeviceState::Clean { checkpoint: 3 };
    superblock
}

#[test]
fn the_newer_copy_counts_and_a_torn_one_leaves_the_older() {
    let old = example();
    let new =
        Superblock { sequence: 2, state: DeviceState::InUse { regions: false }, ..old.clone() };
    let mut pages = [new.encode().1, old.encode().1];
    assert_eq!((new.encode().0, old.encode().0), (0, 4096));
    assert_eq!(Superblock::decode(&pages), Ok(new));
    pages[0].0[100] ^= 1;
    assert_eq!(Superblock::decode(&pages), Ok(old));
    pages[1].0[100] ^= 1;
    assert_eq!(Superblock::decode(&pages), Err(SuperblockError::Damaged));
}

#[test]
fn what_a_device_uses_of_what_it_was_made_for_is_kept() {
    let all = example();
    assert_eq!(all.encode().1.0[12], 2, "a program that knows no other size reads it");
    let mut less = all.clone().with_segments(20);
    less.segments_room = 30;
    let (offset, page) = less.encode();
    let mut pages = [MetaPage::zeroed(), MetaPage::zeroed()];
    pages[(offset / 4096) as usize] = page;
    assert_eq!(pages[1].0[12], 3);
    assert_eq!(Superblock::decode(&pages), Ok(less.clone()));
    for (at, wrong) in [(136, 3u32), (136, 31), (140, 19), (140, all.geometry.segments + 1)] {
        let mut pages = pages.clone();
        pages[1].0[at..at + 4].copy_from_slice(&wrong.to_le_bytes());
        let crc = crc32c::crc32c(&pages[1].0[4..]);
        pages[1].0[..4].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(Superblock::decode(&pages), Err(SuperblockError::Damaged), "{at}: {wrong}");
    }
}

/// A program of before regions must believe neither copy, nor this one an older copy beside one that is
/// newer than it knows.
#[test]
fn a_device_whose_regions_may_be_active_has_a_version_of_its_own() {
    let clean = example();
    let state = DeviceState::InUse { regions: true };
    let used = Superblock { sequence: 2, state, ..clean.clone() };
    let resized = used.clone().with_segments(20);
    let versions = [&clean, &used, &resized].map(Superblock::version);
    assert_eq!(versions, [2, FORMAT_VERSION, FORMAT_VERSION + 1]);
    let mut pages = [used.encode().1, clean.encode().1];
    assert_eq!(Superblock::decode(&pages), Ok(used));
    for (sequence, wanted) in
        [(2, Err(SuperblockError::Version { version: 6, sequence: 2 })), (1, Ok(clean))]
    {
        pages[0].0[12] = 6;
        pages[0].0[16] = sequence;
        let crc = crc32c::crc32c(&pages[0].0[4..]);
        pages[0].0[..4].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(Superblock::decode(&pages), wanted);
    }
}

#[test]
fn a_size_is_so_many_segments_up_to_the_size_that_was_formatted() {
    for (bytes, shards) in [(64u64 << 20, 1), (16 << 30, 4), ((16 << 30) + 4096 * 7, 3)] {
        let geometry = Geometry::for_shards(bytes, shards).expect("a good size");
        let all = geometry.segments;
        assert_eq!(geometry.segments_for(bytes), Ok(all), "the size it was made with");
        assert_eq!(geometry.segments_for(geometry.device_bytes()), Ok(all));
        assert_eq!(geometry.segments_for(geometry.device_bytes() - 1), Ok(all - 1));
        for segments in [16, 17, all - 1] {
            let used = geometry.used_bytes(segments);
            assert_eq!(geometry.segments_for(used), Ok(segments));
            let room = geometry.room(0, segments);
            assert_eq!(room.iter().map(|r| r.end - r.start).sum::<u64>(), used);
            let rest = geometry.room(segments, all);
            let rest: u64 = rest.iter().map(|r| r.end - r.start).sum();
            assert_eq!(used + rest, geometry.device_bytes());
        }
        let least = geometry.used_bytes(16);
        let refused = geometry.segments_for(least - 1);
        assert_eq!(refused, Err(GeometryError::TooSmall { got: least - 1, min: least }));
        assert!(geometry.segments_for(bytes + (64 << 20)).is_err());
    }
}

#[test]
fn foreign_bytes_and_newer_versions_are_told_apart() {
    let empty = [MetaPage::zeroed(), MetaPage::zeroed()];
    assert_eq!(Superblock::decode(&empty), Err(SuperblockError::Foreign));
    let mut page = example().encode().1;
    page.0[12] = 9;
    let crc = crc32c::crc32c(&page.0[4..]);
    page.0[..4].copy_from_slice(&crc.to_le_bytes());
    let pages = [page, MetaPage::zeroed()];
    assert_eq!(
        Superblock::decode(&pages),
        Err(SuperblockError::Version { version: 9, sequence: 1 })
    );
}

#[test]
fn a_geometry_fits_its_device_and_wastes_little() {
    for bytes in [Geometry::BYTES_MIN, 64 << 20, 1 << 30, 100 << 30, Geometry::BYTES_MAX] {
        let geometry = Geometry::for_device(bytes).expect("a good size");
        assert!(geometry.device_bytes() <= bytes && geometry.is_sound());
        let used = geometry.capacity_blocks() * 4096;
        assert!(used * 100 >= bytes * 80, "{used} of {bytes}");
    }
    assert!(Geometry::for_device(1 << 20).is_err());
    assert!(Geometry::for_device(u64::MAX).is_err());
}

#[test]
fn regions_fit_their_device_and_are_not_too_many() {
    for bytes in [Geometry::BYTES_MIN, 8 << 30, 5 << 40, Geometry::BYTES_MAX * 64] {
        let shards = Geometry::shards_for(bytes);
        let geometry = Geometry::for_shards(bytes, shards).expect("a good size");
        assert!(geometry.device_bytes() <= bytes && geometry.is_sound());
    }
    let bytes = Geometry::BYTES_MAX * 64 + 64;
    let too_many = Geometry::for_shards(bytes, Geometry::shards_for(bytes));
    assert!(matches!(too_many, Err(GeometryError::TooLarge { .. })));
}
