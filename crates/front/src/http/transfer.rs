//! Transfer of a response: parts of a file and of text, one after the other.

use super::{Session, State};
use crate::Output;
use base::{Buf, Error, Instant};
use std::collections::VecDeque;
use std::ops::Range as Span;
use tree::{Ask, OpenId, Reply};

/// Maximum number of bytes of a file read at once.
const PIECE: u32 = 256 << 10;
/// Maximum number of bytes read at once if memory is short.
const PIECE_MIN: u32 = 16 << 10;
/// Divisor of the allowance of unsent bytes that gives the part for one file.
const SHARE: usize = 8;
/// Maximum number of unsent bytes when the next piece is read.
const AHEAD: usize = PIECE as usize;

/// A part of a response's body.
#[derive(Clone, Debug)]
pub(super) enum Part {
    /// Bytes in memory.
    Bytes(Buf),
    /// A range of the file.
    File(Span<u64>),
    /// The file from this offset to its end, of unknown size; in chunks, or until the connection
    /// ends.
    Rest { from: u64, chunked: bool },
}

impl Part {
    /// Returns the length, bytes; the maximum, if it is unknown.
    pub(super) fn length(&self) -> u64 {
        match self {
            Part::Bytes(bytes) => bytes.len() as u64,
            Part::File(span) => span.end.saturating_sub(span.start),
            Part::Rest { .. } => u64::MAX,
        }
    }
}

/// Encodes bytes as one chunk (RFC 9112 §7.1), or leaves them as they are.
pub(super) fn frame(mut bytes: Buf, chunked: bool) -> Buf {
    if chunked {
        let size = format!("{:x}\r\n", bytes.len());
        bytes.prepend(size.as_bytes());
        bytes.extend(b"\r\n");
    }
    bytes
}

/// Encodes pieces as one chunk, or leaves them as they are. Shared memory is not copied.
fn frame_all(mut pieces: Vec<Buf>, chunked: bool) -> Vec<Buf> {
    match pieces.pop() {
        Some(only) if pieces.is_empty() && !only.is_shared() => vec![frame(only, chunked)],
        last => {
            pieces.extend(last);
            if chunked {
                let size = format!("{:x}\r\n", length(&pieces));
                pieces.insert(0, Buf::from(size.into_bytes()));
                pieces.push(Buf::from(&b"\r\n"[..]));
            }
            pieces
        }
    }
}

fn length(pieces: &[Buf]) -> u64 {
    pieces.iter().map(|piece| piece.len() as u64).sum()
}

/// A response in transfer.
#[derive(Debug)]
pub(super) struct Transfer {
    /// Head, until it is sent with the first bytes.
    head: Option<Vec<u8>>,
    /// Open file, if parts of it are still to be read.
    open: Option<OpenId>,
    parts: VecDeque<Part>,
    /// Whether a read is in flight.
    reading: bool,
}

impl Transfer {
    pub(super) fn new(head: Vec<u8>, open: Option<OpenId>, parts: Vec<Part>) -> Transfer {
        let parts = parts.into_iter().filter(|part| part.length() > 0).collect();
        Transfer { head: Some(head), open, parts, reading: false }
    }

    /// Closes the file; returns whether a read is in flight.
    pub(super) fn forget(self, out: &mut Vec<Output>) -> bool {
        out.extend(self.open.map(Output::Close));
        self.reading
    }
}

impl Session {
    /// Returns a limit of memory, lowered where memory is short or many responses are large.
    pub(super) fn at_most(&self, limit: usize) -> usize {
        limit.min((self.allowance / SHARE).min(self.piece).max(PIECE_MIN as usize))
    }

    /// Returns the maximum size of a read: less where memory is short.
    fn piece_max(&self) -> u32 {
        u32::try_from(self.at_most(PIECE as usize)).expect("no more than a piece")
    }

    /// Returns whether the next piece may be read before the client has taken the last one.
    fn may_read_ahead(&self) -> bool {
        let held = self.unsent + self.piece_max() as usize;
        self.unsent == 0 || (self.unsent <= self.at_most(AHEAD) && held <= self.allowance / SHARE)
    }

