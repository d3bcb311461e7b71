//! The pieces of work, and what they need: keys, values, randomness, time.
#![allow(clippy::disallowed_methods, reason = "the measure is a time")]

use crate::engine::{Entry, Open, Session, Users};
use anyhow::{Context, Result, ensure};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const KEYS: u64 = 1_000_000;
const VALUE: usize = 100;

/// Keys of a transaction where only their number matters.
const BATCH: u64 = 1000;

/// How often all keys are overwritten, at random.
const CHURN: u64 = 2;

/// How many cold reads: few enough that most of them find nothing in memory.
const COLD: u64 = 10_000;

/// How many threads commit at once.
const THREADS: u64 = 64;

/// One engine in one directory.
pub(crate) struct Work {
    pub(crate) open: Open,
    pub(crate) directory: PathBuf,
    /// How long each piece of work goes on.
    pub(crate) span: Duration,
}

impl Work {
    /// Everything, with the disk as it is.
    pub(crate) fn normal(&self) -> Result<()> {
        let engine = (self.open)(&self.directory, Users::One)?;
        {
            let session = engine.session()?;
            self.load(&*session)?;
            say("space after load", self.space(&*session)?);
            self.gets(&*session)?;
            self.scan(&*session)?;
            self.commits(&*session, 1)?;
            self.commits(&*session, 100)?;
            churn(&*session)?;
            say("space after churn", self.space(&*session)?);
        }
        engine.close()?;
        self.cold()?;
        self.together()
    }

    /// Runs the work that waits for flushes.
    pub(crate) fn slow(&self) -> Result<()> {
        let engine = (self.open)(&self.directory, Users::One)?;
        {
            let session = engine.session()?;
            self.load(&*session)?;
            self.commits(&*session, 1)?;
            self.commits(&*session, 100)?;
        }
        engine.close()?;
        self.together()
    }

    fn load(&self, session: &dyn Session) -> Result<()> {
        let start = Instant::now();
        for from in (0..KEYS).step_by(BATCH as usize) {
            session.put((from..from + BATCH).map(|number| entry(number, 0)).collect(), false)?;
        }
        session.sync()?;
        rate("keys loaded in order", KEYS, start);
        Ok(())
    }

    fn gets(&self, session: &dyn Session) -> Result<()> {
        let mut random = Random(1);
        // Once through everything, so that it is in memory.
        session.scan(&mut |_, _| ())?;
        let (mut start, mut count, mut bytes) = (Instant::now(), 0, 0);
        let mut warm = false;
        while start.elapsed() < self.span {
            let mut keys = (0..BATCH).map(|_| key(random.below(KEYS)));
            session.get(&mut keys, &mut |value| bytes += value.len() as u64)?;
            count += BATCH;
            if !warm && count == 100 * BATCH {
                (start, count, bytes, warm) = (Instant::now(), 0, 0, true);
            }
        }
        ensure!(bytes == count * VALUE as u64, "{count} values of {bytes} bytes");
        rate("random reads, in memory", count, start);
        Ok(())
    }

    fn scan(&self, session: &dyn Session) -> Result<()> {
        let (start, mut count, mut rounds) = (Instant::now(), 0, 0);
        while start.elapsed() < self.span {
            let mut bytes = 0;
            session.scan(&mut |key, value| {
                count += 1;
                bytes += key.len() + value.len();
            })?;
            rounds += 1;
            ensure!(bytes as u64 == KEYS * (24 + VALUE as u64), "a scan of {bytes} bytes");
        }
        ensure!(count == rounds * KEYS, "{count} entries in {rounds} scans");
        rate("entries scanned in order", count, start);
        Ok(())
    }

    fn commits(&self, session: &dyn Session, keys: u64) -> Result<()> {
        let (mut random, start, mut count) = (Random(keys), Instant::now(), 0);
        while start.elapsed() < self.span {
            session.put((0..keys).map(|_| entry(random.below(KEYS), 1)).collect(), true)?;
            count += keys;
        }
        match keys {
            1 => rate("durable commits of one key", count, start),
            _ => rate("keys in durable commits of 100", count, start),
        }
        Ok(())
    }

