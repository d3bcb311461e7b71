//! Watches of a small file system in memory, which counts the nodes and open files handed out.

use super::log::CHANGES_MAX;
use super::*;
use crate::request::{Ask, OpenId, Request};
use base::op::Entry;
use base::{Kind as FileKind, Name, Stat, User};
use std::collections::BTreeMap;
use std::sync::Arc;

const DEVICE: u64 = 5;
const CLIENT: ClientKey = ClientKey::NOBODY;

/// A file or directory, by inode number.
#[derive(Clone, Debug)]
struct File {
    entries: Option<BTreeMap<Name, u64>>,
    size: u64,
}

/// A file system, a client that watches it, and the requests between them.
struct World {
    files: BTreeMap<u64, File>,
    next: u64,
    nodes: BTreeMap<u64, u64>,
    opens: BTreeMap<u64, u64>,
    watches: Watches,
    watch: usize,
    requested: VecDeque<(usize, Request)>,
    /// Number of listings begun.
    listings: usize,
    outputs: Vec<u8>,
    reads: u64,
    now: Instant,
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

fn user(uid: u32) -> Caller {
    Caller::User(Arc::new(User { uid, gid: uid, groups: Vec::new(), commands: false }))
}

impl World {
    fn new(lines: &str) -> World {
        let mut watches = Watches::new(NodeId(1), DEVICE);
        let watch = watches.open(Instant(0), user(1), (CLIENT, 1), false).expect("it is the first");
        watches.write(watch, lines.as_bytes()).expect("short lines");
        let root = File { entries: Some(BTreeMap::new()), size: 0 };
        World {
            files: BTreeMap::from([(1, root)]),
            next: 2,
            nodes: BTreeMap::new(),
            opens: BTreeMap::new(),
            watches,
            watch,
            requested: VecDeque::new(),
            listings: 0,
            outputs: Vec::new(),
            reads: 0,
            now: Instant(0),
        }
    }

    fn entries(&mut self, dir: u64) -> &mut BTreeMap<Name, u64> {
        self.files.get_mut(&dir).and_then(|file| file.entries.as_mut()).expect("a directory")
    }

    fn publish(&mut self, change: Change) {
        self.watches.publish(9, change);
    }

    fn create(&mut self, dir: u64, text: &str, is_dir: bool) -> u64 {
        let inode = self.next;
        self.next += 1;
        self.files.insert(inode, File { entries: is_dir.then(BTreeMap::new), size: 0 });
        self.entries(dir).insert(name(text), inode);
        self.publish(Change::Entry((DEVICE, dir), name(text)));
        inode
    }

    fn remove(&mut self, dir: u64, text: &str) {
        self.entries(dir).remove(&name(text));
        self.publish(Change::Entry((DEVICE, dir), name(text)));
    }

    fn rename(&mut self, (dir, text): (u64, &str), (to, new): (u64, &str)) {
        let inode = self.entries(dir).remove(&name(text)).expect("it is there");
        self.entries(to).insert(name(new), inode);
        self.publish(Change::Entry((DEVICE, dir), name(text)));
        self.publish(Change::Entry((DEVICE, to), name(new)));
    }

    fn write(&mut self, inode: u64) {
        self.files.get_mut(&inode).expect("it is there").size += 1;
        self.publish(Change::Contents((DEVICE, inode)));
    }

    fn stat(&self, inode: u64) -> Stat {
        let file = &self.files[&inode];
        let kind = if file.entries.is_some() { FileKind::Directory } else { FileKind::File };
        Stat { kind, device: DEVICE, inode, size: file.size, ..Stat::default() }
    }

