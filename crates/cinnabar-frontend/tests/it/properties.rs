//! Whatever comes in, and however it is cut into pieces: no panic, and the same result.

use crate::client::{info_data, meta_data, option};
use crate::life::Life;
use cinnabar_frontend::nbd::proto::Request;
use proptest::prelude::*;

/// Lengths and offsets around everything that matters.
fn position() -> impl Strategy<Value = u64> {
    prop_oneof![
        (0_u64..8).prop_map(|sector| sector * 512),
        (2040_u64..2060).prop_map(|sector| sector * 512),
        any::<u64>(),
        0_u64..10_000,
    ]
}

fn any_request() -> impl Strategy<Value = Vec<u8>> {
    let payload = any::<prop::sample::Index>();
    (0_u16..16, 0_u16..9, position(), position(), payload).prop_map(
        |(flags, command, offset, len, payload)| {
            let request = Request { flags, command, cookie: offset ^ len, offset, len: len as u32 };
            let mut bytes = request.encode().to_vec();
            if command == 1 && len < 20_000 {
                // Mostly whole, sometimes cut short.
                let len = usize::try_from(len).expect("it is small");
                let cut = if payload.index(10) == 0 { payload.index(len + 1) } else { len };
                bytes.extend((0..cut).map(|at| (at % 253) as u8));
            }
            bytes
        },
    )
}

fn any_option() -> impl Strategy<Value = Vec<u8>> {
    let name = prop_oneof![Just("a"), Just("b"), Just(""), Just("none")];
    prop_oneof![
        4 => Just(option(8, &[])),
        2 => (9_u32..11, name.clone())
            .prop_map(|(kind, name)| option(kind, &meta_data(name, &["base:allocation"]))),
        4 => (6_u32..8, name.clone())
            .prop_map(|(kind, name)| option(kind, &info_data(name, &[1, 2, 3]))),
        1 => name.prop_map(|name| option(1, name.as_bytes())),
        2 => (0_u32..13, prop::collection::vec(any::<u8>(), 0..40))
            .prop_map(|(kind, data)| option(kind, &data)),
    ]
}

/// A stream that gets through to the transmission phase more often than not.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let flags = prop_oneof![9 => 0_u32..4, 1 => any::<u32>()];
    let options = prop::collection::vec(any_option(), 0..6);
    let go = prop_oneof![9 => Just(option(7, &info_data("a", &[]))), 1 => Just(Vec::new())];
    let requests = prop::collection::vec(any_request(), 0..8);
    let junk = prop::collection::vec(any::<u8>(), 0..64);
    (flags, options, go, requests, junk).prop_map(|(flags, options, go, requests, junk)| {
        let flags = flags.to_be_bytes().to_vec();
        [flags, options.concat(), go, requests.concat(), junk].concat()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn pieces_do_not_matter(
        bytes in stream(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let whole = Life::run(&[&bytes]);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.sort_unstable();
        let mut pieces = Vec::new();
        let mut rest = bytes.as_slice();
        let mut at = 0;
        for cut in cuts {
            let (piece, tail) = rest.split_at(cut - at);
            pieces.push(piece);
            (rest, at) = (tail, cut);
        }
        pieces.push(rest);
        prop_assert_eq!(&whole, &Life::run(&pieces));
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        prop_assert_eq!(&whole, &Life::run(&single));
    }

    #[test]
    fn junk_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..4096)) {
        Life::run(&[&bytes]);
        let entered = [&3_u32.to_be_bytes()[..], &option(7, &info_data("a", &[])), &bytes].concat();
        Life::run(&[&entered]);
    }

    #[test]
    fn damaged_streams_never_panic(
        bytes in stream(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut bytes = bytes;
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        Life::run(&[&bytes]);
    }
}
