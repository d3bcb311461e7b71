//! Model of the joined tree: the file of each path.
//!
//! It steps name by name and never forgets. Contents of directories are looked up on the simulated
//! disk, which all servers share; mounts and binds are kept here. While a server is in trouble a
//! union may continue without it, so a step may lead to several places: the model returns all of
//! them.

use crate::disk::Disk;
use base::{Error, Kind, Name};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// A file edited by several clients, in the root of a server. Names with its prefix have a single
/// owner.
pub(super) const EDITED: &str = "wedited";

/// Upper bits of the device numbers that the node assigns to other servers' trees.
const REMOTE_DEVICES: u64 = 0xfffe << 48;
/// Inode number of the root of a server's tree.
const ROOT_INODE: u64 = u64::MAX;
/// Maximum number of mount points passed along one path.
const DEPTH_MAX: usize = 256;

/// Identity of a directory that can be a mount point or member: its tree and its inode.
pub(super) type Key = (usize, u64);

/// Source of a tree of the mux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// A directory of the mux's own host.
    OwnEntry,
    /// The tree of a server.
    Server(usize),
    /// The mux's own tree, through the network.
    Again,
    /// The service files: never accessed.
    Hidden,
}

/// A tree of the mux.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tree {
    pub(super) source: Source,
    /// Its root directory on the disk.
    pub(super) root: u64,
    /// Whether it is 9P2000, which cannot move between directories.
    pub(super) plain: bool,
}

/// A file or directory of a tree.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum File {
    /// On the disk.
    Plain(Key),
    /// In the mux's own namespace, with the path to it through the network: the mux's place at each
    /// step, from its root on.
    Again(usize, Vec<Rc<At>>),
}

/// A directory mounted over another.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) file: File,
    pub(super) create: bool,
}

/// A mount point and its members.
#[derive(Clone, Debug)]
pub(super) struct Point {
    from: Key,
    pub(super) members: Vec<Member>,
}

/// A mount point passed, and the member taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Passed {
    point: usize,
    root: Key,
}

/// A place: a file, and the path to it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct At {
    pub(super) file: File,
    passed: Vec<Passed>,
    /// Whether it is the place of the last mount point itself.
    here: bool,
}

/// Position of a new member among the present ones.
pub(super) use node::Order;

/// The whole joined tree.
#[derive(Clone, Debug, Default)]
pub(super) struct Space {
    pub(super) trees: Vec<Tree>,
    points: Vec<Point>,
    by_key: BTreeMap<Key, usize>,
    /// Directories of the initial state, which are never moved.
    pub(super) planted: BTreeSet<u64>,
}

impl File {
    /// Returns its key as a mount point or member; `None` if it can be neither.
    fn key(&self) -> Option<Key> {
        match self {
            File::Plain(key) => Some(*key),
            File::Again(tree, way) => (way.len() == 1).then_some((*tree, ROOT_INODE)),
        }
    }

    fn tree(&self) -> usize {
        match self {
            File::Plain((tree, _)) | File::Again(tree, _) => *tree,
        }
    }

    /// Returns its inode on the disk.
    pub(super) fn inode(&self) -> u64 {
        match self {
            File::Plain((_, inode)) => *inode,
            File::Again(_, way) => way.last().expect("it has a root").file.inode(),
        }
    }

    /// Returns the number of nested requests through the network to reach the file.
    pub(super) fn depth(&self) -> u32 {
        match self {
            File::Plain(_) => 0,
            File::Again(_, way) => 1 + way.last().expect("it has a root").file.depth(),
        }
    }
}

impl At {
    /// Returns the same place through another member of the mount point.
    fn by_member(&self, member: &Member) -> At {
        let mut at = At { file: member.file.clone(), ..self.clone() };
        at.passed.last_mut().expect("it is the place of a point").root =
            member.file.key().expect("members have keys");
        at
    }

    /// Returns whether something is mounted here.
    pub(super) fn is_point(&self) -> bool {
        self.here
    }

