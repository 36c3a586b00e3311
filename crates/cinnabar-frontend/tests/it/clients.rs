//! Clients of others, as they are installed. A missing one is said to be skipped.

use crate::running::{Running, memory};
use crate::sample::{SIZE, export};
use cinnabar_frontend::nbd::{Export, Limits};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

const MIB: u64 = 1 << 20;

/// Runs a tool; its output, or `None` if it is not installed. Panics if it fails.
fn tool(name: &str, args: &[&str]) -> Option<String> {
    let (code, text) = run(name, args)?;
    assert_eq!(code, Some(0), "{name} {args:?}: {text}");
    Some(text)
}

fn run(name: &str, args: &[&str]) -> Option<(Option<i32>, String)> {
    let spawned = Command::new(name)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(child) = spawned else {
        println!("skipped: {name} not installed");
        return None;
    };
    let id = child.id();
    let (done, output) = channel();
    std::thread::spawn(move || done.send(child.wait_with_output()));
    let Ok(output) = output.recv_timeout(Duration::from_mins(2)) else {
        let pid = i32::try_from(id).ok().and_then(rustix::process::Pid::from_raw);
        let _ =
            rustix::process::kill_process(pid.expect("a process"), rustix::process::Signal::KILL);
        panic!("{name} {args:?} hangs");
    };
    let output = output.expect("the tool's output");
    let text = [output.stdout, output.stderr].concat();
    Some((output.status.code(), String::from_utf8_lossy(&text).into_owned()))
}

fn uri(server: &Running, name: &str) -> String {
    format!("nbd+unix:///{name}?socket={}", server.socket.display())
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary paths are plain")
}

/// Data with a hole, at `path`.
fn sample(path: &Path, bytes: usize) {
    let mut data: Vec<u8> = (0..bytes).map(|at| (at / 7 % 255) as u8 + 1).collect();
    data[bytes / 4..bytes / 2].fill(0);
    std::fs::write(path, data).expect("room in the temporary directory");
}

#[test]
fn nbdinfo_sees_what_is_offered() {
    let golden =
        Export { read_only: true, description: "golden image".into(), ..export(2, "golden") };
    let server = Running::start(Limits::default(), vec![export(1, "vm1"), golden], memory);
    let Some(said) = tool("nbdinfo", &["--json", &uri(&server, "vm1")]) else { return };
    for expected in [
        "\"protocol\": \"newstyle-fixed\"",
        "\"structured\": true",
        &format!("\"export-size\": {SIZE}"),
        "\"base:allocation\"",
        "\"is_read_only\": false",
        "\"can_cache\": true",
        "\"can_df\": true",
        "\"can_fast_zero\": false",
        "\"can_flush\": true",
        "\"can_fua\": true",
        "\"can_multi_conn\": true",
        "\"can_trim\": true",
        "\"can_zero\": true",
        "\"block_size_minimum\": 512",
        "\"block_size_preferred\": 4096",
        "\"block_size_maximum\": 33554432",
    ] {
        assert!(said.contains(expected), "{expected} is not in {said}");
    }
    let said = tool("nbdinfo", &["--list", &uri(&server, "")]).expect("it is installed");
    for expected in ["export=\"vm1\"", "export=\"golden\"", "golden image"] {
        assert!(said.contains(expected), "{expected} is not in {said}");
    }
    let said = tool("nbdinfo", &["--map", &uri(&server, "vm1")]).expect("it is installed");
    assert!(said.contains("hole,zero") && said.contains(&SIZE.to_string()), "{said}");
}

#[test]
fn nbdcopy_copies_in_and_out() {
    let disk = Export { size_bytes: 16 * MIB, ..export(1, "vm1") };
    let server = Running::start(Limits::default(), vec![disk], memory);
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (source, copy) = (directory.path().join("in"), directory.path().join("out"));
    sample(&source, 16 << 20);
    let uri = uri(&server, "vm1");
    if tool("nbdcopy", &["--connections=4", text(&source), &uri]).is_none() {
        return;
    }
    tool("nbdcopy", &["--connections=4", &uri, text(&copy)]);
    let read = |path| std::fs::read(path).expect("it was written");
    assert!(read(&source) == read(&copy), "the copy differs");
}

