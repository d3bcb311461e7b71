//! Programs that exercise file systems, on a mount: fsx, which compares each read of a file that
//! it writes, maps and truncates at random with its own copy, and the stressors of stress-ng, with
//! `--long` with each kind of cache.

use super::super::TRUST;
use super::super::ground::{Ground, On};
use super::{FOR_ALL, WATCHED};
use anyhow::{Context, Result, ensure};
use rig::mounted::Mounted;
use rig::report::Report;
use rig::server::Kind;
use rig::sh;
use std::path::Path;
use std::process::{Command, Stdio};

/// Version of fsx.
const FSX: &str = "0.3.2";

/// Operations and their weights. 9P has no message to reserve space or to punch holes.
const OPERATIONS: &str = "flen = 1048576\n[opsize]\nmax = 200000\n[weights]\nclose_open = 1\n\
    invalidate = 1\nmapread = 10\nmapwrite = 10\nread = 10\nwrite = 10\ntruncate = 5\n\
    fsync = 1\nfdatasync = 1\nsendfile = 5\nposix_fadvise = 1\ncopy_file_range = 5\n";

/// Files at the same time, and operations on each: by default, and with `--long`.
const FILES: u64 = 3;
const COUNT: &str = "1500";
const COUNT_LONG: &str = "100000";

/// Stressors of files, and seconds for each: by default, and with `--long`.
const STRESSORS: &[&str] = &[
    "access",
    "chdir",
    "chmod",
    "chown",
    "copy-file",
    "dentry",
    "dir",
    "dirdeep",
    "dirmany",
    "fcntl",
    "file-ioctl",
    "filename",
    "flock",
    "fstat",
    "getdent",
    "hdd",
    "iomix",
    "link",
    "locka",
    "lockf",
    "lockofd",
    "mmap",
    "mknod",
    "open",
    "readahead",
    "rename",
    "revio",
    "seek",
    "sendfile",
    "symlink",
    "sync-file",
    "touch",
    "utime",
    "xattr",
];
const SECONDS: &str = "1";
const SECONDS_LONG: &str = "30";

/// Runs the suite.
pub(crate) fn run(report: &mut Report, kind: Kind, on: On) -> Result<()> {
    if !Path::new("/dev/fuse").exists() {
        report.skip("mount-exercise", "this machine has no /dev/fuse");
        return Ok(());
    }
    let program = sh::exclusive(|| sh::tool("fsx", FSX))?;
    let suite = on.suite("mount-exercise");
    let ground = Ground::new("mount-exercise", on)?;
    ground.fill()?;
    let server = ground.serve(kind, TRUST)?;
    let long = report.long;
    for (cache, options) in
        [("", FOR_ALL), ("_watched", WATCHED), ("_write_back", "allow_other,suid,dev,cache=write")]
    {
        let mounted = Mounted::start(&server, &format!("{suite}-a"), options)?;
        report.case(&format!("{suite}/fsx{cache}"), || fsx(&program, &mounted.dir, long));
        let stressors = if long || cache.is_empty() { STRESSORS } else { &[] };
        for stressor in stressors {
            let name = format!("{suite}/{stressor}{cache}");
            report.case(&name, || stress(stressor, &mounted.dir, long));
        }
        mounted.stop()?;
    }
    drop(server);
    report.case(&format!("{suite}/check"), || ground.back().map(|_| String::new()));
    Ok(())
}

/// Runs fsx on several files at the same time.
fn fsx(program: &Path, dir: &Path, long: bool) -> Result<String> {
    let config = sh::scratch("mounted")?.join("fsx.toml");
    std::fs::write(&config, OPERATIONS)?;
    let count = if long { COUNT_LONG } else { COUNT };
    let start = |seed: u64| {
        let mut command = Command::new(program);
        command.args(["-N", count, "-S", &seed.to_string(), "-f"]).arg(&config);
        command.arg("-P").arg(sh::scratch("mounted")?).arg(dir.join(format!("fsx-{seed}")));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().context("run fsx")
    };
    let running = (1..=FILES).map(start).collect::<Result<Vec<_>>>()?;
    for child in running {
        let output = child.wait_with_output()?;
        let printed = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{}: {printed}", output.status);
    }
    Ok(format!("{count} operations on each of {FILES} files"))
}

/// Runs a stressor.
fn stress(stressor: &str, dir: &Path, long: bool) -> Result<String> {
    let seconds = if long { SECONDS_LONG } else { SECONDS };
    let mut command = sh::cmd("stress-ng", &["--verify", "--timeout", seconds, "--temp-path"]);
    command.arg(dir).args([&format!("--{stressor}"), "2"]);
    let output = command.output().context("run stress-ng")?;
    let printed = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "{}: {printed}", output.status);
    // One that found nothing to do has not tested anything.
    let is_skipped = printed.contains("skipped:") && !printed.contains("skipped: 0");
    ensure!(!is_skipped && !printed.contains("not implemented"), "it was skipped: {printed}");
    Ok(String::new())
}
