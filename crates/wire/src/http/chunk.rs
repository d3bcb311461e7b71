//! Chunked bodies (RFC 9112 §7.1).

use super::{Refusal, refusal};

/// Maximum length of the line with a chunk's size and extensions, and of a trailer field, bytes.
const LINE_MAX: usize = 4096;

/// Position in a chunked body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Chunks {
    /// In the line with the size of the next chunk.
    #[default]
    Size,
    /// In a chunk with this number of bytes left.
    Data(u64),
    /// In the line end after a chunk.
    DataEnd,
    /// In the trailer section.
    Trailer,
    /// After the body.
    Done,
}

/// Kind of the first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// This number of bytes of framing.
    Framing(usize),
    /// This number of bytes of data.
    Data(usize),
    /// Too few bytes to decide.
    Incomplete,
    /// The end of the body.
    End,
}

/// Returns whether the first line, as far as received, consists of text only: another parser could
/// take a lone CR or LF for a line end (RFC 9112 §11.1).
fn is_line(bytes: &[u8]) -> bool {
    let text = |byte: &u8| *byte == b'\t' || !byte.is_ascii_control();
    let bytes = &bytes[..bytes.len().min(LINE_MAX + 2)];
    match bytes.iter().position(|byte| !text(byte)) {
        None => true,
        Some(at) => matches!(bytes[at..], [b'\r'] | [b'\r', b'\n', ..]),
    }
}

/// Returns whether a size does not begin with a digit, so that it could be taken for zero.
fn starts_wrong(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(|byte| !byte.is_ascii_hexdigit())
}

impl Chunks {
    /// Returns the kind of the first bytes of `bytes`, and the position after them.
    ///
    /// # Errors
    /// A refusal if the framing is malformed or too long; the connection must be closed then.
    pub fn next(self, bytes: &[u8]) -> Result<(Piece, Chunks), Refusal> {
        const WRONG: Refusal = refusal(400, "the chunks of the body cannot be understood");
        Ok(match self {
            Chunks::Size if !is_line(bytes) || starts_wrong(bytes) => return Err(WRONG),
            Chunks::Size => match httparse::parse_chunk_size(&bytes[..bytes.len().min(LINE_MAX)]) {
                Ok(httparse::Status::Complete((length, 0))) => {
                    (Piece::Framing(length), Chunks::Trailer)
                }
                Ok(httparse::Status::Complete((length, size))) => {
                    (Piece::Framing(length), Chunks::Data(size))
                }
                Ok(httparse::Status::Partial) if bytes.len() < LINE_MAX => {
                    (Piece::Incomplete, self)
                }
                Ok(httparse::Status::Partial) | Err(_) => return Err(WRONG),
            },
            Chunks::Data(_) if bytes.is_empty() => (Piece::Incomplete, self),
            Chunks::Data(left) => {
                assert!(left > 0, "an empty chunk is the last");
                let length = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                let left = left - length as u64;
                (Piece::Data(length), if left == 0 { Chunks::DataEnd } else { Chunks::Data(left) })
            }
            Chunks::DataEnd if bytes.len() < 2 => (Piece::Incomplete, self),
            Chunks::DataEnd if bytes.starts_with(b"\r\n") => (Piece::Framing(2), Chunks::Size),
            Chunks::DataEnd => return Err(WRONG),
            Chunks::Trailer if !is_line(bytes) => return Err(WRONG),
            Chunks::Trailer => match bytes.windows(2).position(|pair| pair == b"\r\n") {
                Some(0) => (Piece::Framing(2), Chunks::Done),
                Some(length) if length < LINE_MAX => (Piece::Framing(length + 2), self),
                None if bytes.len() < LINE_MAX => (Piece::Incomplete, self),
                Some(_) | None => return Err(WRONG),
            },
            Chunks::Done => (Piece::End, self),
        })
    }
}
