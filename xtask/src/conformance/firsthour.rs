//! The first hour of a new user: every command block of README and of the pages below docs is run
//! as it stands, as root and as another user, and its output has the shape of the one shown.
//!
//! Each run has name spaces of its own (network, mounts, host name), so that ports, `/tmp`, `/run`,
//! `/srv` and `/home` are those of the page, and a scene: the files that the page speaks of. A
//! `serve` goes on in the background until another one takes its addresses. What cannot run here
//! is listed with its reason.

mod page;
mod scene;
mod stage;

use crate::report::Report;
use crate::server::{Kind, binary};
use crate::sh;
use anyhow::{Context as _, Result, ensure};
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// The command of xtask that is the process within the name spaces.
pub(crate) const WORD: &str = "firsthour-inside";

/// Pages, and whether a user without rights runs them too.
const PAGES: &[(&str, bool)] = &[
    ("README.md", true),
    ("docs/names.md", false),
    ("docs/operating.md", false),
    ("docs/storelets.md", false),
    ("docs/replica.md", true),
    ("docs/load.md", false),
];

/// The user of the second run.
const USER: u32 = 1000;

/// The suite.
pub(super) fn run(report: &mut Report, kind: Kind) -> Result<()> {
    if kind != Kind::Uring {
        report.skip("firsthour", "the pages show our own server on a ring");
        return Ok(());
    }
    for (page, users_too) in PAGES {
        play(report, page, 0)?;
        if *users_too {
            play(report, page, USER)?;
        }
    }
    Ok(())
}

/// Runs a page in name spaces of its own, and enters each of its commands.
fn play(report: &mut Report, page: &str, uid: u32) -> Result<()> {
    let disk = sh::empty("firsthour")?;
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount", "--uts", "--pid", "--fork", "--kill-child"]);
    command.arg(sh::own_path()?).args([WORD, page, &uid.to_string()]);
    command.arg(binary()).arg(sh::root()).arg(sh::target().join("guests")).arg(&disk);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let output = BufReader::new(child.stdout.take().context("its output")?);
    for line in output.lines() {
        let line = line?;
        let mut parts = line.splitn(4, '\t');
        let [how, seconds, name, text] = std::array::from_fn(|_| parts.next().unwrap_or_default());
        let who = if uid == 0 { "root" } else { "user" };
        let name = format!("{who}: {page}: {name}");
        let text = text.replace("\\n", "\n");
        let seconds = seconds.parse().unwrap_or(0.0);
        match how {
            "ok" => drop(report.line(&name, Ok(text), seconds)),
            "skip" => report.skip(&name, &text),
            _ => drop(report.line(&name, Err(text), seconds)),
        }
    }
    ensure!(child.wait()?.success(), "{page}: the run ended early");
    std::fs::remove_dir_all(&disk)?;
    Ok(())
}

/// The process within the name spaces: prepares the scene, and plays the page.
pub(crate) fn inside(args: &[String]) -> Result<()> {
    let [page, uid, program, root, guests, disk] = args else {
        anyhow::bail!("{WORD}: a page, a user, a program and three directories")
    };
    let text = std::fs::read_to_string(Path::new(root).join(page))?;
    let places = scene::Places {
        program: Path::new(program),
        guests: Path::new(guests),
        disk: Path::new(disk),
    };
    let scene = scene::Scene::set(page, uid.parse()?, &places)?;
    stage::Stage::new(scene).play(&page::commands(&text));
    Ok(())
}
