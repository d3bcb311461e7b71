//! A client of the mux that knows the joined tree.
//!
//! On one connection it sends requests in several *lanes*, each with one request outstanding and
//! fids of its own, so that requests blocked by a dead server run beside unaffected ones. The
//! requests of lanes are drawn ([`draw`]); every reply is checked ([`judge`]). In the end, when all
//! troubles are over, it verifies its remaining fids and the whole tree.

mod draw;
mod judge;
mod lane;
mod listing;

use super::fault_log::{FaultLog, TIMEOUT};
use super::params::Params;
use super::space::Space;
use crate::client::{Client, Io, whole_messages};
use base::Instant;
use base::op::Listener;
use lane::{Lane, Request};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use wire::ninep::{NO_FID, NO_TAG, Rmessage, Tmessage};

/// Fid of the root.
const ROOT: u32 = 0;
/// Tag of the attach.
const ATTACH: u16 = 900;
/// Offset from the number of a lane to the tags of its flushes.
const FLUSHES: u16 = 1000;
/// Interval of checking for due work.
const TICK: Duration = Duration::from_millis(500);
/// Idle time before it is done, in which the mux can release its references.
const REST: Duration = Duration::from_secs(30);

/// Configuration of a client.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    /// The mux's listener.
    pub(super) listener: Listener,
    /// Number of the client.
    pub(super) number: usize,
    /// The joined tree.
    pub(super) space: Rc<Space>,
    /// Troubles of the servers.
    pub(super) fault_log: Rc<RefCell<FaultLog>>,
    /// Parameters of the run.
    pub(super) params: Params,
}

/// State of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Waiting to connect.
    Away,
    /// Waiting for `Rversion`.
    Greeting,
    /// Waiting for `Rattach`.
    Attaching,
    /// Waiting for replies.
    Working,
    /// Waiting for the calm after the last trouble.
    Patient,
    /// Waiting for the replies of the final survey.
    Surveying,
    /// Waiting for the connection to end.
    Leaving,
    /// Waiting for the mux to become idle.
    Resting,
    /// Done.
    Done,
}

/// The client.
#[derive(Debug)]
pub(super) struct MuxClient {
    setup: Setup,
    phase: Phase,
    lanes: Vec<Lane>,
    input: Vec<u8>,
    msize: u32,
    /// Beginning of the handshake.
    since: Instant,
    /// Time of the next check for due work.
    next_tick: Instant,
    /// Whether it has completed its requests.
    is_finished: bool,
}

impl MuxClient {
    /// Returns an unconnected client.
    pub(super) fn new(setup: Setup) -> MuxClient {
        let requests = setup.params.requests;
        let name = |lane| format!("w{}-{lane}", setup.number);
        let lanes = (0..setup.params.lanes).map(|lane| Lane::new(lane, name(lane), requests));
        MuxClient {
            lanes: lanes.collect(),
            phase: Phase::Away,
            input: Vec::new(),
            msize: 0,
            since: Instant(0),
            next_tick: Instant(0),
            is_finished: false,
            setup,
        }
    }

    fn send(&self, io: &mut Io<'_>, tag: u16, message: &Tmessage<'_>) {
        let mut bytes = Vec::new();
        message.encode(tag, &mut bytes);
        io.send(&bytes);
    }

    fn greet(&mut self, io: &mut Io<'_>) {
        self.phase = Phase::Greeting;
        self.since = io.now();
        self.msize = [8192, 32_768][io.rng().usize(..2)];
        let message = Tmessage::Version { msize: self.msize, version: b"9P2000.L" };
        self.send(io, NO_TAG, &message);
    }

