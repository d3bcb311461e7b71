//! `upcall storelet`: programs installed on a server under names.

use super::frame::{self, Frame};
use super::run::{Limits, PIECE, SILENCE, line, next_frame, read, write};
use super::waiting::Waiting;
use super::{Outcome, Server, Trouble};
use clap::{Args, Subcommand};
use client::OpenOptions;
use serde_json::Value;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use wasi::Hash;
use wire::storelet::{FRAME_HEAD, Frame as Kind};

/// Directory of the service files, where clients attach for commands.
const SERVICE: &str = "/.upcall";
const INSTALL: &str = "/storelets/install";

/// Directory of the files about storelets.
const FILES: &str = "/.upcall/storelets";

/// Commands for installed programs.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Install a program under a name, as its next version; only for root and the server's own
    /// user, over a unix socket
    Install(Box<Install>),
    /// List installed storelets
    List(Show),
    /// Show the results of the last runs
    Log(Log),
    /// Remove a storelet with all its versions
    Remove(Named),
    /// Switch to another version of a storelet, NAME@VERSION
    Use(Named),
}

/// Options of `upcall storelet install`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Install {
    #[command(flatten)]
    server: Server,

    /// Name of the storelet: letters, digits, '-', '_' and '.'
    #[arg(value_name = "NAME")]
    name: String,

    /// Program: a WebAssembly module for WASI preview 1
    #[arg(value_name = "PROGRAM")]
    program: PathBuf,

    /// Arguments of the program
    #[arg(value_name = "ARGS", last = true)]
    args: Vec<OsString>,

    /// Also run it at this interval, as the installing user: 30s, 5m, 12h
    #[arg(long, value_name = "TIME", conflicts_with = "at")]
    every: Option<String>,

    /// Also run it daily at this time (UTC): 03:00
    #[arg(long, value_name = "HH:MM")]
    at: Option<String>,

    /// Also run it for each new file below this directory, with the file as its input and the path
    /// as the last argument
    #[arg(long, value_name = "DIR")]
    on: Option<PathBuf>,

    /// Treat existing files as new
    #[arg(long, requires = "on")]
    existing: bool,

    #[command(flatten)]
    limits: Limits,
}

