//! The tree in a volume, as one side of a copy.

use super::side::{Attrs, Outcome, Part, Side, Trouble, keeps};
use crate::volume::direct::Direct;
use base::op::Detail;
use base::{Access, Buf, Error, Kind, Name, SetStat, SetTime, Stat};
use tree::{Ask, NodeId, OpenId, Reply};

/// Bytes of one read.
const READ_MAX: u32 = 1 << 20;

/// Maximum number of bytes of names listed at once.
const LIST_MAX: u32 = 1 << 18;

const WRITE: Access =
    Access { read: false, write: true, append: false, truncate: false, sync: false };

/// The tree.
#[derive(Debug)]
pub(crate) struct Inside {
    pub(crate) direct: Direct,
    /// Whether owners are kept, and attributes reserved for root.
    root: bool,
}

impl Inside {
    pub(crate) fn new(direct: Direct, root: bool) -> Inside {
        Inside { direct, root }
    }

    fn ask(&mut self, ask: Ask) -> Outcome<Reply> {
        let answer = self.direct.ask(ask).map_err(Trouble::of);
        if answer.is_err() && self.direct.store().is_broken() {
            return Err(Trouble::Over("the volume's disk failed; look at the disk".to_string()));
        }
        answer
    }

    fn list_open(&mut self, open: OpenId) -> Outcome<Vec<Name>> {
        let (mut names, mut cookie) = (Vec::new(), 0);
        loop {
            let bytes_max = LIST_MAX;
            let Reply::Entries(entries) =
                self.ask(Ask::List { open, cookie, bytes_max, detail: Detail::Name })?
            else {
                return Err(Trouble::of(Error::Io));
            };
            match entries.last() {
                Some(last) => cookie = last.cookie,
                None => return Ok(names),
            }
            let others = entries.into_iter().map(|entry| entry.name).filter(Name::plain);
            names.extend(others);
        }
    }

    fn write_all(&mut self, open: OpenId, mut at: u64, mut data: Buf) -> Outcome<()> {
        while !data.is_empty() {
            let ask = Ask::Write { open, offset: at, data: data.clone() };
            match self.ask(ask)? {
                Reply::Written(count) if count > 0 => {
                    at += u64::from(count);
                    data.consume(count as usize);
                }
                _ => return Err(Trouble::of(Error::Io)),
            }
        }
        Ok(())
    }

    /// Returns the node of a new file.
    fn made(&mut self, dir: NodeId, name: &Name) -> Outcome<NodeId> {
        self.direct.find(dir, name).map(|(node, _)| node).map_err(Trouble::of)
    }
}

impl Side for Inside {
    type Node = NodeId;
    type Open = OpenId;

    fn find(&mut self, dir: &NodeId, name: &Name) -> Outcome<Option<(NodeId, Stat)>> {
        match self.direct.find(*dir, name) {
            Ok(found) => Ok(Some(found)),
            Err(Error::NotFound) => Ok(None),
            Err(error) => Err(Trouble::of(error)),
        }
    }

    fn release(&mut self, node: NodeId) {
        self.direct.release(node);
    }

    fn list(&mut self, dir: &NodeId) -> Outcome<Vec<Name>> {
        let ask = Ask::Open { node: *dir, access: Access::READ };
        let Reply::Opened(open, _) = self.ask(ask)? else {
            return Err(Trouble::of(Error::Io));
        };
        let names = self.list_open(open);
        self.direct.close(open);
        let mut names = names?;
        names.sort();
        Ok(names)
    }

    fn target(&mut self, node: &NodeId) -> Outcome<Vec<u8>> {
        match self.ask(Ask::ReadLink { node: *node })? {
            Reply::Bytes(target) => Ok(target),
            _ => Err(Trouble::of(Error::Io)),
        }
    }

    fn attrs(&mut self, node: &NodeId, _stat: &Stat) -> Outcome<Attrs> {
        let node = *node;
        let Reply::Bytes(list) = self.ask(Ask::ListAttrs { node })? else {
            return Err(Trouble::of(Error::Io));
        };
        let mut attrs = Attrs::new();
        let names = list.split(|byte| *byte == 0).filter(|name| !name.is_empty());
        for name in names.filter(|name| keeps(name, self.root)).collect::<Vec<_>>() {
            let name = name.to_vec();
            if let Reply::Bytes(value) = self.ask(Ask::GetAttr { node, name: name.clone() })? {
                attrs.push((name, value));
            }
        }
        Ok(attrs)
    }

    fn open(&mut self, node: &NodeId) -> Outcome<OpenId> {
        match self.ask(Ask::Open { node: *node, access: Access::READ })? {
            Reply::Opened(open, _) => Ok(open),
            _ => Err(Trouble::of(Error::Io)),
        }
    }

