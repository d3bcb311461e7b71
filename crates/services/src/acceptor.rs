//! Acceptor of peer connections: the server side of the file `peer`.
//!
//! A peer opens the file, reads a challenge, and writes a proof of its identity and of its
//! knowledge of the service's secret. Everything after that is a stream of
//! [peer messages](crate::PeerMessage); the read side carries the answer to one of them, if it has
//! one. Nonces directions are [messages](crate::seal) with authentication codes: readable on the
//! wire, but not modifiable.
//!
//! ```text
//!   peer: read ──▶ challenge (32 bytes)
//!   peer: write ◀── replica (2 bytes), random (32 bytes), proof (32 bytes)
//!   peer: read ──▶ verdict: welcome or farewell (32 bytes)
//!   peer: write ◀── peer message, peer message …
//!   peer: read, after the verdict ──▶ parts of an answer
//! ```
//!
//! Proofs and verdicts are authentication codes that require the secret (`proof.rs`).

use crate::peer_message::{CHUNK_MAX, chunk};
use crate::proof::{self, ProofReply, Random, Seals, VERDICT};
use crate::settings::Settings;
use crate::{Data, seal};
use base::{Buf, Error};
use replica::service::{ReplicaId, Writing};
use std::collections::VecDeque;
use tree::flat::part;
use tree::{Output, Reply, RequestId};

/// Maximum length of a peer message, in bytes. One operation always fits.
pub(crate) const MESSAGE_MAX: usize = 4 << 20;

/// Maximum unread bytes of an answer that is generated on demand.
pub(crate) const OUTPUT_MAX: usize = 1 << 20;

/// Open file `peer`.
#[derive(Debug)]
pub(crate) struct PeerAcceptor {
    state: State,
    /// Bytes of an incomplete peer message.
    input: Buf,
    /// Bytes of the stream received.
    taken: u64,
    /// Readable bytes: the verdict, followed by an answer.
    output: VecDeque<u8>,
    /// Bytes before these, already read and dropped.
    gone: u64,
    /// Whether there is or will be an answer.
    is_answered: bool,
    /// Whether a part of the answer has been generated.
    is_begun: bool,
    /// Snapshot from which the answer is generated.
    pub(crate) join_snapshot: Option<Box<Writing<Data>>>,
    /// Turn for which peer messages are queued.
    pub(crate) turn: Option<u64>,
    /// Write pending until its peer messages are processed.
    writes: Option<(RequestId, u32)>,
    /// Read pending for more of the answer.
    reads: Option<(RequestId, Read)>,
}

/// Position and length of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Read {
    pub(crate) offset: u64,
    pub(crate) count: u32,
    pub(crate) headroom: u32,
}

#[derive(Debug)]
enum State {
    /// Waiting for the proof.
    Challenged(Random),
    /// Waiting for peer messages of this replica.
    Open(ReplicaId, Box<Seals>),
    /// Closed after an invalid message.
    Shut,
}

/// Error for rejected input; the file is unusable afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused;

impl PeerAcceptor {
    pub(crate) fn new(challenge: Random) -> PeerAcceptor {
        PeerAcceptor {
            state: State::Challenged(challenge),
            input: Buf::default(),
            taken: 0,
            output: VecDeque::new(),
            gone: 0,
            is_answered: false,
            is_begun: false,
            join_snapshot: None,
            turn: None,
            writes: None,
            reads: None,
        }
    }

    /// Bytes held.
    pub(crate) fn held(&self) -> usize {
        self.input.len() + self.output.len()
    }

    /// Reports whether there is or will be an answer.
    pub(crate) fn is_answered(&self) -> bool {
        self.is_answered
    }

    /// Sets the answer.
    pub(crate) fn answer(&mut self, answer: &[u8]) {
        let count = answer.len().div_ceil(CHUNK_MAX).max(1);
        let mut parts = answer.chunks(CHUNK_MAX);
        (1..=count).for_each(|number| self.add(parts.next().unwrap_or_default(), number == count));
    }

