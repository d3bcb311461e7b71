//! Walks, and fetches, which begin with a walk by path.

use super::errand::{Next, Outcome, Step};
use super::open::Open;
use super::places::ROOT;
use super::seek::walk;
use super::transport::one;
use super::{Remote, words};
use crate::request::{Ask, NodeId, Reply};
use base::{Access, Buf, Error, Kind, Name, Stat};
use std::collections::VecDeque;
use wire::ninep::{Rmessage, Tmessage, WALK_MAX};

/// Maximum number of links on a path.
const LINKS_MAX: u8 = 40;
/// Maximum length of a path after the substitution of links, names.
const PATH_MAX: usize = 4096;

/// Progress of a walk.
#[derive(Clone, Debug)]
pub(super) struct Hike {
    /// Current place, pinned.
    pub(super) at: usize,
    rest: VecDeque<Name>,
    /// Attributes of every file on the way.
    stats: Vec<Stat>,
    /// Place that `..` does not leave.
    floor: usize,
    links: u8,
    /// Number of names in front of the link being read.
    depth: usize,
    /// Attributes of the fetched file.
    found: Option<Stat>,
}

impl Remote {
    /// Continues a walk at its current place, which has a fid.
    pub(super) fn walk_on(&mut self, errand: usize) -> Outcome {
        if self.errands[errand].hike.is_none() {
            self.set_out(errand);
            return Ok(Next::Again);
        }
        let fetches = matches!(self.errands[errand].ask, Ask::Fetch { .. });
        let Some(hike) = &mut self.errands[errand].hike else { unreachable!("it has set out") };
        let Some(next) = hike.rest.front().cloned() else { return self.arrive(errand) };
        if !next.plain() {
            hike.rest.pop_front();
            let (at, floor) = (hike.at, hike.floor);
            if words::kind(self.places.qid(at)) != Kind::Directory {
                return self.stopped(errand, Error::NotDirectory);
            }
            if next.is_parent() && fetches && at == floor {
                return Err(Error::CrossDevice);
            }
            let to = if next.is_parent() { self.places.parent(at) } else { at };
            self.places.pin(to);
            return self.step_to(errand, to);
        }
        let run = hike.rest.iter().take(WALK_MAX).take_while(|name| name.plain());
        let run: Vec<Name> = run.cloned().collect();
        let (at, user) = (NodeId::new(self.index, hike.at), self.errands[errand].user);
        let (from, fid) = (self.tie(at, user)?, self.new_fid(errand));
        let message = one(&walk(from, fid, &run));
        Ok(Next::Say(Step::Walk(run), message))
    }

    fn set_out(&mut self, errand: usize) {
        assert!(self.errands[errand].hike.is_none(), "a walk sets out once");
        let (at, rest) = match &self.errands[errand].ask {
            Ask::Walk { from, names } => (from.local(), names.iter().cloned().collect()),
            Ask::Fetch { root, path, .. } => {
                let at = root.map_or(ROOT, NodeId::local);
                (at, path.iter().cloned().collect())
            }
            other => unreachable!("{other:?} is no walk"),
        };
        self.places.pin(at);
        let hike = Hike { at, rest, stats: Vec::new(), floor: at, links: 0, depth: 0, found: None };
        self.errands[errand].hike = Some(hike);
    }

    /// Moves to a pinned place, by a name that is no entry.
    fn step_to(&mut self, errand: usize, to: usize) -> Outcome {
        let stat = words::stat_of_qid(self.places.qid(to), self.config.device);
        self.move_to(errand, to, [stat]);
        Ok(Next::Again)
    }

    fn move_to(&mut self, errand: usize, to: usize, stats: impl IntoIterator<Item = Stat>) {
        let hike = self.errands[errand].hike.as_mut().expect("it has set out");
        let from = std::mem::replace(&mut hike.at, to);
        hike.stats.extend(stats);
        self.unpin_place(from);
    }

