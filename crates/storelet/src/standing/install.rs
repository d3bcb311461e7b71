//! An install session, in which an administrator changes the registry.
//!
//! A session is an open file, like a storelet. The request is written to it, followed by the
//! module; the result can be read.
//!
#![doc = include_str!("install/states.md")]

use super::registry::Filed;
use super::registry_change::{Plan, RegistryChange};
use crate::compile::{Fresh, Module};
use crate::domain::{self, streams::StreamBuffers};
use crate::maxima::Maxima;
use crate::run_spec::{self, ORDER_MAX, RunSpec, Wanted};
use base::{Automaton, Buf, Error, Instant};
use std::mem;
use tree::{Reply, RequestId};
use wasi::{Code, Hash, Refused};

/// Inputs of a session.
#[derive(Debug)]
pub(crate) enum Input {
    /// Write by the owner.
    Write(RequestId, Buf),
    /// Read by the owner: maximum number of bytes, and headroom in front of them.
    Read(RequestId, u32, u32),
    /// Cancellation of a request.
    Cancel(RequestId),
    /// Result of the compilation.
    Compiled(Result<Fresh, Refused>),
    /// Result of the change.
    Filed(Filed),
    /// Timeout of the request, or shutdown of the server.
    Late,
    /// The owner has closed the file.
    Gone,
}

/// Outputs of a session.
#[derive(Debug)]
pub(crate) enum Output {
    /// Reply to the owner.
    Reply(RequestId, Result<Reply, Error>),
    /// Compile the module to this kind of code; [`Input::Compiled`] follows.
    Compile(Module, Code),
    /// Cancel the compilation.
    CancelCompile,
    /// Apply the change, with the module and, if they were sent, its bytes; [`Input::Filed`]
    /// follows.
    File(RegistryChange, Option<(Hash, Option<Vec<u8>>)>),
}

/// State of a session.
#[derive(Debug)]
enum State {
    /// Waiting for the rest of the request.
    Received(Vec<u8>),
    /// Waiting for this many more bytes of the module.
    Filling(Box<Plan>, Vec<u8>, u64),
    /// Waiting for the compilation of the module; with its bytes.
    Compiling(Box<Plan>, Option<Vec<u8>>),
    /// Waiting for the change to be durable.
    Filing,
    /// Waiting for the owner to read the result and close the file.
    Reported,
    /// Waiting for a result to discard, after the owner has closed the file.
    Leaving,
    /// Finished.
    Over,
}

/// The session automaton.
#[derive(Debug)]
pub(crate) struct InstallSession {
    state: State,
    streams: StreamBuffers,
    /// Maximum budget of a storelet.
    maxima: Maxima,
}

impl InstallSession {
    /// Creates a session that has received nothing, with these maxima.
    pub(crate) fn new(maxima: Maxima) -> InstallSession {
        InstallSession {
            state: State::Received(Vec::new()),
            streams: StreamBuffers::default(),
            maxima,
        }
    }

    /// Returns whether it waits for data from its owner.
    pub(crate) fn is_spoken_to(&self) -> bool {
        matches!(self.state, State::Received(_) | State::Filling(..))
    }

    /// Returns the state as one word.
    #[cfg(test)]
    pub(crate) fn state_name(&self) -> String {
        base::drawing::variant(&self.state)
    }

    /// Returns whether it can be dropped.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }

    /// Returns whether a compilation or a change is outstanding.
    pub(crate) fn waits(&self) -> bool {
        matches!(self.state, State::Compiling(..) | State::Filing | State::Leaving)
    }

    /// Returns whether this request of the owner is pending.
    pub(crate) fn is_asked(&self, id: RequestId) -> bool {
        self.streams.is_asked(id)
    }

