//! An administrator with the key of the service who removes one of its replicas: it sends the
//! request to a remaining member, and repeats it at different ones, until nothing can have
//! interfered.

use super::ledger::Ledger;
use super::params::Params;
use super::site::{SERVICE, id, key};
use super::stream::{Access, Stream, StreamEvent};
use crate::client::{Client, Io};
use base::Instant;
use base::op::Listener;
use replica::service::ChangeRequest;
use services::{
    Answer, CHALLENGE, Introduction, PeerMessage, ProofReplies, ProofReply, Reader, Seals, VERDICT,
};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// Timeout of a reply.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Pause after a reply, or after a timeout.
const PAUSE: Duration = Duration::from_secs(2);

/// State of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Waiting for the time of the next request.
    Away,
    /// Waiting for the file to open.
    Opening,
    /// Waiting for a challenge.
    Reading,
    /// Waiting for the write of its proof.
    Introducing(ProofReplies),
    /// Waiting for the server's proof.
    Meeting(ProofReplies),
    /// Waiting for the write of the request.
    Asking,
    /// Waiting for the reply.
    Hearing,
    /// Done.
    Done,
}

/// The client.
#[derive(Debug)]
pub(super) struct Administrator {
    params: Params,
    /// Listeners of the remaining members.
    acceptors: Vec<Listener>,
    ledger: Rc<RefCell<Ledger>>,
    phase: Phase,
    /// The member in use.
    at: usize,
    /// Beginning of the request, and its deadline.
    since: Instant,
    due: Instant,
    stream: Stream,
    /// Keys for messages of both ends, and the reader of the reply.
    seals: Option<Seals>,
    reader: Option<Reader>,
}

impl Administrator {
    /// Returns an administrator that knows the listeners of the first members.
    pub(super) fn new(
        params: Params,
        acceptors: Vec<Listener>,
        ledger: Rc<RefCell<Ledger>>,
    ) -> Administrator {
        let stream = Stream::new(&["services", SERVICE, "peer"], Access::ReadWrite);
        let (since, due) = (Instant(0), Instant(0));
        let (phase, seals, reader) = (Phase::Away, None, None);
        Administrator { params, acceptors, ledger, phase, at: 0, since, due, stream, seals, reader }
    }

    /// Returns whether all troubles were over before the request began.
    fn is_calm(&self) -> bool {
        self.ledger.borrow().calm.is_some_and(|calm| calm <= self.since)
    }

    fn wait(&mut self, io: &mut Io<'_>, phase: Phase, most: Duration) {
        (self.phase, self.due) = (phase, io.now() + most);
        io.wake_in(most);
    }

    /// Schedules a request to another member.
    fn rest(&mut self, io: &mut Io<'_>) {
        io.abandon();
        self.stream.close();
        (self.seals, self.reader) = (None, None);
        self.at = io.rng().usize(..self.acceptors.len());
        self.wait(io, Phase::Away, PAUSE);
    }

    fn fail(&mut self, io: &mut Io<'_>) {
        assert!(!self.is_calm(), "no answer though all is well: {:?}", self.phase);
        self.rest(io);
    }

    /// Handles received data.
    fn receive(&mut self, io: &mut Io<'_>, data: &[u8]) {
        match self.phase {
            Phase::Reading if data.len() == CHALLENGE => {
                let random: [u8; CHALLENGE] = std::array::from_fn(|_| io.rng().u8(..));
                let key = key(&self.params);
                let introduction = Introduction::new(&key, id(self.at), data, random);
                self.stream.write(io, &introduction.proof);
                self.phase = Phase::Introducing(introduction.verdicts);
                self.seals = Some(introduction.seals);
            }
            Phase::Meeting(verdicts) => {
                assert_eq!(verdicts.judge(data), Some(ProofReply::Welcome), "the key is right");
                let leaver = id(self.params.leaver().expect("somebody leaves"));
                let change_request =
                    ChangeRequest { remove: [leaver].into(), ..ChangeRequest::default() };
                self.stream.seek(0, VERDICT as u64);
                let mut seals = self.seals.take().expect("it has introduced itself");
                self.stream.write(
                    io,
                    &seals.ours.frame(&PeerMessage::ChangeRequest(change_request).bytes()),
                );
                self.reader = Some(Reader::new(seals.theirs));
                self.phase = Phase::Asking;
            }
            Phase::Hearing if !data.is_empty() => {
                let reader = self.reader.as_mut().expect("it has asked");
                let answer = reader.take(data).expect("nobody changes it");
                match answer.map(|bytes| Answer::read(&bytes).expect("an answer")) {
                    Some(Answer::Yes) => self.agreed(io),
                    // The member may have a broken disk.
                    Some(Answer::No(why)) => {
                        io.trace(format_args!("{} does not want it: {why}", self.at));
                        self.fail(io);
                    }
                    Some(Answer::Begin(_)) => panic!("nobody wants to be a member"),
                    None => self.stream.read(io),
                }
            }
            Phase::Reading | Phase::Hearing => self.fail(io),
            Phase::Away | Phase::Opening | Phase::Introducing(_) | Phase::Asking | Phase::Done => {
                panic!("nothing is read while {:?}", self.phase)
            }
        }
    }

    /// Handles an agreement: the removal is effective, or will be, unless a crash or another change
    /// interferes.
    fn agreed(&mut self, io: &mut Io<'_>) {
        if !self.is_calm() {
            return self.rest(io);
        }
        io.judged();
        io.abandon();
        self.phase = Phase::Done;
        self.ledger.borrow_mut().all_stay = true;
    }
}

impl Client for Administrator {
    fn wake(&mut self, io: &mut Io<'_>) {
        if io.now() < self.due {
            return;
        }
        match self.phase {
            Phase::Away => {
                self.since = io.now();
                self.wait(io, Phase::Opening, TIMEOUT);
                self.stream.open(io, self.acceptors[self.at]);
            }
            Phase::Opening
            | Phase::Reading
            | Phase::Introducing(_)
            | Phase::Meeting(_)
            | Phase::Asking
            | Phase::Hearing => self.fail(io),
            Phase::Done => {}
        }
    }

    fn received(&mut self, io: &mut Io<'_>, bytes: &[u8]) {
        for arrived in self.stream.received(io, bytes) {
            match (self.phase, arrived) {
                (Phase::Opening, StreamEvent::Opened) => {
                    self.phase = Phase::Reading;
                    self.stream.read(io);
                }
                (Phase::Introducing(verdicts), StreamEvent::Written) => {
                    self.phase = Phase::Meeting(verdicts);
                    self.stream.seek(0, 0);
                    self.stream.read(io);
                }
                (Phase::Asking, StreamEvent::Written) => {
                    self.phase = Phase::Hearing;
                    self.stream.read(io);
                }
                // It was abandoned meanwhile.
                (Phase::Away | Phase::Done, _) => {}
                (_, StreamEvent::Data(data)) => self.receive(io, &data),
                (_, StreamEvent::Refused) => return self.fail(io),
                (phase, arrived) => panic!("{arrived:?} while {phase:?}"),
            }
        }
    }

    fn ended(&mut self, io: &mut Io<'_>) {
        if self.phase != Phase::Done {
            self.fail(io);
        }
    }

    fn closed(&mut self, _io: &mut Io<'_>) {}

    fn finish(&mut self, _io: &mut Io<'_>) {}

    fn is_done(&self) -> bool {
        self.phase == Phase::Done
    }
}
