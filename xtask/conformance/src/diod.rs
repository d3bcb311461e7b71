//! diod's client tools, which use a 9P2000.L library of their own.

use super::{aname, served};
use anyhow::{Context, Result, ensure};
use rig::report::Report;
use rig::server::{Kind, Server};
use rig::sh;
use std::fmt::Write as _;
use std::process::Command;

/// Runs the suite.
pub(crate) fn run(report: &mut Report, kind: Kind) -> Result<()> {
    let dir = served("diod")?;
    let mut text = String::new();
    for number in 0..200_000 {
        writeln!(text, "line {number}")?;
    }
    std::fs::write(dir.join("text"), &text)?;
    // diodload attaches to `ctl` and reads `null` in it.
    std::fs::create_dir(dir.join("ctl"))?;
    std::fs::write(dir.join("ctl/null"), "")?;
    std::fs::create_dir(dir.join("dir"))?;
    for number in 0..1000 {
        std::fs::write(dir.join(format!("dir/file-{number:04}")), "x")?;
    }
    let mut server = Server::start(kind, &dir, &[])?;
    report.case("diod/diodls", || listed(&server));
    report.case("diod/diodls_long", || {
        let listing = sh::read(tool(&server, "diodls")?.args(["-l", "/"]))?;
        let size = text.len().to_string();
        let line = listing.lines().find(|line| line.ends_with("text")).context("no text")?;
        ensure!(line.starts_with("-rw") && line.contains(&size), "{line}");
        Ok(line.to_owned())
    });
    report.case("diod/diodcat", || {
        let got = sh::read(tool(&server, "diodcat")?.arg("text"))?;
        ensure!(got == text, "{} bytes of {} came", got.len(), text.len());
        Ok(format!("{} bytes", text.len()))
    });
    report.case("diod/diodcat_small_messages", || {
        let got = sh::read(tool(&server, "diodcat")?.args(["-m", "4096", "text"]))?;
        ensure!(got == text, "{} bytes of {} came", got.len(), text.len());
        Ok("msize 4096".into())
    });
    report.case("diod/diodcat_refused", || {
        let output = tool(&server, "diodcat")?.arg("nowhere").output()?;
        let printed = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        ensure!(
            !output.status.success() && printed.contains("No such file"),
            "printed {printed:?}"
        );
        Ok(printed)
    });
    if kind != Kind::Diod {
        // diod itself has `ctl` only if its configuration exports it.
        report.case("diod/diodload", || loaded(&server));
    }
    report.case("diod/server_lives", || {
        ensure!(server.alive(), "the server died: {}", sh::tail(&server.printed(), 500));
        Ok(String::new())
    });
    Ok(())
}

fn listed(server: &Server) -> Result<String> {
    let listing = sh::read(tool(server, "diodls")?.arg("dir"))?;
    let mut names: Vec<_> = listing.split_whitespace().filter(|n| n.starts_with("file-")).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    ensure!(names.len() == 1000 && count == 1000, "{count} names, {} different", names.len());
    Ok("1000 names".into())
}

/// Runs sixteen threads that get the attributes of `null` for two seconds.
fn loaded(server: &Server) -> Result<String> {
    let program = sh::which("diodload").context("no diodload")?;
    let mut load = sh::cmd(&program.display().to_string(), &["-g", "-r", "2", "-n", "16"]);
    let output = load.args(["-s", &format!("127.0.0.1:{}", server.ninep)]).output()?;
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8_lossy(&printed).trim().to_owned();
    // It exits successfully even if it could not attach.
    ensure!(output.status.success() && !printed.contains("error"), "{printed}");
    Ok(sh::tail(&printed, 100).to_owned())
}

fn tool(server: &Server, name: &str) -> Result<Command> {
    let program = sh::which(name).with_context(|| format!("no {name}"))?;
    let mut command = sh::cmd(&program.display().to_string(), &["-t", "20", "-s"]);
    command.arg(format!("127.0.0.1:{}", server.ninep)).arg("-a").arg(aname(server));
    Ok(command)
}
