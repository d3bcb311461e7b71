//! Measurements: benchmarks against peers, and the evaluations of the papers. `cargo xtask bench`
//! and `cargo xtask paper` build and start this program.

mod bench;
mod instrument;
mod link;
mod paper;
mod peer_mount;

use anyhow::anyhow;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (word, rest) =
        args.split_first().map_or(("", &[][..]), |(word, rest)| (word.as_str(), rest));
    rig::report::exit(match word {
        "bench" => bench::main(rest).map(|()| true),
        "paper" => paper::main(rest).map(|()| true),
        _ => Err(anyhow!("use `cargo xtask bench` or `cargo xtask paper`")),
    })
}
