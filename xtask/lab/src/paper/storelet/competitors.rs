//! Competitors for the processor of the file service, and a file server that is not in `server`.

use super::{Lab, wasm};
use anyhow::{Context, Result, bail, ensure};
use rig::files::Files;
use rig::server::{Kind, Server, binary, free_port};
use rig::{guests, sh};
use std::fmt::Write as _;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Work of competitors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// The paper's: a second of sleep and a million iterations of a loop, repeated.
    Sleep,
    /// A counting loop.
    Spin,
    /// Reads all files of a directory, repeatedly.
    Scan,
}

/// Form of execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Storelet,
    Process(Class),
}

/// Scheduling class of competing processes; the server has the default one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// The server's class.
    Usual,
    /// Nice 19, that of the threads that run storelets.
    Nice,
    /// `SCHED_IDLE`.
    Idle,
    /// A control group with the smallest share, 2 of 1,024.
    Shares,
}

/// Server under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    Ours,
    Diod,
    Ganesha,
}

/// A server on the first processor.
pub(super) enum Service {
    Known(Server),
    Ganesha(Ganesha),
}

impl Service {
    pub(super) fn start(lab: &Lab, peer: Peer, dir: &Path, core: Option<usize>) -> Result<Service> {
        Ok(match peer {
            Peer::Ours => Service::Known(lab.serve(dir, core)?),
            Peer::Diod => Service::Known(Server::start_on(Kind::Diod, dir, &[], core)?),
            Peer::Ganesha => Service::Ganesha(Ganesha::start(&lab.base, dir, core)?),
        })
    }

    pub(super) fn port(&self) -> u16 {
        match self {
            Service::Known(server) => server.ninep,
            Service::Ganesha(ganesha) => ganesha.port,
        }
    }
}

/// nfs-ganesha with its 9P2000.L front end alone: the same protocol as the others, and no
/// portmapper.
pub(super) struct Ganesha {
    port: u16,
    child: Child,
}

impl Ganesha {
    fn start(base: &Path, dir: &Path, core: Option<usize>) -> Result<Ganesha> {
        let (port, dir) = (free_port()?, dir.display());
        let text = format!(
            "NFS_CORE_PARAM {{ Protocols = 9P; Enable_NLM = false; Enable_RQUOTA = false; }}\n\
             _9P {{ _9P_TCP_Port = {port}; }}\n\
             NFSv4 {{ Graceless = true; RecoveryBackend = fs; }}\n\
             EXPORT {{ Export_Id = 1; Path = {dir}; Pseudo = /served; Tag = served; \
             Access_Type = RO; Squash = No_Root_Squash; Protocols = 9P; SecType = sys; \
             FSAL {{ Name = VFS; }} }}\n"
        );
        let (conf, log, pid) =
            (base.join("ganesha.conf"), base.join("ganesha.log"), base.join("ganesha.pid"));
        std::fs::write(&conf, text)?;
        let program = sh::which("ganesha.nfsd").context("no ganesha.nfsd")?;
        let mut command = on(core, &program.display().to_string());
        command.arg("-F").arg("-f").arg(conf).arg("-L").arg(&log).arg("-p").arg(pid);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().context("start ganesha.nfsd")?;
        let mut ganesha = Ganesha { port, child };
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let ended = ganesha.child.try_wait()?.is_some();
            if ended || begun.elapsed() > Duration::from_secs(20) {
                let printed = std::fs::read_to_string(&log).unwrap_or_default();
                bail!("ganesha.nfsd does not listen: {}", sh::tail(&printed, 600));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(ganesha)
    }
}

impl Drop for Ganesha {
    fn drop(&mut self) {
        // It serves read-only, so it has nothing to flush.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Running competitors, which are killed on drop.
pub(super) struct Competitors<'a> {
    form: Form,
    work: Work,
    port: u16,
    /// Directory to scan.
    dir: &'a Path,
    core: Option<usize>,
    children: Vec<Child>,
}

impl<'a> Competitors<'a> {
    /// Returns an empty set. The directory contains one called `scan`.
    pub(super) fn new(
        (form, work): (Form, Work),
        port: u16,
        dir: &'a Path,
        core: Option<usize>,
    ) -> Competitors<'a> {
        Competitors { form, work, port, dir, core, children: Vec::new() }
    }