    fn message(&mut self, io: &mut Io<'_>, bytes: &[u8]) {
        assert!(bytes.len() <= self.msize as usize, "an answer larger than was agreed");
        let (tag, reply) = Rmessage::decode(bytes).expect("answers can be decoded");
        match (self.phase, tag, reply) {
            (Phase::Greeting, NO_TAG, Rmessage::Version { msize, version }) => {
                assert!(version == b"9P2000.L" && msize <= self.msize, "another agreement");
                self.msize = msize;
                self.phase = Phase::Attaching;
                let (uname, aname, uid): (&[u8], &[u8], _) = (b"", b"/", Some(0));
                let attach = Tmessage::Attach { fid: ROOT, afid: NO_FID, uname, aname, uid };
                self.send(io, ATTACH, &attach);
            }
            (Phase::Attaching, ATTACH, Rmessage::Attach { qid }) => {
                let root = self.setup.space.number(&self.setup.space.root().file);
                assert_eq!(qid.path, root, "attached elsewhere");
                self.phase = Phase::Working;
                self.work(io);
            }
            (Phase::Working | Phase::Patient | Phase::Surveying, tag, reply) => {
                if tag >= FLUSHES {
                    assert_eq!(reply, Rmessage::Flush {}, "an answer to a flush");
                    self.flushed(io, usize::from(tag - FLUSHES));
                } else {
                    self.answered(io, usize::from(tag), &reply);
                    self.rest(io, usize::from(tag));
                }
                self.work(io);
            }
            // Messages after the disconnect are ignored.
            (Phase::Leaving, ..) => {}
            (phase, tag, reply) => panic!("tag {tag}: {reply:?} while {phase:?}"),
        }
    }

    fn flushed(&mut self, io: &mut Io<'_>, lane: usize) {
        let waiting = self.lanes[lane].waiting.take().expect("a flush answered twice");
        let flushed = waiting.flushed.expect("an Rflush that nobody asked for");
        let took = io.now().since(flushed);
        let prompt = self.setup.params.prompt();
        let at_once = waiting.request.only_looks();
        assert!(!at_once || took < prompt, "a flush of {:?} took {took:?}", waiting.request);
        io.judged();
        io.trace(format_args!("{lane} {:?} flushed", waiting.request));
        if !waiting.is_answered {
            self.lose(lane, &waiting.request);
        }
    }

    /// Lets every idle lane send a request.
    fn work(&mut self, io: &mut Io<'_>) {
        if self.phase == Phase::Patient && self.setup.fault_log.borrow().calm_since.is_some() {
            self.phase = Phase::Surveying;
            self.plan_survey(io);
        }
        for lane in 0..self.lanes.len() {
            while self.lanes[lane].waiting.is_none() && self.may_ask(io.now(), lane) {
                if !self.work_in(io, lane) {
                    break;
                }
            }
        }
        let is_idle = |lane: &Lane| lane.waiting.is_none() && lane.left == 0;
        let all_idle = self.lanes.iter().all(is_idle);
        match self.phase {
            Phase::Working if all_idle => {
                self.phase = Phase::Patient;
                self.setup.fault_log.borrow_mut().idle.0 += self.lanes.len();
            }
            Phase::Surveying if self.lanes.iter().all(Lane::is_done) => {
                self.is_finished = true;
                self.leave(io);
            }
            _ => {}
        }
    }

    fn may_ask(&self, now: Instant, lane: usize) -> bool {
        let is_time = now >= self.lanes[lane].next_at;
        self.phase == Phase::Surveying || self.phase == Phase::Working && is_time
    }

    /// Ends a lane's request, perhaps with a pause before the next.
    fn rest(&mut self, io: &mut Io<'_>, lane: usize) {
        let pace = self.setup.params.pace_ms;
        if self.phase == Phase::Working && pace > 0 && io.rng().bool() {
            let pause = Duration::from_millis(io.rng().u64(..=pace));
            self.lanes[lane].next_at = io.now() + pause;
            io.wake_in(pause);
        }
    }

    /// Sends one request, if there is one; returns whether it did something.
    fn work_in(&mut self, io: &mut Io<'_>, lane: usize) -> bool {
        let request = match self.phase {
            Phase::Surveying => self.survey(io, lane),
            _ if self.lanes[lane].left == 0 => return false,
            _ => {
                self.lanes[lane].left -= 1;
                if io.one_in(self.setup.params.disconnect) {
                    self.leave(io);
                    return false;
                }
                Some(self.draw(io, lane))
            }
        };
        let Some(request) = request else { return self.phase == Phase::Working };
        self.ask(io, lane, request);
        true
    }

