#![no_main]
#![doc = "The fuzz target `history`."]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    cinnabar_fuzz::history::run(input);
});
