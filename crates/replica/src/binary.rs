//! Binary encoding of replica messages and journal records: postcard, the stable format of
//! <https://postcard.jamesmunns.com>.
//!
//! Integers have variable length and enum variants are encoded as numbers, so *their order in the
//! source is part of the format*: append new variants.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Error for malformed binary input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable(String);

impl std::fmt::Display for Unreadable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unreadable {}

/// Encodes a value.
pub fn write(value: &impl Serialize) -> Vec<u8> {
    postcard::to_stdvec(value).expect("the types of this crate know their lengths, and Vec grows")
}

/// Returns the number of bytes that [`write()`] produces.
pub fn size(value: &impl Serialize) -> usize {
    let counter = postcard::ser_flavors::Size::default();
    postcard::serialize_with_flavor(value, counter).expect("counting needs no room")
}

/// Decodes a value that must occupy all of `bytes`.
pub fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Unreadable> {
    let (value, rest) =
        postcard::take_from_bytes(bytes).map_err(|error| Unreadable(error.to_string()))?;
    match rest.len() {
        0 => Ok(value),
        more => Err(Unreadable(format!("{more} bytes too many"))),
    }
}
