//! The clients, and their implementation of each step.

use super::tools::{self, Tools};
use super::{Dialect, ENTRIES, NESTED, Running, Setup, Step};
use anyhow::{Context, Result, bail, ensure};
use rig::server;
use rig::sh;
use std::path::Path;
use std::process::{Command, Stdio};

/// A 9P client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Client {
    LinuxL,
    Linux,
    Diod,
    /// Go, 9P2000.L.
    P9,
    /// Go, 9P2000.
    Plan9,
    Python,
    UpcallL,
    Upcall,
}

const READS: &[&str] = &["attach", "list", "read", "nested"];
const ALL_STEPS: &[&str] =
    &["attach", "list", "read", "nested", "create", "write", "back", "rename", "remove"];
/// `upcall put` writes to a temporary name and renames.
const COMMANDS: &[&str] = &["attach", "list", "read", "nested", "create", "back", "remove"];

impl Client {
    pub(super) const ALL: [Client; 8] = [
        Client::LinuxL,
        Client::Linux,
        Client::Diod,
        Client::P9,
        Client::Plan9,
        Client::Python,
        Client::UpcallL,
        Client::Upcall,
    ];

    /// Returns the name in the table.
    pub(super) fn name(self) -> &'static str {
        match self {
            Client::LinuxL => "linux.L",
            Client::Linux => "linux",
            Client::Diod => "diodcat.L",
            Client::P9 => "p9.L",
            Client::Plan9 => "9fans",
            Client::Python => "pyroute2",
            Client::UpcallL => "upcall.L",
            Client::Upcall => "upcall",
        }
    }

    /// Returns the description for the page.
    pub(super) fn what(self, kernel: &str) -> String {
        match self {
            Client::LinuxL => format!("Linux {kernel}, `mount -o version=9p2000.L`"),
            Client::Linux => format!("Linux {kernel}, `mount -o version=9p2000`"),
            Client::Diod => "diodls and diodcat, which only read".into(),
            Client::P9 => format!("Go, `github.com/hugelgupf/p9` {}", tools::P9),
            Client::Plan9 => {
                format!("Go, `9fans.net/go/plan9/client` {}, Plan 9's own", tools::PLAN9)
            }
            Client::Python => {
                format!("Python, `pyroute2.plan9` {}, which only reads", tools::PYROUTE2)
            }
            Client::UpcallL => "`upcall ls`, `cat`, `get`, `put`, `rm`".into(),
            Client::Upcall => "the same with `--protocol 9P2000`".into(),
        }
    }

    pub(super) fn dialect(self) -> Dialect {
        match self {
            Client::LinuxL | Client::Diod | Client::P9 | Client::UpcallL => Dialect::Linux,
            Client::Linux | Client::Plan9 | Client::Python | Client::Upcall => Dialect::Plan9,
        }
    }

    pub(super) fn in_guest(self) -> bool {
        self == Client::LinuxL || self == Client::Linux
    }

    pub(super) fn writes(self) -> bool {
        self != Client::Diod && self != Client::Python
    }

    /// Returns the steps of a successful run.
    pub(super) fn steps(self) -> &'static [&'static str] {
        match self {
            Client::Diod | Client::Python => READS,
            Client::UpcallL | Client::Upcall => COMMANDS,
            Client::LinuxL | Client::Linux | Client::P9 | Client::Plan9 => ALL_STEPS,
        }
    }

    /// Returns whether it could be installed.
    pub(super) fn there(self, tools: &Tools) -> bool {
        match self {
            Client::P9 => tools.p9_client.is_some(),
            Client::Plan9 => tools.plan9_client.is_some(),
            Client::Python => tools.python.is_some(),
            Client::LinuxL | Client::Linux | Client::Diod | Client::UpcallL | Client::Upcall => {
                true
            }
        }
    }

    /// Runs a client of this host. `id` is a unique name.
    pub(super) fn run(self, setup: &Setup, server: &Running, id: &str) -> Vec<Step> {
        let mut steps = Vec::new();
        let outcome = match self {
            Client::Diod => Tool::new(setup, server, &mut steps).diod(),
            Client::UpcallL => Tool::new(setup, server, &mut steps).upcall("9P2000.L", id),
            Client::Upcall => Tool::new(setup, server, &mut steps).upcall("9P2000", id),
            Client::P9 | Client::Plan9 | Client::Python | Client::LinuxL | Client::Linux => {
                self.program(setup, server, id).map(|found| steps = found)
            }
        };
        if let Err(error) = outcome {
            steps.push(Step { name: "attach".into(), outcome: Err(format!("{error:#}")) });
        }
        steps
    }

    /// Runs a client that prints its steps itself.
    fn program(self, setup: &Setup, server: &Running, id: &str) -> Result<Vec<Step>> {
        let tools = setup.tools;
        let go = if self == Client::P9 { &tools.p9_client } else { &tools.plan9_client };
        let mut command = sh::cmd("timeout", &[server.timeout.to_string()]);
        if self == Client::Python {
            let python = tools.python.as_ref().context("no client")?;
            command.arg(&python.program).arg(&python.client);
        } else {
            command.arg(go.as_ref().context("no client")?);
        }
        command.arg(format!("127.0.0.1:{}", server.port)).arg(&server.aname).arg(server.base);
        command.arg(&setup.ground.dir).arg(setup.ground.written()).arg(NESTED).arg(id);
        let output = command.output()?;
        let printed = String::from_utf8_lossy(&output.stdout);
        let steps: Vec<_> = printed.lines().filter_map(Step::parse).collect();
        if steps.is_empty() && output.status.code() == Some(124) {
            bail!("no answer");
        }
        if steps.is_empty() {
            let error = String::from_utf8_lossy(&output.stderr);
            bail!("{}: {}", output.status, sh::tail(&error, 300));
        }
        Ok(steps)
    }
}

