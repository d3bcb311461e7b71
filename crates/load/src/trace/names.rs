//! Devices and files of a trace, numbered in order of appearance.

use std::collections::BTreeMap;

/// Maximum files of a trace.
pub const FILES_MAX: usize = 1 << 20;

/// Numbers of names. A name is bytes (a path) or a number (a device); a trace uses one kind.
#[derive(Debug, Default)]
pub(super) struct Names {
    list: Vec<String>,
    named: BTreeMap<Vec<u8>, u32>,
    numbered: BTreeMap<u64, u32>,
    last: Option<(u64, u32)>,
}

impl Names {
    /// Returns the number of a file by name; `None` if there are too many files.
    pub(super) fn named(&mut self, name: &[u8]) -> Option<u32> {
        if let Some(number) = self.named.get(name) {
            return Some(*number);
        }
        let number = self.push(String::from_utf8_lossy(name).into_owned())?;
        self.named.insert(name.to_vec(), number);
        Some(number)
    }

    /// Returns the number of a device by its `id` in the trace; `name` names a new one. `None` if
    /// there are too many.
    pub(super) fn numbered(&mut self, id: u64, name: impl FnOnce() -> String) -> Option<u32> {
        if let Some((last, number)) = self.last
            && last == id
        {
            return Some(number);
        }
        let number = match self.numbered.get(&id) {
            Some(number) => *number,
            None => {
                let number = self.push(name())?;
                self.numbered.insert(id, number);
                number
            }
        };
        self.last = Some((id, number));
        Some(number)
    }

    /// Returns all names, by number.
    pub(super) fn list(&self) -> &[String] {
        &self.list
    }

    fn push(&mut self, name: String) -> Option<u32> {
        if self.list.len() == FILES_MAX {
            return None;
        }
        self.list.push(name);
        u32::try_from(self.list.len() - 1).ok()
    }
}
