//! Serializability of one file's contents: an oracle for tests.
//!
//! Requests that overlap in time may take effect in any order, but each takes effect as a whole at
//! one moment between its call and its reply (linearizability; Herlihy and Wing, 1990, §2.3). The
//! oracle tries all orders allowed by the times.

use std::fmt;

/// A request for a file's contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// Data appended to the file.
    Append(Vec<u8>),
    /// Data written at an offset, bytes.
    Write(u64, Vec<u8>),
    /// The file's length set to this many bytes.
    Resize(u64),
    /// The whole contents, as returned by a read.
    Read(Vec<u8>),
    /// The contents from an offset on, up to this many bytes, as returned by a read.
    ReadAt(u64, usize, Vec<u8>),
}

/// Outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It took effect.
    Done,
    /// Its reply leaves open whether it took effect.
    Unknown,
    /// As [`Fate::Unknown`], and failed storage may have kept a prefix of the data only: one of
    /// these numbers of bytes.
    Torn(Vec<usize>),
}

/// One request of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The request.
    pub edit: Edit,
    /// Its outcome.
    pub fate: Fate,
    /// The times of call and reply, in any unit.
    pub span: (u64, u64),
}

impl fmt::Display for Edit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Edit::Append(data) => write!(f, "append of {} bytes", data.len()),
            Edit::Write(offset, data) => write!(f, "write of {} bytes at {offset}", data.len()),
            Edit::Resize(size) => write!(f, "resize to {size}"),
            Edit::Read(seen) => write!(f, "read of all {} bytes", seen.len()),
            Edit::ReadAt(offset, _, seen) => write!(f, "read of {} bytes at {offset}", seen.len()),
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (begun, ended) = self.span;
        write!(f, "{} ({:?}, {begun} to {ended})", self.edit, self.fate)
    }
}

/// Bytes of a file: written data, or a gap, which reads as zeros.
#[derive(Clone, Copy, Debug)]
enum Piece<'a> {
    Bytes(&'a [u8]),
    Zeros(usize),
}

impl<'a> Piece<'a> {
    fn len(self) -> usize {
        match self {
            Piece::Bytes(bytes) => bytes.len(),
            Piece::Zeros(count) => count,
        }
    }

    fn split(self, at: usize) -> (Piece<'a>, Piece<'a>) {
        match self {
            Piece::Bytes(bytes) => (Piece::Bytes(&bytes[..at]), Piece::Bytes(&bytes[at..])),
            Piece::Zeros(count) => (Piece::Zeros(at), Piece::Zeros(count - at)),
        }
    }

    fn is(self, bytes: &[u8]) -> bool {
        match self {
            Piece::Bytes(own) => own == bytes,
            Piece::Zeros(_) => bytes.iter().all(|byte| *byte == 0),
        }
    }
}

/// Contents as pieces of written data, so that an order of large requests costs no copies.
#[derive(Clone, Debug, Default)]
struct Contents<'a>(Vec<Piece<'a>>);

impl<'a> Contents<'a> {
    fn len(&self) -> usize {
        self.0.iter().map(|piece| piece.len()).sum()
    }

    /// Splits the contents at an offset.
    fn split(mut self, at: usize) -> (Contents<'a>, Contents<'a>) {
        let mut from = 0;
        for index in 0..self.0.len() {
            let length = self.0[index].len();
            if at < from + length {
                let (head, tail) = self.0[index].split(at - from);
                let mut behind = vec![tail];
                behind.extend(self.0.drain(index..).skip(1));
                self.0.push(head);
                return (self, Contents(behind));
            }
            from += length;
        }
        (self, Contents::default())
    }

    fn resize(self, size: usize) -> Contents<'a> {
        let length = self.len();
        let (mut kept, _) = self.split(size);
        if size > length {
            kept.0.push(Piece::Zeros(size - length));
        }
        kept
    }

    fn write(self, offset: usize, data: &'a [u8]) -> Contents<'a> {
        if data.is_empty() {
            return self;
        }
        let size = self.len().max(offset);
        let (mut head, tail) = self.resize(size).split(offset);
        let (_, tail) = tail.split(data.len());
        head.0.push(Piece::Bytes(data));
        head.0.extend(tail.0);
        head
    }

    fn is(&self, bytes: &[u8]) -> bool {
        let mut rest = bytes;
        self.0.iter().all(|piece| match rest.split_at_checked(piece.len()) {
            Some((own, behind)) => {
                rest = behind;
                piece.is(own)
            }
            None => false,
        }) && rest.is_empty()
    }
}

impl Edit {
    /// Returns the contents after the request, of whose data only `most` bytes take effect; `None`
    /// if a read has returned something else.
    fn apply<'a>(&'a self, contents: Contents<'a>, most: usize) -> Option<Contents<'a>> {
        let of = |offset: &u64| usize::try_from(*offset).ok();
        let first = |data: &'a [u8]| &data[..most.min(data.len())];
        Some(match self {
            Edit::Append(data) => {
                let end = contents.len();
                contents.write(end, first(data))
            }
            Edit::Write(offset, data) => contents.write(of(offset)?, first(data)),
            Edit::Resize(size) => contents.resize(of(size)?),
            Edit::Read(seen) => return contents.is(seen).then_some(contents),
            Edit::ReadAt(offset, count, seen) => {
                let (_, tail) = contents.clone().split(of(offset)?);
                return tail.split(*count).0.is(seen).then_some(contents);
            }
        })
    }
}

