//! Fuzzers: one table entry and one function each.
//!
//! A fuzzer's function builds one case from a generator, mostly a valid input with a few errors,
//! and panics if the tested code breaks its contract. The last ones must fail: they prove that
//! failures are detected. The generator draws from a seed, or from bytes chosen by libFuzzer
//! (`bin/guided.rs`).

mod images;
mod nfs;
mod operations;
mod peer_messages;
mod scripts;
mod sessions;
mod streams;
mod stub;
mod wires;
mod xlsx;

use base::rng::Rng;
use std::panic::catch_unwind;

/// One fuzzer.
#[derive(Clone, Copy, Debug)]
pub struct Fuzzer {
    /// Its name.
    pub name: &'static str,
    /// Its input and the tested code.
    pub about: &'static str,
    /// Builds and checks one case.
    pub case: fn(&mut Rng),
    /// Whether it must fail.
    pub fails: Fails,
}

/// Expected failure of a fuzzer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fails {
    /// Must not fail.
    Never,
    /// Must fail if guided (`guided.rs`): seeds find the error once in 2^40 cases.
    Guided,
    /// Must fail.
    Always,
}

/// All fuzzers.
pub const FUZZERS: &[Fuzzer] = &[
    Fuzzer {
        name: "ninep_decode",
        about: "9P messages of both directions, with bytes changed, to the decoders",
        case: wires::ninep_decode,
        fails: Fails::Never,
    },
    Fuzzer {
        name: "ninep_entries",
        about: "the data of directories, with bytes changed, to their decoders",
        case: wires::ninep_entries,
        fails: Fails::Never,
    },
    Fuzzer {
        name: "subtree_records",
        about: "streams of records of a subtree, with bytes changed, to their decoder",
        case: wires::subtree_records,
        fails: Fails::Never,
    },
    Fuzzer {
        name: "http_head",
        about: "request heads with ranges, conditions and targets, with bytes changed",
        case: wires::http_head,
        fails: Fails::Never,
    },
    Fuzzer {
        name: "http_chunks",
        about: "chunked bodies, torn and with bytes changed",
        case: wires::http_chunks,
        fails: Fails::Never,
    },
    Fuzzer {
        name: "dav_bodies",
        about: "WebDAV bodies with bytes changed, parsed, and their properties stored and read",
        case: wires::dav_bodies,
        fails: Fails::Never,
    },
    Fuzzer {
        name: "http_ranges",
        about: "ranges against files of every length",
        case: wires::http_ranges,
        fails: Fails::Never,
    },
    Fuzzer {
        name: "ninep_session",
        about: "streams of 9P messages to a whole session, in front of a tree that says anything",
        case: sessions::ninep,
        fails: Fails::Never,
    },
    Fuzzer {
        name: "nfs_decode",
        about: "NFS calls and results, with bytes changed, to the decoders",
        case: nfs::decode,
        fails: Fails::Never,
    },
    Fuzzer {
        name: "nfs_session",
        about: "streams of NFS calls to a whole session, in front of a tree that says anything",
        case: sessions::nfs,
        fails: Fails::Never,
    },
    Fuzzer {
        name: "http_session",
        about: "streams of requests to a whole session, in front of a tree that says anything",
        case: sessions::http,
        fails: Fails::Never,
    },
    Fuzzer {
        name: "remote",
        about: "servers that are away, break off or lie, to a remote tree",
        case: crate::remote::chaos::case,
        fails: Fails::Never,
    },
    Fuzzer {
        name: "names",
        about: "lines of names files, with bytes changed, to what understands them",
        case: scripts::script,
        fails: Fails::Never,
    },
    Fuzzer {
        name: "run_order",
        about: "orders of storelets, with bytes changed, to what understands them",
        case: scripts::run_order,
        fails: Fails::Never,
    },
    Fuzzer {
        name: "operations",
        about: "operations in words and JSON, with bytes changed, to data of all types",
        case: operations::operations,
        fails: Fails::Never,
    },
    Fuzzer {
        name: "formulas",
        about: "formulas that refer to each other, with bytes changed, to a sheet",
        case: operations::formulas,
        fails: Fails::Never,
    },
    Fuzzer {
        name: "xlsx",
        about: "XLSX files with bytes of their parts changed, to the import of sheets",
        case: xlsx::xlsx,
        fails: Fails::Never,
    },
    Fuzzer {
        name: "gossip",
        about: "messages of a replica, with bytes changed, to another one",
        case: peer_messages::gossip,
        fails: Fails::Never,
    },
    Fuzzer {
        name: "seals",
        about: "authenticated messages of replicas, torn and with bytes changed, to their reader",
        case: peer_messages::seals,
        fails: Fails::Never,
    },
    Fuzzer {
        name: "volume",
        about: "volumes with bytes of their pages changed, and checksums that fit, to the store",
        case: images::volume,
        fails: Fails::Never,
    },
    Fuzzer {
        name: "volume_head",
        about: "superblocks, maps and journals with bytes changed, to recovery and the check",
        case: images::head,
        fails: Fails::Never,
    },
    Fuzzer {
        name: "volume_journal",
        about: "journals with bytes of their records changed, and checksums that fit, to recovery",
        case: images::journal,
        fails: Fails::Never,
    },
    Fuzzer {
        name: "canary",
        about: "a decoder that believes a length; it must be caught",
        case: wires::canary,
        fails: Fails::Always,
    },
    Fuzzer {
        name: "guided_canary",
        about: "a decoder that fails behind five bytes; coverage must lead to it",
        case: wires::guided_canary,
        fails: Fails::Guided,
    },
];

/// Result of one fuzzer.
#[derive(Clone, Debug)]
pub struct ProofReply {
    /// Number of cases.
    pub cases: u64,
    /// Seed of the failed case.
    pub failed: Option<u64>,
}

/// Runs a fuzzer from a seed on, until `go_on` returns false or a case fails.
pub fn fuzz(fuzzer: &Fuzzer, seed: u64, mut go_on: impl FnMut(u64) -> bool) -> ProofReply {
    let mut cases = 0;
    while go_on(cases) {
        let seed = seed.wrapping_add(cases);
        let case = fuzzer.case;
        cases += 1;
        if catch_unwind(|| case(&mut base::rng::seeded(seed))).is_err() {
            return ProofReply { cases, failed: Some(seed) };
        }
    }
    ProofReply { cases, failed: None }
}
