//! Real servers: nbdkit and qemu-nbd. Without them the tests pass with a word on stderr.

use super::{MIB, PATIENCE, Volume, both, connect, connect_as, place, read_op, until, write_op};
use crate::rig::{dirty, pattern};
use cinnabar_backend::port::{IoMode, Job, JobOp};
use cinnabar_engine::units::ByteSpan;
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A server's process, ended when dropped.
struct Running(Child);

impl Running {
    /// `None` if there is no such program.
    fn start(command: &mut Command) -> Option<Self> {
        match command.stdin(Stdio::null()).spawn() {
            Ok(child) => Some(Self(child)),
            Err(error) => {
                eprintln!("skipped: {command:?}: {error}");
                None
            }
        }
    }

    fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A socket is there a moment before the server listens on it.
fn listens(socket: &Path) -> bool {
    UnixStream::connect(socket).is_ok()
}

fn nbdkit(socket: &Path, arguments: &[&str]) -> Option<Running> {
    let _ = std::fs::remove_file(socket);
    let mut command = Command::new("nbdkit");
    let server = Running::start(command.args(["-f", "-U"]).arg(socket).args(arguments))?;
    until("nbdkit listens", || listens(socket));
    Some(server)
}

/// Writes and reads in many sizes, many at a time.
fn exercise(volume: &mut Volume) {
    let size = volume.disk.size_bytes();
    let align = u64::from(volume.disk.align_bytes());
    let mut expected = vec![0; size as usize];
    for (token, chunk) in (0..).zip([align, 4096, 12288, 65_536, 200 * align, MIB]) {
        let mut at = token * align;
        let mut count = 0;
        while at + chunk <= size && count < 64 {
            let bytes = pattern(chunk as usize, at + token);
            expected[at as usize..][..bytes.len()].copy_from_slice(&bytes);
            let op = write_op(at, &bytes, count % 5 == 0);
            volume.port.submit(Job { token, file: volume.file, op });
            at += chunk * 2;
            count += 1;
        }
        volume.all(count);
        volume.well(JobOp::Flush);
    }
    let (zeroed, trimmed) = (ByteSpan::new(MIB, MIB), ByteSpan::new(3 * MIB, MIB));
    if volume.run(JobOp::WriteZeroes { span: zeroed, may_punch: true }).0.is_ok() {
        expected[MIB as usize..2 * MIB as usize].fill(0);
    }
    volume.well(JobOp::Trim { span: trimmed });
    let again = pattern(MIB as usize, 77);
    volume.well(write_op(trimmed.offset, &again, false));
    expected[3 * MIB as usize..4 * MIB as usize].copy_from_slice(&again);
    let data = dirty(size);
    assert_eq!(volume.run(read_op(0, &data, size)).0, Ok(()));
    assert!(data.to_vec(0, size) == expected, "what was written is not what is read");
}

#[test]
fn nbdkit_in_many_ways() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("disk.raw");
    std::fs::File::create(&file).expect("a file").set_len(8 * MIB).expect("its size");
    let file = file.to_str().expect("plain text");
    let (socket, text) = place(&folder, "");
    for arguments in [
        &["memory", "8M"][..],
        &["--no-sr", "memory", "8M"],
        &["--filter=nozero", "memory", "8M", "zeromode=none"],
        &["--filter=fua", "memory", "8M", "fuamode=emulate"],
        &[
            "--filter=blocksize-policy",
            "memory",
            "8M",
            "blocksize-minimum=4096",
            "blocksize-preferred=4096",
            "blocksize-maximum=64k",
            "blocksize-error-policy=error",
        ],
        &["--filter=multi-conn", "memory", "8M", "multi-conn-mode=disable"],
        &["--filter=delay", "-t", "128", "memory", "8M", "rdelay=1ms", "wdelay=1ms"],
        &["file", file],
    ] {
        let Some(_server) = nbdkit(&socket, arguments) else { return };
        both(|mode| {
            eprintln!("nbdkit {arguments:?}");
            exercise(&mut Volume::open(mode, &text));
            // Zeros again for the next.
            let mut volume = Volume::open(mode, &text);
            volume.well(write_op(0, &vec![0; 8 * MIB as usize], true));
        });
    }
}

