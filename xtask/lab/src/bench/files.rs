//! Files in a volume against files in a directory on ext4: the same binary serves both, to the same
//! client.
//!
//! A volume flushes whatever ext4 has to flush for `fsync`, so the comparison is of the cost of
//! durable small changes and of uncached reads. Before cold reads the server is restarted and the
//! kernel's page cache dropped. A volume has 256 MiB of cache, its default; ext4 has all of the
//! machine's memory.

use super::figures::{self, Figures};
use super::ninep::{TCLUNK, TLCREATE, TLOPEN, TREAD, TWALK, TWRITE};
use super::{Plan, settle};
use anyhow::{Context, Result};
use rig::client::{Client, Message, ROOT, Slot, Work};
use rig::machine::{core, pin};
use rig::server::{Kind, Server};
use rig::{sh, volume};
use std::cell::Cell;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A kind of server, and whether it serves a volume.
#[derive(Clone, Copy)]
struct Contestant {
    name: &'static str,
    kind: Kind,
    has_volume: bool,
}

const VOLUME: Contestant = Contestant { name: "volume", kind: Kind::Uring, has_volume: true };
const EXT4: Contestant = Contestant { name: "ext4", kind: Kind::Uring, has_volume: false };
const BEFORE: Contestant = Contestant { name: "before", kind: Kind::Before, has_volume: true };

const TFSYNC: u8 = 50;
const TMKDIR: u8 = 72;
const TUNLINKAT: u8 = 76;

const FILES: u64 = 100_000;
const DIRS: u64 = 100;
const SMALL: usize = 1000;

/// Size of the large file, and bytes of it moved per message.
const BIG: u64 = 4 << 30;
const PIECE: u64 = 32 << 10;
const PAGE: u64 = 4096;

/// Time limit for creating 100,000 files.
const LONG: Duration = Duration::from_secs(15);

const BIG_FID: u32 = 1;
/// The fid of the first directory.
const DIR_FID: u32 = 1000;

/// Runs the benchmark.
pub(crate) fn run(plan: &Plan) -> Result<String> {
    pin(core(1));
    let mut rows = Vec::new();
    let is_before = plan.servers.contains(&Kind::Before);
    let contestants = [VOLUME, if is_before { BEFORE } else { EXT4 }];
    let names = contestants.map(|contestant| contestant.name);
    let mut order = [0, 1];
    for round in 1..=plan.rounds {
        for at in order {
            eprintln!("   round {round}: {}", names[at]);
            for (work, figure) in once(plan, contestants[at]).context(names[at])? {
                enter(&mut rows, at, work, figure);
            }
        }
        order.reverse();
    }
    let method = format!(
        "{}; {} rounds, in turn, order alternating; server on processor 0, client on processor 1; \
         9P2000.L. Files of {SMALL} bytes in {DIRS} directories; \"durable\" is `Tfsync` of each, \
         else there is one flush at the end, which is counted. Creating ends after {} s at the \
         latest. Figures are files, messages of {} KiB, or messages of 4 KiB, a second.\n",
        rig::machine::describe(),
        plan.rounds,
        LONG.as_secs(),
        PIECE >> 10,
    );
    Ok(format!("{method}\n{}", figures::markdown(&rows, &names)))
}

fn enter(rows: &mut Vec<Figures>, contestant: usize, work: &str, figure: f64) {
    let at = rows.iter().position(|row| row.work == work).unwrap_or_else(|| {
        rows.push(Figures::new(work, 2));
        rows.len() - 1
    });
    rows[at].samples[contestant].push(figure);
}

