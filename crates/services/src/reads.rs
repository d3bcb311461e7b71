//! Pending reads of an open file.

use base::Error;
use std::collections::BTreeMap;
use tree::flat::part;
use tree::{Output, Reply, RequestId};

/// Pending read.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    id: RequestId,
    count: u32,
    headroom: u32,
}

/// Pending reads in order. Bounded by the node's admission control.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    waiting: BTreeMap<u64, Waiting>,
    next: u64,
}

impl Reads {
    /// Adds a read; returns its number.
    pub(crate) fn add(&mut self, id: RequestId, count: u32, headroom: u32) -> u64 {
        self.next += 1;
        self.waiting.insert(self.next, Waiting { id, count, headroom });
        self.next
    }

    /// Reports whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Completes reads in order while `say` returns data of at most the requested length.
    pub(crate) fn answer(
        &mut self,
        mut say: impl FnMut(usize) -> Option<Vec<u8>>,
        out: &mut Vec<Output>,
    ) -> Vec<RequestId> {
        let mut answered = Vec::new();
        while let Some(entry) = self.waiting.first_entry()
            && let Some(outputs) = say(entry.get().count as usize)
        {
            let Waiting { id, count, headroom } = entry.remove();
            out.push(Output::Reply(id, Ok(Reply::Data(part(&outputs, 0, count, headroom)))));
            answered.push(id);
        }
        answered
    }

    /// Cancels a read.
    pub(crate) fn cancel(&mut self, number: u64, out: &mut Vec<Output>) {
        if let Some(read) = self.waiting.remove(&number) {
            out.push(Output::Reply(read.id, Err(Error::Cancelled)));
        }
    }

    /// Fails all reads with this error. Returns their requests.
    pub(crate) fn end(&mut self, why: Error, out: &mut Vec<Output>) -> Vec<RequestId> {
        let ids: Vec<RequestId> =
            std::mem::take(&mut self.waiting).into_values().map(|read| read.id).collect();
        out.extend(ids.iter().map(|id| Output::Reply(*id, Err(why))));
        ids
    }
}
