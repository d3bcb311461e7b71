//! Five jobs, run in three ways: on the host's files, over a mount, and beside the data.

use super::mount::{Client, mount};
use super::work::{self, Done, JOBS, Job};
use super::{Lab, seconds, spread};
use crate::bench::table::median;
use crate::link;
use crate::paper::plot::{Axes, Figure};
use anyhow::{Context, Result, ensure};
use rig::server::Server;
use rig::{apt, sh, vm};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Minimum speed-up of `find` over a mount with 1 ms delay.
const FASTER: f64 = 200.0;

/// A link between client and server.
struct Link {
    name: &'static str,
    delay: Duration,
    /// Directory of `find` over the mount, and directory of jobs that read files.
    find: &'static str,
    read: &'static str,
}

const fn link(name: &'static str, ms: u64, find: &'static str, read: &'static str) -> Link {
    Link { name, delay: Duration::from_millis(ms), find, read }
}

const FULL: [Link; 3] = [
    link("loopback", 0, ".", "kernel"),
    link("1 ms each way", 1, ".", "kernel"),
    link("20 ms each way", 20, "fs", "kernel/time"),
];
const QUICK: [Link; 3] = [
    link("loopback", 0, "kernel", "kernel/time"),
    link("1 ms each way", 1, "kernel", "kernel/time"),
    link("20 ms each way", 20, "kernel/time", "kernel/time"),
];

/// Timeout of a job over a mount.
const MOUNT_MOST: Duration = Duration::from_secs(150);
const LOCAL_MOST: Duration = Duration::from_secs(600);

/// Results of a job over one link.
struct Row {
    link: &'static str,
    delay_ms: f64,
    job: Job,
    local: Vec<f64>,
    beside: Vec<f64>,
    over: Vec<Over>,
}

/// Result over a mount: of a part, extrapolated to the whole.
struct Over {
    client: Client,
    part: &'static str,
    /// Duration, seconds; `None` after a timeout.
    took: Option<f64>,
    /// Ratio of the whole to the part, in files.
    times: f64,
}

impl Over {
    /// Returns the duration of the whole, seconds; a lower bound after a timeout.
    fn whole(&self) -> f64 {
        self.took.unwrap_or(MOUNT_MOST.as_secs_f64()) * self.times
    }
}

/// Measures and writes the section.
pub(super) fn measure(lab: &mut Lab) -> Result<()> {
    let tree = rig::linux::source()?;
    let database = work::database(&lab.base)?;
    let links = lab.of(FULL, QUICK);
    let parts: Vec<&'static str> =
        links.iter().flat_map(|link| [link.find, link.read]).chain(["."]).collect();
    let entries = work::entries(&tree, &parts)?;
    let places = Places { tree, database, entries };
    let mut rows = Vec::new();
    let mut accuracies = Vec::new();
    for link in &links {
        if !link.delay.is_zero() {
            accuracies.push((link.name, link::accuracy(link.delay)?));
        }
        for job in JOBS {
            lab.tell(&format!("{}, {}", job.name(), link.name));
            rows.push(row(lab, &places, link, job).with_context(|| job.name())?);
        }
    }
    let server = lab.serve(&places.tree, None)?;
    let lines = work::search_from_the_root(&places.tree, server.ninep)?;
    write(lab, &places, &rows, &accuracies, lines);
    if lab.kernel {
        kernel(lab, &server, links[1].find)?;
    }
    draw(lab, &rows)
}

/// Measures `find` by Linux's own client in the virtual machine, over the link of 1 ms, and the
/// storelet over the same link.
fn kernel(lab: &mut Lab, server: &Server, part: &str) -> Result<()> {
    lab.tell("find by Linux's 9P client in a virtual machine");
    apt::need(&[apt::VM])?;
    let port = link::relay(server.ninep, Duration::from_millis(1))?;
    let script = vm::mount_script(port, &server.dir.display().to_string(), "cache=none,ro")
        + &format!(
            "cd /mnt; begun=$(cut -d' ' -f1 /proc/uptime)\n\
             echo \"@found $(/usr/bin/find {part} -name itimer.c)\"\n\
             echo \"@times $begun $(cut -d' ' -f1 /proc/uptime)\"; cd /\n"
        );
    let job = vm::Job::new("storelet", &script)?;
    job.program(&sh::which("find").context("no find")?)?;
    let printed = job.run()?;
    let line = |head: &str| printed.lines().find_map(|line| line.trim().strip_prefix(head));
    let nothing = || format!("the kernel's client found nothing: {}", sh::tail(&printed, 500));
    let found = line("@found ").with_context(nothing)?;
    ensure!(found.ends_with("kernel/time/itimer.c"), "the kernel's client found {found:?}");
    let times = line("@times ").context("no times")?;
    let times: Vec<f64> = times.split(' ').filter_map(|time| time.parse().ok()).collect();
    ensure!(times.len() == 2, "no times: {times:?}");
    let took = times[1] - times[0];
    let own = work::beside(Job::Find, port, part)?.seconds;
    let _ = writeln!(
        lab.text,
        "\nAs a check, `find {part}` by Linux's own 9P client, in a virtual machine whose \
         processor is emulated: {} s over the link of 1 ms, {:.0} times as long as the storelet \
         there ({} s).\n",
        seconds(took),
        took / own,
        seconds(own),
    );
    Ok(())
}

