//! Kills and restarts of the server while programs write through a mount: no request fails, and
//! what an fsync has acknowledged is there.
//!
//! Each writer has a file of blocks, and a name that it replaces by renames. A block contains its
//! writer, place and version, so a lost, an old, a torn and a misplaced one are known. After an
//! fsync that reports a loss the writer does its changes again, as an application must.

use super::super::TRUST;
use super::super::ground::{Ground, On};
use super::super::story::Random;
use super::{FOR_ALL, WATCHED};
use anyhow::{Context, Result, bail, ensure};
use rig::mounted::Mounted;
use rig::report::Report;
use rig::server::{Kind, free_port, until_closed};
#[allow(deprecated, reason = "see its use")]
use rustix::thread::{UnshareFlags, unshare};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex};

/// Kills for each kind of cache: by default, and with `--long`.
const KILLS: usize = 6;
const KILLS_LONG: usize = 100;

const WRITERS: usize = 4;
const BLOCKS: usize = 32;
const BLOCK: usize = 4096;
/// Steps of each writer between two kills.
const STEPS: u64 = 40;
/// Place of a block that is a file of its own.
const ALONE: usize = BLOCKS;

/// Mount options, one for each kind of cache.
const CACHES: [(&str, &str); 4] = [
    ("write_back", "allow_other,suid,dev,cache=write"),
    ("through", FOR_ALL),
    ("uncached", "allow_other,suid,dev,cache=none"),
    ("watched", WATCHED),
];

/// Runs the suite.
pub(crate) fn run(report: &mut Report, kind: Kind, on: On) -> Result<()> {
    if !Path::new("/dev/fuse").exists() {
        report.skip("mount-kill", "this machine has no /dev/fuse");
        return Ok(());
    }
    let kills = if report.long { KILLS_LONG } else { KILLS };
    let suite = on.suite("mount-kill");
    let ground = Ground::new("mount-kill", on)?;
    ground.fill()?;
    let ports = (free_port()?, free_port()?);
    let mut server = ground.serve_at(kind, ports, TRUST)?;
    let mut all = Vec::new();
    for (name, options) in CACHES {
        let mounted = Mounted::start(&server, &format!("{suite}-{name}"), options)?;
        let mut restart = || {
            server.kill()?;
            [ports.0, ports.1].into_iter().for_each(until_closed);
            server = ground.serve_at(kind, ports, TRUST)?;
            Ok(())
        };
        report.case(&format!("{suite}/{name}"), || {
            let dir = mounted.dir.join(name);
            fs::create_dir(&dir)?;
            let written = write_through(&dir, kills, &mut restart)?;
            restart()?;
            written.iter().try_for_each(|written| written.compare(&dir))?;
            let losses: u32 = written.iter().map(|written| written.losses).sum();
            all.push((name, written));
            // A directory of this host loses nothing with the server.
            ensure!(on == On::Directory || losses > 0, "no fsync has reported a loss");
            Ok(format!("{} kills, {losses} fsyncs have reported a loss", kills + 1))
        });
        mounted.stop()?;
    }
    server.stop()?;
    report.case(&format!("{suite}/check"), || {
        let back = ground.back()?;
        for (name, written) in &all {
            written.iter().try_for_each(|written| written.compare(&back.join(name)))?;
        }
        Ok(String::new())
    });
    Ok(())
}

/// Steps of each writer; nothing for one that has ended.
struct Steps {
    counts: Mutex<[Option<u64>; WRITERS]>,
    changed: Condvar,
}

impl Steps {
    fn set(&self, writer: usize, count: Option<u64>) {
        self.counts.lock().expect("nobody panics with it")[writer] = count;
        self.changed.notify_all();
    }

    /// Waits until each writer has made this number of steps.
    fn wait(&self, wanted: u64) -> Result<()> {
        let mut counts = self.counts.lock().expect("nobody panics with it");
        while counts.iter().all(Option::is_some) && counts.iter().any(|it| *it < Some(wanted)) {
            counts = self.changed.wait(counts).expect("nobody panics with it");
        }
        ensure!(counts.iter().all(Option::is_some), "a writer has ended");
        Ok(())
    }
}

