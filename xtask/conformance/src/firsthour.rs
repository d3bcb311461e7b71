//! The first hour of a new user: every command block of README and of the pages below docs runs as
//! printed, as root and, but for the pages for which [`PAGES`] has a reason, as another user, and
//! its output has the shape of the one shown.
//!
//! Each run has namespaces of its own (network, mounts, host name), so that ports, `/tmp`, `/run`,
//! `/srv` and `/home` are those of the page, and a fixture with the files that the page mentions. A
//! `serve` continues in the background until another one takes its addresses. Commands that cannot
//! run here are listed with the reason.

mod fixture;
mod page;
mod runner;

use anyhow::{Context as _, Result, ensure};
use rig::report::Report;
use rig::server::{Kind, binary};
use rig::sh;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Subcommand of this program that is the process within the namespaces.
pub(crate) const WORD: &str = "firsthour-inside";

/// Users that run a page.
#[derive(Clone, Copy)]
enum Users {
    /// Root, and an unprivileged user.
    Both,
    /// Root only, and the reason.
    Root(&'static str),
}

/// Pages, and the users that run them.
const PAGES: &[(&str, Users)] = &[
    ("README.md", Users::Both),
    ("docs/tutorial.md", Users::Both),
    ("docs/volumes.md", Users::Both),
    ("docs/nfs.md", Users::Both),
    ("docs/watch.md", Users::Both),
    ("docs/browser.md", Users::Both),
    ("docs/webdav.md", Users::Both),
    ("docs/clients.md", Users::Both),
    ("docs/names.md", Users::Both),
    ("docs/operating.md", Users::Root("only root sets the quotas of others")),
    ("docs/storelets.md", Users::Both),
    ("docs/replica.md", Users::Both),
    ("docs/load.md", Users::Both),
];

/// Pages with commands that are not run, and the reason.
const EXCEPT: &[(&str, &str)] = &[
    ("docs/load/README.md", "its traces are those of others, which are not here"),
    ("docs/installation.md", "it installs packages: suite packages does so in other roots"),
];

/// The user of the second run.
const USER: u32 = 1000;

/// Runs the suite.
pub(super) fn run(report: &mut Report, kind: Kind) -> Result<()> {
    if kind != Kind::Uring {
        report.skip("firsthour", "the pages show our own server on a ring");
        return Ok(());
    }
    report.case("firsthour: every page with commands is run", expect_all_pages);
    for (page, why) in EXCEPT {
        report.skip(&format!("firsthour: {page}"), why);
    }
    for (page, users) in PAGES {
        run_page(report, page, 0)?;
        match users {
            Users::Both => run_page(report, page, USER)?,
            Users::Root(why) => report.skip(&format!("firsthour: user: {page}"), why),
        }
    }
    Ok(())
}

/// Fails on a page with commands that is neither run nor excluded.
fn expect_all_pages() -> Result<String> {
    let mut pages = vec![sh::root().join("README.md")];
    let mut dirs = vec![sh::root().join("docs")];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir)? {
            let path = entry?.path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|it| it == "md") {
                pages.push(path);
            }
        }
    }
    let known = PAGES.iter().map(|(page, _)| *page).chain(EXCEPT.iter().map(|(page, _)| *page));
    let known: Vec<PathBuf> = known.map(|page| sh::root().join(page)).collect();
    for path in &pages {
        let commands = page::commands(&std::fs::read_to_string(path)?);
        let is_known = commands.is_empty() || known.contains(path);
        ensure!(is_known, "{}: add it to the pages that are run", path.display());
    }
    Ok(format!("{} pages", pages.len()))
}

/// Runs a page in namespaces of its own, and reports each of its commands.
fn run_page(report: &mut Report, page: &str, uid: u32) -> Result<()> {
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

/// Prepares the fixture and runs the page, in the process within the namespaces.
pub(crate) fn inside(args: &[String]) -> Result<()> {
    let [page, uid, program, root, guests, disk] = args else {
        anyhow::bail!("{WORD}: a page, a user, a program and three directories")
    };
    let text = std::fs::read_to_string(Path::new(root).join(page))?;
    let places = fixture::Places {
        program: Path::new(program),
        guests: Path::new(guests),
        disk: Path::new(disk),
    };
    let fixture = fixture::Fixture::set(page, uid.parse()?, &places)?;
    runner::Runner::new(fixture).run_all(&page::commands(&text));
    Ok(())
}
