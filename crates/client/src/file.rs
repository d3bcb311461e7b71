//! Open files.

use crate::message::{Message, Piece};
use crate::metadata::Metadata;
use crate::tree::{Fid, Tree, only};
use crate::{Dialect, Error, Path};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use wire::ninep::{IO_HEADER_SIZE, Rmessage, Stat, Tmessage};

/// Maximum size of a read or write, in bytes.
const PIECE_MAX: u32 = 256 << 10;

/// Options for opening a file, like [`std::fs::OpenOptions`].
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    read: bool,
    write: bool,
    truncate: bool,
    create: bool,
    create_new: bool,
    mode: u32,
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions::new()
    }
}

impl OpenOptions {
    /// Creates options without access; new files are readable by all and writable by their owner.
    pub fn new() -> OpenOptions {
        OpenOptions {
            read: false,
            write: false,
            truncate: false,
            create: false,
            create_new: false,
            mode: 0o644,
        }
    }

    /// Returns whether a missing file is created.
    pub(crate) fn creates(self) -> bool {
        self.create || self.create_new
    }

    /// Sets read access.
    #[must_use]
    pub fn read(self, read: bool) -> OpenOptions {
        OpenOptions { read, ..self }
    }

    /// Sets write access.
    #[must_use]
    pub fn write(self, write: bool) -> OpenOptions {
        OpenOptions { write, ..self }
    }

    /// Truncates an existing file.
    #[must_use]
    pub fn truncate(self, truncate: bool) -> OpenOptions {
        OpenOptions { truncate, ..self }
    }

    /// Creates a missing file.
    #[must_use]
    pub fn create(self, create: bool) -> OpenOptions {
        OpenOptions { create, ..self }
    }

    /// Creates a file, which must not exist.
    #[must_use]
    pub fn create_new(self, create_new: bool) -> OpenOptions {
        OpenOptions { create_new, ..self }
    }

    /// Sets the permission bits of a new file.
    #[must_use]
    pub fn mode(self, mode: u32) -> OpenOptions {
        OpenOptions { mode, ..self }
    }

    /// Returns the flags of `Tlopen`.
    fn flags(self) -> u32 {
        const TRUNCATE: u32 = 0o1000;
        self.access() | if self.truncate { TRUNCATE } else { 0 }
    }

    /// Returns the mode of `Topen`.
    fn plan9(self) -> u8 {
        const TRUNCATE: u8 = 0x10;
        let access = u8::try_from(self.access()).expect("two bits");
        access | if self.truncate { TRUNCATE } else { 0 }
    }

    fn access(self) -> u32 {
        match (self.read, self.write) {
            (_, false) => 0,
            (false, true) => 1,
            (true, true) => 2,
        }
    }
}

/// Opens or creates a file.
pub(crate) fn open(
    tree: &Tree,
    path: &Path,
    options: OpenOptions,
    gid: u32,
) -> Result<File, Error> {
    if options.create_new {
        return create(tree, path, options, gid);
    }
    match tree.find(path, true) {
        Ok((fid, _)) => open_fid(fid, path, options),
        Err(error) if error.is_not_found() && options.create => {
            match create(tree, path, options, gid) {
                // Another client created it meanwhile.
                Err(error) if error.is_exists() => {
                    tree.find(path, true).and_then(|(fid, _)| open_fid(fid, path, options))
                }
                done => done,
            }
        }
        Err(error) => Err(error),
    }
}

fn open_fid(fid: Fid, path: &Path, options: OpenOptions) -> Result<File, Error> {
    let iounit = match fid.line.dialect {
        Dialect::Linux => {
            let message = Tmessage::Lopen { fid: fid.number, flags: options.flags() };
            fid.line.call(&message, only!(Rmessage::Lopen { iounit, .. } => iounit))?
        }
        Dialect::Plan9 => {
            let message = Tmessage::Open { fid: fid.number, mode: options.plan9() };
            fid.line.call(&message, only!(Rmessage::Open { iounit, .. } => iounit))?
        }
    };
    Ok(File::new(fid, path, iounit))
}

fn create(tree: &Tree, path: &Path, options: OpenOptions, gid: u32) -> Result<File, Error> {
    const EXCLUSIVE: u32 = 0o200;
    const CREATE: u32 = 0o100;
    let (fid, name) = tree.find_above(path)?;
    let mode = options.mode & 0o777;
    let iounit = match fid.line.dialect {
        Dialect::Linux => {
            let flags = options.access() | EXCLUSIVE | CREATE;
            let message = Tmessage::Lcreate { fid: fid.number, name, flags, mode, gid };
            fid.line.call(&message, only!(Rmessage::Lcreate { iounit, .. } => iounit))?
        }
        Dialect::Plan9 => {
            let open = options.access() as u8;
            let message = Tmessage::Create { fid: fid.number, name, perm: mode, mode: open };
            fid.line.call(&message, only!(Rmessage::Create { iounit, .. } => iounit))?
        }
    };
    Ok(File::new(fid, path, iounit))
}