    #[allow(clippy::wildcard_enum_match_arm, reason = "a watch sends no others")]
    fn answer(&mut self, ask: &Ask) -> Result<Reply, Error> {
        match ask {
            Ask::Walk { from, names } => {
                let (mut at, mut stats) = (self.nodes.get(&from.0).copied().unwrap_or(1), vec![]);
                for name in names {
                    let entries = self.files[&at].entries.as_ref().ok_or(Error::NotDirectory)?;
                    at = *entries.get(name).ok_or(Error::NotFound)?;
                    stats.push(self.stat(at));
                }
                self.next += 1;
                self.nodes.insert(self.next, at);
                Ok(Reply::Walked(stats, Some(NodeId(self.next))))
            }
            Ask::Open { node, .. } => {
                self.next += 1;
                let inode = self.nodes[&node.0];
                self.listings += 1;
                self.opens.insert(self.next, inode);
                Ok(Reply::Opened(OpenId(self.next), self.stat(inode)))
            }
            Ask::List { open, cookie, .. } => {
                let inode = self.opens[&open.0];
                let entries = self.files[&inode].entries.as_ref().expect("a directory");
                let entry = |(place, (name, inode)): (usize, (&Name, &u64))| Entry {
                    cookie: place as u64 + 1,
                    inode: *inode,
                    device: None,
                    kind: self.stat(*inode).kind,
                    name: name.clone(),
                    stat: None,
                    handle: None,
                };
                // A few at a time.
                let part = entries.iter().enumerate().skip(*cookie as usize).take(3);
                Ok(Reply::Entries(part.map(entry).collect()))
            }
            Ask::Stat { node } => Ok(Reply::Stat(self.stat(self.nodes[&node.0]))),
            other => unreachable!("{other:?}"),
        }
    }

    fn take(&mut self, out: Vec<Output>) {
        for output in out {
            match output {
                Output::AsClient(AsClient::Ask(watch, request)) => {
                    self.requested.push_back((watch as usize, request));
                }
                Output::AsClient(AsClient::Release(node)) => {
                    self.nodes.remove(&node.0).expect("it was handed out");
                }
                Output::AsClient(AsClient::Close(open)) => {
                    self.opens.remove(&open.0).expect("it was handed out");
                }
                Output::Reply(_, Ok(Reply::Data(data))) => self.outputs.extend_from_slice(&data),
                Output::Reply(_, Err(Error::Cancelled | Error::Busy)) => {}
                Output::Reply(..) => panic!("{output:?}"),
            }
        }
        self.watches.check();
    }

    fn tick(&mut self) {
        let mut out = Vec::new();
        self.watches.tick(self.now, &mut out);
        self.take(out);
    }

    fn reply(&mut self) -> bool {
        let Some((watch, request)) = self.requested.pop_front() else { return false };
        let result = self.answer(&request.ask);
        self.watches.answered(watch, result);
        self.tick();
        true
    }

    /// Runs until nothing happens without a read.
    fn work(&mut self) {
        while self.reply() || self.watches.deadline() == Some(Instant(0)) {
            self.tick();
        }
    }

    fn read(&mut self, count: u32) {
        self.reads += 1;
        let mut out = Vec::new();
        self.watches.read(self.watch, (RequestId(self.reads), count, 0), &mut out);
        self.take(out);
        self.tick();
    }

    /// Runs until nothing happens any more, and returns what was read.
    fn settle(&mut self) -> String {
        loop {
            self.now = self.now + PAUSE;
            self.tick();
            self.work();
            let before = self.outputs.len();
            self.read(1000);
            let mut out = Vec::new();
            let waits = self.watches.cancel(RequestId(self.reads), &mut out);
            self.take(out);
            if waits && self.requested.is_empty() && before == self.outputs.len() {
                return String::from_utf8(mem::take(&mut self.outputs)).expect("JSON");
            }
        }
    }

    fn close(&mut self) {
        let mut out = Vec::new();
        self.watches.close(self.watch, &mut out);
        self.take(out);
        self.work();
        assert!(self.nodes.is_empty() && self.opens.is_empty(), "all is given back");
        assert_eq!(self.watches.counts(), (0, 0));
    }

