//! A watch of paths: follows the entries of directories, and reports what has become of them.
//!
//! A change of an entry only says where to look: a walk by the watch's user finds what is there
//! now. So changes in quick succession are one, nothing is lost by a slow reader, and nobody learns
//! of files that they could not look up.
//!
//! ```text
//! walk ──▶ open ──▶ list ──▶ (watching) ──an entry changed──▶ look ──▶ created, removed, replaced
//! ```

mod entry;

use super::beneath::{Beneath, Leaving};
use super::doing::{Activity, discard, seen};
use super::line;
use super::log::Log;
use super::place::{Child, Origin, Touched, WatchedDirectory};
use super::text::{bytes_of, display, least, parse};
use super::{ENTRIES_MAX, LINES_MAX};
use crate::change::Change;
use crate::locks::FileKey;
use crate::request::{Ask, NodeId, OpenId, Reply, StreamOutput as Output};
use base::op::{ClientKey, Detail, Entry};
use base::{Access, Error, Kind, Name, Stat};
use slab::Slab;
use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::ops::Bound;

/// Maximum number of names in a walk.
const NAMES_MAX: usize = 16;

/// Maximum number of entries to be looked at: if there are more, their directory is listed again.
const MARKS_MAX: usize = 4096;

/// Bytes that are counted for a directory: its node may be a descriptor, which are fewer.
const PLACE_BYTES: usize = 8192;

/// Maximum length of the path of a directory beneath another one.
const PATH_MAX: usize = 4096;

/// Size of a listing request, bytes: some dozen entries, which are added in one turn.
const LIST: u32 = 2 << 10;

/// A watch of paths.
#[derive(Debug)]
pub(super) struct Paths {
    /// Its number in the log.
    number: usize,
    client: ClientKey,
    root: NodeId,
    places: Slab<WatchedDirectory>,
    /// Places by identity.
    by_key: BTreeSet<(FileKey, usize)>,
    children: BTreeMap<(usize, Name), Child>,
    /// Children by identity.
    by_file: BTreeSet<(FileKey, usize, Name)>,
    /// Places to be added: the node and the names to walk.
    entering: BTreeMap<usize, (NodeId, Vec<Name>)>,
    /// Places that were found beneath others, by path.
    found: Beneath,
    /// Paths that were given, and whether with everything beneath them.
    given: BTreeMap<Vec<u8>, bool>,
    /// Those that are watched when nothing is to be added.
    ready: BTreeSet<Vec<u8>>,
    /// Directories that are gone.
    leaving: Vec<Leaving>,
    /// Places that are no longer watched, with children.
    dropped: Vec<usize>,
    /// Number of places that were added.
    serial: u64,
    /// No place of a closed watch has a number below.
    first: usize,
    /// Memory counted for it.
    bytes: usize,
    /// Number of entries to look at.
    marks: usize,
    /// Entries not to be looked at any more: they are removed step by step.
    outdated: Vec<BTreeSet<Name>>,
    /// Whether it was reported that there is no room.
    is_full: bool,
    /// Directories with entries to look at.
    dirty: BTreeSet<usize>,
    /// Directories to be listed again.
    lost: BTreeSet<usize>,
    /// Size of the lines up to the last unread report of a lost directory.
    unread: usize,
    /// Files with new attributes or contents, to be reported.
    touched: BTreeMap<FileKey, Touched>,
    doing: Option<Activity>,
    lines: Vec<u8>,
    is_closed: bool,
}

impl Paths {
    pub(super) fn new(number: usize, client: ClientKey, root: NodeId) -> Paths {
        Paths {
            number,
            client,
            root,
            places: Slab::new(),
            by_key: BTreeSet::new(),
            children: BTreeMap::new(),
            by_file: BTreeSet::new(),
            entering: BTreeMap::new(),
            found: Beneath::default(),
            given: BTreeMap::new(),
            ready: BTreeSet::new(),
            leaving: Vec::new(),
            dropped: Vec::new(),
            serial: 0,
            first: 0,
            bytes: 0,
            marks: 0,
            outdated: Vec::new(),
            is_full: false,
            dirty: BTreeSet::new(),
            lost: BTreeSet::new(),
            unread: 0,
            touched: BTreeMap::new(),
            doing: None,
            lines: Vec::new(),
            is_closed: false,
        }
    }

