//! Streams of subtrees from the server, and what requests take from them.
//!
//! `/.upcall/subtree` is opened, a path is written, and what is beneath it is read as one stream
//! ([`wire::subtree`]). Only files whose changes are reported are used, because the kernel caches
//! what it gets until it changes.

use crate::attr::Attr;
use crate::changes::{Report, What};
use crate::errno;
use crate::handles::Handle;
use crate::link::{Connection, Failure, Fid, only};
use crate::linux::{O_ACCMODE, O_RDWR};
use crate::listing::Item;
use crate::lock;
use crate::prefetch::{Begin, Ended, Wanted};
use crate::session::{Caller, Session};
use crate::spare::Spare;
use crate::store::{Content, Known};
use crate::watching::entries_of;
use client::{Call, Dialect, Interrupt};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::fuse::{ROOT, Request, fattr};
use wire::ninep::{Data, Rmessage, Tmessage};
use wire::subtree::{CONTENT_MAX, PATH_MAX};

/// The file of subtrees, from the root of a server.
const FILE: [&[u8]; 2] = [b".upcall", b"subtree"];

/// Maximum length of a name, in bytes.
const NAME_MAX: usize = 255;

/// Size of a read of a stream, in bytes.
const READ: u32 = 64 << 10;

/// Maximum number of reads of a stream in progress.
const READS_MAX: u64 = 8;

/// Time of a round trip from which on the first lookup in a directory begins a stream.
const FAR: Duration = Duration::from_micros(500);

/// Interval of looking for files that stay open.
const LASTING: Duration = Duration::from_secs(1);

/// Number of these after which an unused fid is clunked: the server has few for all clients.
const SPARE_MAX: u32 = 60;

/// Returns the file that a request changes, other than those of its entries.
#[allow(clippy::wildcard_enum_match_arm, reason = "the others change nothing that is kept")]
fn changed_file(node: u64, request: &Request<'_>) -> Option<(What, u64)> {
    match request {
        Request::Write { .. } => Some((What::Contents, node)),
        Request::SetAttr(set) if set.valid & fattr::SIZE != 0 => Some((What::Contents, node)),
        Request::SetAttr(_) | Request::SetXattr { .. } | Request::RemoveXattr { .. } => {
            Some((What::Attributes, node))
        }
        Request::Link { node: linked, .. } => Some((What::Attributes, *linked)),
        _other => None,
    }
}

#[allow(clippy::disallowed_methods, reason = "how old a directory is")]
fn now() -> Instant {
    Instant::now()
}

impl Session {
    /// Returns the number of a node's file, if its changes are reported.
    fn watched_file(&self, node: u64) -> Option<u64> {
        let file = lock(&self.nodes).file(node)?;
        self.is_watched(file).then_some(file)
    }

    /// Returns the attributes of a file that were sent ahead.
    pub(crate) fn attr_ahead(&self, node: u64) -> Option<Attr> {
        let attr = self.prefetch.attr(self.watched_file(node)?, now())?;
        lock(&self.nodes).is_same(node, &attr).then_some(attr)
    }

    /// Returns the attributes of an entry that were sent ahead.
    pub(crate) fn entry_ahead(&self, dir: u64, name: &[u8]) -> Option<Attr> {
        match self.prefetch.find(self.watched_file(dir)?, name, now()) {
            Known::File(attr) => Some(attr),
            Known::Absent | Known::Unknown => None,
        }
    }

    /// Returns the entries of a directory that were sent ahead.
    pub(crate) fn list_ahead(&self, dir: u64) -> Option<Vec<Item>> {
        self.prefetch.list(self.watched_file(dir)?)
    }

    /// Looks for a name in what was or is about to be sent ahead.
    pub(crate) fn find_ahead(
        &self,
        caller: &Caller<'_>,
        dir: u64,
        name: &[u8],
    ) -> Result<Known, Failure> {
        // Long names have an error of their own.
        let file = self.watched_file(dir).filter(|_| name.len() <= NAME_MAX);
        let Some(file) = file else { return Ok(Known::Unknown) };
        let find = || match self.prefetch.find(file, name, now()) {
            // Service directories are in the root without being listed.
            Known::Absent if dir == ROOT => Known::Unknown,
            found @ (Known::Absent | Known::Unknown | Known::File(_)) => found,
        };
        let found = find();
        if found != Known::Unknown {
            return Ok(found);
        }
        self.bring(caller, dir, Wanted::Name(file))?;
        Ok(find())
    }

