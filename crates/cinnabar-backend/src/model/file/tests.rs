//! Presets in files: what is read, and what is wrong with them.

use super::*;
use proptest::prelude::*;
use std::fs;

const GOOD: &str = "version = 1\n[sim]\nread = \"lognormal/88us/0.3\"\ndepth = 32\n\
                    bandwidth = \"500MB\"\ninterference = 0.5\nseed = 7\n";

#[test]
fn keys_are_those_behind_sim() {
    let spec = parse(GOOD).expect("well-formed");
    let same = "lognormal/88us/0.3,depth=32,bandwidth=500MB,interference=0.5,seed=7";
    let same = format!("network,packet=0,link=0,read={same}");
    let same = SimSpec::parse(&same, None).expect("well-formed");
    assert_eq!(SimSpec { preset: String::new(), ..same }, spec);
    // What is not there costs nothing.
    assert_eq!(parse("version = 1\n[sim]\n"), Ok(preset::nothing()));
    let both = parse("version = 1\n[sim]\nread_errors = 0\nerrors = 0.5\n").expect("well-formed");
    assert!((both.read_errors, both.write_errors) == (0.0, 0.5));
}

#[test]
fn errors_say_what_is_wrong() {
    for (text, part) in [
        ("", "its version is not given, but only 1 is known"),
        ("version = 2\nfuture = 1\n", "its version is 2, but only 1 is known"),
        ("version = \"1\"\n[sim]\n", "its version is \"1\""),
        ("version = 1\n", "the table [sim] is missing"),
        ("version = 1\nsim = 5\n", "the table [sim] is missing"),
        ("version = 1\nread = \"1us\"\n[sim]\n", "\"read\" has no place in it"),
        ("version = 1\n\n[sim\n", "line 3: "),
        ("version = 1\n[sim]\nread = \"1us\"\nread = \"2us\"\n", "line 4: "),
        ("version = 1\n[sim]\nsped = 1\n", "unknown key \"sped\" (known: seed, read,"),
        ("version = 1\n[sim]\nread = 12\n", "read=\"12\": expected a time"),
        ("version = 1\n[sim]\ndepth = -1\n", "expected a whole number"),
        ("version = 1\n[sim]\ndepth = [1]\n", "the value of \"depth\" is neither"),
        ("version = 1\n[sim]\nread_errors = nan\n", "expected a number from 0 to 1"),
        ("version = 1\n[sim]\nread = \"percentiles/50=1us\"\n", "expected a time"),
    ] {
        let error = parse(text).expect_err(text).to_string();
        assert!(error.contains(part), "{text}: {error}");
        assert!(!error.contains('\n'), "one line: {error}");
    }
}

#[test]
fn files_that_are_none_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let base = folder.path();
    let write = |name: &str, bytes: &[u8]| fs::write(base.join(name), bytes).expect("a file");
    write("good", GOOD.as_bytes());
    write("binary", b"version = 1\n\xff");
    write("large", &vec![b'#'; FILE_BYTES_MAX as usize + 1]);
    let full = [GOOD.as_bytes(), &vec![b'#'; FILE_BYTES_MAX as usize - GOOD.len()]].concat();
    write("full", &full);
    rustix::fs::mkfifoat(rustix::fs::CWD, base.join("pipe"), Mode::RUSR).expect("a pipe");
    let read = |text: &str| SimSpec::parse(text, Some(base));
    for text in ["@good", "@full", "@good,seed=9"] {
        assert_eq!(read(text).expect(text).depth, 32);
    }
    assert_eq!(read("@good,seed=9").expect("well-formed").preset, "@good");
    for (text, part) in [
        ("@", "the path is missing after \"@\""),
        ("@none", "none\": No such file"),
        ("@none", "ends at the first comma or colon"),
        ("@good,too", "\"too\" is not of the form key=value"),
        ("@binary", "line 2: it is not UTF-8"),
        ("@large", "more than 65536 bytes"),
        ("@pipe", "not a regular file"),
        ("@.", "not a regular file"),
        ("@/dev/zero", "not a regular file"),
    ] {
        let error = read(text).expect_err(text).to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
    let error = SimSpec::parse("@good", None).expect_err("relative to what?").to_string();
    assert!(error.contains("write the whole path"), "{error}");
}

proptest! {
    /// Whatever a file holds, it is read or refused.
    #[test]
    fn nothing_panics(text in "\\PC*", at in 0..GOOD.len(), byte in any::<char>(), cut in 0..40_usize) {
        let _any = parse(&text);
        let mut changed = GOOD.to_owned();
        let end = (at + cut).min(changed.len());
        changed.replace_range(at..end, &byte.to_string());
        let _any = parse(&changed);
    }
}
