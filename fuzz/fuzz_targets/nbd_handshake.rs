//! A connection from its first byte: no panic, no lost buffer, and the same however it is cut.

#![no_main]

#[path = "../../crates/cinnabar-frontend/tests/it/life.rs"]
mod life;
#[path = "../../crates/cinnabar-frontend/tests/it/memory.rs"]
mod memory;
#[path = "../../crates/cinnabar-frontend/tests/it/sample.rs"]
mod sample;

libfuzzer_sys::fuzz_target!(|input: (u16, &[u8])| {
    let (cut, bytes) = input;
    let (head, tail) = bytes.split_at(usize::from(cut).min(bytes.len()));
    assert_eq!(life::Life::run(&[bytes]), life::Life::run(&[head, tail]));
});
