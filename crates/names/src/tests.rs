mod cancel;
mod fake;
mod file_handles;
mod hidden;
mod model;
mod replay;
mod unions;

use super::*;
use base::op::Detail;
use fake::Fake;
use std::collections::VecDeque;

/// A mux with trees that reply at once.
struct Lab {
    names: Names,
    fakes: Vec<Fake>,
    replies: Vec<(RequestId, Result<Reply, Error>)>,
    changed: Vec<(RequestId, Result<(), Error>)>,
    /// Whether trees reply later; the requests to them until then.
    slow: bool,
    wanted: VecDeque<(u16, TreeInput)>,
    /// Number of mounts of each tree, minus the times it was left.
    mounts: BTreeMap<u16, usize>,
    next: u64,
}

fn path(text: &str) -> Vec<Name> {
    script::path(text).unwrap()
}

fn parts(text: &str) -> Vec<Name> {
    text.split('/')
        .filter(|part| !part.is_empty())
        .map(|p| Name::new(p.as_bytes()).unwrap())
        .collect()
}

impl Lab {
    /// Returns a mux over trees with these files; the first is at the root.
    fn new(trees: &[&[&str]]) -> Lab {
        let fake = |(index, files): (usize, &&[&str])| Fake::new(index as u16, files);
        let fakes: Vec<Fake> = trees.iter().enumerate().map(fake).collect();
        let names = Names::new(fakes[0].root(), fakes[0].root_stat(), Vec::new(), 0);
        Lab {
            names,
            fakes,
            replies: Vec::new(),
            changed: Vec::new(),
            slow: false,
            wanted: VecDeque::new(),
            mounts: BTreeMap::new(),
            next: 0,
        }
    }

    fn step(&mut self, input: Input) {
        let mut out = Vec::new();
        self.names.step(Instant(0), input, &mut out);
        self.names.table.check();
        let mut line: std::collections::VecDeque<Output> = out.into();
        while let Some(output) = line.pop_front() {
            match output {
                Output::Reply(id, reply) => self.replies.push((id, reply)),
                Output::Changed(id, result) => self.changed.push((id, result)),
                Output::Left(tree) => *self.mounts.get_mut(&tree).unwrap() -= 1,
                Output::Tell(tree, input @ TreeInput::Ask(..)) if self.slow => {
                    // Trees pin the objects of a request on its arrival.
                    self.fakes[usize::from(tree)].expect_held(&input);
                    self.wanted.push_back((tree, input));
                }
                Output::Tell(tree, input) => {
                    self.expect_mounted(tree, &input);
                    let Some((id, reply)) = self.fakes[usize::from(tree)].take(input) else {
                        continue;
                    };
                    let mut more = Vec::new();
                    self.names.step(Instant(0), Input::Answered(id, reply), &mut more);
                    line.extend(more);
                }
            }
        }
        self.names.check();
    }

    /// Checks that no request uses or releases the root of a tree that was left.
    fn expect_mounted(&self, tree: u16, input: &TreeInput) {
        let root = self.fakes[usize::from(tree)].root();
        // The first is never mounted.
        if tree == 0 || self.mounts.get(&tree) != Some(&0) {
            return;
        }
        match input {
            TreeInput::Ask(_, request) => {
                let ids = request.ask.ids();
                assert!(!ids.contains(&Some(Id::Node(root))), "{request:?}");
            }
            TreeInput::Release(node) => assert_ne!(*node, root),
            other => assert!(matches!(other, TreeInput::Cancel(_) | TreeInput::Close(_))),
        }
    }

    fn ask(&mut self, ask: Ask) -> Result<Reply, Error> {
        self.next += 1;
        let id = RequestId(self.next);
        self.step(Input::Ask(id, Request { caller: Caller::Server, ask }));
        assert_eq!(self.replies.len(), 1, "each request has one answer");
        let (answered, reply) = self.replies.pop().unwrap();
        assert_eq!(answered, id);
        reply
    }