    fn read(&mut self, open: &mut OpenId, from: u64, stat: &Stat) -> Outcome<Option<Part>> {
        if from >= stat.size {
            return Ok(None);
        }
        // Fewer blocks than bytes indicate holes, of any length.
        let sparse = stat.blocks.saturating_mul(512) < stat.size;
        let from = match sparse {
            true => match self.ask(Ask::NextData { open: *open, from })? {
                Reply::DataAt(Some(at)) => at,
                Reply::DataAt(None) => {
                    return Ok(Some(Part { at: from, bytes: Vec::new(), next: stat.size }));
                }
                _ => return Err(Trouble::of(Error::Io)),
            },
            false => from,
        };
        let ask = Ask::Read { open: *open, offset: from, count: READ_MAX, headroom: 0 };
        let mut bytes = match self.ask(ask)? {
            Reply::Data(data) => vec![data],
            Reply::Pieces(pieces) => pieces,
            _ => return Err(Trouble::of(Error::Io)),
        };
        let count: usize = bytes.iter().map(|piece| piece.len()).sum();
        if count == 0 {
            return Ok(None);
        }
        let next = from + count as u64;
        let zeros = |piece: &Buf| sparse && piece.iter().all(|byte| *byte == 0);
        let skipped = bytes.iter().take_while(|piece| zeros(piece)).count();
        let at = from + bytes.drain(..skipped).map(|piece| piece.len() as u64).sum::<u64>();
        match bytes.iter().position(zeros) {
            // The part ends where a hole begins; it is read once more.
            Some(data) => {
                bytes.truncate(data);
                let next = at + bytes.iter().map(|piece| piece.len() as u64).sum::<u64>();
                Ok(Some(Part { at, bytes, next }))
            }
            None => Ok(Some(Part { at, bytes, next })),
        }
    }

    fn close(&mut self, open: OpenId) {
        self.direct.close(open);
    }

    fn make_dir(&mut self, dir: &NodeId, name: &Name) -> Outcome<NodeId> {
        self.ask(Ask::MakeDir { dir: *dir, name: name.clone(), mode: 0o700, gid: None })?;
        self.made(*dir, name)
    }

    fn create(&mut self, dir: &NodeId, name: &Name) -> Outcome<(NodeId, OpenId)> {
        let (dir, name, mode) = (*dir, name.clone(), 0o600);
        let ask = Ask::Create { dir, name, access: WRITE, exclusive: true, mode, gid: None };
        match self.ask(ask)? {
            Reply::Created(node, open, _) => Ok((node, open)),
            _ => Err(Trouble::of(Error::Io)),
        }
    }

    fn write(&mut self, open: &mut OpenId, part: Part) -> Outcome<()> {
        let mut at = part.at;
        for piece in part.bytes {
            let count = piece.len() as u64;
            self.write_all(*open, at, piece)?;
            at += count;
        }
        Ok(())
    }

    fn lengthen(&mut self, node: &NodeId, open: &mut OpenId, size: u64) -> Outcome<()> {
        let set = SetStat { size: Some(size), ..SetStat::default() };
        self.ask(Ask::SetStat { node: *node, open: Some(*open), set }).map(|_| ())
    }

    fn symlink(&mut self, dir: &NodeId, name: &Name, target: &[u8]) -> Outcome<NodeId> {
        let (dir, target) = (*dir, target.to_vec());
        self.ask(Ask::Symlink { dir, name: name.clone(), target, gid: None })?;
        self.made(dir, name)
    }

    fn make_node(&mut self, dir: &NodeId, name: &Name, stat: &Stat) -> Outcome<NodeId> {
        let (dir, device) = (*dir, stat.special_device);
        let (kind, mode) = (stat.kind, 0o600);
        self.ask(Ask::MakeNode { dir, name: name.clone(), kind, mode, device, gid: None })?;
        self.made(dir, name)
    }

    fn link(&mut self, node: &NodeId, dir: &NodeId, name: &Name) -> Outcome<()> {
        self.ask(Ask::Link { node: *node, dir: *dir, name: name.clone() }).map(|_| ())
    }

    fn remove(&mut self, dir: &NodeId, name: &Name) -> Outcome<()> {
        let (dir, name) = (*dir, name.clone());
        self.ask(Ask::Remove { dir, name, directory: Some(false) }).map(|_| ())
    }

    fn dress(&mut self, node: &NodeId, stat: &Stat, attrs: &Attrs) -> Outcome<()> {
        let node = *node;
        for (name, value) in attrs {
            let (name, value) = (name.clone(), value.clone());
            let shown = String::from_utf8_lossy(&name).into_owned();
            self.ask(Ask::SetAttr { node, name, value, create: None })
                .map_err(|trouble| trouble.doing(format!("extended attribute {shown}")))?;
        }
        let set = SetStat {
            mode: (stat.kind != Kind::Symlink).then_some(stat.mode),
            uid: self.root.then_some(stat.uid),
            gid: self.root.then_some(stat.gid),
            size: None,
            accessed: Some(SetTime::At(stat.accessed)),
            modified: Some(SetTime::At(stat.modified)),
        };
        self.ask(Ask::SetStat { node, open: None, set }).map(|_| ())
    }

    fn sync(&mut self) -> Outcome<()> {
        self.direct.sync().map_err(|_| {
            Trouble::Over("the volume's disk failed; look at the disk, then copy again".to_string())
        })
    }
}
