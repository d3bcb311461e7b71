//! Sequential writes with many requests in flight.

use crate::Error;
use crate::file::File;
use crate::line::Pending;
use std::collections::VecDeque;
use std::io::{self, Read, Write};

/// Maximum writes of one file in flight.
const WINDOW: usize = 16;

/// Outstanding write with its data: a server may write fewer bytes.
#[derive(Debug)]
struct Sent {
    offset: u64,
    data: Vec<u8>,
    pending: Pending,
}

/// Sequential writer of a file. No write is confirmed before [`Sink::finish`].
///
/// Dropping it cancels outstanding writes.
#[derive(Debug)]
pub struct Sink<'a> {
    file: &'a File,
    sent: VecDeque<Sent>,
    /// Offset of the next write.
    next: u64,
    /// Bytes buffered by [`Write`].
    gathered: Vec<u8>,
    spare: Vec<Vec<u8>>,
}

impl File {
    /// Returns a sink for bytes from an offset on, with many writes in flight.
    pub fn sink(&self, offset: u64) -> Sink<'_> {
        Sink::new(self, offset)
    }
}

impl<'a> Sink<'a> {
    pub(crate) fn new(file: &'a File, offset: u64) -> Sink<'a> {
        let (sent, gathered, spare) = (VecDeque::new(), Vec::new(), Vec::new());
        Sink { file, sent, next: offset, gathered, spare }
    }

    /// Writes the next bytes of a reader, as many as one request holds. Returns their number; 0 at
    /// the end of the reader.
    ///
    /// # Errors
    /// Outer: the reader's error. Inner: errors of the server and of the connection.
    pub fn take_from(&mut self, from: &mut impl Read) -> io::Result<Result<usize, Error>> {
        if !self.gathered.is_empty() {
            let gathered = std::mem::take(&mut self.gathered);
            if let Err(error) = self.push(gathered) {
                return Ok(Err(error));
            }
        }
        let piece = self.file.piece as usize;
        let mut data = self.buffer();
        from.by_ref().take(piece as u64).read_to_end(&mut data)?;
        let count = data.len();
        Ok(self.push(data).map(|()| count))
    }

    /// Waits for all writes. Returns the end offset.
    ///
    /// # Errors
    /// Errors of the server and of the connection.
    pub fn finish(mut self) -> Result<u64, Error> {
        let gathered = std::mem::take(&mut self.gathered);
        self.push(gathered)?;
        while !self.sent.is_empty() {
            self.settle()?;
        }
        Ok(self.next)
    }

    fn buffer(&mut self) -> Vec<u8> {
        let new = || Vec::with_capacity(self.file.piece as usize);
        self.spare.pop().unwrap_or_else(new)
    }

    fn push(&mut self, data: Vec<u8>) -> Result<(), Error> {
        assert!(data.len() <= self.file.piece as usize, "a write fits into a message");
        if data.is_empty() {
            return Ok(());
        }
        while self.sent.len() >= WINDOW {
            self.settle()?;
        }
        let (offset, length) = (self.next, data.len() as u64);
        let sent = self.request(offset, data)?;
        self.sent.push_back(sent);
        self.next += length;
        Ok(())
    }

    /// Waits for the oldest write.
    fn settle(&mut self) -> Result<(), Error> {
        let Some(Sent { offset, mut data, pending }) = self.sent.pop_front() else {
            return Ok(());
        };
        let done = pending.wait().and_then(|reply| self.file.written(&reply, data.len()));
        let count = done.map_err(|error| error.of("write", &self.file.path))?;
        assert!(count <= data.len(), "no more is written than was sent");
        data.drain(..count);
        if data.is_empty() {
            self.spare.push(data);
        } else {
            let rest = self.request(offset + count as u64, data)?;
            self.sent.push_front(rest);
        }
        Ok(())
    }

    fn request(&self, offset: u64, data: Vec<u8>) -> Result<Sent, Error> {
        let fid = self.file.fid();
        let pending = fid.line.begin_write(fid.number, offset, &data);
        let pending = pending.map_err(|error| error.of("write", &self.file.path))?;
        Ok(Sent { offset, data, pending })
    }
}

impl Write for Sink<'_> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let piece = self.file.piece as usize;
        if self.gathered.capacity() == 0 {
            self.gathered = self.buffer();
        }
        assert!(self.gathered.len() < piece, "a full batch is sent");
        let count = data.len().min(piece - self.gathered.len());
        self.gathered.extend_from_slice(&data[..count]);
        if self.gathered.len() == piece {
            let full = std::mem::take(&mut self.gathered);
            self.push(full)?;
        }
        Ok(count)
    }

    /// Waits for everything written so far.
    fn flush(&mut self) -> io::Result<()> {
        let gathered = std::mem::take(&mut self.gathered);
        self.push(gathered)?;
        while !self.sent.is_empty() {
            self.settle()?;
        }
        Ok(())
    }
}
