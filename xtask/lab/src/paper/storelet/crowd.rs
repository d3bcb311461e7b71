//! Figure 4: the rate of the file service beside competitors for its processor.
//!
//! The server and its competitors share one processor, and the load generator has the other, like
//! the separate client machine in the paper. Ours appears several times: with competitors as
//! storelets, which is the paper's promise, and with the same programs as host processes of several
//! scheduling classes.

use super::competitors::{Class, Competitors, Form, Peer, Service, Work, has_groups};
use super::{Lab, spread};
use crate::bench::table::median;
use crate::instrument::{self, number};
use crate::paper::plot::{Axes, Figure};
use anyhow::{Context, Result};
use rig::machine::{core, more_files};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

const FULL: &[usize] = &[0, 10, 25, 50, 100];
const QUICK: &[usize] = &[0, 100];

/// Number of scanned files, and their size.
const FILES: usize = 50;
const BYTES: usize = 64 << 10;
/// Size of the file read by the load, bytes.
const READ_BYTES: usize = 32 << 20;

/// Open-loop rate, requests per second, below the capacity of an idle server. Beside a hundred
/// processes it exceeds the capacity, and the backlog is awaited.
const RATE: &str = "300";
/// Concurrent requests in the closed loop, which saturates the server.
const USERS: &str = "8";

/// Minimum share of its rate that the service keeps beside any number of hostile storelets, and
/// maximum ratio of its p99.
const KEPT: f64 = 0.95;
const LONGER: f64 = 2.0;

/// A server and the form of its competitors.
type Contest = (Peer, Form);

const CONTESTS: [Contest; 7] = [
    (Peer::Ours, Form::Storelet),
    (Peer::Ours, Form::Process(Class::Nice)),
    (Peer::Ours, Form::Process(Class::Idle)),
    (Peer::Ours, Form::Process(Class::Shares)),
    (Peer::Ours, Form::Process(Class::Usual)),
    (Peer::Diod, Form::Process(Class::Usual)),
    (Peer::Ganesha, Form::Process(Class::Usual)),
];

const WORKS: [Work; 3] = [Work::Sleep, Work::Spin, Work::Scan];

/// Results of a contest with one kind of work: a list for each count of competitors, a figure for
/// each round.
struct Series {
    contest: Contest,
    work: Work,
    /// Maximum I/Os per second.
    rates: Vec<Vec<f64>>,
    /// Response times at [`RATE`], µs.
    p50: Vec<Vec<f64>>,
    p99: Vec<Vec<f64>>,
}

impl Series {
    fn name(&self) -> &'static str {
        match self.contest {
            (Peer::Ours, Form::Storelet) => "ours, storelets",
            (Peer::Ours, Form::Process(Class::Nice)) => "ours, nice 19",
            (Peer::Ours, Form::Process(Class::Idle)) => "ours, SCHED_IDLE",
            (Peer::Ours, Form::Process(Class::Shares)) => "ours, cpu.shares 2",
            (Peer::Ours, Form::Process(Class::Usual)) => "ours, processes",
            (Peer::Diod, _) => "diod, processes",
            (Peer::Ganesha, _) => "nfs-ganesha, processes",
        }
    }
}

/// Measures and writes the section.
pub(super) fn measure(lab: &mut Lab) -> Result<()> {
    more_files();
    let dir = ground(&lab.base)?;
    let counts = lab.of(FULL, QUICK);
    let none = || vec![Vec::new(); counts.len()];
    let has_groups = has_groups();
    let is_possible =
        |(contest, _): &(Contest, Work)| has_groups || contest.1 != Form::Process(Class::Shares);
    let mut all: Vec<Series> = WORKS
        .into_iter()
        .flat_map(|work| CONTESTS.map(|contest| (contest, work)))
        .filter(is_possible)
        .map(|(contest, work)| Series { contest, work, rates: none(), p50: none(), p99: none() })
        .collect();
    for round in 0..lab.of(3, 2) {
        for series in &mut all {
            lab.tell(&format!("round {round}: {}, {:?}", series.name(), series.work));
            once(lab, series, &dir, counts, round % 2 == 1).with_context(|| series.name())?;
        }
    }
    write(lab, &all, counts);
    draw(lab, &all, counts)
}

fn ground(base: &Path) -> Result<PathBuf> {
    let dir = base.join("crowd");
    std::fs::create_dir_all(dir.join("scan"))?;
    let bytes = |len: usize| (0..len).map(|at| b"some text\n"[at % 10]).collect::<Vec<u8>>();
    for number in 0..FILES {
        std::fs::write(dir.join(format!("scan/{number}")), bytes(BYTES))?;
    }
    std::fs::write(dir.join("file"), bytes(READ_BYTES))?;
    Ok(dir.canonicalize()?)
}