/// Finds an order of the calls that leads from `before` to `after`; returns their indices, without
/// those that had no effect. `None` if there is no such order: data was lost, torn or invented.
///
/// # Panics
/// With more than 16 calls, as the number of orders is exponential.
#[must_use]
pub fn explain(before: &[u8], calls: &[Call], after: &[u8]) -> Option<Vec<usize>> {
    assert!(calls.len() <= 16, "{} calls have too many orders", calls.len());
    let mut order = Vec::new();
    let contents = Contents(vec![Piece::Bytes(before)]);
    search(contents, calls, after, 0, &mut order).then_some(order)
}

fn search<'a>(
    contents: Contents<'a>,
    calls: &'a [Call],
    after: &[u8],
    used: u32,
    order: &mut Vec<usize>,
) -> bool {
    let open = |index: &usize| used & 1 << index == 0;
    let left: Vec<usize> = (0..calls.len()).filter(open).collect();
    if left.iter().all(|index| calls[*index].fate != Fate::Done) && contents.is(after) {
        return true;
    }
    // A call that ended before another one began precedes it.
    let earliest = |index: &usize| calls[*index].fate == Fate::Done;
    let limit = left.iter().copied().filter(earliest).map(|index| calls[index].span.1).min();
    for index in left {
        if limit.is_some_and(|limit| calls[index].span.0 > limit) {
            continue;
        }
        let parts: &[usize] = match &calls[index].fate {
            Fate::Done | Fate::Unknown => &[],
            Fate::Torn(parts) => parts,
        };
        order.push(index);
        for most in [usize::MAX].iter().chain(parts) {
            let Some(next) = calls[index].edit.apply(contents.clone(), *most) else { break };
            if search(next, calls, after, used | 1 << index, order) {
                return true;
            }
        }
        order.pop();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(edit: Edit, span: (u64, u64)) -> Call {
        Call { edit, fate: Fate::Done, span }
    }

    #[test]
    fn concurrent_calls_may_take_effect_in_either_order() {
        let calls =
            [call(Edit::Append(b"ab".to_vec()), (0, 9)), call(Edit::Append(b"c".to_vec()), (0, 9))];
        assert_eq!(explain(b"", &calls, b"abc"), Some(vec![0, 1]));
        assert_eq!(explain(b"", &calls, b"cab"), Some(vec![1, 0]));
        assert_eq!(explain(b"", &calls, b"acb"), None);
        assert_eq!(explain(b"", &calls, b"ab"), None);
    }

    #[test]
    fn a_call_that_ended_comes_before_one_that_began_later() {
        let calls = [call(Edit::Append(b"a".to_vec()), (0, 1)), call(Edit::Resize(0), (2, 3))];
        assert_eq!(explain(b"x", &calls, b""), Some(vec![0, 1]));
        assert_eq!(explain(b"x", &calls, b"a"), None);
    }

    #[test]
    fn a_call_of_unknown_fate_may_have_had_no_effect() {
        let mut calls = [call(Edit::Write(2, b"z".to_vec()), (0, 1))];
        assert_eq!(explain(b"a", &calls, b"a"), None);
        calls[0].fate = Fate::Unknown;
        assert_eq!(explain(b"a", &calls, b"a"), Some(vec![]));
        assert_eq!(explain(b"a", &calls, b"a\0z"), Some(vec![0]));
    }

    #[test]
    fn storage_that_failed_may_have_taken_some_first_bytes() {
        let fate = Fate::Torn(vec![2]);
        let calls = [Call { edit: Edit::Append(b"abc".to_vec()), fate, span: (0, 1) }];
        assert_eq!(explain(b"x", &calls, b"x"), Some(vec![]));
        assert_eq!(explain(b"x", &calls, b"xabc"), Some(vec![0]));
        assert_eq!(explain(b"x", &calls, b"xab"), Some(vec![0]));
        assert_eq!(explain(b"x", &calls, b"xa"), None);
    }

    #[test]
    fn contents_of_pieces_are_those_of_a_buffer() {
        let mut rng = crate::rng::seeded(1);
        let data: Vec<Vec<u8>> = (1..200).map(|salt| vec![salt; rng.usize(..9)]).collect();
        let (mut pieces, mut buffer) = (Contents::default(), Vec::new());
        for data in &data {
            if rng.bool() {
                let size = rng.usize(..30);
                pieces = pieces.resize(size);
                buffer.resize(size, 0);
            }
            let offset = rng.usize(..30);
            pieces = pieces.write(offset, data);
            if !data.is_empty() {
                buffer.resize(buffer.len().max(offset + data.len()), 0);
                buffer[offset..offset + data.len()].copy_from_slice(data);
            }
            assert!(pieces.is(&buffer) && pieces.len() == buffer.len());
        }
    }

    #[test]
    fn a_read_of_a_part_sees_one_moment() {
        let read = |seen: &[u8]| call(Edit::ReadAt(1, 3, seen.to_vec()), (0, 9));
        let write = call(Edit::Append(b"cde".to_vec()), (0, 9));
        let explained = |seen| explain(b"ab", &[write.clone(), read(seen)], b"abcde").is_some();
        assert!(explained(b"b") && explained(b"bcd"));
        assert!(!explained(b"bc") && !explained(b"bcde"));
    }

    #[test]
    fn a_read_sees_one_moment() {
        let calls = [
            call(Edit::Write(0, b"bb".to_vec()), (0, 9)),
            call(Edit::Read(b"ba".to_vec()), (0, 9)),
        ];
        assert_eq!(explain(b"aa", &calls, b"bb"), None);
    }
}