    /// Starts a request to trees that reply later.
    fn begin(&mut self, ask: Ask) -> RequestId {
        self.slow = true;
        self.next += 1;
        let id = RequestId(self.next);
        self.step(Input::Ask(id, Request { caller: Caller::Server, ask }));
        id
    }

    /// Delivers the reply of the tree that received the oldest request.
    fn answer_one(&mut self) {
        let (tree, input) = self.wanted.pop_front().expect("a request was sent");
        let (id, reply) = self.fakes[usize::from(tree)].take(input).expect("an answer");
        self.step(Input::Answered(id, reply));
    }

    fn requested(&mut self, requested: NamespaceChange) -> Result<(), Error> {
        self.next += 1;
        let id = RequestId(self.next | 1 << 63);
        let tree = match &requested {
            NamespaceChange::Join { what: Source::Tree(root, _), .. } => Some(root.tree()),
            NamespaceChange::Join { .. } | NamespaceChange::Part { .. } => None,
        };
        tree.into_iter().for_each(|tree| *self.mounts.entry(tree).or_insert(0) += 1);
        self.step(Input::Change(id, requested));
        let (changed, result) = self.changed.pop().unwrap();
        assert!(changed == id && self.changed.is_empty());
        if result.is_err() {
            tree.into_iter().for_each(|tree| *self.mounts.get_mut(&tree).unwrap() -= 1);
        }
        result
    }

    fn mount(&mut self, at: &str, tree: usize, order: Order) -> Result<(), Error> {
        let fake = &self.fakes[tree];
        let what = Source::Tree(fake.root(), fake.root_stat());
        let source_text = format!("tree {tree}").into();
        let result = self.requested(NamespaceChange::Join {
            at: path(at),
            what,
            order,
            create: tree % 2 == 1,
            source_text,
        });
        if result.is_err() {
            // The caller releases the root; the mux has released everything else.
            assert!(self.fakes[tree].is_free(), "{:?}", self.fakes[tree].held());
        }
        result
    }

    fn bind(&mut self, new: &str, old: &str, order: Order) -> Result<(), Error> {
        let (what, source_text) = (Source::Path(path(new)), format!("bind {new}").into());
        self.requested(NamespaceChange::Join {
            at: path(old),
            what,
            order,
            create: false,
            source_text,
        })
    }

    fn part(&mut self, at: &str) -> Result<(), Error> {
        self.requested(NamespaceChange::Part { at: path(at), source_text: None })
    }

    fn walk(&mut self, from: NodeId, names: &[Name]) -> Result<(Vec<Stat>, Option<NodeId>), Error> {
        match self.ask(Ask::Walk { from, names: names.to_vec() })? {
            Reply::Walked(stats, node) => Ok((stats, node)),
            other => panic!("{other:?}"),
        }
    }

    /// Like [`Lab::at`], with trees that reply at once again.
    fn at_once(&mut self, text: &str) -> Result<String, Error> {
        self.slow = false;
        self.at(text)
    }

    /// Returns the file that a path leads to, as `tree:inode`.
    fn at(&mut self, text: &str) -> Result<String, Error> {
        let (stats, node) = self.walk(self.names.root(), &parts(text))?;
        let node = node.ok_or(Error::NotFound)?;
        self.step(Input::Release(node));
        Ok(stats.last().map_or_else(String::new, |stat| self.shown(stat)))
    }

    /// Returns the path of a file in its tree.
    fn shown(&self, stat: &Stat) -> String {
        let fake = &self.fakes[stat.device as usize];
        format!("{}:{}", stat.device, fake.path(stat.inode as usize))
    }

    fn list(&mut self, text: &str) -> Result<String, Error> {
        let (_, node) = self.walk(self.names.root(), &parts(text))?;
        let node = node.ok_or(Error::NotFound)?;
        let access = base::Access { read: true, ..base::Access::default() };
        let opened = self.ask(Ask::Open { node, access });
        self.step(Input::Release(node));
        let Reply::Opened(open, _) = opened? else { panic!("it is opened") };
        let (mut cookie, mut all) = (0, Vec::new());
        loop {
            let ask = Ask::List { open, cookie, bytes_max: 60, detail: Detail::Name };
            let Reply::Entries(entries) = self.ask(ask)? else { panic!("entries") };
            let Some(last) = entries.last() else { break };
            cookie = last.cookie;
            all.extend(entries.iter().map(|entry| entry.name.to_string()));
        }
        self.step(Input::Close(open));
        Ok(all.join(" "))
    }

