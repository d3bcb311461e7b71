//! Checking of replies, and the outcomes of requests without one.

use super::expect::{Seen, Step, UNKNOWN};
use super::request::{Bytes, Request};
use super::{Fid, FidState, Io, Listing, Ninep, Outstanding, is_injectable};
use crate::disk::ROOT;
use base::op::File;
use base::{Error, Kind, Name, Stat};
use std::collections::{BTreeMap, BTreeSet};
use wire::ninep::{Qid, Reader, Rmessage, Stat as WireStat, dirents};

/// Held locks: inode, slot, owner, exclusive, fid.
#[derive(Debug, Default)]
pub(super) struct Locks(Vec<(u64, u64, u32, bool, u32)>);

impl Locks {
    fn conflict(&self, inode: u64, slot: u64, owner: u32, exclusive: bool) -> bool {
        self.0
            .iter()
            .any(|(i, s, o, e, _)| (*i, *s) == (inode, slot) && *o != owner && (*e || exclusive))
    }

    fn drop_of(&mut self, inode: u64, slot: u64, owner: u32) {
        self.0.retain(|(i, s, o, ..)| (*i, *s, *o) != (inode, slot, owner));
    }
}

/// Translates Linux's error numbers (`errno(3)`), as sent by 9P2000.L.
fn from_errno(errno: u32) -> Option<Error> {
    Some(match errno {
        1 => Error::NotPermitted,
        2 => Error::NotFound,
        4 => Error::Cancelled,
        5 => Error::Io,
        11 => Error::WouldBlock,
        12 => Error::NoMemory,
        13 => Error::Denied,
        16 => Error::Busy,
        17 => Error::Exists,
        18 => Error::CrossDevice,
        20 => Error::NotDirectory,
        21 => Error::IsDirectory,
        22 => Error::Invalid,
        24 => Error::TooManyOpen,
        27 => Error::FileTooLarge,
        28 => Error::NoSpace,
        34 => Error::AttributeTooLarge,
        35 => Error::WouldDeadlock,
        36 => Error::NameTooLong,
        39 => Error::NotEmpty,
        40 => Error::Loop,
        61 => Error::NoAttribute,
        95 => Error::Unsupported,
        _ => return None,
    })
}

fn error_of(reply: &Rmessage<'_>) -> Option<Error> {
    match reply {
        Rmessage::Lerror { ecode } => {
            Some(from_errno(*ecode).unwrap_or_else(|| panic!("errno {ecode}")))
        }
        Rmessage::Error { ename } => {
            let known = Error::ALL.into_iter().find(|error| error.text().as_bytes() == *ename);
            Some(known.unwrap_or_else(|| panic!("{:?}", String::from_utf8_lossy(ename))))
        }
        _ => None,
    }
}

fn check_qid(qid: &Qid, stat: &Stat) {
    let kind = match stat.kind {
        Kind::Directory => Qid::DIR,
        Kind::Symlink => Qid::SYMLINK,
        _ => Qid::FILE,
    };
    assert_eq!((qid.kind, qid.path), (kind, stat.inode), "another file: {stat:?}");
}

fn check_date(secs: u64, stat: &Stat) {
    if stat.modified != UNKNOWN {
        assert_eq!(secs, stat.modified.secs.cast_unsigned(), "the date that was set");
    }
}

/// Returns the new file named by a reply.
fn made(reply: &Rmessage<'_>) -> Option<u64> {
    match reply {
        Rmessage::Lcreate { qid, .. }
        | Rmessage::Create { qid, .. }
        | Rmessage::Mkdir { qid }
        | Rmessage::Symlink { qid }
        | Rmessage::Mknod { qid } => Some(qid.path),
        _ => None,
    }
}

