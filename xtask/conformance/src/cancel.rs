//! Ctrl-C in a hanging read: the kernel sends Tflush, the server cancels the read, the process
//! exits at once, and other files stay accessible meanwhile.
//!
//! The hanging file is on a FUSE mount inside the served directory whose daemon is stopped
//! (SIGSTOP).

use super::{TRUST, aname, served};
use anyhow::{Context, Result, bail};
use rig::report::Report;
use rig::server::{Kind, Server};
use rig::sh;
use rig::vm::{self, Job};
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

const SCRIPT: &str = include_str!("guest/cancel");

/// Runs the suite.
pub(crate) fn run(report: &mut Report, kind: Kind) -> Result<()> {
    if !Path::new("/dev/fuse").exists() {
        report.skip("cancel", "this machine has no /dev/fuse");
        return Ok(());
    }
    let dir = served("cancel")?;
    std::fs::write(dir.join("other"), "still here\n")?;
    let back = sh::empty("served/cancel-behind")?;
    std::fs::write(back.join("file"), vec![b'x'; 1 << 20])?;
    let hung = Hung::mount(&back, &dir.join("hung"))?;
    let inner = dir.join("hung").display().to_string();
    let extra = if kind == Kind::Diod { vec![inner.as_str()] } else { TRUST.to_vec() };
    let server = Server::start(kind, &dir, &extra)?;
    let mut script = vm::mount_script(server.ninep, &aname(&server), "cache=none");
    if kind == Kind::Diod {
        script +=
            &vm::mount_script(server.ninep, &inner, "cache=none").replace("/mnt ", "/mnt/hung ");
    }
    script += SCRIPT;
    let job = Job::new("cancel", &script)?;
    let text = job.run_watched(|line| match line {
        "@host stop" => hung.signal(Signal::STOP),
        "@host continue" => hung.signal(Signal::CONT),
        _ => {}
    })?;
    vm::enter(report, "cancel", &text, &["others_answer", "interrupted", "killed", "afterwards"]);
    // Unmounting and the server's exit require a running daemon.
    drop(hung);
    drop(server);
    Ok(())
}

/// A FUSE mount whose daemon can be stopped. Dropping it continues the daemon and unmounts.
struct Hung {
    daemon: Child,
    mount: PathBuf,
}

impl Hung {
    fn mount(from: &Path, to: &Path) -> Result<Hung> {
        std::fs::create_dir(to)?;
        let mut bindfs = sh::cmd("bindfs", &["-f", "-o", "direct_io"]);
        bindfs.arg(from).arg(to).stdout(Stdio::null());
        let daemon = bindfs.spawn().context("start bindfs")?;
        let hung = Hung { daemon, mount: to.to_path_buf() };
        let start = Instant::now();
        while !to.join("file").exists() {
            if start.elapsed() > Duration::from_secs(60) {
                bail!("bindfs did not mount {}", to.display());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(hung)
    }

    fn signal(&self, signal: Signal) {
        let _ = kill_process(Pid::from_child(&self.daemon), signal);
    }
}

impl Drop for Hung {
    fn drop(&mut self) {
        self.signal(Signal::CONT);
        std::thread::sleep(Duration::from_millis(200));
        let _ = sh::read(sh::cmd("umount", &["-l"]).arg(&self.mount));
        self.signal(Signal::TERM);
        let _ = self.daemon.wait();
    }
}
