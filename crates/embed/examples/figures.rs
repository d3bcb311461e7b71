//! Quick benchmark of the embedded library on this machine.
//!
//! `cargo run --release -p upcall-embed --example figures [DIRECTORY]`
#![allow(clippy::disallowed_methods, reason = "the measure is a time")]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use upcall_embed::{Ask, Error, Local, Options, Session, Tree, Volume};

const KEYS: u64 = 1_000_000;
const SPAN: Duration = Duration::from_secs(2);

fn main() -> Result<(), Error> {
    let directory = std::env::args_os().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let path = directory.join(format!("figures-{}.volume", std::process::id()));
    let options = Options { memory: 1 << 30, ..Options::default() };
    let local = Local::create(&path, 4 << 30, &options)?;
    let tree = local.tree("figures")?;
    fill(&local, tree)?;
    gets(&local, tree)?;
    commits(&local, tree, 1)?;
    commits(&local, tree, 100)?;
    local.close()?;
    drop(local);
    across(&path, &options, tree)?;
    std::fs::remove_file(&path).map_err(|cause| Error::File { doing: "remove", path, cause })
}

fn key(number: u64) -> [u8; 24] {
    let mut key = *b"a key's prefix..--------";
    key[16..].copy_from_slice(&number.to_be_bytes());
    key
}

fn fill(local: &Local, tree: Tree) -> Result<(), Error> {
    let (start, soon) = (Instant::now(), local.soon());
    for from in (0..KEYS).step_by(1000) {
        let entries = (from..from + 1000).map(|number| (key(number).to_vec(), vec![7; 100]));
        tree.put_all(&soon, entries)?;
    }
    local.sync()?;
    print_rate("keys loaded in order, 1000 a transaction", KEYS, start);
    Ok(())
}

fn gets(local: &Local, tree: Tree) -> Result<(), Error> {
    let mut random = Random(1);
    for round in ["first", "second"] {
        let (start, mut count) = (Instant::now(), 0);
        while start.elapsed() < SPAN {
            for _ in 0..10_000 {
                let found =
                    local.get_with(tree, &key(random.below(KEYS)), |v| v.map(<[u8]>::len))?;
                assert_eq!(found, Some(100));
            }
            count += 10_000;
        }
        print_rate(&format!("random gets of 100 bytes in memory, {round} round"), count, start);
    }
    let (start, mut count) = (Instant::now(), 0);
    while start.elapsed() < SPAN {
        for _ in 0..10_000 {
            assert!(local.get(tree, &key(random.below(KEYS)))?.is_some());
        }
        count += 10_000;
    }
    print_rate("the same, each value copied", count, start);
    Ok(())
}

fn commits(local: &Local, tree: Tree, keys: u64) -> Result<(), Error> {
    let (mut random, start, mut count) = (Random(2), Instant::now(), 0);
    while start.elapsed() < 2 * SPAN {
        let entries = (0..keys).map(|_| (key(random.below(KEYS)).to_vec(), vec![8; 100]));
        tree.put_all(local, entries)?;
        count += 1;
    }
    print_rate(&format!("durable commits of {keys} random keys"), count, start);
    if keys > 1 {
        print_rate("... so many keys", count * keys, start);
    }
    Ok(())
}

/// Measures the same work from many threads, across the queue.
fn across(path: &Path, options: &Options, tree: Tree) -> Result<(), Error> {
    let volume = Volume::open_with(path, options)?;
    let mut all = volume.scan(tree, b"", None);
    while all.advance()?.is_some() {}
    for threads in [1, 4, 64] {
        for (what, write) in [("durable commits of one key", true), ("random gets", false)] {
            let start = Instant::now();
            let count: u64 = std::thread::scope(|scope| {
                let each = |thread| {
                    let volume = volume.clone();
                    scope.spawn(move || one_client(&volume, tree, thread, write))
                };
                let all: Vec<_> = (0..threads).map(each).collect();
                all.into_iter().map(|thread| thread.join().expect("it asserts nothing")).sum()
            });
            print_rate(&format!("{what}, {threads} threads across the queue"), count, start);
        }
    }
    volume.close()
}

fn one_client(volume: &Volume, tree: Tree, thread: u64, write: bool) -> u64 {
    let (mut random, start, mut count) = (Random(thread + 3), Instant::now(), 0);
    while start.elapsed() < SPAN {
        let key = key(random.below(KEYS));
        let done = if write {
            volume.put(tree, &key, &[9; 100])
        } else {
            volume.get(tree, &key).map(drop)
        };
        done.unwrap_or_else(|error| panic!("{error}"));
        count += 1;
    }
    count
}

fn print_rate(what: &str, count: u64, start: Instant) {
    let rate = count as f64 / start.elapsed().as_secs_f64();
    println!("{rate:>12.0} /s  {what}");
}

/// SplitMix64 (Steele et al., 2014): sufficient for this purpose.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % limit
    }
}
