//! Values of the configuration file, parsed as those of the flags: `"2G"`, `"10m"`, `"1k"`, or
//! bare numbers.

use crate::units;
use clap::ValueEnum;
use serde::de::{Deserialize, Deserializer, Error};
use std::path::PathBuf;
use toml::Value;

/// Formats of values, for errors.
const USER: &str = "write a user's name or number, like \"nobody\" or 65534";
const PATH: &str = "write a path in quotes, like \"/srv/files\"";
const PATHS: &str = "write a path in quotes, or a list, like \"/a\" or [\"/a\", \"/b\"]";
const TEXTS: &str = "write a text in quotes, or a list, like \"a\" or [\"a\", \"b\"]";
const ADDRESSES: &str = "write an address in quotes, or a list, like \"127.0.0.1:5640\" or \
                         [\":5640\", \"unix:/run/u\"]";
const NETWORKS: &str = "write a network in quotes, or a list of at least one, like \
                        \"192.0.2.0/24\"; leave the key out to serve all networks";

/// Returns a scalar as the text of a flag.
fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        Value::Boolean(_) | Value::Datetime(_) | Value::Array(_) | Value::Table(_) => None,
    }
}

/// Parses a scalar with the parser of the flag, which refuses an empty text.
fn parsed<'de, D: Deserializer<'de>, T>(
    from: D,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<Option<T>, D::Error> {
    let text = scalar(&Value::deserialize(from)?).unwrap_or_default();
    parse(&text).map(Some).map_err(Error::custom)
}

/// Deserializes a size in MiB, or with a unit.
pub(super) fn mebibytes<'de, D: Deserializer<'de>, T: TryFrom<u64>>(
    from: D,
) -> Result<Option<T>, D::Error> {
    parsed(from, units::mebibytes)
}

/// Deserializes a size in bytes, or with a unit.
pub(super) fn bytes<'de, D: Deserializer<'de>, T: TryFrom<u64>>(
    from: D,
) -> Result<Option<T>, D::Error> {
    parsed(from, units::bytes)
}

/// Deserializes a time in seconds, or with a unit.
pub(super) fn seconds<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    parsed(from, units::seconds)
}

/// Deserializes a time in microseconds, or with a unit.
pub(super) fn microseconds<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    parsed(from, units::microseconds)
}

/// Deserializes a count.
pub(super) fn number<'de, D: Deserializer<'de>, T: TryFrom<u64>>(
    from: D,
) -> Result<Option<T>, D::Error> {
    parsed(from, units::number)
}

/// Deserializes a word of a list.
pub(super) fn word<'de, D: Deserializer<'de>, T: ValueEnum>(
    from: D,
) -> Result<Option<T>, D::Error> {
    parsed(from, |text| {
        T::from_str(text, false).map_err(|_| {
            let all = T::value_variants().iter().filter_map(ValueEnum::to_possible_value);
            let all: Vec<String> = all.map(|word| format!("\"{}\"", word.get_name())).collect();
            format!("write {}", all.join(" or "))
        })
    })
}

/// Deserializes the name or number of a user.
pub(super) fn user<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let text = scalar(&Value::deserialize(from)?).filter(|text| !text.is_empty());
    text.map(Some).ok_or_else(|| Error::custom(USER))
}

/// Deserializes a switch.
pub(super) fn switch<'de, D: Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
    let wrong = || Error::custom("write true or false, without quotes");
    Value::deserialize(from)?.as_bool().ok_or_else(wrong)
}

/// Deserializes a path.
pub(super) fn path<'de, D: Deserializer<'de>>(from: D) -> Result<Option<PathBuf>, D::Error> {
    let value = Value::deserialize(from)?;
    value.as_str().map(|text| Some(text.into())).ok_or_else(|| Error::custom(PATH))
}

/// Returns the texts of one text, or of a list.
fn many(value: &Value) -> Option<Vec<&str>> {
    match value {
        Value::String(text) => Some(vec![text]),
        Value::Array(all) => all.iter().map(Value::as_str).collect(),
        Value::Integer(_)
        | Value::Float(_)
        | Value::Boolean(_)
        | Value::Datetime(_)
        | Value::Table(_) => None,
    }
}

/// Deserializes one or several texts, which are at least `least`; `format` is the error.
fn several<'de, D: Deserializer<'de>, T: for<'a> From<&'a str>>(
    from: D,
    (format, least): (&str, usize),
) -> Result<Vec<T>, D::Error> {
    let value = Value::deserialize(from)?;
    let texts = many(&value).filter(|texts| texts.len() >= least);
    let texts = texts.ok_or_else(|| Error::custom(format))?;
    Ok(texts.into_iter().map(T::from).collect())
}

/// Deserializes one or several texts.
pub(super) fn texts<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    several(from, (TEXTS, 0))
}

/// Deserializes one or several paths.
pub(super) fn paths<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<PathBuf>, D::Error> {
    several(from, (PATHS, 0))
}

/// Deserializes one or several networks.
pub(super) fn networks<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    several(from, (NETWORKS, 1))
}

/// Deserializes one or several addresses; an empty list is `none`.
pub(super) fn addresses<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let all: Vec<String> = several(from, (ADDRESSES, 0))?;
    Ok(if all.is_empty() { vec!["none".to_string()] } else { all })
}
