//! The type of a service's data, chosen when the service is made.
//!
//! A [`Kind`] is a serial data type whose states and operators are those of one of the others. An
//! operator of another type does nothing and is always answered [`Wrong::OtherType`]; but none
//! comes so far if whoever takes operators from outside uses the readers here, or [`Kind::admits`].

use super::words;
use super::{Counter, DataType, Log, Map, Register, Set, Sheet, Text, Value, Wrong};
use crate::binary;
use crate::work::Meter;
use serde::{Deserialize, Serialize};
use std::fmt;

/// How long an operator is in its binary form, at most, in bytes.
pub const OPERATOR_MAX: usize = 1 << 20;

/// How long an operator is as JSON, at most, in bytes: one of the greatest length, if JSON needs
/// six letters for each byte.
pub const JSON_MAX: usize = 6 * OPERATOR_MAX;

/// Why something that came from outside is no operator that can be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// These words are none of this type.
    Words(Kind, String),
    /// This JSON is none of this type.
    Json(Kind, String),
    /// These bytes are none.
    Binary(String),
    /// It would be done, but not be what is meant.
    Unsound(String),
    /// It is one of another type: the first is wanted, the second is there.
    OtherKind(Kind, Kind),
    /// It is longer than [`OPERATOR_MAX`].
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
            Refused::Binary(what) => write!(f, "no operation: {what}"),
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

/// Writes what is the same for all types once: name of the variant, module, name for people.
macro_rules! kinds {
    ($($kind:ident $module:ident $name:literal $(as $form:literal)?: $what:literal,)*) => {
        /// One of the types of data of this house.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum Kind {
            $(#[doc = $what] $kind,)*
        }

        /// A state of data of any type.
        #[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum State {
            $(#[doc = $what] $(#[serde(with = $form)])? $kind(<$kind as DataType>::State),)*
        }

        /// An operator of any type.
        #[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum Operator {
            $(#[doc = $what] $kind(super::$module::Operator),)*
        }

        impl Kind {
            /// All of them.
            pub const ALL: &[Kind] = &[$(Kind::$kind,)*];

            /// What people call it.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Kind::$kind => $name,)*
                }
            }

            /// What it is, in a few words.
            pub fn about(&self) -> &'static str {
                match self {
                    $(Kind::$kind => $what.trim_ascii(),)*
                }
            }

            /// The words for its operators on the command line, and what they do, one a line.
            pub fn words(&self) -> String {
                match self {
                    $(Kind::$kind => words::help::<$kind>(),)*
                }
            }

            /// Its operators as JSON, and what they do, one a line.
            pub fn json(&self) -> String {
                match self {
                    $(Kind::$kind => words::json_help::<$kind>(),)*
                }
            }

            /// Its operators as rows of the table in `docs/replica.md`.
            #[cfg(test)]
            pub(super) fn rows(&self) -> Vec<String> {
                match self {
                    $(Kind::$kind => words::rows::<$kind>(),)*
                }
            }

            fn words_unchecked(&self, said: &[String]) -> Result<Operator, String> {
                match self {
                    $(Kind::$kind => words::read::<$kind>(said).map(Operator::$kind),)*
                }
            }

            fn json_unchecked(&self, json: &[u8]) -> serde_json::Result<Operator> {
                match self {
                    $(Kind::$kind => serde_json::from_slice(json).map(Operator::$kind),)*
                }
            }
        }

        impl Operator {
            /// The type that it belongs to.
            pub fn kind(&self) -> Kind {
                match self {
                    $(Operator::$kind(_) => Kind::$kind,)*
                }
            }

            /// What [`Kind::read_json`] reads.
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

// In the order of their numbers in the binary form: new ones come last.
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
    /// The type with this name.
    pub fn named(name: &str) -> Option<Kind> {
        Kind::ALL.iter().copied().find(|kind| kind.name() == name)
    }

    /// The operator that these words of a command line mean.
    pub fn read_words(&self, words: &[String]) -> Result<Operator, Refused> {
        let operator = self.words_unchecked(words).map_err(|what| Refused::Words(*self, what))?;
        self.takes(operator)
    }

    /// The operator that this JSON means.
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

    /// What somebody asks for who can still change it.
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

    /// The operator that [`binary::write()`] made these bytes of.
    pub fn read_binary(&self, bytes: &[u8]) -> Result<Operator, Refused> {
        if bytes.len() > OPERATOR_MAX {
            return Err(Refused::TooLarge);
        }
        let operator = binary::read(bytes).map_err(|error| Refused::Binary(error.to_string()))?;
        self.admits(&operator).map(|()| operator)
    }

    /// Whether an operator that was read as part of something larger can be one of this type.
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

/// Maps as pairs: keys of objects in JSON are strings, and these are bytes.
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
