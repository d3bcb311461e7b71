//! Racing conditional changes over HTTP: of several with one entity tag exactly one succeeds, and
//! the others are refused with 412; on a directory, a volume and a mounted 9P server, with one
//! front thread and with several. And what is moved while it is removed: it is there as a whole, or
//! gone.

use super::TRUST;
use super::raw::{Answer, Raw};
use anyhow::{Context, Result, ensure};
use rig::report::Report;
use rig::server::{Kind, Server};
use rig::{sh, volume};
use std::path::Path;
use std::sync::Barrier;

/// Rounds with each server: by default, and with `--long`.
const ROUNDS: usize = 250;
const ROUNDS_LONG: usize = 10_000;

/// Racing clients.
const RACERS: usize = 4;

/// Concurrent uploads to names of their own.
const UPLOADS: usize = 128;

/// Rounds with a removal, and the number of files of the directory.
const REMOVALS: usize = 6;
const REMOVED: usize = 64;

/// Runs the suite.
pub(crate) fn run(report: &mut Report, kind: Kind) -> Result<()> {
    if matches!(kind, Kind::Diod | Kind::Nginx) {
        report.skip("races", "only our own server has conditional changes");
        return Ok(());
    }
    let rounds = if report.long { ROUNDS_LONG } else { ROUNDS };
    let base = sh::empty("served/races")?;
    let dir = base.join("dir");
    std::fs::create_dir(&dir)?;
    let file = base.join("races.volume");
    volume::create(&file, "256M")?;
    // The served files belong to the user of this process.
    let uid = rustix::process::geteuid().as_raw().to_string();
    for threads in ["1", "3"] {
        let extra = ["--http-write", "--as", &uid, "--threads", threads];
        let server = Server::start(kind, &dir, &extra)?;
        play(report, &format!("races/directory-{threads}"), &server, "/f", rounds);
        tidy(report, &format!("races/tidy-{threads}"), &dir);
        drop(server);
        let server = Server::start(kind, &file, &extra)?;
        play(report, &format!("races/volume-{threads}"), &server, "/f", rounds);
        drop(server);
    }
    report.case("races/volume_is_clean", || volume::check(&file));
    let behind = Server::start(kind, &dir, TRUST)?;
    let names = base.join("names");
    let (root, port) = (dir.display(), behind.ninep);
    std::fs::create_dir(dir.join("far"))?;
    std::fs::write(&names, format!("mount / host:{root}\nmount -c /far 9p://127.0.0.1:{port}\n"))?;
    let server =
        Server::start_space(kind, &names, &["--http-write", "--as", &uid, "--threads", "2"])?;
    play(report, "races/mounted", &server, "/far/f", rounds);
    Ok(())
}

fn play(report: &mut Report, name: &str, server: &Server, path: &str, rounds: usize) {
    report.case(name, || races(server.http, path, rounds));
    report.case(&format!("{name}-names"), || uploads(server.http, path));
    report.case(&format!("{name}-removals"), || removals(server.http, path));
}

fn ask(raw: &mut Raw, method: &str, path: &str, fields: &str, body: &str) -> Result<Answer> {
    let length = match method {
        "PUT" => format!("Content-Length: {}\r\n", body.len()),
        _ => String::new(),
    };
    let text = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{fields}{length}\r\n{body}");
    raw.send(text.as_bytes())?;
    raw.answer(method == "HEAD")
}

/// Runs rounds: each puts a file, takes its tag from the response, and lets all clients change it
/// with that tag.
fn races(port: u16, path: &str, rounds: usize) -> Result<String> {
    let (begin, end) = (Barrier::new(RACERS + 1), Barrier::new(RACERS + 1));
    let tag = std::sync::Mutex::new(Some(String::new()));
    std::thread::scope(|scope| {
        let (begin, end, tag) = (&begin, &end, &tag);
        let racers: Vec<_> = (0..RACERS)
            .map(|number| scope.spawn(move || race(port, path, number, (begin, end), tag)))
            .collect();
        let result = judge(port, path, rounds, (begin, end), tag);
        *tag.lock().expect("no racer panics") = None;
        begin.wait();
        let mut won = Vec::new();
        for racer in racers {
            won.push(racer.join().expect("no racer panics")?);
        }
        result?;
        for round in 0..rounds {
            let answers: Vec<u16> = won.iter().map(|statuses| statuses[round]).collect();
            let winners = answers.iter().filter(|status| **status < 300).count();
            let losers = answers.iter().filter(|status| **status == 412).count();
            ensure!(winners == 1 && losers == RACERS - 1, "round {round}: {answers:?}");
        }
        Ok(format!("{rounds} rounds, one winner each"))
    })
}

/// Prepares each round, and checks its result.
fn judge(
    port: u16,
    path: &str,
    rounds: usize,
    (begin, end): (&Barrier, &Barrier),
    tag: &std::sync::Mutex<Option<String>>,
) -> Result<()> {
    let mut raw = Raw::connect(port)?;
    for round in 0..rounds {
        let put = ask(&mut raw, "PUT", path, "", &format!("round {round}"))?;
        ensure!(put.status < 300, "PUT: {}", put.head);
        let put = put.field("ETag").context("a PUT gives a tag")?.to_string();
        let get = ask(&mut raw, "GET", path, "", "")?;
        ensure!(get.field("ETag") == Some(&*put), "PUT returned {put}, and then {:?}", get.head);
        *tag.lock().expect("no racer panics") = Some(put);
        begin.wait();
        end.wait();
    }
    Ok(())
}

