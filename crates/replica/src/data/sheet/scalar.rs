//! What a cell shows.

use crate::data::Value;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// A finite number, and not minus zero.
#[derive(Clone, Copy, Default, PartialEq)]
pub struct Number(f64);

impl Number {
    /// Nothing, if it is infinite or none.
    pub fn new(number: f64) -> Option<Number> {
        number.is_finite().then_some(Number(number + 0.0))
    }

    /// As the processor has it.
    pub fn get(self) -> f64 {
        self.0
    }
}

impl Eq for Number {}

impl std::hash::Hash for Number {
    fn hash<H: std::hash::Hasher>(&self, hasher: &mut H) {
        self.0.to_bits().hash(hasher);
    }
}

impl fmt::Debug for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// With fifteen digits, as other programs show it: then 0.1 + 0.2 is 0.3.
impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rounded: f64 = format!("{:.14e}", self.0).parse().unwrap_or(self.0);
        let size = rounded.abs();
        match size == 0.0 || (1e-5..1e15).contains(&size) {
            true => write!(f, "{rounded}"),
            false => write!(f, "{rounded:E}"),
        }
    }
}

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_f64(self.0)
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Number, D::Error> {
        Number::new(f64::deserialize(from)?).ok_or_else(|| D::Error::custom("not a finite number"))
    }
}

/// Why a cell shows nothing better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Fault {
    /// It is divided by zero.
    #[serde(rename = "#DIV/0!")]
    Division,
    /// A text where a number should be, a rectangle where one cell should be, a text too long.
    #[serde(rename = "#VALUE!")]
    Value,
    /// Nothing here has this name.
    #[serde(rename = "#NAME?")]
    Name,
    /// There is no such cell.
    #[serde(rename = "#REF!")]
    Reference,
    /// A number that cannot be: too large, or not a real one.
    #[serde(rename = "#NUM!")]
    Number,
    /// It is not there.
    #[serde(rename = "#N/A")]
    Missing,
    /// It depends on itself.
    #[serde(rename = "#CIRC!")]
    Circular,
    /// The formula cannot be read.
    #[serde(rename = "#ERROR!")]
    Syntax,
    /// What was asked takes more than [`super::STEPS_MAX`] steps.
    #[serde(rename = "#LIMIT!")]
    Limit,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fault::Division => "#DIV/0!",
            Fault::Value => "#VALUE!",
            Fault::Name => "#NAME?",
            Fault::Reference => "#REF!",
            Fault::Number => "#NUM!",
            Fault::Missing => "#N/A",
            Fault::Circular => "#CIRC!",
            Fault::Syntax => "#ERROR!",
            Fault::Limit => "#LIMIT!",
        })
    }
}

/// What a cell shows: in JSON `null`, a number, a boolean, a string or `{"error": "#DIV/0!"}`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub enum Scalar {
    /// Nothing.
    Empty,
    /// A number.
    Number(Number),
    /// Yes or no.
    Bool(bool),
    /// A text.
    Text(Arc<str>),
    /// Something went wrong.
    Error(Fault),
}

/// A scalar as it stands in JSON.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Json {
    Empty(()),
    Bool(bool),
    Number(Number),
    Text(Arc<str>),
    Error { error: Fault },
}

impl Serialize for Scalar {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if !to.is_human_readable() {
            return Scalar::serialize(self, to);
        }
        let json = match self {
            Scalar::Empty => Json::Empty(()),
            Scalar::Number(number) => Json::Number(*number),
            Scalar::Bool(is) => Json::Bool(*is),
            Scalar::Text(text) => Json::Text(text.clone()),
            Scalar::Error(error) => Json::Error { error: *error },
        };
        json.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Scalar, D::Error> {
        if !from.is_human_readable() {
            return Scalar::deserialize(from);
        }
        Json::deserialize(from).map(|json| match json {
            Json::Empty(()) => Scalar::Empty,
            Json::Bool(is) => Scalar::Bool(is),
            Json::Number(number) => Scalar::Number(number),
            Json::Text(text) => Scalar::Text(text),
            Json::Error { error } => Scalar::Error(error),
        })
    }
}

impl From<Scalar> for Value {
    fn from(scalar: Scalar) -> Value {
        match scalar {
            Scalar::Empty => Value::Nothing,
            Scalar::Number(number) => Value::Number(number),
            Scalar::Bool(is) => Value::Bool(is),
            Scalar::Text(text) => Value::Bytes((&*text).into()),
            Scalar::Error(fault) => Value::Error(fault),
        }
    }
}

impl From<Result<Scalar, Fault>> for Scalar {
    fn from(result: Result<Scalar, Fault>) -> Scalar {
        result.unwrap_or_else(Scalar::Error)
    }
}

impl From<&str> for Scalar {
    fn from(text: &str) -> Scalar {
        Scalar::Text(text.into())
    }
}

impl Scalar {
    /// A number, if it can be one.
    pub(super) fn number(number: f64) -> Result<Scalar, Fault> {
        Number::new(number).map(Scalar::Number).ok_or(Fault::Number)
    }

