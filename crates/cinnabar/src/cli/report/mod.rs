//! `cinnabar report`: what those who help need to know, in one file, without guests' data and secrets.

mod archive;
mod bundle;
mod clean;
mod collect;
mod host;
mod secrets;

use super::client::Daemon;
use bundle::{Bundle, Content, Missing};
use cinnabar_text::cli::output;
use cinnabar_text::cli::report_file;
use cinnabar_text::{Failure, Table, show_size};
use serde_json::Value;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Where the package has it.
const CONFIG: &str = "/etc/cinnabar/cinnabar.toml";

/// What to put in.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The file has mode 0600. In it: versions, the configuration, status, history, \
    plans, events and metrics of the daemon, what the host is (kernel, CPU, memory, block devices, \
    mounts, limits), and the last lines of the unit's journal. Never in it: data of guests, contents of \
    token files and keyrings; passwords and keys in texts are replaced by REDACTED. README.txt in it lists \
    what is there, what is missing and why. Look through it before you send it.\n\nExamples:\n  \
    cinnabar report --socket /run/cinnabar/control.sock\n  \
    cinnabar report --output report.tar.gz\n  \
    cinnabar report --config c.toml --device /dev/disk/by-id/nvme-old"
)]
pub(super) struct Args {
    /// The file to write [default: cinnabar-report-SECONDS.tar.gz, in this folder]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The daemon's configuration [default: /etc/cinnabar/cinnabar.toml, if it is there]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// With the superblock of this cache device, which no daemon uses [default: none]
    #[arg(long, value_name = "PATH")]
    device: Option<PathBuf>,
    /// Print a JSON object that says what is in the file [default: a table]
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    daemon: Daemon,
}

/// Runs it.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let path =
        args.output.clone().unwrap_or_else(|| format!("cinnabar-report-{now}.tar.gz").into());
    report_file::check("--output", &path)?;
    let (config, is_asked) = match &args.config {
        Some(path) => (path.clone(), true),
        None => (PathBuf::from(CONFIG), false),
    };
    if is_asked && !config.is_file() {
        let hint = "name the file that cinnabar serve was started with";
        return Err(report_file::wrong("--config", &config, "there is no such file", hint));
    }
    let mut bundle = Bundle::default();
    collect::all(&mut bundle, &args.daemon, &config, args.device.as_deref());
    let (files, missing) = cleaned(bundle);
    write(&path, &archive::packed(&files, now), args.output.is_some())?;
    tell(args, &path, &files, &missing)
}

/// The files as they are packed, README first.
fn cleaned(bundle: Bundle) -> (Vec<(String, Vec<u8>)>, Vec<Missing>) {
    let missing = bundle
        .missing
        .into_iter()
        .map(|one| Missing { name: one.name, reason: clean::text(&one.reason) });
    let missing: Vec<Missing> = missing.collect();
    let mut files = vec![(String::new(), Vec::new())];
    for (name, content) in bundle.files {
        let text = match content {
            Content::Json(mut value) => {
                clean::json(&mut value);
                // Of a value all of whose keys are strings.
                serde_json::to_string_pretty(&value).unwrap_or_default() + "\n"
            }
            Content::Text(text) => clean::text(&text),
        };
        files.push((name, text.into_bytes()));
    }
    files[0] = ("README.txt".to_owned(), readme(&files[1..], &missing).into_bytes());
    (files, missing)
}

fn readme(files: &[(String, Vec<u8>)], missing: &[Missing]) -> String {
    let mut text = String::from(
        "A report of Cinnabar, a cache of virtual machines' disks, for those who help.\n\n\
         It holds no data of guests and no contents of token files or keyrings. Passwords and keys in \
         texts were replaced by REDACTED. Names of volumes, hosts and files are as they are.\n\nIn it:\n",
    );
    // Writing to a string does not fail.
    for (name, bytes) in files {
        let _ok = writeln!(text, "  {name} ({} bytes)", bytes.len());
    }
    if !missing.is_empty() {
        text += "\nMissing:\n";
    }
    for Missing { name, reason } in missing {
        let _ok = writeln!(text, "  {name}: {reason}");
    }
    text
}

/// Writes the file, which only its owner may read. One that was named may be there and is replaced.
fn write(path: &Path, bytes: &[u8], may_replace: bool) -> Result<(), Failure> {
    let cannot = |error: std::io::Error| {
        let message = format!("{} can't be written: {error}", path.display());
        Failure::at_run_time(message, "name another file with --output")
    };
    if may_replace && path.is_file() {
        // Neither its mode nor those that have it open may be those of the old file.
        std::fs::remove_file(path).map_err(cannot)?;
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let mut file = options.open(path).map_err(cannot)?;
    file.write_all(bytes).map_err(cannot)
}

fn tell(
    args: &Args,
    path: &Path,
    files: &[(String, Vec<u8>)],
    missing: &[Missing],
) -> Result<(), Failure> {
    if args.json {
        let files: Vec<Value> = files
            .iter()
            .map(|(name, bytes)| serde_json::json!({ "name": name, "bytes": bytes.len() }))
            .collect();
        let object = serde_json::json!({
            "file": path.display().to_string(),
            "files": files,
            "missing": missing,
        });
        return output::json(&object);
    }
    let mut table = Table::new(1, &["IN IT", "SIZE"]);
    for (name, bytes) in files {
        table.push(vec![name.clone(), show_size(bytes.len() as u64)]);
    }
    let mut text = output::table(&table);
    for Missing { name, reason } in missing {
        let _ok = writeln!(text, "missing: {name}: {reason}");
    }
    output::text(&format!("{text}{}: look through it before you send it\n", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_file_is_its_owners_alone_and_says_what_is_in_it() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("r.tar.gz");
        let mut bundle = Bundle::default();
        bundle.add("a.txt", Ok(Content::Text("password = \"hush\"\n".into())));
        bundle.add("b.json", Ok(Content::Json(serde_json::json!({ "name": "vm1" }))));
        bundle.add("c.txt", Err("no daemon".into()));
        let (files, missing) = cleaned(bundle);
        let readme = String::from_utf8(files[0].1.clone()).expect("text");
        for part in ["a.txt (", "b.json (", "  c.txt: no daemon\n", "no data of guests"] {
            assert!(readme.contains(part), "{part:?} is missing: {readme}");
        }
        assert_eq!(missing.len(), 1);
        assert!(!files.iter().any(|(_, bytes)| bytes.windows(4).any(|part| part == b"hush")));
        std::fs::write(&path, "old").expect("a file that is there");
        assert_eq!(write(&path, b"new", false).expect_err("it is kept").code, 1);
        write(&path, b"new", true).expect("it was named");
        let mode = path.metadata().expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
