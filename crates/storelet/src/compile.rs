//! Compilation: requests to the compiler, and their results.
//!
//! Compilation is where an untrusted module can do most harm: valid ones of a megabyte take half a
//! minute and gigabytes. So modules are compiled in a separate process with limits, and the result
//! is stored under the module's hash.

use crate::Program;
use crate::crossing::Account;
use base::Buf;
use sha2::{Digest as _, Sha256};
use std::fmt;
use std::str::FromStr;

/// Content hash that identifies a module: SHA-256 of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hash(pub [u8; 32]);

impl Hash {
    /// Computes the hash of a module.
    pub fn of(module: &[u8]) -> Hash {
        Hash(Sha256::digest(module).into())
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Error for text that is not a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoHash;

impl FromStr for Hash {
    type Err = NoHash;

    fn from_str(text: &str) -> Result<Hash, NoHash> {
        let bytes = text.as_bytes();
        let nibble = |byte: u8| char::from(byte).to_digit(16).ok_or(NoHash);
        if bytes.len() != 64 {
            return Err(NoHash);
        }
        let mut hash = [0; 32];
        for (at, pair) in hash.iter_mut().zip(bytes.chunks_exact(2)) {
            *at = (nibble(pair[0])? << 4 | nibble(pair[1])?) as u8;
        }
        Ok(Hash(hash))
    }
}

/// A module to be run.
#[derive(Debug)]
pub enum Module {
    /// Hash of a module that is expected to be present in compiled form.
    Known(Hash),
    /// Its bytes.
    Sent(Vec<Buf>),
}

/// Kind of code to compile to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Code {
    /// Without metering.
    Plain,
    /// Metered code, which counts fuel and is slower.
    Metered,
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
        let engine = crate::Engine::new(crate::Pace::Fuel(1000)).expect("an engine");
        let wat = r#"(module (memory (export "memory") 1) (func (export "_start")))"#;
        let program = engine.compile(&wat::parse_str(wat).expect("it is text")).expect("it is one");
        let (hash, code) = (Hash([7; 32]), Code::Plain);
        Fresh { hash, code, program, was_there: false, cpu_ns: 5 }
    }
}

/// Reason why a module cannot be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// No module with this hash is present: send it.
    Unknown,
    /// Invalid, or not a program: details.
    Malformed(String),
    /// Exceeds a size limit of modules: which.
    TooLarge(String),
    /// Compilation exceeds its limit of time or memory: which.
    TooExpensive(String),
    /// Failure of the server: details.
    Failed(String),
    /// The request was cancelled.
    Cancelled,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Unknown => f.write_str("no module of this name is here: send it"),
            Refused::Malformed(why) => write!(f, "the module cannot be run: {why}"),
            Refused::TooLarge(what) => write!(f, "the module is too large: {what}"),
            Refused::TooExpensive(what) => write!(f, "the module is too expensive: {what}"),
            Refused::Failed(why) => write!(f, "the server could not compile it: {why}"),
            Refused::Cancelled => f.write_str("cancelled"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_64_hexadecimal_digits() {
        let hash = Hash(std::array::from_fn(|index| index as u8 * 7));
        assert_eq!(hash.to_string().parse(), Ok(hash));
        assert_eq!("12".parse::<Hash>(), Err(NoHash));
        assert_eq!("é".repeat(32).parse::<Hash>(), Err(NoHash));
    }
}