    /// Returns a new file in this directory.
    pub(super) fn child(&self, inode: u64) -> At {
        let file = match &self.file {
            File::Plain((tree, _)) => File::Plain((*tree, inode)),
            File::Again(tree, way) => {
                let child = way.last().expect("it has a root").child(inode);
                File::Again(*tree, [&way[..], &[Rc::new(child)]].concat())
            }
        };
        At { file, passed: self.passed.clone(), here: false }
    }
}

impl Space {
    /// Returns whether a directory belongs to the initial state.
    pub(super) fn is_planted(&self, inode: u64) -> bool {
        self.planted.contains(&inode)
    }

    /// Returns the directories on the disk at a place.
    pub(super) fn dirs(&self, at: &At) -> Vec<u64> {
        match (&at.file, self.union(at)) {
            (_, Some(members)) => members.iter().map(|member| member.file.inode()).collect(),
            (File::Plain((_, inode)), None) => vec![*inode],
            (File::Again(_, way), None) => self.dirs(way.last().expect("it has a root")),
        }
    }

    /// Returns the root of the namespace.
    pub(super) fn root(&self) -> At {
        self.enter(File::Plain((0, self.trees[0].root)), Vec::new()).expect("it is the first")
    }

    /// Returns the root of a tree.
    pub(super) fn root_of(&self, tree: usize) -> File {
        match self.trees[tree] {
            Tree { source: Source::Again, .. } => File::Again(tree, vec![Rc::new(self.root())]),
            Tree { root, .. } => File::Plain((tree, root)),
        }
    }

    /// Returns a file, or what is mounted over it. `None` if too many mount points were passed.
    fn enter(&self, file: File, mut passed: Vec<Passed>) -> Option<At> {
        let Some(&point) = file.key().and_then(|key| self.by_key.get(&key)) else {
            return Some(At { file, passed, here: false });
        };
        let file = self.points[point].members[0].file.clone();
        passed.push(Passed { point, root: file.key().expect("members have keys") });
        (passed.len() <= DEPTH_MAX).then_some(At { file, passed, here: true })
    }

    /// Returns the mount point at this place.
    fn point(&self, at: &At) -> Option<&Point> {
        let last = at.passed.last().filter(|_| at.here)?;
        Some(&self.points[last.point])
    }

    /// Returns a place before a member is chosen.
    fn here(&self, at: &At) -> At {
        self.point(at).map_or_else(|| at.clone(), |point| at.by_member(&point.members[0]))
    }

    /// Returns the members of a union here, if there are several.
    pub(super) fn union(&self, at: &At) -> Option<&[Member]> {
        self.point(at).filter(|point| point.members.len() > 1).map(|point| &*point.members)
    }

    /// Joins directories at a place, as bind(1) does.
    pub(super) fn join(&mut self, place: &At, new: Vec<Member>, order: Order) {
        let (key, index) = match place.passed.last().filter(|_| place.here) {
            Some(last) => (self.points[last.point].from, Some(last.point)),
            None => (place.file.key().expect("a directory of a tree"), None),
        };
        let own = Member { file: place.file.clone(), create: false };
        let there = index.map_or(vec![own], |index| self.points[index].members.clone());
        let members = match order {
            Order::Replace => new,
            Order::Before => [new, there].concat(),
            Order::After => [there, new].concat(),
        };
        let point = Point { from: key, members };
        match index {
            Some(index) => self.points[index] = point,
            None => {
                self.by_key.insert(key, self.points.len());
                self.points.push(point);
            }
        }
    }

    /// Returns the members that a bind of this place creates.
    pub(super) fn source(&self, at: &At, create: bool) -> Vec<Member> {
        let own = Member { file: at.file.clone(), create };
        let all = |point: &Point| -> Vec<Member> {
            point.members.iter().map(|member| Member { create, ..member.clone() }).collect()
        };
        self.point(at).map_or(vec![own], all)
    }

    /// Returns the qid path of a file for clients of the mux.
    pub(super) fn number(&self, file: &File) -> u64 {
        let (tree, inode) = match file {
            File::Plain((tree, inode)) if *inode == self.trees[*tree].root => (tree, ROOT_INODE),
            File::Plain((tree, inode)) => (tree, *inode),
            File::Again(tree, way) => {
                let number = self.number(&way.last().expect("it has a root").file);
                let root = self.number(&way[0].file);
                (tree, if number == root { ROOT_INODE } else { number })
            }
        };
        match self.trees[*tree].source {
            // All directories of the host are on the device of the root.
            Source::OwnEntry | Source::Hidden => file.inode(),
            Source::Server(_) | Source::Again => moved(*tree, inode),
        }
    }
}

