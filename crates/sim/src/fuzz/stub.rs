//! A tree whose replies are random values of the right type, and which counts its references.

use super::streams::{self, number};
use base::op::{Detail, Entry, Replacement};
use base::rng::Rng;
use base::{Block, Buf, Error, FileHandle, Kind, Name, Stat, StatFs, User};
use std::collections::BTreeMap;
use tree::request::{Lock, LockKind, Owner};
use tree::{Ask, NodeId, OpenId, Reply};

/// The stub: references handed out and not yet released.
#[derive(Debug, Default)]
pub(super) struct Stub {
    nodes: BTreeMap<NodeId, u32>,
    opens: BTreeMap<OpenId, u32>,
    next: usize,
}

impl Stub {
    /// Releases a reference.
    pub(super) fn release(&mut self, node: NodeId) {
        let count = self.nodes.get_mut(&node);
        let count = count.unwrap_or_else(|| panic!("{node:?} is given back, but was not given"));
        *count -= 1;
        if *count == 0 {
            self.nodes.remove(&node);
        }
    }

    /// Closes an open file.
    pub(super) fn close(&mut self, open: OpenId) {
        assert!(self.opens.remove(&open).is_some(), "{open:?} is closed, but is not open");
    }

    /// Checks that no reference is left.
    pub(super) fn expect_nothing_left(&self) {
        assert!(self.nodes.is_empty() && self.opens.is_empty(), "left behind: {self:?}");
    }

    fn node(&mut self) -> NodeId {
        self.next += 1;
        let node = NodeId::new(0, self.next);
        self.nodes.insert(node, 1);
        node
    }

    fn open(&mut self) -> OpenId {
        self.next += 1;
        let open = OpenId::new(0, self.next);
        self.opens.insert(open, 1);
        open
    }

    fn stat(rng: &mut Rng) -> Stat {
        let kind = Kind::ALL[if rng.bool() { rng.usize(..2) } else { rng.usize(..7) }];
        let size = if rng.u8(..4) == 0 { number(rng) >> 1 } else { rng.u64(..200_000) };
        Stat { kind, size, mode: 0o644, inode: rng.u64(..), ..Stat::default() }
    }

    /// Draws a reply.
    pub(super) fn answer(&mut self, rng: &mut Rng, ask: &Ask) -> Result<Reply, Error> {
        if rng.u8(..5) == 0 {
            return Err(Error::ALL[rng.usize(..Error::ALL.len())]);
        }
        let stat = Self::stat(rng);
        Ok(match ask {
            Ask::Walk { from, names } if names.is_empty() => {
                *self.nodes.entry(*from).or_insert(0) += 1;
                Reply::Walked(Vec::new(), Some(*from))
            }
            Ask::Walk { names, .. } => match rng.usize(1..=names.len()) {
                whole if whole == names.len() => {
                    Reply::Walked(vec![stat; whole], Some(self.node()))
                }
                part => Reply::Walked(vec![stat; part], None),
            },
            Ask::Fetch { read_max, headroom, .. } => {
                return self.fetch(rng, stat, *read_max, *headroom);
            }
            Ask::Resolve { .. } => Reply::Walked(vec![stat], Some(self.node())),
            Ask::Open { .. } => Reply::Opened(self.open(), stat),
            Ask::Create { .. } | Ask::CreateUnnamed { .. } => {
                let links = u32::from(matches!(ask, Ask::Create { .. }));
                let stat = Stat { kind: Kind::File, links, ..stat };
                Reply::Created(self.node(), self.open(), stat)
            }
            Ask::Replace { .. } if rng.u8(..4) == 0 => {
                Reply::Unexpected(rng.bool().then_some(stat))
            }
            Ask::Replace { by: Replacement::Nothing, .. } => Reply::Done,
            Ask::Replace { .. } if rng.bool() => Reply::Stat(stat),
            Ask::Read { count, headroom, .. } => {
                let count = rng.usize(..=(*count as usize).min(300_000));
                match rng.bool() {
                    true => Reply::Data(filled(*headroom as usize, count)),
                    false => pieces(rng, count),
                }
            }
            Ask::Write { data, .. } if rng.u8(..6) == 0 => {
                Reply::Written(rng.u32(..=data.len() as u32))
            }
            Ask::Write { data, .. } => Reply::Written(data.len() as u32),
            Ask::List { cookie, detail, .. } => Self::list(rng, *cookie, *detail, &stat),
            other => Self::plain(rng, other, stat),
        })
    }

