//! Watches of files by their own paths: of the one entry, so that it is reported if the file is
//! replaced or removed.

use super::{Activity, Child, Log, Output, Paths, parse, seen};
use crate::request::{Ask, NodeId, Reply};
use base::{Error, Name, Stat};

impl Paths {
    /// Watches a file by its own path: its entry, to see that it is replaced or removed.
    pub(super) fn watch_entry(&mut self, place: usize, out: &mut Vec<Output>) {
        let it = &mut self.places[place];
        let (mut names, _) = parse(&it.path).expect("it was walked");
        (it.only, it.is_deep) = (names.pop(), false);
        self.walk(place, (self.root, None), names, out);
    }

    /// Begins to watch the only entry of a directory that is watched: with what it is now.
    pub(super) fn watch_only(
        &mut self,
        place: usize,
        node: NodeId,
        stat: &Stat,
        log: &mut Log,
        out: &mut Vec<Output>,
    ) {
        self.found(place, node, stat, log);
        let name = self.places[place].only.clone().expect("there is one");
        out.push(Output::Ask(Ask::Walk { from: node, names: vec![name.clone()] }));
        self.doing = Some(Activity::LookingFirst { place, name });
    }

    /// Begins to report changes of the entry, after the first look at it.
    pub(super) fn begin_entry(
        &mut self,
        place: usize,
        name: Name,
        result: Result<Reply, Error>,
        log: &mut Log,
        out: &mut Vec<Output>,
    ) {
        match seen(result, out) {
            Some(stat) => {
                self.add_child(place, name, Child::of(&stat), log);
                self.is_watching(place);
            }
            None => self.fail(place, Error::NotFound, log, out),
        }
    }
}
