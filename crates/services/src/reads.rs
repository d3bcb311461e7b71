//! Reads of one open file that wait for something to be said there.

use base::Error;
use std::collections::VecDeque;
use tree::flat::part;
use tree::{Output, Reply, RequestId};

/// A read that waits.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    id: RequestId,
    count: u32,
    headroom: u32,
}

/// All of them, in their order. Bounded: the node admits so many requests.
#[derive(Debug, Default)]
pub(crate) struct Reads(VecDeque<Waiting>);

impl Reads {
    pub(crate) fn add(&mut self, id: RequestId, count: u32, headroom: u32) {
        self.0.push_back(Waiting { id, count, headroom });
    }

    /// Answers as many as `say` has something for, which is asked for so many bytes at most.
    pub(crate) fn answer(
        &mut self,
        mut say: impl FnMut(usize) -> Option<Vec<u8>>,
        out: &mut Vec<Output>,
    ) {
        while let Some(Waiting { id, count, headroom }) = self.0.front().copied()
            && let Some(said) = say(count as usize)
        {
            self.0.pop_front();
            let data = part(&said, 0, count, headroom);
            out.push(Output::Reply(id, Ok(Reply::Data(data))));
        }
    }

    /// Nobody wants the answer to this one any more; whether it was there.
    pub(crate) fn cancel(&mut self, id: RequestId, out: &mut Vec<Output>) -> bool {
        let Some(place) = self.0.iter().position(|read| read.id == id) else { return false };
        self.0.remove(place);
        out.push(Output::Reply(id, Err(Error::Cancelled)));
        true
    }

    /// The file is given back.
    pub(crate) fn end(self, out: &mut Vec<Output>) {
        let cancelled = self.0.into_iter().map(|read| read.id);
        out.extend(cancelled.map(|id| Output::Reply(id, Err(Error::Cancelled))));
    }
}
