//! A panic ends the process, whatever becomes of what is to be said of it.

use super::logging;
use std::panic::{set_hook, take_hook};
use std::process::abort;
use std::time::Duration;

/// Time for the log and for the panic's own lines.
const TELL_WAIT_MAX: Duration = Duration::from_secs(2);
/// The log's part of it.
const LOG_WAIT_MAX: Duration = Duration::from_secs(1);

/// A panic of any thread ends the process, in each profile as in a release: what it left half done is nobody's to use.
///
/// Who reads stderr may not read it, and the thread that panicked may hold what the log needs: so another
/// thread sees to the end, and where there is none to be had nothing is said.
pub(super) fn abort_on_panic() {
    let tell = take_hook();
    set_hook(Box::new(move |info| {
        let end = std::thread::Builder::new().name("end".into()).spawn(|| {
            std::thread::sleep(TELL_WAIT_MAX);
            abort();
        });
        if end.is_ok() {
            logging::flush(LOG_WAIT_MAX);
            tell(info);
        }
        abort();
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, ExitStatus, Stdio};
    use std::time::Instant;

    /// Set for the process that is to panic.
    const VARIABLE: &str = "CINNABAR_TEST_PANICS";
    const SIGABRT: i32 = 6;

    /// Not a test by itself: what the tests below start.
    #[test]
    fn it_panics() {
        if std::env::var_os(VARIABLE).is_some() {
            abort_on_panic();
            panic!("as it was asked to");
        }
    }

    /// This test's program, to run that.
    fn panicking() -> Command {
        let mut command = Command::new(std::env::current_exe().expect("it is a file"));
        command.args(["--exact", "cli::panics::tests::it_panics", "--nocapture"]);
        command.env(VARIABLE, "1").stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    fn end_of(command: &mut Command) -> ExitStatus {
        let mut child = command.spawn().expect("it starts");
        let begun = Instant::now();
        loop {
            if let Some(status) = child.try_wait().expect("it is our child") {
                return status;
            }
            if begun.elapsed() > Duration::from_secs(20) {
                child.kill().expect("it is our child");
                child.wait().expect("it is our child");
                panic!("it does not end");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn a_panic_is_told() {
        let (mut reader, writer) = std::io::pipe().expect("a pipe");
        let mut command = panicking();
        let status = end_of(command.stderr(writer));
        drop(command);
        assert_eq!(status.signal(), Some(SIGABRT));
        let mut text = String::new();
        reader.read_to_string(&mut text).expect("text");
        assert!(text.contains("as it was asked to"), "{text}");
    }

    #[test]
    fn nobody_reads_of_a_panic() {
        let (reader, mut writer) = std::io::pipe().expect("a pipe");
        // More than there is room for.
        rustix::io::ioctl_fionbio(&writer, true).expect("it is a pipe");
        while writer.write(&[b'.'; 1024]).is_ok() {}
        while writer.write(b".").is_ok() {}
        rustix::io::ioctl_fionbio(&writer, false).expect("it is a pipe");
        let status = end_of(panicking().stderr(writer));
        assert_eq!(status.signal(), Some(SIGABRT));
        drop(reader);
    }

    #[test]
    fn a_panic_that_cannot_be_told_ends_the_process_too() {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        assert_eq!(end_of(panicking().stderr(writer)).signal(), Some(SIGABRT));
        let full = std::fs::File::options().write(true).open("/dev/full").expect("it is there");
        assert_eq!(end_of(panicking().stderr(full)).signal(), Some(SIGABRT));
    }
}
