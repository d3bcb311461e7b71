//! Calls before a run, one after the other: mounts, lookups, and the creation of files.

use super::Nfs;
use super::calls::{Calls, DATA_MAX, Reply, any_number, credential, errno, joined, record_size};
use crate::driver::server::{Server, Stream};
use std::io::{self, Read as _, Write as _};
use wire::nfs::{Call, CreateHow, FileKind, Handle, Results, SetAttributes, Stable, mount};
use wire::rpc::{self, MARK_SIZE, Outcome};

/// Errno of a missing file.
const ENOENT: u16 = 2;

/// Minimum usable size of READ and WRITE, bytes.
const SIZE_MIN: u32 = 512;

/// Maximum data of one call, bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) read: u32,
    pub(super) write: u32,
}

/// Connection to a server with a mounted directory.
pub struct NfsFiles {
    stream: Stream,
    calls: Calls<usize>,
    place: Nfs,
    /// The last mounted directory with its handle.
    mounted: Option<(String, Handle)>,
    record: Vec<u8>,
    buffer: Vec<u8>,
}

/// File that is being written.
pub struct NfsFile {
    handle: Handle,
    write_max: u32,
}

impl NfsFiles {
    /// Connects; nothing is mounted yet.
    pub(super) fn connect(place: &Nfs) -> io::Result<NfsFiles> {
        Ok(NfsFiles {
            stream: place.server.connect()?,
            calls: Calls::new(),
            place: place.clone(),
            mounted: None,
            record: Vec::new(),
            buffer: Vec::new(),
        })
    }

    /// Returns the size of a file in bytes, or `None` if it does not exist.
    ///
    /// # Errors
    /// If the server refuses; `IsADirectory` if it is no file.
    pub fn size(&mut self, path: &str) -> io::Result<Option<u64>> {
        let Some(object) = self.lookup(path)? else { return Ok(None) };
        let got = self.call("get the attributes of", path, &Call::GetAttr { object })?;
        let Results::GetAttr { attributes } = got else { unreachable!("they are of its call") };
        if attributes.kind == FileKind::Directory {
            let text = format!("{path} is a directory: name a file in it");
            return Err(io::Error::new(io::ErrorKind::IsADirectory, text));
        }
        Ok(Some(attributes.size))
    }

    /// Creates an empty file.
    ///
    /// # Errors
    /// If the server refuses, or the file exists.
    pub fn create(&mut self, path: &str) -> io::Result<NfsFile> {
        let (dir, name) = self.parent(path)?;
        let attributes = SetAttributes { mode: Some(0o644), ..SetAttributes::default() };
        let how = CreateHow::Guarded(attributes);
        self.call("create", path, &Call::Create { dir, name: name.as_bytes(), how })?;
        let gone = || refused("create", path, ENOENT);
        let handle = self.lookup(path)?.ok_or_else(gone)?;
        Ok(NfsFile { handle, write_max: self.sizes()?.write })
    }

