//! Requests of lanes: random during the run, one path after the other in the final survey.

use super::lane::{HeldFid, Request, State, Waiting};
use super::{MuxClient, ROOT};
use crate::client::Io;
use crate::joined::space::{At, EDITED, Lookup};
use base::{Kind, Name};
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;
use wire::ninep::IO_HEADER_SIZE;

/// Maximum number of fids of a lane.
const FIDS_MAX: usize = 6;
/// Maximum number of names of a walk, and of one into cycles.
const WALK_MAX: usize = 6;
const DEEP_MAX: usize = 16;
/// Maximum depth of nested networks of walks.
const AGAIN_MAX: u32 = 6;
/// Names that lead to an ancestor or back to the same place.
const LOOPS: [&[u8]; 4] = [b"loop", b"in", b"me", b"void"];
/// Maximum number of bytes of one write, and maximum offset.
const WRITE_MAX: usize = 6000;

impl MuxClient {
    /// Draws a lane's next request.
    pub(super) fn draw(&mut self, io: &mut Io<'_>, lane: usize) -> Request {
        let fids: Vec<u32> = self.lanes[lane].fids.keys().copied().collect();
        if fids.len() < 2 || (fids.len() < FIDS_MAX && io.one_in(4)) {
            return self.draw_walk(io, lane, ROOT);
        }
        let fid = fids[io.rng().usize(..fids.len())];
        let held = self.lanes[lane].fids[&fid].clone();
        if held.is_spoilt || io.one_in(8) {
            return Request::Clunk { fid };
        }
        match &held.state {
            State::Closed if self.is_directory(io, &held.at) => self.draw_in(io, lane, fid),
            State::Closed => self.draw_closed(io, lane, fid, &held.at),
            State::File { offset, writes } => self.draw_transfer(io, fid, *offset, *writes),
            State::Directory(listing) if listing.is_over && io.one_in(2) => Request::Clunk { fid },
            State::Directory(listing) => {
                let offset = if listing.is_over { 0 } else { listing.offset };
                self.list(io, fid, offset)
            }
        }
    }

    fn is_directory(&self, io: &Io<'_>, at: &At) -> bool {
        let node = self.disk(io).inode(at.file.inode());
        node.is_some_and(|node| node.kind == Kind::Directory)
    }

    /// Draws a walk from a fid, mostly along existing names.
    fn draw_walk(&self, io: &mut Io<'_>, lane: usize, fid: u32) -> Request {
        let most = if self.setup.params.deep { DEEP_MAX } else { WALK_MAX };
        let count = io.rng().usize(1..=most);
        let mut at = Some(self.place(lane, fid));
        let mut names = Vec::new();
        while names.len() < count {
            let name = self.draw_name(io, lane, at.as_ref());
            at = at.and_then(|at| self.step(io, &at, &name));
            names.push(name);
            let deep = at.as_ref().is_some_and(|at| at.file.depth() > AGAIN_MAX);
            if deep || (at.is_none() && io.one_in(2)) {
                break;
            }
        }
        Request::Walk { fid, newfid: self.lanes[lane].new_fid(), names }
    }

    /// Returns the place of a name while no server is in trouble.
    fn step(&self, io: &Io<'_>, at: &At, name: &Name) -> Option<At> {
        let nobody = BTreeSet::new();
        let mut look = Lookup::new(&self.setup.space, self.disk(io), &nobody);
        look.step(at, name).into_iter().next()?.ok()
    }