impl Ninep {
    pub(super) fn judge(&mut self, io: &mut Io<'_>, out: &Outstanding, reply: &Rmessage<'_>) {
        let request = &out.request;
        let error = error_of(reply);
        let waited_for_lock = matches!(request, Request::Lock { wait: true, .. });
        if let Some(error) = error.filter(|error| is_injectable(*error)) {
            let known = match error {
                Error::Cancelled => out.flushed || waited_for_lock,
                error => io.was_injected(out.since, Some(error)),
            };
            assert!(known, "{request:?} failed with {error:?}, which was not injected");
            return self.settle(io, request);
        }
        if waited_for_lock && let Some(error) = error {
            let gone = self.fids.values().all(|fid| !matches!(fid.state, FidState::Open { .. }));
            let known = matches!(error, Error::WouldDeadlock | Error::Invalid) || gone;
            return assert!(known, "{request:?} failed with {error:?}");
        }
        if let Some(request) = self.shortened(io, out, reply) {
            let seen = self.expect(&request);
            return assert!(seen.is_ok(), "{request:?} should fail with {seen:?}");
        }
        if let Request::Clunk { fid } = request
            && matches!(
                self.fids.get(fid).map(|fid| &fid.state),
                Some(FidState::Open { remove: true, .. })
            )
        {
            // Rclunk does not report whether the removal succeeded.
            assert!(matches!(reply, Rmessage::Clunk {}), "{request:?}: {reply:?}");
            if io.disk().is_none() {
                // A volume has no injected faults here, so it did the same as the shadow.
                let _ = self.expect(request);
                return self.end_fid(request);
            }
            return self.settle(io, request);
        }
        if let Some(inode) = made(reply) {
            self.shadow.choose_inode(inode);
        }
        if let (Request::List { count, .. }, Some(Error::Invalid)) = (request, error)
            && *count < super::draw::LIST_MIN
        {
            // The next entry does not fit; the server's position is unchanged, or at the start.
            if matches!(request, Request::List { offset: 0, .. }) {
                self.settle(io, request);
            }
            return;
        }
        let expected = self.expect(request);
        if waited_for_lock && expected.is_err() {
            // Granted while the file was being closed, and released with it.
            return;
        }
        match (expected, error) {
            (Err(expected), Some(error)) => {
                if !(io.disk().is_none() && comes_first(request, expected, error)) {
                    assert_eq!(error, expected, "{request:?} failed with another error");
                }
                self.end_fid(request);
            }
            (Err(expected), None) => panic!("{request:?} should fail with {expected:?}: {reply:?}"),
            (Ok(Seen::Walked(stats, file)), Some(Error::Stale))
                if io.disk().is_none() && is_removed(stats.first()) =>
            {
                file.into_iter().for_each(|file| self.shadow.close(file));
            }
            (Ok(seen), Some(error)) => panic!("{request:?} failed with {error:?}, not {seen:?}"),
            (Ok(seen), None) => self.conclude(io, out, seen, reply),
        }
    }

    /// Returns a request that was performed only partly: a write cut to the acknowledged count.
    fn shortened(&self, io: &Io<'_>, out: &Outstanding, reply: &Rmessage<'_>) -> Option<Request> {
        match (&out.request, reply) {
            (Request::Write { fid, offset, data }, Rmessage::Write { count })
                if (*count as usize) < data.0.len() =>
            {
                let known = io.was_injected(out.since, Some(Error::NoSpace));
                assert!(known, "only {count} of {data:?} were written");
                let data = Bytes(data.0[..*count as usize].to_vec());
                Some(Request::Write { fid: *fid, offset: *offset, data })
            }
            _ => None,
        }
    }

    /// Removes a clunked or removed fid, whatever the reply.
    fn end_fid(&mut self, request: &Request) {
        if let Request::Clunk { fid } | Request::Remove { fid } = request
            && let Some(known) = self.fids.remove(fid)
        {
            self.locks.0.retain(|(.., through)| through != fid);
            self.forget(known);
        }
    }

