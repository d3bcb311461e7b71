use super::*;
use base::drawing::{Drawing, variant};
use base::rng::seeded;
use base::{Automaton, Instant};
use expect_test::expect;
use std::collections::BTreeSet;
use std::fmt::Write as _;

const MSIZE: RangeInclusive<u32> = 4096..=65_536;
const OWNER: usize = 3;

/// A session with one call or clunk, as a machine.
#[derive(Debug)]
struct Machine(Session<usize>);

#[derive(Clone, Copy, Debug)]
enum Input {
    Offer,
    Agreed,
    Plan9,
    Unknown,
    Refused,
    WrongMsize,
    Send,
    Flush,
    Clunk,
    Answered,
    WrongType,
    FlushAnswered,
    ClunkAnswered,
    Close,
}

#[derive(Debug)]
enum Output {
    Message,
    Agreed,
    Unknown,
    Refused,
    Reply,
    Never,
    Violation,
}

impl Machine {
    fn new() -> Machine {
        Machine(Session::new(1))
    }

    fn receive(&mut self, tag: u16, reply: &Rmessage<'_>) -> Option<Output> {
        let mut bytes = Vec::new();
        reply.encode(tag, &mut bytes);
        match self.0.receive(&bytes) {
            Ok((Answer::Version(Agreement::Agreed(..)), _)) => Some(Output::Agreed),
            Ok((Answer::Version(Agreement::Unknown), _)) => Some(Output::Unknown),
            Ok((Answer::Version(Agreement::Refused), _)) => Some(Output::Refused),
            Ok((Answer::Reply(OWNER), _)) => Some(Output::Reply),
            Ok((Answer::Never(OWNER), _)) => Some(Output::Never),
            Ok((Answer::Done, _)) => None,
            Ok((answer, _)) => panic!("{answer:?}"),
            Err(_) => Some(Output::Violation),
        }
    }

    fn version(&mut self, msize: u32, version: &[u8]) -> Option<Output> {
        self.receive(NO_TAG, &Rmessage::Version { msize, version })
    }
}

impl Automaton for Machine {
    type Input = Input;
    type Output = Output;

    fn step(&mut self, _now: Instant, input: Input, out: &mut Vec<Output>) {
        let size = *MSIZE.start();
        out.extend(match input {
            Input::Offer => Some(self.0.offer(Dialect::Linux, MSIZE)).map(|_| Output::Message),
            Input::Agreed => self.version(size, b"9P2000.L"),
            Input::Plan9 => self.version(size, b"9P2000"),
            Input::Unknown => self.version(size, b"unknown"),
            Input::Refused => self.receive(NO_TAG, &Rmessage::Lerror { ecode: 95 }),
            Input::WrongMsize => self.version(size - 1, b"9P2000.L"),
            Input::Send => self.0.call(126, OWNER).map(|_| Output::Message),
            Input::Flush => Some(self.0.flush(0)).map(|_| Output::Message),
            Input::Clunk => {
                let fid = self.0.new_fid().unwrap();
                self.0.clunk(fid).map(|_| Output::Message)
            }
            Input::Answered => self.receive(0, &Rmessage::Wstat {}),
            Input::WrongType => self.receive(0, &Rmessage::Fsync {}),
            Input::FlushAnswered => self.receive(1, &Rmessage::Flush {}),
            Input::ClunkAnswered => self.receive(0, &Rmessage::Clunk {}),
            Input::Close => {
                self.0.close();
                None
            }
        });
        self.0.check();
    }

    fn check(&self) {
        self.0.check();
    }
}

fn state(machine: &Machine) -> String {
    let tag = machine.0.tags.get(0);
    match (&machine.0.phase, tag) {
        (Phase::Closed, _) => "closed",
        (Phase::Offered(..), _) => "offered",
        (Phase::Agreed(..), None) => "agreed",
        (Phase::Agreed(..), Some(Tag::Sent(..))) => "sent",
        (Phase::Agreed(..), Some(Tag::Flushed(..))) => "flushed",
        (Phase::Agreed(..), Some(Tag::Late)) => "late",
        (Phase::Agreed(..), Some(Tag::Flush(_))) => "flush",
        (Phase::Agreed(..), Some(Tag::Clunk(_))) => "clunk",
    }
    .to_string()
}