    /// Writes all bytes at an offset.
    ///
    /// # Errors
    /// If the server refuses.
    pub fn write(&mut self, file: &NfsFile, mut offset: u64, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let data = &bytes[..bytes.len().min(file.write_max as usize)];
            let (file, count, stable) = (file.handle, data.len() as u32, Stable::Unstable);
            let wrote =
                self.call("write", "it", &Call::Write { file, offset, count, stable, data })?;
            let Results::Write { count, .. } = wrote else { unreachable!("they are of its call") };
            if count == 0 || count as usize > data.len() {
                return Err(no_nfs("a WRITE of an impossible length"));
            }
            (offset, bytes) = (offset + u64::from(count), &bytes[count as usize..]);
        }
        Ok(())
    }

    /// Makes a written file durable.
    ///
    /// # Errors
    /// If the server refuses.
    pub fn commit(&mut self, file: &NfsFile) -> io::Result<()> {
        let call = Call::Commit { file: file.handle, offset: 0, count: 0 };
        self.call("commit", "it", &call).map(|_| ())
    }

    /// Removes a file.
    ///
    /// # Errors
    /// If the server refuses.
    pub fn remove(&mut self, path: &str) -> io::Result<()> {
        let (dir, name) = self.parent(path)?;
        self.call("remove", path, &Call::Remove { dir, name: name.as_bytes() }).map(|_| ())
    }

    /// Returns the handle of a file, or `None` if it does not exist.
    pub(super) fn lookup(&mut self, path: &str) -> io::Result<Option<Handle>> {
        let (dir, name) = self.parent(path)?;
        self.step(dir, name, path)
    }

    fn step(&mut self, dir: Handle, name: &str, path: &str) -> io::Result<Option<Handle>> {
        match self.ask(&Call::Lookup { dir, name: name.as_bytes() })? {
            Ok(Results::Lookup { object, .. }) => Ok(Some(object)),
            Ok(_) => unreachable!("they are of its call"),
            Err(ENOENT) => Ok(None),
            Err(number) => Err(refused("look up", path, number)),
        }
    }

    /// Returns the directory of a file and the name in it.
    fn parent<'a>(&mut self, path: &'a str) -> io::Result<(Handle, &'a str)> {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        if name.is_empty() {
            let text = format!("{path} is a directory: name a file in it");
            return Err(io::Error::new(io::ErrorKind::IsADirectory, text));
        }
        let export = self.place.export.clone();
        if export.is_empty() {
            return Ok((self.mount(if dir.is_empty() { "/" } else { dir })?, name));
        }
        let mut at = self.mount(&export)?;
        for part in dir.split('/').filter(|part| !part.is_empty()) {
            let missing = || refused("look up", dir, ENOENT);
            at = self.step(at, part, path)?.ok_or_else(missing)?;
        }
        Ok((at, name))
    }

    /// Returns the handle of a directory.
    fn mount(&mut self, dir: &str) -> io::Result<Handle> {
        if let Some((known, handle)) = &self.mounted
            && known == dir
        {
            return Ok(*handle);
        }
        let handle = mount(&self.place.mount_server(), dir)?;
        self.mounted = Some((dir.to_string(), handle));
        Ok(handle)
    }

    /// Returns the maximum sizes of the mounted file system.
    ///
    /// # Panics
    /// If nothing is mounted.
    pub(super) fn sizes(&mut self) -> io::Result<Sizes> {
        let (dir, root) = self.mounted.clone().expect("a file of it was looked up");
        let info = self.call("get the limits of", &dir, &Call::FsInfo { root })?;
        let Results::FsInfo { rtmax, wtmax, .. } = info else {
            unreachable!("they are of its call")
        };
        if rtmax.min(wtmax) < SIZE_MIN {
            return Err(no_nfs("unusable limits of READ and WRITE"));
        }
        Ok(Sizes { read: rtmax.min(DATA_MAX), write: wtmax.min(DATA_MAX) })
    }

    /// Returns the connection and its calls.
    pub(super) fn into_parts(self) -> (Stream, Calls<usize>) {
        (self.stream, self.calls)
    }

    fn call(&mut self, what: &str, path: &str, call: &Call<'_>) -> io::Result<Results<'_>> {
        self.ask(call)?.map_err(|number| refused(what, path, number))
    }

    /// Sends a call and waits for its reply.
    fn ask(&mut self, call: &Call<'_>) -> io::Result<Reply<'_>> {
        let mut out = Vec::new();
        self.calls.send(call, 0, &mut out);
        let lost = |error| lost(&self.place.server, "use HOST:PORT of an NFS server", &error);
        self.stream.write_all(&out).map_err(lost)?;
        read_record(&mut self.stream, &mut self.record).map_err(lost)?;
        let record = joined(&self.record, &mut self.buffer);
        let (_, reply) = self.calls.receive(record).map_err(no_nfs)?;
        Ok(reply)
    }
}

/// Mounts a directory.
fn mount(server: &Server, dir: &str) -> io::Result<Handle> {
    let mut stream = server.connect()?;
    let call = mount::Call::Mount(dir.as_bytes());
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let (xid, credential) = (any_number(), credential(uid, gid));
    let (program, version, procedure) = (mount::PROGRAM, mount::VERSION, call.procedure());
    let mut out = vec![0; MARK_SIZE];
    rpc::Call { xid, program, version, procedure, credential }.put(&mut out);
    call.put(&mut out);
    rpc::seal(&mut out, 0);
    let lost = |error| lost(server, "name the port of an NFS server, or --mount-port", &error);
    stream.write_all(&out).map_err(lost)?;
    let (mut record, mut buffer) = (Vec::new(), Vec::new());
    read_record(&mut stream, &mut record).map_err(lost)?;
    let decoded = rpc::decode_reply(joined(&record, &mut buffer));
    match decoded.map_err(|_| no_nfs("a reply that cannot be decoded"))? {
        (replied, Outcome::Success, results) if replied == xid => {
            let mounted = mount::decode_mounted(results);
            let mounted = mounted.map_err(|_| no_nfs("a handle that cannot be decoded"))?;
            let (handle, _flavours) =
                mounted.map_err(|status| refused("mount", dir, errno(status as u32)))?;
            Ok(handle)
        }
        (_, outcome, _) => {
            let text = format!(
                "{server} does not speak MOUNT ({outcome:?}); name its port with --mount-port"
            );
            Err(io::Error::other(text))
        }
    }
}

/// Reads a record with its marks.
fn read_record(stream: &mut Stream, record: &mut Vec<u8>) -> io::Result<()> {
    record.clear();
    loop {
        let at = record.len();
        record.resize(at + MARK_SIZE, 0);
        stream.read_exact(&mut record[at..])?;
        record_size(record).map_err(no_nfs)?;
        let (size, is_last) = rpc::fragment(&record[at..]).expect("the mark is there");
        record.resize(at + MARK_SIZE + size, 0);
        stream.read_exact(&mut record[at + MARK_SIZE..])?;
        if is_last {
            return Ok(());
        }
    }
}

/// Adds the server and the next step to an error of its connection.
fn lost(server: &Server, step: &str, error: &io::Error) -> io::Error {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof, WouldBlock};
    let kind = error.kind();
    let text = if [UnexpectedEof, ConnectionReset, BrokenPipe].contains(&kind) {
        format!("{server} closed the connection without a reply; {step}")
    } else if kind == WouldBlock {
        format!("no reply from {server}; {step}")
    } else {
        format!("{server}: {error}; {step}")
    };
    io::Error::new(kind, text)
}

fn no_nfs(what: &str) -> io::Error {
    io::Error::other(format!("the server does not speak NFS version 3: it sends {what}"))
}

fn refused(what: &str, path: &str, number: u16) -> io::Error {
    let why = io::Error::from_raw_os_error(number.into());
    let text = format!("the server refuses to {what} {path}: {why}");
    io::Error::new(why.kind(), text)
}