    /// Returns the last fid of the pending request, to be bound by the walk.
    fn last_fid(&self, errand: usize) -> u32 {
        self.errands[errand].fids.last().expect("the walk was given one").0
    }

    pub(super) fn walk_answered(
        &mut self,
        errand: usize,
        run: Vec<Name>,
        answer: Result<&Rmessage<'_>, Error>,
    ) -> Outcome {
        let fid = self.last_fid(errand);
        let qids = match answer {
            Ok(Rmessage::Walk { qids }) => qids.as_slice(),
            Ok(_) => &[],
            Err(error) => {
                self.give_back(errand, fid);
                return self.stopped(errand, error);
            }
        };
        if qids.len() > run.len() || qids.is_empty() {
            self.blame("a walk along other names than were asked");
            return Err(Error::Io);
        }
        let whole = qids.len() == run.len();
        if whole {
            self.bound(errand, fid);
        }
        let device = self.config.device;
        let stats: Vec<Stat> = qids.iter().map(|qid| words::stat_of_qid(*qid, device)).collect();
        let last_kind = stats.last().map(|stat| stat.kind);
        let fetches = matches!(self.errands[errand].ask, Ask::Fetch { .. });
        if fetches && last_kind == Some(Kind::Symlink) {
            return self.meet_link(errand, fid, &run[..qids.len()], whole);
        }
        let hike = self.errands[errand].hike.as_mut().expect("it has set out");
        if !whole {
            hike.stats.extend(stats);
            self.give_back(errand, fid);
            let is_directory = last_kind == Some(Kind::Directory);
            let error = if is_directory { Error::NotFound } else { Error::NotDirectory };
            return self.stopped(errand, error);
        }
        hike.rest.drain(..run.len());
        let mut at = hike.at;
        for (index, (name, qid)) in run.iter().zip(qids).enumerate() {
            let to = self.places.enter(at, name, *qid);
            if index > 0 {
                self.unpin_place(at);
            }
            at = to;
        }
        self.keep_fid(errand, fid);
        self.bind(at, self.errands[errand].user, fid);
        self.move_to(errand, at, stats);
        Ok(Next::Again)
    }

    /// Ends a walk before its last name.
    fn stopped(&mut self, errand: usize, error: Error) -> Outcome {
        let it = &mut self.errands[errand];
        let hike = it.hike.as_mut().expect("it has set out");
        match it.ask {
            Ask::Walk { .. } if !hike.stats.is_empty() => {
                Ok(Next::Reply(Reply::Walked(std::mem::take(&mut hike.stats), None)))
            }
            _ => Err(error),
        }
    }

    /// Handles a link on a path: reads it, once there is a fid of it.
    fn meet_link(&mut self, errand: usize, fid: u32, names: &[Name], whole: bool) -> Outcome {
        assert!(!names.is_empty(), "a link has a name");
        if whole {
            let hike = self.errands[errand].hike.as_mut().expect("it has set out");
            // The names in front of the link are walked again, together with its target.
            hike.depth = names.len() - 1;
            hike.rest.remove(hike.depth);
            hike.links += 1;
            return Ok(Next::Say(Step::Link, one(&Tmessage::Readlink { fid })));
        }
        let hike = self.errands[errand].hike.as_ref().expect("it has set out");
        let at = NodeId::new(self.index, hike.at);
        let from = self.tie(at, self.errands[errand].user)?;
        Ok(Next::Say(Step::Walk(names.to_vec()), one(&walk(from, fid, names))))
    }

