//! Files of a running server over 9P, one call at a time.

use crate::client::{Client, Message, ROOT};
use crate::server::Server;
use anyhow::{Context, Result, bail, ensure};
use std::sync::atomic::{AtomicBool, Ordering};

const TLOPEN: u8 = 12;
const TLCREATE: u8 = 14;
const TRENAMEAT: u8 = 74;
const TSETATTR: u8 = 26;
const TREADDIR: u8 = 40;
const TFSYNC: u8 = 50;
const TMKDIR: u8 = 72;
const TUNLINKAT: u8 = 76;
const TWALK: u8 = 110;
const TREAD: u8 = 116;
const TWRITE: u8 = 118;
const TCLUNK: u8 = 120;

const ENOENT: u32 = 2;

/// Fids in temporary use.
const FILE: u32 = 1;
const OTHER: u32 = 2;

/// Bytes of one read or write: a message of 64 KiB less its header.
const PIECE: usize = 60_000;

/// A connection.
pub struct Files(Client);

impl Files {
    /// Attaches as this process's user.
    pub fn of(server: &Server) -> Result<Files> {
        Files::at(server.ninep)
    }

    /// Attaches to a port.
    pub fn at(port: u16) -> Result<Files> {
        Client::attach(port, "").map(Files)
    }

    /// Reads a file; `None` if it does not exist.
    pub fn read(&mut self, path: &str) -> Result<Option<Vec<u8>>> {
        if !self.walk(path, FILE)? {
            return Ok(None);
        }
        self.open(0)?;
        let mut bytes = Vec::new();
        loop {
            let count = u32::try_from(PIECE)?;
            let offset = bytes.len() as u64;
            let answer = self.0.call(|out| {
                Message::new(out, TREAD, 0).u32(FILE).u64(offset).u32(count);
            })?;
            let piece = answer.get(4..).context("Rread is too short")?;
            if piece.is_empty() {
                break;
            }
            bytes.extend_from_slice(piece);
        }
        self.clunk(FILE)?;
        Ok(Some(bytes))
    }

    /// Creates a file with these bytes, and flushes it.
    pub fn create(&mut self, path: &str, bytes: &[u8]) -> Result<()> {
        self.make(path)?;
        self.put(0, bytes)?;
        self.clunk(FILE)
    }

    /// Creates a file, and leaves it open.
    fn make(&mut self, path: &str) -> Result<()> {
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        ensure!(self.walk(above, FILE)?, "no directory {above}");
        self.0.call(|out| {
            let (flags, mode) = (2, 0o644);
            Message::new(out, TLCREATE, 0).u32(FILE).text(name).u32(flags).u32(mode).u32(group());
        })?;
        Ok(())
    }

    /// Creates and removes files without flushing, until `over` is set.
    pub fn make_noise(&mut self, dir: &str, over: &AtomicBool) -> Result<()> {
        self.make_dir(dir)?;
        for number in 0_u32.. {
            if over.load(Ordering::SeqCst) {
                break;
            }
            let bytes = vec![number.to_le_bytes()[0]; 40_000];
            self.make(&format!("{dir}/noise-{number}"))?;
            for piece in 0..u64::from(number % 3) {
                self.store(piece * 40_000, &bytes)?;
            }
            self.clunk(FILE)?;
            if let Some(old) = number.checked_sub(8) {
                self.unlink(dir, &format!("noise-{old}"))?;
            }
        }
        Ok(())
    }

    /// Changes bytes of a file from an offset on, and flushes it.
    pub fn write(&mut self, path: &str, offset: u64, bytes: &[u8]) -> Result<()> {
        ensure!(self.walk(path, FILE)?, "no file {path}");
        self.open(2)?;
        self.put(offset, bytes)?;
        self.clunk(FILE)
    }

    /// Renames a file within its directory, and flushes the directory.
    pub fn rename(&mut self, dir: &str, from: &str, to: &str) -> Result<()> {
        ensure!(self.walk(dir, FILE)?, "no directory {dir}");
        self.0.call(|out| {
            Message::new(out, TRENAMEAT, 0).u32(FILE).text(from).u32(FILE).text(to);
        })?;
        self.clunk(FILE)?;
        self.sync(dir)
    }

    /// Removes a file, and flushes the directory.
    pub fn remove(&mut self, dir: &str, name: &str) -> Result<()> {
        self.unlink(dir, name)?;
        self.sync(dir)
    }

