//! The quotas of a volume, and the usage that they count.

use super::read_view::{ReadView, Stop};
use super::record::{Holder, QUOTAS, Quota, SETTINGS, SETTINGS_KEY};
use base::Error;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use store::Change;

/// Value of `counted` for a project whose limits are enforced during a recount.
pub(super) const RECOUNT: u64 = u64::MAX - 1;

/// All quotas of a volume.
pub(super) type Quotas = BTreeMap<Holder, Quota>;

/// Loads all quotas.
pub(super) fn load(read_view: &ReadView<'_>) -> Result<Quotas, Stop> {
    let mut quotas = Quotas::new();
    if !read_view.settings.quotas {
        return Ok(quotas);
    }
    let mut damaged = false;
    read_view.reader.scan(QUOTAS, &[], &mut |key, value| {
        match (Holder::of_key(key), Quota::decode(&value.bytes())) {
            (Some(holder), Some(quota)) if quota.fits(holder) => {
                quotas.insert(holder, quota);
            }
            _ => damaged = true,
        }
        ControlFlow::Continue(())
    })?;
    if damaged { Err(Error::Io.into()) } else { Ok(quotas) }
}

/// Applies the changes of a transaction to quotas; returns whether it changes the settings.
pub(super) fn note(quotas: &mut Quotas, changes: &[Change]) -> bool {
    let mut is_of_settings = false;
    for change in changes {
        match change {
            Change::Put { table: QUOTAS, key, value } => {
                let holder = Holder::of_key(key).expect("keys of quotas are made here");
                let quota = Quota::decode(value).expect("quotas are made here");
                quotas.insert(holder, quota);
            }
            Change::Delete { table: QUOTAS, key } => {
                let holder = Holder::of_key(key).expect("keys of quotas are made here");
                quotas.remove(&holder);
            }
            Change::Put { table: SETTINGS, key, .. } => is_of_settings |= *key == SETTINGS_KEY,
            Change::Put { .. }
            | Change::Delete { .. }
            | Change::Write { .. }
            | Change::Attach { .. }
            | Change::Cut { .. }
            | Change::Free { .. } => {}
        }
    }
    is_of_settings
}

/// Usage: counted blocks and files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) blocks: u64,
    pub(super) inodes: u64,
}

impl Quota {
    /// Returns whether the directory fits the type of the holder: projects have one, users have
    /// none.
    pub(super) fn fits(&self, holder: Holder) -> bool {
        matches!(holder, Holder::User(_)) == (self.directory == 0)
    }

    /// Returns whether all files are counted.
    pub(super) fn is_counted(&self) -> bool {
        self.counted == u64::MAX
    }

    /// Returns whether the limits are enforced.
    pub(super) fn is_enforced(&self) -> bool {
        self.counted >= RECOUNT
    }

    pub(super) fn add(&mut self, usage: Usage) {
        self.blocks = self.blocks.saturating_add(usage.blocks);
        self.inodes = self.inodes.saturating_add(usage.inodes);
    }

    pub(super) fn subtract(&mut self, usage: Usage) {
        self.blocks = self.blocks.saturating_sub(usage.blocks);
        self.inodes = self.inodes.saturating_sub(usage.inodes);
    }

    /// Returns whether this additional usage would exceed a limit.
    pub(super) fn is_exceeded_by(&self, usage: Usage, block: u64) -> bool {
        let mut after = *self;
        after.add(usage);
        let bytes = after.blocks.saturating_mul(block);
        let blocks = usage.blocks > 0 && bytes > self.bytes_max;
        self.is_enforced() && (blocks || usage.inodes > 0 && after.inodes > self.inodes_max)
    }

    /// Returns the limits on blocks and files, given those of the volume.
    pub(super) fn limits(&self, block: u64, blocks: u64, inodes: u64) -> Usage {
        Usage { blocks: blocks.min(self.bytes_max / block), inodes: inodes.min(self.inodes_max) }
    }
}
