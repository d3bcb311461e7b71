//! Walks, and fetches, which begin with a walk by path.

use super::inodes::ROOT;
use super::message::{Message, walk};
use super::open::Open;
use super::step::{Next, Outcome, OwnStep, Step, WalkCursor, send};
use super::{Remote, words};
use crate::request::{Ask, NodeId, Reply};
use base::{Access, Buf, Error, Kind, Name, Stat};
use wire::ninep::{Rmessage, Tmessage, WALK_MAX};

/// Maximum number of links on a path.
const LINKS_MAX: u8 = 40;
/// Maximum length of a path after the substitution of links, names.
const PATH_MAX: usize = 4096;

impl Remote {
    /// Continues a walk at its current inode, which has a fid.
    pub(super) fn walk_on(&mut self, slot: usize) -> Outcome {
        if self.pending[slot].cursor.is_none() {
            self.set_out(slot);
            return Ok(Next::Again);
        }
        let fetches = matches!(self.pending[slot].ask, Ask::Fetch { .. });
        let Some(cursor) = &mut self.pending[slot].cursor else { unreachable!("it has set out") };
        let Some(next) = cursor.rest.front().cloned() else { return self.arrive(slot) };
        if !next.plain() {
            cursor.rest.pop_front();
            let (at, floor) = (cursor.at, cursor.floor);
            if words::kind(self.inodes.qid(at)) != Kind::Directory {
                return self.stopped(slot, Error::NotDirectory);
            }
            if next.is_parent() && fetches && at == floor {
                return Err(Error::CrossDevice);
            }
            let to = if next.is_parent() { self.inodes.parent(at) } else { at };
            self.inodes.pin(to);
            return self.step_to(slot, to);
        }
        let run = cursor.rest.iter().take(WALK_MAX).take_while(|name| name.plain());
        let run: Vec<Name> = run.cloned().collect();
        let (at, user) = (NodeId::new(self.index, cursor.at), self.pending[slot].user);
        let (from, fid) = (self.fid_of(at, user)?, self.new_fid(slot));
        let message = Message::new(&walk(from, fid, &run));
        Ok(Next::Send(Step::Walk(run), vec![message]))
    }

    fn set_out(&mut self, slot: usize) {
        assert!(self.pending[slot].cursor.is_none(), "a walk sets out once");
        let (at, rest) = match &self.pending[slot].ask {
            Ask::Walk { from, names } => (from.local(), names.iter().cloned().collect()),
            Ask::Fetch { root, path, .. } => {
                let at = root.map_or(ROOT, NodeId::local);
                (at, path.iter().cloned().collect())
            }
            other => unreachable!("{other:?} is no walk"),
        };
        self.inodes.pin(at);
        let cursor =
            WalkCursor { at, rest, stats: Vec::new(), floor: at, links: 0, depth: 0, found: None };
        self.pending[slot].cursor = Some(cursor);
    }

    /// Moves to a pinned place, by a name that is no entry.
    fn step_to(&mut self, slot: usize, to: usize) -> Outcome {
        let stat = words::stat_of_qid(self.inodes.qid(to), self.config.device);
        self.move_to(slot, to, [stat]);
        Ok(Next::Again)
    }

    fn move_to(&mut self, slot: usize, to: usize, stats: impl IntoIterator<Item = Stat>) {
        let cursor = self.pending[slot].cursor.as_mut().expect("it has set out");
        let from = std::mem::replace(&mut cursor.at, to);
        cursor.stats.extend(stats);
        self.unpin_inode(from);
    }

    pub(super) fn walk_answered(
        &mut self,
        slot: usize,
        run: Vec<Name>,
        answer: Result<&Rmessage<'_>, Error>,
    ) -> Outcome {
        let fid = self.pending[slot].last_fid();
        let qids = match answer {
            Ok(Rmessage::Walk { qids }) => qids.as_slice(),
            Ok(_) => &[],
            Err(error) => {
                self.give_back(slot, fid);
                return self.stopped(slot, error);
            }
        };
        if qids.len() > run.len() || qids.is_empty() {
            self.connection.blame("a walk of other names than requested");
            return Err(Error::Io);
        }
        let whole = qids.len() == run.len();
        if whole {
            self.pending[slot].bound(fid);
        }
        let device = self.config.device;
        let stats: Vec<Stat> = qids.iter().map(|qid| words::stat_of_qid(*qid, device)).collect();
        let last_kind = stats.last().map(|stat| stat.kind);
        let fetches = matches!(self.pending[slot].ask, Ask::Fetch { .. });
        if fetches && last_kind == Some(Kind::Symlink) {
            return self.meet_link(slot, fid, &run[..qids.len()], whole);
        }
        let cursor = self.pending[slot].cursor.as_mut().expect("it has set out");
        if !whole {
            cursor.stats.extend(stats);
            self.give_back(slot, fid);
            let is_directory = last_kind == Some(Kind::Directory);
            let error = if is_directory { Error::NotFound } else { Error::NotDirectory };
            return self.stopped(slot, error);
        }
        cursor.rest.drain(..run.len());
        let mut at = cursor.at;
        for (index, (name, qid)) in run.iter().zip(qids).enumerate() {
            let to = self.inodes.enter(at, name, *qid);
            if index > 0 {
                self.unpin_inode(at);
            }
            at = to;
        }
        self.pending[slot].keep_fid(fid);
        self.bind(at, self.pending[slot].user, fid);
        self.move_to(slot, at, stats);
        Ok(Next::Again)
    }

