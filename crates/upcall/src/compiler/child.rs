//! A child that compiles one module, as seen by the server.
//!
//! It gets the module in a memory file and writes its output to another one, so no I/O is needed
//! while it runs. It is killed on drop.
//!
//! It has no key and no secret of the server: its request names the module and the kind of code.
//! Its output is accepted as code of that module only, and is authenticated here, by the server,
//! when it is cached.

use super::inside::{self, CPU_MAX_S, MEMORY_MAX, OUTPUT_MAX, RunSpec};
use base::Instant;
use rustix::fs::MemfdFlags;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use std::fs::File;
use std::io::{Seek as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;
use wasi::{Artifact, Code, Engines, Hash, Refused};

/// Time limit of a child, which other processes may keep from its processor time.
const TIME_MAX: Duration = Duration::from_secs(300);

/// CPU time after which a module no longer precedes others.
const QUICK_MAX: Duration = Duration::from_secs(1);

/// Maximum number of bytes read of a child's error output.
const OUTPUT_BYTES_MAX: u64 = 1 << 10;

/// Command of the compiling child.
#[derive(Clone, Debug)]
pub(super) struct ChildCommand {
    pub(super) program: PathBuf,
    pub(super) args: Vec<String>,
    pub(super) time_max: Duration,
    /// CPU time after which a module counts as slow.
    pub(super) quick_max: Duration,
}

impl ChildCommand {
    /// Returns the command of this very program, even if its file was replaced.
    pub(super) fn own() -> ChildCommand {
        ChildCommand {
            program: PathBuf::from("/proc/self/exe"),
            args: vec!["compile-module".to_string()],
            time_max: TIME_MAX,
            quick_max: QUICK_MAX,
        }
    }
}

/// Result of a child.
pub(super) struct Finished {
    pub(super) result: Result<Artifact, Refused>,
    /// CPU time used, ns.
    pub(super) cpu_ns: u64,
}

/// A running child.
pub(super) struct Child {
    process: std::process::Child,
    pid: Pid,
    output: File,
    printed: File,
    name: Hash,
    engines: Arc<Engines>,
    code: Code,
    /// Start time, and time limit.
    started: Instant,
    deadline: Instant,
}

impl Child {
    /// Starts a child for a module of this name and a kind of code, with the engines for that.
    pub(super) fn start(
        child_command: &ChildCommand,
        engines: &Arc<Engines>,
        (name, code): (Hash, Code),
        prepared: &[u8],
        now: Instant,
    ) -> Result<Child, String> {
        let order = RunSpec { name, code };
        let make = || -> std::io::Result<_> {
            let (mut input, output, printed) = (memory_file()?, memory_file()?, memory_file()?);
            input.write_all(&order.bytes())?;
            input.write_all(prepared)?;
            input.rewind()?;
            let mut command = Command::new(&child_command.program);
            command
                .args(&child_command.args)
                .env_clear()
                .current_dir("/")
                .stdin(Stdio::from(input))
                .stdout(Stdio::from(output.try_clone()?))
                .stderr(Stdio::from(printed.try_clone()?))
                // Signals from the server's terminal do not reach it.
                .process_group(0);
            Ok((command.spawn()?, output, printed))
        };
        let made = make().map_err(|error| format!("no process to compile in: {error}"));
        let (process, output, printed) = made?;
        let deadline = now + child_command.time_max;
        let (pid, engines) = (Pid::from_child(&process), Arc::clone(engines));
        Ok(Child { process, pid, output, printed, name, engines, code, started: now, deadline })
    }

    /// Returns its process id.
    #[cfg(test)]
    pub(super) fn pid(&self) -> i32 {
        self.pid.as_raw_pid()
    }

    /// Returns the CPU time used so far.
    pub(super) fn spent(&self) -> Duration {
        Duration::from_nanos(processor_time(self.pid).unwrap_or(0))
    }

    /// Returns its running time.
    pub(super) fn age(&self, now: Instant) -> Duration {
        now.since(self.started)
    }

    /// Returns its result if it has ended; kills it after the time limit.
    pub(super) fn look(&mut self, now: Instant) -> Option<Finished> {
        let late = now >= self.deadline;
        if late {
            // One that has just ended by itself is late all the same.
            let _ = self.process.kill();
        }
        let mut options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        options.set(WaitIdOptions::NOHANG, !late);
        let over = rustix::process::waitid(WaitId::Pid(self.pid), options);
        if matches!(over, Ok(None)) {
            return None;
        }
        // Its usage is available until it is waited for.
        let cpu_ns = processor_time(self.pid).unwrap_or(0);
        let status = self.process.wait();
        let result = match status {
            _ if late => Err(Refused::Failed(format!(
                "it was not done after {} s: try again when the server is less busy",
                self.deadline.since(self.started).as_secs()
            ))),
            Ok(status) if status.success() => self.artifact(),
            Ok(status) => Err(refusal(status, &self.printed(), cpu_ns)),
            Err(error) => Err(Refused::Failed(format!("its process was lost: {error}"))),
        };
        Some(Finished { result, cpu_ns })
    }

    /// Returns its artifact, if it is the requested one.
    fn artifact(&self) -> Result<Artifact, Refused> {
        let read = || -> std::io::Result<Vec<u8>> {
            let len = self.output.metadata()?.len().min(OUTPUT_MAX);
            let mut bytes = vec![0; Artifact::HEADER + usize::try_from(len).unwrap_or(0)];
            self.output.read_exact_at(&mut bytes[Artifact::HEADER..], 0)?;
            Ok(bytes)
        };
        let bytes = read().map_err(|error| Refused::Failed(format!("its output: {error}")))?;
        let artifact = Artifact::of_child(self.name, self.engines.of(self.code), bytes);
        artifact.map_err(|_| Refused::Failed("the output of its process is broken".to_string()))
    }

    /// Returns its error output as one printable line.
    fn printed(&self) -> String {
        let mut bytes = vec![0; OUTPUT_BYTES_MAX as usize];
        let len = self.printed.read_at(&mut bytes, 0).unwrap_or(0);
        let text = String::from_utf8_lossy(&bytes[..len]).into_owned();
        text.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // It may have ended, and been waited for.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns the reason why a child has ended without an artifact.
fn refusal(status: ExitStatus, printed: &str, cpu_ns: u64) -> Refused {
    let spent = cpu_ns >= CPU_MAX_S * 1_000_000_000;
    let signal = status.signal().and_then(Signal::from_named_raw);
    match signal {
        Some(Signal::XCPU) => too_expensive(&format!("{CPU_MAX_S} s of processor time")),
        Some(Signal::KILL) if spent => too_expensive(&format!("{CPU_MAX_S} s of processor time")),
        Some(Signal::XFSZ) => Refused::TooLarge(format!(
            "its machine code is more than {} MiB: divide it into several programs",
            OUTPUT_MAX >> 20
        )),
        Some(Signal::ABORT) if printed.contains("memory allocation of") => {
            too_expensive(&format!("{} GiB of memory", MEMORY_MAX >> 30))
        }
        Some(Signal::ABORT) if printed.contains("overflowed its stack") => {
            too_expensive("the stack of a process")
        }
        Some(signal) => Refused::Failed(format!(
            "its process was ended by signal {}: {printed}",
            signal.as_raw()
        )),
        None if status.code() == Some(inside::MALFORMED.into()) => {
            Refused::Malformed(printed.to_string())
        }
        None => Refused::Failed(printed.to_string()),
    }
}

fn too_expensive(what: &str) -> Refused {
    Refused::TooExpensive(format!(
        "compilation exceeds {what}; split its largest functions, or build it with optimisation"
    ))
}

/// Creates an unnamed file in memory.
fn memory_file() -> std::io::Result<File> {
    Ok(File::from(rustix::fs::memfd_create("upcall-compile", MemfdFlags::CLOEXEC)?))
}

/// Returns the CPU time of a process, ns.
fn processor_time(pid: Pid) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{}/schedstat", pid.as_raw_pid())).ok()?;
    text.split(' ').next()?.parse().ok()
}
