use super::*;
use base::drawing::Drawing;
use base::rng::seeded;
use base::{Automaton, Instant};

const SLOT: usize = 3;

/// One call as a machine, for its drawing: the states of its tag.
#[derive(Debug)]
struct Call {
    calls: Calls,
    out: Vec<Buf>,
}

#[derive(Clone, Copy, Debug)]
enum Input {
    Send,
    Answered,
    Flush,
    FlushAnswered,
    WrongType,
}

#[derive(Debug)]
#[allow(dead_code, reason = "the drawing shows them")]
enum Output {
    Message,
    Reported(Answer),
    Refused(&'static str),
}

impl Automaton for Call {
    type Input = Input;
    type Output = Output;

    fn step(&mut self, _now: Instant, input: Input, out: &mut Vec<Output>) {
        let answer =
            |calls: &mut Calls, tag, message: Rmessage<'_>, sent: &mut Vec<Buf>| match calls
                .answered(tag, &message, sent)
            {
                Ok(answer) => Output::Reported(answer),
                Err(why) => Output::Refused(why),
            };
        let (calls, sent) = (&mut self.calls, &mut self.out);
        match input {
            Input::Send => {
                calls.begin(Party::Asker(0), Owner::Pending(SLOT, 0), clunk(), sent);
            }
            Input::Flush => {
                calls.flush(SLOT, sent);
            }
            Input::Answered => out.push(answer(calls, 0, Rmessage::Clunk {}, sent)),
            Input::FlushAnswered => out.push(answer(calls, 1, Rmessage::Flush {}, sent)),
            Input::WrongType => out.push(answer(calls, 0, Rmessage::Wstat {}, sent)),
        }
        out.extend(sent.drain(..).map(|_| Output::Message));
    }

    fn check(&self) {
        self.calls.check();
    }
}

fn clunk() -> Message {
    Message::new(&Tmessage::Clunk { fid: 1 })
}

fn state(call: &Call) -> String {
    match call.calls.tags.get(0) {
        None => "free",
        Some(State::Sent(..)) => "sent",
        Some(State::Flushed(..)) => "flushed",
        Some(State::Late) => "late",
        Some(State::Flush(_)) => "flush",
    }
    .to_string()
}

#[test]
fn states_md_is_fresh() {
    let before: [&[Input]; 4] = [
        &[],
        &[Input::Send],
        &[Input::Send, Input::Flush],
        &[Input::Send, Input::Flush, Input::Answered],
    ];
    let inputs =
        [Input::Send, Input::Answered, Input::WrongType, Input::Flush, Input::FlushAnswered];
    let mut drawing = Drawing::default();
    for inputs_before in before {
        for input in inputs {
            let mut call = Call { calls: Calls::new(1), out: Vec::new() };
            let mut out = Vec::new();
            inputs_before.iter().for_each(|input| call.step(Instant(0), *input, &mut out));
            drawing.sample(call, input, state);
        }
    }
    drawing.assert_fresh(concat!(env!("CARGO_MANIFEST_DIR"), "/src/remote/calls/states.md"));
}

#[test]
fn messages_above_the_limit_are_queued_and_dropped_by_a_flush() {
    let mut calls = Calls::new(2);
    let mut out = Vec::new();
    for slot in 0..4 {
        calls.begin(Party::Asker(0), Owner::Pending(slot, 0), clunk(), &mut out);
    }
    assert_eq!((calls.counts(), out.len()), ((2, 2), 2));
    assert_eq!(calls.flush(3, &mut out), 1);
    assert_eq!((calls.counts(), out.len()), ((2, 1), 2));
    let answer = calls.answered(1, &Rmessage::Clunk {}, &mut out);
    assert_eq!(answer, Ok(Answer::To(Owner::Pending(1, 0))));
    assert_eq!((calls.counts(), out.len()), ((2, 0), 3));
    calls.check();
}

/// A client with many messages, or one that left and whose fids are clunked, delays others by one
/// message each.
#[test]
fn clients_are_served_in_turn() {
    let mut calls = Calls::new(1);
    let mut out = Vec::new();
    for slot in 0..100 {
        calls.begin(Party::Asker(7), Owner::Pending(slot, 0), clunk(), &mut out);
        calls.begin(Party::Cleanup, Owner::Clunk(slot as u32), clunk(), &mut out);
    }
    calls.begin(Party::Asker(9), Owner::Pending(500, 0), clunk(), &mut out);
    calls.begin(Party::Recovery, Owner::Pending(501, 0), clunk(), &mut out);
    let mut order = Vec::new();
    for _ in 0..8 {
        match calls.answered(0, &Rmessage::Clunk {}, &mut out) {
            Ok(Answer::To(owner)) => order.push(owner),
            other => panic!("{other:?}"),
        }
        calls.check();
    }
    let of = |slot| Owner::Pending(slot, 0);
    let gone = Owner::Clunk;
    assert_eq!(order[..4], [of(0), of(500), gone(0), of(501)]);
    assert_eq!(order[4..], [of(1), gone(1), of(2), gone(2)]);
}

/// Each call ends once, in whatever order messages are sent, flushed and answered.
#[test]
fn every_call_ends_once() {
    for seed in 0..500 {
        let mut rng = seeded(seed);
        let mut calls = Calls::new(rng.usize(1..5));
        let (mut out, mut ended, mut begun) = (Vec::new(), Vec::new(), 0);
        for turn in 0..400 {
            match rng.u8(..4) {
                0 if turn < 300 => {
                    calls.begin(
                        Party::Asker(rng.u32(..3)),
                        Owner::Pending(begun, 0),
                        clunk(),
                        &mut out,
                    );
                    begun += 1;
                }
                1 if begun > 0 => {
                    let slot = rng.usize(..begun);
                    let dropped = calls.flush(slot, &mut out);
                    ended.extend((0..dropped).map(|_| slot));
                }
                2.. | 0 | 1 => {
                    let tags: Vec<(usize, State)> =
                        calls.tags.iter().map(|(tag, state)| (tag, *state)).collect();
                    if tags.is_empty() {
                        continue;
                    }
                    let (tag, state) = tags[rng.usize(..tags.len())];
                    let message = match state {
                        State::Late => continue,
                        State::Flush(_) => Rmessage::Flush {},
                        State::Sent(..) | State::Flushed(..) => Rmessage::Clunk {},
                    };
                    let tag = u16::try_from(tag).unwrap();
                    match calls.answered(tag, &message, &mut out).unwrap() {
                        Answer::To(Owner::Pending(slot, _))
                        | Answer::Never(Owner::Pending(slot, _)) => ended.push(slot),
                        Answer::Late => {}
                        other => panic!("{other:?}"),
                    }
                }
            }
            calls.check();
        }
        let all: std::collections::BTreeSet<usize> = ended.iter().copied().collect();
        assert_eq!(all.len(), ended.len(), "seed {seed}: one ended twice");
        let (sent, waiting) = calls.counts();
        let late = calls.tags.iter().filter(|(_, state)| **state == State::Late).count();
        assert_eq!(begun, ended.len() + sent + waiting - late, "seed {seed}");
    }
}
