//! Changes of files, as their watchers learn of them.
//!
//! The changes of a request follow from the request itself and its reply, whatever tree performed
//! it ([`Changes`]).

use crate::locks::FileKey;
use crate::request::{Ask, Id, Reply};
use base::{Error, Name};

/// A change of a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// An entry of a directory was created, removed or replaced.
    Entry(FileKey, Name),
    /// The contents of a file.
    Contents(FileKey),
    /// Attributes of a file, other than those that follow from its contents.
    Attributes(FileKey),
    /// A file was renamed or removed by a request that names the file, not its entry.
    Moved(FileKey),
}

/// Changes that a request makes if it succeeds.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    known: [Option<Change>; 3],
    /// Whether the contents of the file of the reply change, too.
    truncates: bool,
}

impl Changes {
    /// Returns the changes of a request, or `None` if it changes nothing. `key` identifies its
    /// nodes and open files, or returns `None` for those that are not watched.
    pub fn of(ask: &Ask, mut key: impl FnMut(Id) -> Option<FileKey>) -> Option<Changes> {
        let mut changes = Changes::default();
        if !ask.changes() {
            return None;
        }
        if let Ask::Write { open, .. } = ask {
            changes.add(key(Id::Open(*open)).map(Change::Contents));
            return Some(changes);
        }
        for (dir, name) in ask.entries().into_iter().flatten() {
            changes.add(key(Id::Node(dir)).map(|dir| Change::Entry(dir, name.clone())));
        }
        changes.add_of_node(ask, &mut key);
        Some(changes)
    }

    /// Adds the change of a file that is given by its node.
    #[allow(clippy::wildcard_enum_match_arm, reason = "most requests give a directory and a name")]
    fn add_of_node(&mut self, ask: &Ask, key: &mut impl FnMut(Id) -> Option<FileKey>) {
        let mut of = |node| key(Id::Node(node));
        let change = match *ask {
            Ask::SetStat { node, ref set, .. } => of(node).map(match set.size {
                Some(_) => Change::Contents,
                None => Change::Attributes,
            }),
            Ask::Open { node, access } if access.truncate => of(node).map(Change::Contents),
            Ask::Link { node, .. } | Ask::SetAttr { node, .. } | Ask::RemoveAttr { node, .. } => {
                of(node).map(Change::Attributes)
            }
            Ask::RenameNode { node, .. } | Ask::RemoveNode { node } => of(node).map(Change::Moved),
            Ask::Create { access, .. } => {
                self.truncates = access.truncate;
                None
            }
            _ => None,
        };
        self.add(change);
    }

    fn add(&mut self, change: Option<Change>) {
        if change.is_some() {
            let free = self.known.iter_mut().find(|it| it.is_none());
            *free.expect("a request makes three changes at most") = change;
        }
    }

    /// Returns the changes after the reply to the request: none if it certainly had no effect.
    pub fn made(self, reply: &Result<Reply, Error>) -> impl Iterator<Item = Change> + use<> {
        let truncated = match reply {
            Ok(Reply::Created(_, _, stat)) if self.truncates => {
                Some(Change::Contents((stat.device, stat.inode)))
            }
            Ok(_) | Err(_) => None,
        };
        let is_made = match reply {
            Ok(Reply::Unexpected(_)) => false,
            Ok(_) => true,
            Err(error) => is_in_doubt(*error),
        };
        self.known.into_iter().flatten().chain(truncated).filter(move |_| is_made)
    }
}

/// Returns whether a request that failed with this error may have changed something.
fn is_in_doubt(error: Error) -> bool {
    match error {
        Error::Cancelled
        | Error::Disconnected
        | Error::TimedOut
        | Error::Io
        | Error::NoSpace
        | Error::QuotaExceeded
        | Error::NoMemory
        | Error::NoDevice => true,
        Error::NotFound
        | Error::Denied
        | Error::NotPermitted
        | Error::Exists
        | Error::NotDirectory
        | Error::IsDirectory
        | Error::NotEmpty
        | Error::NameTooLong
        | Error::Loop
        | Error::CrossDevice
        | Error::FileTooLarge
        | Error::ReadOnly
        | Error::Busy
        | Error::TextBusy
        | Error::TooManyLinks
        | Error::TooManyOpen
        | Error::Invalid
        | Error::NoAttribute
        | Error::AttributeTooLarge
        | Error::Unsupported
        | Error::Stale
        | Error::WouldDeadlock
        | Error::WouldBlock => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{Change, Changes};
    use crate::request::{Ask, Id, NodeId, OpenId, Reply};
    use base::{Access, Buf, Error, Name, SetStat, Stat};

    fn key(id: Id) -> Option<(u64, u64)> {
        match id {
            Id::Node(node) => Some((1, node.0)),
            Id::Open(open) => Some((2, open.0)),
        }
    }

    fn made(ask: &Ask, reply: &Result<Reply, Error>) -> Vec<Change> {
        Changes::of(ask, key).map_or(Vec::new(), |changes| changes.made(reply).collect())
    }

    fn name(name: &str) -> Name {
        Name::new(name.as_bytes()).expect("a plain name")
    }

    #[test]
    fn a_request_changes_the_files_that_it_names() {
        let write = Ask::Write { open: OpenId(7), offset: 0, data: Buf::default() };
        assert_eq!(made(&write, &Ok(Reply::Written(1))), [Change::Contents((2, 7))]);
        let (from, to) = (NodeId(3), NodeId(4));
        let rename = Ask::Rename { from, name: name("a"), to, new_name: name("b"), replace: true };
        let entries = [Change::Entry((1, 3), name("a")), Change::Entry((1, 4), name("b"))];
        assert_eq!(made(&rename, &Ok(Reply::Done)), entries);
        let link = Ask::Link { node: NodeId(9), dir: to, name: name("c") };
        let linked = [Change::Entry((1, 4), name("c")), Change::Attributes((1, 9))];
        assert_eq!(made(&link, &Ok(Reply::Done)), linked);
        let read = Ask::Stat { node: NodeId(9) };
        assert!(made(&read, &Ok(Reply::Done)).is_empty());
        let set = |size| Ask::SetStat {
            node: NodeId(9),
            open: None,
            set: SetStat { size, ..SetStat::default() },
        };
        assert_eq!(made(&set(Some(1)), &Ok(Reply::Done)), [Change::Contents((1, 9))]);
        assert_eq!(made(&set(None), &Ok(Reply::Done)), [Change::Attributes((1, 9))]);
    }

    #[test]
    fn creating_a_file_that_exists_may_truncate_it() {
        let create = |truncate| Ask::Create {
            dir: NodeId(3),
            name: name("a"),
            access: Access { truncate, ..Access::READ },
            exclusive: false,
            mode: 0o644,
            gid: None,
        };
        let stat = Stat { device: 5, inode: 6, ..Stat::default() };
        let reply = Ok(Reply::Created(NodeId(8), OpenId(8), stat));
        let entry = Change::Entry((1, 3), name("a"));
        assert_eq!(made(&create(false), &reply), std::slice::from_ref(&entry));
        assert_eq!(made(&create(true), &reply), [entry, Change::Contents((5, 6))]);
    }

    #[test]
    fn failures_change_something_only_if_they_are_in_doubt() {
        let remove = Ask::Remove { dir: NodeId(3), name: name("a"), directory: None };
        assert!(made(&remove, &Err(Error::NotFound)).is_empty());
        assert!(made(&remove, &Ok(Reply::Unexpected(None))).is_empty());
        assert_eq!(made(&remove, &Err(Error::Cancelled)).len(), 1);
    }
}
