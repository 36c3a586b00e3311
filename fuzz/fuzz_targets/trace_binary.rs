#![no_main]
#![doc = "The fuzz target `trace_binary`."]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    cinnabar_fuzz::trace_binary::run(input);
});
