//! Repeated `kill -9` during writes, with the real kernel and both reactors. Acknowledged changes
//! survive, and the volume is consistent.
//!
//! After every other kill `upcall volume check` recovers the volume; after the others it checks
//! without writing, and the next server recovers it.

use super::TRUST;
use super::story::{Random, Story, seen_by};
use anyhow::{Context, Result, ensure};
use rig::files::Files;
use rig::report::Report;
use rig::server::{Kind, Server};
use rig::{sh, volume};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const CLIENTS: u32 = 6;

/// Duration: by default, and with `--long`.
const SPAN: Duration = Duration::from_secs(15);
const SPAN_LONG: Duration = Duration::from_secs(600);

/// Runs the suite.
pub(crate) fn run(report: &mut Report, kind: Kind) -> Result<()> {
    if kind == Kind::Diod {
        report.skip("volume-kill", "diod has no volumes");
        return Ok(());
    }
    let span = if report.long { SPAN_LONG } else { SPAN };
    let file = sh::scratch("served")?.join("kill.volume");
    volume::create(&file, "512M")?;
    let mut stories: Vec<Story> = (0..CLIENTS).map(Story::new).collect();
    report.case("volume-kill/nothing_acknowledged_is_lost", || {
        let (start, mut rounds) = (Instant::now(), 0);
        while start.elapsed() < span {
            rounds += 1;
            round(&file, rounds, &mut stories)
                .with_context(|| format!("round {rounds}; the volume is {}", file.display()))?;
        }
        let deeds: u64 = stories.iter().map(|story| story.deeds).sum();
        Ok(format!("{rounds} kills, {deeds} acknowledged changes"))
    });
    report.case("volume-kill/check", || volume::check(&file));
    Ok(())
}

/// Starts a server, verifies the contents, runs the clients, kills the server, and checks the
/// volume.
fn round(file: &Path, number: usize, stories: &mut [Story]) -> Result<()> {
    let kind = if number.is_multiple_of(2) { Kind::Threads } else { Kind::Uring };
    let extra = [TRUST, &["--http-write", "--as", "root"]].concat();
    let mut server = Server::start(kind, file, &extra)?;
    let mut files = Files::of(&server)?;
    for story in stories.iter_mut() {
        let seen = seen_by(&mut files, &story.dir())?;
        story.agrees(&seen)?;
        // The files found are the baseline of the next round.
        story.files = seen;
        story.deeds += 1;
    }
    let life = Duration::from_millis(20 + Random(number as u64).below(400) as u64);
    let ports = (server.ninep, server.http);
    let killed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let go_on = |story: &mut Story| {
            let end = story.go_on(ports, |_| Ok(true));
            let early = !killed.load(Ordering::SeqCst);
            if early { end.context("before the kill") } else { Ok(()) }
        };
        let clients: Vec<_> =
            stories.iter_mut().map(|story| scope.spawn(move || go_on(story))).collect();
        std::thread::sleep(life);
        let alive = server.alive();
        killed.store(true, Ordering::SeqCst);
        server.kill()?;
        for client in clients {
            client.join().expect("a client panics nowhere")?;
        }
        ensure!(alive, "the server died by itself: {}", sh::tail(&server.printed(), 500));
        Ok(())
    })?;
    let_go(file)?;
    match number % 4 {
        0 | 1 => volume::check(file).map(|_| ()),
        _ => Ok(()),
    }
}

/// Waits until the volume's lock is free, and checks it without writing. The kernel completes the
/// ring's operations in flight, and releases the lock, shortly after the process has exited.
fn let_go(file: &Path) -> Result<()> {
    let start = Instant::now();
    loop {
        match volume::look(file) {
            Err(error) if error.to_string().contains("in use") => {
                ensure!(start.elapsed() < Duration::from_secs(60), "{error:#}");
            }
            other => return other.map(|_| ()),
        }
    }
}