struct Places {
    tree: PathBuf,
    database: PathBuf,
    /// Number of files in each part of the tree.
    entries: BTreeMap<&'static str, f64>,
}

impl Places {
    fn of(&self, job: Job) -> &Path {
        if job == Job::Query { &self.database } else { &self.tree }
    }
}

fn row(lab: &Lab, places: &Places, link: &Link, job: Job) -> Result<Row> {
    let dir = places.of(job);
    let server = lab.serve(dir, None)?;
    let over = |port| if link.delay.is_zero() { Ok(port) } else { link::relay(port, link.delay) };
    let (ninep, http) = (over(server.ninep)?, over(server.http)?);
    // A warm-up run: it reads files into the page cache and compiles the module.
    let expected = local(job, dir, ".")?;
    work::beside(job, server.ninep, ".")?.same(&expected, "beside the data and locally")?;
    let rounds = match job {
        Job::Find | Job::Grep | Job::Query => lab.of(7, 3),
        Job::Count | Job::Sums => lab.of(3, 1),
    };
    let (mut locally, mut beside) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        locally.push(local(job, dir, ".")?.seconds);
        let done = work::beside(job, ninep, ".")?;
        done.same(&expected, "beside the data and locally")?;
        beside.push(done.seconds);
    }
    let part = match job {
        Job::Find => link.find,
        Job::Grep | Job::Count | Job::Sums => link.read,
        Job::Query => ".",
    };
    let mut mounts = vec![mounted(lab, places, job, part, (Client::Rclone, http))?];
    if job == Job::Find {
        mounts.push(mounted(lab, places, job, part, (Client::Mount9p, ninep))?);
    }
    mounts.push(mounted(lab, places, job, part, (Client::Upcall, ninep))?);
    let delay_ms = link.delay.as_secs_f64() * 1e3;
    Ok(Row { link: link.name, delay_ms, job, local: locally, beside, over: mounts })
}

fn local(job: Job, dir: &Path, part: &str) -> Result<Done> {
    work::locally(job, dir, part, LOCAL_MOST)?.context("the local command does not end")
}

fn mounted(
    lab: &Lab,
    places: &Places,
    job: Job,
    part: &'static str,
    (client, port): (Client, u16),
) -> Result<Over> {
    let dir = places.of(job);
    let place = lab.base.join("mount");
    let expected = local(job, dir, part)?;
    let _mount = mount(client, port, &place)?;
    let done = work::locally(job, &place, part, MOUNT_MOST).with_context(|| client.name())?;
    if let Some(done) = &done {
        done.same(&expected, &format!("over {} and locally", client.name()))?;
    }
    let times = match job {
        Job::Query => 1.0,
        Job::Find | Job::Grep | Job::Count | Job::Sums => {
            places.entries["."] / places.entries[part]
        }
    };
    Ok(Over { client, part, took: done.map(|done| done.seconds), times })
}