    fn conclude(&mut self, io: &Io<'_>, out: &Outstanding, seen: Seen, reply: &Rmessage<'_>) {
        let request = &out.request;
        match (request, seen, reply) {
            (Request::Walk { fid, newfid, names }, Seen::Walked(stats, file), reply) => {
                let Rmessage::Walk { qids } = reply else { panic!("{request:?}: {reply:?}") };
                let partial = qids.as_slice().len() < stats.len();
                let ends = io.disk().is_none() && is_removed(stats.get(qids.as_slice().len()));
                let known = !partial || ends || io.was_injected(out.since, None);
                assert!(known, "{request:?} ended early");
                assert!(qids.as_slice().len() <= stats.len(), "{request:?} came too far");
                qids.as_slice().iter().zip(&stats).for_each(|(qid, stat)| check_qid(qid, stat));
                let kind = stats.last().map(|stat| stat.kind);
                self.walked(*fid, *newfid, names, kind, file, partial);
            }
            (Request::Open { fid, access, remove }, Seen::Opened(file, stat), reply) => {
                let (Rmessage::Lopen { qid, .. } | Rmessage::Open { qid, .. }) = reply else {
                    panic!("{request:?}: {reply:?}")
                };
                check_qid(qid, &stat);
                let fid = self.fids.get_mut(fid).expect("it was expected to be there");
                let (access, remove) = (*access, *remove);
                fid.state = FidState::Open { file, access, remove, listing: None };
            }
            (Request::Create { fid, name, access, .. }, seen, reply) => {
                let (Rmessage::Lcreate { qid, .. } | Rmessage::Create { qid, .. }) = reply else {
                    panic!("{request:?}: {reply:?}")
                };
                let (file, handle, stat) = self.created(*fid, name, seen);
                check_qid(qid, &stat);
                let listing = None;
                let state = FidState::Open { file, access: *access, remove: false, listing };
                let new = Fid { handle, kind: stat.kind, name: name.clone(), state };
                let old = self.fids.insert(*fid, new).expect("it was expected to be there");
                self.forget(old);
            }
            (_, Seen::Bytes(bytes), reply) => self.check_bytes(request, &bytes, reply),
            (_, Seen::Stat(stat), reply) => self.check_stat(request, &stat, reply),
            (Request::List { fid, offset, .. }, _, reply) => self.listed(*fid, *offset, reply),
            (_, _, reply) => self.conclude_plain(io, request, reply),
        }
    }

    /// Completes a creation: 9P2000 creates, looks up and opens directories in separate steps.
    fn created(&mut self, fid: u32, name: &[u8], seen: Seen) -> (File, File, Stat) {
        let stat = match seen {
            Seen::Created(file, handle, stat) => return (file, handle, stat),
            Seen::Stat(stat) => stat,
            other => panic!("{other:?} is not what a create gives"),
        };
        let walk = Request::Walk { fid, newfid: u32::MAX - 1, names: vec![name.to_vec()] };
        let Ok(Seen::Walked(_, Some(handle))) = self.expect(&walk) else {
            panic!("a new entry exists");
        };
        let open = base::op::PathOp::Open { file: handle, access: base::Access::READ };
        let Ok(base::op::PathDone::Opened(file, _)) = self.shadow.perform(UNKNOWN, &open) else {
            panic!("directories can be opened");
        };
        (file, handle, stat)
    }

    fn walked(
        &mut self,
        fid: u32,
        newfid: u32,
        names: &[Vec<u8>],
        kind: Option<Kind>,
        handle: Option<File>,
        partial: bool,
    ) {
        let Some(handle) = handle else { return };
        if partial {
            return self.shadow.close(handle);
        }
        let from = &self.fids[&fid];
        let kind = kind.unwrap_or(from.kind);
        let name = names.last().unwrap_or(&from.name).clone();
        if newfid == fid
            && let Some(old) = self.fids.remove(&fid)
        {
            self.forget(old);
        }
        self.fids.insert(newfid, Fid { handle, kind, name, state: FidState::Closed });
    }

