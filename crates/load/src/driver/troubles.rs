//! What went wrong with a target besides single I/Os, for the report.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Most different sentences that are kept.
const KINDS_MAX: usize = 16;

/// Sentences, and how often each was said. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Troubles(Arc<Mutex<BTreeMap<String, u64>>>);

impl Troubles {
    /// Notes one more trouble of this kind.
    pub(super) fn note(&self, what: impl Into<String>) {
        let mut kinds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let what = what.into();
        let known = kinds.len() < KINDS_MAX || kinds.contains_key(&what);
        let what = if known { what } else { "something else".to_string() };
        *kinds.entry(what).or_default() += 1;
    }

    /// All of them, each with its count.
    pub(super) fn said(&self) -> Vec<String> {
        let kinds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kinds.iter().map(|(what, count)| format!("{count} × {what}")).collect()
    }
}
