//! Every fuzz target without a fuzzer: inputs that the tree keeps, valid ones, and many made of both.
//!
//! The file that a failing test names is an input for libFuzzer, too: `cargo +nightly fuzz run TARGET FILE`.
//! `CINNABAR_FUZZ_INPUT=FILE cargo test -p cinnabar-fuzz TARGET` runs it alone. With `CINNABAR_FUZZ_CORPUS=FOLDER`
//! the valid inputs are written into a folder of each target in that one, for a fuzzer to begin with.

#[path = "../../../crates/cinnabar-frontend/tests/it/client.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod client;
mod disk;
mod made;
mod nbd;
#[path = "../../../crates/cinnabar-frontend/tests/it/sample.rs"]
mod sample;
#[path = "../../../crates/cinnabar-trace/tests/it/samples.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod samples;
mod table;
mod traces;

use cinnabar_fuzz::Run;
use made::Maker;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::panic::{catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};

/// What a target gets beside the inputs in `fuzz/seeds`.
#[derive(Default)]
struct Plan {
    /// Valid inputs.
    valid: Vec<Vec<u8>>,
    /// A folder of inputs that the tests of a crate run; others are made of them here.
    tested_elsewhere: Option<&'static str>,
    /// Inputs that are made.
    made: usize,
}

macro_rules! targets {
    ($($name:ident: $plan:expr,)*) => {
        /// The targets that have a test.
        const TESTED: &[&str] = &[$(stringify!($name)),*];
        $(
            #[test]
            fn $name() {
                replay(stringify!($name), cinnabar_fuzz::$name::run, $plan);
            }
        )*
    };
}

targets! {
    api: Plan { made: 400, ..Plan::default() },
    engine: Plan {
        tested_elsewhere: Some("crates/cinnabar-sim/tests/corpus/guided"),
        made: 100,
        ..Plan::default()
    },
    history: Plan { valid: disk::histories(), made: 2000, ..Plan::default() },
    metadata: Plan { valid: disk::pages(), made: 2000, ..Plan::default() },
    nbd_client: Plan { valid: nbd::servers(), made: 3000, ..Plan::default() },
    nbd_handshake: Plan { valid: nbd::handshakes(), made: 2000, ..Plan::default() },
    nbd_tls: Plan { valid: nbd::tls(), made: 2000, ..Plan::default() },
    nbd_transmission: Plan { valid: nbd::transmissions(), made: 2000, ..Plan::default() },
    trace_binary: Plan { valid: traces::binary(), made: 3000, ..Plan::default() },
    trace_text: Plan { valid: traces::text(), made: 5000, ..Plan::default() },
    vhost_user: Plan { made: 300, ..Plan::default() },
    write_log: Plan {
        tested_elsewhere: Some("crates/cinnabar-writeback/tests/corpus/guided"),
        made: 50,
        ..Plan::default()
    },
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package lies in the workspace")
}

/// Runs all inputs of a target.
fn replay(target: &str, run: Run, plan: Plan) {
    if let Some(file) = env::var_os("CINNABAR_FUZZ_INPUT") {
        run(&fs::read(file).expect("the input"));
        return;
    }
    if let Some(corpora) = env::var_os("CINNABAR_FUZZ_CORPUS") {
        keep(&Path::new(&corpora).join(target), &plan.valid);
        return;
    }
    let run = |input: &[u8]| found(target, run, input);
    let kept = folder(&root().join("fuzz/seeds").join(target));
    for (number, input) in plan.valid.iter().enumerate() {
        assert!(run(input), "valid input {number} is refused at once");
    }
    let good = kept.iter().filter(|input| run(input)).count() + plan.valid.len();
    let elsewhere = plan.tested_elsewhere.map(|path| folder(&root().join(path)));
    assert!(good > 0 || elsewhere.is_some(), "no input gets beyond the first check");
    run(&[]);
    let bases = [kept, plan.valid, elsewhere.unwrap_or_default()].concat();
    let mut maker = Maker::new(bases);
    let beyond = (0..plan.made).filter(|_| run(&maker.make())).count();
    println!("{target}: {beyond} of {} made inputs got beyond the first check", plan.made);
    assert!(beyond * 100 > plan.made, "{beyond} inputs of {}", plan.made);
}

/// Runs one input; if it is a finding, it is kept.
fn found(target: &str, run: Run, input: &[u8]) -> bool {
    catch_unwind(|| run(input)).unwrap_or_else(|panic| {
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{target}-finding"));
        fs::write(&file, input).expect("the folder is the build's");
        println!("CINNABAR_FUZZ_INPUT={} runs it again", file.display());
        resume_unwind(panic)
    })
}

/// The files of a folder, in order of name; none if it is not there.
fn folder(path: &Path) -> Vec<Vec<u8>> {
    names(path).iter().map(|name| fs::read(path.join(name)).expect("it is listed")).collect()
}

fn names(path: &Path) -> Vec<OsString> {
    let entries = fs::read_dir(path).into_iter().flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.expect("a file").file_name()).collect();
    names.sort();
    names
}

fn keep(folder: &PathBuf, inputs: &[Vec<u8>]) {
    fs::create_dir_all(folder).expect("a folder for the corpus");
    for (number, input) in inputs.iter().enumerate() {
        fs::write(folder.join(format!("valid-{number:03}")), input).expect("there is room");
    }
}
