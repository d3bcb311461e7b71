//! Names of modules, kinds of compiled code, and reasons why a module cannot be run.

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

/// Kind of code to compile to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Code {
    /// Without metering.
    Plain,
    /// Metered code, which counts fuel and is slower.
    Metered,
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