/// Options of `upcall storelet list`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Show {
    #[command(flatten)]
    server: Server,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Options of `upcall storelet log`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Log {
    #[command(flatten)]
    server: Server,

    /// Show only runs of this storelet [default: all]
    #[arg(value_name = "NAME")]
    name: Option<String>,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Options of `upcall storelet remove` and `upcall storelet use`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Named {
    #[command(flatten)]
    server: Server,

    /// Name of the storelet
    #[arg(value_name = "NAME")]
    name: String,
}

/// Runs the command.
pub(crate) fn run(command: &Command) -> ExitCode {
    match command {
        Command::Install(install) => self::install(install),
        Command::List(show) => show_file(&show.server, &list_name("installed", show.json)),
        Command::Log(log) => self::log(log),
        Command::Remove(named) => change(named, "remove"),
        Command::Use(named) => change(named, "use"),
    }
}

fn list_name(name: &str, json: bool) -> String {
    format!("{FILES}/{name}{}", if json { ".json" } else { "" })
}

/// Prints a file.
fn show_file(server: &Server, path: &str) -> ExitCode {
    frame::run(server, false, |frame| {
        let text = read_file(frame, path)?;
        frame::emit(&String::from_utf8_lossy(&text))?;
        Ok(ExitCode::SUCCESS)
    })
}

fn read_file(frame: &Frame, path: &str) -> Outcome<Vec<u8>> {
    frame.client.read_file(path).map_err(|error| no_programs(&error).unwrap_or(error.into()))
}

/// Returns the error of a server without storelets, if this is one.
fn no_programs(error: &client::Error) -> Option<Trouble> {
    let step = "name an Upcall server that was not started with --storelet-threads 0";
    let why = format!("this server runs no programs; {step}");
    error.is_not_found().then_some(Trouble::Host(why))
}

fn log(log: &Log) -> ExitCode {
    let Some(name) = &log.name else {
        return show_file(&log.server, &list_name("log", log.json));
    };
    frame::run(&log.server, false, |frame| {
        let text = read_file(frame, &list_name("log", log.json))?;
        let text = String::from_utf8_lossy(&text);
        let (kept, is_empty) = match log.json {
            true => of_one_json(&text, name)?,
            false => of_one(&text, name),
        };
        if is_empty && !is_installed(frame, name)? {
            let step = "'upcall storelet list' shows those that are";
            let text = format!("no storelet '{name}' is installed here; {step}");
            return Err(Trouble::Host(text));
        }
        frame::emit(&kept)?;
        Ok(ExitCode::SUCCESS)
    })
}

/// Reports whether a storelet of this name is installed.
fn is_installed(frame: &Frame, name: &str) -> Outcome<bool> {
    let text = read_file(frame, &list_name("installed", true))?;
    Ok(parsed(&text)?.iter().any(|storelet| storelet["name"] == name))
}

/// Parses a list of the server.
fn parsed(text: &[u8]) -> Outcome<Vec<Value>> {
    serde_json::from_slice(text)
        .map_err(|error| Trouble::Host(format!("invalid list from the server: {error}")))
}

/// Returns the header, and the lines of one storelet with its error output; also whether there are
/// none.
fn of_one(text: &str, name: &str) -> (String, bool) {
    let (mut of_it, mut kept, mut is_empty) = (true, String::new(), true);
    for (number, line) in text.lines().enumerate() {
        if number > 0 && !line.starts_with(' ') {
            let called = line.split_whitespace().nth(1).unwrap_or_default();
            of_it = called.split('@').next() == Some(name);
            is_empty &= !of_it;
        }
        if of_it {
            kept += line;
            kept.push('\n');
        }
    }
    (kept, is_empty)
}

fn of_one_json(text: &str, name: &str) -> Outcome<(String, bool)> {
    let mut runs = parsed(text.as_bytes())?;
    runs.retain(|run| run["name"] == name);
    let is_empty = runs.is_empty();
    Ok((format!("{:#}\n", Value::Array(runs)), is_empty))
}

fn change(named: &Named, word: &str) -> ExitCode {
    frame::run(&named.server.inside(SERVICE), false, |frame| {
        let mut reply = b"frames\n".to_vec();
        line(&mut reply, word, named.name.as_bytes());
        reply.push(b'\n');
        informed(&say_at_desk(frame, &reply)?)
    })
}

fn install(install: &Install) -> ExitCode {
    frame::run(&install.server.inside(SERVICE), false, |frame| {
        let wasm = read(&install.program)?;
        // A program that was sent once need not be sent again.
        let known = say_at_desk(frame, &order(install, &format!("sha256:{}", Hash::of(&wasm))))?;
        if known["end"] != "unknown" {
            return informed(&known);
        }
        let order = order(install, &wasm.len().to_string());
        informed(&say_at_desk(frame, &[order, wasm].concat())?)
    })
}

fn order(install: &Install, module: &str) -> Vec<u8> {
    let mut order = b"frames\n".to_vec();
    line(&mut order, "name", install.name.as_bytes());
    line(&mut order, "module", module.as_bytes());
    line(&mut order, "arg", install.name.as_bytes());
    install.args.iter().for_each(|arg| line(&mut order, "arg", arg.as_bytes()));
    install.limits.emit(&mut order);
    install.every.iter().for_each(|time| line(&mut order, "every", time.as_bytes()));
    install.at.iter().for_each(|time| line(&mut order, "at", time.as_bytes()));
    install.on.iter().for_each(|dir| line(&mut order, "on", dir.as_os_str().as_bytes()));
    if install.existing {
        order.extend_from_slice(b"existing\n");
    }
    order.push(b'\n');
    order
}

/// Sends a request to the install file; returns the result.
fn say_at_desk(frame: &Frame, reply: &[u8]) -> Outcome<Value> {
    let options = OpenOptions::new().read(true).write(true);
    let file = frame.client.open_with(Path::new(INSTALL), options);
    let file = file.map_err(|error| no_programs(&error).unwrap_or_else(|| may_not(error)))?;
    frame.if_interrupted("check with 'upcall storelet list'".to_string());
    write(&file, reply)?;
    let (mut received, mut piece) = (Vec::new(), vec![0; PIECE]);
    let mut waiting = Waiting::new(true);
    loop {
        let count = file.read_at(&mut piece, 0)?;
        received.extend_from_slice(&piece[..count]);
        match next_frame(&received)? {
            Some((Kind::Report, body)) => {
                return serde_json::from_slice(body)
                    .map_err(|error| Trouble::Host(format!("a strange report: {error}")));
            }
            Some((kind @ (Kind::Output | Kind::Error | Kind::State), body)) => {
                if kind == Kind::State {
                    // Compiling may take minutes on a busy server.
                    frame.client.set_deadline(SILENCE);
                    waiting.enter(body);
                }
                let length = FRAME_HEAD + body.len();
                received.drain(..length);
            }
            None if count == 0 => {
                return Err(Trouble::Host("the server did not report the result".to_string()));
            }
            None => {}
        }
    }
}

/// Adds the next step to a refusal.
fn may_not(error: client::Error) -> Trouble {
    match error.is_not_permitted() {
        true => Trouble::Host(format!(
            "{error}; only root and the server's own user install storelets, over a unix socket: \
             serve with --9p unix:PATH and name that"
        )),
        false => error.into(),
    }
}

/// Prints the result.
fn informed(filed: &Value) -> Outcome<ExitCode> {
    let (name, end) = (filed["name"].as_str().unwrap_or_default(), &filed["end"]);
    if let Some(reason) = filed["reason"].as_str() {
        return Err(Trouble::Host(reason.to_string()));
    }
    let version = filed["version"].as_u64().map(|version| format!("@{version}"));
    let end = end.as_str().unwrap_or_default();
    frame::emit(&format!("{name}{} {end}\n", version.unwrap_or_default()))?;
    Ok(ExitCode::SUCCESS)
}
