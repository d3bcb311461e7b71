//! Drawing of the next request.

use super::keys::Key;
use super::request::{Bytes, Request};
use super::{FidState, HOME, Io, Ninep, contents};
use base::{Access, Kind, SetStat, SetTime, Time};

/// Maximum number of fids.
const FIDS_MAX: u32 = 24;
/// Size, bytes, that fits any entry of a directory, in either dialect.
pub(super) const LIST_MIN: u32 = 350;
/// Number of attempts to draw a request that does not conflict with outstanding ones.
const ATTEMPTS: usize = 12;

/// Names of files: few, so that requests meet.
const NAMES: [&[u8]; 9] =
    [b"a", b"b", b"c", b"dd", b"e f", b"\xff\xfe", b"f.html", b"\xc3\xa4", &[b'L'; 255]];
/// Invalid names.
const WRONG: [&[u8]; 6] = [b"", b".", b"..", b"a/b", b"\0", &[b'M'; 256]];
const ATTRS: [&[u8]; 3] = [b"user.one", b"user.two", b"user.three"];

impl Ninep {
    /// Draws a request without conflicts, if one is found.
    pub(super) fn draw(&self, io: &mut Io<'_>) -> Option<Request> {
        for _ in 0..ATTEMPTS {
            let kind = io.rng().u32(..100);
            let request = match kind {
                0..=15 => self.draw_walk(io),
                16..=24 => self.draw_open(io),
                25..=34 => self.draw_create(io),
                35..=64 => self.draw_io(io),
                65..=74 => self.draw_entry(io),
                75..=84 => self.draw_look(io),
                85..=90 => self.draw_attr(io),
                91..=94 => self.draw_lock(io),
                _ => self.draw_end(io),
            };
            let Some(request) = request else { continue };
            if self.keys.could_take(&self.keys_of(&request)) {
                return Some(request);
            }
        }
        None
    }

    fn any_fid(&self, io: &mut Io<'_>, wanted: impl Fn(u32, &super::Fid) -> bool) -> Option<u32> {
        let fids: Vec<u32> =
            self.fids.iter().filter(|(n, fid)| wanted(**n, fid)).map(|(n, _)| *n).collect();
        (!fids.is_empty()).then(|| fids[io.rng().usize(..fids.len())])
    }

    /// Draws a fid, nearly always of a suitable kind.
    fn dir(&self, io: &mut Io<'_>) -> Option<u32> {
        let sloppy = io.one_in(30);
        let home = self.setup.inode;
        self.any_fid(io, |_, fid| {
            let inside = self.is_inside(self.shadow.inode_of(fid.handle), home);
            inside && (sloppy || fid.kind == Kind::Directory)
        })
    }

    /// Returns whether a file is the client's own: beneath its directory, or unlinked.
    fn is_inside(&self, inode: u64, home: u64) -> bool {
        inode >= home
            && !self.setup.shared.1.iter().any(|(_, shared, _)| *shared == inode)
            && inode != self.setup.shared.0
    }

    fn own(&self, io: &mut Io<'_>) -> Option<u32> {
        let home = self.setup.inode;
        self.any_fid(io, |_, fid| {
            let inode = self.shadow.inode_of(fid.handle);
            inode != home && self.is_inside(inode, home)
        })
    }

    fn new_fid(&self, io: &mut Io<'_>) -> Option<u32> {
        let fid = io.rng().u32(1..FIDS_MAX);
        let free = !self.fids.contains_key(&fid) && self.keys.is_free(Key::Fid(fid));
        (free || io.one_in(50)).then_some(fid)
    }

    fn name(&self, io: &mut Io<'_>) -> Vec<u8> {
        let list = if io.one_in(25) { &WRONG[..] } else { &NAMES[..] };
        list[io.rng().usize(..list.len())].to_vec()
    }

    /// Draws a name, mostly an existing one.
    fn there(&self, io: &mut Io<'_>, dir: u32) -> Vec<u8> {
        let names = self.fid_inode(dir).and_then(|inode| self.shadow.inode(inode));
        let names: Vec<Vec<u8>> = names
            .map(|node| node.entries.keys().map(|name| name.as_bytes().to_vec()).collect())
            .unwrap_or_default();
        match names.is_empty() || io.one_in(8) {
            true => self.name(io),
            false => names[io.rng().usize(..names.len())].clone(),
        }
    }

