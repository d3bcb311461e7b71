//! Serializability of one file's contents: an oracle for tests.
//!
//! Requests that overlap in time may take effect in any order, but each takes effect whole and at
//! one moment between its call and its reply (linearizability; Herlihy and Wing, 1990, §2.3). The
//! oracle tries all orders that the times allow.

/// A request for a file's contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// Data written at the end of the file.
    Append(Vec<u8>),
    /// Data written at an offset, bytes.
    Write(u64, Vec<u8>),
    /// The file's length set to this many bytes.
    Resize(u64),
    /// All of the contents, as a read has returned them.
    Read(Vec<u8>),
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It took effect.
    Done,
    /// Its reply does not tell: it took effect or it did not.
    Unknown,
}

/// One request of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The request.
    pub edit: Edit,
    /// Its end.
    pub fate: Fate,
    /// The times of call and reply, in any unit.
    pub span: (u64, u64),
}

impl Edit {
    /// Applies the request to contents.
    ///
    /// # Errors
    /// A read whose result is something else.
    fn apply(&self, contents: &mut Vec<u8>) -> Result<(), ()> {
        match self {
            Edit::Append(data) => contents.extend_from_slice(data),
            Edit::Write(offset, data) => {
                let from = usize::try_from(*offset).map_err(|_| ())?;
                let end = from + data.len();
                if contents.len() < end && !data.is_empty() {
                    contents.resize(end, 0);
                }
                if !data.is_empty() {
                    contents[from..end].copy_from_slice(data);
                }
            }
            Edit::Resize(size) => contents.resize(usize::try_from(*size).map_err(|_| ())?, 0),
            Edit::Read(seen) => return if seen == contents { Ok(()) } else { Err(()) },
        }
        Ok(())
    }
}

/// Finds an order of the calls that leads from `before` to `after`: their indices, without those
/// that had no effect. `None` if there is no such order, so something was lost, torn or invented.
///
/// # Panics
/// With more than 16 calls: the number of orders is exponential.
#[must_use]
pub fn explain(before: &[u8], calls: &[Call], after: &[u8]) -> Option<Vec<usize>> {
    assert!(calls.len() <= 16, "{} calls have too many orders", calls.len());
    let mut order = Vec::new();
    search(before.to_vec(), calls, after, 0, &mut order).then_some(order)
}

fn search(
    contents: Vec<u8>,
    calls: &[Call],
    after: &[u8],
    used: u32,
    order: &mut Vec<usize>,
) -> bool {
    let open = |index: &usize| used & 1 << index == 0;
    let left: Vec<usize> = (0..calls.len()).filter(open).collect();
    if contents == after && left.iter().all(|index| calls[*index].fate == Fate::Unknown) {
        return true;
    }
    // Whatever ended before another one began comes before it.
    let earliest = |index: &usize| calls[*index].fate == Fate::Done;
    let limit = left.iter().copied().filter(earliest).map(|index| calls[index].span.1).min();
    for index in left {
        if limit.is_some_and(|limit| calls[index].span.0 > limit) {
            continue;
        }
        let mut next = contents.clone();
        if calls[index].edit.apply(&mut next).is_err() {
            continue;
        }
        order.push(index);
        if search(next, calls, after, used | 1 << index, order) {
            return true;
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
    fn a_read_sees_one_moment() {
        let calls = [
            call(Edit::Write(0, b"bb".to_vec()), (0, 9)),
            call(Edit::Read(b"ba".to_vec()), (0, 9)),
        ];
        assert_eq!(explain(b"aa", &calls, b"bb"), None);
    }
}
