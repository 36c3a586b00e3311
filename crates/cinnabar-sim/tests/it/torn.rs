//! A chunk header that a power cut has torn: nothing but its checksum says so.

use crate::fixture::{CAPACITY, TestScript, blocks, spec, version};
use cinnabar_engine::metadata::MetaPage;
use cinnabar_engine::metadata::chunk::ChunkHeader;
use cinnabar_engine::mutant::{Mutant, Mutants};
use cinnabar_engine::{Config, Eviction};
use cinnabar_sim::machine::EngineFactory;
use cinnabar_sim::medium::Backend;
use cinnabar_sim::script::Script;
use cinnabar_sim::{CacheSetup, Stamp};

/// Bytes of a page's checksum, its first ones.
const CHECKSUM_BYTES: usize = 4;

/// What is read of blocks that were cached, then overwritten, then found after a crash behind a
/// header that is new in its first sector (a newer sequence number) and old in the others (its
/// records): its checksum is wrong, and all else looks right.
fn read_behind_a_torn_header(config: Config) -> Vec<Stamp> {
    let backend = Backend::new(0, 8 * CAPACITY * 8, 512, false);
    // Every miss goes straight to flash.
    let config = Config { eviction: Eviction::Clock, ..config };
    let setup = CacheSetup::single(CAPACITY, config);
    let mut script: TestScript = Script::new(EngineFactory, setup, vec![backend]);
    let (volume, _) = script.attach(0, spec());
    let span = blocks(0, 32);
    // The first heartbeat makes what is read clean, and the chunk is written when it is old enough.
    pass_time(&mut script);
    script.read(volume, span).expect("a read");
    pass_time(&mut script);
    script.write(volume, span, 1).expect("a write");
    let mut torn = 0;
    for block in 0..script.media.cache.blocks() {
        let page = script.media.cache.page(block);
        if let Some(header) = ChunkHeader::decode(&page) {
            script.media.cache.set_page(block, &tear(&page, header));
            torn += 1;
        }
    }
    assert!(torn > 0, "a chunk is on the device");
    script.crash();
    let (volume, _) = script.attach(0, spec());
    script.settle();
    script.read(volume, span).expect("a read")
}

fn pass_time(script: &mut TestScript) {
    for _ in 0..4 {
        script.wait(1_000_000_000);
        script.settle();
    }
}

fn tear(page: &MetaPage, header: ChunkHeader) -> MetaPage {
    let sequence = header.sequence + 1000;
    let mut torn = ChunkHeader { sequence, ..header }.encode();
    torn.0[..CHECKSUM_BYTES].copy_from_slice(&page.0[..CHECKSUM_BYTES]);
    torn
}

#[test]
fn a_torn_header_is_not_believed() {
    assert_eq!(read_behind_a_torn_header(Config::default()), version(blocks(0, 32), 1));
}

/// [`Mutant::TornChunkTrusted`]: the test above can fail.
#[test]
fn without_its_checksum_a_torn_header_brings_back_what_was_overwritten() {
    let mutants = Mutants::only(Mutant::TornChunkTrusted);
    let read = read_behind_a_torn_header(Config { mutants, ..Config::default() });
    assert_eq!(read, version(blocks(0, 32), 0));
}