    /// Returns the paths of all files.
    fn paths(&self) -> BTreeSet<String> {
        let (mut found, mut dirs) = (BTreeSet::new(), vec![(1, String::new())]);
        while let Some((dir, path)) = dirs.pop() {
            for (name, inode) in self.files[&dir].entries.iter().flatten() {
                let path = format!("{path}/{name}");
                if self.files[inode].entries.is_some() {
                    dirs.push((*inode, path.clone()));
                }
                found.insert(path);
            }
        }
        found
    }
}

#[test]
fn entries_and_contents_of_a_directory_are_reported() {
    let mut world = World::new("/d\n");
    let dir = world.create(1, "d", true);
    let old = world.create(dir, "old", false);
    assert_eq!(world.settle(), "{\"change\":\"watching\",\"path\":\"/d\"}\n");
    world.create(1, "elsewhere", false);
    let new = world.create(dir, "new", false);
    world.write(old);
    world.write(new);
    let outputs = world.settle();
    let of_old = "{\"change\":\"written\",\"path\":\"/d/old\"}\n";
    assert!(outputs.contains("\"created\",\"path\":\"/d/new\",\"type\":\"file\""), "{outputs}");
    assert!(outputs.contains(of_old) && !outputs.contains("elsewhere"), "{outputs}");
    // A second write is another change, two in a row are one.
    world.write(old);
    world.write(old);
    assert_eq!(world.settle(), of_old);
    world.rename((dir, "old"), (dir, "new"));
    let outputs = world.settle();
    assert!(outputs.contains("\"removed\",\"path\":\"/d/old\""), "{outputs}");
    assert!(outputs.contains("\"replaced\",\"path\":\"/d/new\""), "{outputs}");
    world.close();
}

#[test]
fn a_file_is_watched_by_its_own_path() {
    let mut world = World::new("/f\n/missing\nrelative\n/a/../b\n");
    let file = world.create(1, "f", false);
    let outputs = world.settle();
    assert!(outputs.contains("{\"change\":\"watching\",\"path\":\"/f\"}"), "{outputs}");
    assert_eq!(outputs.matches("\"change\":\"error\"").count(), 3, "{outputs}");
    world.write(file);
    assert_eq!(world.settle(), "{\"change\":\"written\",\"path\":\"/f\"}\n");
    // Its neighbours and its directory are not watched.
    let other = world.create(1, "g", false);
    world.write(other);
    assert_eq!(world.settle(), "");
    world.rename((1, "g"), (1, "f"));
    let outputs = world.settle();
    assert!(outputs.starts_with("{\"change\":\"replaced\",\"path\":\"/f\""), "{outputs}");
    world.write(file);
    assert_eq!(world.settle(), "", "it is another file now");
    world.write(other);
    assert_eq!(world.settle(), "{\"change\":\"written\",\"path\":\"/f\"}\n");
    world.rename((1, "f"), (1, "h"));
    let outputs = world.settle();
    assert!(outputs.starts_with("{\"change\":\"removed\",\"path\":\"/f\""), "{outputs}");
    world.create(1, "f", false);
    let outputs = world.settle();
    assert!(outputs.starts_with("{\"change\":\"created\",\"path\":\"/f\""), "{outputs}");
    world.close();
}

/// Applies lines to the paths that a client knows.
fn apply(
    world: &World,
    known: &mut BTreeSet<String>,
    written: &mut BTreeSet<String>,
    outputs: &str,
) {
    for line in outputs.lines().filter(|line| !line.is_empty()) {
        let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let path = line["path"].as_str().expect("a path").to_owned();
        match line["change"].as_str().expect("a change") {
            "watching" | "attributes" => {}
            "written" => drop(written.insert(path)),
            "created" => assert!(known.insert(path), "{line} is known"),
            "removed" => {
                assert!(known.remove(&path), "{line} is not known");
                known.retain(|other| !other.starts_with(&format!("{path}/")));
            }
            "replaced" => {
                known.retain(|other| !other.starts_with(&format!("{path}/")));
                assert!(known.contains(&path), "{line} is not known");
            }
            "lost" => {
                let below = format!("{}/", path.trim_end_matches('/'));
                known.retain(|other| !other.starts_with(&below));
                known.extend(world.paths().into_iter().filter(|other| other.starts_with(&below)));
            }
            other => panic!("{other}"),
        }
    }
}

#[test]
fn a_client_that_follows_the_lines_knows_what_there_is() {
    for seed in 0..300_u64 {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut draw = move |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % below as u64) as usize
        };
        let mut world = World::new("/**\n");
        world.create(1, "begin", true);
        let mut known = world.paths();
        world.settle();
        let mut written = BTreeSet::new();
        for _ in 0..120 {
            let dirs = world.files.iter().filter(|(_, file)| file.entries.is_some());
            let dirs: Vec<u64> = dirs.map(|(inode, _)| *inode).collect();
            let (dir, to) = (dirs[draw(dirs.len())], dirs[draw(dirs.len())]);
            let names: Vec<(Name, u64)> =
                world.entries(dir).iter().map(|(name, inode)| (name.clone(), *inode)).collect();
            let new = format!("n{}", draw(4));
            match draw(8) {
                0..3 if !world.entries(dir).contains_key(&name(&new)) => {
                    world.create(dir, &new, draw(3) == 0);
                }
                3 if !names.is_empty() => {
                    let (old, inode) = &names[draw(names.len())];
                    // A directory is not moved below itself.
                    if world.files[inode].entries.is_none() {
                        world.rename((dir, &old.to_string()), (to, &new));
                    }
                }
                4 if !names.is_empty() => {
                    world.remove(dir, &names[draw(names.len())].0.to_string());
                }
                5 if !names.is_empty() => {
                    world.write(names[draw(names.len())].1);
                }
                6 => drop(world.reply()),
                _ => world.read(200),
            }
        }
        let outputs = world.settle();
        apply(&world, &mut known, &mut written, &outputs);
        assert_eq!(known, world.paths(), "seed {seed}");
        // After everything is settled, a write to each file is reported under its path.
        let files: Vec<u64> = world.files.keys().copied().collect();
        files.into_iter().for_each(|inode| world.write(inode));
        let outputs = world.settle();
        written.clear();
        apply(&world, &mut known, &mut written, &outputs);
        written.remove("/");
        assert_eq!(written, world.paths(), "seed {seed}");
        world.close();
    }
}