    /// Sends and reads as much as possible now.
    pub(super) fn go_on(
        &mut self,
        now: Instant,
        mut transfer: Transfer,
        out: &mut Vec<Output>,
    ) -> State {
        while !transfer.reading {
            match transfer.parts.pop_front() {
                Some(Part::Bytes(bytes)) => self.send_all(&mut transfer, vec![bytes], out),
                Some(part @ (Part::File(_) | Part::Rest { .. })) => {
                    if self.may_read_ahead() {
                        self.read_piece(&mut transfer, &part, out);
                    }
                    transfer.parts.push_front(part);
                    return State::Sending(transfer);
                }
                None => return self.end_transfer(now, transfer, out),
            }
        }
        State::Sending(transfer)
    }

    fn read_piece(&mut self, transfer: &mut Transfer, part: &Part, out: &mut Vec<Output>) {
        let open = transfer.open.expect("a file with parts to be read is open");
        let offset = match part {
            Part::File(span) => span.start,
            Part::Rest { from, .. } => *from,
            Part::Bytes(_) => unreachable!("bytes are said, not read"),
        };
        let count = u32::try_from(part.length()).unwrap_or(PIECE).min(self.piece_max());
        let headroom = transfer.head.as_ref().map_or(0, |_| super::HEADROOM);
        transfer.reading = true;
        assert!(count > 0, "what is empty is not read");
        self.asked = count as usize;
        self.ask(Ask::Read { open, offset, count, headroom }, out);
    }

    fn end_transfer(
        &mut self,
        now: Instant,
        mut transfer: Transfer,
        out: &mut Vec<Output>,
    ) -> State {
        self.send_all(&mut transfer, Vec::new(), out);
        transfer.forget(out);
        self.done(now, out)
    }

    /// Sends the next bytes, behind the head if that is still unsent.
    fn send_all(&mut self, transfer: &mut Transfer, mut pieces: Vec<Buf>, out: &mut Vec<Output>) {
        if let Some(head) = transfer.head.take() {
            match pieces.first_mut() {
                Some(first) if !first.is_shared() => first.prepend(&head),
                Some(_) | None => self.say(Buf::from(head), out),
            }
        }
        for piece in pieces.into_iter().filter(|piece| !piece.is_empty()) {
            self.say(piece, out);
        }
    }

    /// Handles a piece that was read.
    pub(super) fn piece(
        &mut self,
        now: Instant,
        mut transfer: Transfer,
        reply: Result<Reply, Error>,
        out: &mut Vec<Output>,
    ) -> State {
        assert!(transfer.reading, "a piece was asked for");
        transfer.reading = false;
        let pieces = match reply {
            Ok(Reply::Data(data)) => vec![data],
            Ok(Reply::Pieces(pieces)) => pieces,
            Ok(_) => return self.break_off(now, transfer, Error::Io, out),
            Err(error) => return self.break_off(now, transfer, error, out),
        };
        let length = length(&pieces);
        match transfer.parts.pop_front() {
            Some(Part::File(span)) if length > 0 => {
                assert!(length <= span.end - span.start, "no more comes than was asked for");
                let rest = span.start + length..span.end;
                if !rest.is_empty() {
                    transfer.parts.push_front(Part::File(rest));
                }
                self.send_all(&mut transfer, pieces, out);
                self.go_on(now, transfer, out)
            }
            Some(Part::Rest { from, chunked }) => {
                if length > 0 {
                    transfer.parts.push_front(Part::Rest { from: from + length, chunked });
                }
                self.send_all(&mut transfer, frame_all(pieces, chunked), out);
                self.go_on(now, transfer, out)
            }
            Some(Part::File(_) | Part::Bytes(_)) | None => {
                self.break_off(now, transfer, Error::WouldBlock, out)
            }
        }
    }

    /// Handles a file that has become shorter or unreadable. The response is an error if nothing
    /// was sent yet; otherwise the connection ends early.
    fn break_off(
        &mut self,
        now: Instant,
        transfer: Transfer,
        error: Error,
        out: &mut Vec<Output>,
    ) -> State {
        let said = transfer.head.is_none();
        transfer.forget(out);
        if said {
            return self.hang_up("the file changed while it was sent", out);
        }
        self.fail(now, super::answer::status(error), out)
    }
}
