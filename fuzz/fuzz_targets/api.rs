#![no_main]
#![doc = "The fuzz target `api`."]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    cinnabar_fuzz::api::run(input);
});