#[test]
fn qemu_img_converts_and_compares() {
    let disk = Export { size_bytes: 16 * MIB, ..export(1, "vm1") };
    let server = Running::start(Limits::default(), vec![disk], memory);
    let directory = tempfile::tempdir().expect("a temporary directory");
    let source = directory.path().join("in");
    sample(&source, 16 << 20);
    let uri = uri(&server, "vm1");
    let convert = ["convert", "-n", "-f", "raw", "-O", "raw", text(&source), &uri];
    if tool("qemu-img", &convert).is_none() {
        return;
    }
    tool("qemu-img", &["compare", "-f", "raw", "-F", "raw", text(&source), &uri]);
    let said = tool("qemu-img", &["info", &uri]).expect("it is installed");
    assert!(said.contains("virtual size: 16 MiB"), "{said}");
    tool("qemu-io", &["-f", "raw", "-c", "write -P 3 512 512", &uri]);
    let compare = ["compare", "-f", "raw", "-F", "raw", text(&source), &uri];
    let (code, said) = run("qemu-img", &compare).expect("it is installed");
    assert_eq!(code, Some(1), "a difference must be seen: {said}");
}

#[test]
fn qemu_io_writes_trims_and_zeroes() {
    let golden = Export { read_only: true, ..export(2, "golden") };
    let server = Running::start(Limits::default(), vec![export(1, "vm1"), golden], memory);
    let mut args = vec!["-f", "raw", "-t", "none"];
    for command in [
        "write -P 1 0 64k",
        "write -f -P 2 1k 512",
        "read -P 1 0 1k",
        "read -P 2 1k 512",
        "read -P 1 1536 62k",
        "write -z 4k 4k",
        "write -z -u 8k 512",
        "read -P 0 4k 4608",
        "discard 16k 16k",
        "flush",
        "aio_write -P 5 32k 4k",
        "aio_write -P 6 36k 4k",
        "aio_flush",
        "read -P 5 32k 4k",
        "read -P 6 36k 4k",
        "write -P 9 1M 512",
        "read -P 9 1M 512",
    ] {
        args.extend(["-c", command]);
    }
    let uri_vm1 = uri(&server, "vm1");
    args.push(&uri_vm1);
    let Some(said) = tool("qemu-io", &args) else { return };
    assert!(!said.contains("failed"), "{said}");
    let golden = uri(&server, "golden");
    let (code, said) =
        run("qemu-io", &["-f", "raw", "-c", "write 0 512", &golden]).expect("it is installed");
    assert_ne!(code, Some(0), "a read-only export was opened for writing: {said}");
    tool("qemu-io", &["-r", "-f", "raw", "-c", "read -P 0 0 1M", &golden]);
}

#[test]
fn fio_finds_what_it_wrote() {
    let disk = Export { size_bytes: 32 * MIB, ..export(1, "vm1") };
    let server = Running::start(Limits::default(), vec![disk], memory);
    for sizes in ["--bsrange=4k-4k", "--bsrange=512-256k"] {
        let uri = format!("--uri={}", uri(&server, "vm1"));
        let said = tool(
            "fio",
            &[
                "--name=verify",
                "--ioengine=nbd",
                &uri,
                "--rw=randrw",
                sizes,
                "--size=8M",
                "--iodepth=32",
                "--verify=crc32c",
                "--verify_fatal=1",
                "--thread",
                "--numjobs=3",
                "--offset_increment=8M",
                "--allow_file_create=0",
                // It would leave files in the folder of the sources.
                "--verify_state_save=0",
            ],
        );
        let Some(said) = said else { return };
        assert!(said.contains("err= 0"), "{said}");
    }
}
