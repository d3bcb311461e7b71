//! A domain: one storelet as whoever started it sees it, from its order to its report.
//!
//! Its owner writes an order, the module if the server does not have it, and input; and reads what
//! the storelet says. Where it runs is a worker's business (the [life](crate::life) of a storelet
//! there is a machine of its own).
//!
#![doc = include_str!("domain/states.md")]

mod talk;
#[cfg(test)]
mod tests;

use crate::budget::Reason;
use crate::compile::{Fresh, Module, Refused};
use crate::door::Stream;
use crate::order::{ORDER_MAX, Order, Wanted};
use crate::report::Report;
use base::{Automaton, Buf, Error, Instant};
use std::mem;
use std::time::Duration;
use talk::Talk;
use tree::{Reply, RequestId};

/// How long its owner may take for order and module.
const ORDER_TIME: Duration = Duration::from_secs(120);

/// What can happen to a domain.
#[derive(Debug)]
pub(crate) enum Input {
    /// Its owner writes.
    Write(RequestId, Buf),
    /// Its owner reads: at most so many bytes, with room in front of them.
    Read(RequestId, u32, u32),
    /// A request is not waited for any more.
    Cancel(RequestId),
    /// Its module is compiled, or not.
    Compiled(Result<Fresh, Refused>),
    /// There is memory for it: it runs from now on.
    Admitted,
    /// There never will be: why.
    Refused(String),
    /// It says something.
    Said(Stream, Vec<u8>),
    /// It has taken so much of its input.
    Eaten(usize),
    /// It has ended.
    Ended(Box<Report>),
    /// It is to end.
    Kill(Reason),
    /// Its owner is gone.
    Gone,
}

/// What a domain can ask for.
#[derive(Debug)]
pub(crate) enum Output {
    /// The answer to its owner.
    Reply(RequestId, Result<Reply, Error>),
    /// Compile this; [`Input::Compiled`] follows.
    Compile(Module),
    /// It need not be compiled any more.
    CancelCompile,
    /// Let it run when there is memory; [`Input::Admitted`] follows, unless it leaves the queue.
    Enqueue,
    /// Take it out of the queue.
    Dequeue,
    /// Run it; [`Input::Ended`] follows.
    Begin(Box<Order>, Fresh),
    /// Give it input; nothing: the end.
    Feed(Vec<u8>),
    /// So much of what it said was read.
    Taken(usize),
    /// End it.
    Kill(Reason),
}

/// What it waits for.
#[derive(Debug)]
enum State {
    /// For the rest of its order.
    Received(Vec<u8>),
    /// For so many more bytes of its module.
    Filling(Box<Order>, Vec<u8>, u64),
    /// For its module to be compiled; if it is to end then: why.
    Compiling(Box<Order>, Option<Reason>),
    /// For memory.
    Ready(Box<Order>, Fresh),
    /// For its end; it runs and waits on a worker.
    Running,
    /// For somebody to read its report.
    Ended,
    /// For its end, which nobody wants to know of.
    Leaving,
    /// For nothing.
    Over,
}

/// The domain automaton.
#[derive(Debug)]
pub(crate) struct Domain {
    state: State,
    talk: Talk,
    /// When it was begun, and until it ran: how long it had to wait for that, ns.
    since: Instant,
    waited_ns: u64,
    /// How large the module is that was sent and is not compiled yet, bytes.
    sent: usize,
    /// Its module.
    fresh: Option<(crate::compile::Hash, u64)>,
}

impl Domain {
    /// A domain that has got nothing yet.
    pub(crate) fn new(now: Instant) -> Domain {
        let (state, talk) = (State::Received(Vec::new()), Talk::default());
        Domain { state, talk, since: now, waited_ns: 0, sent: 0, fresh: None }
    }

    /// How much of a module it keeps, bytes.
    pub(crate) fn module_bytes(&self) -> usize {
        match &self.state {
            State::Filling(_, module, _) => module.capacity(),
            State::Received(_)
            | State::Compiling(..)
            | State::Ready(..)
            | State::Running
            | State::Ended
            | State::Leaving
            | State::Over => self.sent,
        }
    }

    /// Until when its owner must have said what is to be run.
    pub(crate) fn due(&self) -> Option<Instant> {
        let speaks = matches!(self.state, State::Received(_) | State::Filling(..));
        speaks.then(|| self.since + ORDER_TIME)
    }

    /// Whether so much input waits that more is not taken.
    pub(crate) fn is_full(&self) -> bool {
        self.talk.is_full()
    }

