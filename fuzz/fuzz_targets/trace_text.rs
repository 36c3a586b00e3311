#![no_main]
#![doc = "The fuzz target `trace_text`."]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    cinnabar_fuzz::trace_text::run(input);
});