    fn wrote(&mut self, state: State, data: Buf, out: &mut Vec<Output>) -> State {
        match state {
            State::Received(mut text) => {
                text.extend_from_slice(&data);
                let Some((lines, rest)) = run_spec::parted(&text) else {
                    self.streams.begin(RunSpec::wants_frames(&text), false);
                    let is_long = text.len() > ORDER_MAX;
                    return match is_long {
                        true => self.refuse("it is too long".to_string(), out),
                        false => State::Received(text),
                    };
                };
                self.streams.begin(RunSpec::wants_frames(lines), false);
                match RegistryChange::parse(lines, &self.maxima) {
                    Ok(RegistryChange::Install(plan)) => self.ordered(plan, Buf::from(rest), out),
                    Ok(registry_change @ (RegistryChange::Use(..) | RegistryChange::Remove(_))) => {
                        out.push(Output::File(registry_change, None));
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
            // Data after the end is discarded.
            state @ (State::Compiling(..)
            | State::Filing
            | State::Reported
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
            Wanted::Standing(_) => unreachable!("an installed program has a module of its own"),
        }
    }

    fn compile(
        &mut self,
        plan: Box<Plan>,
        module: Module,
        sent: Option<Vec<u8>>,
        out: &mut Vec<Output>,
    ) -> State {
        out.push(Output::Compile(module, plan.run_spec.budget.code()));
        let mut talked = Vec::new();
        self.streams.tell_state("compiling", &mut talked);
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
                out.push(Output::File(RegistryChange::Install(plan), Some((fresh.hash, sent))));
                State::Filing
            }
            Err(refused @ Refused::Unknown) => {
                self.tell(&Filed::not("unknown", refused.to_string()), out)
            }
            Err(refused) => self.refuse(refused.to_string(), out),
        }
    }

    /// Publishes the result.
    fn tell(&mut self, filed: &Filed, out: &mut Vec<Output>) -> State {
        let json = serde_json::to_vec(filed).expect("texts");
        let text = match (&filed.reason, &filed.name, filed.version) {
            (Some(reason), ..) => format!("upcall: {}: {reason}\n", filed.end),
            (None, Some(name), Some(version)) => format!("{name}@{version}\n"),
            (None, name, _) => format!("{}: {}\n", name.as_deref().unwrap_or_default(), filed.end),
        };
        let mut talked = Vec::new();
        self.streams.close_with(json, &text, &mut talked);
        pass_on(talked, out);
        State::Reported
    }

    fn leave(state: State, out: &mut Vec<Output>) -> State {
        match state {
            State::Received(_) | State::Filling(..) | State::Reported => State::Over,
            State::Compiling(..) => {
                out.push(Output::CancelCompile);
                State::Leaving
            }
            State::Filing => State::Leaving,
            state @ (State::Leaving | State::Over) => unreachable!("{state:?} has no owner"),
        }
    }
}

/// Forwards the replies of the stream.
fn pass_on(talked: Vec<domain::Output>, out: &mut Vec<Output>) {
    out.extend(talked.into_iter().map(|emitted| {
        let domain::Output::Reply(id, reply) = emitted else {
            unreachable!("an install session runs nothing: {emitted:?}")
        };
        Output::Reply(id, reply)
    }));
}

impl Automaton for InstallSession {
    type Input = Input;
    type Output = Output;

    fn step(&mut self, _now: Instant, input: Input, out: &mut Vec<Output>) {
        let mut talked = Vec::new();
        let state = mem::replace(&mut self.state, State::Over);
        self.state = match (state, input) {
            (state, Input::Write(id, data)) => {
                let count = u32::try_from(data.len()).expect("one message");
                let state = self.wrote(state, data, out);
                // The reader receives the reason of a refusal.
                self.streams.written(id, count, &mut talked);
                state
            }
            (state, Input::Read(id, count, headroom)) => {
                self.streams.read(id, count, headroom, &mut talked);
                state
            }
            (state, Input::Cancel(id)) => {
                self.streams.cancel(id, &mut talked);
                state
            }
            (State::Compiling(plan, sent), Input::Compiled(result)) => {
                self.compiled(plan, sent, result, out)
            }
            (State::Filing, Input::Filed(filed)) => self.tell(&filed, out),
            (State::Received(_) | State::Filling(..), Input::Late) => {
                self.refuse("timed out waiting for the request".to_string(), out)
            }
            (
                state @ (State::Compiling(..)
                | State::Filing
                | State::Reported
                | State::Leaving
                | State::Over),
                Input::Late,
            ) => state,
            (state, Input::Gone) => {
                self.streams.cancel_all(&mut talked);
                InstallSession::leave(state, out)
            }
            (State::Leaving, Input::Compiled(_) | Input::Filed(_)) => State::Over,
            // Each request has one reply.
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
            State::Compiling(..)
            | State::Filing
            | State::Reported
            | State::Leaving
            | State::Over => {}
        }
        self.streams.check();
    }
}
