//! Locks of WebDAV (RFC 4918 §6 and §7), in memory.
//!
//! One table has the locks of all connections; the node passes sessions' [`Request`]s to it. A
//! change registers what it will write before it begins, so no lock is granted on a resource while
//! it is being changed by a client that does not hold the lock, and ends with its response.
//!
//! Locks bind WebDAV clients and other HTTP clients, not those of other protocols. They end with
//! their timeout, or with the server.

#[cfg(test)]
mod tests;

use base::op::ClientKey;
use base::{Caller, Instant, Name};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use wire::dav::LockScope;

/// Maximum number of locks, and of those of one client.
pub const LOCKS_MAX: usize = 4096;
const LOCKS_OF_CLIENT_MAX: usize = 256;

/// Maximum number of names in the path of a lock, and of bytes.
const NAMES_MAX: usize = 64;
const PATH_MAX: usize = 2048;

/// Maximum number of locks of one resource, and of those that are reported for one request.
const LOCKS_OF_RESOURCE_MAX: usize = 16;
const FOUND_MAX: usize = 32;

/// Maximum and default time of a lock.
const TIME_MAX: Duration = Duration::from_secs(3600);
const TIME_DEFAULT: Duration = Duration::from_secs(600);

/// Path of a resource.
pub type Path = Vec<Name>;

/// A request of a session.
#[derive(Debug)]
pub enum Request {
    /// Begin a change, with the tokens that the client has submitted, each for a resource;
    /// [`Reply::Begun`], [`Reply::Refused`] or [`Reply::Busy`] follows.
    Begin(Vec<Target>, Vec<(Arc<Path>, String)>),
    /// The change that has begun with this number has ended. No reply.
    End(u64),
    /// Remove the locks of this path and of all below it: the files are gone. No reply.
    Gone(Path),
    /// Lock a resource; [`Reply::Granted`], [`Reply::Locked`] or [`Reply::Full`] follows.
    Lock(Box<NewLock>),
    /// Refresh the lock with one of these tokens that covers the resource, for this time;
    /// [`Reply::Granted`] or [`Reply::Missing`] follows.
    Refresh(Path, Vec<String>, Option<Duration>),
    /// Remove the lock with this token that covers the resource; [`Reply::Done`] or
    /// [`Reply::Missing`] follows.
    Unlock(Path, String),
    /// Find the locks that cover a resource, or one of its members; [`Reply::Found`] follows.
    Find(Path),
}

/// A reply to a session.
#[derive(Debug)]
pub enum Reply {
    /// The change may begin.
    Begun(Begun),
    /// A lock of others covers the resource of this path, which the change would affect; with
    /// which of the submitted tokens are those of locks that cover their resource.
    Refused(Path, Vec<bool>),
    /// The change would move what another one removes, or the other way round.
    Busy,
    /// The resource of this path is locked, or being changed.
    Locked(Path),
    /// The lock is held.
    Granted(Box<Lock>),
    /// No such lock covers the resource.
    Missing,
    /// There are too many locks, or the path is too long for one.
    Full,
    /// The lock is removed.
    Done,
    /// Locks that cover the resource, and those of its members: the first [`FOUND_MAX`].
    Found(Vec<Lock>),
}

/// A change that has begun.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Begun {
    /// Its number, for [`Request::End`].
    pub number: u64,
    /// Which of the submitted tokens are those of locks that cover their resource.
    pub valid: Vec<bool>,
    /// Whether the members of the directory of the first target are locked by others, so that
    /// none may be added.
    pub is_dir_locked: bool,
}

/// A resource that will be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Path of the resource.
    pub path: Path,
    /// Whether all below it is changed, too.
    pub is_deep: bool,
    /// Whether its entry in its directory is created or removed.
    pub entry: Entry,
}

/// Whether the entry of a changed resource is created or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// It is.
    Changed,
    /// It is removed, after all below it: nothing of that may be moved away meanwhile.
    Removed,
    /// It is moved, with all below it.
    Moved,
    /// It is if there is none yet.
    PerhapsCreated,
    /// It is not.
    Kept,
}

impl Entry {
    fn is_changed(self) -> bool {
        matches!(self, Entry::Changed | Entry::Removed | Entry::Moved)
    }
}