    fn unlink(&mut self, dir: &str, name: &str) -> Result<()> {
        ensure!(self.walk(dir, FILE)?, "no directory {dir}");
        self.0.call(|out| {
            Message::new(out, TUNLINKAT, 0).u32(FILE).text(name).u32(0);
        })?;
        self.clunk(FILE)
    }

    /// Creates a directory in the root, durably, unless it exists.
    pub fn make_dir(&mut self, name: &str) -> Result<()> {
        if self.walk(name, FILE)? {
            return self.clunk(FILE);
        }
        self.0.call(|out| {
            Message::new(out, TMKDIR, 0).u32(ROOT).text(name).u32(0o755).u32(group());
        })?;
        self.sync("")
    }

    /// Changes the owner and group of the root. The server must trust its clients.
    pub fn give_root_to(&mut self, user: u32, group: u32) -> Result<()> {
        let (user_and_group, mode) = (2 | 4, 0);
        self.0.call(|out| {
            let message = Message::new(out, TSETATTR, 0).u32(ROOT).u32(user_and_group).u32(mode);
            let message = message.u32(user).u32(group).u64(0);
            (0..4).fold(message, |message, _| message.u64(0));
        })?;
        self.sync("")
    }

    /// Lists a directory, without `.` and `..`.
    pub fn names(&mut self, dir: &str) -> Result<Vec<String>> {
        ensure!(self.walk(dir, FILE)?, "no directory {dir}");
        self.open(0)?;
        let (mut names, mut offset) = (Vec::new(), 0);
        loop {
            let answer = self.0.call(|out| {
                Message::new(out, TREADDIR, 0).u32(FILE).u64(offset).u32(60_000);
            })?;
            let mut entries = answer.get(4..).context("Rreaddir is too short")?;
            if entries.is_empty() {
                break;
            }
            while let Some((head, rest)) = entries.split_first_chunk::<24>() {
                let field = head[13..21].try_into().context("an offset")?;
                offset = u64::from_le_bytes(field);
                let length = usize::from(u16::from_le_bytes([head[22], head[23]]));
                names.push(String::from_utf8_lossy(rest.get(..length).context("a name")?).into());
                entries = &rest[length..];
            }
        }
        self.clunk(FILE)?;
        names.retain(|name| name != "." && name != "..");
        Ok(names)
    }

    /// Writes from an offset on, and flushes.
    fn put(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.store(offset, bytes)?;
        self.flush(FILE)
    }

    fn store(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut at = offset;
        for piece in bytes.chunks(PIECE) {
            let count = u32::try_from(piece.len())?;
            self.0.call(|out| {
                Message::new(out, TWRITE, 0).u32(FILE).u64(at).u32(count).bytes(piece);
            })?;
            at += u64::from(count);
        }
        Ok(())
    }

    fn sync(&mut self, dir: &str) -> Result<()> {
        ensure!(self.walk(dir, OTHER)?, "no directory {dir}");
        self.0.call(|out| {
            Message::new(out, TLOPEN, 0).u32(OTHER).u32(0);
        })?;
        self.flush(OTHER)?;
        self.clunk(OTHER)
    }

    fn flush(&mut self, fid: u32) -> Result<()> {
        self.0.call(|out| {
            Message::new(out, TFSYNC, 0).u32(fid).u32(0);
        })?;
        Ok(())
    }

    /// Walks to a path; returns whether it exists, in which case the fid is bound.
    fn walk(&mut self, path: &str, fid: u32) -> Result<bool> {
        let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
        let count = u16::try_from(names.len())?;
        let answer = self.0.ask(|out| {
            let message = Message::new(out, TWALK, 0).u32(ROOT).u32(fid).u16(count);
            names.iter().fold(message, |message, name| message.text(name));
        })?;
        match answer {
            Ok(qids) => {
                Ok(qids.first_chunk::<2>().is_some_and(|n| u16::from_le_bytes(*n) == count))
            }
            Err(ENOENT) => Ok(false),
            Err(errno) => bail!("walk to {path}: errno {errno}"),
        }
    }

    fn open(&mut self, flags: u32) -> Result<()> {
        self.0.call(|out| {
            Message::new(out, TLOPEN, 0).u32(FILE).u32(flags);
        })?;
        Ok(())
    }

    fn clunk(&mut self, fid: u32) -> Result<()> {
        self.0.call(|out| {
            Message::new(out, TCLUNK, 0).u32(fid);
        })?;
        Ok(())
    }
}

fn group() -> u32 {
    rustix::process::getgid().as_raw()
}
