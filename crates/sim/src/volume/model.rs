//! Expected contents of a volume.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use store::{Change, Missing, Piece, Reader, Table};

/// The table of ordinary keys.
pub(super) const TREE: Table = Table(300);
/// The table of raw objects.
pub(super) const RAW: Table = Table(301);
/// Number of raw objects.
pub(super) const OBJECTS: u64 = 4;

/// The contents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Model {
    tree: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Without trailing zeros, which a raw object does not distinguish.
    raw: BTreeMap<u64, Vec<u8>>,
}

impl Model {
    /// Applies the changes of a transaction. Raw objects begin at `base`.
    pub(super) fn apply(&mut self, changes: &[Change], base: u64) {
        for change in changes {
            match change.clone() {
                Change::Put { key, value, .. } => {
                    self.tree.insert(key, value);
                }
                Change::Delete { key, .. } => {
                    self.tree.remove(&key);
                }
                Change::Write { object, offset, data, .. } => {
                    let bytes = self.raw.entry(object).or_default();
                    let start = (offset - base) as usize;
                    bytes.resize(bytes.len().max(start + data.len()), 0);
                    bytes[start..start + data.len()].copy_from_slice(&data);
                }
                Change::Cut { object, from, to, .. } => {
                    let bytes = self.raw.entry(object).or_default();
                    let end = (bytes.len() as u64).min(to - base) as usize;
                    let start = ((from - base) as usize).min(end);
                    bytes[start..end].fill(0);
                }
                Change::Attach { .. } | Change::Free { .. } => {
                    unreachable!("the model receives blocks as a write")
                }
            }
        }
        for bytes in self.raw.values_mut() {
            trim(bytes);
        }
        self.raw.retain(|_, bytes| !bytes.is_empty());
    }

    /// Reads everything from a reader, each key in several ways.
    pub(super) fn read(reader: &Reader<'_>, reach: u64, base: u64) -> Result<Model, Missing> {
        let mut model = Model::default();
        reader.scan(TREE, b"", &mut |key, value| {
            model.tree.insert(key.to_vec(), value.bytes().into_owned());
            ControlFlow::Continue(())
        })?;
        for (key, value) in &model.tree {
            let got = reader.get(TREE, key)?.expect("a scan found it");
            assert_eq!(got.bytes(), &value[..], "get and scan agree");
            let (back, _) = reader.seek_back(TREE, key)?.expect("a scan found it");
            assert_eq!(back, key, "the last at or before a key is itself");
            let (on, _) = reader.seek(TREE, key)?.expect("a scan found it");
            assert_eq!(on, key, "the first at or behind a key is itself");
        }
        for object in 0..OBJECTS {
            let mut bytes = Vec::new();
            for piece in reader.read(RAW, object, base, reach as usize)? {
                match piece {
                    Piece::Data(block, range) => bytes.extend(&block[range]),
                    Piece::Inline(inline) => bytes.extend(inline),
                    Piece::Hole(count) => bytes.resize(bytes.len() + count, 0),
                }
            }
            assert_eq!(bytes.len() as u64, reach, "a read gives what was requested");
            trim(&mut bytes);
            if !bytes.is_empty() {
                model.raw.insert(object, bytes);
            }
        }
        Ok(model)
    }
}

fn trim(bytes: &mut Vec<u8>) {
    while bytes.last() == Some(&0) {
        bytes.pop();
    }
}