/// Runs writers in a directory while the server is killed and started again.
fn write_through(
    dir: &Path,
    kills: usize,
    restart: &mut dyn FnMut() -> Result<()>,
) -> Result<Vec<Written>> {
    let steps = Steps { counts: Mutex::new([Some(0); WRITERS]), changed: Condvar::new() };
    let is_over = AtomicBool::new(false);
    let work = |number: usize| {
        keep_files_private()?;
        let mut writer = Writer::new(dir, number)?;
        for count in 1.. {
            if is_over.load(Ordering::SeqCst) {
                break;
            }
            writer.step().with_context(|| format!("writer {number}, step {count}"))?;
            steps.set(number, Some(count));
        }
        writer.sync().context("the last fsync")?;
        Ok(writer.written)
    };
    std::thread::scope(|scope| {
        let (work, steps) = (&work, &steps);
        let begin = |number| {
            scope.spawn(move || {
                let result: Result<Written> = work(number);
                steps.set(number, None);
                result
            })
        };
        let threads: Vec<_> = (0..WRITERS).map(begin).collect();
        let killed = (1..=kills).try_for_each(|kill| {
            steps.wait(STEPS * kill as u64)?;
            restart()
        });
        is_over.store(true, Ordering::SeqCst);
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<Written>>| {
            thread.join().expect("it does not panic")
        };
        // The reason why a writer has ended comes first.
        let writers = threads.into_iter().map(join).collect::<Result<Vec<Written>>>()?;
        killed.map(|()| writers)
    })
}

/// Gives this thread a table of open files of its own. Otherwise the process that is about to
/// become the server, forked by another thread, would hold this thread's files: it closes them
/// before that, and with a write-back cache close(2) waits until the server has the data.
#[allow(deprecated, reason = "no other thread uses the files that this one opens")]
fn keep_files_private() -> Result<()> {
    Ok(unshare(UnshareFlags::FILES)?)
}

/// Versions that a block may have: the one that was made durable, and later ones.
#[derive(Debug)]
struct Versions {
    durable: u64,
    later: Vec<u64>,
}

impl Versions {
    fn last(&self) -> u64 {
        self.later.last().copied().unwrap_or(self.durable)
    }

    fn synced(&mut self) {
        self.durable = self.last();
        self.later.clear();
    }

    fn expect(&self, version: u64) -> Result<()> {
        let is_known = version == self.durable || self.later.contains(&version);
        ensure!(is_known, "version {version} is there instead of {self:?}");
        Ok(())
    }
}

/// Versions written by a writer, and its reported losses.
struct Written {
    writer: usize,
    blocks: Vec<Versions>,
    /// The file that is replaced.
    replaced: Versions,
    /// Number of reported losses.
    losses: u32,
}

/// A writer.
struct Writer {
    dir: PathBuf,
    random: Random,
    file: File,
    written: Written,
    next: u64,
}

impl Writer {
    /// Creates the files, durably.
    fn new(dir: &Path, number: usize) -> Result<Writer> {
        let mut options = File::options();
        let open = options.read(true).write(true).create(true);
        let file = open.truncate(true).open(blocks_of(dir, number))?;
        let first = || Versions { durable: 0, later: vec![0] };
        let blocks = (0..BLOCKS).map(|_| first()).collect();
        let written = Written { writer: number, blocks, replaced: first(), losses: 0 };
        let random = Random(number as u64);
        let mut writer = Writer { dir: dir.to_owned(), random, file, written, next: 1 };
        writer.write_again()?;
        writer.sync()?;
        writer.replace(0)?;
        Ok(writer)
    }

    fn step(&mut self) -> Result<()> {
        match self.random.below(12) {
            0..6 => {
                let (at, version) = (self.random.below(BLOCKS), self.version());
                self.written.blocks[at].later.push(version);
                self.write(at, version).context("write")
            }
            6 => self.sync().context("fsync"),
            7..10 => {
                let at = self.random.below(BLOCKS);
                let mut block = vec![0; BLOCK];
                self.file.read_exact_at(&mut block, (at * BLOCK) as u64).context("read")?;
                self.written.expect_block(at, &block).context("read")
            }
            10 => self.written.expect_replaced(&self.dir).map(drop),
            _ => {
                let version = self.version();
                self.replace(version).context("replace")
            }
        }
    }

