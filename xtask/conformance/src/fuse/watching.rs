//! Changes that a server reports: caches of mounts that last until then, and other watchers.

use super::watched::{Watched, messages, until};
use super::{ahead, signal, until_it_waits};
use crate::ground::Ground;
use anyhow::{Context as _, Result, bail, ensure};
use rig::mounted::Mounted;
use rig::server::{Kind, Server, until_closed};
use rig::sh;
use rustix::process::Signal;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Rounds of changes.
const ROUNDS: usize = 50;

/// Returns how often attributes and entries were requested.
fn questions(server: &Server) -> Result<u64> {
    messages(server, &["Getattr", "Readdir"])
}

/// Waits until files can be looked at without a question, after the reports of earlier changes.
fn until_cached(server: &Server, mut look: impl FnMut() -> bool) -> Result<()> {
    until("a look without questions", || {
        let before = questions(server);
        let is_right = look();
        let after = questions(server);
        is_right && before.is_ok() && before.ok() == after.ok()
    })
}

/// Looks at a tree twice: the second time without a question, until something changes.
pub(super) fn cached(watched: &Watched<'_>) -> Result<String> {
    let dir = watched.a.join("cached");
    fs::create_dir(&dir)?;
    for number in 0..20 {
        fs::create_dir(dir.join(format!("d{number}")))?;
        for file in 0..10 {
            fs::write(dir.join(format!("d{number}/f{file}")), "contents")?;
        }
    }
    let look = || sh::read(sh::cmd("find", &[&watched.b.join("cached")]).arg("-ls"));
    let first = look()?;
    ensure!(first.lines().count() == 221, "{} lines", first.lines().count());
    until_cached(watched.server, || look().is_ok_and(|text| text == first))?;
    fs::write(dir.join("d7/f3"), "more contents")?;
    until("a new size", || look().is_ok_and(|text| text != first))?;
    fs::remove_dir_all(&dir)?;
    until("the removal", || !watched.b.join("cached").exists())?;
    Ok(String::new())
}

/// Changes files on one mount and waits until the other one shows it.
pub(super) fn seen(watched: &Watched<'_>) -> Result<String> {
    let [a, b] = [watched.a, watched.b].map(|dir| dir.join("seen-soon"));
    let [a2, b2] = [watched.a, watched.b].map(|dir| dir.join("seen-later"));
    let begin = Instant::now();
    for round in 0..ROUNDS {
        ensure!(!b.exists() && !b2.exists(), "round {round}: it is there");
        let text = format!("round {round}");
        fs::write(&a, &text)?;
        until("a new file", || fs::read_to_string(&b).is_ok_and(|it| it == text))?;
        fs::write(&a, text.repeat(2))?;
        until("new contents", || fs::read_to_string(&b).is_ok_and(|it| it == text.repeat(2)))?;
        sh::run(sh::cmd("chmod", &["600"]).arg(&a))?;
        let mode = |path: &Path| {
            use std::os::unix::fs::PermissionsExt as _;
            path.metadata().map(|it| it.permissions().mode() & 0o777).ok()
        };
        until("a new mode", || mode(&b) == Some(0o600))?;
        fs::rename(&a, &a2)?;
        until("the new name", || b2.exists() && !b.exists())?;
        fs::remove_file(&a2)?;
        until("a removal", || !b2.exists())?;
        let listed = fs::read_dir(watched.b)?.filter_map(Result::ok);
        ensure!(!listed.map(|it| it.path()).any(|it| it == b || it == b2), "it is listed");
    }
    Ok(format!("{ROUNDS} rounds in {} ms", begin.elapsed().as_millis()))
}

/// A program that watches, and its lines.
struct Watcher(Child, BufReader<std::process::ChildStdout>);

impl Watcher {
    fn start(program: &str, words: &[String]) -> Result<Watcher> {
        let mut child = sh::cmd(program, words).stdout(Stdio::piped()).spawn()?;
        let output = BufReader::new(child.stdout.take().context("it is a pipe")?);
        Ok(Watcher(child, output))
    }

