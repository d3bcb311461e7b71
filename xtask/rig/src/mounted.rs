//! A mount in the foreground.

use crate::server::Server;
use crate::sh;
use anyhow::{Context, Result, bail, ensure};
use rustix::mount::UnmountFlags;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// A mount of a server, served by a process. Dropping it detaches it.
pub struct Mounted {
    /// Mount point.
    pub dir: PathBuf,
    child: Child,
}

impl Mounted {
    /// Mounts on `target/mounted/NAME`.
    pub fn start(server: &Server, name: &str, options: &str) -> Result<Mounted> {
        Mounted::start_on(server, sh::scratch(&format!("mounted/{name}"))?, options)
    }

    /// Mounts on a directory.
    pub fn start_on(server: &Server, dir: PathBuf, options: &str) -> Result<Mounted> {
        Mounted::start_at(server.ninep, dir, options)
    }

    /// Mounts what is served at a port.
    pub fn start_at(port: u16, dir: PathBuf, options: &str) -> Result<Mounted> {
        let mut command = Command::new(crate::server::binary());
        command.arg("mount").args(["-o", options]).arg(format!("127.0.0.1:{port}"));
        command.arg(&dir).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("start upcall mount")?;
        let mut line = String::new();
        let output = child.stdout.take().context("it is a pipe")?;
        BufReader::new(output).read_line(&mut line)?;
        let mut mounted = Mounted { dir, child };
        if !line.starts_with("mounted ") {
            bail!("it ended: {}", mounted.printed()?);
        }
        Ok(mounted)
    }

    /// Returns the output of the process, after its end.
    fn printed(&mut self) -> Result<String> {
        let mut printed = String::new();
        if let Some(mut errors) = self.child.stderr.take() {
            errors.read_to_string(&mut printed)?;
        }
        Ok(printed)
    }

    fn signal(&self) -> Result<()> {
        let pid = Pid::from_raw(self.child.id().cast_signed()).context("it has a number")?;
        Ok(kill_process(pid, Signal::TERM)?)
    }

    /// Stops it by a signal, or by a second one: programs that look at all mounts, like df, keep it
    /// busy for a moment.
    pub fn stop(mut self) -> Result<()> {
        let errors = self.child.stderr.take().context("it is a pipe")?;
        self.signal()?;
        let mut printed = String::new();
        for line in BufReader::new(errors).lines() {
            let line = line?;
            if line.contains("cannot unmount") {
                self.signal()?;
            }
            printed += &line;
        }
        let status = self.child.wait()?;
        ensure!(status.success(), "it ended with {status}: {printed}");
        Ok(())
    }

    /// Sends a signal while it is in use, which is refused, and a second one, which detaches it.
    pub fn refuses_signal(mut self) -> Result<String> {
        let errors = self.child.stderr.take().context("it is a pipe")?;
        let open = std::fs::File::open(&self.dir)?;
        self.signal()?;
        let mut lines = BufReader::new(errors).lines();
        let refusal =
            lines.find(|line| line.as_ref().is_ok_and(|line| line.contains("cannot unmount")));
        refusal.context("it printed nothing")??;
        ensure!(self.child.try_wait()?.is_none(), "it ended while it was in use");
        self.signal()?;
        ensure!(self.child.wait()?.success(), "it failed");
        drop(open);
        let mounts = std::fs::read_to_string("/proc/mounts")?;
        ensure!(!mounts.contains(&self.dir.display().to_string()), "it is still mounted");
        Ok(String::new())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        let _ = rustix::mount::unmount(&self.dir, UnmountFlags::DETACH);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
