//! Authenticated messages on a connection between two replicas.
//!
//! Both ends derive a key for each direction from the secret and from the random bytes of both
//! (`proof.rs`), and number their messages. The code of a message covers its number, its length and
//! its bytes, so a message that is modified, replayed, dropped, reordered, or from another
//! connection or direction is rejected.
//!
//! ```text
//!   length (4 bytes) │ message │ code (32 bytes)
//! ```

use hmac::{Hmac, Mac};
use sha2::Sha256;

/// Length field before each message, in bytes.
pub(crate) const HEAD: usize = 4;

/// Length of the code after it, in bytes.
pub(crate) const CODE: usize = 32;

/// Key of one direction of a connection, and the number of the next message.
#[derive(Clone)]
pub struct Seal {
    key: [u8; 32],
    number: u64,
}

impl std::fmt::Debug for Seal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Seal(…, {})", self.number)
    }
}

/// Error for a message that was forged, replayed, reordered or truncated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forged;

impl Seal {
    pub(crate) fn new(key: [u8; 32]) -> Seal {
        Seal { key, number: 0 }
    }

    fn code(&self, message: &[u8]) -> Hmac<Sha256> {
        let mut code = Hmac::<Sha256>::new_from_slice(&self.key).expect("any length is a key");
        code.update(&self.number.to_le_bytes());
        code.update(&(message.len() as u64).to_le_bytes());
        code.update(message);
        code
    }

    /// Returns the framed length of a message, in bytes.
    pub(crate) fn framed(message: &[u8]) -> usize {
        HEAD + message.len() + CODE
    }

    /// Frames the next message.
    ///
    /// # Panics
    /// If the message is 4 GiB or longer.
    pub fn frame(&mut self, message: &[u8]) -> Vec<u8> {
        let length = u32::try_from(message.len()).expect("messages are cut");
        let code = self.code(message).finalize().into_bytes();
        self.number += 1;
        [&length.to_le_bytes()[..], message, &code].concat()
    }

    /// Verifies the first message of received bytes. Returns it with its framed length, or `None`
    /// if it is incomplete.
    ///
    /// # Errors
    /// If it is longer than `most`, or not authentic.
    pub(crate) fn open<'a>(
        &mut self,
        came: &'a [u8],
        most: usize,
    ) -> Result<Option<(&'a [u8], usize)>, Forged> {
        let Some((head, rest)) = came.split_first_chunk::<HEAD>() else { return Ok(None) };
        let length = u32::from_le_bytes(*head) as usize;
        if length > most {
            return Err(Forged);
        }
        let Some((message, behind)) = rest.split_at_checked(length) else { return Ok(None) };
        let Some(code) = behind.first_chunk::<CODE>() else { return Ok(None) };
        self.code(message).verify_slice(code).map_err(|_| Forged)?;
        self.number += 1;
        Ok(Some((message, HEAD + length + CODE)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: [u8; 32] = [5; 32];

    /// Returns the messages accepted from a stream.
    fn read(seal: &mut Seal, mut stream: &[u8]) -> Result<Vec<Vec<u8>>, Forged> {
        let mut messages = Vec::new();
        while let Some((message, taken)) = seal.open(stream, 100)? {
            messages.push(message.to_vec());
            stream = &stream[taken..];
        }
        Ok(messages)
    }

    fn frames(key: [u8; 32]) -> [Vec<u8>; 3] {
        let mut seal = Seal::new(key);
        ["ab", "", "cde"].map(|message| seal.frame(message.as_bytes()))
    }

    #[test]
    fn only_authentic_messages_are_accepted() {
        let [a, b, c] = frames(KEY);
        let whole = [&a[..], &b, &c].concat();
        let sent = vec![b"ab".to_vec(), b"".to_vec(), b"cde".to_vec()];
        assert_eq!(read(&mut Seal::new(KEY), &whole), Ok(sent));
        // A truncated message is incomplete and is not accepted.
        for cut in 0..c.len() {
            let some = read(&mut Seal::new(KEY), &[&a[..], &b, &c[..cut]].concat());
            assert_eq!(some.map(|messages| messages.len()), Ok(2));
        }
        // Flips every bit; a longer length of the last message makes it incomplete.
        for at in 0..whole.len() * 8 {
            let mut spoilt = whole.clone();
            spoilt[at / 8] ^= 1 << (at % 8);
            let taken = read(&mut Seal::new(KEY), &spoilt);
            assert!(taken.is_err() || taken.is_ok_and(|messages| messages.len() < 3), "bit {at}");
        }
    }

    #[test]
    fn repeated_moved_missing_and_other_messages_are_none() {
        let ([a, b, c], other) = (frames(KEY), frames([6; 32]));
        let wrong: [&[&[u8]]; 6] = [
            &[&a, &a],
            &[&b, &a],
            &[&a, &c],
            &[&a, &b, &c, &b],
            // Of another connection, or of the other direction.
            &[&other[0]],
            &[&a, &other[1]],
        ];
        for wrong in wrong {
            assert_eq!(read(&mut Seal::new(KEY), &wrong.concat()), Err(Forged), "{wrong:?}");
        }
        let long = Seal::new(KEY).frame(&[0; 101]);
        assert_eq!(read(&mut Seal::new(KEY), &long), Err(Forged), "too long");
    }
}
