//! Fuzzers: one line each in a table, one function each.
//!
//! A fuzzer's function makes one case from a seeded generator, mostly something valid with a few
//! things wrong, and panics if what it feeds does not hold its promises. The last one must fail:
//! it shows that failures are noticed.

mod images;
mod scripts;
mod sessions;
mod streams;
mod stub;
mod wires;

use base::rng::Rng;
use std::panic::catch_unwind;

/// One fuzzer.
#[derive(Clone, Copy, Debug)]
pub struct Fuzzer {
    /// What it is called.
    pub name: &'static str,
    /// What it feeds to what.
    pub about: &'static str,
    /// Makes and judges one case.
    pub case: fn(&mut Rng),
    /// Whether it must fail.
    pub must_fail: bool,
}

/// All fuzzers.
pub const FUZZERS: &[Fuzzer] = &[
    Fuzzer {
        name: "ninep_decode",
        about: "9P messages of both directions, with bytes changed, to the decoders",
        case: wires::ninep_decode,
        must_fail: false,
    },
    Fuzzer {
        name: "ninep_entries",
        about: "the data of directories, with bytes changed, to their decoders",
        case: wires::ninep_entries,
        must_fail: false,
    },
    Fuzzer {
        name: "http_head",
        about: "request heads with ranges, conditions and targets, with bytes changed",
        case: wires::http_head,
        must_fail: false,
    },
    Fuzzer {
        name: "http_chunks",
        about: "chunked bodies, torn and with bytes changed",
        case: wires::http_chunks,
        must_fail: false,
    },
    Fuzzer {
        name: "http_ranges",
        about: "ranges against files of every length",
        case: wires::http_ranges,
        must_fail: false,
    },
    Fuzzer {
        name: "ninep_session",
        about: "streams of 9P messages to a whole session, in front of a tree that says anything",
        case: sessions::ninep,
        must_fail: false,
    },
    Fuzzer {
        name: "http_session",
        about: "streams of requests to a whole session, in front of a tree that says anything",
        case: sessions::http,
        must_fail: false,
    },
    Fuzzer {
        name: "remote",
        about: "servers that are away, break off or lie, to a remote tree",
        case: crate::remote::chaos::case,
        must_fail: false,
    },
    Fuzzer {
        name: "names",
        about: "lines of names files, with bytes changed, to what understands them",
        case: scripts::script,
        must_fail: false,
    },
    Fuzzer {
        name: "volume",
        about: "volumes with bytes of their pages changed, and checksums that fit, to the store",
        case: images::volume,
        must_fail: false,
    },
    Fuzzer {
        name: "volume_head",
        about: "superblocks, maps and journals with bytes changed, to recovery and the check",
        case: images::head,
        must_fail: false,
    },
    Fuzzer {
        name: "volume_journal",
        about: "journals with bytes of their records changed, and checksums that fit, to recovery",
        case: images::journal,
        must_fail: false,
    },
    Fuzzer {
        name: "canary",
        about: "a decoder that believes a length; it must be caught",
        case: wires::canary,
        must_fail: true,
    },
];

/// What came of one fuzzer.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// Cases made.
    pub cases: u64,
    /// The seed of the case that failed.
    pub failed: Option<u64>,
}

/// Runs a fuzzer from a seed on, until `go_on` says no or a case fails.
pub fn fuzz(fuzzer: &Fuzzer, seed: u64, mut go_on: impl FnMut(u64) -> bool) -> Verdict {
    let mut cases = 0;
    while go_on(cases) {
        let seed = seed.wrapping_add(cases);
        let case = fuzzer.case;
        cases += 1;
        if catch_unwind(|| case(&mut base::rng::seeded(seed))).is_err() {
            return Verdict { cases, failed: Some(seed) };
        }
    }
    Verdict { cases, failed: None }
}