/// Returns the number of a file of another server, distinct from those of the host.
fn moved(tree: usize, number: u64) -> u64 {
    const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
    let device = REMOTE_DEVICES | tree as u64;
    (number ^ device.wrapping_mul(SPREAD)).wrapping_mul(SPREAD) | 1 << 63
}

/// A walk through the model: its environment, and the servers it touches.
#[derive(Debug)]
pub(super) struct Lookup<'a> {
    pub(super) space: &'a Space,
    pub(super) disk: &'a Disk,
    /// Servers that may be unavailable.
    pub(super) away: &'a BTreeSet<usize>,
    /// Servers that received a request.
    pub(super) touched: BTreeSet<usize>,
}

/// Entries of a directory: for each name the numbers of its file, by member.
pub(super) type Entries = BTreeMap<Name, Vec<u64>>;

impl<'a> Lookup<'a> {
    /// Returns a walk that has touched no server.
    pub(super) fn new(space: &'a Space, disk: &'a Disk, away: &'a BTreeSet<usize>) -> Lookup<'a> {
        Lookup { space, disk, away, touched: BTreeSet::new() }
    }

    /// Adds the servers involved in a request for a file.
    fn servers(&self, file: &File, servers: &mut BTreeSet<usize>) {
        match file {
            File::Plain((tree, _)) => {
                if let Source::Server(server) = self.space.trees[*tree].source {
                    servers.insert(server);
                }
            }
            File::Again(_, way) => {
                let top = way.last().expect("it has a root");
                self.servers(&top.file, servers);
                for member in self.space.union(top).unwrap_or_default() {
                    self.servers(&member.file, servers);
                }
            }
        }
    }

    /// Records the servers involved in a request for the file at a place alone.
    pub(super) fn touch_file(&mut self, at: &At) {
        self.touch(&at.file);
    }

    fn touch(&mut self, file: &File) -> bool {
        let mut servers = BTreeSet::new();
        self.servers(file, &mut servers);
        let away = !servers.is_disjoint(self.away);
        self.touched.append(&mut servers);
        away
    }

    /// Returns whether a server touched so far may be unavailable.
    pub(super) fn is_doubtful(&self) -> bool {
        !self.touched.is_disjoint(self.away)
    }

    /// Records the servers involved in a request for a place and its members.
    pub(super) fn touch_all(&mut self, at: &At) {
        self.touch(&at.file);
        for member in self.space.union(at).unwrap_or_default() {
            self.touch(&member.file);
        }
    }

    fn is_directory(&self, file: &File) -> bool {
        self.disk.inode(file.inode()).is_some_and(|node| node.kind == Kind::Directory)
    }

    /// Returns every possible place of a name.
    pub(super) fn step(&mut self, at: &At, name: &Name) -> Vec<Result<At, Error>> {
        match name.as_bytes() {
            b"." | b".." if !self.is_directory(&at.file) => {
                self.touch(&at.file);
                vec![Err(Error::NotDirectory)]
            }
            // `.` stays here, whichever members are missing.
            b"." => {
                if !at.here {
                    self.touch(&at.file);
                }
                vec![Ok(self.space.here(at))]
            }
            b".." => vec![Ok(self.up(at))],
            _ => self.down(at, name),
        }
    }

    fn above(&self, inode: u64) -> u64 {
        let parent = Name::new(b"..").expect("a name");
        self.disk.next(inode, &parent).expect("it is a directory")
    }

    fn up(&mut self, at: &At) -> At {
        let (mut passed, mut file) = (at.passed.clone(), at.file.clone());
        if at.here {
            let last = passed.pop().expect("it is the place of a point");
            file = File::Plain(self.space.points[last.point].from);
        }
        self.touch(&file);
        let file = match file {
            File::Plain((tree, inode)) if inode == self.space.trees[tree].root => {
                File::Plain((tree, inode))
            }
            File::Plain((tree, inode)) => File::Plain((tree, self.above(inode))),
            File::Again(tree, mut way) => {
                way.truncate((way.len() - 1).max(1));
                File::Again(tree, way)
            }
        };
        let here = passed.last().is_some_and(|last| Some(last.root) == file.key());
        At { file, passed, here }
    }

    fn down(&mut self, at: &At, name: &Name) -> Vec<Result<At, Error>> {
        let Some(members) = self.space.union(at) else {
            return self.child(&at.file, name, &at.passed);
        };
        let mut found = Vec::new();
        let mut failed = Error::NotFound;
        for member in members {
            let away = self.touch(&member.file);
            let passed = at.by_member(member).passed;
            let children = self.child(&member.file, name, &passed);
            let sure = !away && children.iter().all(Result::is_ok);
            let error = children.iter().find_map(|child| child.as_ref().err());
            if let Some(error) = error.filter(|error| **error != Error::NotFound) {
                failed = *error;
            }
            found.extend(children.into_iter().filter(Result::is_ok));
            if sure {
                return found;
            }
        }
        found.push(Err(failed));
        found
    }

    fn child(&mut self, file: &File, name: &Name, passed: &[Passed]) -> Vec<Result<At, Error>> {
        self.touch(file);
        if !self.is_directory(file) {
            return vec![Err(Error::NotDirectory)];
        }
        let files = match file {
            File::Plain((tree, inode)) => {
                let child = self.disk.lookup(*inode, name.as_bytes());
                vec![child.map(|child| File::Plain((*tree, child))).ok_or(Error::NotFound)]
            }
            File::Again(tree, way) => {
                let top = Rc::clone(way.last().expect("it has a root"));
                let longer = |at: At| File::Again(*tree, [&way[..], &[Rc::new(at)]].concat());
                self.step(&top, name).into_iter().map(|at| at.map(longer)).collect()
            }
        };
        let enter = |file: File| self.space.enter(file, passed.to_vec()).ok_or(Error::Loop);
        files.into_iter().map(|file| file.and_then(enter)).collect()
    }

    /// Returns the places where a walk to this place may arrive: the first available member.
    pub(super) fn arrivals(&mut self, at: At) -> Vec<At> {
        let at = match at.file {
            File::Again(tree, way) if !at.here => return self.arrivals_again(tree, way, at.passed),
            _ => at,
        };
        let Some(members) = self.space.union(&at) else {
            self.touch(&at.file);
            return vec![at];
        };
        let mut arrivals = Vec::new();
        for member in members {
            arrivals.push(at.by_member(member));
            if !self.touch(&member.file) {
                break;
            }
        }
        arrivals
    }

    fn arrivals_again(&mut self, tree: usize, way: Vec<Rc<At>>, passed: Vec<Passed>) -> Vec<At> {
        let (top, before) = way.split_last().expect("it has a root");
        let arrivals = self.arrivals((**top).clone());
        let file = |top: At| File::Again(tree, [before, &[Rc::new(top)]].concat());
        let at = |top| At { file: file(top), passed: passed.clone(), here: false };
        arrivals.into_iter().map(at).collect()
    }

    /// Returns the listing of a place: each name with the possible numbers of its file.
    pub(super) fn entries(&mut self, at: &At) -> Entries {
        self.merged(at, false)
    }

    /// Returns the listing with all numbers of names in directories reachable through several
    /// trees: a file may be created between two of a listing's reads.
    pub(super) fn entries_of_all(&mut self, at: &At) -> Entries {
        self.merged(at, true)
    }

    fn merged(&mut self, at: &At, of_all: bool) -> Entries {
        let mut all = Entries::new();
        let files: Vec<File> = match self.space.union(at) {
            Some(members) => members.iter().map(|member| member.file.clone()).collect(),
            None => vec![at.file.clone()],
        };
        let mut doubtful = false;
        for (index, file) in files.iter().enumerate() {
            let away = self.touch(file);
            let again = files[..index].iter().any(|other| other.inode() == file.inode());
            for (name, number) in self.entries_in(file, of_all) {
                let numbers = all.entry(name).or_default();
                if numbers.is_empty() || doubtful || (of_all && again) {
                    numbers.extend(number);
                }
            }
            doubtful |= away;
        }
        all
    }

    fn entries_in(&mut self, file: &File, of_all: bool) -> Vec<(Name, Vec<u64>)> {
        match file {
            File::Plain((tree, inode)) => {
                let entries = self.disk.inode(*inode).map(|node| &node.entries);
                let entries = entries.into_iter().flatten();
                let number = |inode| vec![self.space.number(&File::Plain((*tree, inode)))];
                entries.map(|(name, place)| (name.clone(), number(place.inode))).collect()
            }
            File::Again(tree, way) => {
                let top = Rc::clone(way.last().expect("it has a root"));
                let all =
                    |numbers: Vec<u64>| numbers.into_iter().map(|it| moved(*tree, it)).collect();
                let entries = self.merged(&top, of_all).into_iter();
                entries.map(|(name, numbers)| (name, all(numbers))).collect()
            }
        }
    }

    /// Returns the directories that may take a new entry here, in order.
    pub(super) fn takers(&mut self, at: &At) -> Result<Vec<At>, Error> {
        self.touch_all(at);
        let Some(members) = self.space.union(at) else { return self.takers_in(at.clone()) };
        let mut dirs = Vec::new();
        for member in members.iter().filter(|member| member.create) {
            dirs.extend(self.takers_in(at.by_member(member))?);
        }
        if dirs.is_empty() { Err(Error::NotPermitted) } else { Ok(dirs) }
    }

    fn takers_in(&mut self, dir: At) -> Result<Vec<At>, Error> {
        self.touch(&dir.file);
        let File::Again(tree, way) = &dir.file else { return Ok(vec![dir]) };
        let (top, before) = way.split_last().expect("it has a root");
        let file = |top| File::Again(*tree, [before, &[Rc::new(top)]].concat());
        let inner = self.takers(top)?.into_iter();
        Ok(inner.map(|top| At { file: file(top), ..dir.clone() }).collect())
    }

    /// Returns the possible target directories of a rename on the disk, or its errors.
    pub(super) fn rename(&mut self, from: &At, name: &Name, to: &At) -> Vec<Result<u64, Error>> {
        self.touch_all(from);
        self.touch_all(to);
        let has = |file: &File| self.disk.lookup(file.inode(), name.as_bytes()).is_some();
        let (found, by_union) = match self.space.union(from) {
            None => (&from.file, false),
            Some(members) => {
                let mut files = members.iter().map(|member| &member.file);
                let Some(found) = files.find(|file| has(file)) else {
                    return vec![Err(Error::NotFound)];
                };
                (found, true)
            }
        };
        let dests = match self.space.union(to) {
            None => vec![Some(to.file.clone())],
            Some(members) => {
                let same = |member: &&Member| member.file.key() == found.key();
                let stays = members.iter().find(same);
                let taker = members.iter().find(|member| member.create);
                // It stays in its directory within a union; a directory reached directly may not be
                // recognised as a member.
                let dests = match by_union {
                    true => vec![stays.or(taker)],
                    false => stays.map(Some).into_iter().chain([taker]).collect(),
                };
                dests.into_iter().map(|dest| dest.map(|member| member.file.clone())).collect()
            }
        };
        let found = found.clone();
        let go = |dest: Option<File>| self.rename_into(&found, name, dest);
        dests.into_iter().flat_map(go).collect()
    }

    fn rename_into(
        &mut self,
        found: &File,
        name: &Name,
        dest: Option<File>,
    ) -> Vec<Result<u64, Error>> {
        let Some(dest) = dest else { return vec![Err(Error::NotPermitted)] };
        match (found, &dest) {
            (one, other) if one.tree() != other.tree() => vec![Err(Error::CrossDevice)],
            (File::Again(_, one), File::Again(_, other)) => {
                let tops = [one, other].map(|way| Rc::clone(way.last().expect("it has a root")));
                self.rename(&tops[0], name, &tops[1])
            }
            (one, other) if self.space.trees[one.tree()].plain && one != other => {
                vec![Err(Error::CrossDevice)]
            }
            _ => vec![Ok(dest.inode())],
        }
    }
}
