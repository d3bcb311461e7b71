//! Commands of a page, one after the other.

use super::fixture::{Fixture, Method};
use super::page::Shown;
use anyhow::{Context as _, Result, bail, ensure};
use std::fs::File;
use std::io::Read as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Timeout of a command or of a server's start: a busy machine compiles a large storelet for
/// minutes.
const COMMAND_TIME: Duration = Duration::from_secs(600);

/// Polling interval of a process.
const LOOK: Duration = Duration::from_millis(20);

/// Last line printed by a started server.
const STARTED: &str = "Ctrl-C ends it";

/// Runs commands in a fixture, with servers in the background.
pub(super) struct Runner {
    fixture: Fixture,
    servers: Vec<Server>,
    count: usize,
}

/// A server in the background.
struct Server {
    child: Child,
    /// Its addresses, as far as its command line or its first lines name them.
    addresses: Vec<String>,
}

impl Runner {
    pub(super) fn new(fixture: Fixture) -> Runner {
        Runner { fixture, servers: Vec::new(), count: 0 }
    }

    /// Runs all commands and prints a line for each: result, seconds, the command, a text.
    pub(super) fn run_all(mut self, commands: &[Shown]) {
        for shown in commands {
            let begun = Instant::now();
            let (how, text) = match self.perform(shown) {
                Ok(None) => ("ok", String::new()),
                Ok(Some(why)) => ("skip", why),
                Err(error) => ("fail", format!("{error:#}")),
            };
            let (command, text) = (shown.command.replace('\t', " "), text.replace('\n', "\\n"));
            println!("{how}\t{:.1}\t{command}\t{text}", begun.elapsed().as_secs_f64());
        }
        for server in &mut self.servers {
            server.end();
        }
    }

    /// Runs a command and compares its output; returns the reason if it cannot run here.
    fn perform(&mut self, shown: &Shown) -> Result<Option<String>> {
        let (code, printed) = match self.fixture.method(&shown.command) {
            Method::Skip(why) => return Ok(Some(why)),
            Method::Plain => self.run(&shown.command)?,
            Method::Before(others) => {
                for other in others {
                    let (code, printed) = self.run(other)?;
                    let text = printed.join("\n");
                    ensure!(code.is_none_or(|it| it == 0), "before it, {other}: {code:?}: {text}");
                }
                self.run(&shown.command)?
            }
            Method::Until(other) => {
                (Some(0), self.beside(&shown.command, other, shown.output.len())?)
            }
        };
        let text = printed.join("\n");
        let fits = code.is_none_or(|code| self.fixture.expects(shown, code));
        ensure!(fits, "exit code {code:?}: {text}");
        if !shown.output.is_empty()
            && let Some(difference) = self.fixture.compare(shown, &printed)
        {
            bail!("{difference}\nit says:\n{text}");
        }
        Ok(None)
    }

    /// Runs a command to its end, or a server until it is ready; returns the exit code and output.
    fn run(&mut self, command: &str) -> Result<(Option<i32>, Vec<String>)> {
        let is_server = command.contains("upcall serve") || command.contains("-- serve");
        if is_server {
            let addresses = addresses(command);
            self.servers.retain_mut(|server| {
                let meets = server.addresses.iter().any(|it| addresses.contains(it));
                if meets {
                    server.end();
                }
                !meets
            });
        }
        let (mut child, log) = self.start(command)?;
        let begun = Instant::now();
        loop {
            let text = read(&log)?;
            if let Some(status) = child.try_wait()? {
                return Ok((status.code(), lines(&read(&log)?)));
            }
            if is_server && text.contains(STARTED) {
                self.servers.push(Server { child, addresses: addresses(command) });
                return Ok((None, lines(&text)));
            }
            if begun.elapsed() > COMMAND_TIME {
                let _ = child.kill();
                bail!("it did not end in {COMMAND_TIME:?}: {text}");
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Runs a command that does not end by itself until another one has made it print enough.
    fn beside(&mut self, command: &str, other: &str, count: usize) -> Result<Vec<String>> {
        let (mut child, log) = self.start(command)?;
        let begun = Instant::now();
        let printed = loop {
            let printed = lines(&read(&log)?);
            if printed.len() >= count || begun.elapsed() > COMMAND_TIME {
                break printed;
            }
            let (code, text) = self.run(other)?;
            ensure!(code == Some(0), "{other}: {code:?}: {}", text.join("\n"));
            std::thread::sleep(LOOK);
        };
        child.kill()?;
        child.wait()?;
        Ok(printed.into_iter().take(count).collect())
    }

    fn start(&mut self, command: &str) -> Result<(Child, PathBuf)> {
        self.count += 1;
        let log = PathBuf::from(format!("/tmp/.output-{}", self.count));
        let file = File::create(&log)?;
        let mut shell = self.fixture.shell(command);
        shell.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        Ok((shell.spawn().context("a shell")?, log))
    }
}

impl Server {
    fn end(&mut self) {
        // The shell has replaced itself by the server: exec.
        let id = self.child.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &id]).status();
        let _ = self.child.wait();
    }
}

fn read(log: &PathBuf) -> Result<String> {
    let mut bytes = Vec::new();
    File::open(log)?.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns lines as displayed, without progress lines that are overwritten.
fn lines(text: &str) -> Vec<String> {
    let seen = |line: &str| line.rsplit('\r').next().unwrap_or_default().trim_end().to_owned();
    let mut lines: Vec<String> = text.lines().map(seen).collect();
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines
}

/// Returns the addresses of a server with this command line.
fn addresses(command: &str) -> Vec<String> {
    let mut found = Vec::new();
    let words: Vec<&str> = command.split_whitespace().collect();
    for pair in words.windows(2) {
        if matches!(pair[0], "--9p" | "--http") && pair[1] != "none" {
            found.push(pair[1].to_owned());
        }
    }
    for (flag, default) in [("--9p", "127.0.0.1:5640"), ("--http", "127.0.0.1:8080")] {
        if !words.contains(&flag) {
            found.push(default.to_owned());
        }
    }
    found
}