#[test]
fn a_directory_with_too_many_changes_is_listed_again() {
    let mut world = World::new("/**\n");
    let dir = world.create(1, "d", true);
    world.settle();
    for number in 0..5000 {
        world.create(dir, &format!("file-{number}"), false);
    }
    let kept = world.create(dir, "last", true);
    world.create(kept, "inside", false);
    let mut known = BTreeSet::from(["/d".to_owned()]);
    let outputs = world.settle();
    assert!(outputs.contains("{\"change\":\"lost\",\"path\":\"/d\"}"), "{}", &outputs[..200]);
    apply(&world, &mut known, &mut BTreeSet::new(), &outputs);
    assert_eq!(known, world.paths());
    let inside = world.create(kept, "later", false);
    assert!(world.settle().contains("\"created\",\"path\":\"/d/last/later\""));
    world.write(inside);
    assert_eq!(world.settle(), "{\"change\":\"written\",\"path\":\"/d/last/later\"}\n");
    world.close();
}

#[test]
fn a_watch_can_be_closed_at_every_step() {
    for steps in 0..40 {
        let mut world = World::new("/a/b/**\n/a\n");
        let mut dir = world.create(1, "a", true);
        dir = world.create(dir, "b", true);
        world.create(dir, "c", true);
        for _ in 0..steps {
            world.tick();
            world.reply();
        }
        world.create(dir, "new", true);
        world.tick();
        world.close();
    }
}

#[test]
fn all_files_are_watched_by_number_and_a_slow_reader_learns_of_it() {
    let mut world = World::new("*\n");
    assert_eq!(
        world.settle(),
        "{\"change\":\"watching\",\"complete\":false,\"unions\":false,\"names\":false}\n"
    );
    world.watches.set_coverage(Coverage { is_complete: true, has_unions: false });
    assert_eq!(
        world.settle(),
        "{\"change\":\"watching\",\"complete\":true,\"unions\":false,\"names\":false}\n"
    );
    let file = world.create(1, "f", false);
    world.write(file);
    world.write(file);
    // Its own client's changes are known to it.
    world.watches.publish(1, Change::Attributes((DEVICE, file)));
    let written = format!("{{\"change\":\"written\",\"file\":{file}}}\n");
    assert_eq!(world.settle(), format!("{{\"change\":\"entry\",\"file\":1}}\n{written}"));
    world.read(100);
    assert!(world.outputs.is_empty(), "no output before the next beat");
    world.now = world.now + BEAT_ALL;
    world.tick();
    assert_eq!(mem::take(&mut world.outputs), b"\n");
    for _ in 0..=CHANGES_MAX {
        world.write(file);
    }
    assert_eq!(world.settle(), "{\"change\":\"lost\"}\n");
    world.watches.lose();
    assert_eq!(world.settle(), "{\"change\":\"lost\"}\n");
    world.close();
}

#[test]
fn names_of_all_files_are_for_users_that_may_see_them() {
    let mut world = World::new("/\n");
    let watch = world.watches.open(Instant(0), user(0), (CLIENT, 2), true).expect("there is room");
    world.watch = watch;
    world.watches.write(watch, b"*").expect("a short line");
    world.settle();
    world.create(1, "f\"", false);
    assert_eq!(world.settle(), "{\"change\":\"entry\",\"file\":1,\"name\":\"f\\\"\"}\n");
}

