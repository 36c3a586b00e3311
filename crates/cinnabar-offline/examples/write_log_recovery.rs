//! How long it takes to find out what is on a write log that is full:
//! `cargo run --release -p cinnabar-offline --example write_log_recovery -- PATH make GIB BLOCKS`
//! makes one with so many blocks a chunk, and `... -- PATH open` opens it.

use cinnabar_backend::disk::{OpenOptions, open_write_log};
use cinnabar_engine::metadata::MetaPage;
use cinnabar_offline::write_log::{Config, create, open};
use cinnabar_writeback::format::chunk::{ChunkHeader, Entry};
use cinnabar_writeback::format::directory::{Gap, Record};
use cinnabar_writeback::format::superblock::Superblock;
use cinnabar_writeback::format::{SEGMENT_PAGES, directory_offset, offset_of};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let words: Vec<&str> = arguments.iter().skip(1).map(String::as_str).collect();
    match words[..] {
        [path, "make", gib, blocks] => {
            let gib: u64 = gib.parse().expect("a number of GiB");
            make(path.as_ref(), gib << 30, blocks.parse().expect("blocks of a chunk"));
        }
        [path, "open"] => measure(path.as_ref()),
        _ => {
            eprintln!("usage: write_log_recovery PATH make GIB BLOCKS | PATH open");
            std::process::exit(2);
        }
    }
}

fn measure(path: &Path) {
    let begun = Instant::now();
    let found = open(path, &mut ()).expect("it opens");
    let looked = begun.elapsed();
    let chunks: usize = found.survey.volumes.iter().map(|volume| volume.chunks.len()).sum();
    assert!(found.survey.volumes.iter().all(|volume| volume.damage.is_none()), "it is whole");
    let (_disk, log) = found.begin(Config::default()).expect("it begins");
    println!(
        "{chunks} chunks, {} places: looked at in {:.2} s, open after {:.2} s",
        log.places().count(),
        looked.as_secs_f64(),
        begun.elapsed().as_secs_f64()
    );
}

fn make(path: &Path, bytes: u64, blocks: u32) {
    drop(create(path, bytes).expect("it is made"));
    let found = open_write_log(path, None, &OpenOptions::default()).expect("it opens");
    let Superblock { uuid, segments } = found.superblock.expect("it was formatted");
    let file = std::fs::OpenOptions::new().write(true).open(path).expect("it opens");
    let record = Record {
        uuid,
        volume: 0,
        stamp: 1,
        in_use: true,
        name: "vm1".to_owned(),
        incarnation: 1,
        size_bytes: 1 << 40,
        retired: 0,
        retired_epoch: 0,
        claim: 0,
        gaps: vec![Gap { last: 0, next: 1, session: 1 }],
    };
    let page = record.encode();
    file.write_all_at(&page.0, directory_offset(0, 1)).expect("it is written");
    let mut number = 0;
    for segment in 0..segments {
        let mut bytes: Vec<u8> = (0..SEGMENT_PAGES * 4096).map(|at| (at * 7) as u8).collect();
        let mut page = 0;
        while page + 1 < SEGMENT_PAGES {
            let data = blocks.min(SEGMENT_PAGES - page - 1);
            number += 1;
            let header = ChunkHeader {
                uuid,
                volume: 0,
                incarnation: 1,
                session: 1,
                opening: u64::from(segment) + 1,
                number,
                epoch: number,
                // Its data need not be what it says.
                durable: number,
                slot: segment * SEGMENT_PAGES + page,
                entries: (0..u64::from(data))
                    .map(|at| Entry::Data {
                        block: (number * 977 + at) % (1 << 28),
                        sectors: 0xFF,
                        checksum: 0,
                    })
                    .collect(),
            };
            let MetaPage(header) = header.encode();
            let at = page as usize * 4096;
            bytes[at..at + 4096].copy_from_slice(&header);
            page += 1 + data;
        }
        if page < SEGMENT_PAGES {
            bytes[page as usize * 4096..].fill(0);
        }
        let first = offset_of(segment * SEGMENT_PAGES);
        file.write_all_at(&bytes, first).expect("it is written");
    }
    file.sync_all().expect("it is durable");
    println!("{number} chunks in {segments} segments");
}
