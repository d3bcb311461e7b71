//! Displayed values of cells.

use crate::data::Value;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// Finite number other than minus zero.
#[derive(Clone, Copy, Default, PartialEq)]
pub struct Number(f64);

impl Number {
    /// Returns `None` for infinities and NaN.
    pub fn new(number: f64) -> Option<Number> {
        number.is_finite().then_some(Number(number + 0.0))
    }

    /// Returns the floating-point value.
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

/// Formats fifteen significant digits, as common spreadsheets do: 0.1 + 0.2 displays 0.3.
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

/// Error displayed by a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Fault {
    /// Division by zero.
    #[serde(rename = "#DIV/0!")]
    Division,
    /// Wrong type: a text instead of a number, a rectangle instead of one cell, or a text that is
    /// too long.
    #[serde(rename = "#VALUE!")]
    Value,
    /// Unknown name.
    #[serde(rename = "#NAME?")]
    Name,
    /// Reference to a cell that does not exist.
    #[serde(rename = "#REF!")]
    Reference,
    /// Number out of range or not real.
    #[serde(rename = "#NUM!")]
    Number,
    /// Lookup without a match.
    #[serde(rename = "#N/A")]
    Missing,
    /// Circular reference.
    #[serde(rename = "#CIRC!")]
    Circular,
    /// Malformed formula.
    #[serde(rename = "#ERROR!")]
    Syntax,
    /// More than [`super::STEPS_MAX`] evaluation steps.
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

/// Displayed value: in JSON `null`, a number, a boolean, a string or `{"error": "#DIV/0!"}`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub enum Scalar {
    /// Empty cell.
    Empty,
    /// A number.
    Number(Number),
    /// Boolean.
    Bool(bool),
    /// A text.
    Text(Arc<str>),
    /// Evaluation error.
    Error(Fault),
}

/// JSON form of a scalar.
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
    /// Returns a number, or an error if it is not finite.
    pub(super) fn number(number: f64) -> Result<Scalar, Fault> {
        Number::new(number).map(Scalar::Number).ok_or(Fault::Number)
    }

    /// Parses an input that is no formula: a number, a boolean, or a text, for which a leading `'`
    /// forces that interpretation. Dates are not recognized: their formats depend on the locale.
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

    /// Returns an input that displays this value.
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

    /// Compares values: numbers before texts, texts before booleans. An empty cell compares as the
    /// zero, empty text or FALSE of the other operand's type. Letter case is ignored.
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

    /// Returns the length of a text in bytes, and 0 for other values.
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

/// Maximum digits of a number in an input.
const DIGITS_MAX: usize = 400;

/// Parses a number in locale-independent notation: no separators, a decimal point, an optional
/// exponent.
fn parse_number(text: &str) -> Option<Number> {
    let plain = |byte: u8| byte.is_ascii_digit() || b"+-.eE".contains(&byte);
    let is_short = text.len() <= DIGITS_MAX;
    let number = (is_short && text.bytes().all(plain)).then(|| text.parse().ok())?;
    number.and_then(Number::new)
}