    /// What somebody means who types this into a cell, if it is no formula: a number, a boolean, or
    /// a text, which may have a `'` before it to say that it is one. No dates: what they look like
    /// depends on where one lives.
    pub fn typed(input: &str) -> Scalar {
        if let Some(text) = input.strip_prefix('\'') {
            return text.into();
        }
        let trimmed = input.trim();
        match (parse_bool(trimmed), parse_number(trimmed)) {
            (Some(is), _) => Scalar::Bool(is),
            (None, Some(number)) => Scalar::Number(number),
            (None, None) if input.is_empty() => Scalar::Empty,
            (None, None) => input.into(),
        }
    }

    /// What one types to see this.
    pub fn input(&self) -> String {
        match self {
            Scalar::Number(number) => number.get().to_string(),
            Scalar::Text(text) if Scalar::typed(text) != *self || text.starts_with('=') => {
                format!("'{text}")
            }
            Scalar::Empty | Scalar::Bool(_) | Scalar::Text(_) | Scalar::Error(_) => {
                self.to_string()
            }
        }
    }

    pub(super) fn to_number(&self) -> Result<f64, Fault> {
        match self {
            Scalar::Empty => Ok(0.0),
            Scalar::Number(number) => Ok(number.get()),
            Scalar::Bool(is) => Ok(f64::from(u8::from(*is))),
            Scalar::Text(text) => parse_number(text.trim()).map(Number::get).ok_or(Fault::Value),
            Scalar::Error(fault) => Err(*fault),
        }
    }

    pub(super) fn to_bool(&self) -> Result<bool, Fault> {
        match self {
            Scalar::Empty => Ok(false),
            Scalar::Number(number) => Ok(number.get() != 0.0),
            Scalar::Bool(is) => Ok(*is),
            Scalar::Text(text) => parse_bool(text.trim()).ok_or(Fault::Value),
            Scalar::Error(fault) => Err(*fault),
        }
    }

    pub(super) fn to_text(&self) -> Result<Arc<str>, Fault> {
        match self {
            Scalar::Text(text) => Ok(text.clone()),
            Scalar::Error(fault) => Err(*fault),
            Scalar::Empty | Scalar::Number(_) | Scalar::Bool(_) => Ok(self.to_string().into()),
        }
    }

    /// Numbers are before texts, and these before booleans; nothing is like whatever it is compared
    /// with. Capitals make no difference.
    pub(super) fn compare(&self, other: &Scalar) -> Ordering {
        match (self, other) {
            (Scalar::Empty, Scalar::Empty) => Ordering::Equal,
            (Scalar::Empty, Scalar::Number(_)) => Scalar::Number(Number(0.0)).compare(other),
            (Scalar::Empty, Scalar::Text(_)) => Scalar::from("").compare(other),
            (Scalar::Empty, Scalar::Bool(_)) => Scalar::Bool(false).compare(other),
            (_, Scalar::Empty) => other.compare(self).reverse(),
            (Scalar::Number(a), Scalar::Number(b)) => a.get().total_cmp(&b.get()),
            (Scalar::Text(a), Scalar::Text(b)) => {
                let lower = |text: &str| text.to_lowercase();
                if a == b { Ordering::Equal } else { lower(a).cmp(&lower(b)) }
            }
            (Scalar::Bool(a), Scalar::Bool(b)) => a.cmp(b),
            (a, b) => a.rank().cmp(&b.rank()),
        }
    }

    /// How long its text is, in bytes, if it is one.
    pub(in crate::data) fn length(&self) -> usize {
        match self {
            Scalar::Text(text) => text.len(),
            Scalar::Empty | Scalar::Number(_) | Scalar::Bool(_) | Scalar::Error(_) => 0,
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Scalar::Empty => 0,
            Scalar::Number(_) => 1,
            Scalar::Text(_) => 2,
            Scalar::Bool(_) => 3,
            Scalar::Error(_) => 4,
        }
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scalar::Empty => Ok(()),
            Scalar::Number(number) => fmt::Display::fmt(number, f),
            Scalar::Bool(is) => f.write_str(if *is { "TRUE" } else { "FALSE" }),
            Scalar::Text(text) => f.write_str(text),
            Scalar::Error(fault) => fmt::Display::fmt(fault, f),
        }
    }
}

fn parse_bool(text: &str) -> Option<bool> {
    let named = |name: &&str| text.eq_ignore_ascii_case(name);
    ["FALSE", "TRUE"].iter().position(named).map(|at| at == 1)
}

/// No number is written with more digits than this.
const DIGITS_MAX: usize = 400;

/// A number as it is written everywhere: no separators, a point, perhaps an exponent.
fn parse_number(text: &str) -> Option<Number> {
    let plain = |byte: u8| byte.is_ascii_digit() || b"+-.eE".contains(&byte);
    let is_short = text.len() <= DIGITS_MAX;
    let number = (is_short && text.bytes().all(plain)).then(|| text.parse().ok())?;
    number.and_then(Number::new)
}
