//! A `tar.gz` of a few small files that are in memory: the POSIX format, ustar.

use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write;

const RECORD: usize = 512;
/// The folder that all files are in.
const FOLDER: &str = "cinnabar-bench";

/// The archive of these files, all of this age in seconds since 1970.
pub(super) fn packed(files: &[(String, Vec<u8>)], at_s: u64) -> Vec<u8> {
    let mut tar = Vec::new();
    for (name, bytes) in files {
        tar.extend(header(&format!("{FOLDER}/{name}"), bytes.len() as u64, at_s));
        tar.extend(bytes);
        tar.resize(tar.len().next_multiple_of(RECORD), 0);
    }
    tar.resize(tar.len() + 2 * RECORD, 0);
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(&tar).and_then(|()| gzip.finish()).expect("memory takes all")
}

/// The record in front of a file.
fn header(name: &str, size: u64, at_s: u64) -> [u8; RECORD] {
    let mut record = [0; RECORD];
    let mut put =
        |at: usize, text: &str| record[at..at + text.len()].copy_from_slice(text.as_bytes());
    assert!(name.len() <= 100, "names are ours, and short");
    put(0, name);
    put(100, "0000600\0");
    put(108, "0000000\0");
    put(116, "0000000\0");
    put(124, &format!("{size:011o}\0"));
    put(136, &format!("{at_s:011o}\0"));
    // The sum is of a record that has blanks in the sum's place.
    put(148, "        ");
    put(156, "0");
    put(257, "ustar\x0000");
    let sum: u32 = record.iter().map(|byte| u32::from(*byte)).sum();
    record[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    record
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn tar_reads_it() {
        let files = [("a.txt".to_owned(), vec![b'a'; 513]), ("d/b.txt".to_owned(), b"b".to_vec())];
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("x.tar.gz");
        std::fs::write(&path, packed(&files, 1_700_000_000)).expect("it is written");
        let mut tar = Command::new("tar");
        tar.arg("-xzf").arg(&path).current_dir(folder.path()).stdin(Stdio::null());
        assert!(tar.status().expect("there is a tar").success());
        for (name, bytes) in files {
            let read = std::fs::read(folder.path().join(FOLDER).join(name)).expect("it is there");
            assert_eq!(read, bytes);
        }
    }
}