    /// Returns whether all entries of a directory were sent ahead; waits for them if they are about
    /// to be.
    pub(crate) fn is_listed_ahead(&self, caller: &Caller<'_>, dir: u64) -> Result<bool, Failure> {
        let Some(file) = self.watched_file(dir) else { return Ok(false) };
        if !self.prefetch.has_entries(file) {
            self.bring(caller, dir, Wanted::Listing(file))?;
        }
        Ok(self.prefetch.has_entries(file))
    }

    /// Returns contents and attributes of a file that were sent ahead, to open it with these flags;
    /// waits for them if they are about to be.
    pub(crate) fn content_ahead(
        &self,
        caller: &Caller<'_>,
        node: u64,
        flags: u32,
    ) -> Result<Option<(Arc<Content>, Attr)>, Failure> {
        if flags & O_ACCMODE != 0 {
            return Ok(None);
        }
        let (attr, place) = {
            let nodes = lock(&self.nodes);
            (nodes.shown_attr(node), nodes.place(node))
        };
        let (Some(attr), Some((dir, _))) = (attr, place) else { return Ok(None) };
        let is_small = (1..=CONTENT_MAX as u64).contains(&attr.shown.size);
        if !self.is_watched(attr.qid.path) || !attr.is_file() || !is_small {
            return Ok(None);
        }
        if let Some(content) = self.prefetch.content(&attr) {
            return Ok(Some((content, attr)));
        }
        let Some(file) = self.watched_file(dir) else { return Ok(None) };
        self.bring(caller, dir, Wanted::Contents(file, attr.qid.path))?;
        Ok(self.prefetch.content(&attr).map(|content| (content, attr)))
    }

    /// Reads an open file from the server from now on.
    pub(crate) fn outdate(&self, handle: &Handle) {
        let Some(file) = handle.content.as_ref().and_then(|_| lock(&self.nodes).file(handle.node))
        else {
            return;
        };
        self.prefetch.changed(&Report { what: What::Contents, file, name: None });
    }

    /// Begins a stream if it is worth while, and waits for what is about to be sent.
    fn bring(&self, caller: &Caller<'_>, dir: u64, wanted: Wanted) -> Result<(), Failure> {
        let Some(connection) = self.link.present() else { return Ok(()) };
        if connection.dialect != Dialect::Linux {
            return Ok(());
        }
        let way = lock(&self.nodes).way(dir);
        let Some((files, names)) = way else { return Ok(()) };
        if names.iter().map(|name| name.len() + 1).sum::<usize>() > PATH_MAX {
            return Ok(());
        }
        let is_far = connection.latency >= FAR;
        if let Some(begin) = self.prefetch.begin(wanted, &files, is_far, now()) {
            let (above, start) = names.split_at(names.len() - begin.above);
            let mut path = [b"/", &above.join(&b'/')[..]].concat();
            if !start.is_empty() {
                path.push(0);
                path.extend(start.join(&b'/'));
            }
            self.start_stream(caller.user, begin, path);
        }
        self.prefetch.wait(wanted, caller.interrupt);
        if caller.interrupt.is_set() { Err(Failure::Interrupted) } else { Ok(()) }
    }

    fn start_stream(&self, user: u32, begin: Begin, path: Vec<u8>) {
        let number = begin.number;
        let started = self.spawn_with("subtree", move |session| {
            let refused = match session.read_stream(user, begin, &path) {
                Ok(()) | Err(Failure::Interrupted) => None,
                Err(Failure::Errno(_)) => Some(now()),
                Err(Failure::Lost(number)) => {
                    session.link.lost(number);
                    None
                }
            };
            session.prefetch.end(number, refused);
        });
        if started.is_err() {
            self.prefetch.end(number, None);
        }
    }