/// Runs one racing client: every fourth deletes, the others put.
fn race(
    port: u16,
    path: &str,
    number: usize,
    (begin, end): (&Barrier, &Barrier),
    tag: &std::sync::Mutex<Option<String>>,
) -> Result<Vec<u16>> {
    let (mut statuses, mut failed) = (Vec::new(), None);
    let mut raw = None;
    loop {
        begin.wait();
        let Some(tag) = tag.lock().expect("no racer panics").clone() else { break };
        let mut turn = || -> Result<u16> {
            let mut conn = match raw.take() {
                Some(conn) => conn,
                None => Raw::connect(port)?,
            };
            let fields = format!("If-Match: {tag}\r\n");
            let (method, body) = if number == 0 { ("DELETE", "") } else { ("PUT", "mine") };
            let answer = ask(&mut conn, method, path, &fields, body)?;
            if answer.field("Connection") != Some("close") {
                raw = Some(conn);
            }
            Ok(answer.status)
        };
        match turn() {
            Ok(status) => statuses.push(status),
            Err(error) => {
                statuses.push(0);
                failed = Some(error);
            }
        }
        end.wait();
    }
    failed.map_or(Ok(statuses), Err)
}

/// Tests that concurrent uploads of different files in one directory all succeed.
fn uploads(port: u16, path: &str) -> Result<String> {
    let begin = Barrier::new(UPLOADS);
    let put = |number: usize| -> Result<u16> {
        let mut raw = Raw::connect(port)?;
        begin.wait();
        Ok(ask(&mut raw, "PUT", &format!("{path}-{number}"), "", "x")?.status)
    };
    let put = &put;
    let statuses = std::thread::scope(|scope| {
        let all: Vec<_> = (0..UPLOADS).map(|number| scope.spawn(move || put(number))).collect();
        all.into_iter().map(|one| one.join().expect("no panic")).collect::<Result<Vec<u16>>>()
    })?;
    ensure!(statuses.iter().all(|status| *status < 300), "{statuses:?}");
    Ok(format!("{UPLOADS} at once"))
}

/// Removes a directory while it, or a directory in it, is moved, and while it is removed again.
fn removals(port: u16, path: &str) -> Result<String> {
    let (top, inner, saved) =
        (format!("{path}-top"), format!("{path}-top/inner"), format!("{path}-saved"));
    let exists = |path: &str| -> Result<bool> {
        Ok(ask(&mut Raw::connect(port)?, "HEAD", &format!("{path}/"), "", "")?.status == 200)
    };
    let mut moved = 0;
    for round in 0..REMOVALS {
        let mut raw = Raw::connect(port)?;
        for path in [&top, &inner] {
            ensure!(ask(&mut raw, "MKCOL", path, "", "")?.status == 201, "no directory");
        }
        for number in 0..REMOVED {
            let put = ask(&mut raw, "PUT", &format!("{inner}/{number}"), "", "x")?;
            ensure!(put.status < 300, "{}", put.text());
        }
        let destination = format!("Destination: http://localhost{saved}\r\n");
        let (method, path, fields) = match round % 3 {
            0 => ("DELETE", &top, ""),
            1 => ("MOVE", &top, &*destination),
            _ => ("MOVE", &inner, &*destination),
        };
        let begin = Barrier::new(2);
        let act = |method: &str, path: &str, fields: &str| -> Result<u16> {
            let mut raw = Raw::connect(port)?;
            begin.wait();
            Ok(ask(&mut raw, method, path, fields, "")?.status)
        };
        let (removal, other) = std::thread::scope(|scope| {
            let removal = scope.spawn(|| act("DELETE", &top, ""));
            let other = act(method, path, fields);
            anyhow::Ok((removal.join().expect("no panic")?, other?))
        })?;
        if method == "MOVE" && other == 201 {
            let whole = if round % 3 == 1 { format!("{saved}/inner") } else { saved.clone() };
            for number in 0..REMOVED {
                let get = ask(&mut raw, "GET", &format!("{whole}/{number}"), "", "")?;
                ensure!(get.status == 200, "{number} was moved, and is gone: {}", get.status);
            }
            moved += 1;
        } else {
            let both = [removal, other];
            ensure!(both.contains(&204), "{method}: {both:?}");
            ensure!(both.iter().all(|it| [204, 404, 409].contains(it)), "{method}: {both:?}");
            ensure!(!exists(&top)?, "{method}: {both:?}, and it is there");
        }
        for path in [&top, &saved] {
            ask(&mut raw, "DELETE", path, "", "")?;
            ensure!(!exists(path)?, "{path} is left");
        }
    }
    Ok(format!("moved first in {moved} of {REMOVALS} rounds"))
}

/// Checks that no temporary file is left.
fn tidy(report: &mut Report, name: &str, dir: &Path) {
    report.case(name, || {
        for entry in std::fs::read_dir(dir)? {
            let name = entry?.file_name();
            ensure!(!name.to_string_lossy().starts_with(".upcall-put"), "{name:?} is left");
        }
        Ok(String::new())
    });
}
