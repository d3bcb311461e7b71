//! Listing of present storelets, as text.

use super::DomainEntry;
use crate::crossing::DomainId;
use base::{Caller, Instant};
use std::fmt::Write as _;

/// Maximum length of a displayed name, characters.
const NAME_MAX: usize = 60;

/// Returns the display name of a storelet: its arguments, truncated, without control characters.
pub(super) fn name(args: &[Vec<u8>]) -> String {
    let texts: Vec<_> = args.iter().map(|arg| String::from_utf8_lossy(arg)).collect();
    let all = texts.join(" ");
    let shown = all.chars().map(|c| if c.is_control() { '?' } else { c });
    shown.take(NAME_MAX).collect()
}

/// Returns one line for each storelet.
pub(super) fn text<'a>(
    now: Instant,
    all: impl Iterator<Item = (&'a DomainId, &'a DomainEntry)>,
) -> Vec<u8> {
    let mut text = "number user state       seconds program\n".to_string();
    for (id, here) in all {
        let user = match &here.caller {
            Caller::Server => "server".to_string(),
            Caller::User(user) => user.uid.to_string(),
        };
        let (state, seconds) = (here.domain.state_name(), now.since(here.since).as_secs());
        let _ = writeln!(text, "{:<6} {user:<4} {state:<11} {seconds:>7} {}", id.0, here.name);
    }
    text.into_bytes()
}
