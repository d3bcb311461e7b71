//! Compilation: requests to the compiler, and their results.
//!
//! Compilation is where an untrusted module can do most harm: valid ones of a megabyte take half a
//! minute and gigabytes. So modules are compiled in a separate process with limits, and the result
//! is stored under the module's hash.

use crate::account::Account;
use base::Buf;
use std::fmt;
use wasi::{Code, Hash, Program, Refused};

/// A module to be run.
#[derive(Debug)]
pub enum Module {
    /// Hash of a module that is expected to be present in compiled form.
    Known(Hash),
    /// Its bytes.
    Sent(Vec<Buf>),
}

/// Requests to the compiler.
#[derive(Debug)]
pub enum ToCompiler {
    /// Compile a module, or look it up; exactly one [`Compiled`] with the ticket follows.
    Compile {
        /// Ticket, returned with the result.
        ticket: u64,
        /// The module.
        module: Module,
        /// Kind of code.
        code: Code,
        /// Account for fair queueing of compilations.
        account: Account,
    },
    /// Cancel a request; its result comes nevertheless, and soon.
    Cancel(u64),
    /// Terminate.
    End,
}

/// Result of a compilation.
#[derive(Debug)]
pub struct Compiled {
    /// Ticket of the request.
    pub ticket: u64,
    /// The program, or the reason why there is none.
    pub result: Result<Fresh, Refused>,
}

/// A module ready to run.
#[derive(Clone)]
pub struct Fresh {
    /// Hash of the module.
    pub hash: Hash,
    /// Kind of code.
    pub code: Code,
    /// The program, ready to be instantiated.
    pub program: Program,
    /// Whether the compiled code was already present.
    pub was_there: bool,
    /// Processor time of the compilation, ns.
    pub cpu_ns: u64,
}

impl fmt::Debug for Fresh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fresh({}, was_there: {})", self.hash, self.was_there)
    }
}

#[cfg(test)]
impl Fresh {
    /// A program without instructions, for tests.
    pub(crate) fn idle() -> Fresh {
        let engine = wasi::Engine::new(wasi::Pace::Fuel(1000)).expect("an engine");
        let wat = r#"(module (memory (export "memory") 1) (func (export "_start")))"#;
        let program = engine.compile(&wat::parse_str(wat).expect("it is text")).expect("it is one");
        let (hash, code) = (Hash([7; 32]), Code::Plain);
        Fresh { hash, code, program, was_there: false, cpu_ns: 5 }
    }
}
