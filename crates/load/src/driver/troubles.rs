//! Problems with a target beside single I/Os, for the report.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum number of different problems.
const KINDS_MAX: usize = 16;

/// Problems with their counts. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Troubles(Arc<Mutex<BTreeMap<String, u64>>>);

impl Troubles {
    /// Counts a problem.
    pub(super) fn note(&self, what: impl Into<String>) {
        let mut kinds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let what = what.into();
        let known = kinds.len() < KINDS_MAX || kinds.contains_key(&what);
        let what = if known { what } else { "something else".to_string() };
        *kinds.entry(what).or_default() += 1;
    }

    /// Returns all problems with their counts.
    pub(super) fn lines(&self) -> Vec<String> {
        let kinds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kinds.iter().map(|(what, count)| format!("{count} × {what}")).collect()
    }
}