    fn ask(&mut self, io: &mut Io<'_>, lane: usize, request: Request) {
        io.trace(format_args!("{lane} {request:?}"));
        let tag = u16::try_from(lane).expect("few lanes");
        let bytes = request.encode(tag);
        io.send(&bytes);
        self.note_asked(io, lane, request);
    }

    fn leave(&mut self, io: &mut Io<'_>) {
        self.phase = Phase::Leaving;
        if io.rng().bool() { io.reset() } else { io.finish() }
    }

    /// Performs due checks and flushes.
    fn tick(&mut self, io: &mut Io<'_>) {
        let now = io.now();
        if matches!(self.phase, Phase::Greeting | Phase::Attaching) {
            let waited = now.since(self.since);
            let is_open = self.setup.fault_log.borrow().is_open;
            assert!(waited < TIMEOUT || !is_open, "no welcome for {waited:?}");
        }
        for lane in 0..self.lanes.len() {
            let Some(waiting) = self.lanes[lane].waiting.take() else { continue };
            self.expect_in_time(io, lane, &waiting);
            let waiting = self.lanes[lane].waiting.insert(waiting);
            if waiting.flush_at.is_some_and(|at| at <= now) && waiting.flushed.is_none() {
                (waiting.flush_at, waiting.flushed) = (None, Some(now));
                let oldtag = u16::try_from(lane).expect("few lanes");
                self.send(io, FLUSHES + oldtag, &Tmessage::Flush { oldtag });
            }
        }
        if self.phase == Phase::Patient {
            self.work(io);
        }
    }
}

impl Client for MuxClient {
    fn wake(&mut self, io: &mut Io<'_>) {
        match self.phase {
            Phase::Away if io.is_stopped() => self.phase = Phase::Done,
            Phase::Away if !self.setup.fault_log.borrow().is_open => io.wake_in(TICK),
            Phase::Away => {
                self.input.clear();
                self.phase = Phase::Leaving;
                if io.connect(self.setup.listener) {
                    self.greet(io);
                    self.next_tick = io.now() + TICK;
                    io.wake_in(TICK);
                }
            }
            Phase::Resting => self.phase = Phase::Done,
            Phase::Leaving | Phase::Done => {}
            Phase::Greeting
            | Phase::Attaching
            | Phase::Working
            | Phase::Patient
            | Phase::Surveying => {
                if io.now() >= self.next_tick {
                    self.tick(io);
                    self.next_tick = io.now() + TICK;
                    io.wake_in(TICK);
                }
                if self.phase == Phase::Working {
                    self.work(io);
                }
            }
        }
    }

    fn received(&mut self, io: &mut Io<'_>, bytes: &[u8]) {
        for message in whole_messages(&mut self.input, bytes) {
            self.message(io, &message);
        }
    }

    fn ended(&mut self, io: &mut Io<'_>) {
        let expected = self.phase == Phase::Leaving || io.is_stopped();
        assert!(expected, "the mux hung up while {:?}", self.phase);
        self.phase = Phase::Leaving;
    }

    fn closed(&mut self, io: &mut Io<'_>) {
        for lane in 0..self.lanes.len() {
            if let Some(waiting) = self.lanes[lane].waiting.take() {
                self.lose(lane, &waiting.request);
            }
            self.lanes[lane].fids.clear();
        }
        if self.is_finished {
            self.phase = Phase::Resting;
            return io.wake_in(REST);
        }
        self.phase = Phase::Away;
        let pause = io.rng().u64(1..200);
        io.wake_in(Duration::from_millis(pause));
    }

    fn finish(&mut self, _io: &mut Io<'_>) {
        assert_eq!(self.phase, Phase::Done, "never came to rest");
    }

    fn is_done(&self) -> bool {
        self.phase == Phase::Done
    }
}