    fn draw_name(&self, io: &mut Io<'_>, lane: usize, at: Option<&At>) -> Name {
        let nobody = BTreeSet::new();
        let mut look = Lookup::new(&self.setup.space, self.disk(io), &nobody);
        let there = at.map(|at| look.entries(at)).unwrap_or_default();
        let own = &self.lanes[lane].own;
        // Other lanes may remove theirs at any moment.
        let mine = |name: &Name| name.as_bytes()[0] != b'w' || own.contains_key(name);
        let there: Vec<Name> = there.into_keys().filter(mine).collect();
        let loops = there.iter().filter(|name| LOOPS.contains(&name.as_bytes()));
        let loops: Vec<Name> = loops.cloned().collect();
        let pick =
            |rng: &mut base::rng::Rng, names: &[Name]| names[rng.usize(..names.len())].clone();
        let plain = |text: &[u8]| Name::new(text).expect("a name");
        match io.rng().u8(..20) {
            0 => plain(b"no-such"),
            1 => plain(b"."),
            2 | 3 => plain(b".."),
            4..12 if self.setup.params.deep && !loops.is_empty() => pick(io.rng(), &loops),
            _ if there.is_empty() => plain(b"a"),
            _ => pick(io.rng(), &there),
        }
    }

    /// Draws a request for a directory that is not open.
    fn draw_in(&mut self, io: &mut Io<'_>, lane: usize, fid: u32) -> Request {
        let at = self.place(lane, fid);
        // Directories created by a lane stay empty, so that they can be removed.
        let planted = self.setup.space.is_planted(at.file.inode());
        match io.rng().u8(..14) {
            0..4 => Request::Open { fid, write: false },
            4 => Request::Stat { fid },
            5 => Request::Walk { fid, newfid: self.lanes[lane].new_fid(), names: Vec::new() },
            6 | 7 if planted => Request::Create { fid, name: self.lanes[lane].new_name() },
            8 if planted => Request::MakeDir { fid, name: self.lanes[lane].new_name() },
            9..12 => self.draw_change(io, lane, fid, &at),
            _ => self.draw_walk(io, lane, fid),
        }
    }

    /// Draws a rename or removal of an entry of the lane's own, if there is one in this directory.
    fn draw_change(&mut self, io: &mut Io<'_>, lane: usize, fid: u32, at: &At) -> Request {
        let dirs = self.setup.space.dirs(at);
        let own = self.lanes[lane].own.iter().filter(|(_, own)| dirs.contains(&own.dir));
        let own: Vec<(Name, bool)> =
            own.map(|(name, own)| (name.clone(), own.is_directory)).collect();
        if own.is_empty() {
            return self.draw_walk(io, lane, fid);
        }
        let (name, directory) = own[io.rng().usize(..own.len())].clone();
        if directory || io.one_in(3) {
            return Request::Unlink { fid, name, directory };
        }
        let is_place = |(fid, held): (&u32, &HeldFid)| {
            let planted = self.setup.space.is_planted(held.at.file.inode());
            (planted && !held.is_spoilt).then_some(*fid)
        };
        let dirs: Vec<u32> = self.lanes[lane].fids.iter().filter_map(is_place).collect();
        let to = dirs[io.rng().usize(..dirs.len())];
        Request::Rename { from: fid, name, to, new: self.lanes[lane].new_name() }
    }

    /// Draws a request for a file that is not open.
    fn draw_closed(&self, io: &mut Io<'_>, lane: usize, fid: u32, at: &At) -> Request {
        let inode = at.file.inode();
        let write = self.lanes[lane].own.values().any(|own| own.inode == inode);
        match io.rng().u8(..4) {
            0 => Request::Stat { fid },
            1 => Request::Walk { fid, newfid: self.lanes[lane].new_fid(), names: Vec::new() },
            _ => Request::Open { fid, write },
        }
    }

    fn draw_transfer(&self, io: &mut Io<'_>, fid: u32, offset: u64, writes: bool) -> Request {
        let most = self.msize - IO_HEADER_SIZE;
        match io.rng().u8(..6) {
            0 => Request::Stat { fid },
            1..4 if writes => {
                let mut data = vec![0; io.rng().usize(1..=WRITE_MAX.min(most as usize))];
                io.rng().fill(&mut data);
                Request::Write { fid, offset: io.rng().u64(..WRITE_MAX as u64), data }
            }
            4 => Request::Read { fid, offset: io.rng().u64(..40_000), count: most },
            _ => Request::Read { fid, offset, count: io.rng().u32(1..=most) },
        }
    }