/// Open file. Several threads may use [`File::read_at`] and [`File::write_at`] concurrently.
///
/// The [`std::io`] traits have one request outstanding at a time. For bulk data, use
/// [`File::stream`] and [`File::sink`], which keep many in flight.
#[derive(Debug)]
pub struct File {
    fid: Fid,
    pub(crate) path: PathBuf,
    /// Maximum size of a read or write, in bytes.
    pub(crate) piece: u32,
    position: u64,
}

impl File {
    pub(crate) fn new(fid: Fid, path: &Path, iounit: u32) -> File {
        let room = fid.line.msize - IO_HEADER_SIZE;
        let unit = if iounit == 0 { room } else { iounit };
        let piece = room.min(unit).min(PIECE_MAX);
        File { fid, path: path.to_path_buf(), piece, position: 0 }
    }

    pub(crate) fn fid(&self) -> &Fid {
        &self.fid
    }

    /// Returns the file's metadata.
    ///
    /// # Errors
    /// Errors of the server and of the connection.
    pub fn metadata(&self) -> Result<Metadata, Error> {
        Metadata::of(&self.fid).map_err(|error| error.of("look at", &self.path))
    }

    /// Reads from an offset with one request. Returns the number of bytes, which may be fewer than
    /// the buffer holds; 0 at the end of the file.
    ///
    /// # Errors
    /// Errors of the server and of the connection.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize, Error> {
        if buf.is_empty() {
            return Ok(0);
        }
        let count = self.piece.min(u32::try_from(buf.len()).unwrap_or(u32::MAX));
        let message = Tmessage::Read { fid: self.fid.number, offset, count };
        let read =
            self.fid.line.begin(&message, None).and_then(|requested| requested.wait_data(count));
        let piece = Piece(read.map_err(|error| error.of("read", &self.path))?);
        buf[..piece.len()].copy_from_slice(&piece);
        Ok(piece.len())
    }

    /// Writes at an offset with one request. Returns the number of bytes written, at least 1.
    ///
    /// # Errors
    /// Errors of the server and of the connection.
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<usize, Error> {
        if data.is_empty() {
            return Ok(0);
        }
        let data = &data[..data.len().min(self.piece as usize)];
        let written = self.fid.line.begin_write(self.fid.number, offset, data);
        let written = written.and_then(|requested| self.written(&requested.wait()?, data.len()));
        written.map_err(|error| error.of("write", &self.path))
    }

    /// Returns the number of bytes written, according to a reply.
    pub(crate) fn written(&self, reply: &Message, requested: usize) -> Result<usize, Error> {
        let line = &self.fid.line;
        let count = line.read(reply, only!(Rmessage::Write { count } => count as usize))?;
        match count {
            0 => Err(line.broken("it takes a write and writes nothing".to_string())),
            count if count > requested => {
                Err(line.broken(format!("{count} bytes written, {requested} were sent")))
            }
            count => Ok(count),
        }
    }

    /// Makes all written data durable.
    ///
    /// # Errors
    /// Errors of the server and of the connection.
    pub fn sync(&self) -> Result<(), Error> {
        let fid = self.fid.number;
        let done = match self.fid.line.dialect {
            Dialect::Linux => {
                let message = Tmessage::Fsync { fid, data_only: Some(0) };
                self.fid.line.call(&message, only!(Rmessage::Fsync {} => ()))
            }
            Dialect::Plan9 => {
                let message = Tmessage::Wstat { fid, stat: Stat::unchanged() };
                self.fid.line.call(&message, only!(Rmessage::Wstat {} => ()))
            }
        };
        done.map_err(|error| error.of("make durable", &self.path))
    }

    /// Closes the file and waits for the reply. Dropping a file closes it as well.
    ///
    /// # Errors
    /// Errors of the server and of the connection: some servers report a failed write only now.
    pub fn close(self) -> Result<(), Error> {
        let line = self.fid.line.clone();
        let fid = self.fid.forget();
        let done = line.call(&Tmessage::Clunk { fid }, only!(Rmessage::Clunk {} => ()));
        if done.as_ref().err().is_none_or(|error| !error.is_fatal()) {
            line.free_fid(fid);
        }
        done.map_err(|error| error.of("close", &self.path))
    }
}

impl Read for File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let count = self.read_at(buf, self.position)?;
        self.position += count as u64;
        Ok(count)
    }
}

impl Write for File {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let count = self.write_at(data, self.position)?;
        self.position += count as u64;
        Ok(count)
    }

    /// No data is buffered; [`File::sync`] makes it durable.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::Current(by) => self.position.checked_add_signed(by),
            SeekFrom::End(by) => self.metadata()?.size.checked_add_signed(by),
        };
        let before = || io::Error::new(io::ErrorKind::InvalidInput, "before the file's beginning");
        self.position = position.ok_or_else(before)?;
        Ok(self.position)
    }
}