    /// Ends a walk before its last name.
    fn stopped(&mut self, slot: usize, error: Error) -> Outcome {
        let it = &mut self.pending[slot];
        let cursor = it.cursor.as_mut().expect("it has set out");
        match it.ask {
            Ask::Walk { .. } if !cursor.stats.is_empty() => {
                Ok(Next::Reply(Reply::Walked(std::mem::take(&mut cursor.stats), None)))
            }
            _ => Err(error),
        }
    }

    /// Handles a link on a path: reads it, once there is a fid of it.
    fn meet_link(&mut self, slot: usize, fid: u32, names: &[Name], whole: bool) -> Outcome {
        assert!(!names.is_empty(), "a link has a name");
        if whole {
            let cursor = self.pending[slot].cursor.as_mut().expect("it has set out");
            // The names in front of the link are walked again, together with its target.
            cursor.depth = names.len() - 1;
            cursor.rest.remove(cursor.depth);
            cursor.links += 1;
            return send(Step::Link, &Tmessage::Readlink { fid });
        }
        let cursor = self.pending[slot].cursor.as_ref().expect("it has set out");
        let at = NodeId::new(self.index, cursor.at);
        let from = self.fid_of(at, self.pending[slot].user)?;
        send(Step::Walk(names.to_vec()), &walk(from, fid, names))
    }

    pub(super) fn link_answered(
        &mut self,
        slot: usize,
        answer: Result<&Rmessage<'_>, Error>,
    ) -> Outcome {
        let Rmessage::Readlink { target } = answer? else { return self.wrong() };
        let fid = self.pending[slot].last_fid();
        self.pending[slot].keep_fid(fid);
        self.clunk(fid);
        let cursor = self.pending[slot].cursor.as_mut().expect("it has set out");
        if cursor.links > LINKS_MAX {
            return Err(Error::Loop);
        }
        if target.starts_with(b"/") {
            return Err(Error::CrossDevice);
        }
        let parts = target.split(|byte| *byte == b'/').filter(|part| !part.is_empty());
        let names: Vec<Name> = parts.map(Name::new).collect::<Result<_, Error>>()?;
        if names.is_empty() {
            return Err(Error::NotFound);
        }
        let behind = cursor.rest.split_off(cursor.depth);
        cursor.rest.extend(names);
        cursor.rest.extend(behind);
        if cursor.rest.len() > PATH_MAX {
            return Err(Error::NameTooLong);
        }
        Ok(Next::Again)
    }

    /// Handles the end of a walk along all names.
    fn arrive(&mut self, slot: usize) -> Outcome {
        let cursor = self.pending[slot].cursor.as_mut().expect("it has set out");
        let node = NodeId::new(self.index, cursor.at);
        if matches!(self.pending[slot].ask, Ask::Walk { .. }) {
            let cursor = self.pending[slot].cursor.take().expect("it has set out");
            // The pin passes to the client.
            return Ok(Next::Reply(Reply::Walked(cursor.stats, Some(node))));
        }
        let fid = self.fid_of(node, self.pending[slot].user)?;
        let message = words::stat(self.dialect(), fid);
        send(Step::Look, &message)
    }

    pub(super) fn look_answered(
        &mut self,
        slot: usize,
        answer: Result<&Rmessage<'_>, Error>,
    ) -> Outcome {
        let Some(stat) = self.stat_of(answer?) else { return self.wrong() };
        let cursor = self.pending[slot].cursor.as_mut().expect("it has set out");
        let at = NodeId::new(self.index, cursor.at);
        cursor.found = Some(stat.clone());
        match stat.kind {
            Kind::File | Kind::Directory => {
                let (from, fid) = (self.fid_of(at, self.pending[slot].user)?, self.new_fid(slot));
                send(OwnStep::Clone(fid), &walk(from, fid, &[]))
            }
            Kind::Symlink | Kind::Fifo | Kind::Socket | Kind::CharDevice | Kind::BlockDevice => {
                Err(Error::Unsupported)
            }
        }
    }

    /// Handles the open of a fetched file: reads it, or hands out a directory.
    pub(super) fn fetch_opened(&mut self, slot: usize, fid: u32, iounit: u32) -> Outcome {
        let stat = self.fetched(slot);
        if stat.kind == Kind::Directory {
            return Ok(self.hand_out(slot, fid, iounit, stat, Buf::default()));
        }
        let Ask::Fetch { read_max, headroom, .. } = self.pending[slot].ask else {
            return Err(Error::Io);
        };
        Ok(self.read(fid, iounit, 0, read_max, headroom))
    }

    fn fetched(&self, slot: usize) -> Stat {
        let cursor = self.pending[slot].cursor.as_ref();
        cursor.and_then(|cursor| cursor.found.clone()).unwrap_or_default()
    }

    /// Handles the first bytes; the client reads the rest, if there is more.
    pub(super) fn fetch_read(&mut self, slot: usize, iounit: u32, data: Buf) -> Next {
        let stat = self.fetched(slot);
        // A file of size zero with contents may continue after any read.
        let known = stat.size > 0 || data.is_empty();
        if known && data.len() as u64 >= stat.size {
            let stat = Stat { size: data.len() as u64, ..stat };
            return Next::Reply(Reply::Fetched(stat, data, None));
        }
        let fid = self.pending[slot].last_fid();
        self.hand_out(slot, fid, iounit, stat, data)
    }

    fn hand_out(&mut self, slot: usize, fid: u32, iounit: u32, stat: Stat, data: Buf) -> Next {
        self.pending[slot].keep_fid(fid);
        let inode = self.pending[slot].cursor.as_ref().expect("it has set out").at;
        self.inodes.pin(inode);
        let open = Open::new(inode, stat.kind, self.pending[slot].user, Access::READ);
        let open = self.add_open(Open { fid, epoch: self.inodes.epoch(), iounit, ..open });
        Next::Reply(Reply::Fetched(stat, data, Some(open)))
    }
}