#[test]
fn a_shutdown_ends_all_streams() {
    let mut world = World::new("/\n");
    world.settle();
    world.read(10);
    let mut out = Vec::new();
    world.watches.end(&mut out);
    assert_eq!(out.len(), 1, "the read ends");
    world.take(out);
    world.read(10);
    assert!(world.outputs.is_empty(), "the end of the file");
    world.close();
}

#[test]
fn changes_of_its_own_client_do_not_hold_back_beats() {
    let mut world = World::new("*\n");
    world.settle();
    let file = world.create(1, "f", false);
    world.settle();
    world.read(100);
    for _ in 0..30 {
        world.now = world.now + BEAT_ALL / 20;
        world.watches.publish(1, Change::Contents((DEVICE, file)));
        world.tick();
    }
    assert_eq!(mem::take(&mut world.outputs), b"\n");
}

#[test]
fn a_path_given_again_takes_nothing() {
    let mut world = World::new(&"/d\n".repeat(500));
    let dir = world.create(1, "d", true);
    world.settle();
    let (_, before) = world.watches.counts();
    for number in 0..2000 {
        world.create(dir, &format!("f{number}"), false);
    }
    assert!(before < 2 * 8192 && world.watches.counts().1 == before, "{before} bytes");
    assert_eq!(world.settle().matches("created").count(), 2000, "each once");
    world.close();
}

#[test]
fn a_client_leaves_watches_and_memory_to_others() {
    let mut world = World::new("/**\n");
    for number in 0..6000 {
        world.create(1, &format!("d{number}"), true);
    }
    let outputs = world.settle();
    assert!(
        outputs.contains("\"change\":\"error\"") && outputs.matches("error").count() < 10,
        "{}",
        &outputs[..outputs.len().min(600)]
    );
    let (_, bytes) = world.watches.counts();
    assert!(bytes <= BYTES_MAX / log::CLIENT_PART, "{bytes} bytes");
    let more =
        std::iter::repeat_with(|| world.watches.open(Instant(0), user(1), (CLIENT, 1), false));
    let opened = more.take_while(Result::is_ok).count();
    assert_eq!(opened, WATCHES_OF_CLIENT_MAX - 1);
    let other = (ClientKey(7), 2);
    assert!(world.watches.open(Instant(0), user(2), other, false).is_ok());
}

#[test]
fn a_write_before_a_rename_is_reported() {
    let mut world = World::new("/\n");
    let file = world.create(1, "a", false);
    world.settle();
    world.write(file);
    world.rename((1, "a"), (1, "b"));
    let outputs = world.settle();
    let first = outputs.lines().next().expect("a line");
    assert_eq!(first, "{\"change\":\"written\",\"path\":\"/a\"}");
    world.close();
}

#[test]
fn a_directory_may_be_another_one_when_it_is_listed_again() {
    let mut world = World::new("/d\n");
    let dir = world.create(1, "d", true);
    let other = world.create(1, "other", true);
    world.create(other, "inside", false);
    world.settle();
    // As the first directory of a union whose member is lost.
    world.nodes.values_mut().filter(|inode| **inode == dir).for_each(|inode| *inode = other);
    for number in 0..5000 {
        world.create(dir, &format!("f{number}"), false);
    }
    assert!(world.settle().contains("\"lost\""));
    world.create(other, "new", false);
    assert!(world.settle().contains("\"created\",\"path\":\"/d/new\""));
    world.close();
}

#[test]
fn a_directory_is_listed_again_when_its_last_loss_was_read() {
    let mut world = World::new("/**\n");
    let dir = world.create(1, "d", true);
    world.settle();
    let lose = |world: &mut World| {
        for number in 0..5000 {
            world.publish(Change::Entry((DEVICE, 1), name(&format!("gone-{number}"))));
        }
        world.work();
    };
    let before = world.listings;
    lose(&mut world);
    // The root, and the directory in it.
    assert_eq!(world.listings, before + 2, "nothing was lost before");
    for _ in 0..3 {
        lose(&mut world);
    }
    for number in 0..9 {
        world.create(dir, &format!("f{number}"), false);
    }
    world.work();
    assert_eq!(world.listings, before + 2, "its reader has not read of it");
    world.read(64);
    world.work();
    assert_eq!(world.listings, before + 4, "other reports need not be read");
    let read = world.settle();
    assert_eq!(read.matches("\"lost\"").count(), 2, "{read}");
    world.close();
}

