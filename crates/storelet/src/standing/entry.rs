//! What is installed under a name: its last versions, and which of them is in use.

use super::deed::Plan;
use crate::compile::Hash;
use crate::maxima::Maxima;
use crate::order::{Label, Wanted};
use base::{Caller, User};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;

/// How many versions of a storelet are kept.
pub(crate) const VERSIONS_MAX: usize = 8;

/// The form in which this is kept.
const FORMAT: u32 = 1;

/// Who installed something, and as whom it runs when nobody asks for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct By {
    pub(crate) uid: u32,
    gid: u32,
    groups: Vec<u32>,
}

impl By {
    /// `None`: it is nobody in particular.
    pub(crate) fn of(caller: &Caller) -> Option<By> {
        let Caller::User(user) = caller else { return None };
        Some(By { uid: user.uid, gid: user.gid, groups: user.groups.clone() })
    }

    /// Them, who ask; they command nothing.
    pub(crate) fn caller(&self) -> Caller {
        let By { uid, gid, groups } = self.clone();
        Caller::User(Arc::new(User { uid, gid, groups, commands: false }))
    }
}

/// A version, as it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Version {
    pub(crate) version: u32,
    /// The name of its module.
    pub(crate) module: String,
    /// What was said of it.
    pub(crate) order: String,
    pub(crate) by: By,
    /// When it was installed, ns since 1970.
    pub(crate) at: i64,
}

/// All of it, as it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    format: u32,
    pub(crate) name: String,
    /// The number of the version in use.
    pub(crate) current: u32,
    /// The number that the next version gets: no number is used twice.
    next: u32,
    /// The oldest first.
    pub(crate) versions: Vec<Version>,
}

impl Entry {
    /// A name under which nothing is installed.
    pub(crate) fn new(label: &Label) -> Entry {
        let (name, versions) = (label.to_string(), Vec::new());
        Entry { format: FORMAT, name, current: 0, next: 1, versions }
    }

    /// Reads what was kept under a name.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn read(label: &Label, bytes: &[u8]) -> Result<Entry, String> {
        let entry: Entry = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if entry.format != FORMAT {
            return Err(format!("it is of a form {} that this server does not know", entry.format));
        }
        let rises = entry.versions.is_sorted_by(|one, other| one.version < other.version);
        let below = entry.versions.iter().all(|version| version.version < entry.next);
        if entry.name != label.as_str() || !rises || !below || entry.current().is_none() {
            return Err("it contradicts itself".to_string());
        }
        entry.versions.iter().try_for_each(|version| version.plan(label).map(drop))?;
        Ok(entry)
    }

    /// It, with those versions whose modules are there.
    ///
    /// # Errors
    /// If that of the version in use is not.
    pub(crate) fn with_modules(mut self, modules: &BTreeSet<Hash>) -> Result<Entry, String> {
        let is_there = |version: &Version| {
            version.module.parse().is_ok_and(|hash: Hash| modules.contains(&hash))
        };
        self.versions.retain(is_there);
        let lost = || "its module is lost".to_string();
        self.current().is_some().then_some(()).ok_or_else(lost)?;
        Ok(self)
    }

    /// It, to be kept.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("numbers and texts")
    }

    /// The version in use.
    pub(crate) fn current(&self) -> Option<&Version> {
        self.version(self.current)
    }

    pub(crate) fn version(&self, number: u32) -> Option<&Version> {
        self.versions.iter().find(|version| version.version == number)
    }

    /// Adds a version and uses it; the oldest goes if there are too many.
    pub(crate) fn install(&mut self, plan: &Plan, module: Hash, by: By, at: i64) -> u32 {
        let version = self.next;
        let (module, order) = (module.to_string(), plan.text.clone());
        self.versions.push(Version { version, module, order, by, at });
        (self.current, self.next) = (version, version + 1);
        if self.versions.len() > VERSIONS_MAX {
            self.versions.remove(0);
        }
        version
    }

    /// The modules of all versions.
    pub(crate) fn modules(&self) -> impl Iterator<Item = Hash> {
        self.versions.iter().filter_map(|version| version.module.parse().ok())
    }
}

impl Version {
    /// How it is run.
    ///
    /// # Errors
    /// If that makes no sense: another server has kept it.
    pub(crate) fn plan(&self, label: &Label) -> Result<Plan, String> {
        let module = format!("module sha256:{}", self.module);
        let plan = Plan::parse(label.clone(), &module, self.order.clone(), &Maxima::NONE)?;
        match plan.module() {
            Wanted::Known(_) => Ok(plan),
            Wanted::Follows(_) | Wanted::Standing(_) => Err("it names no module".to_string()),
        }
    }
}
