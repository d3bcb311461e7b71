//! Registry entry: recent versions of an installed storelet, and the selection of one.

use super::registry_change::Plan;
use crate::maxima::Maxima;
use crate::run_spec::{Label, Wanted};
use base::{Caller, User};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;
use wasi::Hash;

/// Maximum number of versions retained of a storelet.
pub(crate) const VERSIONS_MAX: usize = 8;

/// Version of the stored format.
const FORMAT: u32 = 1;

/// User who installed a version, and identity of its automatic runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct By {
    pub(crate) uid: u32,
    gid: u32,
    groups: Vec<u32>,
}

impl By {
    /// Returns the user of a caller; `None` for the server.
    pub(crate) fn of(caller: &Caller) -> Option<By> {
        let Caller::User(user) = caller else { return None };
        Some(By { uid: user.uid, gid: user.gid, groups: user.groups.clone() })
    }

    /// Returns the user as a caller, without administrative rights.
    pub(crate) fn caller(&self) -> Caller {
        let By { uid, gid, groups } = self.clone();
        Caller::User(Arc::new(User { uid, gid, groups, commands: false }))
    }
}

/// A version, as stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Version {
    pub(crate) version: u32,
    /// Hash of its module.
    pub(crate) module: String,
    /// Text of its installation.
    pub(crate) run_spec: String,
    pub(crate) by: By,
    /// Time of the installation, ns since 1970.
    pub(crate) at: i64,
}

/// An entry, as stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    format: u32,
    pub(crate) name: String,
    /// Number of the version in use.
    pub(crate) current: u32,
    /// Number of the next version: numbers are never reused.
    next: u32,
    /// Versions, oldest first.
    pub(crate) versions: Vec<Version>,
}

impl Entry {
    /// Creates an entry without versions.
    pub(crate) fn new(label: &Label) -> Entry {
        let (name, versions) = (label.to_string(), Vec::new());
        Entry { format: FORMAT, name, current: 0, next: 1, versions }
    }

    /// Decodes a stored entry.
    ///
    /// # Errors
    /// A description of the problem.
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

    /// Returns the entry without the versions whose modules are missing.
    ///
    /// # Errors
    /// If the module of the version in use is missing.
    pub(crate) fn with_modules(mut self, modules: &BTreeSet<Hash>) -> Result<Entry, String> {
        let is_there = |version: &Version| {
            version.module.parse().is_ok_and(|hash: Hash| modules.contains(&hash))
        };
        self.versions.retain(is_there);
        let lost = || "its module is lost".to_string();
        self.current().is_some().then_some(()).ok_or_else(lost)?;
        Ok(self)
    }

    /// Encodes the entry for the state store.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("numbers and texts")
    }

    /// Returns the version in use.
    pub(crate) fn current(&self) -> Option<&Version> {
        self.version(self.current)
    }

    pub(crate) fn version(&self, number: u32) -> Option<&Version> {
        self.versions.iter().find(|version| version.version == number)
    }

    /// Adds a version and selects it; drops the oldest one if there are too many.
    pub(crate) fn install(&mut self, plan: &Plan, module: Hash, by: By, at: i64) -> u32 {
        let version = self.next;
        let (module, run_spec) = (module.to_string(), plan.text.clone());
        self.versions.push(Version { version, module, run_spec, by, at });
        (self.current, self.next) = (version, version + 1);
        if self.versions.len() > VERSIONS_MAX {
            self.versions.remove(0);
        }
        version
    }

    /// Returns the modules of all versions.
    pub(crate) fn modules(&self) -> impl Iterator<Item = Hash> {
        self.versions.iter().filter_map(|version| version.module.parse().ok())
    }
}

impl Version {
    /// Parses the installation.
    ///
    /// # Errors
    /// If it is invalid for this server, because another one has stored it.
    pub(crate) fn plan(&self, label: &Label) -> Result<Plan, String> {
        let module = format!("module sha256:{}", self.module);
        let plan = Plan::parse(label.clone(), &module, self.run_spec.clone(), &Maxima::NONE)?;
        match plan.module() {
            Wanted::Known(_) => Ok(plan),
            Wanted::Follows(_) | Wanted::Standing(_) => Err("it names no module".to_string()),
        }
    }
}
