//! Power failures: clients change a volume on a real block device of a real kernel, and every write
//! and flush that reaches the device is recorded. Then, many times, a disk is constructed that a
//! failure at some moment could have left. Each is recovered and checked, and must have every
//! change acknowledged by then.
//!
//! The device is the virtual machine's: QEMU's `blklogwrites` records it. The clients run beside
//! the server in the guest (this program is copied into it); each writes a mark beyond the volume's
//! end for every acknowledged change, so the marks are part of the same log. Each write not yet
//! flushed is, independently, present completely, partly (512 bytes at a time) or not at all.

mod log;

use super::story::{Random, Story, seen_in};
use anyhow::{Context, Result, bail, ensure};
use log::{Entry, Replay};
use rig::files::Files;
use rig::report::Report;
use rig::server::{self, Kind};
use rig::vm::{self, Job};
use rig::{sh, volume};
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const CLIENTS: u32 = 6;

/// End of the volume and beginning of the marks, bytes.
const END: u64 = 64 << 20;
const MARKS: u64 = 1 << 20;
const SECTOR: usize = 512;

/// Number of failures, and duration of the clients' work: by default, and with `--long`.
const FAILURES: usize = 150;
const FAILURES_LONG: usize = 5000;
const SECONDS: u64 = 12;
const SECONDS_LONG: u64 = 60;

const SCRIPT: &str = include_str!("guest/power");

/// Runs the suite.
pub(crate) fn run(report: &mut Report, kind: Kind) -> Result<()> {
    if kind == Kind::Diod {
        report.skip("volume-power", "diod has no volumes");
        return Ok(());
    }
    let (failures, seconds) =
        if report.long { (FAILURES_LONG, SECONDS_LONG) } else { (FAILURES, SECONDS) };
    let disk = Disk::new()?;
    let this = sh::own_path()?;
    let script = script(kind, seconds, &this);
    let job = Job::new("power", &script)?;
    let job = job.with_disk(&disk.arguments(), "power");
    job.program(&server::binary())?;
    job.program(&this)?;
    let text = job.run()?;
    vm::enter(report, "volume-power", &text, &["load"]);
    let entries = log::read(&disk.log)?;
    report.case("volume-power/nothing_acknowledged_is_lost", || {
        fail_often(&disk, &entries, failures, Trick::None)
    });
    // Tests of the test: planted errors must be detected.
    for (name, trick) in [
        ("volume-power/a_disk_that_lies_is_found_out", Trick::NeverFlushes),
        ("volume-power/a_false_mark_is_found_out", Trick::MarksMore),
    ] {
        report.case(name, || match fail_often(&disk, &entries, 40, trick) {
            Ok(note) => bail!("nobody noticed: {note}"),
            Err(found) => Ok(sh::tail(&format!("{found:#}"), 90).replace('\n', " ")),
        });
    }
    Ok(())
}

/// A planted error that must be detected.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trick {
    None,
    /// The disk acknowledges flushes without performing them.
    NeverFlushes,
    /// Each mark claims three more acknowledged changes.
    MarksMore,
}

fn script(kind: Kind, seconds: u64, this: &Path) -> String {
    let this = this.file_name().unwrap_or_default().to_string_lossy();
    let script = SCRIPT.replace("FORM", kind.name()).replace("SECONDS", &seconds.to_string());
    script.replace("XTASK", &this)
}

/// Third disk of the guest.
struct Disk {
    /// Image before the guest starts.
    before: PathBuf,
    /// Image used by the guest.
    image: PathBuf,
    log: PathBuf,
}

impl Disk {
    /// Creates a disk with an empty volume.
    fn new() -> Result<Disk> {
        let dir = sh::empty("power")?;
        let disk =
            Disk { before: dir.join("before"), image: dir.join("image"), log: dir.join("log") };
        volume::create(&disk.before, "64M")?;
        File::options().write(true).open(&disk.before)?.set_len(END + MARKS)?;
        std::fs::copy(&disk.before, &disk.image)?;
        File::create(&disk.log)?;
        Ok(disk)
    }

    /// Returns QEMU's arguments; the disk is called `power`.
    fn arguments(&self) -> Vec<String> {
        let file = |name: &str, path: &Path| {
            format!("driver=file,node-name={name},filename={}", path.display())
        };
        let all = [
            file("power-image", &self.image),
            file("power-log", &self.log),
            "driver=blklogwrites,node-name=power,file=power-image,log=power-log".to_owned(),
        ];
        all.into_iter().flat_map(|text| ["-blockdev".to_owned(), text]).collect()
    }
}

