//! What is wrong with what a client asks.

use replica::data::kind::Refused;

/// What is wrong with a question: for programs, and for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    pub(crate) reason: &'static str,
    pub(crate) text: String,
    /// What is long in the text, and the text without it.
    pub(crate) long: Option<(Long, String)>,
}

/// What is long in answers, and stands in one of them alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Long {
    /// The list of all operations in words.
    Words,
    /// The same in JSON.
    Json,
    /// The token of a line `after`.
    Token,
}

impl Wrong {
    /// Whoever asks has seen nothing that this says.
    pub(crate) fn token(why: String) -> Wrong {
        Wrong { reason: "token", text: format!("not done: {why}"), long: None }
    }
}

impl From<String> for Wrong {
    fn from(text: String) -> Wrong {
        Wrong { reason: "malformed", text, long: None }
    }
}

impl From<Refused> for Wrong {
    fn from(refused: Refused) -> Wrong {
        let long = match &refused {
            Refused::Words(_, what) => Some((Long::Words, what.clone())),
            Refused::Json(_, what) => Some((Long::Json, what.clone())),
            Refused::Binary(_)
            | Refused::Unsound(_)
            | Refused::OtherKind(..)
            | Refused::TooLarge => None,
        };
        Wrong { long, ..refused.to_string().into() }
    }
}