    /// From nothing in memory.
    fn cold(&self) -> Result<()> {
        forget()?;
        let engine = (self.open)(&self.directory, Users::One)?;
        let session = engine.session()?;
        let (mut random, start) = (Random(9), Instant::now());
        let mut keys = (0..COLD).map(|_| key(random.below(KEYS)));
        session.get(&mut keys, &mut |_| ())?;
        rate("random reads, cold", COLD, start);
        say("space after churn, closed and opened again", self.space(&*session)?);
        drop(session);
        engine.close()
    }

    /// Many threads that each commit one key at a time.
    fn together(&self) -> Result<()> {
        let engine = (self.open)(&self.directory, Users::Many)?;
        {
            let shared = engine.shared().context("it was opened for many")?;
            // Once through everything, so that it is in memory.
            shared.session()?.scan(&mut |_, _| ())?;
            let start = Instant::now();
            let one = |thread: u64| {
                let session = shared.session()?;
                let (mut random, mut count) = (Random(thread + 100), 0);
                while start.elapsed() < self.span {
                    session.put(vec![entry(random.below(KEYS), 2)], true)?;
                    count += 1;
                }
                anyhow::Ok(count)
            };
            let count: u64 = std::thread::scope(|scope| {
                let all: Vec<_> =
                    (0..THREADS).map(|thread| scope.spawn(move || one(thread))).collect();
                all.into_iter()
                    .map(|thread| thread.join().expect("it panics nowhere"))
                    .sum::<Result<u64>>()
            })?;
            rate("durable commits of one key, 64 threads", count, start);
        }
        engine.close()
    }

    fn space(&self, session: &dyn Session) -> Result<f64> {
        session.sync()?;
        let bytes = match session.space()? {
            Some(bytes) => bytes,
            None => on_disk(&self.directory)?,
        };
        Ok(bytes as f64)
    }
}

fn churn(session: &dyn Session) -> Result<()> {
    let (mut random, start) = (Random(5), Instant::now());
    for batch in 0..CHURN * KEYS / BATCH {
        let durable = batch % 100 == 99;
        session.put((0..BATCH).map(|_| entry(random.below(KEYS), batch)).collect(), durable)?;
    }
    session.sync()?;
    rate("keys overwritten at random, every 100,000 durable", CHURN * KEYS, start);
    Ok(())
}

fn key(number: u64) -> [u8; 24] {
    let mut key = *b"a key's prefix..--------";
    key[16..].copy_from_slice(&number.to_be_bytes());
    key
}

/// The value does not get smaller when it is compressed.
fn entry(number: u64, generation: u64) -> Entry {
    let mut random = Random(number << 20 | generation);
    let mut value = vec![0; VALUE];
    value.chunks_mut(8).for_each(|part| {
        part.copy_from_slice(&random.next().to_le_bytes()[..part.len()]);
    });
    (key(number).to_vec(), value)
}

fn rate(what: &str, count: u64, start: Instant) {
    say(what, count as f64 / start.elapsed().as_secs_f64());
}

fn say(what: &str, figure: f64) {
    println!("{what}\t{figure:.1}");
}

/// Returns the disk space of the files in a directory, bytes.
fn on_disk(directory: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let meta = entry.metadata();
        match meta {
            Ok(meta) if meta.is_dir() => bytes += on_disk(&entry.path())?,
            Ok(meta) => bytes += meta.blocks() * 512,
            // A background thread has removed it.
            Err(_) => {}
        }
    }
    Ok(bytes)
}

/// Empties the kernel's page cache.
fn forget() -> Result<()> {
    std::process::Command::new("sync").status()?;
    std::fs::write("/proc/sys/vm/drop_caches", "3").context("only root empties the page cache")
}

/// SplitMix64 (Steele et al., 2014): as good as needed here.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}