    fn version(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    fn write(&self, at: usize, version: u64) -> io::Result<()> {
        self.file.write_all_at(&contents(self.written.writer, at, version), (at * BLOCK) as u64)
    }

    /// Writes what may be lost.
    fn write_again(&self) -> io::Result<()> {
        let mut unsynced =
            self.written.blocks.iter().enumerate().filter(|(_, it)| !it.later.is_empty());
        unsynced.try_for_each(|(at, versions)| self.write(at, versions.last()))
    }

    /// Makes the blocks durable.
    fn sync(&mut self) -> io::Result<()> {
        loop {
            let synced = match self.random.below(3) {
                0 => self.file.sync_data(),
                _others => self.file.sync_all(),
            };
            let Err(error) = synced else { break };
            self.note_loss(error)?;
            self.write_again()?;
        }
        self.written.blocks.iter_mut().for_each(Versions::synced);
        Ok(())
    }

    /// Counts a reported loss; other errors are not expected.
    fn note_loss(&mut self, error: io::Error) -> io::Result<()> {
        if error.raw_os_error() != Some(5) {
            return Err(error);
        }
        self.written.losses += 1;
        Ok(())
    }

    /// Replaces the file by one with this version, durably.
    fn replace(&mut self, version: u64) -> Result<()> {
        let writer = self.written.writer;
        let new = self.dir.join(format!("new-{writer}"));
        let block = contents(writer, ALONE, version);
        self.written.replaced.later.push(version);
        loop {
            if let Err((step, error)) = write_new(&new, &block) {
                // Created just before the loss, or lost with it.
                if error.kind() != ErrorKind::AlreadyExists {
                    self.note_loss(error).with_context(|| format!("{step} the new file"))?;
                }
                continue;
            }
            match fs::rename(&new, replaced_of(&self.dir, writer)) {
                Ok(()) => {}
                // Renamed just before the loss.
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    let found = self.written.expect_replaced(&self.dir)?;
                    ensure!(
                        found == version,
                        "the new file of version {version} is lost: {found} is there, and {:?}",
                        new.try_exists()
                    );
                }
                Err(error) => bail!("rename: {error}"),
            }
            // Sometimes another thread of the program makes it durable.
            let dir = self.dir.clone();
            let sync = move || File::open(&dir)?.sync_all();
            let synced = match self.random.below(3) {
                0 => std::thread::spawn(sync).join().expect("it does not panic"),
                _own => sync(),
            };
            match synced {
                Ok(()) => break,
                Err(error) => self.note_loss(error).context("fsync of the directory")?,
            }
        }
        self.written.replaced.synced();
        Ok(())
    }
}

impl Written {
    /// Compares the files in a directory with the durable versions.
    fn compare(&self, dir: &Path) -> Result<()> {
        let bytes = fs::read(blocks_of(dir, self.writer))?;
        ensure!(bytes.len() == BLOCKS * BLOCK, "{} bytes", bytes.len());
        let mut blocks = bytes.chunks(BLOCK).enumerate();
        blocks.try_for_each(|(at, block)| self.expect_block(at, block))?;
        self.expect_replaced(dir).map(drop)
    }

    fn expect_block(&self, at: usize, block: &[u8]) -> Result<()> {
        self.blocks[at].expect(self.version_of(at, block)?)
    }

    /// Returns the version of the file that is replaced.
    fn expect_replaced(&self, dir: &Path) -> Result<u64> {
        let bytes = fs::read(replaced_of(dir, self.writer)).context("read the replaced file")?;
        let version = self.version_of(ALONE, &bytes)?;
        self.replaced.expect(version).context("the replaced file")?;
        Ok(version)
    }

    fn version_of(&self, at: usize, block: &[u8]) -> Result<u64> {
        let first = block.first_chunk().context("it is empty")?;
        let version = u64::from_le_bytes(*first) >> 16;
        let is_whole = block == contents(self.writer, at, version);
        ensure!(is_whole, "block {at} of writer {} is no version of it: {first:?}", self.writer);
        Ok(version)
    }
}

fn blocks_of(dir: &Path, writer: usize) -> PathBuf {
    dir.join(format!("blocks-{writer}"))
}

fn replaced_of(dir: &Path, writer: usize) -> PathBuf {
    dir.join(format!("replaced-{writer}"))
}

/// Creates a file with a block, durably.
fn write_new(path: &Path, block: &[u8]) -> Result<(), (&'static str, io::Error)> {
    let file = File::create(path).map_err(|error| ("create", error))?;
    file.write_all_at(block, 0).map_err(|error| ("write", error))?;
    file.sync_all().map_err(|error| ("fsync", error))
}

/// Returns the contents of a version of a block.
fn contents(writer: usize, at: usize, version: u64) -> Vec<u8> {
    let place = (writer * (BLOCKS + 1) + at) as u64;
    (version << 16 | place).to_le_bytes().repeat(BLOCK / 8)
}