#[test]
fn a_large_directory_is_removed_in_steps() {
    const FILES: usize = 5000;
    let mut world = World::new("/here/**\n");
    let here = world.create(1, "here", true);
    let away = world.create(1, "away", true);
    let large = world.create(here, "large", true);
    for number in 0..FILES {
        world.create(large, &format!("f{number}"), false);
    }
    world.settle();
    let (_, full) = world.watches.counts();
    world.rename((here, "large"), (away, "large"));
    world.tick();
    world.reply();
    let (_, after) = world.watches.counts();
    assert!(after > full / 2, "{after} of {full} bytes after a turn");
    let outputs = world.settle();
    assert!(outputs.contains("\"removed\",\"path\":\"/here/large\""), "{outputs}");
    assert!(world.watches.counts().1 < full / 10, "{} bytes", world.watches.counts().1);
    world.write(large + 1);
    assert_eq!(world.settle(), "", "it is watched no more");
    world.close();
}

#[test]
fn turns_remove_few_entries_however_many_watches_have_lost_some() {
    let mut world = World::new("/**\n");
    let more = (2..10).map(|origin| {
        let number = world.watches.open(Instant(0), user(1), (CLIENT, origin), false);
        world.watches.write(number.expect("below the limit"), b"/**\n").expect("a short line");
        number.expect("it is open")
    });
    let more: Vec<usize> = more.collect();
    for number in 0..1000 {
        world.create(1, &format!("old-{number}"), false);
    }
    world.settle();
    let full = world.watches.counts().1;
    for number in 0..5000 {
        world.create(1, &format!("file-{number}"), false);
    }
    let mut out = Vec::new();
    more.iter().for_each(|number| world.watches.close(*number, &mut out));
    world.take(out);
    // The entries to look at, and then the old ones, of each watch.
    let least = (more.len() + 1) * (4096 + 1000) / STEPS_MAX;
    let mut count = 0;
    while world.watches.deadline() == Some(Instant(0)) && world.requested.is_empty() {
        world.tick();
        count += 1;
        assert!(count >= least / 2 || world.watches.counts().1 > full / 9, "after {count} turns");
    }
    assert!((least / 2..=2 * least).contains(&count), "{count} turns, of about {least}");
    world.settle();
    world.close();
}

#[test]
fn turns_look_at_few_entries_however_many_watches_there_are() {
    let mut world = World::new("/**\n");
    for origin in 2..64 {
        let number = world.watches.open(Instant(0), user(1), (CLIENT, origin), false);
        world.watches.write(number.expect("below the limit"), b"/**\n").expect("a short line");
    }
    world.settle();
    world.create(1, "new", false);
    let (mut most, mut requests) = (0, 0);
    while world.watches.deadline() == Some(Instant(0)) {
        let before = world.requested.len();
        world.tick();
        let asked = world.requested.len() - before;
        (most, requests) = (most.max(asked), requests + asked);
        // All are answered at once.
        for (watch, request) in mem::take(&mut world.requested) {
            let result = world.answer(&request.ask);
            world.watches.answered(watch, result);
        }
    }
    assert_eq!(requests, 63, "each looks at the entry");
    assert!(most <= STEPS_MAX / REQUEST_STEPS, "{most} requests in a turn");
}

#[test]
fn the_watches_beneath_a_renamed_directory_end_step_by_step() {
    const DIRS: usize = 700;
    let mut world = World::new("/**\n");
    let dir = world.create(1, "d", true);
    world.settle();
    for number in 0..DIRS {
        world.create(dir, &format!("sub-{number}"), true);
    }
    world.settle();
    let all = world.nodes.len();
    world.rename((1, "d"), (1, "e"));
    let (mut turns, mut most) = (0, 0);
    while world.nodes.len() > DIRS / 10 {
        let before = world.nodes.len();
        if !world.reply() {
            world.tick();
        }
        most = most.max(before.saturating_sub(world.nodes.len()));
        turns += 1;
        assert!(turns < 100 * DIRS, "{} nodes", world.nodes.len());
    }
    assert!((1..=STEPS_MAX + 1).contains(&most), "{most} nodes in a turn");
    let outputs = world.settle();
    assert!(outputs.contains("\"path\":\"/e/sub-699\""), "{}", &outputs[..outputs.len().min(2000)]);
    assert_eq!(world.nodes.len(), all, "none is left of the old path");
    world.create(dir, "late", false);
    assert!(world.settle().contains("\"path\":\"/e/late\""));
    world.close();
}
