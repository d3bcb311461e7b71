//! `upcall mount`, natively on this host's kernel: programs on a mount, two mounts of one server,
//! a server that stops, restarts or is killed, pjdfstest, fsx and stress-ng.

mod ahead;
mod cases;
mod exercise;
mod kills;
mod watched;
mod watching;

use super::ground::{Ground, On};
use super::{TRUST, pjdfstest};
use anyhow::{Context, Result, ensure};
use cases::Pair;
pub(crate) use exercise::run as run_exercise;
pub(crate) use kills::run as run_kills;
use rig::mounted::Mounted;
use rig::report::Report;
use rig::server::{Kind, Server, free_port, until_closed};
use rig::sh;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// Time after which a killed process counts as one that cannot be killed.
const KILLED_MAX: Duration = Duration::from_secs(30);

/// Mount options for several users, with devices and set-user-id bits.
const FOR_ALL: &str = "allow_other,suid,dev";

/// The same, with caches and reading ahead until changes are reported.
const WATCHED: &str = "allow_other,suid,dev,default_permissions,watch";

/// Runs the suite.
pub(crate) fn run(report: &mut Report, kind: Kind, on: On) -> Result<()> {
    if !Path::new("/dev/fuse").exists() {
        report.skip("mount", "this machine has no /dev/fuse");
        return Ok(());
    }
    let suite = on.suite("mount");
    let ground = Ground::new("mount", on)?;
    ground.fill()?;
    let ports = (free_port()?, free_port()?);
    let mut server = ground.serve_at(kind, ports, TRUST)?;
    let name = |case: &str| format!("{suite}/{case}");
    for (cache, options) in [("", FOR_ALL), ("_uncached", "allow_other,cache=none")] {
        let first = Mounted::start(&server, &format!("{suite}-a"), options)?;
        let second = Mounted::start(&server, &format!("{suite}-b"), options)?;
        let is_uncached = !cache.is_empty();
        let pair = Pair { a: &first.dir, b: &second.dir, is_uncached };
        for (case, run) in cases::ALL {
            report.case(&name(&format!("{case}{cache}")), || run(&pair));
        }
        first.stop()?;
        second.stop()?;
    }
    let written =
        Mounted::start(&server, &format!("{suite}-a"), "allow_other,suid,dev,cache=write")?;
    let pair = Pair { a: &written.dir, b: &written.dir, is_uncached: false };
    for (case, run) in cases::OF_ONE {
        report.case(&name(&format!("{case}_write_back")), || run(&pair));
    }
    written.stop()?;
    let mounted = Mounted::start(&server, &format!("{suite}-a"), FOR_ALL)?;
    report.case(&name("stopped_server"), || stopped(&server, &mounted.dir));
    report.case(&name("restarted_server"), || {
        restarted(&mut server, &mounted.dir, || ground.serve_at(kind, ports, TRUST))
    });
    report.case(&name("unmounted_when_busy"), || mounted.refuses_signal());
    report.case(&name("mount_8"), || helper(&server, &suite));
    report.case(&name("errors"), || refused(&server));
    server.stop()?;
    // Others can change a directory, which the option says that nobody does.
    let options = if on == On::Volume { "" } else { "watch" };
    watching::run(report, (&suite, kind), &ground, options)?;
    report.case(&name("check"), || ground.back().map(|_| String::new()));
    Ok(())
}

/// Runs pjdfstest on a mount.
pub(crate) fn run_pjdfstest(report: &mut Report, kind: Kind, on: On) -> Result<()> {
    if !Path::new("/dev/fuse").exists() {
        report.skip("mount-pjdfstest", "this machine has no /dev/fuse");
        return Ok(());
    }
    let suite = on.suite("mount-pjdfstest");
    let ground = Ground::new("mount-pjdfstest", on)?;
    ground.fill()?;
    let server = ground.serve(kind, TRUST)?;
    // Addresses of sockets have at most 108 bytes, wherever the sources are.
    let dir = sh::read(&mut sh::cmd("mktemp", &["-d", "/tmp/upcall-XXXXXX"]))?;
    for (name, options) in [("", FOR_ALL), ("-watched", WATCHED)] {
        let mounted = Mounted::start_on(&server, PathBuf::from(dir.trim_end()), options)?;
        pjdfstest::run_native(report, kind, &format!("{suite}{name}"), &mounted.dir)?;
        mounted.stop()?;
    }
    std::fs::remove_dir(dir.trim_end())?;
    drop(server);
    report.case(&format!("{suite}/check"), || ground.back().map(|_| String::new()));
    Ok(())
}

fn signal(server: &Server, signal: Signal) -> Result<()> {
    let pid = Pid::from_raw(server.pid().cast_signed()).context("it has a number")?;
    Ok(kill_process(pid, signal)?)
}

/// Kills processes that wait for a server that has stopped.
fn stopped(server: &Server, dir: &Path) -> Result<String> {
    std::fs::write(dir.join("waited-for"), vec![b'x'; 4 << 20])?;
    signal(server, Signal::STOP)?;
    let killed = kill_all(dir);
    signal(server, Signal::CONT)?;
    let slowest = killed?;
    ensure!(std::fs::read(dir.join("waited-for"))?.len() == 4 << 20, "it works no more");
    Ok(format!("the slowest ended {} ms after its signal", slowest.as_millis()))
}