fn write(
    lab: &mut Lab,
    places: &Places,
    rows: &[Row],
    accuracies: &[(&str, link::Accuracy)],
    lines: usize,
) {
    let _ = writeln!(
        lab.text,
        "\n## A job beside the data\n\nLinux's source, {:.0} files and directories, in the page \
         cache; for SQL a table of 400,000 rows. *Local* is a command on the host's files ({}). \
         *Storelet* is `upcall run` from its start to its end, its module known to the server. \
         *Mount* is the local command on a mount made for it. Wall clock, seconds, medians and \
         ranges, in turn; nobody is bound to a processor. All three have printed the same bytes, \
         lines sorted: else there would be no page.\n",
        places.entries["."],
        JOBS.map(|job| format!("{}: {}", job.name(), job.locally())).join(", "),
    );
    for (name, accuracy) in accuracies {
        let _ = writeln!(
            lab.text,
            "- The link *{name}* is a relay that holds every byte so long; a message there and \
             back took {:.0} µs more than that (median; p99 {:.0} µs).",
            accuracy.median, accuracy.p99
        );
    }
    lab.text += "\n| job | link | local | storelet | local : storelet | mount | of it | took | \
                 the whole | mount : storelet |\n|---|---|--:|--:|--:|---|---|--:|--:|--:|\n";
    for row in rows {
        let own = median(row.beside.iter().copied());
        for (at, over) in row.over.iter().enumerate() {
            let head = match at {
                0 => format!(
                    "{} | {} | {} | {} | {} |",
                    row.job.name(),
                    row.link,
                    spread(&row.local, &seconds),
                    spread(&row.beside, &seconds),
                    ratios(&row.local, &row.beside)
                ),
                _ => " | | | | |".to_owned(),
            };
            let _ = writeln!(
                lab.text,
                "| {head} {} | {} | {} | {} | {:.0} |",
                over.client.name(),
                if over.part == "." { "all" } else { over.part },
                over.took.map_or(format!("> {}", MOUNT_MOST.as_secs()), seconds),
                whole(over),
                over.whole() / own,
            );
        }
    }
    lab.text += "\n*≈*: extrapolated from a part, by the number of files in it and in all. \
                 *>*: was ended then.\n\nThe paper: `find` of linux-2.4.6 took 2.86 s over NFS \
                 and 0.05 s locally, 57 times less.\n\n";
    let _ = writeln!(
        lab.text,
        "`upcall run rg.wasm -- --no-ignore-vcs -n do_setitimer /` printed the {lines} lines that \
         ripgrep 15.2.0 prints with `--no-ignore-vcs -n -j1 do_setitimer .` in the directory, but \
         for the dot in front.\n",
    );
    goals(lab, rows);
}

fn goals(lab: &mut Lab, rows: &[Row]) {
    let find = |delay: f64| rows.iter().find(|row| row.job == Job::Find && row.delay_ms >= delay);
    if let Some(row) = find(1.0) {
        let own = median(row.beside.iter().copied());
        for over in &row.over {
            let times = over.whole() / own;
            let goal = format!(
                "find beside the data at least {FASTER:.0} times faster than over {} with 1 ms",
                over.client.name()
            );
            lab.goal(&goal, &format!("{times:.0} times"), times >= FASTER);
        }
    }
    for row in rows {
        let (own, others): (Vec<&Over>, Vec<&Over>) =
            row.over.iter().partition(|over| over.client == Client::Upcall);
        let best = |over: &[&Over]| over.iter().map(|over| over.whole()).fold(f64::MAX, f64::min);
        let times = best(&others) / best(&own);
        let goal = format!(
            "{} over `upcall mount`, {}, at least as fast as over the best other mount",
            row.job.name(),
            row.link
        );
        lab.goal(&goal, &format!("{times:.2} times as fast"), times >= 1.0);
    }
    for row in rows.iter().filter(|row| row.delay_ms == 0.0) {
        let times = median(row.local.iter().zip(&row.beside).map(|(local, own)| local / own));
        let goal = format!("{} at least as fast as locally", row.job.name());
        lab.goal(&goal, &format!("{times:.2} times as fast"), times >= 1.0);
    }
}

fn whole(over: &Over) -> String {
    match (over.took, over.times > 1.0) {
        (Some(_), false) => seconds(over.whole()),
        (Some(_), true) => format!("≈ {}", seconds(over.whole())),
        (None, _) => format!("> {}", seconds(over.whole())),
    }
}

/// Formats the ratios of the first to the second, round by round.
fn ratios(local: &[f64], beside: &[f64]) -> String {
    let all: Vec<f64> = local.iter().zip(beside).map(|(local, own)| local / own).collect();
    spread(&all, &|ratio| format!("{ratio:.2}"))
}

fn draw(lab: &mut Lab, rows: &[Row]) -> Result<()> {
    let found: Vec<&Row> = rows.iter().filter(|row| row.job == Job::Find).collect();
    // A logarithmic axis has no zero.
    let line = |of: &dyn Fn(&Row) -> f64| {
        found.iter().map(|row| (row.delay_ms.max(0.1), of(row))).collect::<Vec<_>>()
    };
    let over = |client: Client| {
        line(&|row: &Row| {
            let over = row.over.iter().find(|over| over.client == client);
            over.map_or(f64::NAN, Over::whole)
        })
    };
    let lines = vec![
        ("over rclone", over(Client::Rclone)),
        ("over mount9p", over(Client::Mount9p)),
        ("over upcall mount", over(Client::Upcall)),
        ("storelet", line(&|row| median(row.beside.iter().copied()))),
        ("local", line(&|row| median(row.local.iter().copied()))),
    ];
    let (title, x) = ("find in Linux's source, by delay", "milliseconds each way (0.1: loopback)");
    let figure = Figure { title, x, y: "seconds", lines, axes: Axes::Logarithmic };
    lab.figure("storelet-find", &figure)
}
