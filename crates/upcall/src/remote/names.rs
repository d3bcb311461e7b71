//! `upcall names`: how a served name space is put together, and changes of it.

use super::frame::{self, Frame};
use super::{Outcome, Server, Trouble};
use clap::Args;
use client::OpenOptions;
use std::path::Path;
use std::process::ExitCode;

/// Where a server shows its name space, and is told to change it, by those who attach there.
const SERVICE: &str = "/.upcall";
const FILE: &str = "/names";

/// What is to be changed.
#[derive(Args, Clone, Debug)]
pub(crate) struct Names {
    #[command(flatten)]
    server: Server,

    /// Lines as a names file has them: 'mount /far 9p://192.0.2.7:5640', 'bind -a /a /b',
    /// 'unmount /far'; none shows what is there. Only root and the server's own user may
    /// change it, over a unix socket
    #[arg(value_name = "LINE")]
    lines: Vec<String>,
}

/// Does it.
pub(crate) fn run(names: &Names) -> ExitCode {
    let server = names.server.inside(SERVICE);
    frame::run(&server, false, |frame| {
        if !names.lines.is_empty() {
            change(frame, &names.lines)?;
        }
        let text = frame.client.read_file(FILE)?;
        frame::say(&String::from_utf8_lossy(&text))?;
        Ok(ExitCode::SUCCESS)
    })
}

/// Writes the lines; what was wrong with them the server says in the file.
fn change(frame: &Frame, lines: &[String]) -> Outcome<()> {
    let file = frame.client.open_with(Path::new(FILE), OpenOptions::new().write(true))?;
    let text = lines.join("\n") + "\n";
    let written = file.write_at(text.as_bytes(), 0);
    drop(file);
    match written {
        Ok(_) => Ok(()),
        Err(error) if error.is_fatal() => Err(error.into()),
        Err(error) => {
            let text = frame.client.read_file(FILE)?;
            let text = String::from_utf8_lossy(&text);
            let said =
                text.lines().find_map(|line| line.strip_prefix("# the last change failed: "));
            let said = said.map_or_else(|| error.to_string(), str::to_owned);
            Err(Trouble::Host(format!("the name space was not changed: {said}")))
        }
    }
}