    /// Whether this request of its owner waits.
    pub(crate) fn is_asked(&self, id: RequestId) -> bool {
        self.talk.is_asked(id)
    }

    /// Whether it can be forgotten.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }

    /// Whether it has ended, as far as others are concerned.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.state, State::Ended | State::Over)
    }

    /// The order of one that waits for memory.
    pub(crate) fn order(&self) -> Option<&Order> {
        match &self.state {
            State::Ready(order, _) => Some(order),
            State::Received(_)
            | State::Filling(..)
            | State::Compiling(..)
            | State::Running
            | State::Ended
            | State::Leaving
            | State::Over => None,
        }
    }

    /// The state in one word.
    pub(crate) fn state_name(&self) -> &'static str {
        match self.state {
            State::Received(_) | State::Filling(..) => "received",
            State::Compiling(..) => "compiling",
            State::Ready(..) => "ready",
            State::Running => "running",
            State::Ended => "done",
            State::Leaving => "leaving",
            State::Over => "over",
        }
    }

    /// More came from its owner: goes on as far as that leads.
    fn wrote(&mut self, state: State, data: Buf, out: &mut Vec<Output>) -> State {
        match state {
            State::Received(mut text) => {
                text.extend_from_slice(&data);
                let Some(end) = text.windows(2).position(|two| two == b"\n\n") else {
                    return match text.len() > ORDER_MAX {
                        true => {
                            self.talk.begin(Order::wants_frames(&text), false);
                            self.refuse("the order is too long".to_string(), out)
                        }
                        false => State::Received(text),
                    };
                };
                let rest = Buf::from(&text[end + 2..]);
                match Order::parse(&text[..=end]) {
                    Ok(order) => self.ordered(Box::new(order), rest, out),
                    Err(why) => {
                        self.talk.begin(Order::wants_frames(&text[..=end]), false);
                        self.refuse(why, out)
                    }
                }
            }
            State::Filling(order, mut module, left) => {
                let count = usize::try_from(left).unwrap_or(usize::MAX).min(data.len());
                module.extend_from_slice(&data[..count]);
                let rest = Buf::from(&data[count..]);
                let left = left - count as u64;
                if left > 0 {
                    return State::Filling(order, module, left);
                }
                self.sent = module.len();
                self.compile(order, Module::Sent(vec![Buf::from(module)]), rest, out)
            }
            state @ (State::Compiling(..) | State::Ready(..) | State::Running) => {
                let fed = self.talk.take_input(&data);
                if matches!(state, State::Running) {
                    out.extend(fed.into_iter().map(Output::Feed));
                } else {
                    self.talk.hold(fed);
                }
                state
            }
            // Who has ended takes nothing any more.
            state @ (State::Ended | State::Leaving | State::Over) => state,
        }
    }

    fn ordered(&mut self, order: Box<Order>, rest: Buf, out: &mut Vec<Output>) -> State {
        self.talk.begin(order.frames, order.input);
        match order.module {
            Wanted::Known(hash) => self.compile(order, Module::Known(hash), rest, out),
            Wanted::Follows(length) => {
                let state = State::Filling(order, Vec::new(), length);
                self.wrote(state, rest, out)
            }
        }
    }

    fn compile(
        &mut self,
        order: Box<Order>,
        module: Module,
        rest: Buf,
        out: &mut Vec<Output>,
    ) -> State {
        self.talk.tell_state("compiling", out);
        out.push(Output::Compile(module));
        self.wrote(State::Compiling(order, None), rest, out)
    }

    fn refuse(&mut self, why: String, out: &mut Vec<Output>) -> State {
        self.end(Report::refused(why), out)
    }

    /// Nothing more will be said but how it ended.
    fn end(&mut self, mut report: Report, out: &mut Vec<Output>) -> State {
        report.waited_ns = self.waited_ns;
        if let Some((hash, compile_ns)) = self.fresh {
            (report.module, report.compile_ns) = (Some(hash.to_string()), compile_ns);
        }
        self.talk.close(&report, out);
        State::Ended
    }

    fn compiled(
        &mut self,
        order: Box<Order>,
        doomed: Option<Reason>,
        result: Result<Fresh, Refused>,
        out: &mut Vec<Output>,
    ) -> State {
        self.sent = 0;
        if let Ok(fresh) = &result {
            self.fresh = Some((fresh.hash, fresh.cpu_ns));
        }
        match (doomed, result) {
            (Some(reason), _) => self.end(Report::killed(reason), out),
            (None, Err(refused)) => self.end(Report::of_refusal(&refused), out),
            (None, Ok(fresh)) => {
                self.talk.tell_state("waiting for memory", out);
                out.push(Output::Enqueue);
                State::Ready(order, fresh)
            }
        }
    }

    fn begin(
        &mut self,
        now: Instant,
        order: Box<Order>,
        fresh: Fresh,
        out: &mut Vec<Output>,
    ) -> State {
        self.waited_ns = now.0 - self.since.0;
        self.talk.tell_state("running", out);
        out.push(Output::Begin(order, fresh));
        out.extend(self.talk.held().into_iter().map(Output::Feed));
        State::Running
    }

    /// Somebody wants it to end.
    fn kill(&mut self, state: State, reason: Reason, out: &mut Vec<Output>) -> State {
        match state {
            State::Received(_) | State::Filling(..) => self.end(Report::killed(reason), out),
            State::Compiling(order, _) => {
                out.push(Output::CancelCompile);
                State::Compiling(order, Some(reason))
            }
            State::Ready(..) => {
                out.push(Output::Dequeue);
                self.end(Report::killed(reason), out)
            }
            State::Running => {
                out.push(Output::Kill(reason));
                State::Running
            }
            state @ (State::Ended | State::Leaving) => state,
            State::Over => unreachable!("nobody knows of it any more"),
        }
    }

    /// Its owner is gone: nobody wants to know what comes of it.
    fn leave(&mut self, state: State, out: &mut Vec<Output>) -> State {
        self.talk.cancel_all(out);
        match state {
            State::Received(_) | State::Filling(..) | State::Ended => State::Over,
            State::Compiling(..) => {
                out.push(Output::CancelCompile);
                State::Leaving
            }
            State::Ready(..) => {
                out.push(Output::Dequeue);
                State::Over
            }
            State::Running => {
                out.push(Output::Kill(Reason::Cancelled));
                State::Leaving
            }
            state @ (State::Leaving | State::Over) => unreachable!("{state:?} has no owner"),
        }
    }

    fn write(&mut self, state: State, id: RequestId, data: Buf, out: &mut Vec<Output>) -> State {
        let written = u32::try_from(data.len()).expect("one message");
        let was_open = !matches!(state, State::Ended);
        let state = self.wrote(state, data, out);
        match &state {
            State::Ended if was_open => out.push(Output::Reply(id, Err(Error::Invalid))),
            State::Ended => out.push(Output::Reply(id, Err(Error::Disconnected))),
            State::Received(_)
            | State::Filling(..)
            | State::Compiling(..)
            | State::Ready(..)
            | State::Running
            | State::Leaving
            | State::Over => self.talk.written(id, written, out),
        }
        state
    }
}

