//! What a guest would find on an image.

use anyhow::{Context, Result};
use e2e::process::{CLIENT_LIMIT, outcome};
use std::fmt::Write as _;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Output};

const DATABASE: &str = "t.db";
/// Places in ext4's superblock: its state, and the first inode that was removed while it was open.
const STATE_AT: u64 = 1024 + 0x3A;
const ORPHANS_AT: u64 = 1024 + 0xE8;
/// The state's bit that says that the kernel has met an error.
const HAS_ERRORS: u8 = 2;
/// What is in the database, and what is wrong with it.
const QUERY: &str = "PRAGMA integrity_check; \
    SELECT count(*), coalesce(max(id), 0), (SELECT count(*) FROM total), (SELECT n FROM total), \
    coalesce(sum(hash % 10007 IS NOT id * 7919 % 10007 \
    OR body IS NOT replace(hex(zeroblob(size)), '00', printf('%06d.', id))), 0) FROM commits;";

/// A judgement.
#[derive(Clone, Debug)]
pub(super) enum Verdict {
    /// A guest goes on from it, with so many commits.
    Legal { commits: u64 },
    /// It does not.
    Illegal { what: Wrong, why: String },
}

/// What is wrong with an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Wrong {
    FileSystem,
    Database,
    /// Commits are missing that were durable.
    Commits,
}

/// Looks at an image as a guest would after a power cut. The image is changed; `folder` is for files
/// from it.
///
/// # Errors
/// When a program can't be run. What is wrong with the image is no error, but the verdict.
pub(super) fn check(image: &Path, folder: &Path) -> Result<Verdict> {
    match file_system(image)? {
        Some(why) => Ok(Verdict::Illegal { what: Wrong::FileSystem, why }),
        None => database(image, folder),
    }
}

/// What is wrong with the file system once its journal is applied.
fn file_system(image: &Path) -> Result<Option<String>> {
    let fsck = |options: &[&str], fine: &[i32]| {
        let done = run(Command::new("e2fsck").args(options).arg(image))?;
        let is_fine = done.status.code().is_some_and(|code| fine.contains(&code));
        Ok::<_, anyhow::Error>((!is_fine).then(|| format!("e2fsck {options:?}: {}", told(&done))))
    };
    if let Some(wrong) = fsck(&["-p", "-E", "journal_only"], &[0, 1])? {
        return Ok(Some(wrong));
    }
    let mut bytes = [0; 4];
    let file = File::open(image)?;
    file.read_exact_at(&mut bytes, STATE_AT)?;
    if bytes[0] & HAS_ERRORS != 0 {
        return Ok(Some("the file system says that it has errors".into()));
    }
    file.read_exact_at(&mut bytes, ORPHANS_AT)?;
    // As a mount would: it removes them, and a check without would call them wrong.
    if bytes != [0; 4]
        && let Some(wrong) = fsck(&["-p"], &[0, 1])?
    {
        return Ok(Some(wrong));
    }
    fsck(&["-f", "-n"], &[0])
}

/// The commits in the database, if it is whole.
fn database(image: &Path, folder: &Path) -> Result<Verdict> {
    let mut commands = String::new();
    for suffix in ["", "-journal", "-wal"] {
        let file = folder.join(format!("{DATABASE}{suffix}"));
        // Left by the image before.
        let _ = std::fs::remove_file(&file);
        writeln!(commands, "dump /{DATABASE}{suffix} {}", file.display())?;
    }
    let _ = std::fs::remove_file(folder.join(format!("{DATABASE}-shm")));
    let script = folder.join("dump");
    std::fs::write(&script, commands)?;
    run(Command::new("debugfs").arg("-f").arg(&script).arg(image))?;
    let mut sqlite = Command::new("sqlite3");
    sqlite.args(["-batch", "-bail", "-init", "/dev/null"]).arg(folder.join(DATABASE)).arg(QUERY);
    let done = run(&mut sqlite)?;
    let text = String::from_utf8_lossy(&done.stdout);
    let mut lines = text.lines();
    let (integrity, row) = (lines.next(), lines.next().unwrap_or_default());
    let numbers: Vec<u64> = row.split('|').filter_map(|word| word.parse().ok()).collect();
    Ok(match numbers[..] {
        [count, last, 1, total, 0]
            if integrity == Some("ok") && count == last && count == total =>
        {
            Verdict::Legal { commits: count }
        }
        _ => Verdict::Illegal { what: Wrong::Database, why: told(&done) },
    })
}

fn run(command: &mut Command) -> Result<Output> {
    outcome(command, CLIENT_LIMIT).with_context(|| format!("{command:?}"))
}

fn told(done: &Output) -> String {
    let text = [&done.stdout[..], &done.stderr[..]].concat();
    let text = String::from_utf8_lossy(&text);
    let begin: String = text.chars().take(2000).collect();
    format!("{}; {begin}", done.status)
}