    /// Checks that nothing is held but for mount points.
    fn check_held(&self) {
        assert_eq!(self.names.counts(), (0, 0));
        let mounted = self.names.table.mounted();
        for (tree, count) in &self.mounts {
            let here = mounted.iter().filter(|number| *number == tree).count();
            assert_eq!(*count, here, "tree {tree} is mounted so often");
        }
        let needed: Vec<NodeId> = self.names.table.held();
        for fake in &self.fakes {
            let mut needed: Vec<NodeId> =
                needed.iter().copied().filter(|node| node.tree() == fake.index).collect();
            needed.sort();
            assert_eq!(fake.held(), needed, "tree {}", fake.index);
        }
    }
}

#[test]
fn a_mount_replaces_its_directory() {
    let mut lab = Lab::new(&[&["a/b/old", "c"], &["x/y", "b"]]);
    lab.mount("/a/b", 1, Order::Replace).unwrap();
    assert_eq!(lab.at("a/b/x/y").unwrap(), "1:/x/y");
    assert_eq!(lab.at("a/b/old"), Err(Error::NotFound));
    assert_eq!(lab.at("a/b").unwrap(), "1:/");
    assert_eq!(lab.at("a/b/..").unwrap(), "0:/a");
    assert_eq!(lab.at("a/b/x/../../../c").unwrap(), "0:/c");
    assert_eq!(lab.list("a/b").unwrap(), "b x");
    lab.check_held();
    lab.part("/a/b").unwrap();
    assert_eq!(lab.at("a/b/old").unwrap(), "0:/a/b/old");
    assert_eq!(lab.part("/a/b"), Err(Error::NotFound));
    lab.check_held();
    assert!(lab.fakes.iter().all(Fake::is_free));
}

#[test]
fn mounts_stand_on_mounts() {
    let mut lab = Lab::new(&[&["a/"], &["b/"], &["c/"], &["d"]]);
    lab.mount("/a", 1, Order::Replace).unwrap();
    lab.mount("/a/b", 2, Order::Replace).unwrap();
    lab.mount("/a/b/c", 3, Order::Replace).unwrap();
    assert_eq!(lab.at("a/b/c/d").unwrap(), "3:/d");
    assert_eq!(lab.at("a/b/c/..").unwrap(), "2:/");
    assert_eq!(lab.at("a/b/c/../..").unwrap(), "1:/");
    assert_eq!(lab.at("a/b/c/../../..").unwrap(), "0:/");
    assert_eq!(lab.at("a/b/c/../../../..").unwrap(), "0:/");
    lab.check_held();
}

#[test]
fn a_tree_can_stand_in_the_place_of_the_root() {
    let mut lab = Lab::new(&[&["a"], &["b", "dir/e"]]);
    lab.mount("/", 1, Order::Replace).unwrap();
    assert_eq!(lab.at("b").unwrap(), "1:/b");
    assert_eq!(lab.at("a"), Err(Error::NotFound));
    assert_eq!(lab.at("dir/../..").unwrap(), "1:/");
    assert_eq!(lab.at("dir/../../b").unwrap(), "1:/b");
    assert_eq!(lab.list("").unwrap(), "b dir");
    lab.part("/").unwrap();
    assert_eq!(lab.at("a").unwrap(), "0:/a");
    lab.check_held();
}

