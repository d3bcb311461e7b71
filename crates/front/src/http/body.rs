//! The body of a request, as it arrives in the input.

use base::Buf;
use wire::http::{Body, Chunks, Piece, Refusal};

/// Maximum number of bytes of a body received and processed at once.
pub(super) const PIECE: usize = 128 << 10;

/// Remaining part of a body.
#[derive(Clone, Copy, Debug)]
pub(super) enum Remaining {
    Length(u64),
    Chunks(Chunks),
}

impl Remaining {
    /// Returns all of a body.
    pub(super) fn of(body: Body) -> Remaining {
        match body {
            Body::None => Remaining::Length(0),
            Body::Length(length) => Remaining::Length(length),
            Body::Chunked => Remaining::Chunks(Chunks::default()),
        }
    }

    /// Returns whether nothing remains.
    pub(super) fn is_empty(self) -> bool {
        matches!(self, Remaining::Length(0) | Remaining::Chunks(Chunks::Done))
    }

    /// Returns whether more follows the buffered bytes.
    pub(super) fn exceeds(self, buffered: usize) -> bool {
        match self {
            Remaining::Length(left) => left > buffered as u64,
            Remaining::Chunks(place) => place != Chunks::Done,
        }
    }

    /// Takes the available part of the body off the input.
    ///
    /// # Errors
    /// If chunks are malformed.
    pub(super) fn take(&mut self, input: &mut Buf) -> Result<Buf, Refusal> {
        match self {
            Remaining::Length(left) => {
                let count = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
                assert!(count as u64 <= *left, "the next request stays in the input");
                *left -= count as u64;
                if count == input.len() {
                    return Ok(std::mem::take(input));
                }
                let data = Buf::from(&input[..count]);
                input.consume(count);
                Ok(data)
            }
            Remaining::Chunks(place) => {
                let mut data = Vec::new();
                while data.len() < PIECE {
                    let (piece, next) = place.next(input)?;
                    *place = next;
                    match piece {
                        Piece::Framing(count) => input.consume(count),
                        Piece::Data(count) => {
                            data.extend_from_slice(&input[..count]);
                            input.consume(count);
                        }
                        Piece::Incomplete | Piece::End => break,
                    }
                }
                input.shrink();
                Ok(Buf::from(data))
            }
        }
    }
}
