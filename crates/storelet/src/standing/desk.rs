//! A desk: where somebody who may command the server says what is to be installed.
//!
//! It is an open file, as a storelet is. What is said is written to it, with the module behind it;
//! what came of that can be read.
//!
#![doc = include_str!("desk/states.md")]

use super::deed::{Deed, Plan};
use super::shelf::Filed;
use crate::compile::{Code, Fresh, Hash, Module, Refused};
use crate::domain::{self, talk::Talk};
use crate::maxima::Maxima;
use crate::order::{self, ORDER_MAX, Order, Wanted};
use base::{Automaton, Buf, Error, Instant};
use std::mem;
use tree::{Reply, RequestId};

/// What can happen to a desk.
#[derive(Debug)]
pub(crate) enum Input {
    /// Its owner writes.
    Write(RequestId, Buf),
    /// Its owner reads: at most so many bytes, with room in front of them.
    Read(RequestId, u32, u32),
    /// A request is not waited for any more.
    Cancel(RequestId),
    /// The module is compiled, or not.
    Compiled(Result<Fresh, Refused>),
    /// What was said is done, or not.
    Filed(Filed),
    /// It takes too long, or the server ends.
    Late,
    /// Its owner is gone.
    Gone,
}

/// What a desk can ask for.
#[derive(Debug)]
pub(crate) enum Output {
    /// The answer to its owner.
    Reply(RequestId, Result<Reply, Error>),
    /// Make such code of this; [`Input::Compiled`] follows.
    Compile(Module, Code),
    /// It need not be compiled any more.
    CancelCompile,
    /// Do this, with this module and its bytes if they were sent; [`Input::Filed`] follows.
    File(Deed, Option<(Hash, Option<Vec<u8>>)>),
}

/// What it waits for.
#[derive(Debug)]
enum State {
    /// For the rest of what is said.
    Received(Vec<u8>),
    /// For so many more bytes of the module.
    Filling(Box<Plan>, Vec<u8>, u64),
    /// For the module to be compiled; these are its bytes.
    Compiling(Box<Plan>, Option<Vec<u8>>),
    /// For what was said to be done.
    Filing,
    /// For somebody to read what came of it.
    Told,
    /// For an answer that nobody wants to know of.
    Leaving,
    /// For nothing.
    Over,
}

/// The desk automaton.
#[derive(Debug)]
pub(crate) struct Desk {
    state: State,
    talk: Talk,
    /// The most that a storelet is given.
    maxima: Maxima,
}

impl Desk {
    /// A desk where nothing was said, of a server that gives no more than this.
    pub(crate) fn new(maxima: Maxima) -> Desk {
        Desk { state: State::Received(Vec::new()), talk: Talk::default(), maxima }
    }

    /// Whether it waits for its owner to say something.
    pub(crate) fn is_spoken_to(&self) -> bool {
        matches!(self.state, State::Received(_) | State::Filling(..))
    }

    /// The state in one word.
    #[cfg(test)]
    pub(crate) fn state_name(&self) -> String {
        base::drawing::variant(&self.state)
    }

    /// Whether it can be forgotten.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }

    /// Whether somebody else owes it an answer.
    pub(crate) fn waits(&self) -> bool {
        matches!(self.state, State::Compiling(..) | State::Filing | State::Leaving)
    }

    /// Whether this request of its owner waits.
    pub(crate) fn is_asked(&self, id: RequestId) -> bool {
        self.talk.is_asked(id)
    }

    fn wrote(&mut self, state: State, data: Buf, out: &mut Vec<Output>) -> State {
        match state {
            State::Received(mut text) => {
                text.extend_from_slice(&data);
                let Some((lines, rest)) = order::parted(&text) else {
                    self.talk.begin(Order::wants_frames(&text), false);
                    let is_long = text.len() > ORDER_MAX;
                    return match is_long {
                        true => self.refuse("it is too long".to_string(), out),
                        false => State::Received(text),
                    };
                };
                self.talk.begin(Order::wants_frames(lines), false);
                match Deed::parse(lines, &self.maxima) {
                    Ok(Deed::Install(plan)) => self.ordered(plan, Buf::from(rest), out),
                    Ok(deed @ (Deed::Use(..) | Deed::Remove(_))) => {
                        out.push(Output::File(deed, None));
                        State::Filing
                    }
                    Err(why) => self.refuse(why, out),
                }
            }
            State::Filling(plan, mut module, left) => {
                let count = usize::try_from(left).unwrap_or(usize::MAX).min(data.len());
                module.extend_from_slice(&data[..count]);
                match left - count as u64 {
                    0 => {
                        let sent = Module::Sent(vec![Buf::from(&module[..])]);
                        self.compile(plan, sent, Some(module), out)
                    }
                    left => State::Filling(plan, module, left),
                }
            }
            // What is said behind the end goes nowhere.
            state @ (State::Compiling(..)
            | State::Filing
            | State::Told
            | State::Leaving
            | State::Over) => state,
        }
    }

