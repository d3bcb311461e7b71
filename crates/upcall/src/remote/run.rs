//! `upcall run`: a program beside the data of a server.
//!
//! The program is sent to the server once; after that its hash suffices. Standard input, output and
//! errors are streamed; the exit code is the program's.

use super::frame::{self, Frame};
use super::waiting::Waiting;
use super::{Outcome, Server, Trouble};
use crate::{bounded, size};
use clap::Args;
use client::{File, OpenOptions};
use percent_encoding::{AsciiSet, CONTROLS, percent_encode};
use serde_json::Value;
use std::ffi::OsString;
use std::io::{self, Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use storelet::run_spec::MODULE_MAX;
use wasi::Hash;
use wire::storelet::{FRAME_HEAD, Frame as Kind, encode_input};

/// File of the server that accepts programs.
const NEW: &str = "/.upcall/storelets/new";

/// Timeout of a silent program: the server ends it at its time limit.
pub(super) const SILENCE: Duration = Duration::from_secs(7 * 24 * 3600);

/// Bytes of one read or write.
pub(super) const PIECE: usize = 128 << 10;

/// Characters escaped in an argument, as in a URL.
const SPECIAL: &AsciiSet = &CONTROLS.add(b'%');

/// Exit codes of a killed program, and of one that trapped: by the convention of shells.
const KILLED: u8 = 137;
const TRAPPED: u8 = 134;

/// Beginning of the server's reason for an unreadable file as standard input.
const NO_INPUT: &str = "its input cannot be read";

/// Options of `upcall run`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Run {
    #[command(flatten)]
    server: Server,

    /// Program: a WebAssembly module for WASI preview 1, or sha256:HASH of one known to the server
    #[arg(value_name = "PROGRAM", required_unless_present = "storelet")]
    program: Option<PathBuf>,

    /// Arguments of the program
    #[arg(value_name = "ARGS", last = true)]
    args: Vec<OsString>,

    /// Run an installed storelet, NAME or NAME@VERSION, instead of a local program; several joined
    /// by '|' form a pipeline, each reading the output of the one before it
    #[arg(long, value_name = "NAME", conflicts_with_all = ["program", "env", "write"])]
    storelet: Option<String>,

    /// File on the server as the program's input, instead of local standard input
    #[arg(long, value_name = "PATH")]
    stdin: Option<PathBuf>,

    #[command(flatten)]
    limits: Limits,

    /// Report resource usage at the end
    #[arg(long)]
    report: bool,

    /// Print that report as JSON
    #[arg(long)]
    json: bool,
}

/// Resource limits and environment of a program.
#[derive(Args, Clone, Debug)]
pub(super) struct Limits {
    /// Maximum processor time: 500ms, 10s, 2m [default: 10s]
    #[arg(long, value_name = "TIME")]
    pub(super) cpu: Option<String>,

    /// Maximum fuel: instructions are counted, with the same result in each run, and run more
    /// slowly [default: not counted]
    #[arg(long, value_name = "N")]
    pub(super) fuel: Option<String>,

    /// Maximum time from the first instruction to the end [default: 60s]
    #[arg(long, value_name = "TIME")]
    pub(super) time: Option<String>,

    /// Maximum memory: 64M, 1G [default: 250M]
    #[arg(long, value_name = "SIZE")]
    pub(super) memory: Option<String>,

    /// Maximum number of file requests [default: unlimited]
    #[arg(long, value_name = "N")]
    pub(super) io: Option<String>,

    /// Maximum bytes read and written [default: unlimited]
    #[arg(long, value_name = "SIZE")]
    pub(super) bytes: Option<String>,

    /// Maximum output [default: 1G]
    #[arg(long, value_name = "SIZE")]
    pub(super) output: Option<String>,

    /// Maximum number of open files [default: 256]
    #[arg(long, value_name = "N")]
    pub(super) files: Option<String>,

    /// Weight in sharing the processor and file requests with other programs: 1 to 10000
    /// [default: 100]
    #[arg(long, value_name = "N")]
    pub(super) weight: Option<String>,

