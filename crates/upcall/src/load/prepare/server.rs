//! Servers: requests before a run.

use super::{Prepared, Wants, fill, random, refuse, require_create, several};
use crate::load::flags::Flags;
use client::{Address, Client, OpenOptions};
use load::driver::server::{Server, numbered};
use load::driver::{Http, NineP, Troubles, Url};
use std::collections::BTreeMap;
use std::io;

/// Looks up the files of a 9P server, and creates missing ones.
pub(super) fn ninep(
    flags: &Flags,
    server: &Server,
    path: &str,
    wants: &Wants,
) -> Result<Prepared, String> {
    if wants.files > 1 && !path.contains("{}") {
        return Err(several(path));
    }
    let options = client::Options { aname: flags.aname.clone(), ..client::Options::default() };
    let client = Client::connect(&address(server), &options);
    let client = client.map_err(|error| error.to_string())?;
    let mut span = u64::MAX;
    for file in 0..wants.files.max(1) {
        let path = numbered(path, file);
        match client.metadata(&path) {
            Ok(there) if there.is_dir() => return Err(directory(&path, server)),
            Ok(_) if wants.changes && !flags.destroy => return Err(refuse(&path)),
            Ok(there) => span = span.min(there.size),
            Err(error) if error.is_not_found() => {
                let what = format!("{path} on {server}");
                require_create(flags, wants, &what, &random(flags.file_size))?;
                make(&client, &path, flags.file_size)?;
                span = span.min(flags.file_size);
            }
            Err(error) => return Err(error.to_string()),
        }
    }
    let target = NineP {
        server: server.clone(),
        aname: flags.aname.clone(),
        path: path.to_string(),
        files: wants.files,
        connections: flags.connections.unwrap_or(2) as usize,
        writes: wants.changes,
        troubles: Troubles::default(),
    };
    let notes = note(flags);
    Ok(Prepared { target: Box::new(target), span, notes })
}

/// Returns the error of a directory as a target.
pub(super) fn directory(path: &str, server: &Server) -> String {
    format!("{path} on {server} is a directory: name a file in it")
}

/// Notes that each worker has connections of its own.
pub(super) fn note(flags: &Flags) -> Vec<String> {
    let few = flags.connections == Some(1) && flags.workers != 1;
    let text = "there are 2 connections: each of 2 workers has one; --workers 1 makes only one";
    few.then(|| text.to_string()).into_iter().collect()
}

fn address(server: &Server) -> Address {
    match server {
        Server::Tcp(host, port) => Address::Tcp { host: host.clone(), port: *port },
        Server::Unix(path) => Address::Unix(path.clone()),
    }
}

fn make(client: &Client, path: &str, bytes: u64) -> Result<(), String> {
    let options = OpenOptions::new().write(true).create_new(true);
    let made = client.open_with(path, options).map_err(|error| error.to_string())?;
    let filled = fill(path, bytes, |mut offset, mut piece| {
        while !piece.is_empty() {
            let count = made.write_at(piece, offset).map_err(io::Error::other)?;
            (offset, piece) = (offset + count as u64, &piece[count..]);
        }
        Ok(())
    });
    filled.map_err(|error| {
        // A short file would be mistaken for a complete one.
        let left = client.remove(path).err().map_or(String::new(), |why| format!(" ({why})"));
        format!("cannot fill {path}: {error}{left}")
    })?;
    made.close().map_err(|error| error.to_string())
}

/// Looks up the objects of an HTTP server, and creates missing ones.
pub(super) fn http(flags: &Flags, url: &Url, wants: &Wants) -> Result<Prepared, String> {
    let text = |error: io::Error| error.to_string();
    let mut span = u64::MAX;
    if wants.files > 1 && !url.path.contains("{}") {
        return Err(several(&format!("http://{}{}", url.host, url.path)));
    }
    if wants.comes_and_goes && !flags.destroy {
        for file in 0..wants.files {
            if url.size(file).map_err(text)?.is_some() {
                return Err(refuse(&numbered(&url.path, file)));
            }
        }
    }
    let sizes: BTreeMap<u32, u32> = wants.sizes.iter().copied().collect();
    let sized = wants.sizes.iter().map(|(number, _)| *number);
    for file in (0..wants.plain).chain(sized) {
        let size = url.size(file).map_err(text)?;
        if size.is_some() && wants.changes && !flags.destroy {
            return Err(refuse(&numbered(&url.path, file)));
        }
        let wanted = sizes.get(&file).map_or(flags.file_size, |size| u64::from(*size));
        if size.is_none() {
            let path = numbered(&url.path, file);
            let what = format!("http://{}{path}", url.host);
            require_create(flags, wants, &what, &random(wanted))?;
            let mut put = url.put(file, wanted).map_err(text)?;
            let filled = fill(&path, wanted, |_, piece| put.write(piece));
            filled.and_then(|()| put.end()).map_err(text)?;
        }
        span = span.min(size.unwrap_or(wanted));
    }
    let (url, connections) = (url.clone(), flags.connections.unwrap_or(16) as usize);
    let (io_max, troubles) = (wants.io_max as usize, Troubles::default());
    let target = Http { url, connections, io_max, troubles };
    Ok(Prepared { target: Box::new(target), span, notes: note(flags) })
}