    /// Appends a part of the answer, of at most [`CHUNK_MAX`] bytes.
    pub(crate) fn add(&mut self, part: &[u8], is_last: bool) {
        (self.is_answered, self.is_begun) = (true, true);
        if let State::Open(_, seals) = &mut self.state {
            self.output.extend(seals.ours.frame(&chunk(part, is_last)));
        }
    }

    /// Reports whether a part of the answer has been generated.
    pub(crate) fn is_begun(&self) -> bool {
        self.is_begun
    }

    /// Starts an answer that is generated on demand.
    pub(crate) fn begin_join_snapshot(&mut self, writing: Writing<Data>) {
        self.is_answered = true;
        self.join_snapshot = Some(Box::new(writing));
    }

    /// Reports whether more of the answer should be generated.
    pub(crate) fn wants_more(&self) -> bool {
        self.join_snapshot.is_some() && self.output.len() < OUTPUT_MAX
    }

    /// Returns the authenticated peer.
    pub(crate) fn peer(&self) -> Option<ReplicaId> {
        match &self.state {
            State::Open(peer, _) => Some(*peer),
            State::Challenged(_) | State::Shut => None,
        }
    }

    /// Rejects all further input. The caller must end the encoding of an unfinished join snapshot.
    pub(crate) fn shut(&mut self) {
        (self.state, self.input, self.output) = (State::Shut, Buf::default(), VecDeque::new());
    }

    /// Starts a read, which completes now or when there is more to read. Returns whether it
    /// completed.
    pub(crate) fn read(&mut self, id: RequestId, read: Read, out: &mut Vec<Output>) -> bool {
        if self.reads.is_some() {
            out.push(Output::Reply(id, Err(Error::Busy)));
            return true;
        }
        self.reads = Some((id, read));
        self.answer_read(out)
    }

    /// Returns the pending read.
    pub(crate) fn waiting_read(&self) -> Option<RequestId> {
        self.reads.map(|(id, _)| id)
    }

    /// Completes the pending read, if there is something to read or nothing more is coming. Returns
    /// whether none is pending.
    pub(crate) fn answer_read(&mut self, out: &mut Vec<Output>) -> bool {
        let Some((id, Read { offset, count, headroom })) = self.reads else { return true };
        let data = match &self.state {
            State::Challenged(challenge) => Ok(part(challenge, offset, count, headroom)),
            State::Open(..) => match offset.checked_sub(self.gone) {
                None => Err(Error::Invalid),
                Some(behind)
                    if behind >= self.output.len() as u64 && self.join_snapshot.is_some() =>
                {
                    return false;
                }
                Some(behind) => {
                    let behind = usize::try_from(behind).unwrap_or(usize::MAX);
                    // The verdict stays readable: a read from the start always begins with it.
                    let passed = behind.min(self.output.len());
                    if self.gone + passed as u64 > VERDICT as u64 {
                        self.output.drain(..passed);
                        self.gone += passed as u64;
                        let output = self.output.make_contiguous();
                        Ok(part(output, (behind - passed) as u64, count, headroom))
                    } else {
                        Ok(part(self.output.make_contiguous(), behind as u64, count, headroom))
                    }
                }
            },
            State::Shut => Err(Error::Denied),
        };
        self.reads = None;
        out.push(Output::Reply(id, data.map(Reply::Data)));
        true
    }

    /// Records a write whose peer messages are queued.
    pub(crate) fn begin_write(&mut self, id: RequestId, count: u32) {
        self.writes = Some((id, count));
    }

    /// Reports whether a write is pending.
    pub(crate) fn is_writing(&self) -> bool {
        self.writes.is_some()
    }

    /// Completes the pending write.
    pub(crate) fn end_write(&mut self, result: Result<(), Error>, out: &mut Vec<Output>) {
        if let Some((id, count)) = self.writes.take() {
            out.push(Output::Reply(id, result.map(|()| Reply::Written(count))));
        }
    }

    /// Cancels the pending read.
    pub(crate) fn cancel_read(&mut self, id: RequestId, out: &mut Vec<Output>) {
        if self.reads.take_if(|(read, _)| *read == id).is_some() {
            out.push(Output::Reply(id, Err(Error::Cancelled)));
        }
    }

