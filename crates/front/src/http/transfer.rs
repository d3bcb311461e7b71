//! A response on its way: parts of a file and of text, one after the other.

use super::{Session, State};
use crate::Output;
use base::{Buf, Error, Instant};
use std::collections::VecDeque;
use std::ops::Range as Span;
use tree::{Ask, OpenId, Reply};

/// How much of a file is read at once, bytes.
const PIECE: u32 = 256 << 10;
/// How many bytes may be unsent before the next piece is read.
const AHEAD: usize = PIECE as usize;

/// A part of a response's body.
#[derive(Clone, Debug)]
pub(super) enum Part {
    /// These bytes.
    Bytes(Buf),
    /// This part of the file.
    File(Span<u64>),
    /// The file from here to its end, wherever that is; in chunks, or until the connection ends.
    Rest { from: u64, chunked: bool },
}

impl Part {
    /// How long it is, bytes; as long as can be, if nobody knows.
    pub(super) fn length(&self) -> u64 {
        match self {
            Part::Bytes(bytes) => bytes.len() as u64,
            Part::File(span) => span.end.saturating_sub(span.start),
            Part::Rest { .. } => u64::MAX,
        }
    }
}

/// Bytes as one chunk (RFC 9112 §7.1), or as they are.
pub(super) fn frame(mut bytes: Buf, chunked: bool) -> Buf {
    if chunked {
        let size = format!("{:x}\r\n", bytes.len());
        bytes.prepend(size.as_bytes());
        bytes.extend(b"\r\n");
    }
    bytes
}

/// A response on its way.
#[derive(Debug)]
pub(super) struct Transfer {
    /// The head, until it is said with the first bytes.
    head: Option<Vec<u8>>,
    /// The file, if parts of it are still to be read.
    open: Option<OpenId>,
    parts: VecDeque<Part>,
    /// Whether a piece is being read.
    reading: bool,
}

impl Transfer {
    pub(super) fn new(head: Vec<u8>, open: Option<OpenId>, parts: Vec<Part>) -> Transfer {
        let parts = parts.into_iter().filter(|part| part.length() > 0).collect();
        Transfer { head: Some(head), open, parts, reading: false }
    }

    /// Gives back the file; whether a read is under way.
    pub(super) fn forget(self, out: &mut Vec<Output>) -> bool {
        out.extend(self.open.map(Output::Close));
        self.reading
    }

    /// Puts the head in front of the first bytes.
    fn with_head(&mut self, mut bytes: Buf) -> Buf {
        if let Some(head) = self.head.take() {
            bytes.prepend(&head);
        }
        bytes
    }
}

impl Session {
    /// Says and reads what can be said and read now.
    pub(super) fn go_on(
        &mut self,
        now: Instant,
        mut transfer: Transfer,
        out: &mut Vec<Output>,
    ) -> State {
        while !transfer.reading {
            match transfer.parts.pop_front() {
                Some(Part::Bytes(bytes)) => {
                    let bytes = transfer.with_head(bytes);
                    self.say(bytes, out);
                }
                Some(part @ (Part::File(_) | Part::Rest { .. })) => {
                    if self.unsent <= AHEAD {
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
        let count = u32::try_from(part.length()).unwrap_or(PIECE).min(PIECE);
        let headroom = transfer.head.as_ref().map_or(0, |_| super::HEADROOM);
        transfer.reading = true;
        self.asked = count as usize;
        self.ask(Ask::Read { open, offset, count, headroom }, out);
    }

    fn end_transfer(
        &mut self,
        now: Instant,
        mut transfer: Transfer,
        out: &mut Vec<Output>,
    ) -> State {
        if transfer.head.is_some() {
            let head = transfer.with_head(Buf::default());
            self.say(head, out);
        }
        transfer.forget(out);
        self.done(now, out)
    }

    /// A piece was read.
    pub(super) fn piece(
        &mut self,
        now: Instant,
        mut transfer: Transfer,
        reply: Result<Reply, Error>,
        out: &mut Vec<Output>,
    ) -> State {
        transfer.reading = false;
        match (transfer.parts.pop_front(), reply) {
            (Some(Part::File(span)), Ok(Reply::Data(data))) if !data.is_empty() => {
                let rest = span.start + data.len() as u64..span.end;
                if !rest.is_empty() {
                    transfer.parts.push_front(Part::File(rest));
                }
                let data = transfer.with_head(data);
                self.say(data, out);
                self.go_on(now, transfer, out)
            }
            (Some(Part::Rest { from, chunked }), Ok(Reply::Data(data))) => {
                if !data.is_empty() {
                    let from = from + data.len() as u64;
                    transfer.parts.push_front(Part::Rest { from, chunked });
                }
                if chunked || !data.is_empty() {
                    self.say(frame(data, chunked), out);
                }
                self.go_on(now, transfer, out)
            }
            // Shorter than it was, or unreadable: what was promised cannot be kept.
            (_, Ok(_) | Err(_)) => {
                transfer.forget(out);
                self.hang_up("the file changed while it was sent", out)
            }
        }
    }
}