/// A lock to be granted.
#[derive(Clone, Debug)]
pub struct NewLock {
    /// Root of the lock.
    pub path: Path,
    /// Whether it covers all below the root.
    pub is_deep: bool,
    /// Its kind and owner.
    pub scope: LockScope,
    /// Its token, which is like no other.
    pub token: String,
    /// Requested time.
    pub time: Option<Duration>,
    /// User of the client.
    pub caller: Caller,
}

/// A lock.
#[derive(Clone, Debug)]
pub struct Lock {
    /// Root of the lock.
    pub path: Path,
    /// Whether it covers all below the root.
    pub is_deep: bool,
    /// Its kind and owner.
    pub scope: LockScope,
    /// Its token.
    pub token: String,
    /// Its timeout.
    pub until: Instant,
    caller: Caller,
    client: ClientKey,
}

/// All locks.
#[derive(Debug, Default)]
pub struct Locks {
    /// By the path of their root.
    locks: BTreeMap<Path, Vec<Lock>>,
    /// Roots by token.
    by_token: BTreeMap<String, Path>,
    by_client: BTreeMap<ClientKey, usize>,
    /// Changes that have begun.
    changes: BTreeMap<u64, Vec<Target>>,
    next: u64,
    /// No lock ends before this time.
    next_end: Option<Instant>,
}

impl Locks {
    /// Returns the number of locks.
    pub fn len(&self) -> usize {
        self.by_token.len()
    }

    /// Returns the number of changes that have begun and not ended.
    pub fn changes(&self) -> usize {
        self.changes.len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_token.is_empty()
    }

    /// Handles a request of a client's session, made by this user; returns the reply, if there is
    /// one.
    pub fn handle(
        &mut self,
        now: Instant,
        (client, caller): (ClientKey, &Caller),
        request: Request,
    ) -> Option<Reply> {
        self.expire(now);
        Some(match request {
            Request::Begin(targets, tokens) => self.begin(caller, targets, &tokens),
            Request::End(number) => {
                self.changes.remove(&number);
                return None;
            }
            Request::Gone(path) => {
                self.remove_below(&path);
                return None;
            }
            Request::Lock(new) => self.lock(now, client, *new),
            Request::Refresh(path, tokens, time) => self.refresh(now, caller, &path, &tokens, time),
            Request::Unlock(path, token) => match self.find_token(caller, &path, &token) {
                Some(root) => {
                    self.remove(&root, |lock| lock.token == token);
                    Reply::Done
                }
                None => Reply::Missing,
            },
            Request::Find(path) => {
                let members = self.below(&path).filter(|lock| lock.path.len() == path.len() + 1);
                let found = self.covering(&path).chain(members).take(FOUND_MAX);
                Reply::Found(found.cloned().collect())
            }
        })
    }

    /// Removes locks whose time is over.
    fn expire(&mut self, now: Instant) {
        if self.next_end.is_none_or(|end| now < end) {
            return;
        }
        let ended = self.locks.iter().filter(|(_, at)| at.iter().any(|lock| lock.until <= now));
        let ended: Vec<Path> = ended.map(|(path, _)| path.clone()).collect();
        ended.iter().for_each(|path| self.remove(path, |lock| lock.until <= now));
        self.next_end = self.locks.values().flatten().map(|lock| lock.until).min();
    }

    /// Returns the locks that cover a resource.
    fn covering<'a>(&'a self, path: &'a [Name]) -> impl Iterator<Item = &'a Lock> {
        let longest = if self.is_empty() { None } else { Some(path.len().min(NAMES_MAX)) };
        longest.into_iter().flat_map(|longest| 0..=longest).flat_map(move |length| {
            let at = self.locks.get(&path[..length]).into_iter().flatten();
            at.filter(move |lock| lock.is_deep || length == path.len())
        })
    }