    /// Adds a path: absolute, with `/**` at its end for everything beneath it.
    ///
    /// # Errors
    /// `Busy` if the client does not read what was reported.
    pub(super) fn add(&mut self, text: &[u8], log: &mut Log) -> Result<(), Error> {
        if self.lines.len() >= LINES_MAX {
            return Err(Error::Busy);
        }
        match parse(text) {
            Ok((names, is_deep)) if self.has_place(text.len(), log) => {
                let path = display(&names);
                let known = self.given.get(&path);
                if known.is_some_and(|known| *known >= is_deep) {
                    self.ready.insert(path);
                    return Ok(());
                }
                self.given.insert(path.clone(), is_deep);
                let place = self.new_place(path, Origin::Given, is_deep, log);
                self.entering.insert(place, (self.root, names));
            }
            Ok(_) => line::failed(text, Error::TooManyOpen, &mut self.lines),
            Err(error) => line::failed(text, error, &mut self.lines),
        }
        Ok(())
    }

    /// Returns whether there may be one more entry with this length of its name.
    fn has_room(&self, length: usize, log: &Log) -> bool {
        self.entries() < ENTRIES_MAX && !log.is_full(self.client, bytes_of(length))
    }

    /// Returns whether there may be one more directory with this length of its path.
    fn has_place(&self, length: usize, log: &Log) -> bool {
        length <= PATH_MAX && self.has_room(length + PLACE_BYTES / 2, log)
    }

    fn new_place(&mut self, path: Vec<u8>, origin: Origin, is_deep: bool, log: &mut Log) -> usize {
        self.hold(PLACE_BYTES + bytes_of(path.len()), log);
        let place = self.places.vacant_key();
        if origin != Origin::Given {
            self.found.insert(path.clone(), place);
        }
        let serial = self.serial;
        self.serial += 1;
        self.places.insert(WatchedDirectory {
            path,
            origin,
            found: None,
            only: None,
            is_deep,
            changed: BTreeSet::new(),
            is_dropped: false,
            serial,
        })
    }

    fn hold(&mut self, bytes: usize, log: &mut Log) {
        self.bytes += bytes;
        log.hold(self.client, bytes);
    }

    fn release(&mut self, bytes: usize, log: &mut Log) {
        self.bytes -= bytes;
        log.release(self.client, bytes);
    }

    /// Notes a change of a file of this watch.
    pub(super) fn note(&mut self, change: &Change) {
        if self.is_closed {
            return;
        }
        match change {
            Change::Entry(dir, name) => {
                for place in self.places_of(*dir) {
                    self.note_entry(place, name.clone());
                }
            }
            Change::Contents(file) => self.touch(*file, true),
            Change::Attributes(file) => self.touch(*file, false),
            Change::Moved(file) => {
                for (place, name) in self.names_of(*file) {
                    self.note_entry(place, name);
                }
            }
        }
    }

    fn touch(&mut self, file: FileKey, is_written: bool) {
        // The directory of the only watched entry is not watched itself.
        let is_place = self.places_of(file).iter().any(|place| self.places[*place].only.is_none());
        if !is_place && !self.has_name(file) {
            return;
        }
        let touched = self.touched.entry(file).or_default();
        touched.is_written |= is_written;
        touched.until = None;
    }

    fn note_entry(&mut self, place: usize, name: Name) {
        let WatchedDirectory { changed, is_dropped, only, .. } = &mut self.places[place];
        let is_other = only.as_ref().is_some_and(|only| *only != name);
        if *is_dropped || is_other || self.lost.contains(&place) {
            return;
        }
        // Outdated names need memory until they are removed: none are added meanwhile.
        if only.is_some() || self.marks < MARKS_MAX && self.outdated.is_empty() {
            self.marks += usize::from(changed.insert(name));
            self.dirty.insert(place);
        } else if !changed.contains(&name) {
            self.dirty.remove(&place);
            self.lost.insert(place);
            let names = mem::take(changed);
            self.discard_marks(names);
        }
    }