impl Automaton for Domain {
    type Input = Input;
    type Output = Output;

    fn step(&mut self, now: Instant, input: Input, out: &mut Vec<Output>) {
        let state = mem::replace(&mut self.state, State::Over);
        self.state = match (state, input) {
            (state, Input::Write(id, data)) => self.write(state, id, data, out),
            (state, Input::Read(id, count, headroom)) => {
                self.talk.read(id, count, headroom, out);
                state
            }
            (state, Input::Cancel(id)) => {
                self.talk.cancel(id, out);
                state
            }
            (State::Compiling(order, doomed), Input::Compiled(result)) => {
                self.compiled(order, doomed, result, out)
            }
            (State::Ready(order, fresh), Input::Admitted) => self.begin(now, order, fresh, out),
            (State::Ready(..), Input::Refused(why)) => self.refuse(why, out),
            (State::Running, Input::Said(stream, bytes)) => {
                self.talk.say(stream, bytes, out);
                State::Running
            }
            (State::Running, Input::Eaten(count)) => {
                self.talk.eaten(count, out);
                State::Running
            }
            (State::Running, Input::Ended(report)) => self.end(*report, out),
            (state, Input::Kill(reason)) => self.kill(state, reason, out),
            (state, Input::Gone) => self.leave(state, out),
            (State::Leaving, Input::Compiled(_) | Input::Ended(_)) => State::Over,
            (state @ (State::Leaving | State::Ended), Input::Said(..) | Input::Eaten(_)) => state,
            // Each question is answered once, and who is gone does nothing more.
            (
                state,
                input @ (Input::Compiled(_)
                | Input::Admitted
                | Input::Refused(_)
                | Input::Said(..)
                | Input::Eaten(_)
                | Input::Ended(_)),
            ) => unreachable!("{input:?} in {state:?}"),
        };
    }

    fn check(&self) {
        self.talk.check();
    }
}
