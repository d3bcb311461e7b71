//! Data type of a service, chosen when the service is created.
//!
//! A [`Kind`] is a serial data type over the states and operators of all concrete types. An
//! operator of another type has no effect and returns [`Wrong::OtherType`]. The readers here and
//! [`Kind::admits`] reject such operators at the boundary.

use super::words;
use super::{Counter, DataType, Log, Map, Register, Set, Sheet, Text, Value, Wrong};
use crate::binary;
use crate::work::Meter;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Maximum length of an operator in binary form, in bytes.
pub const OPERATOR_MAX: usize = 1 << 20;

/// Maximum length of an operator in JSON, in bytes: a maximal operator with every byte escaped as
/// six characters.
pub const JSON_MAX: usize = 6 * OPERATOR_MAX;

/// Reason to reject an external operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Words that are not an operator of this type.
    Words(Kind, String),
    /// JSON that is not an operator of this type.
    Json(Kind, String),
    /// Bytes that are not an operator.
    Binary(String),
    /// A well-formed operator with an invalid argument, such as a formula that cannot be evaluated.
    Unsound(String),
    /// An operator of another type: the expected type, then the actual one.
    OtherKind(Kind, Kind),
    /// An operator longer than [`OPERATOR_MAX`].
    TooLarge,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Words(kind, what) => {
                write!(f, "{what}\noperations on a {kind}:\n{}", kind.words().trim_end())
            }
            Refused::Json(kind, what) => {
                write!(f, "{what}\noperations on a {kind}:\n{}", kind.json().trim_end())
            }
            Refused::Unsound(what) => f.write_str(what),
            Refused::Binary(what) => write!(f, "invalid operation: {what}"),
            Refused::OtherKind(wanted, other) => {
                write!(f, "an operation on a {other}, but this is a {wanted}")
            }
            Refused::TooLarge => {
                write!(f, "an operation of more than {} KiB; divide it", OPERATOR_MAX >> 10)
            }
        }
    }
}

impl std::error::Error for Refused {}

/// Generates the code common to all types from the variant, the module and the display name of
/// each.
macro_rules! kinds {
    ($($kind:ident $module:ident $name:literal $(as $form:literal)?: $what:literal,)*) => {
        /// Data type of a service.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum Kind {
            $(#[doc = $what] $kind,)*
        }

        /// State of any type.
        #[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum State {
            $(#[doc = $what] $(#[serde(with = $form)])? $kind(<$kind as DataType>::State),)*
        }

        /// Operator of any type.
        #[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum Operator {
            $(#[doc = $what] $kind(super::$module::Operator),)*
        }

        impl Kind {
            /// All types.
            pub const ALL: &[Kind] = &[$(Kind::$kind,)*];

            /// Returns the type's display name.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Kind::$kind => $name,)*
                }
            }

            /// Returns a short description.
            pub fn about(&self) -> &'static str {
                match self {
                    $(Kind::$kind => $what.trim_ascii(),)*
                }
            }

            /// Returns the command-line syntax of its operators with descriptions, one a line.
            pub fn words(&self) -> String {
                match self {
                    $(Kind::$kind => words::help::<$kind>(),)*
                }
            }

            /// Returns its operators as JSON with descriptions, one a line.
            pub fn json(&self) -> String {
                match self {
                    $(Kind::$kind => words::json_help::<$kind>(),)*
                }
            }

            /// Returns its operators as rows of the table in `docs/replica.md`.
            #[cfg(test)]
            pub(super) fn rows(&self) -> Vec<String> {
                match self {
                    $(Kind::$kind => words::rows::<$kind>(),)*
                }
            }

            fn words_unchecked(&self, message: &[String]) -> Result<Operator, String> {
                match self {
                    $(Kind::$kind => words::read::<$kind>(message).map(Operator::$kind),)*
                }
            }

            fn json_unchecked(&self, json: &[u8]) -> serde_json::Result<Operator> {
                match self {
                    $(Kind::$kind => serde_json::from_slice(json).map(Operator::$kind),)*
                }
            }
        }

        impl Operator {
            /// Returns the type of this operator.
            pub fn kind(&self) -> Kind {
                match self {
                    $(Operator::$kind(_) => Kind::$kind,)*
                }
            }

            /// Returns the JSON form, the inverse of [`Kind::read_json`].
            pub fn to_json(&self) -> String {
                let json = match self {
                    $(Operator::$kind(operator) => serde_json::to_string(operator),)*
                };
                json.expect("operators have no keys that are no strings")
            }
        }

        impl DataType for Kind {
            type State = State;
            type Operator = Operator;
            type Value = Value;

            fn initial(&self) -> State {
                match self {
                    $(Kind::$kind => State::$kind($kind.initial()),)*
                }
            }

            fn apply(&self, state: &mut State, operator: &Operator) -> Value {
                match (self, state, operator) {
                    $((Kind::$kind, State::$kind(state), Operator::$kind(operator)) => {
                        $kind.apply(state, operator)
                    })*
                    _ => Value::Wrong(Wrong::OtherType),
                }
            }

            fn apply_metered(
                &self,
                state: &mut State,
                operator: &Operator,
                meter: &mut Meter,
            ) -> Value {
                match (self, state, operator) {
                    $((Kind::$kind, State::$kind(state), Operator::$kind(operator)) => {
                        $kind.apply_metered(state, operator, meter)
                    })*
                    _ => Value::Wrong(Wrong::OtherType),
                }
            }

            fn change(&self, state: &mut State, operator: &Operator, meter: &mut Meter) {
                match (self, state, operator) {
                    $((Kind::$kind, State::$kind(state), Operator::$kind(operator)) => {
                        $kind.change(state, operator, meter)
                    })*
                    _ => {}
                }
            }

            fn commute(&self, a: &Operator, b: &Operator) -> bool {
                match (self, a, b) {
                    $((Kind::$kind, Operator::$kind(a), Operator::$kind(b)) => {
                        $kind.commute(a, b)
                    })*
                    _ => true,
                }
            }

            fn is_free(&self, operator: &Operator) -> bool {
                match (self, operator) {
                    $((Kind::$kind, Operator::$kind(operator)) => $kind.is_free(operator),)*
                    _ => true,
                }
            }

            fn size(&self, operator: &Operator) -> usize {
                binary::size(operator)
            }

            fn value_size(&self, value: &Value) -> usize {
                value.size()
            }

            fn is_read(&self, operator: &Operator) -> bool {
                match (self, operator) {
                    $((Kind::$kind, Operator::$kind(operator)) => $kind.is_read(operator),)*
                    _ => true,
                }
            }

            fn oblivious(&self, a: &Operator, b: &Operator) -> bool {
                match (self, a, b) {
                    $((Kind::$kind, Operator::$kind(a), Operator::$kind(b)) => {
                        $kind.oblivious(a, b)
                    })*
                    _ => true,
                }
            }
        }
    };
}