    /// Fails the pending write and read. Returns the read.
    pub(crate) fn end(&mut self, why: Error, out: &mut Vec<Output>) -> Option<RequestId> {
        self.end_write(Err(why), out);
        let (id, _) = self.reads.take()?;
        out.push(Output::Reply(id, Err(why)));
        Some(id)
    }

    /// Processes written bytes. Returns the peer if they authenticate it; `judge` chooses the
    /// verdict sent to it.
    ///
    /// # Errors
    /// If the bytes are not a valid proof, or do not continue the stream.
    pub(crate) fn write(
        &mut self,
        settings: &Settings,
        (offset, data): (u64, &[u8]),
        judge: impl FnOnce(ReplicaId) -> ProofReply,
    ) -> Result<Option<ReplicaId>, Refused> {
        let came = match &self.state {
            State::Challenged(challenge) => match proof::check(settings, challenge, data) {
                Some((peer, random)) => {
                    let to = (peer, &random);
                    self.output =
                        proof::verdict(settings, challenge, to, judge(peer)).to_vec().into();
                    let seals = Box::new(proof::seals(settings, challenge, to));
                    self.state = State::Open(peer, seals);
                    return Ok(Some(peer));
                }
                None => false,
            },
            // Offsets start at zero for each open file.
            State::Open(..) if offset == self.taken => {
                self.input.extend(data);
                self.taken += data.len() as u64;
                true
            }
            State::Open(..) | State::Shut => false,
        };
        if came {
            return Ok(None);
        }
        self.shut();
        Err(Refused)
    }

