//! Compiling: what is asked of whoever compiles modules, and what comes of it.
//!
//! Compiling is where a stranger's module can do most harm: valid ones of a megabyte take half a
//! minute and gigabytes. So it is done elsewhere, in a process of its own with limits, and what it
//! gives is kept under the module's hash.

use crate::Program;
use crate::crossing::Account;
use base::Buf;
use sha2::{Digest as _, Sha256};
use std::fmt;
use std::str::FromStr;

/// Names a module by what it contains: SHA-256 of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hash(pub [u8; 32]);

impl Hash {
    /// The name of a module.
    pub fn of(module: &[u8]) -> Hash {
        Hash(Sha256::digest(module).into())
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A text is not the name of a module.
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

/// A module, as whoever wants to run it says it.
#[derive(Debug)]
pub enum Module {
    /// It was compiled before.
    Known(Hash),
    /// These are its bytes.
    Sent(Vec<Buf>),
}

/// What code is made of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Code {
    /// Code that counts nothing.
    Plain,
    /// Code that counts what it does, and takes longer.
    Metered,
}

/// What whoever compiles is asked.
#[derive(Debug)]
pub enum ToCompiler {
    /// To compile a module, or to find it; exactly one [`Compiled`] with the ticket follows.
    Compile {
        /// Comes back with the result.
        ticket: u64,
        /// Which.
        module: Module,
        /// What is to be made of it.
        code: Code,
        /// The account that it is for: compilations are queued fairly by account.
        account: Account,
    },
    /// Nobody waits for this result any more; it comes all the same, and soon.
    Cancel(u64),
    /// To end.
    End,
}

/// What came of it.
#[derive(Debug)]
pub struct Compiled {
    /// Whose.
    pub ticket: u64,
    /// What.
    pub result: Result<Fresh, Refused>,
}

/// A module that can be run.
#[derive(Clone)]
pub struct Fresh {
    /// Its name.
    pub hash: Hash,
    /// What was made of it.
    pub code: Code,
    /// It, ready to be instantiated.
    pub program: Program,
    /// Whether it was there already, compiled.
    pub was_there: bool,
    /// Processor time that compiling took, ns.
    pub cpu_ns: u64,
}

impl fmt::Debug for Fresh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fresh({}, was_there: {})", self.hash, self.was_there)
    }
}

#[cfg(test)]
impl Fresh {
    /// A program that does nothing, for tests.
    pub(crate) fn idle() -> Fresh {
        let engine = crate::Engine::new(crate::Pace::Fuel(1000)).expect("an engine");
        let wat = r#"(module (memory (export "memory") 1) (func (export "_start")))"#;
        let program = engine.compile(&wat::parse_str(wat).expect("it is text")).expect("it is one");
        let (hash, code) = (Hash([7; 32]), Code::Plain);
        Fresh { hash, code, program, was_there: false, cpu_ns: 5 }
    }
}

/// Why a module cannot be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// No module of this name is here: send it.
    Unknown,
    /// It is none, or one for something else: why.
    Malformed(String),
    /// It is larger in some way than modules may be: in which.
    TooLarge(String),
    /// Compiling it takes more time or memory than it may: which.
    TooExpensive(String),
    /// The server could not: why.
    Failed(String),
    /// Nobody wanted it any more.
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
            Refused::Cancelled => f.write_str("nobody wanted it any more"),
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
