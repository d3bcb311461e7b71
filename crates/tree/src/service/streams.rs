//! Stream files: each open is a stream, which replies to reads with what a write has asked for, and
//! is itself a client of the namespace.

use crate::request::{AsClient, NodeId, Output as TreeOutput, Reply, RequestId};
use crate::subtrees::Subtrees;
use crate::watches::{Output, Watches};
use base::op::ClientKey;
use base::{Caller, Error, Instant};

/// An open stream file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    /// The watch with this number.
    Watch(usize),
    /// The stream of a subtree with this number.
    Subtree(usize),
}

impl Stream {
    /// Returns the number of its requests. All watches are one caller, and each subtree is another
    /// one.
    fn number(self) -> u64 {
        match self {
            Stream::Watch(watch) => watch as u64,
            Stream::Subtree(subtree) => {
                let caller = u32::try_from(subtree + 1).expect("a hundred");
                RequestId::new(caller, 0).0
            }
        }
    }

    /// Returns the stream whose requests have this number.
    fn numbered(number: u64) -> Stream {
        match RequestId(number).requester() {
            0 => Stream::Watch(number as usize),
            caller => Stream::Subtree(caller as usize - 1),
        }
    }
}

/// All streams.
#[derive(Debug)]
pub(super) struct Streams {
    pub(super) watches: Watches,
    pub(super) subtrees: Subtrees,
}

impl Streams {
    /// Returns no streams of the namespace with this root, on this device.
    pub(super) fn new((root, device): (NodeId, u64)) -> Streams {
        Streams { watches: Watches::new(root, device), subtrees: Subtrees::new(root, device) }
    }

    /// Opens a watch, for a connection; `may_name` permits the names of all files.
    ///
    /// # Errors
    /// `TooManyOpen`.
    pub(super) fn open_watch(
        &mut self,
        now: Instant,
        caller: Caller,
        client: (ClientKey, u32),
        may_name: bool,
    ) -> Result<Stream, Error> {
        self.watches.open(now, caller, client, may_name).map(Stream::Watch)
    }

    /// Opens a stream of a subtree.
    ///
    /// # Errors
    /// `TooManyOpen`.
    pub(super) fn open_subtree(
        &mut self,
        caller: Caller,
        client: ClientKey,
    ) -> Result<Stream, Error> {
        self.subtrees.open(caller, client).map(Stream::Subtree)
    }

    /// Handles a write to a stream.
    pub(super) fn write(&mut self, stream: Stream, data: &[u8]) -> Result<Reply, Error> {
        let written = Reply::Written(u32::try_from(data.len()).expect("one message"));
        match stream {
            Stream::Watch(watch) => self.watches.write(watch, data)?,
            Stream::Subtree(subtree) => self.subtrees.write(subtree, data)?,
        }
        Ok(written)
    }

    /// Handles a read of a stream, which waits for bytes.
    pub(super) fn read(
        &mut self,
        now: Instant,
        stream: Stream,
        read: (RequestId, u32, u32),
        out: &mut Vec<TreeOutput>,
    ) {
        match stream {
            Stream::Watch(watch) => self.with_watches(out, |it, out| it.read(watch, read, out)),
            Stream::Subtree(subtree) => {
                self.with_subtrees(out, |it, out| it.read(now, subtree, read, out));
            }
        }
    }

    /// Cancels a read that waits; returns whether there was one.
    pub(super) fn cancel(&mut self, id: RequestId, out: &mut Vec<TreeOutput>) -> bool {
        self.with_watches(out, |it, out| it.cancel(id, out))
            || self.with_subtrees(out, |it, out| it.cancel(id, out))
    }

    /// Closes a stream.
    pub(super) fn close(&mut self, stream: Stream, out: &mut Vec<TreeOutput>) {
        match stream {
            Stream::Watch(watch) => self.with_watches(out, |it, out| it.close(watch, out)),
            Stream::Subtree(subtree) => self.with_subtrees(out, |it, out| it.close(subtree, out)),
        }
    }

    /// Handles the reply to the request of a stream.
    pub(super) fn answered(
        &mut self,
        now: Instant,
        number: u64,
        result: Result<Reply, Error>,
        out: &mut Vec<TreeOutput>,
    ) {
        let stream = Stream::numbered(number);
        assert_eq!(stream.number(), number, "each stream has a number of its own");
        match stream {
            Stream::Watch(watch) => self.watches.answered(watch, result),
            Stream::Subtree(subtree) => {
                self.with_subtrees(out, |it, out| it.answered(now, subtree, result, out));
            }
        }
    }

    /// Continues streams with something new.
    pub(super) fn tick(&mut self, now: Instant, out: &mut Vec<TreeOutput>) {
        self.with_watches(out, |it, out| it.tick(now, out));
        self.with_subtrees(out, |it, out| it.tick(now, out));
    }

    /// Returns the time of the next work.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.subtrees.deadline().into_iter().chain(self.watches.deadline()).min()
    }

    /// Ends all streams, for a shutdown.
    pub(super) fn end(&mut self, out: &mut Vec<TreeOutput>) {
        self.with_watches(out, Watches::end);
        self.with_subtrees(out, Subtrees::end);
    }

    pub(super) fn check(&self) {
        self.watches.check();
        self.subtrees.check();
    }

    fn with_watches<T>(
        &mut self,
        out: &mut Vec<TreeOutput>,
        step: impl FnOnce(&mut Watches, &mut Vec<Output>) -> T,
    ) -> T {
        let mut outputs = Vec::new();
        let result = step(&mut self.watches, &mut outputs);
        pass(outputs, Stream::Watch, out);
        result
    }

    fn with_subtrees<T>(
        &mut self,
        out: &mut Vec<TreeOutput>,
        step: impl FnOnce(&mut Subtrees, &mut Vec<Output>) -> T,
    ) -> T {
        let mut outputs = Vec::new();
        let result = step(&mut self.subtrees, &mut outputs);
        pass(outputs, Stream::Subtree, out);
        result
    }
}

/// Passes outputs of streams of one kind on, with the numbers of all.
fn pass(outputs: Vec<Output>, kind: fn(usize) -> Stream, out: &mut Vec<TreeOutput>) {
    out.extend(outputs.into_iter().map(|output| match output {
        Output::Reply(id, reply) => TreeOutput::Reply(id, reply),
        Output::AsClient(AsClient::Ask(number, request)) => {
            let number = kind(number as usize).number();
            TreeOutput::AsClient(AsClient::Ask(number, request))
        }
        Output::AsClient(output @ (AsClient::Release(_) | AsClient::Close(_))) => {
            TreeOutput::AsClient(output)
        }
    }));
}
