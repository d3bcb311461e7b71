//! Writing a file from one end to the other with many writes under way.

use crate::Error;
use crate::file::File;
use crate::line::Pending;
use std::collections::VecDeque;
use std::io::{self, Read, Write};

/// Most writes of one file that are under way.
const WINDOW: usize = 16;

/// A write that was sent, with what it wrote: a server may take less.
#[derive(Debug)]
struct Sent {
    offset: u64,
    data: Vec<u8>,
    pending: Pending,
}

/// Takes bytes for a file, in order. Nothing is sure before [`Sink::finish`].
///
/// Dropping it cancels what is under way.
#[derive(Debug)]
pub struct Sink<'a> {
    file: &'a File,
    sent: VecDeque<Sent>,
    /// Where the next write begins.
    next: u64,
    /// What [`Write`] has gathered for it.
    gathered: Vec<u8>,
    spare: Vec<Vec<u8>>,
}

impl<'a> Sink<'a> {
    pub(crate) fn new(file: &'a File, offset: u64) -> Sink<'a> {
        let (sent, gathered, spare) = (VecDeque::new(), Vec::new(), Vec::new());
        Sink { file, sent, next: offset, gathered, spare }
    }

    /// Takes the next bytes of a reader, as many as one write holds: how many there were. Zero:
    /// the reader has ended.
    ///
    /// # Errors
    /// The reader's in the outer result; in the inner one what the server answers, or why it does
    /// not.
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

    /// Waits for everything: how far the file was written.
    ///
    /// # Errors
    /// What the server answers, or why it does not.
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
        assert!(self.gathered.len() < piece, "what is full is sent");
        let count = data.len().min(piece - self.gathered.len());
        self.gathered.extend_from_slice(&data[..count]);
        if self.gathered.len() == piece {
            let full = std::mem::take(&mut self.gathered);
            self.push(full)?;
        }
        Ok(count)
    }

    /// Waits for everything that was written so far.
    fn flush(&mut self) -> io::Result<()> {
        let gathered = std::mem::take(&mut self.gathered);
        self.push(gathered)?;
        while !self.sent.is_empty() {
            self.settle()?;
        }
        Ok(())
    }
}