    /// Takes the entries to look at from a place, to remove them step by step.
    fn discard_marks(&mut self, names: BTreeSet<Name>) {
        self.marks -= names.len();
        if !names.is_empty() {
            self.outdated.push(names);
        }
    }

    fn places_of(&self, key: FileKey) -> Vec<usize> {
        self.by_key.range((key, 0)..=(key, usize::MAX)).map(|(_, place)| *place).collect()
    }

    fn names_of(&self, file: FileKey) -> Vec<(usize, Name)> {
        let range = self.by_file.range((file, 0, least())..);
        let own = range.take_while(|(key, ..)| *key == file);
        own.map(|(_, place, name)| (*place, name.clone())).collect()
    }

    /// Returns whether it reports changes of this file.
    fn has(&self, key: FileKey) -> bool {
        let place = self.by_key.range((key, 0)..=(key, usize::MAX)).next();
        place.is_some() || self.has_name(key)
    }

    /// Returns whether it is an entry of a place.
    fn has_name(&self, key: FileKey) -> bool {
        let name = self.by_file.range((key, 0, least())..).next();
        name.is_some_and(|(of, ..)| *of == key)
    }

    /// Sends the next request, if none is in progress and there is room for its report, and removes
    /// at most `left` entries. Returns whether there is more to remove.
    pub(super) fn advance(
        &mut self,
        left: &mut usize,
        log: &mut Log,
        out: &mut Vec<Output>,
    ) -> bool {
        let mut is_removed = self.end_leaving(left, log, out) && self.remove_dropped(left, log);
        if self.is_closed {
            while is_removed && *left > 0 && self.drop_next(log, out) {
                *left -= 1;
                is_removed = self.remove_dropped(left, log);
            }
            return !is_removed || !self.places.is_empty();
        }
        let may_ask = self.doing.is_none() && self.leaving.is_empty();
        if may_ask && self.lines.len() < LINES_MAX {
            is_removed &= self.begin_next(left, log, out);
        }
        !is_removed
    }

    /// Ends the watch of a place of a closed watch, if there is one.
    fn drop_next(&mut self, log: &mut Log, out: &mut Vec<Output>) -> bool {
        while self.first < self.places.capacity() && !self.places.contains(self.first) {
            self.first += 1;
        }
        let is_there = self.places.contains(self.first);
        if is_there {
            self.drop_place(self.first, log, out);
        }
        is_there
    }

    /// Removes outdated entries, and children of places that are no longer watched. Returns whether
    /// all are removed.
    fn remove_dropped(&mut self, left: &mut usize, log: &mut Log) -> bool {
        while let Some(names) = self.outdated.last_mut() {
            while *left > 0 && names.pop_first().is_some() {
                *left -= 1;
            }
            if !names.is_empty() {
                return false;
            }
            self.outdated.pop();
        }
        while let Some(&place) = self.dropped.last() {
            if !self.remove_children(place, left, log) {
                return false;
            }
            self.dropped.pop();
            let WatchedDirectory { path, .. } = self.places.remove(place);
            self.release(PLACE_BYTES + bytes_of(path.len()), log);
        }
        true
    }

    /// Removes at most `left` children of a place, and what is watched beneath them. Returns
    /// whether all are removed.
    fn remove_children(&mut self, place: usize, left: &mut usize, log: &mut Log) -> bool {
        while *left > 0 {
            let first = self.children.range((place, least())..).next();
            let Some(((_, name), _)) = first.filter(|((of, _), _)| *of == place) else {
                return true;
            };
            let name = name.clone();
            let child = self.remove_child(place, &name, log).expect("it is there");
            if !self.places[place].is_dropped {
                self.leave(self.places[place].path_of(&name), child);
            }
            *left -= 1;
        }
        false
    }