/// Measures one round: with a growing number of competitors, as in the paper, or with a falling
/// one, so that the order is not always the same.
fn once(
    lab: &Lab,
    series: &mut Series,
    dir: &Path,
    counts: &[usize],
    is_falling: bool,
) -> Result<()> {
    let (peer, form) = series.contest;
    let service = Service::start(lab, peer, dir, core(0))?;
    let mut competitors = Competitors::new((form, series.work), service.port(), dir, core(0));
    let (closed, open) = lab.of(("2s", "3s"), ("1s", "1s"));
    let target = format!("9p://127.0.0.1:{}/file", service.port());
    let aname = dir.display().to_string();
    let load = |more: &[&str]| {
        let words = ["--target", &target, "--aname", &aname, "--workers", "1", "--size", "4K"];
        instrument::run(&[&words[..], more].concat(), core(1))
    };
    // A warm-up run, before the competitors.
    load(&["--users", USERS, "--seconds", closed])?;
    let mut order: Vec<(usize, usize)> = counts.iter().copied().enumerate().collect();
    if is_falling {
        order.reverse();
    }
    for (at, count) in order {
        competitors.become_many(count)?;
        series.rates[at].push(number(&load(&["--users", USERS, "--seconds", closed])?, "/rate"));
        let open = load(&["--rate", RATE, "--seconds", open])?;
        series.p50[at].push(number(&open, "/times/together/response/p50") / 1e3);
        series.p99[at].push(number(&open, "/times/together/response/p99") / 1e3);
    }
    Ok(())
}

fn write(lab: &mut Lab, all: &[Series], counts: &[usize]) {
    let _ = writeln!(
        lab.text,
        "\n## The file service beside competitors\n\nFigure 4 of the paper. The server and its \
         competitors share processor 0, the load is made on processor 1: reads of 4 KiB at \
         random of a file in the page cache, by 9P2000.L. Competitors are the paper's (*sleep*: \
         a second of sleep, a million turns of a loop, again and again), count (*spin*), or read \
         {FILES} files of 64 KiB again and again (*scan*), the same source as storelets and as \
         processes. Storelets run on threads of nice 19; so processes are there with nice 0 \
         (*processes*, as in the paper), nice 19, `SCHED_IDLE`, and in a control group with the \
         smallest share. Medians and ranges of {} rounds, the servers in turn, with more \
         and more competitors or fewer and fewer.\n",
        lab.of(3, 2)
    );
    for work in WORKS {
        let name = format!("{work:?}").to_lowercase();
        let of_work = || all.iter().filter(|series| series.work == work);
        let _ = writeln!(lab.text, "### {name}: I/Os a second, {USERS} in flight\n");
        table(lab, of_work(), counts, &|series, at| {
            let kept: Vec<f64> = series.rates[at]
                .iter()
                .zip(&series.rates[0])
                .map(|(now, alone)| now / alone)
                .collect();
            let rate = median(series.rates[at].iter().copied());
            format!("{rate:.0}, {}", spread(&kept, &|share| format!("{:.0} %", share * 100.0)))
        });
        let _ = writeln!(
            lab.text,
            "\n### {name}: response at {RATE} I/Os a second, µs: median, and p99\n"
        );
        table(lab, of_work(), counts, &|series, at| {
            let micros = |value: f64| format!("{value:.0}");
            format!(
                "{}; {}",
                micros(median(series.p50[at].iter().copied())),
                spread(&series.p99[at], &micros)
            )
        });
        lab.text.push('\n');
    }
    lab.text += "The paper: with a hundred competitors as processes beside it, Linux's NFS \
                 server answered a small part of the requests that it answered alone, and \
                 it promised better for storelets without measuring it.\n\n";
    goals(lab, all, counts);
}

fn table<'a>(
    lab: &mut Lab,
    rows: impl Iterator<Item = &'a Series>,
    counts: &[usize],
    cell: &dyn Fn(&Series, usize) -> String,
) {
    lab.text += "| server, competitors |";
    counts.iter().for_each(|count| lab.text += &format!(" {count} |"));
    lab.text += &format!("\n|---|{}\n", "--:|".repeat(counts.len()));
    for series in rows {
        lab.text += &format!("| {} |", series.name());
        (0..counts.len()).for_each(|at| lab.text += &format!(" {} |", cell(series, at)));
        lab.text.push('\n');
    }
}

fn goals(lab: &mut Lab, all: &[Series], counts: &[usize]) {
    let ratio = |of: &[Vec<f64>], at: usize| {
        median(of[at].iter().zip(&of[0]).map(|(now, alone)| now / alone))
    };
    for series in all.iter().filter(|series| series.contest == (Peer::Ours, Form::Storelet)) {
        let word = format!("{:?}", series.work).to_lowercase();
        for (at, count) in counts.iter().enumerate().skip(1) {
            let beside = format!("beside {count} storelets that {word}");
            let kept = ratio(&series.rates, at);
            let goal = format!("at least {:.0} % of the rate {beside}", KEPT * 100.0);
            lab.goal(&goal, &format!("{:.1} %", kept * 100.0), kept >= KEPT);
            let longer = ratio(&series.p99, at);
            let goal = format!("p99 less than {LONGER:.0} times as long {beside}");
            lab.goal(&goal, &format!("{longer:.2} times"), longer < LONGER);
        }
    }
}

fn draw(lab: &mut Lab, all: &[Series], counts: &[usize]) -> Result<()> {
    for work in WORKS {
        #[expect(clippy::cast_precision_loss, reason = "small counts")]
        let line = |series: &Series| {
            let point = |(count, rates): (&usize, &Vec<f64>)| {
                (*count as f64, median(rates.iter().copied()))
            };
            counts.iter().zip(&series.rates).map(point).collect()
        };
        let of_work = all.iter().filter(|series| series.work == work);
        let lines = of_work.map(|series| (series.name(), line(series))).collect();
        let name = format!("{work:?}").to_lowercase();
        let title = format!("I/Os a second beside competitors that {name}");
        let (x, y) = ("competitors", "I/Os a second");
        let figure = Figure { title: &title, x, y, lines, axes: Axes::Linear };
        lab.figure(&format!("storelet-{name}"), &figure)?;
    }
    Ok(())
}
