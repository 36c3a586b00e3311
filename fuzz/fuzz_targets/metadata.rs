#![no_main]
#![doc = "The fuzz target `metadata`."]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    cinnabar_fuzz::metadata::run(input);
});