    fn list(&self, io: &mut Io<'_>, fid: u32, offset: u64) -> Request {
        let most = self.msize - IO_HEADER_SIZE;
        let count = if io.one_in(3) { io.rng().u32(300..=1000) } else { most };
        Request::List { fid, offset, count }
    }

    /// Records a lane's request.
    pub(super) fn note_asked(&mut self, io: &mut Io<'_>, lane: usize, request: Request) {
        let since = io.now();
        let flush = io.one_in(self.setup.params.flush);
        let flush_at = flush.then(|| since + Duration::from_millis(io.rng().u64(..3000)));
        for name in request.changed() {
            self.setup.fault_log.borrow_mut().change_name(name, None);
        }
        if let Request::List { fid, offset: 0, .. } = request {
            self.begin_list(io, lane, fid);
        }
        let expected = self.expected(io, lane, &request);
        let (flushed, is_answered) = (None, false);
        let waiting = Waiting { request, since, expected, flush_at, flushed, is_answered };
        self.lanes[lane].waiting = Some(waiting);
    }
}

/// The final survey.
impl MuxClient {
    /// Distributes every path of the joined tree over all lanes.
    pub(super) fn plan_survey(&mut self, io: &mut Io<'_>) {
        let (lanes, mux_clients) = (self.lanes.len(), self.setup.params.mux_clients);
        let paths = self.paths(io);
        for (index, path) in paths.into_iter().enumerate() {
            if index % mux_clients == self.setup.number {
                self.lanes[index / mux_clients % lanes].survey.push_back(path);
            }
        }
    }

    /// Returns a path to each reachable file and directory, across all mounts.
    fn paths(&self, io: &Io<'_>) -> Vec<Vec<Name>> {
        let nobody = BTreeSet::new();
        let mut look = Lookup::new(&self.setup.space, self.disk(io), &nobody);
        let mut ahead = VecDeque::from([(Vec::new(), self.setup.space.root())]);
        let (mut seen, mut paths) = (BTreeSet::new(), Vec::new());
        while let Some((path, at)) = ahead.pop_front() {
            let surveyed = |name: &Name| name.as_bytes() != EDITED.as_bytes();
            for name in look.entries(&at).into_keys().filter(surveyed) {
                let path: Vec<Name> = path.iter().chain([&name]).cloned().collect();
                let next = look.step(&at, &name).remove(0).expect("listed entries exist");
                if seen.insert(self.setup.space.number(&next.file)) && next.file.depth() < 2 {
                    ahead.push_back((path.clone(), next));
                }
                paths.push(path);
            }
        }
        paths
    }

    /// Returns the next request of a lane's survey; `None` at the end.
    pub(super) fn survey(&mut self, io: &mut Io<'_>, lane: usize) -> Option<Request> {
        let it = &mut self.lanes[lane];
        let Some((&fid, held)) = it.fids.first_key_value() else {
            let names = it.survey.pop_front()?;
            return Some(Request::Walk { fid: ROOT, newfid: it.new_fid(), names });
        };
        let held = held.clone();
        let looked = it.looked_at.replace(fid) == Some(fid);
        Some(match &held.state {
            _ if held.is_spoilt => Request::Clunk { fid },
            State::Closed if !looked => Request::Stat { fid },
            State::Closed => Request::Open { fid, write: false },
            State::File { offset, .. } if self.is_behind(io, &held.at, *offset) => {
                Request::Clunk { fid }
            }
            State::File { offset, .. } => {
                Request::Read { fid, offset: *offset, count: self.msize - IO_HEADER_SIZE }
            }
            State::Directory(listing) if listing.is_over => Request::Clunk { fid },
            State::Directory(listing) => self.list(io, fid, listing.offset),
        })
    }

    /// Returns whether an offset is beyond the end of a file.
    fn is_behind(&self, io: &Io<'_>, at: &At, offset: u64) -> bool {
        let node = self.disk(io).inode(at.file.inode());
        node.is_none_or(|node| offset > node.data.len())
    }
}
