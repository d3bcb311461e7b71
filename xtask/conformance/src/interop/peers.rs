//! The servers: ours, four third-party ones, and namespaces of ours that mount them.

use super::tools::{self, Tools};
use super::{Dialect, Setup};
use anyhow::{Context, Result, bail};
use rig::server::{Kind, Server, free_port};
use rig::sh;
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A server program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Peer {
    Upcall,
    Diod,
    /// Go, 9P2000.L.
    P9ufs,
    /// Go, 9P2000.
    Export9p,
    /// Python, 9P2000, files in memory.
    Pyroute2,
}

impl Peer {
    pub(super) const ALL: [Peer; 5] =
        [Peer::Upcall, Peer::Diod, Peer::P9ufs, Peer::Export9p, Peer::Pyroute2];

    /// Returns the name in the table.
    pub(super) fn name(self) -> &'static str {
        match self {
            Peer::Upcall => "upcall",
            Peer::Diod => "diod",
            Peer::P9ufs => "p9ufs",
            Peer::Export9p => "export9p",
            Peer::Pyroute2 => "pyroute2",
        }
    }

    /// Returns the description for the page.
    pub(super) fn what(self) -> String {
        match self {
            Peer::Upcall => "`upcall serve`, both dialects".into(),
            Peer::Diod => "C, 9P2000.L; from Debian".into(),
            Peer::P9ufs => {
                format!("Go, 9P2000.L; `github.com/hugelgupf/p9/cmd/p9ufs` {}", tools::P9)
            }
            Peer::Export9p => {
                format!("Go, 9P2000; `github.com/knusbaum/go9p/cmd/export9p` {}", rig::go::GO9P.1)
            }
            Peer::Pyroute2 => format!(
                "Python, 9P2000; `pyroute2.plan9` {}, whose files are in memory",
                tools::PYROUTE2
            ),
        }
    }

    pub(super) fn speaks(self, dialect: Dialect) -> bool {
        match self {
            Peer::Upcall => true,
            Peer::Diod | Peer::P9ufs => dialect == Dialect::Linux,
            Peer::Export9p | Peer::Pyroute2 => dialect == Dialect::Plan9,
        }
    }

    /// Returns whether it could be installed.
    pub(super) fn there(self, tools: &Tools) -> bool {
        match self {
            Peer::Upcall | Peer::Diod => true,
            Peer::P9ufs => tools.p9ufs.is_some(),
            Peer::Export9p => tools.export9p.is_some(),
            Peer::Pyroute2 => tools.python.is_some(),
        }
    }
}

/// Timeout of a client, seconds; and of one whose dialect the server does not support, which often
/// gets no reply.
pub(super) const TIMEOUT: u32 = 10;
pub(super) const TIMEOUT_IN_VAIN: u32 = 3;

/// A listening server, with those behind it.
pub(super) struct Running {
    pub(super) port: u16,
    pub(super) aname: String,
    /// Directory of the files in its tree: the root, or a mount point.
    pub(super) base: &'static str,
    /// Timeout of a client, seconds.
    pub(super) timeout: u32,
    parts: Vec<(&'static str, Part)>,
}

enum Part {
    Known(Server),
    Other(Other),
}

/// A server used only by this suite.
struct Other {
    port: u16,
    child: Child,
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    /// Starts a server on the ground.
    pub(super) fn start(peer: Peer, setup: &Setup) -> Result<Running> {
        let dir = &setup.ground.dir;
        let known = |kind| -> Result<Running> {
            let server = Server::start(kind, dir, &[])?;
            let aname = server.dir.display().to_string();
            let (port, parts) = (server.ninep, vec![(peer.name(), Part::Known(server))]);
            Ok(Running { port, aname, base: "", timeout: TIMEOUT, parts })
        };
        if peer == Peer::Upcall || peer == Peer::Diod {
            return known(if peer == Peer::Diod { Kind::Diod } else { setup.kind });
        }
        let port = free_port()?;
        let address = format!("127.0.0.1:{port}");
        let mut command = setup.command(peer)?;
        match peer {
            Peer::P9ufs => command.arg("-root").arg(dir).arg(&address),
            Peer::Export9p => command.args(["-noperm", "-address", &address, "-dir"]).arg(dir),
            Peer::Upcall | Peer::Diod | Peer::Pyroute2 => {
                command.args(["127.0.0.1", &port.to_string()]).arg(dir)
            }
        };
        let other = Other::start(command, port, peer.name())?;
        let parts = vec![(peer.name(), Part::Other(other))];
        Ok(Running { port, aname: String::new(), base: "", timeout: TIMEOUT, parts })
    }

    /// Starts a namespace in front of it.
    pub(super) fn joined(mut self, setup: &Setup) -> Result<Running> {
        let ground = setup.ground;
        let names = ground.aside.join(format!("names-{}", self.port));
        let (root, port, aname) = (ground.root.display(), self.port, &self.aname);
        let text = format!("mount / host:{root}\nmount -c /far 9p://127.0.0.1:{port}{aname}\n");
        std::fs::write(&names, text)?;
        let server = Server::start_space(setup.kind, &names, &[])?;
        self.port = server.ninep;
        self.parts.insert(0, ("upcall", Part::Known(server)));
        Ok(Running { aname: "/".into(), base: "/far", ..self })
    }

    /// Returns the first process that has exited.
    pub(super) fn dead(&mut self) -> Option<&'static str> {
        let dead = |part: &mut Part| match part {
            Part::Known(server) => !server.alive(),
            Part::Other(other) => !matches!(other.child.try_wait(), Ok(None)),
        };
        self.parts.iter_mut().find_map(|(name, part)| dead(part).then_some(*name))
    }

    /// Returns the ports of all of them.
    pub(super) fn ports(&self) -> Vec<u16> {
        let port = |part: &Part| match part {
            Part::Known(server) => server.ninep,
            Part::Other(other) => other.port,
        };
        self.parts.iter().map(|(_, part)| port(part)).collect()
    }
}

impl Setup<'_> {
    fn command(&self, peer: Peer) -> Result<Command> {
        let tools = self.tools;
        let program = match peer {
            Peer::P9ufs => tools.p9ufs.as_ref(),
            Peer::Export9p => tools.export9p.as_ref(),
            Peer::Pyroute2 => tools.python.as_ref().map(|python| &python.program),
            Peer::Upcall | Peer::Diod => None,
        };
        let mut command = Command::new(program.context("not installed")?);
        if let Some(python) = tools.python.as_ref().filter(|_| peer == Peer::Pyroute2) {
            command.arg(&python.server);
        }
        Ok(command)
    }
}

impl Other {
    fn start(mut command: Command, port: u16, name: &str) -> Result<Other> {
        let log = sh::scratch("logs")?.join(format!("{name}.log"));
        let file = std::fs::File::create(&log)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = command.spawn().with_context(|| format!("start {name}"))?;
        let mut other = Other { port, child };
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if other.child.try_wait()?.is_some() || start.elapsed() > Duration::from_secs(60) {
                let printed = std::fs::read_to_string(&log).unwrap_or_default();
                bail!("{name} does not listen: {}", sh::tail(&printed, 600));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(other)
    }
}
