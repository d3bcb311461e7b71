//! Archives: a tree of files in memory, written as tar with sorted entries and fixed times.

use anyhow::{Context as _, Result};
use flate2::{Compression, GzBuilder};
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::path::Path;

/// A file, directory or link.
struct Node {
    mode: u32,
    owner: u64,
    contents: Contents,
}

enum Contents {
    File(Vec<u8>),
    Directory,
    /// Target of a symbolic link.
    Link(String),
}

/// A tree of files, by their paths without a leading slash.
#[derive(Default)]
pub(super) struct Tree {
    nodes: BTreeMap<String, Node>,
}

impl Tree {
    /// Adds a file of root, and its parents.
    pub(super) fn file(&mut self, path: &str, mode: u32, contents: Vec<u8>) {
        self.parents(path);
        let node = Node { mode, owner: 0, contents: Contents::File(contents) };
        let before = self.nodes.insert(path.to_owned(), node);
        assert!(before.is_none(), "{path} is there twice");
    }

    /// Adds a directory, and its parents.
    pub(super) fn dir(&mut self, path: &str, mode: u32, owner: u64) {
        self.parents(path);
        self.nodes.insert(path.to_owned(), Node { mode, owner, contents: Contents::Directory });
    }

    /// Adds a symbolic link of root, and its parents.
    pub(super) fn link(&mut self, path: &str, target: &str) {
        self.parents(path);
        let contents = Contents::Link(target.to_owned());
        self.nodes.insert(path.to_owned(), Node { mode: 0o777, owner: 0, contents });
    }

    fn parents(&mut self, path: &str) {
        for (at, _) in path.match_indices('/') {
            let node = || Node { mode: 0o755, owner: 0, contents: Contents::Directory };
            self.nodes.entry(path[..at].to_owned()).or_insert_with(node);
        }
    }

    /// Returns the sum of the sizes of all files, bytes.
    pub(super) fn bytes(&self) -> usize {
        let size = |node: &Node| match &node.contents {
            Contents::File(contents) => contents.len(),
            Contents::Directory | Contents::Link(_) => 0,
        };
        self.nodes.values().map(size).sum()
    }

    /// Returns the tree as a tar archive with entries of this time.
    pub(super) fn tar(&self, time: u64) -> Result<Vec<u8>> {
        let mut archive = tar::Builder::new(Vec::new());
        for (path, node) in &self.nodes {
            let mut header = tar::Header::new_gnu();
            header.set_mode(node.mode);
            header.set_uid(node.owner);
            header.set_gid(node.owner);
            header.set_mtime(time);
            let (name, contents) = match &node.contents {
                Contents::File(contents) => {
                    header.set_entry_type(tar::EntryType::Regular);
                    (path.clone(), contents.as_slice())
                }
                Contents::Link(target) => {
                    header.set_entry_type(tar::EntryType::Symlink);
                    header.set_size(0);
                    archive.append_link(&mut header, path, target)?;
                    continue;
                }
                Contents::Directory => {
                    header.set_entry_type(tar::EntryType::Directory);
                    (format!("{path}/"), &[][..])
                }
            };
            header.set_size(contents.len() as u64);
            archive.append_data(&mut header, name, contents)?;
        }
        archive.into_inner().map_err(Into::into)
    }
}

/// Compresses bytes, without a name or a time.
pub(super) fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = GzBuilder::new().write(Vec::new(), Compression::new(9));
    encoder.write_all(bytes)?;
    encoder.finish().map_err(Into::into)
}

/// Decompresses bytes.
pub(super) fn gunzip(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut all = Vec::new();
    flate2::read::GzDecoder::new(bytes).read_to_end(&mut all)?;
    Ok(all)
}

/// Unpacks the layers of a container image below `to`, as a container engine does, and returns its
/// configuration. Blobs are checked against their digests.
pub fn unpack(image: &[u8], to: &Path) -> Result<serde_json::Value> {
    let mut files = BTreeMap::new();
    for entry in tar::Archive::new(image).entries()? {
        let mut entry = entry?;
        let path = entry.path()?.display().to_string();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes)?;
        files.insert(path, bytes);
    }
    let blob = |descriptor: &serde_json::Value| {
        let digest = descriptor["digest"].as_str().context("a digest")?;
        let digest = digest.strip_prefix("sha256:").context("a SHA-256")?;
        let bytes = files.get(&format!("blobs/sha256/{digest}")).context("a blob")?;
        anyhow::ensure!(super::sha256(bytes) == digest, "blob {digest} has other contents");
        anyhow::ensure!(descriptor["size"] == bytes.len(), "blob {digest} has another size");
        Ok(bytes)
    };
    let index: serde_json::Value =
        serde_json::from_slice(files.get("index.json").context("index.json")?)?;
    let manifest: serde_json::Value = serde_json::from_slice(blob(&index["manifests"][0])?)?;
    let config: serde_json::Value = serde_json::from_slice(blob(&manifest["config"])?)?;
    let layers = manifest["layers"].as_array().context("layers")?;
    for (at, layer) in layers.iter().enumerate() {
        let bytes = gunzip(blob(layer)?)?;
        let digest = format!("sha256:{}", super::sha256(&bytes));
        anyhow::ensure!(config["rootfs"]["diff_ids"][at] == digest, "layer {at}: {digest}");
        let mut archive = tar::Archive::new(&bytes[..]);
        archive.set_preserve_permissions(true);
        archive.set_preserve_ownerships(true);
        archive.unpack(to)?;
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_sorted_and_have_their_parents() {
        let mut tree = Tree::default();
        tree.file("usr/bin/b", 0o755, b"bb".to_vec());
        tree.file("usr/bin/a", 0o644, b"a".to_vec());
        tree.dir("tmp", 0o1777, 5);
        assert_eq!(tree.bytes(), 3);
        let bytes = tree.tar(7).expect("a tar");
        let mut archive = tar::Archive::new(&bytes[..]);
        let entries = archive.entries().expect("entries").map(|entry| {
            let entry = entry.expect("an entry");
            let (header, path) = (entry.header(), entry.path().expect("a path"));
            assert_eq!(header.mtime().expect("a time"), 7);
            let (mode, uid) = (header.mode().expect("a mode"), header.uid().expect("a user"));
            format!("{} {mode:o} {uid}", path.display())
        });
        let entries: Vec<_> = entries.collect();
        let all = ["tmp/ 1777 5", "usr/ 755 0", "usr/bin/ 755 0"];
        assert_eq!(entries[..3], all);
        assert_eq!(entries[3..], ["usr/bin/a 644 0", "usr/bin/b 755 0"]);
    }

    #[test]
    fn compressed_bytes_have_no_time() {
        let packed = gzip(b"text").expect("compressed");
        assert_eq!(packed[4..8], [0; 4]);
        assert_eq!(gunzip(&packed).expect("text"), b"text");
    }
}