#[test]
fn states_md_is_fresh() {
    use Input::{
        Agreed, Answered, Close, Clunk, ClunkAnswered, Flush, FlushAnswered, Offer, Refused, Send,
        Unknown, WrongMsize, WrongType,
    };
    let mut drawing = Drawing::default();
    let mut sample = |before: &[Input], inputs: &[Input]| {
        for input in inputs {
            let (mut machine, mut out) = (Machine::new(), Vec::new());
            before.iter().for_each(|input| machine.step(Instant(0), *input, &mut out));
            drawing.sample(machine, *input, state);
        }
    };
    let version = [Offer, Agreed, Unknown, Refused, WrongMsize, Close];
    sample(&[], &version);
    sample(&[Offer], &version);
    sample(&[Offer, Agreed], &[Offer, Agreed, Close]);
    let calls = [Send, Flush, Clunk, Answered, WrongType, FlushAnswered, ClunkAnswered, Close];
    sample(&[Offer, Agreed], &calls);
    sample(&[Offer, Agreed, Send], &calls);
    sample(&[Offer, Agreed, Send, Flush], &calls);
    sample(&[Offer, Agreed, Send, Flush, Answered], &calls);
    sample(&[Offer, Agreed, Clunk], &calls);
    drawing.assert_fresh(concat!(env!("CARGO_MANIFEST_DIR"), "/src/session/states.md"));
}

/// Returns a session that has agreed on 9P2000.L.
fn agreed(calls_max: usize) -> Session<usize> {
    let mut session = Session::new(calls_max);
    session.offer(Dialect::Linux, MSIZE);
    let mut bytes = Vec::new();
    Rmessage::Version { msize: 8192, version: b"9P2000.L" }.encode(NO_TAG, &mut bytes);
    session.receive(&bytes).unwrap();
    session
}

