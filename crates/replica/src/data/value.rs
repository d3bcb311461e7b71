//! Results of the built-in data types.

use super::bytes::{Bytes, from_base64};
use super::sheet::{Fault, Number, Scalar};
use serde::de::{Error, MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// Result of an operation of the built-in data types.
///
/// JSON forms:
///
/// | value | JSON |
/// |---|---|
/// | `Nothing` | `null` |
/// | `Done` | `{"done": true}` |
/// | `Bool` | `true`, `false` |
/// | `Integer` | a number; `{"integer": "9007199254740993"}` if it is beyond ±2⁵³ |
/// | `Bytes` | a string; `{"base64": "…"}` if they are no UTF-8 |
/// | `List` | `["a", "b"]` |
/// | `Entries` | `[["key", "value"], …]`, in order |
/// | `Wrong` | `{"wrong": "too large"}` |
/// | `Repeated` | `{"repeated": true}` |
/// | `Number` | a number with a point: `5.0` |
/// | `Error` | `{"error": "#DIV/0!"}` |
/// | `Rows` | `{"rows": [[1.5, "text", true, null, {"error": "#N/A"}], …]}` |
///
/// (Many JSON readers, those of browsers among them, silently round integers beyond 2⁵³.) A value
/// read from JSON equals the value written, except that empty entries are read as an empty list.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub enum Value {
    /// Done, without a result.
    Done,
    /// Integer.
    Integer(i128),
    /// Boolean.
    Bool(bool),
    /// Byte string.
    Bytes(Bytes),
    /// No value.
    Nothing,
    /// Several byte strings.
    List(Vec<Bytes>),
    /// Keys with their values.
    Entries(Vec<(Bytes, Bytes)>),
    /// Rejected without effect.
    Wrong(Wrong),
    /// Retry of an executed operation whose result is no longer retained.
    Repeated,
    /// Floating-point number.
    Number(Number),
    /// Error displayed by a cell.
    Error(Fault),
    /// Displayed values of cells, by rows.
    Rows(Vec<Vec<Scalar>>),
}

/// Reason why an operation had no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Wrong {
    /// The result would exceed the type's limit.
    #[serde(rename = "too large")]
    TooLarge,
    /// The operator belongs to another data type.
    #[serde(rename = "of another type")]
    OtherType,
}

impl From<Option<Bytes>> for Value {
    fn from(bytes: Option<Bytes>) -> Value {
        bytes.map_or(Value::Nothing, Value::Bytes)
    }
}

impl Value {
    /// Approximate heap size, in bytes.
    pub(super) fn size(&self) -> usize {
        match self {
            Value::Bytes(bytes) => bytes.len(),
            Value::List(list) => list.iter().map(|bytes| size_of_val(bytes) + bytes.len()).sum(),
            Value::Entries(entries) => {
                let size = |(key, value): &(Bytes, Bytes)| key.len() + value.len();
                size_of_val(&entries[..]) + entries.iter().map(size).sum::<usize>()
            }
            Value::Rows(rows) => {
                let cells = || rows.iter().flatten();
                cells().map(|cell| size_of_val(cell) + cell.length()).sum()
            }
            Value::Done
            | Value::Integer(_)
            | Value::Bool(_)
            | Value::Nothing
            | Value::Wrong(_)
            | Value::Repeated
            | Value::Number(_)
            | Value::Error(_) => 0,
        }
    }
}

/// Greatest magnitude of an integer written as a JSON number.
const EXACT_MAX: u128 = 1 << 53;

/// Values with a JSON object form.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Object {
    Done(bool),
    Integer(String),
    Base64(String),
    Wrong(Wrong),
    Repeated(bool),
    Error(Fault),
    Rows(Vec<Vec<Scalar>>),
}

/// Borrowed form of `Rows` in [`Object`].
#[derive(Serialize)]
struct Rows<'a> {
    rows: &'a [Vec<Scalar>],
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if !serializer.is_human_readable() {
            return Value::serialize(self, serializer);
        }
        match self {
            Value::Nothing => serializer.serialize_unit(),
            Value::Number(number) => number.serialize(serializer),
            Value::Error(fault) => Object::Error(*fault).serialize(serializer),
            Value::Rows(rows) => Rows { rows }.serialize(serializer),
            Value::Repeated => Object::Repeated(true).serialize(serializer),
            Value::Done => Object::Done(true).serialize(serializer),
            Value::Bool(is) => serializer.serialize_bool(*is),
            Value::Integer(n) => match i64::try_from(*n) {
                Ok(small) if n.unsigned_abs() <= EXACT_MAX => serializer.serialize_i64(small),
                Ok(_) | Err(_) => Object::Integer(n.to_string()).serialize(serializer),
            },
            Value::Bytes(bytes) => bytes.serialize(serializer),
            Value::List(several) => several.serialize(serializer),
            Value::Entries(entries) => entries.serialize(serializer),
            Value::Wrong(wrong) => Object::Wrong(*wrong).serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
        match deserializer.is_human_readable() {
            true => deserializer.deserialize_any(Reader),
            false => Value::deserialize(deserializer),
        }
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the value of an operation")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Nothing)
    }

    fn visit_bool<E: Error>(self, is: bool) -> Result<Value, E> {
        Ok(Value::Bool(is))
    }

    fn visit_i64<E: Error>(self, n: i64) -> Result<Value, E> {
        Ok(Value::Integer(n.into()))
    }

    fn visit_u64<E: Error>(self, n: u64) -> Result<Value, E> {
        Ok(Value::Integer(n.into()))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Value, E> {
        let number = Number::new(number).ok_or_else(|| E::custom("not a finite number"))?;
        Ok(Value::Number(number))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        Ok(Value::Bytes(text.into()))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Value, A::Error> {
        match Object::deserialize(MapAccessDeserializer::new(map))? {
            Object::Done(true) => Ok(Value::Done),
            Object::Error(fault) => Ok(Value::Error(fault)),
            Object::Rows(rows) => Ok(Value::Rows(rows)),
            Object::Repeated(true) => Ok(Value::Repeated),
            Object::Done(false) | Object::Repeated(false) => {
                Err(A::Error::custom("this is true or absent"))
            }
            Object::Integer(digits) => digits.parse().map(Value::Integer).map_err(A::Error::custom),
            Object::Base64(text) => from_base64(&text).map(Value::Bytes),
            Object::Wrong(wrong) => Ok(Value::Wrong(wrong)),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Value, A::Error> {
        let (mut list, mut entries) = (Vec::new(), Vec::new());
        while let Some(element) = sequence.next_element()? {
            match element {
                Element::One(bytes) => list.push(bytes),
                Element::Entry(key, value) => entries.push((key, value)),
            }
        }
        match (list.is_empty(), entries.is_empty()) {
            (_, true) => Ok(Value::List(list)),
            (true, false) => Ok(Value::Entries(entries)),
            (false, false) => Err(A::Error::custom("some are entries, and some are not")),
        }
    }
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "a string, {\"base64\": \"…\"}, or an array of two")]
enum Element {
    One(Bytes),
    Entry(Bytes, Bytes),
}
