//! What can't be compared: each says why, and what would help.

use super::mixture::{INTERVAL_US, mixture, options};
use cinnabar_study::analysis::{Bounds, Every};
use cinnabar_study::compare::{CompareError, Input, Model, Options, compare};
use cinnabar_trace::{Op, Record};
use std::path::PathBuf;

fn error(input: Input<'_>, options: &Options) -> CompareError {
    compare(input, options, |_| {}).expect_err("it can't be compared")
}

fn read(at: u64, volume: u32, block: u64, count: u64) -> Record {
    Record {
        ts_us: at * INTERVAL_US / 10,
        volume,
        op: Op::Read,
        offset_bytes: block * 4096,
        length_bytes: count * 4096,
    }
}

#[test]
fn each_says_why_and_what_would_help() {
    let good = mixture(1, 6000, 400);
    let bounds = [("nobody".to_owned(), Bounds::default())].into();
    let minimum = Bounds { min_blocks: 1_000_000, ..Bounds::default() };
    let minimum = [("0".to_owned(), minimum)].into();
    let many: Vec<Record> = (0..600).map(|at| read(at, (at % 70) as u32, at / 140, 1)).collect();
    let far = vec![read(0, 0, 1 << 37, 1)];
    let long = vec![read(0, 0, 0, 1 << 21)];
    let once: Vec<Record> = (0..40).map(|at| read(at, 0, at, 1)).collect();
    let papers = || Options { models: vec![Model::Papers], ..options() };
    let cases: Vec<(&[Record], Options, &str)> = vec![
        (&[], options(), "0 intervals"),
        (&good[..1000], options(), "1 intervals"),
        (&once, options(), "nothing is read again"),
        (&good, options(), "too small for 4 shares"),
        (&good, Options { parts: vec![1e-9], ..papers() }, "is no cache"),
        (&good, Options { parts: vec![1e9], ..papers() }, "the most is 134217728"),
        (&good, Options { bounds, ..papers() }, "\"nobody\""),
        (&good, Options { bounds: minimum, ..papers() }, "the minima of the volumes are 1000000"),
        (&good, Options { every: Some(Every::Never), ..papers() }, "1 intervals"),
        (&many, options(), "70 volumes: the most is 63"),
        (&far, options(), "beyond the largest volume"),
        (&long, options(), "a request of 2097152 blocks"),
    ];
    for (trace, options, wanted) in cases {
        let error = error(Input::Records(trace), &options);
        assert!(error.to_string().contains(wanted), "{error} does not say {wanted}");
        assert!(!error.hint().is_empty() && !error.to_string().contains('\n'), "{error}");
    }
    let more = [read(0, 256, 0, 1)];
    assert!(error(Input::Records(&more), &papers()).to_string().contains("the most is 256"));
}

#[test]
fn traces_are_files() {
    let missing = [PathBuf::from("/nowhere/trace.csv")];
    let error_of = |path: &[PathBuf]| error(Input::Files(path), &options());
    assert!(error_of(&missing).to_string().contains("/nowhere/trace.csv"));
    let device = [PathBuf::from("/dev/null")];
    let found = error_of(&device);
    assert!(matches!(found, CompareError::Twice(_)), "{found}");
    let folder = [std::env::temp_dir()];
    assert!(error_of(&folder).to_string().contains("directory"));
}