    fn draw_walk(&self, io: &mut Io<'_>) -> Option<Request> {
        let fid = if io.one_in(3) { HOME } else { self.any_fid(io, |_, _| true)? };
        let newfid = match io.one_in(12) && fid != HOME {
            true => fid,
            false => self.new_fid(io)?,
        };
        if io.one_in(12) && self.fids[&fid].kind == Kind::Directory {
            let file = io.rng().usize(..=self.setup.shared.1.len());
            let up = self.depth(fid)?;
            let mut names = vec![b"..".to_vec(); up];
            names.push(b"shared".to_vec());
            names.extend(self.setup.shared.1.get(file).map(|(name, ..)| name.clone().into_bytes()));
            names.truncate(wire::ninep::WALK_MAX);
            return Some(Request::Walk { fid, newfid, names });
        }
        let count = [0, 1, 1, 1, 2, 3, 16][io.rng().usize(..7)];
        let mut at = self.fid_inode(fid);
        let mut names = Vec::new();
        for _ in 0..count {
            let known = at.and_then(|inode| self.shadow.inode(inode)).filter(|_| !io.one_in(8));
            let known: Vec<&base::Name> = known.iter().flat_map(|n| n.entries.keys()).collect();
            let name = match known.is_empty() {
                true => {
                    if io.one_in(3) {
                        b"..".to_vec()
                    } else {
                        self.name(io)
                    }
                }
                false => known[io.rng().usize(..known.len())].as_bytes().to_vec(),
            };
            let next = base::Name::new(&name).ok().zip(at);
            at = next.and_then(|(name, at)| self.shadow.next(at, &name));
            names.push(name);
        }
        // Other clients' entries in the root are unknown.
        let known = self.stays_known(fid, &names);
        known.then_some(Request::Walk { fid, newfid, names })
    }

    /// Returns the depth of a directory beneath the root.
    fn depth(&self, fid: u32) -> Option<usize> {
        let up = base::Name::new(b"..").expect("a name");
        let mut inode = self.fid_inode(fid)?;
        for depth in 0..12 {
            if inode == crate::disk::ROOT {
                return Some(depth);
            }
            inode = self.shadow.next(inode, &up)?;
        }
        None
    }

    fn stays_known(&self, fid: u32, names: &[Vec<u8>]) -> bool {
        let Some(mut at) = self.fid_inode(fid) else { return true };
        for name in names {
            let Ok(name) = base::Name::new(name) else { return true };
            let Some(next) = self.shadow.next(at, &name) else { return at != crate::disk::ROOT };
            at = next;
        }
        true
    }

    fn access(io: &mut Io<'_>, linux: bool) -> Access {
        let (read, write) = [(true, false), (false, true), (true, true)][io.rng().usize(..3)];
        let truncate = write && io.one_in(5);
        let append = linux && write && io.one_in(6);
        Access { read, write, append, truncate, sync: false }
    }

    fn draw_open(&self, io: &mut Io<'_>) -> Option<Request> {
        let any = io.one_in(20);
        let fid =
            self.any_fid(io, |n, fid| any || (n != HOME && matches!(fid.state, FidState::Closed)))?;
        let foreign = !self.is_inside(self.fid_inode(fid)?, self.setup.inode);
        let read = foreign || self.fids[&fid].kind == Kind::Directory && !io.one_in(8);
        let access = if read { Access::READ } else { Self::access(io, self.setup.linux) };
        let own = self.fid_inode(fid)? > self.setup.inode && !foreign;
        let remove = !self.setup.linux && own && io.one_in(10);
        let known = fid != HOME && self.fid_inode(fid) != Some(crate::disk::ROOT);
        known.then_some(Request::Open { fid, access, remove })
    }

