//! The `If` field (RFC 4918 §10.4): lists of states, one of which must hold.

use super::{Refusal, Target, refusal};
use base::Name;
use std::sync::Arc;

/// Maximum number of conditions in a field.
const CONDITIONS_MAX: usize = 64;

const MALFORMED: Refusal = refusal(400, "the If field cannot be understood");

/// A list of conditions on one resource; it holds if all of them do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateList {
    /// Path of the resource; `None`: that of the request.
    pub path: Option<Arc<Vec<Name>>>,
    /// The conditions.
    pub conditions: Vec<StateCondition>,
}

/// A condition of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateCondition {
    /// Whether it holds if its state does not (`Not`).
    pub is_not: bool,
    /// The state.
    pub state: ResourceState,
}

/// A state of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResourceState {
    /// It is locked by the lock with this token.
    Token(String),
    /// It has this entity tag.
    Tag(String),
}

/// Parses a field.
///
/// # Errors
/// If it is malformed.
pub(super) fn parse(text: &str) -> Result<Vec<StateList>, Refusal> {
    let (mut rest, mut lists, mut path, mut count) = (text.trim_start(), Vec::new(), None, 0);
    while !rest.is_empty() {
        if let Some(tagged) = rest.strip_prefix('<') {
            let (uri, after) = tagged.split_once('>').ok_or(MALFORMED)?;
            // Wherever the resource is.
            path = Some(Arc::new(Target::parse_uri(uri)?.0.path));
            rest = after.trim_start();
        }
        let inner = rest.strip_prefix('(').ok_or(MALFORMED)?;
        let (conditions, after) = conditions(inner)?;
        count += conditions.len();
        if conditions.is_empty() || count > CONDITIONS_MAX {
            return Err(MALFORMED);
        }
        lists.push(StateList { path: path.clone(), conditions });
        rest = after.trim_start();
    }
    if lists.is_empty() { Err(MALFORMED) } else { Ok(lists) }
}

/// Parses the conditions of a list up to its end; returns the rest behind it.
fn conditions(text: &str) -> Result<(Vec<StateCondition>, &str), Refusal> {
    let (mut rest, mut conditions) = (text.trim_start(), Vec::new());
    loop {
        if let Some(after) = rest.strip_prefix(')') {
            return Ok((conditions, after));
        }
        let negated = rest.get(..3).filter(|word| word.eq_ignore_ascii_case("not"));
        if negated.is_some() {
            rest = rest[3..].trim_start();
        }
        let (state, after) = if let Some(token) = rest.strip_prefix('<') {
            let (token, after) = token.split_once('>').ok_or(MALFORMED)?;
            (ResourceState::Token(token.to_string()), after)
        } else {
            let tag = rest.strip_prefix('[').ok_or(MALFORMED)?;
            let (tag, after) = tag.split_once(']').ok_or(MALFORMED)?;
            (ResourceState::Tag(tag.trim().to_string()), after)
        };
        conditions.push(StateCondition { is_not: negated.is_some(), state });
        rest = after.trim_start();
        if conditions.len() > CONDITIONS_MAX {
            return Err(MALFORMED);
        }
    }
}
