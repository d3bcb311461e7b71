//! A domain: one storelet from the view of its owner, from order to report.
//!
//! The owner writes an order, the module if the server does not have it, and input; and reads the
//! storelet's output. The execution on a worker is a machine of its own
//! ([`execution`](crate::execution)).
//!
//! An order can name installed storelets instead of a module, and several of them form a
//! [chain](pipe): the domain then is the whole chain, which starts and ends as one.
//!
#![doc = include_str!("domain/states.md")]

mod pipe;
pub(crate) mod streams;
#[cfg(test)]
mod tests;

use crate::compile::{Fresh, Module};
use crate::maxima::Maxima;
use crate::report::Report;
use crate::run_spec::{self, ORDER_MAX, RunSpec, Wanted};
use base::{Automaton, Buf, Error, Instant};
use pipe::Pipe;
use std::mem;
use std::time::Duration;
use streams::StreamBuffers;
use tree::{Reply, RequestId};
use wasi::{Code, Reason, Refused, Stream};

/// Initial allocation for a module being received, bytes; untouched pages cost no memory.
const MODULE_ROOM: u64 = 4 << 20;

/// Time limit for the owner to send order and module.
pub(crate) const ORDER_TIME: Duration = Duration::from_secs(120);

/// Maximum retained prefix of standard error, bytes.
pub(crate) const COMPLAINT_MAX: usize = 1 << 10;

/// One storelet of a chain to run.
#[derive(Clone, Debug)]
pub(crate) struct Stage {
    /// Name for reports.
    pub(crate) called: String,
    /// The resolved order: without names of installed storelets.
    pub(crate) run_spec: RunSpec,
}

/// Inputs of a domain.
#[derive(Debug)]
pub(crate) enum Input {
    /// Write by the owner.
    Write(RequestId, Buf),
    /// Read by the owner: maximum number of bytes, and headroom in front of them.
    Read(RequestId, u32, u32),
    /// Cancellation of a request.
    Cancel(RequestId),
    /// The installed storelets that the order names, or the reason why they cannot run.
    Resolved(Result<Vec<Stage>, String>),
    /// Start of a chain by the server, as an owner without a stream.
    Begin(Vec<Stage>),
    /// Result of a compilation.
    Compiled(Result<Fresh, Refused>),
    /// Memory is allocated: start running.
    Admitted,
    /// The chain can never be admitted: reason.
    Refused(String),
    /// Output of the storelet at this position of the chain.
    Emitted(usize, Stream, Vec<u8>),
    /// Number of input bytes that the storelet at this position has consumed.
    Eaten(usize, usize),
    /// End of the storelet at this position.
    Ended(usize, Box<Report>),
    /// Kill the chain.
    Kill(Reason),
    /// The owner has closed the file.
    Gone,
}

/// Outputs of a domain.
#[derive(Debug)]
pub(crate) enum Output {
    /// Reply to the owner.
    Reply(RequestId, Result<Reply, Error>),
    /// Look up the installed storelets of this order; [`Input::Resolved`] follows.
    Resolve(Box<RunSpec>),
    /// Compile a module to this kind of code; [`Input::Compiled`] follows.
    Compile(Module, Code),
    /// Cancel the compilation.
    CancelCompile,
    /// Enqueue it for admission; [`Input::Admitted`] follows unless it is dequeued.
    Enqueue,
    /// Remove it from the admission queue.
    Dequeue,
    /// Run the chain; [`Input::Ended`] follows for each of its storelets.
    Begin(Vec<(RunSpec, Fresh)>),
    /// Feed input to the storelet at this position; empty at the end of the stream.
    Feed(usize, Vec<u8>),
    /// Number of output bytes that were consumed, of the storelet at this position.
    Taken(usize, usize),
    /// Kill the storelet at this position.
    Kill(usize, Reason),
    /// The domain has ended: report, and the beginning of standard error.
    Over(Box<Report>, Vec<u8>),
}

/// A chain being compiled, one module after the other.
#[derive(Debug)]
struct Chain {
    stages: Vec<Stage>,
    fresh: Vec<Fresh>,
}