    /// Sends the next request. Returns whether nothing has to be removed before it.
    fn begin_next(&mut self, left: &mut usize, log: &mut Log, out: &mut Vec<Output>) -> bool {
        if let Some((place, (from, names))) = self.entering.pop_first() {
            self.walk(place, (from, None), names, out);
            return true;
        }
        for path in mem::take(&mut self.ready) {
            line::watching(&path, &mut self.lines);
        }
        // More may be lost until the reader has read of the last loss.
        let lost = self.lost.first().copied().filter(|_| self.unread == 0);
        let dirty = self.dirty.first().copied();
        let Some(place) = dirty.into_iter().chain(lost).min() else { return true };
        if lost == Some(place) {
            let is_removed = self.remove_children(place, left, log);
            if is_removed {
                self.list_again(place, out);
            }
            return is_removed;
        }
        let WatchedDirectory { found, changed, .. } = &mut self.places[place];
        let (Some((node, _)), Some(name)) = (*found, changed.pop_first()) else {
            unreachable!("place {place} has nothing to look at");
        };
        self.marks -= 1;
        if changed.is_empty() {
            self.dirty.remove(&place);
        }
        out.push(Output::Ask(Ask::Walk { from: node, names: vec![name.clone()] }));
        self.doing = Some(Activity::Looking { place, name, since: log.end() });
        true
    }

    /// Walks from a node; `own` is released at the end.
    fn walk(
        &mut self,
        place: usize,
        (from, own): (NodeId, Option<NodeId>),
        mut names: Vec<Name>,
        out: &mut Vec<Output>,
    ) {
        let rest = names.split_off(names.len().min(NAMES_MAX));
        out.push(Output::Ask(Ask::Walk { from, names }));
        self.doing = Some(Activity::Walking { place, own, rest });
    }

    /// Lists a directory again after more changes than are kept.
    fn list_again(&mut self, place: usize, out: &mut Vec<Output>) {
        self.lost.remove(&place);
        let WatchedDirectory { path, found, origin, .. } = &mut self.places[place];
        if *origin == Origin::Created {
            *origin = Origin::Listed;
        }
        let (node, _) = found.expect("it was listed");
        line::changed("lost", path, None, None, &mut self.lines);
        self.unread = self.lines.len();
        out.push(Output::Ask(Ask::Open { node, access: Access::READ }));
        self.doing = Some(Activity::Opening { place, node, again: true });
    }

    /// Handles the reply to its request.
    pub(super) fn answered(
        &mut self,
        result: Result<Reply, Error>,
        log: &mut Log,
        out: &mut Vec<Output>,
    ) {
        let doing = self.doing.take().expect("it has asked");
        if self.is_closed {
            return discard(doing, result, out);
        }
        match (doing, result) {
            (Activity::Walking { place, own, rest }, result) => {
                out.extend(own.map(Output::Release));
                self.walked(place, rest, result, log, out);
            }
            (Activity::Opening { place, node, .. }, Ok(Reply::Opened(open, stat))) => {
                self.opened(place, node, open, &stat, log, out);
            }
            (Activity::Opening { place, node, again }, Err(error)) => {
                out.extend((!again).then_some(Output::Release(node)));
                self.fail(place, error, log, out);
            }
            (Activity::Measuring { place, node }, Ok(Reply::Stat(stat))) => {
                self.watch_only(place, node, &stat, log, out);
            }
            (Activity::Measuring { place, node }, Err(error)) => {
                out.push(Output::Release(node));
                self.fail(place, error, log, out);
            }
            (Activity::Listing { place, open }, Ok(Reply::Entries(entries))) => {
                self.listed(place, open, entries, log, out);
            }
            (Activity::Listing { place, open }, Err(error)) => {
                out.push(Output::Close(open));
                self.fail(place, error, log, out);
            }
            (Activity::LookingFirst { place, name }, result) => {
                self.begin_entry(place, name, result, log, out);
            }
            (Activity::Looking { place, name, since }, result) => {
                self.looked(place, name, since, result, log, out);
            }
            (doing, reply) => unreachable!("{reply:?} for {doing:?}"),
        }
    }