    /// Guaranteed share of a processor: 10%
    #[arg(long, value_name = "SHARE")]
    pub(super) reserve: Option<String>,

    /// Maximum share of a processor: 50%
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub(super) limit: Option<String>,

    /// Guaranteed file requests per second
    #[arg(long, value_name = "N")]
    pub(super) io_reserve: Option<String>,

    /// Maximum file requests per second
    #[arg(long, value_name = "N")]
    pub(super) io_limit: Option<String>,

    /// Directory visible to the program as /
    #[arg(long, value_name = "PATH", default_value = "/")]
    pub(super) root: PathBuf,

    /// Allow the program to change files, within the permissions of the caller
    #[arg(long)]
    pub(super) write: bool,

    /// Environment variable of the program, NAME=VALUE; repeatable
    #[arg(long, value_name = "NAME=VALUE")]
    pub(super) env: Vec<OsString>,
}

/// Refuses a share of zero, with which a program would never run; the server parses all others.
fn share(text: &str) -> Result<String, String> {
    let number: Option<f64> = text.trim().trim_end_matches('%').parse().ok();
    match number {
        Some(0.0) => Err("write a share above 0%, like 50%".to_string()),
        Some(_) | None => Ok(text.to_string()),
    }
}

/// Result of an attempt.
enum Came {
    /// The server does not have the program; its message.
    Unknown(String),
    /// The program has ended.
    Over(ExitCode),
}

/// Runs the command.
pub(crate) fn run(run: &Run) -> ExitCode {
    frame::run(&run.server, false, |frame| {
        frame.if_interrupted("the program was ended".to_string());
        let Some(program) = &run.program else {
            return match once(frame, run, "", None)? {
                Came::Over(code) => Ok(code),
                Came::Unknown(why) => Err(Trouble::Host(why)),
            };
        };
        if let Some(hash) = program.to_str().and_then(|text| text.strip_prefix("sha256:")) {
            return match once(frame, run, &format!("sha256:{hash}"), None)? {
                Came::Over(code) => Ok(code),
                Came::Unknown(_) => {
                    let what = "the server has no program of this name";
                    Err(Trouble::Host(format!("{what}: run the file itself once")))
                }
            };
        }
        let wasm = read(program)?;
        let hash = Hash::of(&wasm);
        if let Came::Over(code) = once(frame, run, &format!("sha256:{hash}"), None)? {
            return Ok(code);
        }
        match once(frame, run, &wasm.len().to_string(), Some(&wasm))? {
            Came::Over(code) => Ok(code),
            Came::Unknown(why) => {
                let next = "retry, or look at the log of the server";
                Err(Trouble::Host(format!(
                    "the server lost the program it was sent ({why}); {next}"
                )))
            }
        }
    })
}

pub(super) fn read(path: &Path) -> Outcome<Vec<u8>> {
    let step = "name a WebAssembly module";
    bounded::read(path, MODULE_MAX).map_err(|error| Trouble::host("read", path, &error, step))
}

/// Returns the run request of a program, or of an installed storelet.
fn order(run: &Run, module: &str) -> Vec<u8> {
    let mut order = b"frames\n".to_vec();
    match &run.stdin {
        Some(path) => line(&mut order, "stdin", path.as_os_str().as_bytes()),
        None => order.extend_from_slice(b"input\n"),
    }
    let Some(names) = &run.storelet else {
        line(&mut order, "module", module.as_bytes());
        let program = run.program.as_deref().unwrap_or(Path::new("storelet"));
        let name = program.file_stem().unwrap_or(program.as_os_str());
        line(&mut order, "arg", name.as_bytes());
        run.args.iter().for_each(|arg| line(&mut order, "arg", arg.as_bytes()));
        run.limits.emit(&mut order);
        order.push(b'\n');
        return order;
    };
    for name in names.split('|') {
        line(&mut order, "standing", name.trim().as_bytes());
        run.limits.narrow(&mut order);
    }
    // Arguments belong to the last of them.
    run.args.iter().for_each(|arg| line(&mut order, "arg", arg.as_bytes()));
    order.push(b'\n');
    order
}