#[test]
fn a_reply_before_the_reply_to_the_flush_is_valid_and_the_tag_stays_reserved() {
    let (mut machine, mut text) = (Machine::new(), String::new());
    let script = [
        Input::Offer,
        Input::Plan9,
        Input::Send,
        Input::Flush,
        Input::Answered,
        Input::Send,
        Input::Answered,
        Input::FlushAnswered,
        Input::Send,
        Input::Flush,
        Input::FlushAnswered,
        Input::Clunk,
        Input::ClunkAnswered,
        Input::Close,
    ];
    for input in script {
        let mut out = Vec::new();
        machine.step(Instant(0), input, &mut out);
        let out: Vec<String> = out.iter().map(variant).collect();
        writeln!(text, "{input:?}: {} {}", out.join(" "), state(&machine)).unwrap();
    }
    expect![[r#"
        Offer: Message offered
        Plan9: Agreed agreed
        Send: Message sent
        Flush: Message flushed
        Answered: Reply late
        Send:  late
        Answered: Violation late
        FlushAnswered:  agreed
        Send: Message sent
        Flush: Message flushed
        FlushAnswered: Never agreed
        Clunk: Message clunk
        ClunkAnswered:  agreed
        Close:  closed
    "#]]
    .assert_eq(&text);
}

#[test]
fn a_server_may_accept_the_offered_dialect_or_its_base() {
    let answer = |offered, version: &'static [u8], msize| {
        let mut session = Session::<usize>::new(1);
        session.offer(offered, MSIZE);
        let mut bytes = Vec::new();
        Rmessage::Version { msize, version }.encode(NO_TAG, &mut bytes);
        session.receive(&bytes).map(|(answer, _)| answer)
    };
    let agreed = |dialect, msize| Ok(Answer::Version(Agreement::Agreed(dialect, msize)));
    let (linux, plan9) = (Dialect::Linux, Dialect::Plan9);
    assert_eq!(answer(linux, b"9P2000.L", 4096), agreed(linux, 4096));
    assert_eq!(answer(linux, b"9P2000", 65_536), agreed(plan9, 65_536));
    assert_eq!(answer(plan9, b"9P2000", 8192), agreed(plan9, 8192));
    for (offered, version) in [(linux, &b"unknown"[..]), (linux, b"9P2000.u"), (plan9, b"9P2000.L")]
    {
        assert_eq!(answer(offered, version, 1), Ok(Answer::Version(Agreement::Unknown)));
    }
    for proposed in [0, 4095, 65_537, u32::MAX] {
        let expected = Violation::Msize(proposed, 65_536);
        assert_eq!(answer(linux, b"9P2000.L", proposed), Err(expected));
    }
}

#[test]
fn sizes_of_messages_are_checked_before_they_are_complete() {
    assert_eq!(crate::message_size(&[9, 0, 0], 100), Ok(None));
    assert_eq!(crate::message_size(&[9, 0, 0, 0], 100), Ok(Some(9)));
    for size in [0u8, 6, 101] {
        let violation = Violation::Size(size.into(), 100);
        assert_eq!(crate::message_size(&[size, 0, 0, 0], 100), Err(violation));
    }
}

#[test]
fn no_more_calls_than_the_maximum_are_outstanding_and_each_can_be_flushed() {
    let mut session = agreed(usize::MAX);
    for owner in 0..CALLS_MAX {
        assert!(session.call(116, owner).is_some());
    }
    assert_eq!((session.call(116, 0), session.clunk(0)), (None, None));
    let tags: Vec<u16> = session.calls().map(|(tag, _)| tag).collect();
    tags.into_iter().for_each(|tag| assert_ne!(session.flush(tag), []));
    assert_eq!((session.calls().count(), session.outstanding()), (0, CALLS_MAX));
    session.check();
}

/// Each call ends once, in whatever order messages are sent, flushed and answered, and no fid is
/// in use twice.
#[test]
fn every_call_ends_once() {
    for seed in 0..500 {
        let mut rng = seeded(seed);
        let mut session = agreed(rng.usize(1..5));
        let (mut ended, mut fids, mut begun) = (BTreeSet::new(), BTreeSet::new(), 0);
        for turn in 0..400 {
            match rng.u8(..5) {
                0 if turn < 300 => begun += usize::from(session.call(126, begun).is_some()),
                1 => {
                    let tags: Vec<u16> = session.calls().map(|(tag, _)| tag).collect();
                    if !tags.is_empty() {
                        session.flush(tags[rng.usize(..tags.len())]);
                    }
                }
                2 => {
                    let fid = session.new_fid().unwrap();
                    assert!(fids.insert(fid), "seed {seed}: {fid} is in use");
                    if session.clunk(fid).is_none() {
                        session.free_fid(fid);
                        fids.remove(&fid);
                    }
                }
                3.. | 0 => {
                    let tags: Vec<_> = session.tags.iter().collect();
                    if tags.is_empty() {
                        continue;
                    }
                    let (tag, state) = tags[rng.usize(..tags.len())];
                    let code = match state {
                        Tag::Late => continue,
                        Tag::Flush(_) => RFLUSH,
                        Tag::Clunk(fid) => {
                            fids.remove(fid);
                            RCLUNK
                        }
                        Tag::Sent(..) | Tag::Flushed(..) => 127,
                    };
                    match session.answered(tag as u16, code).unwrap() {
                        Answer::Reply(owner) | Answer::Never(owner) => {
                            assert!(ended.insert(owner), "seed {seed}: {owner} ended twice");
                        }
                        Answer::Done => {}
                        answer @ Answer::Version(_) => panic!("{answer:?}"),
                    }
                }
            }
            session.check();
        }
        let of = |state: &Tag<usize>| matches!(state, Tag::Sent(..) | Tag::Flushed(..));
        let pending = session.tags.iter().filter(|(_, state)| of(state)).count();
        assert_eq!((begun, fids.len()), (ended.len() + pending, session.fids()), "seed {seed}");
    }
}

/// Bytes of a lying server produce answers or violations.
#[test]
fn no_input_panics() {
    for seed in 0..20_000 {
        let mut rng = seeded(seed);
        let mut session = agreed(8);
        if rng.bool() {
            session.offer(Dialect::Plan9, MSIZE);
        } else {
            let tags: Vec<_> = (0..4).filter_map(|owner| session.call(116, owner)).collect();
            session.flush(tags[rng.usize(..tags.len())]);
        }
        for _ in 0..4 {
            let mut bytes = Vec::new();
            let tag = if rng.bool() { NO_TAG } else { rng.u16(..6) };
            match rng.u8(..3) {
                0 => Rmessage::Version { msize: rng.u32(..), version: b"9P2000" },
                1 => Rmessage::Flush {},
                2.. => Rmessage::Lerror { ecode: rng.u32(..) },
            }
            .encode(tag, &mut bytes);
            let at = rng.usize(..bytes.len());
            bytes[at] = if rng.bool() { rng.u8(..) } else { bytes[at] };
            if session.receive(&bytes).is_err() {
                break;
            }
            session.check();
        }
    }
}
