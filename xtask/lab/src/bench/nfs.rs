//! NFSv3 against nfs-ganesha and unfs3: our server on a directory and on a volume, with one client.
//!
//! unfs3 takes part if `unfsd` is in PATH; Debian 12 does not have it. Neither peer makes a change
//! of a directory durable before its reply, which RFC 1813 (4.8) requires and our server does
//! unless it runs with `--nfs-async`; the rows of creations have both.

mod client;
mod servers;

use super::table::median;
use super::{Plan, Sample, count_calls, record, sample};
use anyhow::{Context, Result, bail};
use client::{Arguments, CREATE, GETATTR, LOOKUP, READ, REMOVE, Slot, WRITE, Work};
use rig::machine::{core, pin};
use rig::sh;
use servers::{Contestant, FILE_BYTES, Handles, Peer, SMALL, SMALL_FILES, portmapper};
use std::fmt::Write as _;
use std::time::Duration;

/// Environment variable of the command inside the namespaces: the file for its table.
const TABLE: &str = "UPCALL_BENCH_NFS_TABLE";

const MIB: u32 = 1 << 20;
const PAGE: u32 = 4096;

/// UNSTABLE and GUARDED of RFC 1813.
const UNSTABLE: u32 = 0;
const GUARDED: u32 = 1;

/// Parts of the long measurement.
const PARTS: usize = 12;