/// Appends a line.
pub(super) fn line(order: &mut Vec<u8>, word: &str, value: &[u8]) {
    let value = percent_encode(value, SPECIAL);
    order.extend_from_slice(format!("{word} {value}\n").as_bytes());
}

impl Limits {
    /// Appends all limits.
    pub(super) fn emit(&self, order: &mut Vec<u8>) {
        self.env.iter().for_each(|env| line(order, "env", env.as_bytes()));
        line(order, "root", self.root.as_os_str().as_bytes());
        self.narrow(order);
        if self.write {
            order.extend_from_slice(b"write\n");
        }
    }

    /// Appends the budgets.
    fn narrow(&self, order: &mut Vec<u8>) {
        let reply = [
            ("cpu", &self.cpu),
            ("fuel", &self.fuel),
            ("time", &self.time),
            ("memory", &self.memory),
            ("io", &self.io),
            ("bytes", &self.bytes),
            ("output", &self.output),
            ("files", &self.files),
            ("weight", &self.weight),
            ("reserve", &self.reserve),
            ("limit", &self.limit),
            ("io-reserve", &self.io_reserve),
            ("io-limit", &self.io_limit),
        ];
        for (word, value) in reply {
            value.iter().for_each(|value| line(order, word, value.as_bytes()));
        }
    }
}

/// Runs the program, if the server has it or it is sent along.
fn once(frame: &Frame, run: &Run, module: &str, wasm: Option<&[u8]>) -> Outcome<Came> {
    let options = OpenOptions::new().read(true).write(true);
    let file = frame.client.open_with(Path::new(NEW), options).map_err(|error| {
        if error.is_not_found() {
            let step = "name an Upcall server that was not started with --storelet-threads 0";
            return Trouble::Host(format!("this server runs no programs; {step}"));
        }
        error.into()
    })?;
    let order = order(run, module);
    // The report contains the reason.
    let sent = write(&file, &[&order, wasm.unwrap_or_default()].concat());
    if let Err(error) = sent
        && error.is_fatal()
    {
        return Err(error.into());
    }
    let file = Arc::new(file);
    let waiting = Waiting::new(!run.json);
    let mut stream = RunStream { frame, run, file: &file, feeding: false, waiting };
    stream.listen()
}

/// Writes all bytes; the offset has no meaning there.
pub(super) fn write(file: &File, mut bytes: &[u8]) -> Result<(), client::Error> {
    while !bytes.is_empty() {
        let count = bytes.len().min(PIECE);
        let written = file.write_at(&bytes[..count], 0)?;
        bytes = &bytes[written..];
    }
    Ok(())
}

/// A running program.
struct RunStream<'a> {
    frame: &'a Frame,
    run: &'a Run,
    file: &'a Arc<File>,
    /// Whether input is being sent.
    feeding: bool,
    /// Messages before it runs.
    waiting: Waiting,
}