// In the order of the variant numbers in the binary form: append new types.
kinds! {
    Counter counter "counter": "A number that is added to.",
    Text text "text": "A text that grows at its end.",
    Register register "register": "One value, which is replaced.",
    Map map "map" as "pairs": "Keys and their values, in order.",
    Set set "set": "Members, in order.",
    Log log "log": "Records, which are only appended.",
    Sheet sheet "sheet": "Cells with numbers, texts, and formulas that look at other cells.",
}

impl Kind {
    /// Returns the type with this name.
    pub fn named(name: &str) -> Option<Kind> {
        Kind::ALL.iter().copied().find(|kind| kind.name() == name)
    }

    /// Parses an operator from command-line words.
    pub fn read_words(&self, words: &[String]) -> Result<Operator, Refused> {
        let operator = self.words_unchecked(words).map_err(|what| Refused::Words(*self, what))?;
        self.takes(operator)
    }

    /// Parses an operator from JSON.
    pub fn read_json(&self, json: &[u8]) -> Result<Operator, Refused> {
        if json.len() > JSON_MAX {
            return Err(Refused::TooLarge);
        }
        let operator = self.json_unchecked(json);
        let operator = operator.map_err(|error| {
            let (text, place) = (error.to_string(), format!(" at line {} column ", error.line()));
            let cause = text.rsplit_once(&place).map_or(&*text, |(cause, _)| cause);
            Refused::Json(*self, format!("no operation in JSON: {cause}"))
        })?;
        self.takes(operator)
    }

    /// Validates an operator of a client that can still correct it.
    fn takes(&self, operator: Operator) -> Result<Operator, Refused> {
        let complaint = match &operator {
            Operator::Sheet(operator) => operator.complaint(),
            Operator::Counter(_)
            | Operator::Text(_)
            | Operator::Register(_)
            | Operator::Map(_)
            | Operator::Set(_)
            | Operator::Log(_) => None,
        };
        match complaint {
            Some(complaint) => Err(Refused::Unsound(complaint)),
            None => self.admits(&operator).map(|()| operator),
        }
    }

    /// Decodes an operator encoded by [`binary::write()`].
    pub fn read_binary(&self, bytes: &[u8]) -> Result<Operator, Refused> {
        if bytes.len() > OPERATOR_MAX {
            return Err(Refused::TooLarge);
        }
        let operator = binary::read(bytes).map_err(|error| Refused::Binary(error.to_string()))?;
        self.admits(&operator).map(|()| operator)
    }

    /// Checks that an operator decoded as part of a larger value belongs to this type.
    pub fn admits(&self, operator: &Operator) -> Result<(), Refused> {
        if operator.kind() != *self {
            return Err(Refused::OtherKind(*self, operator.kind()));
        }
        if binary::size(operator) > OPERATOR_MAX { Err(Refused::TooLarge) } else { Ok(()) }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Serializes maps as pairs: keys of JSON objects are strings, while these keys are bytes.
mod pairs {
    use crate::data::{Bytes, DataType, Map};
    use serde::Serializer;
    use serde::de::{Deserializer, SeqAccess, Visitor};
    use std::fmt;

    type State = <Map as DataType>::State;

    pub(super) fn serialize<S: Serializer>(state: &State, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(state.iter())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<State, D::Error> {
        from.deserialize_seq(Reader)
    }

    struct Reader;

    impl<'de> Visitor<'de> for Reader {
        type Value = State;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("keys and values")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut pairs: A) -> Result<State, A::Error> {
            let mut state = Map.initial();
            while let Some((key, value)) = pairs.next_element::<(Bytes, Bytes)>()? {
                state.insert_mut(key, value);
            }
            Ok(state)
        }
    }
}
