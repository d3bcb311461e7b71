//! The binary form of what replicas say to each other and write into their journals: postcard, the
//! format of <https://postcard.jamesmunns.com>, which is stable.
//!
//! Numbers are as long as they must be, variants of enums are numbers: *their order in the source
//! is part of the format*, so new ones come last.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// These bytes are not what they should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable(String);

impl std::fmt::Display for Unreadable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unreadable {}

/// The bytes of a value of this crate.
pub fn write(value: &impl Serialize) -> Vec<u8> {
    postcard::to_stdvec(value).expect("the types of this crate know their lengths, and Vec grows")
}

/// How many bytes [`write()`] makes.
pub fn size(value: &impl Serialize) -> usize {
    let counter = postcard::ser_flavors::Size::default();
    postcard::serialize_with_flavor(value, counter).expect("counting needs no room")
}

/// The value of these bytes, all of them.
pub fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Unreadable> {
    let (value, rest) =
        postcard::take_from_bytes(bytes).map_err(|error| Unreadable(error.to_string()))?;
    match rest.len() {
        0 => Ok(value),
        more => Err(Unreadable(format!("{more} bytes too many"))),
    }
}