/// Runs all work on one of the two.
fn once(plan: &Plan, contestant: Contestant) -> Result<Vec<(&'static str, f64)>> {
    let place = Storage::new(contestant)?;
    let mut figures = Vec::new();
    let served = place.serve()?;
    let mut client = attach(&served)?;
    make_dirs(&mut client)?;
    let created = creates(&mut client, &mut figures)?;
    drop((client, served));
    let served = place.serve_cold()?;
    let mut client = attach(&served)?;
    open_dirs(&mut client)?;
    let next = Cell::new(0);
    let rate = timed(|| {
        client.run_while(&Work { steps: 4, build: &|s, out| read_small(s, out, &next) }, 32, || {
            next.get() < created
        })
    })?;
    figures.push(("read small files, cold, 32 outstanding", rate));
    figures.push(("delete all, 32 outstanding", delete(&mut client, created)?));
    big(plan, &place, client, served, &mut figures)?;
    place.remove()?;
    Ok(figures)
}

/// A volume file or directory, and the server of it.
struct Storage {
    path: PathBuf,
    kind: Kind,
}

impl Storage {
    fn new(contestant: Contestant) -> Result<Storage> {
        let (dir, kind) = (sh::empty("bench/files")?, contestant.kind);
        settle()?;
        if !contestant.has_volume {
            return Ok(Storage { path: dir, kind });
        }
        let path = dir.join("volume");
        volume::create_whole(&path, "8G")?;
        settle()?;
        Ok(Storage { path, kind })
    }

    fn serve(&self) -> Result<Server> {
        Server::start_on(self.kind, &self.path, &["--trust-clients"], core(0))
    }

    /// Starts the server with all caches empty.
    fn serve_cold(&self) -> Result<Server> {
        forget()?;
        self.serve()
    }

    fn remove(&self) -> Result<()> {
        sh::empty("bench/files").map(|_| ())
    }
}

fn attach(server: &Server) -> Result<Client> {
    Client::attach(server.ninep, &server.dir.display().to_string())
}

/// Drops the kernel's page cache.
pub(super) fn forget() -> Result<()> {
    sh::read(&mut sh::cmd::<&str>("sync", &[]))?;
    std::fs::write("/proc/sys/vm/drop_caches", "3").context("only root empties the page cache")
}

fn timed(work: impl FnOnce() -> Result<u64>) -> Result<f64> {
    let start = Instant::now();
    let done = work()?;
    #[expect(clippy::cast_precision_loss, reason = "counts of seconds of work")]
    Ok(done as f64 / start.elapsed().as_secs_f64())
}

fn dir_fid(number: u64) -> u32 {
    DIR_FID + u32::try_from(number % DIRS).expect("there are few")
}

fn make_dirs(client: &mut Client) -> Result<()> {
    for number in 0..DIRS {
        client.call(|out| {
            let message = Message::new(out, TMKDIR, 0).u32(ROOT).text(&format!("d{number}"));
            message.u32(0o755).u32(0);
        })?;
    }
    open_dirs(client)
}

fn open_dirs(client: &mut Client) -> Result<()> {
    for number in 0..DIRS {
        client.call(|out| {
            let message = Message::new(out, TWALK, 0).u32(ROOT).u32(dir_fid(number)).u16(1);
            message.text(&format!("d{number}"));
        })?;
    }
    Ok(())
}