    fn walked(
        &mut self,
        place: usize,
        rest: Vec<Name>,
        result: Result<Reply, Error>,
        log: &mut Log,
        out: &mut Vec<Output>,
    ) {
        match result {
            Ok(Reply::Walked(_, Some(node))) if !rest.is_empty() => {
                self.walk(place, (node, Some(node)), rest, out);
            }
            Ok(Reply::Walked(_, Some(node))) if self.places[place].only.is_some() => {
                out.push(Output::Ask(Ask::Stat { node }));
                self.doing = Some(Activity::Measuring { place, node });
            }
            Ok(Reply::Walked(stats, Some(node))) => {
                let kind = stats.last().map_or(Kind::Directory, |stat| stat.kind);
                if !matches!(kind, Kind::Directory | Kind::File) {
                    out.push(Output::Release(node));
                    return self.fail(place, Error::Unsupported, log, out);
                }
                out.push(Output::Ask(Ask::Open { node, access: Access::READ }));
                self.doing = Some(Activity::Opening { place, node, again: false });
            }
            Ok(_) => self.fail(place, Error::NotFound, log, out),
            Err(error) => self.fail(place, error, log, out),
        }
    }

    fn opened(
        &mut self,
        place: usize,
        node: NodeId,
        open: OpenId,
        stat: &Stat,
        log: &mut Log,
        out: &mut Vec<Output>,
    ) {
        let is_given = self.places[place].origin == Origin::Given;
        if stat.kind != Kind::Directory {
            out.push(Output::Close(open));
            if is_given {
                out.push(Output::Release(node));
                return self.watch_entry(place, out);
            }
            // Its directory, which is watched, will report it.
            return self.found(place, node, stat, log);
        }
        self.found(place, node, stat, log);
        out.push(Output::Ask(Ask::List { open, cookie: 0, bytes_max: LIST, detail: Detail::Name }));
        self.doing = Some(Activity::Listing { place, open });
    }

    /// Sets the node of a place.
    fn found(&mut self, place: usize, node: NodeId, stat: &Stat, log: &mut Log) {
        let key = (stat.device, stat.inode);
        if let Some((_, old)) = self.places[place].found.replace((node, key)) {
            // The first directory of a union may be another one by now.
            self.by_key.remove(&(old, place));
            self.forget(old, log);
        }
        self.by_key.insert((key, place));
        log.add(key, self.number);
    }

    fn is_watching(&mut self, place: usize) {
        let WatchedDirectory { path, origin, .. } = &self.places[place];
        if *origin == Origin::Given {
            self.ready.insert(path.clone());
        }
    }

    fn listed(
        &mut self,
        place: usize,
        open: OpenId,
        entries: Vec<Entry>,
        log: &mut Log,
        out: &mut Vec<Output>,
    ) {
        let (_, (device, _)) = self.places[place].found.expect("it is open");
        let mut next = entries.last().map(|entry| entry.cookie);
        for Entry { name, inode, device: of, kind, .. } in entries {
            if self.places[place].origin == Origin::Created {
                // Reported when it has been looked at.
                self.note_entry(place, name);
                continue;
            }
            if self.children.contains_key(&(place, name.clone())) {
                continue;
            }
            if !self.has_room(name.as_bytes().len(), log) {
                self.refuse(&self.places[place].path_of(&name));
                next = None;
                break;
            }
            let child = Child { key: (of.unwrap_or(device), inode), kind };
            self.enter(place, &name, child, Origin::Listed, log);
            self.add_child(place, name, child, log);
        }
        if let Some(cookie) = next {
            let detail = Detail::Name;
            out.push(Output::Ask(Ask::List { open, cookie, bytes_max: LIST, detail }));
            self.doing = Some(Activity::Listing { place, open });
            return;
        }
        out.push(Output::Close(open));
        self.is_watching(place);
    }

    /// Watches a directory in a directory that is watched with everything beneath it.
    fn enter(&mut self, place: usize, name: &Name, child: Child, origin: Origin, log: &mut Log) {
        let it = &self.places[place];
        let (from, _) = it.found.expect("it was listed");
        if !it.is_deep || child.kind != Kind::Directory {
            return;
        }
        let path = it.path_of(name);
        if !self.has_place(path.len(), log) {
            return self.refuse(&path);
        }
        let below = self.new_place(path, origin, true, log);
        self.entering.insert(below, (from, vec![name.clone()]));
    }

