//! Procedures that remove, rename and link entries of directories.

use super::call::{Context, Next, Procedure, optional};
use base::{Error, Name, Stat};
use tree::{Ask, Reply};
use wire::nfs::{After, Handle, Results, Wcc};

/// REMOVE, RMDIR, RENAME or LINK: a change of entries, then attributes of what has changed.
#[derive(Debug)]
pub(super) struct Change {
    handles: [Option<Handle>; 2],
    what: Changed,
    state: State,
}

/// The change.
#[derive(Debug)]
enum Changed {
    /// Of this name; whether of a directory.
    Remove(Name, bool),
    /// Of this name, to this one.
    Rename(Name, Name),
    /// To this name.
    Link(Name),
}

/// State of the change.
#[derive(Debug)]
enum State {
    /// Waiting for the change.
    Change,
    /// Waiting for the durability of the change.
    Sync,
    /// Waiting for the attributes of the file of the first handle.
    First,
    /// Waiting for those of the second; those of the first.
    Second(Option<Stat>),
}

impl Change {
    pub(super) fn remove(dir: Handle, name: Name, directory: bool) -> Change {
        let what = Changed::Remove(name, directory);
        Change { handles: [Some(dir), None], what, state: State::Change }
    }

    pub(super) fn rename((from, name): (Handle, Name), (to, new): (Handle, Name)) -> Change {
        // The first one is synced: the directory of the new name.
        let what = Changed::Rename(name, new);
        Change { handles: [Some(to), Some(from)], what, state: State::Change }
    }

    pub(super) fn link(file: Handle, (dir, name): (Handle, Name)) -> Change {
        let what = Changed::Link(name);
        Change { handles: [Some(dir), Some(file)], what, state: State::Change }
    }

    /// Records the change of the places where files are found.
    fn note(&self, context: &mut Context<'_>) {
        let place = |index: usize, name: &Name| {
            (self.handles[index].expect("the directory's"), name.clone())
        };
        match &self.what {
            Changed::Remove(name, _) => context.files.remove(&place(0, name), context.out),
            Changed::Rename(name, new) => {
                context.files.rename(&place(1, name), place(0, new), context.out);
            }
            Changed::Link(_) => {}
        }
    }

    fn results(&self, first: Option<&Stat>, second: Option<&Stat>, context: &mut Context<'_>) {
        let attributes = second.and_then(|stat| context.attributes(stat));
        let (first, second) = (context.changed(first), context.changed(second));
        let results = match &self.what {
            Changed::Remove(_, false) => Results::Remove { dir: first },
            Changed::Remove(_, true) => Results::RmDir { dir: first },
            Changed::Rename(..) => Results::Rename { from_dir: second, to_dir: first },
            Changed::Link(_) => Results::Link { file: attributes, dir: first },
        };
        results.put(context.body);
    }
}

impl Procedure for Change {
    fn handles(&self) -> [Option<Handle>; 2] {
        self.handles
    }

    fn is_change(&self) -> bool {
        true
    }

    fn start(&mut self, context: &mut Context<'_>) -> Next {
        let first = context.node();
        Next::Ask(match &self.what {
            Changed::Remove(name, directory) => {
                Ask::Remove { dir: first, name: name.clone(), directory: Some(*directory) }
            }
            Changed::Rename(name, new_name) => Ask::Rename {
                from: context.node_of(1),
                name: name.clone(),
                to: first,
                new_name: new_name.clone(),
                replace: true,
            },
            Changed::Link(name) => {
                Ask::Link { node: context.node_of(1), dir: first, name: name.clone() }
            }
        })
    }

    fn answered(&mut self, reply: Result<Reply, Error>, context: &mut Context<'_>) -> Next {
        match std::mem::replace(&mut self.state, State::First) {
            State::Change => {
                if let Err(error) = reply {
                    return Next::Fail(error);
                }
                self.note(context);
                match context.sync {
                    Some(open) => {
                        self.state = State::Sync;
                        Next::Ask(Ask::Sync { open, data_only: false })
                    }
                    None => Next::Ask(Ask::Stat { node: context.node() }),
                }
            }
            State::Sync => match reply {
                Ok(_) => Next::Ask(Ask::Stat { node: context.node() }),
                Err(error) => Next::Fail(error),
            },
            State::First if self.handles[1].is_some() => {
                self.state = State::Second(optional(reply));
                Next::Ask(Ask::Stat { node: context.node_of(1) })
            }
            State::First => {
                self.results(optional(reply).as_ref(), None, context);
                Next::Reply
            }
            State::Second(first) => {
                self.results(first.as_ref(), optional(reply).as_ref(), context);
                Next::Reply
            }
        }
    }

    fn failure(&self) -> After {
        match self.what {
            Changed::Remove(..) => After::Changed(Wcc::NONE),
            Changed::Rename(..) => After::Renamed(Wcc::NONE, Wcc::NONE),
            Changed::Link(_) => After::Linked(None, Wcc::NONE),
        }
    }
}