    /// Returns the next complete peer message.
    ///
    /// # Errors
    /// If it is too long or not authentic.
    pub(crate) fn next(&mut self) -> Result<Option<Vec<u8>>, Refused> {
        let State::Open(_, seals) = &mut self.state else { return Ok(None) };
        let (message, taken) = match seals.theirs.open(&self.input, MESSAGE_MAX) {
            Ok(Some((message, taken))) => (message.to_vec(), taken),
            Ok(None) => return Ok(None),
            Err(seal::Forged) => {
                self.shut();
                return Err(Refused);
            }
        };
        self.input.consume(taken);
        self.input.shrink();
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::lab::settings;
    use crate::peer_message::Reader;
    use crate::proof::{CHALLENGE, Introduction};

    const CHALLENGED: Random = [7; CHALLENGE];

    /// Returns an authenticated acceptor, and the introduction used.
    fn open(verdict: ProofReply) -> (PeerAcceptor, Introduction) {
        let theirs = Settings { me: ReplicaId(2), ..settings() };
        let introduction = Introduction::new(&theirs, settings().me, &CHALLENGED, [1; CHALLENGE]);
        let mut acceptor = PeerAcceptor::new(CHALLENGED);
        assert_eq!(output(&mut acceptor, 0).expect("a challenge"), CHALLENGED);
        let entered = acceptor.write(&settings(), (0, &introduction.proof), |_| verdict);
        assert_eq!(entered, Ok(Some(ReplicaId(2))));
        (acceptor, introduction)
    }

    fn output(acceptor: &mut PeerAcceptor, offset: u64) -> Result<Vec<u8>, Error> {
        let (mut out, read) = (Vec::new(), Read { offset, count: 1 << 20, headroom: 0 });
        acceptor.read(RequestId(1), read, &mut out);
        let Some(Output::Reply(_, reply)) = out.pop() else { panic!("it waits") };
        reply.map(|reply| {
            let Reply::Data(data) = reply else { panic!("{reply:?}") };
            data.to_vec()
        })
    }

    fn write(
        acceptor: &mut PeerAcceptor,
        offset: u64,
        data: &[u8],
    ) -> Result<Option<ReplicaId>, Refused> {
        acceptor.write(&settings(), (offset, data), |peer| panic!("{peer:?} is in"))
    }

    #[test]
    fn an_invalid_proof_is_refused() {
        let mut acceptor = PeerAcceptor::new(CHALLENGED);
        assert_eq!(write(&mut acceptor, 0, b"let me in"), Err(Refused));
        assert_eq!((acceptor.peer(), output(&mut acceptor, 0)), (None, Err(Error::Denied)));
    }

    #[test]
    fn behind_the_verdict_is_one_answer() {
        for verdict in [ProofReply::Welcome, ProofReply::Farewell] {
            let (mut acceptor, introduction) = open(verdict);
            let reported = output(&mut acceptor, 0).expect("open");
            assert_eq!(introduction.verdicts.judge(&reported), Some(verdict));
            assert!(!acceptor.is_answered());
            let whole = vec![b'x'; 3 * CHUNK_MAX];
            acceptor.answer(&whole);
            assert!(acceptor.is_answered());
            let mut reader = Reader::new(introduction.seals.theirs);
            let part = output(&mut acceptor, VERDICT as u64).expect("an answer");
            assert_eq!(reader.take(&part), Ok(Some(whole)));
            // Bytes that were read are dropped.
            assert_eq!(output(&mut acceptor, (VERDICT + part.len()) as u64), Ok(Vec::new()));
            assert_eq!((acceptor.held(), output(&mut acceptor, 40)), (0, Err(Error::Invalid)));
        }
    }

    #[test]
    fn a_stream_comes_apart_anywhere_and_has_no_gaps() {
        let stream = |introduction: &Introduction, times: usize| {
            let mut seal = introduction.seals.ours.clone();
            let all = [&b"ab"[..], b"", b"cde"].repeat(times);
            all.into_iter().flat_map(|it| seal.frame(it)).collect::<Vec<u8>>()
        };
        let whole = stream(&open(ProofReply::Welcome).1, 1);
        for cut in 0..whole.len() {
            let (mut acceptor, mut came) = (open(ProofReply::Welcome).0, Vec::new());
            for (offset, part) in [(0, &whole[..cut]), (cut, &whole[cut..])] {
                assert_eq!(write(&mut acceptor, offset as u64, part), Ok(None));
                while let Ok(Some(message)) = acceptor.next() {
                    came.push(message);
                }
            }
            assert_eq!(came, [&b"ab"[..], b"", b"cde"]);
        }
        // However long the stream, only unprocessed bytes are held.
        let (mut acceptor, introduction) = open(ProofReply::Welcome);
        let some = stream(&introduction, 1000);
        let mut offset = 0;
        for part in some.chunks(1001) {
            assert_eq!(write(&mut acceptor, offset, part), Ok(None));
            offset += part.len() as u64;
            while let Ok(Some(_)) = acceptor.next() {}
        }
        assert!(
            acceptor.input.is_empty() && acceptor.input.capacity() < 8192,
            "{}",
            acceptor.input.capacity()
        );
        let mut acceptor = open(ProofReply::Welcome).0;
        assert_eq!(write(&mut acceptor, 1, b"x"), Err(Refused));
        assert_eq!(write(&mut acceptor, 0, b"x"), Err(Refused), "it was shut");
        let mut acceptor = open(ProofReply::Welcome).0;
        assert_eq!(write(&mut acceptor, 0, &u32::MAX.to_le_bytes()), Ok(None));
        assert_eq!(acceptor.next(), Err(Refused));
    }

    /// An attacker modifies, replays or drops messages.
    #[test]
    fn an_altered_message_closes_the_acceptor() {
        let (_, introduction) = open(ProofReply::Welcome);
        let mut seal = introduction.seals.ours;
        let (first, second) = (seal.frame(b"first"), seal.frame(b"second"));
        let mut changed = first.clone();
        changed[5] ^= 1;
        for wrong in [changed, second.clone(), [&first[..], &first].concat()] {
            let mut acceptor = open(ProofReply::Welcome).0;
            assert_eq!(write(&mut acceptor, 0, &wrong), Ok(None));
            let mut taken = Vec::new();
            let end = loop {
                match acceptor.next() {
                    Ok(Some(message)) => taken.push(message),
                    other => break other,
                }
            };
            assert!(taken.len() <= 1 && end == Err(Refused), "{taken:?}");
        }
    }
}