    fn ordered(&mut self, plan: Box<Plan>, rest: Buf, out: &mut Vec<Output>) -> State {
        match plan.module() {
            Wanted::Known(hash) => {
                let known = Module::Known(*hash);
                self.compile(plan, known, None, out)
            }
            Wanted::Follows(length) => {
                let state = State::Filling(plan.clone(), Vec::new(), *length);
                self.wrote(state, rest, out)
            }
            Wanted::Standing(_) => unreachable!("what is installed has a module of its own"),
        }
    }

    fn compile(
        &mut self,
        plan: Box<Plan>,
        module: Module,
        sent: Option<Vec<u8>>,
        out: &mut Vec<Output>,
    ) -> State {
        out.push(Output::Compile(module, plan.order.budget.code()));
        let mut talked = Vec::new();
        self.talk.tell_state("compiling", &mut talked);
        pass_on(talked, out);
        State::Compiling(plan, sent)
    }

    fn refuse(&mut self, why: String, out: &mut Vec<Output>) -> State {
        self.tell(&Filed::not("refused", why), out)
    }

    fn compiled(
        &mut self,
        plan: Box<Plan>,
        sent: Option<Vec<u8>>,
        result: Result<Fresh, Refused>,
        out: &mut Vec<Output>,
    ) -> State {
        match result {
            Ok(fresh) => {
                out.push(Output::File(Deed::Install(plan), Some((fresh.hash, sent))));
                State::Filing
            }
            Err(refused @ Refused::Unknown) => {
                self.tell(&Filed::not("unknown", refused.to_string()), out)
            }
            Err(refused) => self.refuse(refused.to_string(), out),
        }
    }

    /// Says what came of it.
    fn tell(&mut self, filed: &Filed, out: &mut Vec<Output>) -> State {
        let json = serde_json::to_vec(filed).expect("texts");
        let text = match (&filed.reason, &filed.name, filed.version) {
            (Some(reason), ..) => format!("upcall: {}: {reason}\n", filed.end),
            (None, Some(name), Some(version)) => format!("{name}@{version}\n"),
            (None, name, _) => format!("{}: {}\n", name.as_deref().unwrap_or_default(), filed.end),
        };
        let mut talked = Vec::new();
        self.talk.close_with(json, &text, &mut talked);
        pass_on(talked, out);
        State::Told
    }

    fn leave(state: State, out: &mut Vec<Output>) -> State {
        match state {
            State::Received(_) | State::Filling(..) | State::Told => State::Over,
            State::Compiling(..) => {
                out.push(Output::CancelCompile);
                State::Leaving
            }
            State::Filing => State::Leaving,
            state @ (State::Leaving | State::Over) => unreachable!("{state:?} has no owner"),
        }
    }
}

/// What the talk answers.
fn pass_on(talked: Vec<domain::Output>, out: &mut Vec<Output>) {
    out.extend(talked.into_iter().map(|said| {
        let domain::Output::Reply(id, reply) = said else {
            unreachable!("nothing is run at a desk: {said:?}")
        };
        Output::Reply(id, reply)
    }));
}

impl Automaton for Desk {
    type Input = Input;
    type Output = Output;

    fn step(&mut self, _now: Instant, input: Input, out: &mut Vec<Output>) {
        let mut talked = Vec::new();
        let state = mem::replace(&mut self.state, State::Over);
        self.state = match (state, input) {
            (state, Input::Write(id, data)) => {
                let count = u32::try_from(data.len()).expect("one message");
                let state = self.wrote(state, data, out);
                // What was refused is told to whoever reads.
                self.talk.written(id, count, &mut talked);
                state
            }
            (state, Input::Read(id, count, headroom)) => {
                self.talk.read(id, count, headroom, &mut talked);
                state
            }
            (state, Input::Cancel(id)) => {
                self.talk.cancel(id, &mut talked);
                state
            }
            (State::Compiling(plan, sent), Input::Compiled(result)) => {
                self.compiled(plan, sent, result, out)
            }
            (State::Filing, Input::Filed(filed)) => self.tell(&filed, out),
            (State::Received(_) | State::Filling(..), Input::Late) => {
                self.refuse("it was not said in time".to_string(), out)
            }
            (
                state @ (State::Compiling(..)
                | State::Filing
                | State::Told
                | State::Leaving
                | State::Over),
                Input::Late,
            ) => state,
            (state, Input::Gone) => {
                self.talk.cancel_all(&mut talked);
                Desk::leave(state, out)
            }
            (State::Leaving, Input::Compiled(_) | Input::Filed(_)) => State::Over,
            // Each question is answered once.
            (state, input @ (Input::Compiled(_) | Input::Filed(_))) => {
                unreachable!("{input:?} in {state:?}")
            }
        };
        pass_on(talked, out);
    }

    fn check(&self) {
        match &self.state {
            State::Received(text) => assert!(text.len() <= ORDER_MAX, "more is refused"),
            State::Filling(_, _, left) => assert!(*left > 0, "some of the module is to come"),
            State::Compiling(..) | State::Filing | State::Told | State::Leaving | State::Over => {}
        }
        self.talk.check();
    }
}
