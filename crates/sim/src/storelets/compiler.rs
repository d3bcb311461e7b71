//! The compiler: it has latency, refuses modules, and forgets cancelled ones.

use super::environment::{Environment, ScheduledEvent};
use super::programs;
use base::op::Envelope;
use node::HOME;
use std::collections::{BTreeMap, BTreeSet};
use storelet::Crossing;
use storelet::compile::{Compiled, Fresh, Module, ToCompiler};
use wasi::{Code, Hash, Refused};

/// The compiler.
#[derive(Debug)]
pub(super) struct Compiler {
    number: usize,
    requested: BTreeMap<u64, Requested>,
    known: BTreeSet<(Hash, Code)>,
    ended: bool,
}

#[derive(Debug)]
struct Requested {
    result: Result<Fresh, Refused>,
    key: (base::Instant, u64),
}

impl Compiler {
    pub(super) fn new(number: usize) -> Compiler {
        Compiler { number, requested: BTreeMap::new(), known: BTreeSet::new(), ended: false }
    }

    /// Handles a message of home.
    pub(super) fn notified(&mut self, env: &mut Environment, envelope: Envelope) {
        match *envelope.0.downcast::<ToCompiler>().expect("it is a request to the compiler") {
            ToCompiler::Compile { ticket, module, code, .. } => {
                assert!(!self.ended, "it received the end");
                let result = self.compile(env, module, code);
                let at = env.within(env.params.compile_us);
                let key = env.schedule(at, ScheduledEvent::Compiled(ticket));
                let before = self.requested.insert(ticket, Requested { result, key });
                assert!(before.is_none(), "{ticket} is compiled already");
            }
            ToCompiler::Cancel(ticket) => {
                let late = env.rng.bool();
                let Some(requested) = self.requested.get_mut(&ticket) else { return };
                if !late {
                    env.remove(requested.key);
                    let at = env.within(10);
                    requested.key = env.schedule(at, ScheduledEvent::Compiled(ticket));
                    requested.result = Err(Refused::Cancelled);
                }
            }
            ToCompiler::End => self.ended = true,
        }
    }

    fn compile(
        &mut self,
        env: &mut Environment,
        module: Module,
        code: Code,
    ) -> Result<Fresh, Refused> {
        if env.one_in(env.params.refuse) {
            env.faults += 1;
            return Err(Refused::TooExpensive("it takes too long".to_string()));
        }
        let (hash, bytes) = match module {
            Module::Known(hash) if !self.known.contains(&(hash, code)) => {
                return Err(Refused::Unknown);
            }
            Module::Known(hash) => (hash, None),
            Module::Sent(parts) => {
                let bytes: Vec<u8> = parts.iter().flat_map(|part| part.to_vec()).collect();
                (Hash::of(&bytes), Some(bytes))
            }
        };
        if let Some(found) = programs::all().iter().find(|it| it.hash == hash) {
            let was_there = !self.known.insert((hash, code));
            let program = found.program.clone();
            let cpu_ns = env.rng.u64(..1_000_000);
            return Ok(Fresh { hash, code, program, was_there, cpu_ns });
        }
        wasi::module::prepare(&bytes.expect("a known hash is that of a program"))?;
        panic!("clients send the programs, and what is none")
    }

    /// Sends the result of a compilation.
    pub(super) fn send_home(&mut self, env: &mut Environment, ticket: u64) {
        let Requested { result, .. } = self.requested.remove(&ticket).expect("it was requested");
        let compiled = Crossing::Compiled(Compiled { ticket, result });
        env.post(self.number, env.now, HOME, compiled.envelope());
    }

    /// Returns whether no compilation is pending.
    pub(super) fn is_idle(&self) -> bool {
        self.requested.is_empty()
    }

    /// Returns whether it has ended.
    pub(super) fn is_over(&self) -> bool {
        self.ended && self.is_idle()
    }
}