#[test]
fn a_hidden_root_entry_stays_reachable_under_any_mount() {
    let mut lab = Lab::new(&[&["a"], &["b"], &["state"]]);
    let name = Name::new(b".upcall").unwrap();
    let (at, root) = (lab.fakes[0].root(), lab.fakes[2].root());
    lab.names.hide(Mount { at, name, root });
    assert_eq!(lab.at(".upcall/state").unwrap(), "2:/state");
    lab.mount("/", 1, Order::Replace).unwrap();
    assert_eq!(lab.at("b").unwrap(), "1:/b");
    assert_eq!(lab.at(".upcall/state").unwrap(), "2:/state");
    assert_eq!(lab.at(".upcall/../b").unwrap(), "1:/b");
    lab.check_held();
}

#[test]
fn hidden_entries_of_a_member_resolve_dot_dot_in_a_union() {
    let mut lab = Lab::new(&[&["x/own", "y/"], &["b"], &["state"]]);
    let name = Name::new(b".snapshots").unwrap();
    let (at, root) = (lab.fakes[1].root(), lab.fakes[2].root());
    lab.names.hide(Mount { at, name: name.clone(), root });
    lab.mount("/x", 1, Order::After).unwrap();
    lab.bind("/x", "/y", Order::Replace).unwrap();
    for position in ["x", "y"] {
        assert_eq!(lab.at(&format!("{position}/.snapshots/state")).unwrap(), "2:/state");
        assert_eq!(lab.at(&format!("{position}/.snapshots/../b")).unwrap(), "1:/b");
        assert_eq!(lab.at(&format!("{position}/.snapshots/../../x/own")).unwrap(), "0:/x/own");
        assert_eq!(lab.list(position).unwrap(), "own b");
    }
    let (_, dir) = lab.walk(lab.names.root(), &parts("x")).unwrap();
    let dir = dir.unwrap();
    let error = lab.ask(Ask::Remove { dir, name, directory: None }).unwrap_err();
    assert_eq!(error, Error::Busy);
    lab.step(Input::Release(dir));
    lab.names.unhide(2);
    assert_eq!(lab.at("x/.snapshots/state").unwrap_err(), Error::NotFound);
    lab.check_held();
}

#[test]
fn the_same_directory_in_two_places_knows_the_way_back_from_each() {
    let mut lab = Lab::new(&[&["p/", "q/", "src/deep/file"]]);
    lab.bind("/src", "/p", Order::Replace).unwrap();
    lab.bind("/src/deep", "/q", Order::Replace).unwrap();
    assert_eq!(lab.at("p/deep/file/").unwrap(), "0:/src/deep/file");
    assert_eq!(lab.at("p/deep/../..").unwrap(), "0:/");
    assert_eq!(lab.at("q/file").unwrap(), "0:/src/deep/file");
    assert_eq!(lab.at("q/..").unwrap(), "0:/");
    assert_eq!(lab.at("src/deep/..").unwrap(), "0:/src");
    lab.check_held();
}

#[test]
fn nothing_is_taken_away_from_below_what_stands_on_it() {
    let mut lab = Lab::new(&[&["x/", "y/"], &["sub/"], &["file"]]);
    lab.mount("/x", 1, Order::Replace).unwrap();
    lab.mount("/x/sub", 2, Order::Replace).unwrap();
    assert_eq!(lab.part("/x").unwrap_err(), Error::Busy);
    assert_eq!(lab.bind("/y", "/x", Order::Replace).unwrap_err(), Error::Busy);
    assert_eq!(lab.at("x/sub/file").unwrap(), "2:/file");
    // There is another path to it.
    lab.bind("/x", "/y", Order::Replace).unwrap();
    lab.part("/x").unwrap();
    assert_eq!(lab.at("y/sub/file").unwrap(), "2:/file");
    assert_eq!(lab.part("/y").unwrap_err(), Error::Busy);
    lab.part("/y/sub").unwrap();
    lab.part("/y").unwrap();
    assert!(lab.mounts.values().all(|mounts| *mounts == 0), "{:?}", lab.mounts);
    lab.check_held();
}

#[test]
fn a_union_has_an_end() {
    let mut lab = Lab::new(&[&["x/a", "y/"]]);
    lab.bind("/x", "/y", Order::After).unwrap();
    let error = (0..30).find_map(|_| lab.bind("/y", "/y", Order::After).err());
    assert_eq!(error, Some(Error::TooManyLinks));
    assert_eq!(lab.list("y").unwrap(), "a");
    lab.part("/y").unwrap();
    lab.check_held();
}

