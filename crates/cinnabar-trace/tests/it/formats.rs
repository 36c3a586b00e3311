//! Every format reads as its sample says.

use crate::samples::{all, trace};
use cinnabar_trace::{Format, Record};

#[test]
fn every_format_reads_as_it_should() {
    let mut seen: Vec<Format> = Vec::new();
    for sample in all() {
        let mut trace = trace(&sample.bytes).expect("a known format");
        assert_eq!(trace.format(), sample.format);
        let records: Vec<Record> =
            trace.by_ref().collect::<Result<_, _>>().expect("valid throughout");
        assert_eq!(records, sample.records, "{}", sample.format);
        assert_eq!(trace.volumes(), sample.volumes, "{}", sample.format);
        seen.push(sample.format);
    }
    for format in Format::ALL {
        assert!(seen.contains(&format), "no sample of {format}");
        assert_eq!(Format::named(format.name()), Some(format));
    }
    assert_eq!(Format::named("none"), None);
}

#[test]
fn volumes_go_by_name_or_number() {
    let mut named = trace(b"7,R,1024,512,100\n").expect("Alibaba");
    assert!(named.next().is_some_and(|record| record.is_ok()));
    assert_eq!((&*named.volume_name(0), &*named.volume_name(1)), ("7", "1"));
    let numbered = trace(b"9,3,R,1,2\n").expect("canonical");
    assert_eq!(numbered.volume_name(3), "3");
}
