#![no_main]
#![doc = "The fuzz target `write_log`."]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    cinnabar_fuzz::write_log::run(input);
});