    fn check_bytes(&mut self, request: &Request, bytes: &[u8], reply: &Rmessage<'_>) {
        match (request, reply) {
            (Request::Read { .. }, Rmessage::Read { data }) => {
                let same = data.0 == bytes;
                let lengths = (data.0.len(), bytes.len());
                assert!(same, "{request:?} read other bytes, {lengths:?} of them");
            }
            (Request::ReadLink { .. }, Rmessage::Readlink { target }) => {
                assert_eq!(*target, bytes, "{request:?}");
            }
            (Request::AttrWalk { fid, newfid, .. }, Rmessage::Xattrwalk { size }) => {
                assert_eq!(*size, bytes.len() as u64, "{request:?}");
                let known = &self.fids[fid];
                let (kind, name) = (known.kind, Vec::new());
                let handle = self.shadow.duplicate(known.handle);
                let state = FidState::AttrRead { value: bytes.to_vec() };
                self.fids.insert(*newfid, Fid { handle, kind, name, state });
            }
            _ => panic!("{request:?}: {reply:?}"),
        }
    }

    fn check_stat(&self, request: &Request, stat: &Stat, reply: &Rmessage<'_>) {
        match (request, reply) {
            (Request::Stat { .. }, Rmessage::Getattr { qid, mode, nlink, rdev, size, .. }) => {
                let Rmessage::Getattr { mtime_sec, .. } = reply else { unreachable!() };
                check_qid(qid, stat);
                assert_eq!(
                    (*mode, *size, *rdev),
                    (stat.full_mode(), stat.size, stat.special_device)
                );
                if stat.inode != ROOT {
                    assert_eq!(*nlink, u64::from(stat.links), "names of {}", stat.inode);
                    check_date(*mtime_sec, stat);
                }
            }
            (Request::Stat { fid }, Rmessage::Stat { stat: shown }) => {
                check_qid(&shown.qid, stat);
                let directory = stat.kind == Kind::Directory;
                let bit = if directory { WireStat::DIR } else { 0 };
                let length = if directory { 0 } else { stat.size };
                assert_eq!((shown.mode, shown.length), (stat.mode & 0o777 | bit, length));
                let name = &self.fids[fid].name;
                let special = matches!(&name[..], b"." | b"..");
                assert!(special || shown.name == *name, "{request:?}: {shown:?}");
                if stat.inode != ROOT {
                    check_date(shown.mtime.into(), stat);
                }
            }
            (
                Request::MakeDir { .. } | Request::Symlink { .. } | Request::MakeNode { .. },
                Rmessage::Mkdir { qid } | Rmessage::Symlink { qid } | Rmessage::Mknod { qid },
            ) => check_qid(qid, stat),
            _ => panic!("{request:?}: {reply:?}"),
        }
    }

    fn conclude_plain(&mut self, io: &Io<'_>, request: &Request, reply: &Rmessage<'_>) {
        match (request, reply) {
            (Request::Write { data, .. }, Rmessage::Write { count }) => {
                assert_eq!(*count as usize, data.0.len(), "{request:?}");
            }
            (Request::Clunk { .. }, Rmessage::Clunk {})
            | (Request::Remove { .. }, Rmessage::Remove {}) => self.end_fid(request),
            (Request::AttrCreate { fid, name, size, flags }, Rmessage::Xattrcreate {}) => {
                let fid = self.fids.get_mut(fid).expect("it was expected to be there");
                let (name, value, flags) = (name.clone(), Vec::new(), *flags);
                let size = usize::try_from(*size).expect("small");
                fid.state = FidState::AttrWrite { name, value, size, flags };
            }
            (Request::SetStat { fid, rename, .. }, Rmessage::Setattr {} | Rmessage::Wstat {}) => {
                if let (Some(name), Some(fid)) = (rename, self.fids.get_mut(fid)) {
                    fid.name.clone_from(name);
                }
            }
            (Request::StatFs { .. }, Rmessage::Statfs { namelen, bsize, .. }) => {
                assert_eq!((*namelen, *bsize), (255, 4096));
            }
            (Request::Lock { .. } | Request::GetLock { .. }, reply) => {
                self.judge_lock(io, request, reply);
            }
            (Request::Link { .. }, Rmessage::Link {})
            | (Request::Rename { .. }, Rmessage::Rename {})
            | (Request::RenameAt { .. }, Rmessage::Renameat {})
            | (Request::Unlink { .. }, Rmessage::Unlinkat {})
            | (Request::Sync { .. }, Rmessage::Fsync {}) => {}
            _ => panic!("{request:?}: {reply:?}"),
        }
    }

