#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| kubefold_fuzz::targets::path(data));