    /// Reads until a line has this part.
    fn expect(&mut self, part: &str) -> Result<()> {
        loop {
            let mut line = String::new();
            if self.1.read_line(&mut line)? == 0 {
                bail!("it ended before a line with {part}");
            }
            if line.contains(part) {
                return Ok(());
            }
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Watches with curl and with `upcall watch` what a mount changes.
pub(super) fn watchers(watched: &Watched<'_>) -> Result<String> {
    let Watched { server, a, .. } = watched;
    fs::create_dir(a.join("watched"))?;
    let url = format!("http://127.0.0.1:{}/watched?watch=all", server.http);
    let mut curl = Watcher::start("curl", &["-sSN".to_owned(), url])?;
    let program = rig::server::binary().display().to_string();
    let words = ["watch", &format!("127.0.0.1:{}", server.ninep), "/watched", "-r", "--json"];
    let mut command = Watcher::start(&program, &words.map(str::to_owned))?;
    let mut each = |part: &str| curl.expect(part).and_then(|()| command.expect(part));
    each("\"change\":\"watching\"")?;
    fs::create_dir_all(a.join("watched/new/deep"))?;
    each("\"created\",\"path\":\"/watched/new/deep\"")?;
    fs::write(a.join("watched/new/deep/file"), "text")?;
    each("\"path\":\"/watched/new/deep/file\",\"type\":\"file\"")?;
    fs::write(a.join("watched/new/deep/file"), "other text")?;
    each("\"written\",\"path\":\"/watched/new/deep/file\"")?;
    fs::rename(a.join("watched/new"), a.join("watched/moved"))?;
    each("\"created\",\"path\":\"/watched/moved/deep/file\"")?;
    fs::remove_dir_all(a.join("watched"))?;
    each("\"removed\",\"path\":\"/watched/moved\"")?;
    let missing = format!("http://127.0.0.1:{}/missing?watch", server.http);
    let words = ["-sS", "-o", "/dev/null", "-w", "%{http_code}", &missing];
    let status = sh::read(&mut sh::cmd("curl", &words))?;
    ensure!(status == "404", "a missing directory: {status}");
    Ok(String::new())
}

/// Stops the server for longer than its reports may be late, and lets it go on.
fn silent(watched: &Watched<'_>) -> Result<String> {
    let b = watched.b.join("silent");
    fs::write(watched.a.join("silent"), "before")?;
    until_cached(watched.server, || b.exists())?;
    let begin = Instant::now();
    signal(watched.server, Signal::STOP)?;
    // What is cached is read as long as the server may just be slow. Then it is waited for.
    let is_over = AtomicBool::new(false);
    let (sender, receiver) = std::sync::mpsc::channel();
    let took = std::thread::scope(|scope| {
        scope.spawn(|| {
            let thread = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
            sender.send(thread).expect("it is awaited");
            while !is_over.load(Ordering::SeqCst) {
                drop(b.metadata());
            }
        });
        let waits = receiver.recv().map_err(anyhow::Error::from).and_then(until_it_waits);
        let took = begin.elapsed();
        is_over.store(true, Ordering::SeqCst);
        signal(watched.server, Signal::CONT)?;
        waits.map(|()| took)
    })?;
    fs::write(watched.a.join("silent"), "after it")?;
    until("new contents", || fs::read_to_string(&b).is_ok_and(|it| it == "after it"))?;
    Ok(format!("relied on for {} ms", took.as_millis()))
}

/// Changes a file while the server is away: the mount looks again when it is back.
pub(super) fn away(
    server: &mut Server,
    (ground, dir): (&Ground, &Path),
    start: impl FnOnce() -> Result<Server>,
) -> Result<String> {
    fs::write(dir.join("away"), "before")?;
    let read = || fs::read_to_string(dir.join("away")).unwrap_or_default();
    ensure!(read() == "before" && !dir.join("other").exists(), "its own file");
    server.kill()?;
    [server.ninep, server.http].into_iter().for_each(until_closed);
    fs::write(ground.dir.join("away"), "something else")?;
    fs::write(ground.dir.join("other"), "")?;
    *server = start()?;
    until("the change", || read() == "something else" && dir.join("other").exists())?;
    Ok(String::new())
}

type Case = fn(&Watched<'_>) -> Result<String>;

const ALL: [(&str, Case); 7] = [
    ("cached_until_changed", cached),
    ("seen_when_changed", seen),
    ("other_watchers", watchers),
    ("sent_ahead", ahead::few_messages),
    ("sent_ahead_and_changed", ahead::changed),
    ("sent_ahead_while_changing", ahead::changing),
    ("silent_server", silent),
];

/// Runs all cases on two mounts.
pub(super) fn run(
    report: &mut rig::report::Report,
    (suite, kind): (&str, Kind),
    ground: &Ground,
    options: &str,
) -> Result<()> {
    let ports = (rig::server::free_port()?, rig::server::free_port()?);
    let mut server = ground.serve_at(kind, ports, &[])?;
    let first = Mounted::start(&server, &format!("{suite}-a"), options)?;
    let second = Mounted::start(&server, &format!("{suite}-b"), options)?;
    let watched = Watched { server: &server, a: &first.dir, b: &second.dir };
    for (case, run) in ALL {
        report.case(&format!("{suite}/{case}"), || run(&watched));
    }
    second.stop()?;
    if options.contains("watch") {
        report.case(&format!("{suite}/changed_while_away"), || {
            away(&mut server, (ground, &first.dir), || ground.serve_at(kind, ports, &[]))
        });
    }
    first.stop()?;
    server.stop().map(|_| ())
}