#[test]
fn a_tree_whose_last_user_was_a_request_is_let_go_of() {
    let mut lab = Lab::new(&[&["x/"], &["file"]]);
    lab.mount("/x", 1, Order::Replace).unwrap();
    let root = lab.names.root();
    lab.begin(Ask::Walk { from: root, names: parts("x/nothing") });
    lab.answer_one();
    let part = NamespaceChange::Part { at: path("/x"), source_text: None };
    lab.next += 1;
    lab.step(Input::Change(RequestId(lab.next), part));
    // The change is made first.
    lab.wanted.rotate_left(1);
    while !lab.wanted.is_empty() {
        lab.answer_one();
    }
    assert_eq!((lab.changed.len(), lab.replies.len()), (1, 1));
    assert_eq!(lab.mounts.get(&1), Some(&0), "{:?}", lab.names);
}

#[test]
fn a_bind_into_its_own_inside_ends() {
    let mut lab = Lab::new(&[&["a/b/"]]);
    lab.bind("/a", "/a/b", Order::Replace).unwrap();
    let deep = "b/".repeat(15);
    assert_eq!(lab.at(&format!("a/{deep}")).unwrap(), "0:/a");
    assert_eq!(lab.at(&format!("a/{deep}{}", "../".repeat(14))).unwrap(), "0:/a");
    let mut node = lab.walk(lab.names.root(), &parts("a")).unwrap().1.unwrap();
    let error = loop {
        let walked = lab.walk(node, &parts("b"));
        lab.step(Input::Release(node));
        match walked {
            Ok((_, next)) => node = next.expect("one name is found or not"),
            Err(error) => break error,
        }
    };
    assert_eq!(error, Error::Loop);
    lab.check_held();
}

#[test]
fn a_position_below_an_unmounted_tree_stays_valid() {
    let mut lab = Lab::new(&[&["a/"], &["x/y"]]);
    lab.mount("/a", 1, Order::Replace).unwrap();
    let (_, node) = lab.walk(lab.names.root(), &parts("a/x")).unwrap();
    let node = node.unwrap();
    lab.part("/a").unwrap();
    let (stats, inner) = lab.walk(node, &parts("y")).unwrap();
    assert_eq!(lab.shown(&stats[0]), "1:/x/y");
    lab.step(Input::Release(inner.unwrap()));
    let (stats, above) = lab.walk(node, &parts("../..")).unwrap();
    assert_eq!(lab.shown(&stats[1]), "0:/");
    lab.step(Input::Release(above.unwrap()));
    lab.step(Input::Release(node));
    assert!(lab.fakes.iter().all(Fake::is_free));
}

#[test]
fn places_of_points_can_be_neither_removed_nor_replaced() {
    let mut lab = Lab::new(&[&["a/b/", "a/c"], &["x"]]);
    lab.mount("/a/b", 1, Order::Replace).unwrap();
    let (_, dir) = lab.walk(lab.names.root(), &parts("a")).unwrap();
    let dir = dir.unwrap();
    let name = |text: &str| Name::new(text.as_bytes()).unwrap();
    let remove = Ask::Remove { dir, name: name("b"), directory: None };
    assert_eq!(lab.ask(remove).unwrap_err(), Error::Busy);
    let (from, to) = (dir, dir);
    let rename =
        |old, new| Ask::Rename { from, name: name(old), to, new_name: name(new), replace: true };
    assert_eq!(lab.ask(rename("b", "d")).unwrap_err(), Error::Busy);
    assert_eq!(lab.ask(rename("c", "b")).unwrap_err(), Error::Busy);
    assert!(lab.ask(rename("c", "d")).is_ok());
    assert_eq!(lab.at("a/d").unwrap(), "0:/a/d");
    let (_, node) = lab.walk(dir, &parts("b")).unwrap();
    let node = node.unwrap();
    assert_eq!(lab.ask(Ask::RemoveNode { node }).unwrap_err(), Error::Busy);
    lab.step(Input::Release(node));
    lab.step(Input::Release(dir));
    lab.check_held();
}