/// Returns the number of files created, which are named 0, 1, 2, …
fn creates(client: &mut Client, figures: &mut Vec<(&'static str, f64)>) -> Result<u64> {
    let next = Cell::new(0);
    let make = |slot: &mut Slot, out: &mut Vec<u8>, durable| create(slot, out, &next, durable);
    let few = Instant::now() + LONG / 3;
    let durable = Work { steps: 5, build: &|slot, out| make(slot, out, true) };
    let rate = timed(|| client.run_while(&durable, 1, || Instant::now() < few))?;
    figures.push(("create small files, durable, 1 outstanding", rate));
    for (depth, work) in [
        (32, "create 100,000 small files, durable, 32 outstanding"),
        (256, "create 100,000 small files, durable, 256 outstanding"),
    ] {
        let (first, late) = (next.get(), Instant::now() + LONG);
        let another = || next.get() < first + FILES && Instant::now() < late;
        figures.push((work, timed(|| client.run_while(&durable, depth, another))?));
    }
    let soon = Work { steps: 5, build: &|slot, out| make(slot, out, false) };
    let (first, late) = (next.get(), Instant::now() + LONG);
    let rate = timed(|| {
        let another = || next.get() < first + FILES && Instant::now() < late;
        let done = client.run_while(&soon, 32, another)?;
        flush_root(client)?;
        Ok(done)
    })?;
    figures.push(("create 100,000 small files, 32 outstanding", rate));
    Ok(next.get())
}

fn create(slot: &mut Slot, out: &mut Vec<u8>, next: &Cell<u64>, durable: bool) {
    let fid = slot.fid();
    match slot.step {
        0 => {
            slot.number = next.replace(next.get() + 1);
            Message::new(out, TWALK, slot.tag).u32(dir_fid(slot.number)).u32(fid).u16(0);
        }
        1 => {
            let message = Message::new(out, TLCREATE, slot.tag).u32(fid);
            message.text(&slot.number.to_string()).u32(2).u32(0o644).u32(0);
        }
        2 => {
            let count = u32::try_from(SMALL).expect("small");
            let message = Message::new(out, TWRITE, slot.tag).u32(fid).u64(0).u32(count);
            message.bytes(&[b'f'; SMALL]);
        }
        3 if durable => {
            Message::new(out, TFSYNC, slot.tag).u32(fid).u32(0);
        }
        // Keeps the number of messages equal.
        3 => {
            Message::new(out, rig::client::TGETATTR, slot.tag).u32(fid).u64(0x7ff);
        }
        _ => clunk(slot, out),
    }
}

fn read_small(slot: &mut Slot, out: &mut Vec<u8>, next: &Cell<u64>) {
    let fid = slot.fid();
    match slot.step {
        0 => {
            slot.number = next.replace(next.get() + 1);
            let message = Message::new(out, TWALK, slot.tag).u32(dir_fid(slot.number)).u32(fid);
            message.u16(1).text(&slot.number.to_string());
        }
        1 => {
            Message::new(out, TLOPEN, slot.tag).u32(fid).u32(0);
        }
        2 => {
            Message::new(out, TREAD, slot.tag).u32(fid).u64(0).u32(4096);
        }
        _ => clunk(slot, out),
    }
}

fn delete(client: &mut Client, files: u64) -> Result<f64> {
    let next = Cell::new(0);
    let build = |slot: &mut Slot, out: &mut Vec<u8>| {
        let number = next.replace(next.get() + 1);
        let message = Message::new(out, TUNLINKAT, slot.tag).u32(dir_fid(number));
        message.text(&number.to_string()).u32(0);
    };
    timed(|| {
        let work = Work { steps: 1, build: &build };
        let done = client.run_while(&work, 32, || next.get() < files)?;
        flush_root(client)?;
        Ok(done)
    })
}

/// Flushes the root; on ext4 and in a volume this makes all earlier changes durable.
fn flush_root(client: &mut Client) -> Result<()> {
    let fid = DIR_FID - 1;
    client.call(|out| {
        Message::new(out, TWALK, 0).u32(ROOT).u32(fid).u16(0);
    })?;
    client.call(|out| {
        Message::new(out, TLOPEN, 0).u32(fid).u32(0);
    })?;
    flush(client, fid)?;
    client.call(|out| {
        Message::new(out, TCLUNK, 0).u32(fid);
    })?;
    Ok(())
}

fn flush(client: &mut Client, fid: u32) -> Result<()> {
    client.call(|out| {
        Message::new(out, TFSYNC, 0).u32(fid).u32(0);
    })?;
    Ok(())
}

/// Sequential and random I/O in a large file.
fn big(
    plan: &Plan,
    place: &Storage,
    mut client: Client,
    served: Server,
    figures: &mut Vec<(&'static str, f64)>,
) -> Result<()> {
    client.call(|out| {
        Message::new(out, TWALK, 0).u32(ROOT).u32(BIG_FID).u16(0);
    })?;
    client.call(|out| {
        let message = Message::new(out, TLCREATE, 0).u32(BIG_FID).text("big");
        message.u32(2).u32(0o644).u32(0);
    })?;
    let rate = timed(|| {
        let done = sequential(&mut client, true)?;
        flush(&mut client, BIG_FID)?;
        Ok(done)
    })?;
    figures.push(("write 4 GiB in order, 8 outstanding", rate));
    let rate = timed(|| {
        let work = Work { steps: 1, build: &|slot, out| write(slot, out) };
        let done = client.run(&work, 32, plan.time)?;
        flush(&mut client, BIG_FID)?;
        Ok(done)
    })?;
    figures.push(("write 4 KiB at random, 32 outstanding, and flush", rate));
    let rate = timed(|| {
        let work = Work { steps: 2, build: &|slot, out| write_durably(slot, out) };
        client.run(&work, 32, plan.time)
    })?;
    figures.push(("write 4 KiB at random, durable, 32 outstanding", rate));
    drop((client, served));
    let mut served = place.serve_cold()?;
    let mut client = open_big(&served)?;
    let rate = timed(|| sequential(&mut client, false))?;
    figures.push(("read 4 GiB in order, cold, 8 outstanding", rate));
    for (depth, work) in [
        (1, "read 4 KiB at random, cold, 1 outstanding"),
        (32, "read 4 KiB at random, cold, 32 outstanding"),
    ] {
        drop((client, served));
        served = place.serve_cold()?;
        client = open_big(&served)?;
        let rate = timed(|| {
            let work = Work { steps: 1, build: &|slot, out| read(slot, out) };
            client.run(&work, depth, plan.time)
        })?;
        figures.push((work, rate));
    }
    Ok(())
}

fn open_big(served: &Server) -> Result<Client> {
    let mut client = attach(served)?;
    client.call(|out| {
        Message::new(out, TWALK, 0).u32(ROOT).u32(BIG_FID).u16(1).text("big");
    })?;
    client.call(|out| {
        Message::new(out, TLOPEN, 0).u32(BIG_FID).u32(0);
    })?;
    Ok(client)
}

/// Reads or writes the whole file, in messages of [`PIECE`].
fn sequential(client: &mut Client, write: bool) -> Result<u64> {
    let next = Cell::new(0);
    let data = vec![b'b'; usize::try_from(PIECE)?];
    let build = |slot: &mut Slot, out: &mut Vec<u8>| {
        let offset = next.replace(next.get() + PIECE);
        let count = u32::try_from(PIECE).expect("a message");
        let kind = if write { TWRITE } else { TREAD };
        let message = Message::new(out, kind, slot.tag).u32(BIG_FID).u64(offset).u32(count);
        if write {
            message.bytes(&data);
        }
    };
    client.run_while(&Work { steps: 1, build: &build }, 8, || next.get() < BIG)
}

fn write(slot: &mut Slot, out: &mut Vec<u8>) {
    let offset = slot.below(BIG / PAGE) * PAGE;
    let message = Message::new(out, TWRITE, slot.tag).u32(BIG_FID).u64(offset).u32(4096);
    message.bytes(&[b'r'; 4096]);
}

fn write_durably(slot: &mut Slot, out: &mut Vec<u8>) {
    match slot.step {
        0 => write(slot, out),
        _ => {
            Message::new(out, TFSYNC, slot.tag).u32(BIG_FID).u32(0);
        }
    }
}

fn read(slot: &mut Slot, out: &mut Vec<u8>) {
    let offset = slot.below(BIG / PAGE) * PAGE;
    Message::new(out, TREAD, slot.tag).u32(BIG_FID).u64(offset).u32(4096);
}

fn clunk(slot: &mut Slot, out: &mut Vec<u8>) {
    Message::new(out, TCLUNK, slot.tag).u32(slot.fid());
}