    fn draw_create(&self, io: &mut Io<'_>) -> Option<Request> {
        let fid = self.dir(io).filter(|fid| *fid != HOME)?;
        let name = self.name(io);
        let mode = [0o600, 0o644, 0o755, 0o777][io.rng().usize(..4)];
        if self.setup.linux && io.one_in(3) {
            return Some(Request::MakeDir { fid, name, mode });
        }
        let dir = !self.setup.linux && io.one_in(3);
        let access = if dir { Access::READ } else { Self::access(io, self.setup.linux) };
        let exclusive = !self.setup.linux || io.rng().bool();
        // 9P2000 does not define the truncation of a new file.
        let access = Access { truncate: access.truncate && self.setup.linux, ..access };
        Some(Request::Create { fid, name, access, exclusive, mode, dir })
    }

    fn offset(io: &mut Io<'_>) -> u64 {
        let huge = io.env.params.huge;
        match io.rng().u8(..12) {
            0 if huge => (4 << 30) + io.rng().u64(..10_000),
            1 => io.rng().u64(..100_000),
            _ => io.rng().u64(..6000),
        }
    }

    fn draw_io(&self, io: &mut Io<'_>) -> Option<Request> {
        let any = io.one_in(25);
        let fid = self.any_fid(io, |_, fid| any || !matches!(fid.state, FidState::Closed))?;
        let writes = match &self.fids[&fid].state {
            FidState::Open { access, .. } => access.write && io.one_in(2) || io.one_in(20),
            FidState::AttrWrite { .. } => true,
            FidState::Closed | FidState::AttrRead { .. } => io.one_in(5),
        };
        let most = (self.msize as usize - 24).min(io.env.params.piece_max.max(20) * 300);
        let most = if io.one_in(3) { most } else { most.min(3000) };
        let directory = self.fids[&fid].kind == Kind::Directory;
        if let FidState::Open { listing, .. } = &self.fids[&fid].state
            && directory
        {
            let again = io.one_in(10);
            let offset = listing.as_ref().filter(|_| !again).map_or(0, |listing| listing.offset);
            let count = match io.rng().u8(..8) {
                0 => io.rng().u32(350..800),
                1 => io.rng().u32(10..LIST_MIN),
                _ => self.msize - 24,
            };
            return Some(Request::List { fid, offset, count });
        }
        if let Some(left) = self.value_left(fid) {
            let data = Bytes(contents(io, left.min(most)));
            let FidState::AttrWrite { value, .. } = &self.fids[&fid].state else { return None };
            return Some(Request::Write { fid, offset: value.len() as u64, data });
        }
        if writes {
            let data = Bytes(contents(io, most));
            return Some(Request::Write { fid, offset: Self::offset(io), data });
        }
        let most = u32::try_from(most).unwrap_or(4096);
        let count = if io.one_in(10) { u32::MAX } else { io.rng().u32(..=most) };
        Some(Request::Read { fid, offset: Self::offset(io), count })
    }

    fn draw_entry(&self, io: &mut Io<'_>) -> Option<Request> {
        if !self.setup.linux {
            let fid = self.own(io)?;
            let rename = Some(self.name(io)).filter(|name| !name.is_empty());
            return Some(Request::SetStat { fid, set: SetStat::default(), rename });
        }
        let fid = self.dir(io)?;
        Some(match io.rng().u8(..7) {
            0 => Request::Symlink { fid, name: self.name(io), target: contents(io, 40) },
            1 => {
                let kind = [Kind::Fifo, Kind::CharDevice, Kind::File][io.rng().usize(..3)];
                let device = (io.rng().u32(..300), io.rng().u32(..300));
                Request::MakeNode { fid, name: self.name(io), kind, mode: 0o640, device }
            }
            2 => Request::Link { dir: fid, fid: self.own(io)?, name: self.name(io) },
            3 => Request::Rename { fid: self.own(io)?, dir: fid, name: self.name(io) },
            4 | 5 => {
                let (name, to) = (self.there(io, fid), self.dir(io)?);
                Request::RenameAt { from: fid, name, to, new: self.name(io) }
            }
            _ => {
                let name = self.there(io, fid);
                let found = self.fid_inode(fid).and_then(|dir| self.shadow.lookup(dir, &name));
                let kind = found.and_then(|inode| self.shadow.inode(inode)).map(|node| node.kind);
                let directory = (kind == Some(Kind::Directory)) != io.one_in(10);
                Request::Unlink { fid, name, directory }
            }
        })
    }