/// State of a domain.
#[derive(Debug)]
enum State {
    /// Waiting for the rest of the order.
    Received(Vec<u8>),
    /// Waiting for the lookup of the installed storelets that the order names.
    Naming,
    /// Waiting for this many more bytes of the module.
    Filling(Box<RunSpec>, Vec<u8>, u64),
    /// Waiting for the compilation of the next module; with a reason, if the chain is killed
    /// already.
    Compiling(Chain, Option<Reason>),
    /// Waiting for memory.
    Ready(Chain),
    /// Waiting for the end of the chain, which runs on workers.
    Running(Pipe),
    /// Waiting for the owner to read the report and close the file.
    Ended,
    /// Waiting for a compilation that was cancelled.
    Dropping,
    /// Waiting for the end of the chain, after the owner has closed the file.
    Leaving(Pipe),
    /// Finished.
    Over,
}

/// The domain automaton.
#[derive(Debug)]
pub(crate) struct Domain {
    state: State,
    streams: StreamBuffers,
    /// Maximum budget of each storelet.
    maxima: Maxima,
    /// Start of the domain, and time until it ran, ns.
    since: Instant,
    waited_ns: u64,
    /// Size of a received module that is not compiled yet, bytes.
    sent: usize,
    /// Hash of the module, if there is only one, and processor time of compilations, ns.
    module: Option<wasi::Hash>,
    compile_ns: u64,
    /// Whether it ends before running: the order only checks whether it could run.
    check: bool,
    /// Beginning of standard error.
    complaint: Vec<u8>,
}

impl Domain {
    /// Creates a domain that has received nothing, with these maxima.
    pub(crate) fn new(now: Instant, maxima: Maxima) -> Domain {
        let (state, streams) = (State::Received(Vec::new()), StreamBuffers::default());
        let (module, compile_ns, complaint) = (None, 0, Vec::new());
        let (waited_ns, sent, check) = (0, 0, false);
        Domain {
            state,
            streams,
            maxima,
            since: now,
            waited_ns,
            sent,
            module,
            compile_ns,
            check,
            complaint,
        }
    }

    /// Returns the size of the module received so far, bytes.
    pub(crate) fn module_bytes(&self) -> usize {
        match &self.state {
            State::Filling(_, module, _) => module.len(),
            State::Received(_)
            | State::Naming
            | State::Compiling(..)
            | State::Ready(_)
            | State::Running(_)
            | State::Ended
            | State::Dropping
            | State::Leaving(_)
            | State::Over => self.sent,
        }
    }

    /// Returns the deadline for the owner to complete order and module.
    pub(crate) fn due(&self) -> Option<Instant> {
        let speaks = matches!(self.state, State::Received(_) | State::Filling(..));
        speaks.then(|| self.since + ORDER_TIME)
    }

    /// Returns whether the buffered input is at its limit.
    pub(crate) fn is_full(&self) -> bool {
        self.streams.is_full()
    }

    /// Returns whether this request of the owner is pending.
    pub(crate) fn is_asked(&self, id: RequestId) -> bool {
        self.streams.is_asked(id)
    }

    /// Returns whether it can be dropped.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }

    /// Returns whether it has ended from the view of others.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.state, State::Ended | State::Over)
    }

    /// Returns the orders of all stages, if the domain waits for admission.
    pub(crate) fn wanted(&self) -> Option<Vec<&RunSpec>> {
        match &self.state {
            State::Ready(chain) => Some(chain.stages.iter().map(|stage| &stage.run_spec).collect()),
            State::Received(_)
            | State::Naming
            | State::Filling(..)
            | State::Compiling(..)
            | State::Running(_)
            | State::Ended
            | State::Dropping
            | State::Leaving(_)
            | State::Over => None,
        }
    }

    /// Returns the state as one word.
    pub(crate) fn state_name(&self) -> &'static str {
        match self.state {
            State::Received(_) | State::Naming | State::Filling(..) => "received",
            State::Compiling(..) => "compiling",
            State::Ready(_) => "ready",
            State::Running(_) => "running",
            State::Ended => "done",
            State::Dropping | State::Leaving(_) => "leaving",
            State::Over => "over",
        }
    }

    /// Processes data written by the owner as far as possible.
    fn wrote(&mut self, state: State, data: Buf, out: &mut Vec<Output>) -> State {
        match state {
            State::Received(mut text) => {
                text.extend_from_slice(&data);
                let Some((lines, rest)) = run_spec::parted(&text) else {
                    return match text.len() > ORDER_MAX {
                        true => {
                            self.streams.begin(RunSpec::wants_frames(&text), false);
                            self.refuse("the order is too long".to_string(), out)
                        }
                        false => State::Received(text),
                    };
                };
                match RunSpec::parse_within(lines, &self.maxima) {
                    Ok(run_spec) => self.ordered(Box::new(run_spec), Buf::from(rest), out),
                    Err(why) => {
                        self.streams.begin(RunSpec::wants_frames(lines), false);
                        self.refuse(why, out)
                    }
                }
            }
            State::Filling(run_spec, mut module, left) => {
                let count = usize::try_from(left).unwrap_or(usize::MAX).min(data.len());
                assert!(left > 0, "something of the module is still to come");
                if module.capacity() - module.len() < count {
                    // Most modules fit at once: repeated growth would leave holes in memory.
                    let more = left.min(MODULE_ROOM.max(module.len() as u64));
                    let more = usize::try_from(more).map_or(count, |more| more.max(count));
                    if module.try_reserve_exact(more).is_err() {
                        let why = "the server has no memory for the module: try again";
                        return self.refuse(why.to_string(), out);
                    }
                }
                module.extend_from_slice(&data[..count]);
                let rest = Buf::from(&data[count..]);
                let left = left - count as u64;
                if left > 0 {
                    return State::Filling(run_spec, module, left);
                }
                self.sent = module.len();
                let sent = Module::Sent(vec![Buf::from(module)]);
                let state = self.compile_own(run_spec, sent, out);
                self.wrote(state, rest, out)
            }
            state
            @ (State::Naming | State::Compiling(..) | State::Ready(_) | State::Running(_)) => {
                let fed = self.streams.take_input(&data);
                if matches!(state, State::Running(_)) {
                    out.extend(fed.into_iter().map(|bytes| Output::Feed(0, bytes)));
                } else {
                    self.streams.hold(fed);
                }
                state
            }
            // Discard what comes after the end.
            state @ (State::Ended | State::Dropping | State::Leaving(_) | State::Over) => state,
        }
    }

    fn ordered(&mut self, run_spec: Box<RunSpec>, rest: Buf, out: &mut Vec<Output>) -> State {
        self.streams.begin(run_spec.frames, run_spec.input);
        self.check = run_spec.check;
        let state = match run_spec.module {
            Wanted::Known(hash) => self.compile_own(run_spec, Module::Known(hash), out),
            Wanted::Follows(length) => State::Filling(run_spec, Vec::new(), length),
            Wanted::Standing(_) => {
                out.push(Output::Resolve(run_spec));
                State::Naming
            }
        };
        self.wrote(state, rest, out)
    }

    /// Compiles a module that the owner named or sent.
    fn compile_own(
        &mut self,
        run_spec: Box<RunSpec>,
        module: Module,
        out: &mut Vec<Output>,
    ) -> State {
        self.streams.tell_state("compiling", out);
        out.push(Output::Compile(module, run_spec.budget.code()));
        let stages = vec![Stage { called: "it".to_string(), run_spec: *run_spec }];
        State::Compiling(Chain { stages, fresh: Vec::new() }, None)
    }

    /// Compiles the next module of a chain; after the last one, waits for memory.
    fn go_on(&mut self, chain: Chain, out: &mut Vec<Output>) -> State {
        assert!(chain.fresh.len() <= chain.stages.len(), "each module is compiled once");
        match chain.stages.get(chain.fresh.len()) {
            Some(Stage { run_spec, .. }) => {
                let Wanted::Known(hash) = run_spec.module else {
                    unreachable!("an installed program is known by its hash")
                };
                out.push(Output::Compile(Module::Known(hash), run_spec.budget.code()));
                State::Compiling(chain, None)
            }
            None if self.check => self.end(Report::checked(), out),
            None => {
                self.streams.tell_state("waiting for memory", out);
                out.push(Output::Enqueue);
                State::Ready(chain)
            }
        }
    }

    fn resolved(&mut self, resolved: Result<Vec<Stage>, String>, out: &mut Vec<Output>) -> State {
        match resolved {
            Ok(mut stages) => {
                for Stage { run_spec, .. } in &mut stages {
                    run_spec.budget = self.maxima.within(run_spec.budget);
                }
                self.streams.tell_state("compiling", out);
                self.go_on(Chain { stages, fresh: Vec::new() }, out)
            }
            Err(why) => self.end(Report::unknown(why), out),
        }
    }

    fn refuse(&mut self, why: String, out: &mut Vec<Output>) -> State {
        self.end(Report::refused(why), out)
    }

    /// Closes the output with the report.
    fn end(&mut self, report: Report, out: &mut Vec<Output>) -> State {
        let report = self.complete(report, out);
        self.streams.close(&report, out);
        State::Ended
    }

    /// Completes the report and publishes it to the run history.
    fn complete(&mut self, mut report: Report, out: &mut Vec<Output>) -> Report {
        (report.waited_ns, report.compile_ns) = (self.waited_ns, self.compile_ns);
        report.module = self.module.map(|hash| hash.to_string());
        out.push(Output::Over(Box::new(report.clone()), mem::take(&mut self.complaint)));
        report
    }

    fn compiled(
        &mut self,
        mut chain: Chain,
        doomed: Option<Reason>,
        result: Result<Fresh, Refused>,
        out: &mut Vec<Output>,
    ) -> State {
        self.sent = 0;
        let is_chain = chain.stages.len() > 1;
        if let Ok(fresh) = &result {
            self.module = Some(fresh.hash).filter(|_| !is_chain);
            self.compile_ns += fresh.cpu_ns;
        }
        match (doomed, result) {
            (Some(reason), _) => self.end(Report::killed(reason), out),
            (None, Err(refused)) => {
                let stage = chain.stages.get(chain.fresh.len()).filter(|_| is_chain);
                let stage = stage.map(|stage| stage.called.clone());
                self.end(Report { stage, ..Report::of_refusal(&refused) }, out)
            }
            (None, Ok(fresh)) => {
                chain.fresh.push(fresh);
                self.go_on(chain, out)
            }
        }
    }

    fn begin(&mut self, now: Instant, chain: Chain, out: &mut Vec<Output>) -> State {
        assert_eq!(chain.fresh.len(), chain.stages.len(), "all modules are compiled");
        self.waited_ns = now.0 - self.since.0;
        self.streams.tell_state("running", out);
        let Chain { stages, fresh } = chain;
        let pipe = Pipe::new(stages.iter().map(|stage| stage.called.clone()));
        let run_specs = stages.into_iter().map(|stage| stage.run_spec).enumerate();
        let fed = |(place, run_spec): (usize, RunSpec)| RunSpec {
            input: run_spec.input || place > 0,
            ..run_spec
        };
        out.push(Output::Begin(run_specs.map(fed).zip(fresh).collect()));
        out.extend(self.streams.held().into_iter().map(|bytes| Output::Feed(0, bytes)));
        State::Running(pipe)
    }

    fn emitted(
        &mut self,
        pipe: &Pipe,
        (stage, stream): (usize, Stream),
        bytes: Vec<u8>,
        out: &mut Vec<Output>,
    ) {
        if stream == Stream::Error {
            assert!(self.complaint.len() <= COMPLAINT_MAX, "a complaint is limited");
            let room = COMPLAINT_MAX - self.complaint.len();
            self.complaint.extend_from_slice(&bytes[..room.min(bytes.len())]);
        }
        match stream {
            Stream::Output if !pipe.is_last(stage) => pipe.pass_on(stage, bytes, out),
            Stream::Output | Stream::Error => self.streams.append(stage, stream, bytes, out),
        }
    }

    /// Accounts for input that the storelet at this position has consumed.
    fn eaten(&mut self, stage: usize, count: usize, out: &mut Vec<Output>) {
        match stage.checked_sub(1) {
            Some(before) => out.push(Output::Taken(before, count)),
            None => self.streams.eaten(count, out),
        }
    }

    /// Kills the chain.
    fn kill(&mut self, state: State, reason: Reason, out: &mut Vec<Output>) -> State {
        match state {
            State::Received(_) | State::Filling(..) => self.end(Report::killed(reason), out),
            State::Compiling(chain, _) => {
                out.push(Output::CancelCompile);
                State::Compiling(chain, Some(reason))
            }
            State::Ready(_) => {
                out.push(Output::Dequeue);
                self.end(Report::killed(reason), out)
            }
            State::Running(pipe) => {
                pipe.kill(reason, out);
                State::Running(pipe)
            }
            state @ (State::Ended | State::Dropping | State::Leaving(_)) => state,
            state @ (State::Naming | State::Over) => unreachable!("killed in {state:?}"),
        }
    }

    /// Handles the close of the file by the owner: the result is discarded.
    fn leave(&mut self, state: State, out: &mut Vec<Output>) -> State {
        self.streams.cancel_all(out);
        self.streams.mute();
        match state {
            State::Received(_) | State::Filling(..) | State::Ended => State::Over,
            State::Compiling(..) => {
                out.push(Output::CancelCompile);
                State::Dropping
            }
            State::Ready(_) => {
                out.push(Output::Dequeue);
                State::Over
            }
            State::Running(pipe) => {
                pipe.kill(Reason::Cancelled, out);
                State::Leaving(pipe)
            }
            state @ (State::Naming | State::Dropping | State::Leaving(_) | State::Over) => {
                unreachable!("{state:?} has no owner")
            }
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
            | State::Naming
            | State::Filling(..)
            | State::Compiling(..)
            | State::Ready(_)
            | State::Running(_)
            | State::Dropping
            | State::Leaving(_)
            | State::Over => self.streams.written(id, written, out),
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
                self.streams.read(id, count, headroom, out);
                state
            }
            (state, Input::Cancel(id)) => {
                self.streams.cancel(id, out);
                state
            }
            (State::Received(_), Input::Begin(stages)) => {
                self.streams.mute();
                self.resolved(Ok(stages), out)
            }
            (State::Naming, Input::Resolved(resolved)) => self.resolved(resolved, out),
            (State::Compiling(chain, doomed), Input::Compiled(result)) => {
                self.compiled(chain, doomed, result, out)
            }
            (State::Ready(chain), Input::Admitted) => self.begin(now, chain, out),
            (State::Ready(_), Input::Refused(why)) => self.refuse(why, out),
            (State::Running(pipe), Input::Emitted(stage, stream, bytes)) => {
                self.emitted(&pipe, (stage, stream), bytes, out);
                State::Running(pipe)
            }
            (State::Running(pipe), Input::Eaten(stage, count)) => {
                self.eaten(stage, count, out);
                State::Running(pipe)
            }
            (State::Running(mut pipe), Input::Ended(stage, report)) => {
                match pipe.ended(stage, *report, out) {
                    Some(report) => self.end(report, out),
                    None => State::Running(pipe),
                }
            }
            (State::Leaving(mut pipe), Input::Ended(stage, report)) => {
                match pipe.ended(stage, *report, out) {
                    Some(report) => {
                        self.complete(report, out);
                        State::Over
                    }
                    None => State::Leaving(pipe),
                }
            }
            (state, Input::Kill(reason)) => self.kill(state, reason, out),
            (state, Input::Gone) => self.leave(state, out),
            (State::Dropping, Input::Compiled(_)) => State::Over,
            (state @ (State::Leaving(_) | State::Ended), Input::Emitted(..) | Input::Eaten(..)) => {
                state
            }
            // Each request has one reply, and finished domains make none.
            (
                state,
                input @ (Input::Resolved(_)
                | Input::Begin(_)
                | Input::Compiled(_)
                | Input::Admitted
                | Input::Refused(_)
                | Input::Emitted(..)
                | Input::Eaten(..)
                | Input::Ended(..)),
            ) => unreachable!("{input:?} in {state:?}"),
        };
    }

    fn check(&self) {
        self.streams.check();
        assert!(self.complaint.len() <= COMPLAINT_MAX, "a complaint is limited");
        match &self.state {
            State::Received(text) => assert!(text.len() <= ORDER_MAX, "an order is limited"),
            State::Filling(_, _, left) => assert!(*left > 0, "something is still to come"),
            State::Compiling(chain, _) => {
                assert!(chain.fresh.len() < chain.stages.len(), "a module is being compiled");
            }
            State::Ready(chain) => {
                assert_eq!(chain.fresh.len(), chain.stages.len(), "all modules are compiled");
            }
            State::Ended | State::Over => assert_eq!(self.sent, 0, "sent buffers are not kept"),
            State::Naming | State::Running(_) | State::Dropping | State::Leaving(_) => {}
        }
    }
}