    /// Reports that there is no room for a file: once until the report is read.
    fn refuse(&mut self, path: &[u8]) {
        if !mem::replace(&mut self.is_full, true) {
            line::failed(path, Error::TooManyOpen, &mut self.lines);
        }
    }

    fn add_child(&mut self, place: usize, name: Name, child: Child, log: &mut Log) {
        self.hold(bytes_of(name.as_bytes().len()), log);
        log.add(child.key, self.number);
        self.by_file.insert((child.key, place, name.clone()));
        self.children.insert((place, name), child);
    }

    fn remove_child(&mut self, place: usize, name: &Name, log: &mut Log) -> Option<Child> {
        let child = self.children.remove(&(place, name.clone()))?;
        self.release(bytes_of(name.as_bytes().len()), log);
        self.by_file.remove(&(child.key, place, name.clone()));
        self.forget(child.key, log);
        Some(child)
    }

    /// Ends the interest in a file that it has under no other name.
    fn forget(&mut self, key: FileKey, log: &mut Log) {
        if !self.has(key) {
            self.touched.remove(&key);
            log.remove(key, self.number);
        }
    }

    fn looked(
        &mut self,
        place: usize,
        name: Name,
        since: u64,
        result: Result<Reply, Error>,
        log: &mut Log,
        out: &mut Vec<Output>,
    ) {
        let stat = seen(result, out);
        let old = self.children.get(&(place, name.clone())).copied();
        let new = stat.as_ref().map(Child::of);
        let what = match (old, new) {
            (None, None) => return,
            (Some(old), Some(new)) if old == new => return,
            (None, Some(_)) => "created",
            (Some(_), None) => "removed",
            (Some(_), Some(_)) => "replaced",
        };
        let path = self.places[place].path_of(&name);
        if old.is_some_and(|old| self.touched.get(&old.key).is_some_and(|it| it.is_written)) {
            line::changed("written", &path, None, None, &mut self.lines);
        }
        line::changed(what, &path, new.or(old).as_ref(), stat.as_ref(), &mut self.lines);
        if let Some(old) = old {
            self.remove_child(place, &name, log);
            self.leave(path.clone(), old);
        }
        let Some(child) = new else { return };
        if !self.has_room(name.as_bytes().len(), log) {
            return self.refuse(&path);
        }
        if log.may_have_changed(child.key, since) {
            self.touch(child.key, true);
        }
        self.enter(place, &name, child, Origin::Created, log);
        self.add_child(place, name, child, log);
    }

    /// Ends the watches of a directory that was removed, and of those beneath it, step by step;
    /// those whose path was given stay.
    fn leave(&mut self, path: Vec<u8>, child: Child) {
        if child.kind == Kind::Directory {
            self.leaving.push(Leaving::new(path, self.serial));
        }
    }

    /// Ends at most `left` watches of directories that are gone. Returns whether all have ended.
    fn end_leaving(&mut self, left: &mut usize, log: &mut Log, out: &mut Vec<Output>) -> bool {
        while let Some(mut leaving) = self.leaving.pop() {
            loop {
                if *left == 0 {
                    self.leaving.push(leaving);
                    return false;
                }
                let Some(place) = self.found.next(&mut leaving) else { break };
                *left -= 1;
                if self.places[place].serial < leaving.before {
                    self.drop_place(place, log, out);
                }
            }
        }
        true
    }

    /// Ends the watch of a place. Its children are removed step by step.
    fn drop_place(&mut self, place: usize, log: &mut Log, out: &mut Vec<Output>) {
        self.dirty.remove(&place);
        self.lost.remove(&place);
        self.entering.remove(&place);
        let it = &mut self.places[place];
        it.is_dropped = true;
        let (path, found, origin) = (it.path.clone(), it.found.take(), it.origin);
        let names = mem::take(&mut it.changed);
        self.discard_marks(names);
        match origin {
            Origin::Given => drop(self.given.remove(&path)),
            Origin::Listed | Origin::Created => self.found.remove(path, place),
        }
        if let Some((node, key)) = found {
            self.by_key.remove(&(key, place));
            self.forget(key, log);
            out.push(Output::Release(node));
        }
        self.dropped.push(place);
    }

