//! Transfer of a response: parts of a file and of text, one after the other.

use super::exchange::{Context, Exchange, Stay};
use super::{CALL, Session, State};
use crate::CallId;
use base::{Buf, Error};
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

    /// Sends the head and as much as possible now; a small file is sent at once.
    pub(super) fn begin(mut self, cx: &mut Context) -> State {
        match self.advance(cx) {
            true => cx.done(),
            false => State::Exchange(Box::new(self)),
        }
    }

    fn go_on(mut self: Box<Self>, cx: &mut Context) -> State {
        if self.advance(cx) { cx.done() } else { self.stay() }
    }

    /// Sends and reads as much as possible now; returns whether everything is sent.
    fn advance(&mut self, cx: &mut Context) -> bool {
        while !self.reading {
            match self.parts.pop_front() {
                Some(Part::Bytes(bytes)) => self.send_all(cx, vec![bytes]),
                Some(part @ (Part::File(_) | Part::Rest { .. })) => {
                    if cx.may_read_ahead() {
                        self.read_piece(cx, &part);
                    }
                    self.parts.push_front(part);
                    return false;
                }
                None => {
                    self.send_all(cx, Vec::new());
                    cx.close(self.open);
                    return true;
                }
            }
        }
        false
    }

    fn read_piece(&mut self, cx: &mut Context, part: &Part) {
        let open = self.open.expect("a file with parts to be read is open");
        let offset = match part {
            Part::File(span) => span.start,
            Part::Rest { from, .. } => *from,
            Part::Bytes(_) => unreachable!("bytes in memory are not read from a file"),
        };
        let count = u32::try_from(part.length()).unwrap_or(PIECE).min(cx.piece_max());
        let headroom = self.head.as_ref().map_or(0, |_| super::HEADROOM);
        self.reading = true;
        assert!(count > 0, "an empty range is not read");
        cx.session.outstanding = count as usize;
        cx.ask(Ask::Read { open, offset, count, headroom });
    }

    /// Sends the next bytes, behind the head if that is still unsent.
    fn send_all(&mut self, cx: &mut Context, mut pieces: Vec<Buf>) {
        if let Some(head) = self.head.take() {
            match pieces.first_mut() {
                Some(first) if !first.is_shared() => first.prepend(&head),
                Some(_) | None => cx.send(Buf::from(head)),
            }
        }
        pieces.into_iter().filter(|piece| !piece.is_empty()).for_each(|piece| cx.send(piece));
    }

    /// Handles a file that has become shorter or unreadable. The response is an error if nothing
    /// was sent yet; otherwise the connection ends early.
    fn break_off(&self, cx: &mut Context, error: Error) -> State {
        cx.close(self.open);
        match self.head {
            Some(_) => cx.fail(super::answer::status(error)),
            None => cx.hang_up("the file changed while it was sent"),
        }
    }
}

impl Exchange for Transfer {
    fn name(&self) -> &'static str {
        "sending"
    }

    /// Handles a piece that was read.
    fn answered(
        mut self: Box<Self>,
        cx: &mut Context,
        _call: CallId,
        reply: Result<Reply, Error>,
    ) -> State {
        assert!(self.reading, "a piece was requested");
        self.reading = false;
        let pieces = match reply {
            Ok(Reply::Data(data)) => vec![data],
            Ok(Reply::Pieces(pieces)) => pieces,
            Ok(_) => return self.break_off(cx, Error::Io),
            Err(error) => return self.break_off(cx, error),
        };
        let length = length(&pieces);
        match self.parts.pop_front() {
            Some(Part::File(span)) if length > 0 => {
                assert!(length <= span.end - span.start, "no more comes than was requested");
                let rest = span.start + length..span.end;
                if !rest.is_empty() {
                    self.parts.push_front(Part::File(rest));
                }
                self.send_all(cx, pieces);
                self.go_on(cx)
            }
            Some(Part::Rest { from, chunked }) => {
                if length > 0 {
                    self.parts.push_front(Part::Rest { from: from + length, chunked });
                }
                self.send_all(cx, frame_all(pieces, chunked));
                self.go_on(cx)
            }
            Some(Part::File(_) | Part::Bytes(_)) | None => self.break_off(cx, Error::WouldBlock),
        }
    }

    fn sent(self: Box<Self>, cx: &mut Context) -> State {
        self.go_on(cx)
    }

    fn abort(self: Box<Self>, cx: &mut Context) -> usize {
        cx.close(self.open);
        cx.cancel(CALL, self.reading)
    }
}

impl Context<'_> {
    /// Returns a limit of memory, lowered where memory is short or many responses are large.
    pub(super) fn at_most(&self, limit: usize) -> usize {
        let Session { allowance, piece, .. } = &*self.session;
        limit.min((allowance / SHARE).min(*piece).max(PIECE_MIN as usize))
    }

    /// Returns the maximum size of a read: less where memory is short.
    fn piece_max(&self) -> u32 {
        u32::try_from(self.at_most(PIECE as usize)).expect("no more than a piece")
    }

    /// Returns whether the next piece may be read before the client has taken the last one.
    fn may_read_ahead(&self) -> bool {
        let Session { unsent, allowance, .. } = *self.session;
        let held = unsent + self.piece_max() as usize;
        unsent == 0 || (unsent <= self.at_most(AHEAD) && held <= allowance / SHARE)
    }
}