    fn plain(rng: &mut Rng, ask: &Ask, stat: Stat) -> Reply {
        match ask {
            Ask::Stat { .. } | Ask::MakeDir { .. } | Ask::Symlink { .. } | Ask::MakeNode { .. } => {
                Reply::Stat(stat)
            }
            Ask::GetAttr { .. } if rng.bool() => Reply::Bytes(streams::dav_body(rng).into_bytes()),
            Ask::ReadLink { .. } | Ask::GetAttr { .. } | Ask::ListAttrs { .. } => {
                Reply::Bytes(vec![b'v'; rng.usize(..300)])
            }
            Ask::FileHandle { .. } => {
                Reply::FileHandle(FileHandle::new(&[rng.u8(..4)]).expect("it is short"))
            }
            Ask::StatFs { .. } => Reply::StatFs(StatFs::default()),
            Ask::Lock { wait: false, .. } if rng.bool() => Reply::Blocked,
            Ask::Lock { .. } => Reply::Locked,
            Ask::NextData { .. } => Reply::DataAt(rng.bool().then(|| number(rng))),
            Ask::GetLock { .. } => Reply::Conflict(rng.bool().then(|| Lock {
                kind: LockKind::Exclusive,
                start: 0,
                last: number(rng),
                owner: Owner { client: b"x".to_vec(), process: 1 },
            })),
            Ask::Identify { .. } => {
                Reply::User(User { uid: 1, gid: 1, groups: Vec::new(), commands: false })
            }
            _ => Reply::Done,
        }
    }

    fn fetch(&mut self, rng: &mut Rng, stat: Stat, max: u32, room: u32) -> Result<Reply, Error> {
        match stat.kind {
            Kind::Directory => Ok(Reply::Fetched(stat, Buf::default(), Some(self.open()))),
            Kind::File => {
                let most = stat.size.min(max.into()) as usize;
                let count = if rng.u8(..6) == 0 { rng.usize(..=most) } else { most };
                let more = stat.size > count as u64;
                let open = more.then(|| self.open());
                Ok(Reply::Fetched(stat, filled(room as usize, count), open))
            }
            _ => Err(Error::Unsupported),
        }
    }

    fn list(rng: &mut Rng, cookie: u64, detail: Detail, stat: &Stat) -> Reply {
        let count = if cookie > 50 { 0 } else { rng.u64(..6) };
        let entry = |number: u64| Entry {
            cookie: cookie.saturating_add(number + 1),
            inode: number,
            device: None,
            kind: stat.kind,
            name: Name::new(&vec![b'<'; 1 + (number as usize * 90) % 255]).expect("plain"),
            stat: detail.has_stat().then(|| stat.clone()),
            handle: FileHandle::new(&number.to_be_bytes()).filter(|_| detail.has_handle()),
        };
        Reply::Entries((0..count).map(entry).collect())
    }
}

/// Returns this many bytes in pieces of blocks, as from a cache.
fn pieces(rng: &mut Rng, count: usize) -> Reply {
    let block = Block::zeroed(4096);
    let mut pieces = Vec::new();
    let mut left = count;
    while left > 0 {
        let start = rng.usize(..block.len());
        let end = block.len().min(start + left);
        pieces.push(Buf::shared(block.clone(), start..end));
        left -= end - start;
    }
    Reply::Pieces(pieces)
}

fn filled(headroom: usize, count: usize) -> Buf {
    let mut buf = Buf::with_room(headroom, count);
    buf.grow(count);
    buf
}