    fn judge_lock(&mut self, _io: &Io<'_>, request: &Request, reply: &Rmessage<'_>) {
        let waiting = self.outstanding.values();
        let waiting = waiting.filter(|out| matches!(out.request, Request::Lock { wait: true, .. }));
        let sure = waiting.count() == 0;
        match (request, reply) {
            (Request::Lock { fid, kind, slot, owner, wait }, Rmessage::Lock { status }) => {
                let inode = self.fid_inode(*fid).expect("it was expected to be there");
                let conflict = self.locks.conflict(inode, *slot, *owner, *kind == 1);
                match (status, kind) {
                    (0, 2) => self.locks.drop_of(inode, *slot, *owner),
                    (0, _) => {
                        assert!(!conflict, "{request:?} was granted against a holder");
                        self.locks.drop_of(inode, *slot, *owner);
                        self.locks.0.push((inode, *slot, *owner, *kind == 1, *fid));
                    }
                    (1, 0 | 1) => {
                        assert!(!wait, "{request:?} was to be repeated");
                        assert!(conflict || !sure, "{request:?} was refused for nothing");
                    }
                    _ => panic!("{request:?}: {reply:?}"),
                }
            }
            (
                Request::GetLock { fid, kind, slot, owner },
                Rmessage::Getlock { kind: shown, .. },
            ) => {
                let inode = self.fid_inode(*fid).expect("it was expected to be there");
                let conflict = self.locks.conflict(inode, *slot, *owner, *kind == 1);
                assert!(conflict == (*shown != 2) || !sure, "{request:?}: {reply:?}");
            }
            _ => panic!("{request:?}: {reply:?}"),
        }
    }

    /// Handles entries of a directory.
    fn listed(&mut self, fid: u32, offset: u64, reply: &Rmessage<'_>) {
        let inode = self.fid_inode(fid).expect("it was expected to be there");
        let names = self.shadow.names(inode);
        let found: Vec<(Qid, Vec<u8>)>;
        let next: u64;
        match reply {
            Rmessage::Readdir { data } => {
                let entries = dirents(data.0).expect("whole entries");
                next = entries.last().map_or(offset, |(_, cookie, ..)| *cookie);
                found = entries.iter().map(|(qid, _, _, name)| (*qid, name.to_vec())).collect();
            }
            Rmessage::Read { data } => {
                let mut reader = Reader::new(data.0);
                let mut entries = Vec::new();
                while !reader.is_empty() {
                    let stat = WireStat::get_entry(&mut reader).expect("whole entries");
                    entries.push((stat.qid, stat.name.to_vec()));
                }
                (found, next) = (entries, offset + data.0.len() as u64);
            }
            other => panic!("a listing gave {other:?}"),
        }
        for (qid, name) in &found {
            let inode = self.shadow.lookup(inode, name);
            let stat = inode.and_then(|inode| self.shadow.attributes(inode));
            match stat {
                Some(stat) if self.setup.linux => check_qid(qid, &stat),
                // In 9P2000 the server reads ahead: it may list removed names.
                _ => assert!(!self.setup.linux, "{name:?} is listed, but is not there"),
            }
        }
        let Some(FidState::Open { listing, .. }) = self.fids.get_mut(&fid).map(|f| &mut f.state)
        else {
            panic!("it was expected to be open");
        };
        if offset == 0 {
            *listing = None;
        }
        let list = listing.get_or_insert_with(|| Listing {
            offset: 0,
            constant: names,
            seen: BTreeSet::new(),
        });
        list.offset = next;
        for (_, name) in &found {
            let name = Name::new(name).expect("names are names");
            let new = list.seen.insert(name.clone());
            assert!(new || !list.constant.contains_key(&name), "{name} is listed twice");
        }
        if found.is_empty() {
            let missing = list.constant.keys().find(|name| !list.seen.contains(*name));
            assert!(missing.is_none(), "{missing:?} was there all the time and is not listed");
            *listing = None;
        }
    }