#[test]
fn only_directories_can_be_joined_and_only_where_one_is() {
    let mut lab = Lab::new(&[&["a/", "file"], &["x"]]);
    assert_eq!(lab.mount("/file", 1, Order::Replace), Err(Error::NotDirectory));
    assert_eq!(lab.mount("/none", 1, Order::Replace), Err(Error::NotFound));
    assert_eq!(lab.bind("/file", "/a", Order::Replace), Err(Error::NotDirectory));
    assert_eq!(lab.bind("/none", "/a", Order::Replace), Err(Error::NotFound));
    assert_eq!(lab.bind("/a", "/none", Order::Replace), Err(Error::NotFound));
    lab.check_held();
}

#[test]
fn a_fetch_passes_points_and_follows_links() {
    let mut lab = Lab::new(&[&["a/", "link>a/x/file", "up>../etc", "loop>loop"], &["x/file"]]);
    lab.mount("/a", 1, Order::Replace).unwrap();
    let mut fetch = |text: &str| {
        let ask = Ask::Fetch { root: None, path: parts(text), read_max: 100, headroom: 0 };
        match lab.ask(ask)? {
            Reply::Fetched(_, data, open) => {
                if let Some(open) = open {
                    lab.step(Input::Close(open));
                }
                Ok::<String, Error>(String::from_utf8(data.to_vec()).unwrap())
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(fetch("a/x/file").unwrap(), "1:/x/file");
    assert_eq!(fetch("link").unwrap(), "1:/x/file");
    assert_eq!(fetch("a/x").unwrap(), "");
    assert_eq!(fetch("a/none").unwrap_err(), Error::NotFound);
    assert_eq!(fetch("a/x/file/y").unwrap_err(), Error::NotDirectory);
    assert_eq!(fetch("up").unwrap_err(), Error::CrossDevice);
    assert_eq!(fetch("loop").unwrap_err(), Error::Loop);
    lab.fakes[1].broken = Some(Error::Disconnected);
    let ask = Ask::Fetch { root: None, path: parts("a/x/file"), read_max: 100, headroom: 0 };
    assert_eq!(lab.ask(ask).unwrap_err(), Error::Disconnected);
    lab.check_held();
}

/// A server that does not reply does not delay a change, and a node that it finds later is
/// released.
#[test]
fn a_change_that_is_given_up_ends_at_once() {
    let requests = [
        (
            "to what is bound",
            NamespaceChange::Join {
                at: path("/b"),
                what: Source::Path(path("/far/sub")),
                order: Order::Replace,
                create: false,
                source_text: "/far/sub".into(),
            },
        ),
        (
            "to where it is put",
            NamespaceChange::Join {
                at: path("/far/sub"),
                what: Source::Path(path("/b")),
                order: Order::Replace,
                create: false,
                source_text: "/b".into(),
            },
        ),
    ];
    for (which, requested) in requests {
        for answers in 0..3 {
            let mut lab = Lab::new(&[&["far/", "b/"], &["sub/"]]);
            lab.mount("/far", 1, Order::Replace).unwrap();
            lab.slow = true;
            let id = RequestId(7 | 1 << 63);
            lab.step(Input::Change(id, requested.clone()));
            (0..answers).for_each(|_| lab.answer_one());
            assert_eq!(lab.wanted.len(), 1, "{which}");
            lab.step(Input::Cancel(id));
            assert_eq!(lab.changed.pop(), Some((id, Err(Error::Cancelled))), "{which}");
            // The next one is made before the reply arrives.
            let waiting = std::mem::take(&mut lab.wanted);
            lab.slow = false;
            lab.part("/far").unwrap();
            lab.wanted = waiting;
            lab.answer_one();
            assert!(lab.changed.is_empty() && lab.names.tasks.is_empty());
            assert_eq!(lab.mounts[&1], 0, "{which}");
            lab.check_held();
        }
    }
}