    fn draw_look(&self, io: &mut Io<'_>) -> Option<Request> {
        let fid = self.any_fid(io, |_, _| true)?;
        Some(match io.rng().u8(..12) {
            0..=5 => Request::Stat { fid },
            6 if self.setup.linux => Request::ReadLink { fid },
            7 if self.setup.linux => Request::StatFs { fid },
            8 if self.setup.linux => Request::Sync { fid },
            9 if self.setup.linux => {
                let link = self.any_fid(io, |_, fid| fid.kind == Kind::Symlink)?;
                Request::ReadLink { fid: link }
            }
            _ => {
                let fid = self.own(io)?;
                Request::SetStat { fid, set: self.draw_set(io, fid), rename: None }
            }
        })
    }

    fn draw_set(&self, io: &mut Io<'_>, fid: u32) -> SetStat {
        let kind = self.fids[&fid].kind;
        let sizes = matches!(kind, Kind::File | Kind::Directory);
        let mut set = SetStat::default();
        match io.rng().u8(..4) {
            0 => set.mode = Some(io.rng().u32(..0o1000)),
            1 => {
                let secs = io.rng().i64(1..2_000_000_000);
                set.modified = Some(SetTime::At(Time::from_secs(secs)));
            }
            _ if sizes => set.size = Some(Self::offset(io)),
            _ => set.mode = Some(0o600),
        }
        set
    }

    fn draw_attr(&self, io: &mut Io<'_>) -> Option<Request> {
        if !self.setup.linux {
            return None;
        }
        let plain = |kind: Kind| matches!(kind, Kind::File | Kind::Directory);
        let name = ATTRS[io.rng().usize(..3)].to_vec();
        if io.rng().bool() {
            let fid = self.any_fid(io, |_, fid| plain(fid.kind))?;
            let name = if io.one_in(4) { Vec::new() } else { name };
            return Some(Request::AttrWalk { fid, newfid: self.new_fid(io)?, name });
        }
        let home = self.setup.inode;
        let fid = self.any_fid(io, |n, fid| {
            let inode = self.shadow.inode_of(fid.handle);
            let closed = matches!(fid.state, FidState::Closed);
            n != HOME && closed && plain(fid.kind) && self.is_inside(inode, home)
        })?;
        let size = io.rng().u64(..2000) * u64::from(!io.one_in(8));
        let flags = io.rng().u32(..3);
        Some(Request::AttrCreate { fid, name, size, flags })
    }

    fn draw_lock(&self, io: &mut Io<'_>) -> Option<Request> {
        if !self.setup.linux {
            return None;
        }
        let home = self.setup.inode;
        let fid = self.any_fid(io, |_, fid| {
            let own = self.is_inside(self.shadow.inode_of(fid.handle), home);
            own && fid.kind == Kind::File && matches!(fid.state, FidState::Open { .. })
        })?;
        let (slot, owner) = (io.rng().u64(..3), io.rng().u32(..3));
        let kind = io.rng().u8(..3);
        if io.one_in(4) {
            return Some(Request::GetLock { fid, kind: kind.min(1), slot, owner });
        }
        let waiting = self.outstanding.values();
        let waiting = waiting.filter(|out| matches!(out.request, Request::Lock { wait: true, .. }));
        let wait = kind < 2 && io.one_in(3) && waiting.count() < 2;
        Some(Request::Lock { fid, kind, slot, owner, wait })
    }

    fn draw_end(&self, io: &mut Io<'_>) -> Option<Request> {
        if io.one_in(4) {
            return Some(Request::Remove { fid: self.own(io)? });
        }
        let unknown = io.one_in(40);
        match unknown {
            true => Some(Request::Clunk { fid: 999 }),
            false => Some(Request::Clunk { fid: self.any_fid(io, |n, _| n != HOME)? }),
        }
    }
}