    /// Returns the roots below a path, with their locks.
    fn roots_below<'a>(
        &'a self,
        path: &'a [Name],
    ) -> impl Iterator<Item = (&'a Path, &'a Vec<Lock>)> {
        let from = self.locks.range(path.to_vec()..);
        let below = from.take_while(move |(root, _)| root.starts_with(path));
        below.filter(move |(root, _)| root.len() > path.len())
    }

    /// Returns the locks whose roots are below a path.
    fn below<'a>(&'a self, path: &'a [Name]) -> impl Iterator<Item = &'a Lock> {
        self.roots_below(path).flat_map(|(_, at)| at)
    }

    /// Returns the root of the lock with this token that covers a resource.
    fn find_token(&self, caller: &Caller, path: &[Name], token: &str) -> Option<Path> {
        let root = self.by_token.get(token)?;
        let lock = self.locks[root].iter().find(|lock| lock.token == token)?;
        let covers = *root == path || (lock.is_deep && path.starts_with(root));
        (covers && lock.caller == *caller).then(|| root.clone())
    }

    fn begin(
        &mut self,
        caller: &Caller,
        mut targets: Vec<Target>,
        tokens: &[(Arc<Path>, String)],
    ) -> Reply {
        let own: BTreeSet<&str> = tokens.iter().map(|(_, token)| &**token).collect();
        let is_own = |lock: &Lock| lock.caller == *caller && own.contains(&*lock.token);
        let valid = tokens.iter();
        let valid = valid.map(|(path, token)| self.find_token(caller, path, token).is_some());
        let valid = valid.collect();
        let obstacle = targets.iter().find_map(|target| self.obstacle(target, &is_own));
        if let Some(path) = obstacle {
            return Reply::Refused(path, valid);
        }
        let dir = targets.first().and_then(|target| target.path.split_last()).map(|(_, dir)| dir);
        let is_dir_locked = dir.is_some_and(|dir| self.is_locked(dir, &is_own));
        for Target { path, .. } in &mut targets {
            // Enough to tell whether a lock would cover it, its directory, or what is above.
            path.truncate(NAMES_MAX + 2);
            path.shrink_to_fit();
        }
        if targets.iter().any(|target| self.is_removed_or_moved(target)) {
            return Reply::Busy;
        }
        let number = self.next;
        self.next += 1;
        self.changes.insert(number, targets);
        Reply::Begun(Begun { number, valid, is_dir_locked })
    }

    /// Returns whether locks cover a resource, and none of them is one of the client's.
    fn is_locked(&self, path: &[Name], is_own: &dyn Fn(&Lock) -> bool) -> bool {
        let mut covering = self.covering(path).peekable();
        covering.peek().is_some() && !covering.any(is_own)
    }

    /// Returns the path of a resource that is locked by others, among those that a change affects.
    fn obstacle(&self, target: &Target, is_own: &dyn Fn(&Lock) -> bool) -> Option<Path> {
        let Target { path, is_deep, entry } = target;
        if self.is_locked(path, is_own) {
            return Some(path.clone());
        }
        if let Some((_, dir)) = path.split_last()
            && entry.is_changed()
            && self.is_locked(dir, is_own)
        {
            return Some(dir.to_vec());
        }
        // Each locked resource below needs a token of its own.
        let mut roots = self.roots_below(path).filter(|_| *is_deep);
        let locked = roots.find(|(_, at)| !at.iter().any(is_own));
        locked.map(|(root, _)| root.clone())
    }

    /// Returns whether a change in progress removes something of what this one moves, or moves
    /// something of what it removes: a removal would go on in the directories that it has opened.
    fn is_removed_or_moved(&self, target: &Target) -> bool {
        let opposite = match target.entry {
            Entry::Removed => Entry::Moved,
            Entry::Moved => Entry::Removed,
            Entry::Changed | Entry::PerhapsCreated | Entry::Kept => return false,
        };
        let mut others = self.changes.values().flatten().filter(|it| it.entry == opposite);
        others.any(|it| it.path.starts_with(&target.path) || target.path.starts_with(&it.path))
    }

    fn lock(&mut self, now: Instant, client: ClientKey, new: NewLock) -> Reply {
        let NewLock { path, is_deep, scope, token, time, caller } = new;
        let excludes = |lock: &&Lock| scope.is_exclusive || lock.scope.is_exclusive;
        if let Some(lock) = self.covering(&path).find(excludes) {
            return Reply::Locked(lock.path.clone());
        }
        if let Some(lock) = self.below(&path).filter(|_| is_deep).find(excludes) {
            return Reply::Locked(lock.path.clone());
        }
        if let Some(changed) = self.changed(&path, is_deep) {
            return Reply::Locked(changed);
        }
        let own = self.by_client.get(&client).copied().unwrap_or(0);
        let bytes: usize = path.iter().map(|name| name.as_bytes().len() + 1).sum();
        let here = self.locks.get(&path).map_or(0, Vec::len);
        let is_full = own >= LOCKS_OF_CLIENT_MAX || self.len() >= LOCKS_MAX;
        if is_full || here >= LOCKS_OF_RESOURCE_MAX || path.len() > NAMES_MAX || bytes > PATH_MAX {
            return Reply::Full;
        }
        self.by_client.insert(client, own + 1);
        self.by_token.insert(token.clone(), path.clone());
        let until = end(now, time);
        let lock = Lock { path: path.clone(), is_deep, scope, token, until, caller, client };
        self.next_end = Some(self.next_end.map_or(until, |end| end.min(until)));
        self.locks.entry(path).or_default().push(lock.clone());
        Reply::Granted(Box::new(lock))
    }

    /// Returns the path of a resource that is being changed, among those that a lock would cover.
    fn changed(&self, path: &[Name], is_deep: bool) -> Option<Path> {
        let overlaps = |target: &&Target| {
            let below = is_deep && target.path.starts_with(path);
            let above = target.is_deep && path.starts_with(&target.path);
            let entry = target.entry != Entry::Kept
                && target.path.split_last().is_some_and(|(_, dir)| dir == path);
            below || above || entry || target.path == path
        };
        self.changes.values().flatten().find(overlaps).map(|target| target.path.clone())
    }

    fn refresh(
        &mut self,
        now: Instant,
        caller: &Caller,
        path: &[Name],
        tokens: &[String],
        time: Option<Duration>,
    ) -> Reply {
        let found = tokens
            .iter()
            .find_map(|token| self.find_token(caller, path, token).map(|root| (root, token)));
        let Some((root, token)) = found else { return Reply::Missing };
        let at = self.locks.get_mut(&root).expect("it was found");
        let lock = at.iter_mut().find(|lock| lock.token == *token).expect("it was found");
        lock.until = end(now, time);
        Reply::Granted(Box::new(lock.clone()))
    }

    /// Removes the locks of a root for which `is_ended` holds.
    fn remove(&mut self, root: &Path, is_ended: impl Fn(&Lock) -> bool) {
        let Some(at) = self.locks.get_mut(root) else { return };
        for lock in at.extract_if(.., |lock| is_ended(lock)) {
            self.by_token.remove(&lock.token);
            let own = self.by_client.get_mut(&lock.client).expect("it has one");
            *own -= 1;
            if *own == 0 {
                self.by_client.remove(&lock.client);
            }
        }
        if at.is_empty() {
            self.locks.remove(root);
        }
    }

    fn remove_below(&mut self, path: &Path) {
        let from = self.locks.range(path.clone()..);
        let gone = from.take_while(|(root, _)| root.starts_with(path));
        let gone: Vec<Path> = gone.map(|(root, _)| root.clone()).collect();
        gone.iter().for_each(|root| self.remove(root, |_| true));
    }

    /// Panics if it contradicts itself.
    pub fn check(&self) {
        let all = || self.locks.values().flatten();
        assert_eq!(all().count(), self.len(), "locks are known by their tokens");
        assert_eq!(self.by_client.values().sum::<usize>(), self.len(), "and by their clients");
        assert!(self.by_client.values().all(|count| *count > 0), "of those that have some");
        assert!(self.locks.values().all(|at| !at.is_empty()), "no path is without locks");
        for lock in all().filter(|lock| lock.scope.is_exclusive) {
            let others = self.covering(&lock.path).filter(|it| it.token != lock.token);
            assert_eq!(others.count(), 0, "{:?} is exclusive", lock.path);
        }
    }
}

/// Returns the end of a lock.
fn end(now: Instant, time: Option<Duration>) -> Instant {
    let time = time.filter(|time| !time.is_zero());
    now + time.unwrap_or(TIME_DEFAULT).min(TIME_MAX)
}

impl Lock {
    /// Returns its approximate memory, bytes.
    pub fn weight(&self) -> usize {
        let names = self.path.iter().map(|name| name.as_bytes().len() + size_of::<Name>());
        let owner = self.scope.owner.as_ref().map_or(0, String::len);
        size_of::<Lock>() + names.sum::<usize>() + owner + self.token.len()
    }
}

/// Returns the seconds that remain of a lock.
pub fn seconds(lock: &Lock, now: Instant) -> u64 {
    lock.until.since(now).as_secs()
}