impl RunStream<'_> {
    /// Reads the program's output to its end.
    fn listen(&mut self) -> Outcome<Came> {
        let (mut reply, mut piece) = (Vec::new(), vec![0; PIECE]);
        loop {
            let count = self.file.read_at(&mut piece, 0)?;
            if count == 0 {
                let what = "the server did not report the program's end";
                return Err(Trouble::Host(format!("{what}: is it an Upcall server?")));
            }
            reply.extend_from_slice(&piece[..count]);
            let mut taken = 0;
            while let Some((kind, body)) = next_frame(&reply[taken..])? {
                taken += FRAME_HEAD + body.len();
                if let Some(came) = self.take(kind, body)? {
                    return Ok(came);
                }
            }
            reply.drain(..taken);
        }
    }

    fn take(&mut self, kind: Kind, body: &[u8]) -> Outcome<Option<Came>> {
        match kind {
            Kind::Output => {
                let mut out = io::stdout().lock();
                let done = out.write_all(body).and_then(|()| out.flush());
                done.map_err(|error| frame::not_written(&error))?;
            }
            Kind::Error => {
                let _ = io::stderr().lock().write_all(body);
            }
            Kind::State => {
                // The server has accepted the run request; what follows may take long.
                self.frame.client.set_deadline(SILENCE);
                self.waiting.enter(body);
                if body == b"running" && !self.feeding && self.run.stdin.is_none() {
                    self.feeding = true;
                    self.feed();
                }
            }
            Kind::Report => return self.end(body).map(Some),
        }
        Ok(None)
    }

    /// Sends standard input, from a detached thread.
    fn feed(&self) {
        let file = Arc::clone(self.file);
        let feed = move || {
            let (mut stdin, mut piece) = (io::stdin().lock(), vec![0; PIECE]);
            loop {
                let count = stdin.read(&mut piece).unwrap_or(0);
                if write(&file, &encode_input(&piece[..count])).is_err() || count == 0 {
                    return;
                }
            }
        };
        // It is never joined: it may wait for the keyboard.
        drop(std::thread::Builder::new().name("input".to_string()).spawn(feed));
    }

    /// Prints the end, and returns the exit code.
    fn end(&self, report: &[u8]) -> Outcome<Came> {
        let report: Value = serde_json::from_slice(report)
            .map_err(|error| Trouble::Host(format!("a strange report: {error}")))?;
        let end = report["end"].as_str().unwrap_or_default();
        let reason = report["reason"].as_str().unwrap_or_default();
        if end == "unknown" {
            return Ok(Came::Unknown(reason.to_string()));
        }
        if self.run.json {
            crate::output::result_to_err(format_args!("{report}\n"));
        } else if self.run.report {
            crate::output::result_to_err(format_args!("{}", informed(&report)));
        }
        let who = report["stage"].as_str().map_or("the program".into(), |it| format!("'{it}'"));
        Ok(Came::Over(match end {
            "trap" if self.is_input(reason) => complain(&self.refusal(reason), 2),
            "exit" => ExitCode::from(report["exit"].as_u64().unwrap_or(1) as u8),
            "trap" => complain(&format!("{who} trapped: {reason}"), TRAPPED),
            "killed" => complain(&format!("{who} was killed: {reason}"), KILLED),
            _refused => complain(&self.refusal(reason), 2),
        }))
    }

    /// Reports whether the file for standard input could not be opened.
    fn is_input(&self, reason: &str) -> bool {
        self.run.stdin.is_some() && reason.starts_with(NO_INPUT)
    }

    /// Returns the cause of a refusal, with the path if it concerns the root or the input.
    fn refusal(&self, reason: &str) -> String {
        match &self.run.stdin {
            Some(path) if self.is_input(reason) => {
                format!("--stdin {}: {reason}; name a file of the server", path.display())
            }
            _ if reason.starts_with("cannot enter its root") => {
                format!("--root {}: {reason}", self.run.limits.root.display())
            }
            Some(_) | None => reason.to_string(),
        }
    }
}

fn complain(what: &str, code: u8) -> ExitCode {
    err_line!("upcall: {what}");
    ExitCode::from(code)
}

/// Returns the next whole frame.
pub(super) fn next_frame(reply: &[u8]) -> Outcome<Option<(Kind, &[u8])>> {
    let strange = |_| Trouble::Host("unknown reply of the server".into());
    Kind::decode(reply).map_err(strange)
}

/// Describes the resources used.
fn informed(report: &Value) -> String {
    let get = |name: &str| report[name].as_u64().unwrap_or(0);
    let fuel = match get("fuel") {
        0 => String::new(),
        fuel => format!("; {} of fuel", size::count(fuel)),
    };
    let ms = |name: &str| get(name) as f64 / 1e6;
    format!(
        "time {:.3} ms, after {:.3} ms of waiting; processor {:.3} ms, and {:.3} ms of the \
         server's{fuel}\nmemory {}; {} file requests, {} of them walks; {} read, {} written; \
         {} of output\n",
        ms("time_ns"),
        ms("waited_ns"),
        ms("cpu_ns"),
        ms("served_ns"),
        size::show(get("memory")),
        size::count(get("operations")),
        size::count(get("walks")),
        size::show(get("read")),
        size::show(get("written")),
        size::show(get("output")),
    )
}
