//! NFS servers: calls before a run.

use super::server::{directory, note};
use super::{Prepared, Wants, fill, random, refuse, require_create, several};
use crate::load::flags::Flags;
use load::driver::server::{Server, numbered};
use load::driver::{Nfs, NfsFiles, Troubles};
use std::io;

/// Looks up the files of an NFS server, and creates missing ones.
pub(super) fn nfs(
    flags: &Flags,
    server: &Server,
    path: &str,
    wants: &Wants,
) -> Result<Prepared, String> {
    if wants.files > 1 && !path.contains("{}") {
        return Err(several(path));
    }
    let target = Nfs {
        server: server.clone(),
        mount_port: flags.mount_port,
        export: flags.aname.clone(),
        path: path.to_string(),
        files: wants.files,
        connections: flags.connections.unwrap_or(2) as usize,
        writes: wants.changes,
        troubles: Troubles::default(),
    };
    let mut files = target.connect().map_err(text)?;
    let mut span = u64::MAX;
    for file in 0..wants.files.max(1) {
        let path = numbered(path, file);
        match files.size(&path).map_err(|error| explain(error, &path, server))? {
            Some(_) if wants.changes && !flags.destroy => return Err(refuse(&path)),
            Some(size) => span = span.min(size),
            None => {
                let what = format!("{path} on {server}");
                require_create(flags, wants, &what, &random(flags.file_size))?;
                make(&mut files, &path, flags.file_size)?;
                span = span.min(flags.file_size);
            }
        }
    }
    Ok(Prepared { target: Box::new(target), span, notes: note(flags) })
}

fn make(files: &mut NfsFiles, path: &str, bytes: u64) -> Result<(), String> {
    let made = files.create(path).map_err(text)?;
    let filled = fill(path, bytes, |offset, piece| files.write(&made, offset, piece));
    filled.and_then(|()| files.commit(&made)).map_err(|error| {
        // A short file would be mistaken for a complete one.
        let left = files.remove(path).err().map_or(String::new(), |why| format!(" ({why})"));
        format!("cannot fill {path}: {error}{left}")
    })
}

/// Returns the text of the error of a lookup, with the next step.
fn explain(error: io::Error, path: &str, server: &Server) -> String {
    match error.kind() == io::ErrorKind::IsADirectory {
        true => directory(path, server),
        false => text(error),
    }
}

/// Returns the text of an error, with the next step.
#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
fn text(error: io::Error) -> String {
    if error.kind() == io::ErrorKind::PermissionDenied {
        return format!("{error}; does the server trust this user? (upcall serve --trust-clients)");
    }
    error.to_string()
}