/// Starts processes that wait, and kills them. Returns the longest time that one took to end.
fn kill_all(dir: &Path) -> Result<Duration> {
    let file = dir.join("waited-for").display().to_string();
    let output = format!("of={}", dir.join("written").display());
    let mut waiting: Vec<Child> = Vec::new();
    for (program, arguments) in [
        ("cat", vec![file.as_str()]),
        ("ls", vec!["-l", file.as_str()]),
        ("touch", vec![file.as_str()]),
        // More than the buffers of a socket take.
        ("dd", vec!["if=/dev/zero", output.as_str(), "bs=1M", "count=64"]),
    ] {
        let mut command = sh::cmd(program, &arguments);
        waiting.push(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?);
    }
    let mut slowest = Duration::ZERO;
    for mut child in waiting {
        until_it_waits(child.id())?;
        let begin = Instant::now();
        child.kill()?;
        let pid = Pid::from_child(&child);
        let end = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())?;
        let mut ends = [PollFd::new(&end, PollFlags::IN)];
        let limit = KILLED_MAX.try_into().expect("it is short");
        ensure!(poll(&mut ends, Some(&limit))? == 1, "it did not end in {KILLED_MAX:?}");
        child.wait()?;
        slowest = slowest.max(begin.elapsed());
    }
    Ok(slowest)
}

/// Waits until a thread waits for a reply to a request of FUSE.
///
/// # Errors
/// It has ended.
fn until_it_waits(thread: u32) -> Result<()> {
    let place = format!("/proc/{thread}/wchan");
    let state = format!("/proc/{thread}/stat");
    while std::fs::read_to_string(&place)? != "request_wait_answer" {
        let state = std::fs::read_to_string(&state)?;
        ensure!(!state.contains(") Z "), "it did not wait for the server");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Restarts the server under a mount with open files.
fn restarted(
    server: &mut Server,
    dir: &Path,
    start: impl FnOnce() -> Result<Server>,
) -> Result<String> {
    use std::os::unix::fs::FileExt as _;
    let open = |name: &str| {
        let mut options = std::fs::File::options();
        options.read(true).write(true).create(true).truncate(true).open(dir.join(name))
    };
    let (durable, dirty) = (open("durable")?, open("dirty")?);
    durable.write_at(b"durable", 0)?;
    durable.sync_all()?;
    dirty.write_at(b"dirty", 0)?;
    server.kill()?;
    [server.ninep, server.http].into_iter().for_each(until_closed);
    let begin = Instant::now();
    let names = dir.to_path_buf();
    let waiting = std::thread::spawn(move || std::fs::read_dir(names).map(Iterator::count));
    *server = start()?;
    let listed = waiting.join().expect("it does not panic")?;
    let took = begin.elapsed();
    ensure!(listed > 0, "the listing is empty");
    let mut bytes = [0; 7];
    durable.read_exact_at(&mut bytes, 0)?;
    ensure!(&bytes == b"durable", "other bytes");
    durable.write_at(b"again", 7)?;
    durable.sync_all().context("a file without unsynced writes")?;
    let first = dirty.sync_all();
    let is_error = first.as_ref().is_err_and(|error| error.raw_os_error() == Some(5));
    ensure!(is_error, "fsync of writes that may be lost: {first:?}");
    dirty.write_at(b"dirty", 0)?;
    dirty.sync_all().context("after the error was reported")?;
    Ok(format!("a listing waited {} ms", took.as_millis()))
}

/// Mounts by the helper of mount(8).
fn helper(server: &Server, suite: &str) -> Result<String> {
    let dir = sh::empty(&format!("mounted/{suite} helper"))?;
    let program = sh::scratch("mounted")?.join("mount.upcall");
    if program.symlink_metadata().is_err() {
        std::os::unix::fs::symlink(rig::server::binary(), &program)?;
    }
    let words = [format!("127.0.0.1:{}", server.ninep), dir.display().to_string()];
    let mut command = sh::cmd(&program.display().to_string(), &words);
    sh::run(command.args(["-v", "-o", "rw,_netdev,nofail,x-systemd.automount"]))?;
    let listed = std::fs::read_dir(&dir)?.count();
    let write = || std::fs::write(dir.join("by-helper"), b"written");
    let change = |options| {
        let mut command = sh::cmd(&program.display().to_string(), &words);
        sh::run(command.args(["-o", options]))
    };
    change("remount,ro")?;
    let refused = write().map_err(|error| error.kind());
    ensure!(refused == Err(std::io::ErrorKind::ReadOnlyFilesystem), "read-only: {refused:?}");
    change("remount,rw")?;
    write().context("after it was mounted for writing again")?;
    sh::run(&mut sh::cmd("umount", &[&dir]))?;
    ensure!(listed > 0, "nothing was mounted when the helper ended");
    Ok(String::new())
}

/// Tries mounts that must fail, each with its reason.
fn refused(server: &Server) -> Result<String> {
    let address = format!("127.0.0.1:{}", server.ninep);
    let nobody = format!("127.0.0.1:{}", free_port()?);
    for (words, part) in [
        ([&address, "/nonexistent", "ro"], "create the directory first"),
        ([&address, "/etc/passwd", "ro"], "name a directory"),
        ([&address, "/tmp", "frobnicate"], "unknown mount option 'frobnicate'"),
        ([&address, "/tmp", "remount,ro"], "mount it there first"),
        ([&nobody, "/tmp", "ro"], "check whether a server listens there"),
    ] {
        let mut command = sh::cmd(&rig::server::binary().display().to_string(), &["mount"]);
        let output = command.args(&words[..2]).args(["-o", words[2]]).output()?;
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(!output.status.success() && printed.contains(part), "{words:?}: {printed}");
    }
    Ok(String::new())
}
