//! One coverage-guided fuzzer: libFuzzer chooses the bytes that supply a case's random numbers, and
//! keeps those that reach new code.
//!
//! `cargo xtask fuzz --guided` builds this with coverage counters in every crate of the workspace,
//! and runs it with the name of a fuzzer in [`NAME`].

#![no_main]

use libfuzzer_sys::fuzz_target;
use sim::fuzz::{FUZZERS, Fuzzer};
use std::sync::LazyLock;

/// Environment variable with the name of the fuzzer, or `list`, which prints all names.
const NAME: &str = "UPCALL_FUZZER";

static FUZZER: LazyLock<&Fuzzer> = LazyLock::new(|| {
    let name = std::env::var(NAME).unwrap_or_default();
    let fuzzer = FUZZERS.iter().find(|fuzzer| fuzzer.name == name);
    fuzzer.unwrap_or_else(|| panic!("{NAME}={name}: there is no such fuzzer"))
});

fuzz_target!(
    init: {
        if std::env::var(NAME).is_ok_and(|name| name == "list") {
            FUZZERS.iter().for_each(|fuzzer| println!("{}", fuzzer.name));
            std::process::exit(0);
        }
    },
    |bytes: &[u8]| (FUZZER.case)(&mut base::rng::chosen(bytes))
);