/// Constructs disks that failures could have left, one for each of some moments of the log.
fn fail_often(disk: &Disk, entries: &[Entry], failures: usize, trick: Trick) -> Result<String> {
    let room = Room::new()?;
    let mut random = Random(0x705f);
    let chosen = moments(entries, failures, &mut random);
    let now = room.0.join("now");
    std::fs::copy(&disk.before, &now)?;
    let mut replay = Replay::new(&now, END, trick == Trick::NeverFlushes)?;
    let mut stories: Vec<Story> = (0..CLIENTS).map(Story::new).collect();
    let (mut tried, mut torn) = (0, 0);
    for (at, entry) in entries.iter().enumerate() {
        replay.step(entry)?;
        if let Some((client, deeds)) = mark(entry)? {
            let deeds = if trick == Trick::MarksMore { deeds + 3 } else { deeds };
            let story = stories.get_mut(client).context("a client nobody knows")?;
            while story.deeds < deeds {
                let action = story.next();
                story.happened(&action);
            }
        }
        if chosen.binary_search(&at).is_ok() {
            tried += 1;
            torn += replay.pending();
            let seed = at as u64;
            let outcome = fail(&now, &room, &replay, seed, &stories);
            if outcome.is_err() && trick == Trick::None {
                // Kept for inspection.
                let kept = sh::scratch("power")?.join("failed");
                std::fs::copy(&now, &kept)?;
                replay.fail(&File::options().write(true).open(&kept)?, &mut Random(seed))?;
                println!("   the disk is kept: {}", kept.display());
            }
            outcome.with_context(|| format!("a failure after operation {at}, seed {seed}"))?;
        }
    }
    ensure!(tried * 2 > failures, "only {tried} moments to fail in {} operations", entries.len());
    let deeds: u64 = stories.iter().map(|story| story.deeds).sum();
    Ok(format!(
        "{tried} failures in {} operations, {torn} writes torn or lost; {deeds} changes \
         acknowledged",
        entries.len()
    ))
}

/// Returns moments with unflushed writes, in order.
fn moments(entries: &[Entry], count: usize, random: &mut Random) -> Vec<usize> {
    let mut dirty = false;
    let open = entries.iter().map(|entry| {
        dirty = match entry {
            Entry::Write { offset, durable, .. } => dirty || (*offset < END && !durable),
            Entry::Flush => false,
        };
        dirty
    });
    let mut open: Vec<usize> =
        open.enumerate().filter_map(|(at, dirty)| dirty.then_some(at)).collect();
    while open.len() > count {
        open.swap_remove(random.below(open.len()));
    }
    open.sort_unstable();
    open
}

/// Simulates one failure: recovers, checks and copies out the resulting disk.
fn fail(now: &Path, room: &Room, replay: &Replay, seed: u64, stories: &[Story]) -> Result<()> {
    let (image, out) = (room.0.join("image"), room.0.join("out"));
    std::fs::copy(now, &image)?;
    let copy = File::options().write(true).open(&image)?;
    replay.fail(&copy, &mut Random(seed))?;
    drop(copy);
    let outcome = volume::check(&image).and_then(|_| {
        volume::copy_out(&image, &out)?;
        for story in stories {
            story.agrees(&seen_in(&out.join(story.dir()))?)?;
        }
        Ok(())
    });
    if out.exists() {
        std::fs::remove_dir_all(&out)?;
    }
    outcome
}

/// Directory for disks, in memory if there is such a file system.
struct Room(PathBuf);

impl Room {
    fn new() -> Result<Room> {
        let shared = Path::new("/dev/shm");
        if !shared.is_dir() {
            return sh::empty("power/room").map(Room);
        }
        let dir = shared.join(format!("upcall-power-{}", std::process::id()));
        std::fs::create_dir_all(&dir)?;
        Ok(Room(dir))
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Parses a client's mark: the number of its acknowledged changes.
fn mark(entry: &Entry) -> Result<Option<(usize, u64)>> {
    match entry {
        Entry::Write { offset, bytes, .. } if *offset >= END => {
            let deeds = bytes.first_chunk::<8>().context("a mark is a sector")?;
            let client = usize::try_from((offset - END) / 4096)?;
            Ok(Some((client, u64::from_le_bytes(*deeds))))
        }
        Entry::Write { .. } | Entry::Flush => Ok(None),
    }
}

/// Runs `conformance power-load DEVICE SECONDS`: the clients, beside the server in the guest.
pub(crate) fn load(args: &[String]) -> Result<()> {
    let [device, seconds] = args else { bail!("power-load DEVICE SECONDS") };
    let span = Duration::from_secs(seconds.parse()?);
    let direct = rustix::fs::OFlags::DIRECT.bits().cast_signed();
    let device = File::options().write(true).custom_flags(direct).open(device)?;
    let (start, over) = (Instant::now(), AtomicBool::new(false));
    let ports = (5640, 8080);
    let deeds: u64 = std::thread::scope(|scope| {
        let noise = scope.spawn(|| Files::at(ports.0)?.make_noise("noise", &over));
        let client = |number| {
            let mut story = Story::new(number);
            let device = &device;
            move || {
                story.go_on(ports, |story| {
                    set_mark(device, story)?;
                    Ok(start.elapsed() < span)
                })?;
                anyhow::Ok(story.deeds)
            }
        };
        let clients: Vec<_> = (0..CLIENTS).map(|number| scope.spawn(client(number))).collect();
        let ended = clients.into_iter().map(|client| client.join().expect("it panics nowhere"));
        let deeds = ended.sum::<Result<u64>>();
        over.store(true, Ordering::SeqCst);
        noise.join().expect("it panics nowhere")?;
        deeds
    })?;
    println!("{deeds} changes acknowledged");
    Ok(())
}

/// Writes a mark, bypassing the guest's cache, without a flush: it has to be in the log, not on the
/// disk.
fn set_mark(device: &File, story: &Story) -> Result<()> {
    let mut memory = [0_u8; 2 * SECTOR];
    let at = memory.as_ptr().align_offset(SECTOR);
    let sector = &mut memory[at..at + SECTOR];
    sector[..8].copy_from_slice(&story.deeds.to_le_bytes());
    Ok(device.write_all_at(sector, END + u64::from(story.client) * 4096)?)
}
