//! Fetch: a path with links that are followed as long as they stay beneath the root.

use super::Disk;
use base::op::{File, PathDone};
use base::{Access, Buf, Error, Kind, Name};

/// Maximum number of links along one path (Linux's own limit).
const LINKS_MAX: usize = 40;

/// Bytes of the first read from a file that reports size zero.
const RECORD: usize = 4096;

impl Disk {
    pub(super) fn fetch(
        &mut self,
        root: File,
        path: &[u8],
        read_max: u32,
        headroom: u32,
    ) -> Result<PathDone, Error> {
        let (inode, dentry) = self.resolve(self.held(root).inode, path)?;
        let stat = self.stat(inode);
        match stat.kind {
            Kind::Directory => {
                let file = self.hold(inode, dentry, Some(Access::READ));
                return Ok(PathDone::Fetched(stat, Buf::default(), Some(file)));
            }
            Kind::File => {}
            _ => return Err(Error::Unsupported),
        }
        let hides = self.node(inode).hides_size;
        // A file that reports size zero returns one record at a time.
        let most = if hides { RECORD.min(read_max as usize) } else { read_max as usize };
        let bytes = self.node(inode).data.read(0, most);
        let mut buf = Buf::with_room(headroom as usize, bytes.len());
        buf.extend(&bytes);
        let more = stat.size > buf.len() as u64 || (hides && !buf.is_empty());
        let file = more.then(|| self.hold(inode, dentry, Some(Access::READ)));
        Ok(PathDone::Fetched(stat, buf, file))
    }

    /// Follows a path; leaving the root by `..` or an absolute link is `CrossDevice`.
    fn resolve(&self, root: u64, path: &[u8]) -> Result<(u64, u64), Error> {
        let mut rest: Vec<Vec<u8>> = split(path);
        let (mut at, mut dentry) = (root, self.node(root).dentry);
        let mut links = 0;
        while let Some(part) = rest.pop() {
            if part == b".." && at == root {
                return Err(Error::CrossDevice);
            }
            let (next, by) = self.step(at, &Name::new(&part)?)?;
            let node = self.node(next);
            if node.kind != Kind::Symlink {
                (at, dentry) = (next, by);
                continue;
            }
            links += 1;
            if links > LINKS_MAX {
                return Err(Error::Loop);
            }
            if node.target.starts_with(b"/") {
                return Err(Error::CrossDevice);
            }
            rest.extend(split(&node.target));
        }
        Ok((at, dentry))
    }
}

/// Returns the components in reverse order.
fn split(path: &[u8]) -> Vec<Vec<u8>> {
    let parts = path.split(|byte| *byte == b'/').filter(|part| !part.is_empty());
    let mut parts: Vec<Vec<u8>> = parts.map(<[u8]>::to_vec).collect();
    parts.reverse();
    parts
}
