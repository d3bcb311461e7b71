//! The Linux kernel's 9P and NFS clients: the cases are the scripts under `guest/`, each run in a
//! directory of its own on the mount. Files written by the guest are compared on the host too.

use super::ground::{Ground, On, Through};
use anyhow::{Context, Result};
use rig::report::Report;
use rig::server::Kind;
use rig::sh;
use rig::vm::{self, Job};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;

const CASES: &[(&str, &str)] = &[
    ("append", include_str!("guest/append.sh")),
    ("attributes", include_str!("guest/attributes.sh")),
    ("big", include_str!("guest/big.sh")),
    ("copy", include_str!("guest/copy.sh")),
    ("entries", include_str!("guest/entries.sh")),
    ("execute", include_str!("guest/execute.sh")),
    ("links", include_str!("guest/links.sh")),
    ("listing", include_str!("guest/listing.sh")),
    ("locks", include_str!("guest/locks.sh")),
    ("names", include_str!("guest/names.sh")),
    ("parallel", include_str!("guest/parallel.sh")),
    ("permissions", include_str!("guest/permissions.sh")),
    ("remove", include_str!("guest/remove.sh")),
    ("rename", include_str!("guest/rename.sh")),
    ("strangers", include_str!("guest/strangers.sh")),
    ("special", include_str!("guest/special.sh")),
    ("truncate", include_str!("guest/truncate.sh")),
    ("underneath", include_str!("guest/underneath.sh")),
    ("unlinked", include_str!("guest/unlinked.sh")),
    ("xattr", include_str!("guest/xattr.sh")),
];

/// Runs every case in `/cases`, each for at most five minutes.
const RUNNER: &str = include_str!("guest/runner.sh");

/// Parts of the Linux source with symbolic links, programs and deep directories; then the parts
/// with `--long`.
const SOURCE: &[&str] = &["scripts/dtc", "scripts/kconfig/tests/preprocess", "net/9p"];
const SOURCE_LONG: &[&str] = &["scripts", "fs/9p", "net/9p", "tools/testing/selftests/net"];

/// Number of entries of the large directory, and of the one that is listed with attributes.
const MANY: u32 = 10_000;
const LISTED: u32 = 3_000;

/// Runs the suite, and once more from the beginning if the emulated network stalls.
pub(crate) fn run(report: &mut Report, kind: Kind, on: On, through: Through) -> Result<()> {
    if !attempt(report, kind, (on, through), false)? {
        eprintln!("   the guest sends nothing any more, and is owed no answer; once more");
        attempt(report, kind, (on, through), true)?;
    }
    Ok(())
}

/// Returns whether a case concerns this storage through this protocol.
fn concerns(name: &str, on: On, through: Through) -> bool {
    match name {
        // Nothing but the server changes a volume.
        "underneath" => on == On::Directory,
        // 9P has no attributes in listings.
        "listing" => through == Through::Nfs,
        // NFSv3 has no extended attributes.
        "xattr" => through == Through::NineP,
        _other => true,
    }
}

/// Runs all cases; returns whether the guest's network did not stall. With `last` a stall counts as
/// a failure.
fn attempt(
    report: &mut Report,
    kind: Kind,
    (on, through): (On, Through),
    last: bool,
) -> Result<bool> {
    let name = through.suite("kernel");
    let (ground, suite) = (Ground::new(&name, on)?, on.suite(&name));
    let dir = &ground.dir;
    many(&dir.join("many"), MANY)?;
    many(&dir.join("doomed"), 300)?;
    many(&dir.join("listed"), LISTED)?;
    std::fs::create_dir(dir.join("work"))?;
    let parts = if report.long { SOURCE_LONG } else { SOURCE };
    let source = rig::linux::parts(parts)?;
    for part in parts {
        copy(&source.join(part), &dir.join("source").join(part))?;
    }
    ground.fill()?;
    let (mut server, mount) = through.serve(&ground, kind)?;
    let job = Job::new(&suite, &(mount + RUNNER))?;
    job.file("refuse.sh", include_bytes!("guest/refuse.sh"))?;
    let cases = || CASES.iter().filter(|(name, _)| concerns(name, on, through));
    for (name, case) in cases() {
        job.file(&format!("cases/{name}.sh"), case.as_bytes())?;
    }
    for program in ["setfattr", "getfattr", "flock", "ls"] {
        job.program(&sh::which(program).with_context(|| format!("no program {program}"))?)?;
    }
    let mut is_silent = false;
    let text = job.run_watched(|line| {
        answer(line, dir);
        // Rarely, during heavy writing, QEMU stops sending the guest's packets, even the flushes of
        // killed processes; packets to the guest have arrived.
        let is_late = line.starts_with("@no ") && line.contains(" exit 143: ");
        if !last && is_late && is_nothing_owed(server.http) {
            is_silent = true;
            // The guest notices the end of the connection, and exits.
            let _ = server.kill();
        }
    })?;
    if is_silent {
        return Ok(false);
    }
    let names: Vec<_> = cases().map(|(name, _)| *name).chain(["umount"]).collect();
    vm::enter(report, &suite, &text, &names);
    report.case(&format!("{suite}/server_lives"), || {
        anyhow::ensure!(server.alive(), "the server died: {}", sh::tail(&server.printed(), 500));
        let note = format!("{} KiB resident", server.rss_kib());
        server.stop()?;
        Ok(note)
    });
    report.case(&format!("{suite}/copied_tree_on_host"), || {
        let output = sh::cmd("diff", &["-r", "--no-dereference"])
            .arg(dir.join("source"))
            .arg(ground.back()?.join("work/copy/in"))
            .output()?;
        anyhow::ensure!(
            output.status.success(),
            "differs: {}",
            sh::tail(&String::from_utf8_lossy(&output.stdout), 300)
        );
        Ok("diff -r --no-dereference finds nothing".into())
    });
    Ok(true)
}

/// Returns whether the server at this port has no outstanding call except this request.
fn is_nothing_owed(http: u16) -> bool {
    let machines = || -> Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", http))?;
        stream.write_all(
            b"GET /.upcall/machines HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        )?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    };
    let calls = |text: &str| -> usize {
        let calls = text.lines().filter(|line| line.starts_with("call "));
        calls.filter_map(|line| line.split_whitespace().last()?.parse::<usize>().ok()).sum()
    };
    machines().is_ok_and(|text| text.contains("\nmachine ") && calls(&text) <= 1)
}

/// Handles `@host append FILE`: the guest's request for a change on the host.
fn answer(line: &str, dir: &Path) {
    let Some(rest) = line.strip_prefix("@host append ") else { return };
    let path = dir.join(rest.trim());
    if let Ok(mut file) = std::fs::OpenOptions::new().append(true).create(true).open(path) {
        let _ = std::io::Write::write_all(&mut file, b"from the host\n");
    }
}

fn many(dir: &Path, count: u32) -> Result<()> {
    std::fs::create_dir(dir)?;
    for number in 0..count {
        std::fs::File::create(dir.join(format!("entry-{number:06}")))?;
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to.parent().expect("below the served directory"))?;
    sh::read(sh::cmd("cp", &["-a"]).arg(from).arg(to)).map(|_| ())
}
