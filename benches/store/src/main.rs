//! One engine does all the work once: `bench-store ENGINE DIRECTORY normal|slow SECONDS`.
//!
//! Started by `cargo xtask bench store`, once for each engine and round, so that none finds
//! another one's memory. Every line of its output is a piece of work, a tab, and a figure: a rate
//! a second, or bytes. What `slow` does is a part of `normal`; the flushes are then slowed from
//! outside (`slow.c`).

mod engine;
mod fjall;
mod ours;
mod redb;
mod rocks;
mod sqlite;
mod work;

use anyhow::{Result, bail};
use std::path::PathBuf;
use std::time::Duration;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [name, directory, part, seconds] = args.as_slice() else {
        bail!("usage: bench-store ENGINE DIRECTORY normal|slow SECONDS");
    };
    let (directory, span) = (PathBuf::from(directory), Duration::from_secs_f64(seconds.parse()?));
    let open = match name.as_str() {
        "upcall" => ours::open,
        "fjall" => fjall::open,
        "redb" => redb::open,
        "sqlite" => sqlite::open,
        "rocksdb" => rocks::open,
        _ => bail!("no engine {name}"),
    };
    let work = work::Work { open, directory, span };
    match part.as_str() {
        "normal" => work.normal(),
        "slow" => work.slow(),
        _ => bail!("no part {part}"),
    }
}