    pub(super) fn link_answered(
        &mut self,
        errand: usize,
        answer: Result<&Rmessage<'_>, Error>,
    ) -> Outcome {
        let Rmessage::Readlink { target } = answer? else { return self.wrong() };
        let fid = self.last_fid(errand);
        self.keep_fid(errand, fid);
        self.clunk(fid);
        let hike = self.errands[errand].hike.as_mut().expect("it has set out");
        if hike.links > LINKS_MAX {
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
        let behind = hike.rest.split_off(hike.depth);
        hike.rest.extend(names);
        hike.rest.extend(behind);
        if hike.rest.len() > PATH_MAX {
            return Err(Error::NameTooLong);
        }
        Ok(Next::Again)
    }

    /// Handles the end of a walk along all names.
    fn arrive(&mut self, errand: usize) -> Outcome {
        let hike = self.errands[errand].hike.as_mut().expect("it has set out");
        let node = NodeId::new(self.index, hike.at);
        if matches!(self.errands[errand].ask, Ask::Walk { .. }) {
            let hike = self.errands[errand].hike.take().expect("it has set out");
            // The pin passes to the client.
            return Ok(Next::Reply(Reply::Walked(hike.stats, Some(node))));
        }
        let fid = self.tie(node, self.errands[errand].user)?;
        let message = match self.is_linux() {
            true => Tmessage::Getattr { fid, mask: super::linux::STATS_BASIC },
            false => Tmessage::Stat { fid },
        };
        Ok(Next::Say(Step::Look, one(&message)))
    }

    pub(super) fn look_answered(
        &mut self,
        errand: usize,
        answer: Result<&Rmessage<'_>, Error>,
    ) -> Outcome {
        let Some(stat) = self.stat_of(answer?) else { return self.wrong() };
        let hike = self.errands[errand].hike.as_mut().expect("it has set out");
        let at = NodeId::new(self.index, hike.at);
        hike.found = Some(stat.clone());
        match stat.kind {
            Kind::File | Kind::Directory => {
                let (from, fid) = (self.tie(at, self.errands[errand].user)?, self.new_fid(errand));
                Ok(Next::Say(Step::Clone(fid), one(&walk(from, fid, &[]))))
            }
            Kind::Symlink | Kind::Fifo | Kind::Socket | Kind::CharDevice | Kind::BlockDevice => {
                Err(Error::Unsupported)
            }
        }
    }

    /// Handles the open of a fetched file: reads it, or hands out a directory.
    pub(super) fn fetch_opened(&mut self, errand: usize, fid: u32, iounit: u32) -> Outcome {
        let stat = self.fetched(errand);
        if stat.kind == Kind::Directory {
            return Ok(self.hand_out(errand, fid, iounit, stat, Buf::default()));
        }
        let Ask::Fetch { read_max, headroom, .. } = self.errands[errand].ask else {
            return Err(Error::Io);
        };
        Ok(self.read(fid, iounit, 0, read_max, headroom))
    }

    fn fetched(&self, errand: usize) -> Stat {
        let hike = self.errands[errand].hike.as_ref();
        hike.and_then(|hike| hike.found.clone()).unwrap_or_default()
    }

    /// Handles the first bytes; the client reads the rest, if there is more.
    pub(super) fn fetch_read(&mut self, errand: usize, iounit: u32, data: Buf) -> Next {
        let stat = self.fetched(errand);
        // A file of size zero with contents may continue after any read.
        let known = stat.size > 0 || data.is_empty();
        if known && data.len() as u64 >= stat.size {
            let stat = Stat { size: data.len() as u64, ..stat };
            return Next::Reply(Reply::Fetched(stat, data, None));
        }
        let fid = self.last_fid(errand);
        self.hand_out(errand, fid, iounit, stat, data)
    }

    fn hand_out(&mut self, errand: usize, fid: u32, iounit: u32, stat: Stat, data: Buf) -> Next {
        self.keep_fid(errand, fid);
        let place = self.errands[errand].hike.as_ref().expect("it has set out").at;
        self.places.pin(place);
        let open = Open::new(place, stat.kind, self.errands[errand].user, Access::READ);
        let open = self.add_open(Open { fid, epoch: self.epoch, iounit, ..open });
        Next::Reply(Reply::Fetched(stat, data, Some(open)))
    }
}
