//! Directory entries.

use crate::metadata::{Metadata, kind_of};
use crate::tree::{Fid, only};
use crate::{Dialect, Error, Kind};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use wire::ninep::{
    IO_HEADER_SIZE, Qid, READ_HEADER_SIZE, Reader, Rmessage, Stat, Tmessage, dirents,
};

/// Bytes requested by one read.
const COUNT_MAX: u32 = 128 << 10;

/// Directory entry. The name contains no slash and is neither empty nor `.` nor `..`: it can be
/// joined to a path of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// File name.
    pub name: OsString,
    /// File type, as far as the server reports it here.
    pub kind: Kind,
    /// Metadata, if it came with the entry, as in 9P2000.
    pub metadata: Option<Metadata>,
}

/// Iterator over directory entries, in the server's order.
#[derive(Debug)]
pub struct ReadDir {
    fid: Fid,
    path: PathBuf,
    ahead: VecDeque<Entry>,
    /// Position of the next read: a cookie in 9P2000.L, an offset in 9P2000.
    next: u64,
    over: bool,
}

impl ReadDir {
    pub(crate) fn new(fid: Fid, path: PathBuf) -> ReadDir {
        ReadDir { fid, path, ahead: VecDeque::new(), next: 0, over: false }
    }

    fn more(&mut self) -> Result<(), Error> {
        let room = self.fid.line.msize - IO_HEADER_SIZE.max(READ_HEADER_SIZE as u32);
        let (fid, offset, count) = (self.fid.number, self.next, room.min(COUNT_MAX));
        let dialect = self.fid.line.dialect;
        let message = match dialect {
            Dialect::Linux => Tmessage::Readdir { fid, offset, count },
            Dialect::Plan9 => Tmessage::Read { fid, offset, count },
        };
        let reply = self.fid.line.begin(&message, None)?.wait_data(count)?;
        let data = &reply.bytes()[READ_HEADER_SIZE..];
        self.over = data.is_empty();
        let taken = match dialect {
            Dialect::Linux => self.take_linux(data),
            Dialect::Plan9 => self.take_plan9(data),
        };
        taken.map_err(|what| self.fid.line.broken(format!("{}: {what}", self.path.display())))
    }

    fn take_linux(&mut self, data: &[u8]) -> Result<(), String> {
        let before = self.next;
        for (qid, cookie, kind, name) in dirents(data).map_err(|error| error.to_string())? {
            self.next = cookie;
            self.take(name, || (kind_by(kind, qid), None))?;
        }
        if !data.is_empty() && self.next == before {
            return Err("a directory that goes round in circles".to_string());
        }
        Ok(())
    }

    fn take_plan9(&mut self, data: &[u8]) -> Result<(), String> {
        let mut reader = Reader::new(data);
        while !reader.is_empty() {
            let stat = Stat::get_entry(&mut reader).map_err(|error| error.to_string())?;
            let metadata = Metadata::plan9(&stat);
            self.take(stat.name, || (metadata.kind, Some(metadata)))?;
        }
        self.next += data.len() as u64;
        Ok(())
    }

    /// Queues an entry. A name with path separators could make the caller write files anywhere.
    fn take(
        &mut self,
        name: &[u8],
        rest: impl FnOnce() -> (Kind, Option<Metadata>),
    ) -> Result<(), String> {
        if name == b"." || name == b".." {
            return Ok(());
        }
        if name.is_empty() || name.iter().any(|byte| [0, b'/'].contains(byte)) {
            return Err(format!("an entry has the name '{}'", name.escape_ascii()));
        }
        let (kind, metadata) = rest();
        self.ahead.push_back(Entry { name: OsString::from_vec(name.to_vec()), kind, metadata });
        Ok(())
    }
}

impl Iterator for ReadDir {
    type Item = Result<Entry, Error>;

    fn next(&mut self) -> Option<Result<Entry, Error>> {
        while self.ahead.is_empty() && !self.over {
            if let Err(error) = self.more() {
                self.over = true;
                return Some(Err(error.of("list", &self.path)));
            }
        }
        self.ahead.pop_front().map(Ok)
    }
}

/// Maps an entry's type (`DT_…`), or its qid where the type is unknown.
fn kind_by(byte: u8, qid: Qid) -> Kind {
    let known = Kind::ALL.into_iter().find(|kind| kind.dirent_type() == byte);
    known.unwrap_or_else(|| kind_of(qid))
}

/// Opens a directory for reading.
pub(crate) fn open(fid: Fid, path: PathBuf) -> Result<ReadDir, Error> {
    const DIRECTORY: u32 = 0o200_000;
    let number = fid.number;
    match fid.line.dialect {
        Dialect::Linux => {
            let message = Tmessage::Lopen { fid: number, flags: DIRECTORY };
            fid.line.call(&message, only!(Rmessage::Lopen { .. } => ()))?;
        }
        Dialect::Plan9 => {
            let message = Tmessage::Open { fid: number, mode: 0 };
            let qid = fid.line.call(&message, only!(Rmessage::Open { qid, .. } => qid))?;
            if qid.kind & Qid::DIR == 0 {
                return Err(Error::not_directory());
            }
        }
    }
    Ok(ReadDir::new(fid, path))
}