    /// Reports that a path is not watched. A directory that was removed before it was listed is no
    /// failure.
    fn fail(&mut self, place: usize, error: Error, log: &mut Log, out: &mut Vec<Output>) {
        let WatchedDirectory { path, origin, .. } = &self.places[place];
        if *origin == Origin::Given || error != Error::NotFound {
            line::failed(path, error, &mut self.lines);
        }
        self.drop_place(place, log, out);
    }

    /// Takes what a read gets, at most `most` bytes.
    pub(super) fn take(&mut self, most: usize) -> Vec<u8> {
        while self.lines.len() < LINES_MAX {
            let Some((file, touched)) = self.touched.pop_first() else { break };
            self.report(file, touched);
        }
        self.is_full = false;
        let rest = self.lines.split_off(self.lines.len().min(most));
        let taken = mem::replace(&mut self.lines, rest);
        self.unread = self.unread.saturating_sub(taken.len());
        taken
    }

    /// Reports new contents or attributes of a file, under as many of its names as there is room
    /// for.
    fn report(&mut self, file: FileKey, Touched { is_written, until }: Touched) {
        let what = if is_written { "written" } else { "attributes" };
        if until.is_none() {
            for place in self.places_of(file) {
                let WatchedDirectory { path, only, .. } = &self.places[place];
                if only.is_none() {
                    line::changed(what, path, None, None, &mut self.lines);
                }
            }
        }
        let from = until.map_or(Bound::Included((file, 0, least())), |(place, name)| {
            Bound::Excluded((file, place, name))
        });
        let names = self.by_file.range((from, Bound::Unbounded));
        for (_, place, name) in names.take_while(|(of, ..)| *of == file) {
            let it = &self.places[*place];
            if !it.is_dropped {
                line::changed(what, &it.path_of(name), None, None, &mut self.lines);
            }
            if self.lines.len() >= LINES_MAX {
                let until = Some((*place, name.clone()));
                self.touched.insert(file, Touched { is_written, until });
                return;
            }
        }
    }

    /// Returns the number of directories and their entries.
    fn entries(&self) -> usize {
        self.places.len() + self.children.len()
    }

    /// Returns whether no path was added.
    pub(super) fn has_no_paths(&self) -> bool {
        self.places.is_empty() && self.lines.is_empty()
    }

    /// Returns whether a read would get something.
    pub(super) fn has_lines(&self) -> bool {
        !self.lines.is_empty() || !self.touched.is_empty()
    }

    /// Returns whether it has ended: it waits for no reply, and all entries are removed.
    pub(super) fn has_ended(&self) -> bool {
        self.doing.is_none() && self.outdated.is_empty() && self.places.is_empty()
    }

    /// Ends it: a request in progress is answered first, and entries are removed step by step.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
        self.leaving.clear();
        self.lines = Vec::new();
    }

    pub(super) fn check(&self) {
        assert_eq!(self.children.len(), self.by_file.len(), "children are known by both");
        let dirty = self.places.iter().filter(|(_, it)| !it.changed.is_empty());
        assert!(dirty.map(|(place, _)| place).eq(self.dirty.iter().copied()));
        assert!(self.lost.is_disjoint(&self.dirty), "all entries of a lost directory are listed");
        let marks: usize = self.places.iter().map(|(_, it)| it.changed.len()).sum();
        assert_eq!(marks, self.marks, "marks are counted");
        let places = self.places.iter().map(|(_, it)| PLACE_BYTES + bytes_of(it.path.len()));
        let names = self.children.keys().map(|(_, name)| bytes_of(name.as_bytes().len()));
        assert_eq!(places.chain(names).sum::<usize>(), self.bytes, "memory is counted");
        let dropped = self.places.iter().filter(|(_, it)| it.is_dropped).count();
        assert_eq!(dropped, self.dropped.len(), "places that are dropped are removed");
        for (key, place) in &self.by_key {
            let found = self.places[*place].found;
            assert_eq!(found.map(|(_, key)| key), Some(*key), "places are known by identity");
        }
    }
}
