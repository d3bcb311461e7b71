//! `upcall names`: how a served name space is put together, and changes of it.

use super::frame::{self, Frame};
use super::{Outcome, Server, Trouble};
use clap::Args;
use client::{File, OpenOptions};
use node::script;
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
    /// 'unmount /far', 'grow volume:FILE 32G'; none shows what is there. Only root and the server's own user may
    /// change it, over a unix socket
    #[arg(value_name = "LINE")]
    lines: Vec<String>,
}

/// Lets a server use `bytes` bytes of a volume's file.
pub(crate) fn grow(server: &Server, file: &Path, bytes: u64) -> ExitCode {
    let source = script::quoted(&format!("volume:{}", file.display()));
    let lines = [format!("grow {source} {bytes}")];
    frame::run(&server.inside(SERVICE), false, |frame| {
        change(frame, &lines)?;
        Ok(ExitCode::SUCCESS)
    })
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

/// Writes the lines; what was wrong with them the server says where they were written.
fn change(frame: &Frame, lines: &[String]) -> Outcome<()> {
    let options = OpenOptions::new().read(true).write(true);
    let file = frame.client.open_with(Path::new(FILE), options).map_err(refused)?;
    let text = lines.join("\n") + "\n";
    let so = "'upcall names' shows which lines were carried out";
    frame.if_interrupted(so.to_string());
    match write(&file, text.as_bytes()) {
        Err(error) if !error.is_fatal() => {
            if error.is_denied() || error.is_not_permitted() {
                return Err(refused(error));
            }
            let said = complaint(&file)?;
            let said = if said.is_empty() { error.to_string() } else { said };
            Err(Trouble::Host(format!("the server did not do this: {said}")))
        }
        done => Ok(done?),
    }
}

/// The cause of a refused change: a lack of permission has the same one on every server.
fn refused(error: client::Error) -> Trouble {
    if let client::Error::Refused { refusal, .. } = &error
        && (error.is_denied() || error.is_not_permitted())
    {
        return Trouble::Host(format!(
            "cannot change the name space: {refusal}; only root and the server's own user may, \
             over the server's unix socket: serve with '--9p unix:PATH' and name that"
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

/// What is wrong with what was written to an open file.
fn complaint(file: &File) -> Result<String, client::Error> {
    let (mut said, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        match file.read_at(&mut piece, said.len() as u64)? {
            0 => return Ok(String::from_utf8_lossy(&said).trim_end().to_string()),
            count => said.extend_from_slice(&piece[..count]),
        }
    }
}
