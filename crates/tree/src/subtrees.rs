//! Subtrees: `/.upcall/subtree`, a file to which the path of a directory is written, and from which
//! everything beneath it is read as one stream of [records](wire::subtree).
//!
//! A client whose server is far away learns of a thousand files in a few round trips. An open of
//! the file is a [stream]: it lists one directory after the other, as the user who opened it, as
//! long as its records are read. Requests of all streams are sent in turn, a few in each turn of
//! the node, so that other clients wait for few listings. A read waits for many records, but not
//! for long.

mod stream;
#[cfg(test)]
mod tests;

use crate::request::{NodeId, Reply, RequestId, StreamOutput};
use crate::watches::{Output, Read};
use base::op::ClientKey;
use base::{Buf, Caller, Error, Instant, Name};
use slab::Slab;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use stream::{Space, Stream};

/// Maximum number of streams.
pub(crate) const STREAMS_MAX: usize = 128;

/// Maximum number of streams of a client.
const STREAMS_OF_CLIENT_MAX: usize = 8;

/// Maximum memory of all streams, bytes.
pub(crate) const BYTES_MAX: usize = STREAMS_MAX * stream::BYTES_MAX;

/// Maximum number of waiting reads of a stream.
const READS_MAX: usize = 16;

/// Maximum number of requests sent in a turn: each may take some hundred microseconds.
const REQUESTS_MAX: usize = 2;

/// Size of records that a read waits for, bytes, and the maximum time that it waits for these when
/// there are some.
const GATHERED: usize = 64 << 10;
const GATHERING_TIME: Duration = Duration::from_millis(5);

/// An open file of subtrees.
#[derive(Debug)]
struct OpenStream {
    caller: Caller,
    client: ClientKey,
    stream: Stream,
    reads: VecDeque<Read>,
    /// Time of the next reply to a read, if there are some records.
    alarm: Option<Instant>,
    /// Whether it is in the queue of those with a request to send.
    is_queued: bool,
}

/// All streams.
#[derive(Debug)]
pub(crate) struct Subtrees {
    space: Space,
    streams: Slab<OpenStream>,
    /// Number of streams of each client.
    by_client: BTreeMap<ClientKey, usize>,
    reading: BTreeMap<RequestId, usize>,
    alarms: BTreeSet<(Instant, usize)>,
    /// Streams with a request to send, in their order.
    queue: VecDeque<usize>,
    /// Number of requests that may be sent in this turn.
    left: usize,
    has_ended: bool,
}

impl Subtrees {
    /// Returns no streams of the namespace with this root, on this device.
    pub(crate) fn new(root: NodeId, device: u64) -> Subtrees {
        Subtrees {
            space: Space { root, device, points: BTreeSet::new() },
            streams: Slab::new(),
            by_client: BTreeMap::new(),
            reading: BTreeMap::new(),
            alarms: BTreeSet::new(),
            queue: VecDeque::new(),
            left: REQUESTS_MAX,
            has_ended: false,
        }
    }

    /// Sets the names of entries that may be mount points: walks lead to other files than lists.
    pub(crate) fn set_points(&mut self, points: BTreeSet<Name>) {
        self.space.points = points;
    }

