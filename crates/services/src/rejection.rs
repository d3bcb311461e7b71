//! Rejected operation requests.

use replica::data::kind::Refused;

/// Reason why an operation request is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rejection {
    /// Code for programs.
    pub(crate) reason: &'static str,
    /// Sentence for people, without the detail.
    pub(crate) text: String,
    /// Detail sent once per session.
    pub(crate) detail: Option<Detail>,
}

/// A long explanation, sent in one reply of a session instead of the rejection's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    /// List of all operations, in words or in JSON.
    Operations(Refused),
    /// Error in the token of the last `after` line.
    Token(String),
}

/// The kind of a [`Detail`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Topic {
    Words,
    Json,
    Token,
}

impl Detail {
    /// Returns its kind.
    pub(crate) fn topic(&self) -> Topic {
        match self {
            Detail::Operations(Refused::Json(..)) => Topic::Json,
            Detail::Operations(_) => Topic::Words,
            Detail::Token(_) => Topic::Token,
        }
    }

    /// Returns the text of the reply.
    pub(crate) fn text(&self) -> String {
        match self {
            Detail::Operations(refused) => refused.to_string(),
            Detail::Token(why) => format!("not done: {why}"),
        }
    }
}

impl Rejection {
    /// Rejects a malformed session token.
    pub(crate) fn token(why: &str) -> Rejection {
        Rejection { reason: "token", text: format!("not done: {why}"), detail: None }
    }
}

impl From<String> for Rejection {
    fn from(text: String) -> Rejection {
        Rejection { reason: "malformed", text, detail: None }
    }
}

impl From<Refused> for Rejection {
    fn from(refused: Refused) -> Rejection {
        match &refused {
            Refused::Words(_, what) | Refused::Json(_, what) => {
                let text = what.clone();
                Rejection { detail: Some(Detail::Operations(refused)), ..text.into() }
            }
            Refused::Binary(_)
            | Refused::Unsound(_)
            | Refused::OtherKind(..)
            | Refused::TooLarge => refused.to_string().into(),
        }
    }
}