/// A client of one command for each step.
struct Tool<'a> {
    setup: &'a Setup<'a>,
    server: &'a Running,
    steps: &'a mut Vec<Step>,
}

impl<'a> Tool<'a> {
    fn new(setup: &'a Setup<'a>, server: &'a Running, steps: &'a mut Vec<Step>) -> Tool<'a> {
        Tool { setup, server, steps }
    }

    /// Records a step; returns whether it succeeded.
    fn step(&mut self, name: &str, outcome: Result<()>) -> bool {
        let outcome = outcome.map_err(|error| format!("{error:#}"));
        let well = outcome.is_ok();
        self.steps.push(Step { name: name.to_owned(), outcome });
        well
    }

    fn diod(mut self) -> Result<()> {
        let command = |server: &Running, name: &str, path: &str| -> Result<Command> {
            let program = sh::which(name).with_context(|| format!("no {name}"))?;
            let mut command = sh::cmd("timeout", &[server.timeout.to_string()]);
            command.arg(program).args(["-t", &(server.timeout - 1).to_string(), "-s"]);
            command.arg(format!("127.0.0.1:{}", server.port)).arg("-a").arg(&server.aname);
            command.arg(format!("{}/{path}", server.base).trim_start_matches('/'));
            Ok(command)
        };
        let list = bytes(command(self.server, "diodls", "list")?);
        let (big, deep) = (self.setup.ground.dir.join("big"), self.setup.ground.dir.join(NESTED));
        if !self.attached(&list) {
            return Ok(());
        }
        self.step("list", list.and_then(|list| listed(&list)));
        let read = bytes(command(self.server, "diodcat", "big")?);
        self.step("read", read.and_then(|read| same(&read, &big)));
        let read = bytes(command(self.server, "diodcat", NESTED)?);
        self.step("nested", read.and_then(|read| same(&read, &deep)));
        Ok(())
    }

    fn upcall(mut self, protocol: &str, id: &str) -> Result<()> {
        let server = self.server;
        let command = |name: &str, words: &[&str]| {
            let mut command = sh::cmd("timeout", &[server.timeout.to_string()]);
            command.arg(server::binary()).arg(name).args(["--protocol", protocol]);
            command.args(["--timeout", &(server.timeout - 1).to_string()]);
            command.args(["--aname", &server.aname]);
            command.arg(format!(":{}", server.port)).args(words).stdin(Stdio::null());
            command
        };
        let at = |path: &str| format!("{}/{path}", server.base);
        let (big, deep) = (self.setup.ground.dir.join("big"), self.setup.ground.dir.join(NESTED));
        let list = bytes(command("ls", &[&at("list")]));
        if !self.attached(&list) {
            return Ok(());
        }
        self.step("list", list.and_then(|list| listed(&list)));
        let read = bytes(command("cat", &[&at("big")]));
        self.step("read", read.and_then(|read| same(&read, &big)));
        let read = bytes(command("get", &[&at(NESTED), "-"]));
        self.step("nested", read.and_then(|read| same(&read, &deep)));
        let (from, to) = (self.setup.ground.written(), at(&format!("made-{id}")));
        let put = bytes(command("put", &[&from.display().to_string(), &to])).map(|_| ());
        if !self.step("create", put) {
            return Ok(());
        }
        let back = bytes(command("cat", &[&to]));
        self.step("back", back.and_then(|back| same(&back, &from)));
        let removed = bytes(command("rm", &[&to])).and_then(|_| {
            ensure!(bytes(command("cat", &[&to])).is_err(), "it is still there");
            Ok(())
        });
        self.step("remove", removed);
        Ok(())
    }

    /// Records whether the server was reached: the error of a failed first command is the reason.
    fn attached(&mut self, first: &Result<Vec<u8>>) -> bool {
        let outcome = first.as_ref().map(|_| ()).map_err(|error| anyhow::anyhow!("{error:#}"));
        self.step("attach", outcome)
    }
}

/// Returns a command's output, or its error text as the error.
fn bytes(mut command: Command) -> Result<Vec<u8>> {
    let output = command.output()?;
    let printed = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
    match output.status.code() {
        Some(0) => Ok(output.stdout),
        Some(124) => bail!("no answer; {printed}"),
        _ if printed.is_empty() => bail!("{}", output.status),
        _ => bail!("{}", sh::tail(&printed, 200)),
    }
}

fn listed(list: &[u8]) -> Result<()> {
    let text = String::from_utf8_lossy(list);
    let mut names: Vec<_> =
        text.split_whitespace().filter(|word| word.contains("entry-")).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    ensure!(count == ENTRIES && names.len() == ENTRIES, "{count} names, {} different", names.len());
    Ok(())
}

fn same(got: &[u8], path: &Path) -> Result<()> {
    let wanted = std::fs::read(path)?;
    ensure!(got.len() == wanted.len(), "{} bytes of {}", got.len(), wanted.len());
    ensure!(got == wanted, "other bytes");
    Ok(())
}
