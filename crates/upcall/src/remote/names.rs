//! `upcall names`: shows and changes a served namespace.

use super::frame::{self, Frame};
use super::{Outcome, Server, Trouble};
use clap::Args;
use client::{File, OpenOptions};
use node::script;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Directory of the service files, where clients attach to show and change the namespace.
const SERVICE: &str = "/.upcall";
const FILE: &str = "/names";

/// Options of `upcall names`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Names {
    #[command(flatten)]
    server: Server,

    /// Changes, as lines of a names file: 'mount /far 9p://192.0.2.7:5640', 'bind -a /a /b',
    /// 'unmount /far', 'grow volume:FILE 32G' [default: show the namespace]. Only root and the
    /// server's own user may change it, over a unix socket
    #[arg(value_name = "LINE")]
    lines: Vec<String>,
}

/// Grows a volume of a server to `bytes`. The server knows it by one of these `paths`; its file is
/// extended by `extend`, once the server would grow it.
pub(crate) fn grow(
    server: &Server,
    paths: &[PathBuf],
    bytes: u64,
    extend: impl FnOnce() -> Result<(), String>,
) -> ExitCode {
    let doing = paths.first().map_or_else(String::new, |path| format!("grow {}", path.display()));
    frame::run(&server.inside(SERVICE), false, |frame| {
        frame.if_interrupted("'upcall volume info' shows how large it is".to_string());
        let line = |path: &PathBuf| {
            let source = script::quoted(&format!("volume:{}", path.display()));
            format!("grow {source} {bytes}\n")
        };
        let mut refusal = None;
        for path in paths {
            refusal = command(frame, &line(path), &doing)?;
            let Some(refused) = &refusal else { return Ok(ExitCode::SUCCESS) };
            // By the text: a server without `grow` refuses with the same number.
            if refused.reply.contains(store::Error::TooShort.text()) {
                extend().map_err(Trouble::Host)?;
                refusal = command(frame, &line(path), &doing)?;
                break;
            }
            if !refused.error.is_not_found() {
                break;
            }
        }
        match refusal {
            None => Ok(ExitCode::SUCCESS),
            Some(refused) => Err(Trouble::Host(refused.reply)),
        }
    })
}

/// Runs the command.
pub(crate) fn run(names: &Names) -> ExitCode {
    let server = names.server.inside(SERVICE);
    frame::run(&server, false, |frame| {
        if !names.lines.is_empty() {
            change(frame, &names.lines)?;
        }
        let text = frame.client.read_file(FILE)?;
        frame::emit(&String::from_utf8_lossy(&text))?;
        Ok(ExitCode::SUCCESS)
    })
}

/// Lines that were not all executed.
struct Refused {
    error: client::Error,
    /// Line, cause and advice, from the server.
    reply: String,
}

fn change(frame: &Frame, lines: &[String]) -> Outcome<()> {
    let so = "'upcall names' shows which lines were carried out";
    frame.if_interrupted(so.to_string());
    match command(frame, &(lines.join("\n") + "\n"), "change the namespace")? {
        None => Ok(()),
        Some(refused) => {
            Err(Trouble::Host(format!("cannot carry out all lines: {}", refused.reply)))
        }
    }
}

/// Writes lines; the server reports errors in the same file.
fn command(frame: &Frame, text: &str, doing: &str) -> Outcome<Option<Refused>> {
    let options = OpenOptions::new().read(true).write(true);
    let file = frame.client.open_with(Path::new(FILE), options);
    let file = file.map_err(|error| refused(error, doing))?;
    match write(&file, text.as_bytes()) {
        Ok(()) => Ok(None),
        Err(error) if error.is_fatal() || error.is_denied() || error.is_not_permitted() => {
            Err(refused(error, doing))
        }
        Err(error) => {
            let reply = complaint(&file)?;
            let reply = if reply.is_empty() { error.to_string() } else { reply };
            Ok(Some(Refused { error, reply }))
        }
    }
}

/// Returns the cause of a refused command: a lack of permission has the same one on every server.
fn refused(error: client::Error, doing: &str) -> Trouble {
    if let client::Error::Refused { refusal, .. } = &error
        && (error.is_denied() || error.is_not_permitted())
    {
        return Trouble::Host(format!(
            "cannot {doing}: {refusal}; only root and the server's own user may, over the \
             server's unix socket, if it may write: serve with '--9p unix:PATH', without \
             --read-only, and name that"
        ));
    }
    Trouble::Server(error)
}

fn write(file: &File, text: &[u8]) -> Result<(), client::Error> {
    let mut at = 0;
    while at < text.len() {
        at += file.write_at(&text[at..], at as u64)?;
    }
    Ok(())
}

/// Reads the server's report of errors from an open file.
fn complaint(file: &File) -> Result<String, client::Error> {
    let (mut reply, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        match file.read_at(&mut piece, reply.len() as u64)? {
            0 => return Ok(String::from_utf8_lossy(&reply).trim_end().to_string()),
            count => reply.extend_from_slice(&piece[..count]),
        }
    }
}