#[test]
fn nbdkit_fails_now_and_then() {
    let folder = tempfile::tempdir().expect("a folder");
    let (socket, text) = place(&folder, "");
    let arguments = [
        "--filter=error",
        "memory",
        "8M",
        "error-pread=EIO",
        "error-pread-rate=30%",
        "error-pwrite=ENOSPC",
        "error-pwrite-rate=30%",
    ];
    let Some(_server) = nbdkit(&socket, &arguments) else { return };
    let mut volume = Volume::open(IoMode::Uring, &text);
    let mut expected = vec![Some(vec![0; 4096]); 64];
    let (mut failed, mut well) = (0, 0);
    for round in 0..640_u64 {
        let block = (round % 64) as usize;
        let bytes = pattern(4096, round);
        match volume.run(write_op(block as u64 * 4096, &bytes, false)).0 {
            Ok(()) => expected[block] = Some(bytes),
            Err(errno) => {
                assert_eq!(errno, rustix::io::Errno::NOSPC);
                expected[block] = None;
                failed += 1;
            }
        }
        let data = dirty(4096);
        match volume.run(read_op(block as u64 * 4096, &data, 4096)).0 {
            Ok(()) => {
                well += 1;
                let found = data.to_vec(0, 4096);
                assert!(expected[block].as_ref().is_none_or(|one| *one == found), "round {round}");
            }
            Err(errno) => assert_eq!(errno, rustix::io::Errno::IO),
        }
    }
    assert!(failed > 100 && well > 200, "{failed} failed writes, {well} good reads");
}

#[test]
fn qemu_nbd_killed_and_started_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("disk.raw");
    std::fs::File::create(&file).expect("a file").set_len(8 * MIB).expect("its size");
    let (socket, text) = place(&folder, "");
    let text = format!("{text}:vm1");
    let start = || {
        let _ = std::fs::remove_file(&socket);
        let mut command = Command::new("qemu-nbd");
        command.args(["-t", "-e", "8", "-f", "raw", "-x", "vm1", "-k"]).arg(&socket).arg(&file);
        let server = Running::start(&mut command)?;
        until("qemu-nbd listens", || listens(&socket));
        Some(server)
    };
    let Some(mut server) = start() else { return };
    let error = connect(&text.replace(":vm1", ":vm2")).expect_err("no such export");
    assert!(error.to_string().contains("no export \"vm2\""), "{error}");
    both(|mode| exercise(&mut Volume::open(mode, &text)));
    let mut volume = Volume::open(IoMode::Uring, &text);
    let mut expected = vec![0; 8 * MIB as usize];
    for round in 0..12_u64 {
        for slot in 0..32_u64 {
            let at = (slot * 61 + round * 7) % 128 * 65_536;
            let bytes = pattern(65_536, round * 1000 + slot);
            expected[at as usize..][..bytes.len()].copy_from_slice(&bytes);
            let op = write_op(at, &bytes, false);
            volume.port.submit(Job { token: slot, file: volume.file, op });
        }
        if round % 3 == 1 {
            let _ = volume.told(Duration::ZERO);
            server.kill();
            server = start().expect("it was there before");
        }
        while volume.port.in_flight() > 0 {
            volume.told(PATIENCE);
        }
    }
    let data = dirty(8 * MIB);
    volume.run(read_op(0, &data, 8 * MIB)).0.expect("it reads");
    // A killed process loses nothing that it has given to the kernel.
    for (block, (found, wanted)) in
        data.to_vec(0, 8 * MIB).chunks(65_536).zip(expected.chunks(65_536)).enumerate()
    {
        assert!(found == wanted || wanted.iter().all(|byte| *byte == 0), "piece {block}");
    }
}

#[test]
fn tcp_over_both_families() {
    let folder = tempfile::tempdir().expect("a folder");
    for (bind, host) in [("127.0.0.1", "127.0.0.1"), ("127.0.0.1", "localhost"), ("::1", "[::1]")] {
        let Ok(free) = TcpListener::bind((bind, 0)) else {
            eprintln!("skipped: no {bind} here");
            continue;
        };
        let port = free.local_addr().expect("bound").port();
        drop(free);
        let mut command = Command::new("nbdkit");
        command.args(["-f", "-i", bind, "-p", &port.to_string(), "-P"]);
        let pid = folder.path().join(format!("{port}.pid"));
        let Some(_server) = Running::start(command.arg(&pid).args(["memory", "8M"])) else {
            return;
        };
        until("nbdkit listens", || pid.exists());
        let text = format!("nbd:tcp:{host}:{port}:whatever");
        exercise(&mut Volume::open(IoMode::Uring, &text));
        // Read-only views of a writable export are fine.
        let disk = connect_as(&text, true).expect("it connects");
        assert!(disk.is_read_only());
        let mut volume = Volume::of(IoMode::Uring, std::sync::Arc::new(disk));
        let refused = volume.run(write_op(0, &[1; 512], false)).0;
        assert_eq!(refused, Err(rustix::io::Errno::ROFS));
    }
}
