//! Sequential reads with many requests in flight.
//!
//! Up to the known size of the file, up to [`WINDOW`] reads are in flight; beyond it one at a time,
//! so that a growing file, or one that returns each byte only once, is read correctly.

use crate::Error;
use crate::file::File;
use crate::line::Pending;
use crate::message::Piece;
use std::collections::VecDeque;
use std::io::{self, Read};
use wire::ninep::Tmessage;

/// Maximum reads of one file in flight.
const WINDOW: usize = 32;

/// Bytes in one read. Larger reads are slower: the server's outstanding data then exceed its
/// processor's cache.
const PIECE_MAX: u32 = 64 << 10;

/// Reads sent together, after as many have completed: one network packet, and one turn of the
/// server.
const BATCH: usize = 8;

/// Outstanding read.
#[derive(Debug)]
struct PendingRead {
    offset: u64,
    count: u32,
    pending: Pending,
}

/// Bytes of a file in order: an iterator of pieces, and a [`Read`].
///
/// Dropping it cancels outstanding reads.
#[derive(Debug)]
pub struct Stream<'a> {
    file: &'a File,
    requested: VecDeque<PendingRead>,
    /// Offset of the next read.
    next: u64,
    /// Known size of the file.
    size: u64,
    /// Offset at which to stop in any case.
    end: u64,
    over: bool,
    /// Piece partially consumed by [`Read`], and the bytes consumed.
    begun: Option<(Piece, usize)>,
}

impl File {
    /// Streams up to `length` bytes from an offset, with many reads in flight.
    ///
    /// # Errors
    /// Errors of the server and of the connection.
    pub fn stream(&self, offset: u64, length: u64) -> Result<Stream<'_>, Error> {
        let size = self.metadata()?.size;
        Ok(Stream::new(self, offset, length, size))
    }

    /// Streams a file of approximately known size from the start.
    pub fn stream_of(&self, size: u64) -> Stream<'_> {
        Stream::new(self, 0, u64::MAX, size)
    }
}

impl<'a> Stream<'a> {
    pub(crate) fn new(file: &'a File, offset: u64, length: u64, size: u64) -> Stream<'a> {
        let end = offset.saturating_add(length);
        let (requested, over) = (VecDeque::new(), false);
        Stream { file, requested, next: offset, size: size.min(end), end, over, begun: None }
    }

    /// Returns the next bytes, never an empty piece; `None` at the end.
    ///
    /// # Errors
    /// Errors of the server and of the connection.
    pub fn next_piece(&mut self) -> Result<Option<Piece>, Error> {
        if self.over {
            return Ok(None);
        }
        let piece = self.advance();
        if !matches!(piece, Ok(Some(_))) {
            self.over = true;
            self.requested.clear();
        }
        piece.map_err(|error| error.of("read", &self.file.path))
    }

    fn advance(&mut self) -> Result<Option<Piece>, Error> {
        self.ask()?;
        let Some(PendingRead { offset, count, pending }) = self.requested.pop_front() else {
            return Ok(None);
        };
        let piece = Piece(pending.wait_data(count)?);
        let length = u32::try_from(piece.len()).expect("at most what was requested");
        if length == 0 {
            return Ok(None);
        }
        let seen = offset + u64::from(length);
        match (length < count, self.requested.is_empty()) {
            (false, _) => {}
            (true, true) => self.next = seen,
            // The missing bytes come before all outstanding reads.
            (true, false) => {
                let rest = self.request(seen, count - length)?;
                self.file.fid().line.push()?;
                self.requested.push_front(rest);
            }
        }
        Ok(Some(piece))
    }

    /// Sends further reads, several at a time.
    fn ask(&mut self) -> Result<(), Error> {
        if self.requested.len() > WINDOW - BATCH {
            return Ok(());
        }
        let before = self.requested.len();
        while self.requested.len() < WINDOW && self.next < self.size {
            self.ask_next(self.size)?;
        }
        if self.requested.is_empty() && self.next < self.end {
            self.ask_next(self.end)?;
        }
        match self.requested.len() > before {
            true => self.file.fid().line.push(),
            false => Ok(()),
        }
    }

    fn ask_next(&mut self, end: u64) -> Result<(), Error> {
        assert!(self.next < end, "nothing is read behind the end");
        let count =
            u32::try_from(end - self.next).unwrap_or(u32::MAX).min(self.file.piece).min(PIECE_MAX);
        let requested = self.request(self.next, count)?;
        assert!(count > 0 && self.requested.len() < WINDOW, "so many reads are in flight at most");
        self.requested.push_back(requested);
        self.next += u64::from(count);
        Ok(())
    }

    fn request(&self, offset: u64, count: u32) -> Result<PendingRead, Error> {
        let fid = self.file.fid();
        let message = Tmessage::Read { fid: fid.number, offset, count };
        let pending = fid.line.post(&message, None)?;
        Ok(PendingRead { offset, count, pending })
    }
}

impl Iterator for Stream<'_> {
    type Item = Result<Piece, Error>;

    fn next(&mut self) -> Option<Result<Piece, Error>> {
        self.next_piece().transpose()
    }
}

impl Read for Stream<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        let begun = match self.begun.take() {
            Some(begun) => Some(begun),
            None => self.next_piece()?.map(|piece| (piece, 0)),
        };
        let Some((piece, taken)) = begun else { return Ok(0) };
        assert!(taken < piece.len(), "a begun piece has more bytes");
        let count = buf.len().min(piece.len() - taken);
        buf[..count].copy_from_slice(&piece[taken..taken + count]);
        if taken + count < piece.len() {
            self.begun = Some((piece, taken + count));
        }
        Ok(count)
    }
}
