//! `cargo xtask paper mux [--quick] [--record]`: a paper's evaluation made again with our server,
//! beside what the paper says of its own.
//!
//! *mux* is thesis 004, §6.1: latency per message as clients and servers grow in number, walks
//! over mount points, reads of unions. The figures go to `docs/paper/` with `--record`, else they
//! are only printed. `--quick` takes fewer points and less time, to see that it runs.

mod crowd;
mod mux;
mod plot;

use anyhow::{Result, bail};

/// What the command line asks for.
pub(crate) struct Plan {
    pub(crate) quick: bool,
    pub(crate) record: bool,
}

/// The command. The client must not be the slow part, so it runs in a release build.
pub(crate) fn main(args: &[String]) -> Result<()> {
    if cfg!(debug_assertions) {
        let words = ["run", "--quiet", "--release", "-p", "xtask", "--", "paper"];
        return crate::sh::run(crate::sh::cargo(&words).args(args));
    }
    let mut plan = Plan { quick: false, record: false };
    let mut name = None;
    for word in args {
        match word.as_str() {
            "--quick" => plan.quick = true,
            "--record" => plan.record = true,
            "mux" => name = Some("mux"),
            other => bail!("no paper or option {other}: there is mux, with --quick and --record"),
        }
    }
    match name {
        Some(_) => mux::run(&plan),
        None => bail!("which paper? there is mux"),
    }
}
