//! Byte strings of clients.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::de::{Error, MapAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// Byte string of a client: a key, a value or a record. Clones share the allocation.
///
/// JSON form: a string, or `{"base64": "…"}` if the bytes are not valid UTF-8.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(Arc<[u8]>);

impl Bytes {
    /// Returns the bytes as text if they are valid UTF-8.
    pub fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl From<&[u8]> for Bytes {
    fn from(bytes: &[u8]) -> Bytes {
        Bytes(bytes.into())
    }
}

impl<const N: usize> From<[u8; N]> for Bytes {
    fn from(bytes: [u8; N]) -> Bytes {
        Bytes(bytes.into())
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Bytes {
        Bytes(bytes.into())
    }
}

impl From<&str> for Bytes {
    fn from(text: &str) -> Bytes {
        text.as_bytes().into()
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.text() {
            Some(text) => fmt::Debug::fmt(text, f),
            None => write!(f, "b\"{}\"", self.0.escape_ascii()),
        }
    }
}

/// JSON form of bytes that are not valid UTF-8.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Object {
    Base64(String),
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if !serializer.is_human_readable() {
            return serializer.serialize_bytes(self);
        }
        match self.text() {
            Some(text) => serializer.serialize_str(text),
            None => Object::Base64(BASE64_STANDARD.encode(&self.0)).serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
        match deserializer.is_human_readable() {
            true => deserializer.deserialize_any(Reader),
            false => deserializer.deserialize_bytes(Reader),
        }
    }
}

/// Decodes base64 from JSON.
pub(super) fn from_base64<E: Error>(text: &str) -> Result<Bytes, E> {
    let bytes = BASE64_STANDARD.decode(text);
    bytes.map(Bytes::from).map_err(|error| E::custom(format!("not base64: {error}")))
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Bytes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, or {\"base64\": \"…\"}")
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Bytes, E> {
        Ok(bytes.into())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Bytes, E> {
        Ok(text.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Bytes, A::Error> {
        let Object::Base64(text) = Object::deserialize(MapAccessDeserializer::new(map))?;
        from_base64(&text)
    }
}
