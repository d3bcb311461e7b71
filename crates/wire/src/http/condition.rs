//! Conditional requests (RFC 9110 §13).

use super::{Fields, Method, Refusal, parse_date, refusal};
use base::Time;

/// A list of entity tags, or `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tags {
    /// `*`: any representation.
    Any,
    /// One of these; weak tags include their `W/`.
    OneOf(Vec<String>),
}

/// The preconditions of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    if_match: Option<Tags>,
    if_none_match: Option<Tags>,
    if_modified_since: Option<Time>,
    if_unmodified_since: Option<Time>,
    if_range: Option<String>,
    /// Rest of `If` when the tokens are known: lists of entity tags, each with whether it must not
    /// be the tag; one list must hold.
    states: Option<Vec<Vec<(bool, String)>>>,
}

/// Result of evaluating preconditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Perform the method.
    Go,
    /// Reply that nothing has changed (304).
    NotModified,
    /// Refuse (412).
    Failed,
}

impl Conditions {
    pub(super) fn parse(fields: &Fields<'_>) -> Result<Conditions, Refusal> {
        Ok(Conditions {
            if_match: tags(fields, "if-match")?,
            if_none_match: tags(fields, "if-none-match")?,
            if_modified_since: fields.one("if-modified-since")?.and_then(parse_date),
            if_unmodified_since: fields.one("if-unmodified-since")?.and_then(parse_date),
            if_range: fields.one("if-range")?.map(str::to_string),
            states: None,
        })
    }

    /// Adds lists of entity tags, each with whether it must not be the tag; one list must hold.
    pub fn require_one_of(&mut self, lists: Vec<Vec<(bool, String)>>) {
        self.states = Some(lists);
    }

    /// Returns whether one of the lists of `If` holds.
    fn has_state(&self, there: Option<(&str, Time)>) -> bool {
        let holds = |(is_not, tag): &(bool, String)| {
            let present = there.is_some_and(|(present, _)| present == tag);
            present != *is_not
        };
        self.states.as_ref().is_none_or(|lists| lists.iter().any(|list| list.iter().all(holds)))
    }

    /// Returns whether there is no condition other than `If-Range`.
    pub fn is_empty(&self) -> bool {
        let Conditions { if_match, if_none_match, if_modified_since, .. } = self;
        let Conditions { if_unmodified_since, states, .. } = self;
        states.is_none()
            && if_match.is_none()
            && if_none_match.is_none()
            && if_modified_since.is_none()
            && if_unmodified_since.is_none()
    }

    /// Returns whether the only condition is that the file exists.
    pub fn requires_only_existence(&self) -> bool {
        let is_any = matches!(self.if_match, Some(Tags::Any));
        is_any && Conditions { if_match: None, ..self.clone() }.is_empty()
    }

    /// Returns whether the request has an `If-None-Match` condition.
    pub fn forbids_any(&self) -> bool {
        self.if_none_match.is_some()
    }

    /// Evaluates the conditions against the tag and date of the present representation, or `None`
    /// if there is none (order: §13.2.2).
    pub fn judge(&self, method: Method, there: Option<(&str, Time)>) -> Verdict {
        let reads = matches!(method, Method::Get | Method::Head);
        let strong = |tags: &Tags| there.is_some_and(|(tag, _)| tags.matches(tag, false));
        let weak = |tags: &Tags| there.is_some_and(|(tag, _)| tags.matches(tag, true));
        let newer = |since: Time| there.is_some_and(|(_, date)| date.secs > since.secs);
        if !self.has_state(there) {
            return Verdict::Failed;
        }
        match (&self.if_match, self.if_unmodified_since) {
            (Some(tags), _) if !strong(tags) => return Verdict::Failed,
            (None, Some(since)) if newer(since) => return Verdict::Failed,
            (Some(_), _) | (None, _) => {}
        }
        match (&self.if_none_match, self.if_modified_since) {
            (Some(tags), _) if weak(tags) && reads => Verdict::NotModified,
            (Some(tags), _) if weak(tags) => Verdict::Failed,
            (None, Some(since)) if reads && there.is_some() && !newer(since) => {
                Verdict::NotModified
            }
            (Some(_), _) | (None, _) => Verdict::Go,
        }
    }

    /// Returns whether the range still applies to this representation (`If-Range`, §13.1.5).
    pub fn range_applies(&self, tag: &str, date: Time) -> bool {
        match &self.if_range {
            None => true,
            Some(text) if text.starts_with('"') => text == tag,
            Some(text) => parse_date(text).is_some_and(|since| since.secs == date.secs),
        }
    }
}

impl Tags {
    fn matches(&self, tag: &str, weakly: bool) -> bool {
        match self {
            Tags::Any => true,
            Tags::OneOf(tags) => tags.iter().any(|candidate| match candidate.strip_prefix("W/") {
                Some(opaque) => weakly && opaque == tag,
                None => candidate == tag,
            }),
        }
    }
}

/// Parses a list of entity tags. Tags of this server contain no comma, so the list is split at
/// commas: the parts of any other tag match nothing, as the tag itself would.
fn tags<'a>(fields: &Fields<'a>, name: &'a str) -> Result<Option<Tags>, Refusal> {
    let all: Vec<&str> = fields.list(name).filter(|tag| !tag.is_empty()).collect();
    match all[..] {
        [] => Ok(None),
        ["*"] => Ok(Some(Tags::Any)),
        _ if all.contains(&"*") => Err(refusal(400, "* is combined with entity tags")),
        _ => Ok(Some(Tags::OneOf(all.into_iter().map(str::to_string).collect()))),
    }
}
