//! Queue in home of the messages of a front's connection.
//!
//! **Bound.** A front sends a request only while its session has room for a call, so there are at
//! most as many as calls in flight and abandoned; behind one of them are at most as many releases
//! as the connection had nodes and open files.

use names::Input;
use std::collections::{BTreeMap, VecDeque};
use std::mem;
use tree::{Ask, RequestId};

/// A message.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "nearly all are inputs")]
pub(super) enum Entry {
    /// Message to the namespace.
    Input(Input),
    /// Close of the connection; later messages are of the next one in its slot.
    Closed,
}

/// The messages of one connection, in order.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    /// Messages; `None` for a cancelled request, which is neither the first nor the last entry.
    entries: VecDeque<Option<Entry>>,
    /// Number of the first entry.
    first: u64,
    /// Number of each request.
    requests: BTreeMap<RequestId, u64>,
    /// Write data in the requests, bytes.
    bytes: usize,
}

/// Returns the size of the write data in a message.
fn bytes(input: &Input) -> usize {
    if let Input::Ask(_, request) = input
        && let Ask::Write { data, .. } = &request.ask
    {
        data.len()
    } else {
        0
    }
}

impl Inbox {
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns whether a request is queued.
    pub(super) fn has_request(&self) -> bool {
        !self.requests.is_empty()
    }

    /// Returns the size of the write data, bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn push(&mut self, entry: Entry) {
        if let Entry::Input(input) = &entry {
            self.bytes += bytes(input);
            if let Input::Ask(id, _) = input {
                let number = self.first + self.entries.len() as u64;
                let before = self.requests.insert(*id, number);
                assert!(before.is_none(), "a request has a number of its own");
            }
        }
        self.entries.push_back(Some(entry));
    }

    pub(super) fn pop(&mut self) -> Option<Entry> {
        let entry = self.entries.pop_front()?.expect("the first one was not cancelled");
        self.first += 1;
        if let Entry::Input(input) = &entry {
            self.bytes -= bytes(input);
            if let Input::Ask(id, _) = input {
                self.requests.remove(id);
            }
        }
        self.trim();
        Some(entry)
    }

    /// Removes a queued request, if it is there.
    pub(super) fn withdraw(&mut self, id: RequestId) -> bool {
        let Some(number) = self.requests.remove(&id) else { return false };
        let at = usize::try_from(number - self.first).expect("it is in memory");
        match self.entries[at].take() {
            Some(Entry::Input(input)) => self.bytes -= bytes(&input),
            Some(Entry::Closed) | None => unreachable!("a request is where its number says"),
        }
        self.trim();
        true
    }

    /// Removes all inputs; returns the releases. [`Entry::Closed`] is retained.
    pub(super) fn take_others(&mut self) -> Vec<Input> {
        let mut others = Vec::new();
        for entry in mem::take(self).entries.into_iter().flatten() {
            match entry {
                Entry::Input(Input::Ask(..)) => {}
                Entry::Input(input) => others.push(input),
                Entry::Closed => self.push(Entry::Closed),
            }
        }
        others
    }

    fn trim(&mut self) {
        while let Some(None) = self.entries.front() {
            self.entries.pop_front();
            self.first += 1;
        }
        while let Some(None) = self.entries.back() {
            self.entries.pop_back();
        }
    }

    /// Frees memory, if it is empty and large.
    pub(super) fn shrink(&mut self, kept: usize) {
        if self.is_empty() && self.entries.capacity() > kept {
            self.entries = VecDeque::new();
        }
    }

    pub(super) fn check(&self) {
        let ends = [self.entries.front(), self.entries.back()];
        assert!(ends.iter().all(|end| !matches!(end, Some(None))), "it is trimmed");
        let inputs = self.entries.iter().flatten().filter_map(|entry| match entry {
            Entry::Input(input) => Some(input),
            Entry::Closed => None,
        });
        assert_eq!(self.bytes, inputs.map(bytes).sum::<usize>(), "bytes are counted");
        for (id, number) in &self.requests {
            let entry = &self.entries[(number - self.first) as usize];
            let is_it = matches!(entry, Some(Entry::Input(Input::Ask(other, _))) if other == id);
            assert!(is_it, "a request is where its number is");
        }
    }
}
