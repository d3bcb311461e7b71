//! pjdfstest, the POSIX file-system suite, over the kernel's 9P or NFS client, or `upcall mount`.
//!
//! Every case must pass except those in `expected/pjdfstest.txt`, `pjdfstest-nfs.txt` or
//! `pjdfstest-fuse.txt`, where each line names a case and the reason why no server of this protocol
//! can pass it with this kernel. A listed case that passes fails the suite too, to keep the list
//! current.

use super::ground::{Ground, On, Through};
use anyhow::{Context, Result, ensure};
use rig::report::Report;
use rig::server::Kind;
use rig::sh;
use rig::vm::{self, Job};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

const VERSION: &str = "0.2.2";

/// Number of cases of this version; a suite that ends early must not count as a success.
const CASES: usize = 398;

const CONFIG: &str = "[features]\nposix_fallocate = {}\nrename_ctime = {}\n\
    utime_now = {}\nutimensat = {}\n\
    [settings]\nnaptime = 0.02\nallow_remount = false\n\
    [dummy_auth]\n";

/// Users of the virtual machine, and of this host.
const GUESTS: &str = "entries = [[\"nobody\", \"nobody\"], [\"tests\", \"tests\"]]\n";
const NATIVES: &str = "entries = [[\"nobody\", \"nogroup\"], [\"daemon\", \"daemon\"]]\n";

const FUSE: &str = include_str!("../expected/pjdfstest-fuse.txt");

/// Runs the suite.
pub(crate) fn run(report: &mut Report, kind: Kind, on: On, through: Through) -> Result<()> {
    let program = sh::exclusive(|| sh::tool("pjdfstest", VERSION))?;
    let name = through.suite("pjdfstest");
    let (ground, suite) = (Ground::new(&name, on)?, on.suite(&name));
    ground.fill()?;
    let (server, mount) = through.serve(&ground, kind)?;
    let script = mount + "cd /mnt && /usr/bin/pjdfstest -c /pjdfstest.toml -p /mnt 2>&1\n";
    let job = Job::new(&suite, &script)?;
    job.program(&program)?;
    job.file("pjdfstest.toml", format!("{CONFIG}{GUESTS}").as_bytes())?;
    let text = job.run()?;
    drop(server);
    vm::enter(report, &suite, &text, &[]);
    let outcomes = parse(&text);
    judge(report, kind, (&suite, &expected(list(through))), &outcomes);
    if on == On::Volume {
        report.case(&format!("{suite}/check"), || ground.back().map(|_| "and copied out".into()));
    }
    Ok(())
}

/// Runs the suite in a directory of this host, where `upcall mount` has mounted a server.
pub(crate) fn run_native(report: &mut Report, kind: Kind, suite: &str, dir: &Path) -> Result<()> {
    let program = sh::exclusive(|| sh::tool("pjdfstest", VERSION))?;
    let config = sh::scratch("mounted")?.join("pjdfstest.toml");
    std::fs::write(&config, format!("{CONFIG}{NATIVES}"))?;
    let mut command = Command::new(program);
    command.current_dir(dir).arg("-c").arg(&config).arg("-p").arg(dir);
    // Its status is that of its cases, which are judged one by one.
    let output = command.output().context("run pjdfstest")?;
    let outcomes = parse(&String::from_utf8_lossy(&output.stdout));
    judge(report, kind, (suite, &expected(FUSE)), &outcomes);
    Ok(())
}

/// Outcome of a case, with the reason.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Passed,
    Failed(String),
    Skipped(String),
}