/// A kind of work.
struct Item {
    name: &'static str,
    depth: usize,
    steps: fn(&Handles) -> usize,
    build: fn(&Handles, &mut Slot, Arguments<'_>) -> u32,
    /// Whether it changes directories.
    changes: bool,
}

const fn item(
    name: &'static str,
    depth: usize,
    steps: fn(&Handles) -> usize,
    build: fn(&Handles, &mut Slot, Arguments<'_>) -> u32,
) -> Item {
    Item { name, depth, steps, build, changes: false }
}

const fn change(name: &'static str, depth: usize) -> Item {
    Item { name, depth, steps: |_| 3, build: create, changes: true }
}

const ITEMS: &[Item] = &[
    item("read 4 KiB, 1 outstanding", 1, |_| 1, read),
    item("read 4 KiB, 8 outstanding", 8, |_| 1, read),
    item("read 4 KiB, 32 outstanding", 32, |_| 1, read),
    item("getattr, 1 outstanding", 1, |_| 1, getattr),
    item("getattr, 32 outstanding", 32, |_| 1, getattr),
    item("small file: lookup, read, 1 outstanding", 1, |_| 2, small),
    item("small file: lookup, read, 32 outstanding", 32, |_| 2, small),
    item("read 1 MiB in order, 4 outstanding", 4, pieces, sequential),
    change("create, write 4 KiB, remove, 1 outstanding", 1),
    change("create, write 4 KiB, remove, 32 outstanding", 32),
];

/// Results of one kind of work: one sample a round for each server, and its system calls for each
/// request.
struct Row {
    work: &'static str,
    results: Vec<(Peer, Vec<Sample>, Option<f64>)>,
}

/// Runs the benchmark in namespaces of its own.
pub(super) fn run(plan: &Plan) -> Result<String> {
    if let Some(path) = std::env::var_os(TABLE) {
        let text = inside(plan)?;
        std::fs::write(path, &text)?;
        return Ok(text);
    }
    if !rustix::process::geteuid().is_root() {
        bail!("this needs root: nfs-ganesha opens files by handle");
    }
    let path = sh::scratch("bench")?.join("nfs.table");
    let words = ["--net", "--mount"];
    let mut command = sh::cmd("unshare", &words);
    command.arg(sh::own_path()?).args(["bench", "nfs", "--built"]);
    command.args(["--rounds", &plan.rounds.to_string()]);
    command.args(["--seconds", &plan.time.as_secs_f64().to_string()]);
    sh::read(command.env(TABLE, &path).stderr(std::process::Stdio::inherit()))?;
    std::fs::read_to_string(&path).context("it left no table")
}

fn inside(plan: &Plan) -> Result<String> {
    sh::run(&mut sh::cmd("ip", &["link", "set", "lo", "up"]))?;
    sh::run(&mut sh::cmd("mount", &["-t", "tmpfs", "none", "/run"]))?;
    let _portmapper = portmapper()?;
    let contestants = Peer::all().into_iter().map(Contestant::start);
    let contestants = contestants.collect::<Result<Vec<_>>>()?;
    pin(core(1));
    let rows = ITEMS.iter().map(|item| measure(plan, item, &contestants));
    let rows = rows.collect::<Result<Vec<_>>>()?;
    let minute = steady(plan, &contestants[0])?;
    drop(contestants);
    sh::empty("bench/nfs")?;
    let unfs3 = if sh::found("unfsd") { ", unfs3 0.11.0" } else { "" };
    let method = format!(
        "{}; {}{unfs3}; {} rounds of {:.1} s for each server in turn, order alternating; server on \
         processor 0, client on processor 1, one connection. Each line is compared with the first \
         of its row: median and range over the rounds of upcall's rate over its rate, and of \
         upcall's processor time over its own. Writes are UNSTABLE.\n",
        rig::machine::describe(),
        record::packages(&["nfs-ganesha"]),
        plan.rounds,
        plan.time.as_secs_f64(),
    );
    Ok(format!("{method}\n{}\n{minute}\n", markdown(&rows)))
}

fn measure(plan: &Plan, item: &Item, contestants: &[Contestant]) -> Result<Row> {
    eprintln!("   {}", item.name);
    let shown = |it: &&Contestant| item.changes || it.peer != Peer::Async;
    let contestants: Vec<_> = contestants.iter().filter(shown).collect();
    let mut results: Vec<_> = contestants.iter().map(|it| (it.peer, Vec::new(), None)).collect();
    let mut order: Vec<usize> = (0..contestants.len()).collect();
    for _ in 0..plan.rounds {
        for at in &order {
            let (it, name) = (contestants[*at], contestants[*at].peer.name());
            let taken = sample(&it.server, || work(it, item, plan.time));
            let context = || {
                let printed = it.server.printed();
                format!("{} on {name}: {}", item.name, sh::tail(&printed, 300))
            };
            results[*at].1.push(taken.with_context(context)?);
        }
        order.reverse();
    }
    for (it, result) in contestants.iter().zip(&mut results) {
        let counted = count_calls(&it.server, |time| work(it, item, time));
        result.2 = counted.inspect_err(|error| eprintln!("   {error:#}")).ok();
    }
    Ok(Row { work: item.name, results })
}

/// Works for this time; returns the number of completed operations.
fn work(contestant: &Contestant, item: &Item, time: Duration) -> Result<u64> {
    let (mut client, place) = contestant.connect()?;
    let build = |slot: &mut Slot, arguments: Arguments<'_>| (item.build)(&place, slot, arguments);
    client.run(&Work { steps: (item.steps)(&place), build: &build }, item.depth, time)
}

/// Measures whether the rate is steady over sixty times the usual time.
fn steady(plan: &Plan, contestant: &Contestant) -> Result<String> {
    let item = &ITEMS[2];
    let time = plan.time * 60 / u32::try_from(PARTS)?;
    let samples = (0..PARTS).map(|_| sample(&contestant.server, || work(contestant, item, time)));
    let samples = samples.collect::<Result<Vec<_>>>()?;
    let spread = |figure: fn(&Sample) -> f64| {
        let figures = || samples.iter().map(figure);
        let middle = median(figures());
        let low = figures().fold(f64::INFINITY, f64::min) / middle;
        let high = figures().fold(0.0, f64::max) / middle;
        format!("{low:.2}..{high:.2}")
    };
    Ok(format!(
        "Over {:.0} s, {} had in parts of {:.0} s {} of the median rate, at {} of the median \
         processor time.",
        (time * u32::try_from(PARTS)?).as_secs_f64(),
        item.name,
        time.as_secs_f64(),
        spread(|sample| sample.rate),
        spread(|sample| sample.cpu_us),
    ))
}

fn markdown(rows: &[Row]) -> String {
    let mut text = String::from(
        "| work | server | operations/s | upcall to it | CPU µs/operation | upcall to it | \
         calls/operation |\n|---|---|--:|--:|--:|--:|--:|\n",
    );
    for row in rows {
        let Some((_, own, _)) = row.results.first() else { continue };
        for (number, (peer, samples, calls)) in row.results.iter().enumerate() {
            let figure = |of: fn(&Sample) -> f64| median(samples.iter().map(of));
            let ratio = |of: fn(&Sample) -> f64| {
                let list = |samples: &[Sample]| samples.iter().map(of).collect::<Vec<_>>();
                match number {
                    0 => String::new(),
                    _ => super::figures::ratio(&list(own), &list(samples)),
                }
            };
            let _ = writeln!(
                text,
                "| {} | {} | {:.0} | {} | {:.1} | {} | {} |",
                if number == 0 { row.work } else { "" },
                peer.name(),
                figure(|sample| sample.rate),
                ratio(|sample| sample.rate),
                figure(|sample| sample.cpu_us),
                ratio(|sample| sample.cpu_us),
                calls.map_or("–".into(), |calls| format!("{calls:.2}")),
            );
        }
    }
    text
}

fn read(place: &Handles, slot: &mut Slot, arguments: Arguments<'_>) -> u32 {
    let offset = slot.below(FILE_BYTES / u64::from(PAGE)) * u64::from(PAGE);
    slot.wanted = PAGE;
    arguments.handle(&place.big).u64(offset).u32(PAGE);
    READ
}

fn getattr(place: &Handles, _slot: &mut Slot, arguments: Arguments<'_>) -> u32 {
    arguments.handle(&place.big);
    GETATTR
}

fn small(place: &Handles, slot: &mut Slot, arguments: Arguments<'_>) -> u32 {
    if slot.step == 0 {
        let name = slot.below(SMALL_FILES).to_string();
        arguments.handle(&place.small).opaque(name.as_bytes());
        return LOOKUP;
    }
    slot.wanted = SMALL;
    arguments.handle(&slot.handle).u64(0).u32(PAGE);
    READ
}

/// Returns the number of calls for a MiB.
fn pieces(place: &Handles) -> usize {
    (MIB / piece(place)) as usize
}

/// Returns the size of sequential READs, bytes: the largest power of two that the server allows.
fn piece(place: &Handles) -> u32 {
    1 << place.read_max.min(MIB).ilog2()
}

fn sequential(place: &Handles, slot: &mut Slot, arguments: Arguments<'_>) -> u32 {
    slot.wanted = piece(place);
    let offset = place.next.get();
    place.next.set((offset + u64::from(slot.wanted)) % FILE_BYTES);
    arguments.handle(&place.big).u64(offset).u32(slot.wanted);
    READ
}

fn create(place: &Handles, slot: &mut Slot, arguments: Arguments<'_>) -> u32 {
    let name = format!("new-{}", slot.index);
    match slot.step {
        0 => {
            let arguments = arguments.handle(&place.root).opaque(name.as_bytes()).u32(GUARDED);
            // Mode 0644; owner, group, size and times unset.
            [1, 0o644, 0, 0, 0, 0, 0].into_iter().fold(arguments, Arguments::u32);
            CREATE
        }
        1 => {
            let arguments = arguments.handle(&slot.handle).u64(0).u32(PAGE).u32(UNSTABLE);
            arguments.opaque(&[b'w'; PAGE as usize]);
            WRITE
        }
        _ => {
            arguments.handle(&place.root).opaque(name.as_bytes());
            REMOVE
        }
    }
}