    /// Returns the number of streams, and their memory in bytes.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let bytes = self.streams.iter().map(|(_, opened)| opened.stream.bytes());
        (self.streams.len(), bytes.sum())
    }

    /// Opens a stream.
    ///
    /// # Errors
    /// `TooManyOpen`.
    pub(crate) fn open(&mut self, caller: Caller, client: ClientKey) -> Result<usize, Error> {
        let own = self.by_client.get(&client).copied().unwrap_or(0);
        if self.streams.len() >= STREAMS_MAX || own >= STREAMS_OF_CLIENT_MAX {
            return Err(Error::TooManyOpen);
        }
        self.by_client.insert(client, own + 1);
        Ok(self.streams.insert(OpenStream {
            caller,
            client,
            stream: Stream::default(),
            reads: VecDeque::new(),
            alarm: None,
            is_queued: false,
        }))
    }

    /// Handles a write: the request of the stream.
    ///
    /// # Errors
    /// `Invalid` if it is malformed or not the first one, `NameTooLong`.
    pub(crate) fn write(&mut self, number: usize, data: &[u8]) -> Result<(), Error> {
        self.streams[number].stream.request(data)?;
        self.enqueue(number);
        Ok(())
    }

    /// Handles a read, which waits for records.
    pub(crate) fn read(
        &mut self,
        now: Instant,
        number: usize,
        (id, count, headroom): (RequestId, u32, u32),
        out: &mut Vec<Output>,
    ) {
        let OpenStream { reads, .. } = &mut self.streams[number];
        if self.has_ended || count == 0 {
            return out.push(Output::Reply(id, Ok(Reply::Data(Buf::default()))));
        }
        if reads.len() >= READS_MAX {
            return out.push(Output::Reply(id, Err(Error::Busy)));
        }
        let (count, headroom) = (count as usize, headroom as usize);
        reads.push_back(Read { id, count, headroom });
        self.reading.insert(id, number);
        self.reply(now, number, out);
    }

    /// Replies to reads as far as there are records, and lets the stream go on.
    fn reply(&mut self, now: Instant, number: usize, out: &mut Vec<Output>) {
        let OpenStream { stream, reads, alarm, .. } = &mut self.streams[number];
        let mut is_due = alarm.is_some_and(|at| at <= now);
        while let Some(read) = reads.front() {
            let has_enough = stream.unread() >= read.count.min(GATHERED);
            if !has_enough && !is_due && !stream.is_over() {
                break;
            }
            self.reading.remove(&read.id);
            out.push(stream.take(read.count, |bytes| read.reply(bytes)));
            is_due = false;
            reads.pop_front();
        }
        let waits = !reads.is_empty() && stream.unread() > 0;
        let wanted = waits.then(|| alarm.filter(|at| *at > now).unwrap_or(now + GATHERING_TIME));
        self.set_alarm(number, wanted);
        self.enqueue(number);
    }

    fn set_alarm(&mut self, number: usize, wanted: Option<Instant>) {
        let alarm = &mut self.streams[number].alarm;
        if *alarm != wanted {
            let old = std::mem::replace(alarm, wanted);
            old.map(|at| self.alarms.remove(&(at, number)));
            self.alarms.extend(wanted.map(|at| (at, number)));
        }
    }

    /// Queues a stream that has a request to send.
    fn enqueue(&mut self, number: usize) {
        let OpenStream { stream, is_queued, .. } = &mut self.streams[number];
        if stream.is_ready() && !*is_queued && !self.has_ended {
            *is_queued = true;
            self.queue.push_back(number);
        }
    }

    /// Cancels a read that waits; returns whether there was one.
    pub(crate) fn cancel(&mut self, id: RequestId, out: &mut Vec<Output>) -> bool {
        let Some(number) = self.reading.remove(&id) else { return false };
        let OpenStream { reads, .. } = &mut self.streams[number];
        reads.retain(|read| read.id != id);
        if reads.is_empty() {
            self.set_alarm(number, None);
        }
        out.push(Output::Reply(id, Err(Error::Cancelled)));
        true
    }

    /// Closes a stream.
    pub(crate) fn close(&mut self, number: usize, out: &mut Vec<Output>) {
        let OpenStream { stream, reads, is_queued, .. } = &mut self.streams[number];
        for read in reads.drain(..) {
            self.reading.remove(&read.id);
            out.push(Output::Reply(read.id, Err(Error::Cancelled)));
        }
        let mut outputs = Vec::new();
        stream.close(&mut outputs);
        if std::mem::take(is_queued) {
            self.queue.retain(|queued| *queued != number);
        }
        self.set_alarm(number, None);
        self.pass(number, outputs, out);
        self.forget(number);
    }

    /// Removes a closed stream that waits for no reply.
    fn forget(&mut self, number: usize) {
        let OpenStream { stream, client, .. } = &self.streams[number];
        if !stream.is_closed() {
            return;
        }
        let own = self.by_client.get_mut(client).expect("it has one");
        *own -= 1;
        if *own == 0 {
            self.by_client.remove(client);
        }
        let OpenStream { is_queued, reads, .. } = self.streams.remove(number);
        assert!(!is_queued && reads.is_empty(), "a closed stream has nothing to do");
    }

    /// Handles the reply to a stream's request.
    pub(crate) fn answered(
        &mut self,
        now: Instant,
        number: usize,
        result: Result<Reply, Error>,
        out: &mut Vec<Output>,
    ) {
        let mut outputs = Vec::new();
        self.streams[number].stream.answered(result, &self.space, &mut outputs);
        self.pass(number, outputs, out);
        self.reply(now, number, out);
        self.forget(number);
    }

    fn pass(&self, number: usize, outputs: Vec<StreamOutput>, out: &mut Vec<Output>) {
        let caller = &self.streams[number].caller;
        let outputs = outputs.into_iter().map(|output| output.numbered(number as u64, caller));
        out.extend(outputs.map(Output::AsClient));
    }

    /// Begins a turn, in which requests may be sent.
    pub(crate) fn begin_turn(&mut self) {
        self.left = REQUESTS_MAX;
    }

    /// Replies to reads whose time has come, and sends the next requests, as many as may be sent in
    /// this turn.
    pub(crate) fn tick(&mut self, now: Instant, out: &mut Vec<Output>) {
        while let Some(&(_, number)) = self.alarms.first().filter(|(at, _)| *at <= now) {
            self.reply(now, number, out);
        }
        while self.left > 0 {
            let Some(number) = self.queue.pop_front() else { return };
            self.left -= 1;
            let OpenStream { stream, is_queued, .. } = &mut self.streams[number];
            *is_queued = false;
            let ask = stream.next(&self.space);
            self.pass(number, vec![StreamOutput::Ask(ask)], out);
        }
    }

    /// Returns the time of the next work.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match self.queue.is_empty() {
            true => self.alarms.first().map(|(at, _)| *at),
            false => Some(Instant(0)),
        }
    }

    /// Ends all streams, for a shutdown.
    pub(crate) fn end(&mut self, out: &mut Vec<Output>) {
        self.has_ended = true;
        self.reading.clear();
        self.queue.clear();
        self.alarms.clear();
        for (_, OpenStream { reads, is_queued, alarm, .. }) in &mut self.streams {
            (*is_queued, *alarm) = (false, None);
            out.extend(reads.drain(..).map(|read| read.reply(&[])));
        }
    }

    pub(crate) fn check(&self) {
        assert!(self.streams.len() <= STREAMS_MAX);
        assert_eq!(self.by_client.values().sum::<usize>(), self.streams.len());
        assert!(self.by_client.values().all(|own| (1..=STREAMS_OF_CLIENT_MAX).contains(own)));
        let reads: usize = self.streams.iter().map(|(_, opened)| opened.reads.len()).sum();
        assert_eq!(reads, self.reading.len(), "waiting reads are known by request");
        assert!(!self.has_ended || reads + self.queue.len() == 0, "all streams have ended");
        let alarms = self.streams.iter().filter_map(|(number, it)| Some((it.alarm?, number)));
        assert_eq!(self.alarms, alarms.collect(), "alarms are those of streams");
        for (number, OpenStream { stream, reads, alarm, is_queued, .. }) in &self.streams {
            stream.check();
            assert!(reads.len() <= READS_MAX, "few reads wait");
            let queued = self.queue.iter().filter(|queued| **queued == number).count();
            assert_eq!(queued, usize::from(*is_queued), "a stream is queued once");
            assert_eq!(*is_queued, stream.is_ready() && !self.has_ended, "it is sent");
            assert!(reads.is_empty() || !stream.is_over(), "the end is not waited for");
            let waits = !reads.is_empty() && stream.unread() > 0;
            assert_eq!(waits, alarm.is_some(), "no read waits for long");
        }
    }
}
