//! Plain 9P2000 with the client library of Plan 9 from User Space (9fans.net/go).
//!
//! The client is `plan9/main.go`, built in `target/plan9` with a pinned version of the library and
//! the installed Go toolchain; Debian's own is recent enough.

use super::give_away;
use super::ground::{Ground, On};
use anyhow::{Context, Result, ensure};
use rig::report::Report;
use rig::server::Kind;
use rig::{sh, vm};
use std::path::PathBuf;

const CLIENT: &str = include_str!("plan9/main.go");
const MODULE: &str = "module client\n\ngo 1.19\n\nrequire 9fans.net/go v0.0.7\n";

/// All cases of the client, so that one not reached is noticed.
const CASES: &[&str] = &[
    "write_and_read",
    "read_at_an_offset",
    "write_at_an_offset",
    "open_truncates",
    "remove",
    "remove_on_close",
    "errors_are_said",
    "make_and_list",
    "walk_deep",
    "dot_dot_ends_at_the_root",
    "from_the_host",
    "stat",
    "wstat_mode_and_length",
    "wstat_time",
    "wstat_renames",
    "qids_tell_versions",
];

/// Runs the suite.
pub(crate) fn run(report: &mut Report, kind: Kind, on: On) -> Result<()> {
    if kind == Kind::Diod {
        report.skip("9p2000", "diod speaks 9P2000.L only");
        return Ok(());
    }

    let suite = on.suite("9p2000");
    let client = built(&suite)?;
    println!("  client: 9fans.net/go v0.0.7");
    let ground = Ground::new("9p2000", on)?;
    std::fs::write(ground.dir.join("from-host"), "hello\n")?;
    give_away(&ground.dir)?;
    ground.fill()?;
    let mut server = ground.serve(kind, &[])?;
    let address = format!("127.0.0.1:{}", server.ninep);
    let output = sh::cmd("timeout", &["60"]).arg(client).arg(address).output()?;
    let text = [output.stdout, output.stderr].concat();
    vm::enter(report, &suite, &String::from_utf8_lossy(&text), CASES);
    report.case(&format!("{suite}/seen_on_host"), || {
        ensure!(server.alive(), "the server died");
        server.stop()?;
        let small = std::fs::read(ground.back()?.join("small"));
        let small = small.context("read what the client wrote")?;
        ensure!(small == b"changed789", "the host reads {small:?}");
        Ok(String::new())
    });
    Ok(())
}

fn built(suite: &str) -> Result<PathBuf> {
    let dir = sh::scratch(&format!("plan9/{suite}"))?;
    std::fs::write(dir.join("main.go"), CLIENT)?;
    std::fs::write(dir.join("go.mod"), MODULE)?;
    let go = sh::which("go").context("no go toolchain")?;
    let program = dir.join("client");
    let mut command = sh::cmd(&go.display().to_string(), &["build", "-mod=mod", "-o"]);
    command.arg(&program).arg(".").current_dir(&dir);
    command.env("GOFLAGS", "-buildvcs=false").env("GOTOOLCHAIN", "local");
    sh::read(&mut command).context("build the 9P2000 client")?;
    Ok(program)
}