fn parse(text: &str) -> BTreeMap<String, Outcome> {
    let mut outcomes = BTreeMap::new();
    let mut last: Option<String> = None;
    for line in text.lines() {
        let line = plain(line);
        if let Some(reason) = line.strip_prefix('\t') {
            match last.as_ref().and_then(|name| outcomes.get_mut(name)) {
                Some(Outcome::Failed(why) | Outcome::Skipped(why)) if why.len() < 200 => {
                    why.push_str(reason.trim());
                    why.push(' ');
                }
                Some(Outcome::Failed(_) | Outcome::Skipped(_) | Outcome::Passed) | None => {}
            }
            continue;
        }
        let mut words = line.split_whitespace();
        let (Some(name), Some(verdict), None) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        let outcome = match verdict {
            "ok" => Outcome::Passed,
            "FAILED" => Outcome::Failed(String::new()),
            "skipped" => Outcome::Skipped(String::new()),
            _ => continue,
        };
        last = Some(name.to_owned());
        outcomes.insert(name.to_owned(), outcome);
    }
    outcomes
}

/// Removes colour escapes.
fn plain(line: &str) -> String {
    let mut text = String::new();
    let mut parts = line.split('\x1b');
    text.push_str(parts.next().unwrap_or(""));
    for part in parts {
        text.push_str(part.split_once('m').map_or("", |(_, rest)| rest));
    }
    text
}

fn judge(
    report: &mut Report,
    kind: Kind,
    (suite, expected): (&str, &BTreeMap<&str, &str>),
    outcomes: &BTreeMap<String, Outcome>,
) {
    let mut skips: BTreeMap<&str, u32> = BTreeMap::new();
    let (mut passed, mut failed, mut listed) = (0, 0, 0);
    for (name, outcome) in outcomes {
        let title = format!("{suite}/{name}");
        match (outcome, expected.get(name.as_str())) {
            (Outcome::Passed, None) => passed += 1,
            (Outcome::Passed, Some(_)) if kind == Kind::Diod => passed += 1,
            (Outcome::Passed, Some(_)) => {
                report.line(&title, Err("passes: take it off the list".into()), 0.0);
            }
            (Outcome::Failed(why), None) => {
                failed += 1;
                report.line(&title, Err(why.clone()), 0.0);
            }
            (Outcome::Failed(_), Some(reason)) => {
                listed += 1;
                println!("  limit {name}: {reason}");
            }
            (Outcome::Skipped(why), _) => *skips.entry(why.trim()).or_default() += 1,
        }
    }
    report.counted(suite, passed, 0);
    for (why, count) in &skips {
        println!("  the suite itself skips {count}: {why}");
    }
    let skipped: u32 = skips.values().sum();
    println!("  {passed} passed, {failed} failed, {listed} limits, {skipped} skipped");
    report.case(&format!("{suite}/complete"), || {
        ensure!(outcomes.len() == CASES, "{} cases of {CASES} ran", outcomes.len());
        Ok(format!("{CASES} cases"))
    });
}

/// Returns the list of a protocol's cases that cannot pass.
fn list(through: Through) -> &'static str {
    match through {
        Through::NineP => include_str!("../expected/pjdfstest.txt"),
        Through::Nfs => include_str!("../expected/pjdfstest-nfs.txt"),
    }
}

/// Returns the cases of a list, each with the reason.
fn expected(list: &'static str) -> BTreeMap<&'static str, &'static str> {
    list.lines()
        .filter(|line| !line.starts_with('#') && !line.trim().is_empty())
        .map(|line| line.split_once(" - ").unwrap_or((line, "")))
        .map(|(name, reason)| (name.trim(), reason.trim()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_the_suite_is_understood() {
        let text = "\u{1b}[34mopen::a\u{1b}[0m    \u{1b}[32mok\u{1b}[0m\n\
            open::b   FAILED\n\tassertion failed\n\
            open::c   skipped\n\trequires features: chflags\n\nSummary: 1 failed, 1 skipped\n";
        let outcomes = parse(text);
        assert_eq!(outcomes["open::a"], Outcome::Passed);
        assert_eq!(outcomes["open::b"], Outcome::Failed("assertion failed ".into()));
        assert_eq!(outcomes["open::c"], Outcome::Skipped("requires features: chflags ".into()));
        assert_eq!(outcomes.len(), 3);
    }

    #[test]
    fn every_expected_case_has_a_reason() {
        for list in [list(Through::NineP), list(Through::Nfs), FUSE] {
            assert!(expected(list).values().all(|reason| !reason.is_empty()));
        }
    }
}