    /// Reads a stream until its end, or until it has no use any more.
    fn read_stream(&self, user: u32, begin: Begin, path: &[u8]) -> Result<(), Failure> {
        let never = Interrupt::default();
        let Some(connection) = self.link.present() else { return Ok(()) };
        let spare = lock(&self.spare).take();
        let spare = spare.filter(|spare| spare.is_of(user, &connection));
        let fid = match spare {
            Some(spare) => spare.fid,
            None => self.open_subtree(&connection, user)?,
        };
        self.prepare_stream(user);
        let verb = if begin.has_contents { &b"contents "[..] } else { b"attributes " };
        let (request, number) = ([verb, path].concat(), fid.number);
        let failed = |error| connection.failure(&error);
        let message = Tmessage::Write { fid: number, offset: 0, data: Data(&request) };
        let written = connection.raw.post(&message, None).map_err(failed)?;
        let count = READ.min(connection.io_max());
        let mut calls: VecDeque<Call> = VecDeque::new();
        let mut room = Some(0);
        let mut written = Some(written);
        while let Some(bytes) = room {
            let wanted = (bytes / u64::from(count)).clamp(1, READS_MAX);
            while (calls.len() as u64) < wanted {
                let message = Tmessage::Read { fid: number, offset: 0, count };
                calls.push_back(connection.raw.post(&message, None).map_err(failed)?);
            }
            connection.raw.push().map_err(failed)?;
            if let Some(written) = written.take() {
                written.wait(&never).map_err(failed)?;
            }
            let call = calls.pop_front().expect("one was posted");
            let reply = call.wait(&never).map_err(failed)?;
            let data = reply.data(count).map_err(failed)?;
            if data.is_empty() {
                return Ok(());
            }
            match self.prefetch.add(begin.number, data, now()) {
                Ok(()) => {}
                Err(Ended::Dropped) => return Ok(()),
                Err(Ended::Broken) => return Err(Failure::Errno(errno::EPROTO)),
            }
            room = match calls.is_empty() {
                true => self.prefetch.wait_for_room(begin.number),
                false => self.prefetch.room(begin.number),
            };
        }
        Ok(())
    }

    /// Opens the file of subtrees as a user sees it.
    fn open_subtree(&self, connection: &Arc<Connection>, user: u32) -> Result<Fid, Failure> {
        let never = Interrupt::default();
        let root = match user {
            user if user == self.settings.user => connection.own_root(),
            user => connection.root_of(&never, user)?,
        };
        let names = FILE.map(<[u8]>::to_vec);
        let (fid, _) = connection.walk(&never, root.number, &names)?;
        let open = Tmessage::Lopen { fid: fid.number, flags: O_RDWR };
        connection.call(&never, &open, only!(Rmessage::Lopen { .. } => ()))?;
        Ok(fid)
    }

    /// Opens the file of subtrees for the next stream, which then begins with its request.
    pub(crate) fn prepare_stream(&self, user: u32) {
        // Without it the next stream opens the file, and finds out why that fails.
        let _ = self.spawn_with("subtree", move |session| session.keep_spare(user));
    }

    fn keep_spare(&self, user: u32) {
        let Some(connection) = self.link.present() else { return };
        if lock(&self.spare).as_ref().is_some_and(|spare| spare.is_of(user, &connection)) {
            return;
        }
        if let Ok(fid) = self.open_subtree(&connection, user) {
            *lock(&self.spare) = Some(Spare { user, fid, age: 0 });
        }
    }

    /// Opens files at the server that stay open with contents that were sent ahead, until the mount
    /// ends: fids follow them when others rename or remove them.
    pub(crate) fn open_lasting(&self) {
        let never = Interrupt::default();
        while self.flights.pause(LASTING) {
            for handle in self.handles.lasting() {
                let (user, gid) = (handle.user, u32::MAX);
                let caller = Caller { user, uid: user, gid, pid: 0, interrupt: &never };
                // Without a fid it keeps its contents.
                if let Err(Failure::Lost(number)) = self.open_fid(&caller, &handle) {
                    self.link.lost(number);
                }
            }
            let mut spare = lock(&self.spare);
            if let Some(spare) = &mut *spare {
                spare.age += 1;
            }
            drop(spare.take_if(|spare| spare.age > SPARE_MAX));
        }
    }

    /// Returns the changes that a request makes if it is performed. The server does not report
    /// those of this connection.
    pub(crate) fn changes_of(&self, node: u64, request: &Request<'_>) -> Vec<Report> {
        let file = |what, node| {
            let file = lock(&self.nodes).file(node);
            file.map(|file| Report { what, file, name: None })
        };
        let entry = |(dir, name): (u64, &[u8])| {
            let child = lock(&self.nodes).child(dir, name);
            let file_of_child = child.and_then(|child| file(What::Attributes, child));
            let name = Some(name.to_vec());
            let entry = file(What::Entry, dir).map(|report| Report { name, ..report });
            file_of_child.into_iter().chain(entry)
        };
        let itself = changed_file(node, request).and_then(|(what, node)| file(what, node));
        entries_of(node, request).into_iter().flat_map(entry).chain(itself).collect()
    }
}