    /// Starts or ends competitors until there are `count`, and waits until they run.
    pub(super) fn become_many(&mut self, count: usize) -> Result<()> {
        for mut child in self.children.drain(count.min(self.children.len())..) {
            child.kill()?;
            child.wait()?;
        }
        while self.children.len() < count {
            let mut command = match self.form {
                Form::Storelet => self.storelet(),
                Form::Process(class) => self.process(class)?,
            };
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            self.children.push(command.spawn().context("start a competitor")?);
        }
        if self.form == Form::Storelet {
            self.await_running(count)?;
        }
        for child in &mut self.children {
            ensure!(child.try_wait()?.is_none(), "a competitor has ended");
        }
        Ok(())
    }

    fn storelet(&self) -> Command {
        let mut command = Command::new(binary());
        command.args(["run", &format!("127.0.0.1:{}", self.port), "--cpu", "10m", "--time", "1h"]);
        command.args(["--memory", "4M"]).arg(wasm("compete")).arg("--");
        match self.work {
            Work::Sleep => command.arg("sleep"),
            Work::Spin => command.arg("spin"),
            Work::Scan => command.args(["scan", "/scan"]),
        };
        command
    }

    fn process(&self, class: Class) -> Result<Command> {
        let program = guests::native("compete")?.display().to_string();
        let mut command = match class {
            Class::Usual => on(self.core, &program),
            Class::Nice => on(self.core, "nice"),
            Class::Idle => on(self.core, "chrt"),
            Class::Shares => on(self.core, "sh"),
        };
        match class {
            Class::Usual => {}
            Class::Nice => drop(command.args(["-n", "19", &program])),
            Class::Idle => drop(command.args(["--idle", "0", &program])),
            Class::Shares => {
                let group = shares_group()?.join("cgroup.procs").display().to_string();
                let script = "echo $$ > \"$0\" && exec \"$@\"";
                command.args(["-c", script, &group, &program]);
            }
        }
        match self.work {
            Work::Sleep => command.arg("sleep"),
            Work::Spin => command.arg("spin"),
            Work::Scan => command.arg("scan").arg(self.dir.join("scan")),
        };
        Ok(command)
    }

    fn await_running(&self, count: usize) -> Result<()> {
        let begun = Instant::now();
        loop {
            let list = Files::at(self.port)?.read("/.upcall/storelets/running")?;
            let list = String::from_utf8(list.context("no list of storelets")?)?;
            let state = |line: &&str| line.split_whitespace().nth(2).map(str::to_owned);
            let states: Vec<_> = list.lines().skip(1).filter_map(|line| state(&line)).collect();
            let going = |state: &&String| matches!(state.as_str(), "running" | "waiting" | "ready");
            if states.iter().filter(going).count() == count {
                return Ok(());
            }
            if begun.elapsed() > Duration::from_secs(60) {
                let mut shown = String::new();
                let _ = write!(shown, "{states:?}");
                bail!("{count} storelets do not come to run: {}", sh::tail(&shown, 300));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Competitors<'_> {
    fn drop(&mut self) {
        for child in &mut self.children {
            // It may have exited by itself.
            let _ = child.kill();
        }
        for child in &mut self.children {
            let _ = child.wait();
        }
    }
}

/// Returns a control group (version 1) with the smallest CPU share; it stays empty afterwards.
fn shares_group() -> Result<PathBuf> {
    let group = PathBuf::from("/sys/fs/cgroup/cpu/upcall-competitors");
    if !group.exists() {
        std::fs::create_dir(&group).context("a control group for competitors")?;
    }
    std::fs::write(group.join("cpu.shares"), "2").context("its share")?;
    Ok(group)
}

/// Returns whether control groups of version 1 can be created here.
pub(super) fn has_groups() -> bool {
    shares_group().is_ok()
}

/// Returns a command pinned to a processor.
fn on(core: Option<usize>, program: &str) -> Command {
    let Some(core) = core else { return Command::new(program) };
    let mut command = Command::new("taskset");
    command.args(["-c", &core.to_string(), program]);
    command
}