    /// Removes changed names from the expected ones of listings.
    pub(super) fn note_changes(&mut self) {
        let mut dirs: BTreeMap<u64, BTreeMap<Name, u64>> = BTreeMap::new();
        for fid in self.fids.values_mut() {
            let inode = self.shadow.inode_of(fid.handle);
            if let FidState::Open { listing: Some(listing), .. } = &mut fid.state {
                let names = dirs.entry(inode).or_insert_with(|| self.shadow.names(inode));
                listing.constant.retain(|name, same| names.get(name) == Some(same));
            }
        }
    }

    /// Determines from the real disk the outcome of a request that failed or has no reply.
    pub(super) fn settle(&mut self, io: &mut Io<'_>, request: &Request) {
        let inodes = self.touched(request);
        if let Request::List { fid, .. } = request
            && let Some(FidState::Open { listing, .. }) =
                self.fids.get_mut(fid).map(|fid| &mut fid.state)
        {
            // The server's position is unknown: the next listing begins at the start.
            *listing = None;
        }
        let steps = self.steps(request).unwrap_or_default();
        if self.differs(io, &inodes).is_some() {
            for step in &steps {
                self.repeat(io, step);
                if self.differs(io, &inodes).is_none() {
                    break;
                }
            }
            if let Some(difference) = self.differs(io, &inodes) {
                panic!("{request:?} was neither done nor left undone: {difference}");
            }
        }
        // Timestamps are not compared, so they are unknown from now on.
        inodes.iter().for_each(|inode| self.shadow.forget_date(*inode, UNKNOWN));
        self.end_fid(request);
    }

    fn touched(&self, request: &Request) -> Vec<u64> {
        let keys = self.keys_of(request).into_iter();
        keys.filter_map(|(key, changes)| match key {
            super::keys::Key::Inode(inode) if changes && inode != ROOT => Some(inode),
            _ => None,
        })
        .collect()
    }

    fn differs(&self, io: &Io<'_>, inodes: &[u64]) -> Option<String> {
        let disk = io.disk()?;
        inodes.iter().find_map(|inode| {
            let difference = self.shadow.difference(disk, *inode)?;
            Some(format!("file {inode}: {difference}"))
        })
    }

    /// Repeats on the shadow a step that was apparently performed on the disk.
    fn repeat(&mut self, io: &Io<'_>, step: &Step) {
        let disk = io.disk().expect("requests to a volume have an outcome");
        match step {
            Step::Write(file, offset, data) => {
                let real = disk.inode(self.shadow.inode_of(*file));
                let real = real.map(|node| node.data.clone()).unwrap_or_default();
                let at = self.shadow.write_position(*file, *offset);
                let there = real.read(at, data.len());
                let same = there.iter().zip(data).take_while(|(one, two)| one == two).count();
                let _ = self.shadow.write(UNKNOWN, *file, *offset, &data[..same]);
            }
            Step::Path(op) => {
                if let Some((dir, name)) = self.shadow.makes(op)
                    && let Some(inode) = disk.lookup(dir, name.as_bytes())
                {
                    self.shadow.choose_inode(inode);
                }
                if let Ok(done) = self.shadow.perform(UNKNOWN, op) {
                    self.shadow.close_all(&done);
                }
            }
        }
    }
}

/// Returns whether this is a removed directory. A volume keeps it only while it is referenced,
/// whereas the host also keeps the parents of referenced directories.
fn is_removed(stat: Option<&Stat>) -> bool {
    stat.is_some_and(|stat| stat.kind == Kind::Directory && stat.links == 0)
}

/// Returns whether a volume finds this error before the expected one. It first checks that the
/// directory exists, and the target of a link, as Linux does.
fn comes_first(request: &Request, expected: Error, error: Error) -> bool {
    let of_target = match request {
        Request::Symlink { target, .. } if target.is_empty() => Some(Error::NotFound),
        Request::Symlink { target, .. } if target.contains(&0) => Some(Error::Invalid),
        _ => None,
    };
    expected == Error::Exists && (error == Error::NotDirectory || of_target == Some(error))
}
