//! Streams of a small file system in memory, which counts the nodes and open files handed out.

use super::*;
use crate::request::{AsClient, Ask, OpenId, Request};
use base::op::{Content, Entry};
use base::rng::{Rng, seeded};
use base::{Kind, Stat, User};
use std::fmt::Write as _;
use std::sync::Arc;
use wire::ninep::Rmessage;
use wire::subtree::{CONTENT_MAX, PATH_MAX, Record, decode};

/// Device of the first tree, and of another one.
const DEVICE: u64 = 5;
const OTHER: u64 = 6;
const CLIENT: ClientKey = ClientKey::NOBODY;

/// A file, by inode number.
#[derive(Clone, Debug)]
struct File {
    kind: Kind,
    device: u64,
    /// Entries of a directory, in the order of lists.
    entries: Vec<(Name, u64)>,
    data: Vec<u8>,
    /// Users other than root may not open it.
    is_private: bool,
}

/// A file system, its streams, and the requests between them.
struct World {
    files: BTreeMap<u64, File>,
    next: u64,
    /// Directories that others are mounted at.
    mounts: BTreeMap<u64, u64>,
    /// Whether there are no batches of contents.
    lacks_batches: bool,
    nodes: BTreeMap<u64, u64>,
    opens: BTreeMap<u64, u64>,
    subtrees: Subtrees,
    requested: VecDeque<(usize, Request)>,
    /// Bytes read, by stream, and whether the end was.
    outputs: BTreeMap<usize, (Vec<u8>, bool)>,
    reads: BTreeMap<RequestId, usize>,
    last_read: u64,
    now: Instant,
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

fn user(uid: u32) -> Caller {
    Caller::User(Arc::new(User { uid, gid: uid, groups: Vec::new(), commands: false }))
}

impl World {
    fn new() -> World {
        let mut world = World {
            files: BTreeMap::new(),
            next: 1,
            mounts: BTreeMap::new(),
            lacks_batches: false,
            nodes: BTreeMap::new(),
            opens: BTreeMap::new(),
            subtrees: Subtrees::new(NodeId(1), DEVICE),
            requested: VecDeque::new(),
            outputs: BTreeMap::new(),
            reads: BTreeMap::new(),
            last_read: 0,
            now: Instant(0),
        };
        world.add(None, "", Kind::Directory, b"");
        world
    }

    fn add(&mut self, dir: Option<u64>, text: &str, kind: Kind, data: &[u8]) -> u64 {
        let inode = self.next;
        self.next += 1;
        let (entries, data) = (Vec::new(), data.to_vec());
        self.files.insert(inode, File { kind, device: DEVICE, entries, data, is_private: false });
        if let Some(dir) = dir {
            self.file(dir).entries.push((name(text), inode));
        }
        inode
    }

    fn dir(&mut self, dir: u64, text: &str) -> u64 {
        self.add(Some(dir), text, Kind::Directory, b"")
    }

    fn plain(&mut self, dir: u64, text: &str, data: &[u8]) -> u64 {
        self.add(Some(dir), text, Kind::File, data)
    }

    fn file(&mut self, inode: u64) -> &mut File {
        self.files.get_mut(&inode).expect("it is there")
    }

    fn stat(&self, inode: u64) -> Stat {
        let File { kind, device, data, .. } = &self.files[&inode];
        let size = data.len() as u64;
        Stat { kind: *kind, device: *device, inode, size, ..Stat::default() }
    }

    /// Walks as the mux does, through mount points.
    fn find(&self, mut at: u64, names: &[Name]) -> Result<(Vec<Stat>, Option<u64>), Error> {
        let mut stats = Vec::new();
        for name in names {
            let File { kind, entries, .. } = &self.files[&at];
            if *kind != Kind::Directory {
                return Err(Error::NotDirectory);
            }
            match entries.iter().find(|(known, _)| known == name) {
                Some((_, inode)) => at = self.mounts.get(inode).copied().unwrap_or(*inode),
                None if stats.is_empty() => return Err(Error::NotFound),
                None => return Ok((stats, None)),
            }
            stats.push(self.stat(at));
        }
        Ok((stats, Some(at)))
    }

    fn entry(&self, (place, (name, inode)): (usize, &(Name, u64))) -> Entry {
        let stat = self.stat(*inode);
        let device = (stat.device != DEVICE).then_some(stat.device);
        let (kind, name, cookie, handle) = (stat.kind, name.clone(), place as u64 + 1, None);
        Entry { cookie, inode: *inode, device, kind, name, stat: Some(stat), handle }
    }

    #[allow(clippy::wildcard_enum_match_arm, reason = "a stream sends no others")]
    fn answer(&mut self, Request { caller, ask }: &Request) -> Result<Reply, Error> {
        match ask {
            Ask::Walk { from, names } => {
                assert!(names.len() <= 16, "walks are split");
                let from = if from.0 == 1 { 1 } else { self.nodes[&from.0] };
                let (stats, found) = self.find(from, names)?;
                let node = found.map(|inode| {
                    self.next += 1;
                    self.nodes.insert(self.next, inode);
                    NodeId(self.next)
                });
                Ok(Reply::Walked(stats, node))
            }
            Ask::Open { node, .. } => {
                let inode = self.nodes[&node.0];
                if self.files[&inode].is_private && *caller != user(0) {
                    return Err(Error::Denied);
                }
                self.next += 1;
                self.opens.insert(self.next, inode);
                Ok(Reply::Opened(OpenId(self.next), self.stat(inode)))
            }
            Ask::List { open, cookie, .. } => {
                let entries = &self.files[&self.opens[&open.0]].entries;
                // A few at a time.
                let part = entries.iter().enumerate().skip(*cookie as usize).take(3);
                Ok(Reply::Entries(part.map(|it| self.entry(it)).collect()))
            }
            Ask::ReadAll { from, paths, size_max, bytes_max } => {
                if self.lacks_batches {
                    return Err(Error::Unsupported);
                }
                let (mut contents, mut left) = (Vec::new(), *bytes_max as usize);
                for path in paths {
                    let names = [Name::new(path)?];
                    let (_, found) = self.find(self.nodes[&from.0], &names)?;
                    let inode = found.expect("it is there");
                    let (stat, data) = (self.stat(inode), &self.files[&inode].data);
                    assert!(data.len() <= (*size_max as usize).min(left), "it fits");
                    left -= data.len();
                    let data = Buf::from(data.clone());
                    contents.push(Content { path: path.clone(), stat, data });
                }
                Ok(Reply::Contents(contents, 0))
            }
            other => unreachable!("{other:?}"),
        }
    }

    fn take(&mut self, out: Vec<Output>) {
        for output in out {
            match output {
                Output::AsClient(AsClient::Ask(stream, request)) => {
                    self.requested.push_back((stream as usize, request));
                }
                Output::AsClient(AsClient::Release(node)) => {
                    self.nodes.remove(&node.0).expect("it was handed out");
                }
                Output::AsClient(AsClient::Close(open)) => {
                    self.opens.remove(&open.0).expect("it was handed out");
                }
                Output::Reply(id, reply) => {
                    let stream = self.reads.remove(&id).expect("a read has one reply");
                    if let Ok(Reply::Data(data)) = reply {
                        let (bytes, is_over) = self.outputs.get_mut(&stream).expect("it is open");
                        assert!(!*is_over || data.is_empty(), "the end is the end");
                        bytes.extend_from_slice(&data);
                        *is_over = data.is_empty();
                    }
                }
            }
        }
        self.subtrees.check();
    }

    fn open_as(&mut self, uid: u32) -> usize {
        let stream = self.subtrees.open(user(uid), CLIENT).expect("there is room");
        self.outputs.insert(stream, (Vec::new(), false));
        stream
    }

    fn open(&mut self, request: &str) -> usize {
        let stream = self.open_as(1);
        self.subtrees.write(stream, request.as_bytes()).expect("a valid request");
        self.subtrees.check();
        stream
    }

    fn turn(&mut self) {
        self.now = self.now + Duration::from_micros(100);
        let mut out = Vec::new();
        self.subtrees.begin_turn();
        self.subtrees.tick(self.now, &mut out);
        self.take(out);
    }

    /// Answers the oldest request; returns whether there was one.
    fn reply(&mut self) -> bool {
        let Some((stream, request)) = self.requested.pop_front() else { return false };
        let result = self.answer(&request);
        self.reply_with(stream, result);
        true
    }

    fn reply_with(&mut self, stream: usize, result: Result<Reply, Error>) {
        let mut out = Vec::new();
        self.subtrees.answered(self.now, stream, result, &mut out);
        self.take(out);
    }

    fn read(&mut self, stream: usize, count: u32) -> RequestId {
        self.last_read += 1;
        let id = RequestId(self.last_read);
        self.reads.insert(id, stream);
        let mut out = Vec::new();
        self.subtrees.read(self.now, stream, (id, count, 0), &mut out);
        self.take(out);
        id
    }

    /// Runs until all requests are answered and none is sent.
    fn settle(&mut self) {
        self.turn();
        while self.reply() || self.subtrees.deadline() == Some(Instant(0)) {
            self.turn();
        }
    }

    fn is_over(&self, stream: usize) -> bool {
        self.outputs[&stream].1
    }

    /// Reads a stream to its end, and closes it.
    fn finish(&mut self, stream: usize) -> Vec<u8> {
        while !self.is_over(stream) {
            self.settle();
            self.read(stream, 1000);
        }
        self.close(stream)
    }

    /// Closes a stream; returns the bytes read.
    fn close(&mut self, stream: usize) -> Vec<u8> {
        let mut out = Vec::new();
        self.subtrees.close(stream, &mut out);
        self.take(out);
        let (bytes, _) = self.outputs.remove(&stream).expect("it is open");
        bytes
    }

    fn check_nothing_held(&mut self) {
        while self.reply() {}
        assert!(self.nodes.is_empty() && self.opens.is_empty(), "all is given back");
        assert_eq!(self.subtrees.counts(), (0, 0));
        assert!(self.reads.is_empty() && self.requested.is_empty());
    }

    /// Returns what a stream of this request says, line by line.
    fn shown(&mut self, request: &str) -> String {
        let stream = self.open(request);
        let bytes = self.finish(stream);
        self.check_nothing_held();
        shown(&bytes)
    }

    /// Returns what a stream says of a directory.
    fn expected(&self, inode: u64, path: &str, has_contents: bool, text: &mut String) {
        let entries = &self.files[&inode].entries;
        writeln!(text, "{inode} {path}:").expect("a string");
        for (name, inode) in entries {
            let Stat { size, .. } = self.stat(*inode);
            writeln!(text, "  {inode} {name} {size}").expect("a string");
        }
        text.push_str("  .\n");
        for (name, inode) in entries {
            let File { kind, data, .. } = &self.files[inode];
            let is_small = (1..=CONTENT_MAX).contains(&data.len());
            if has_contents && *kind == Kind::File && is_small {
                let data = String::from_utf8_lossy(data);
                writeln!(text, "  {inode} {name} = {data}").expect("a string");
            }
        }
        for (name, inode) in entries {
            if self.files[inode].kind == Kind::Directory {
                let slash = if path.is_empty() { "" } else { "/" };
                self.expected(*inode, &format!("{path}{slash}{name}"), has_contents, text);
            }
        }
    }
}

/// Shows whole records, a line each.
fn shown(mut bytes: &[u8]) -> String {
    let mut text = String::new();
    while !bytes.is_empty() {
        let (record, size) = decode(bytes).expect("they are valid").expect("they are whole");
        let string = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let line = match record {
            Record::Directory { qid, path } => format!("{} {}:", qid.path, string(path)),
            Record::Entry { qid, name, attributes, .. } => {
                assert_eq!(qid.version, 0, "as in a list");
                let size = match attributes {
                    Some(Rmessage::Getattr { qid: of, size, .. }) => {
                        assert_eq!((qid.kind, qid.path), (of.kind, of.path), "of one file");
                        size.to_string()
                    }
                    Some(other) => panic!("{other:?}"),
                    None => "?".to_string(),
                };
                format!("  {} {} {size}", qid.path, string(name))
            }
            Record::End => "  .".to_string(),
            Record::Failed { errno } => format!("  failed {errno}"),
            Record::Content { qid, name, data } => {
                format!("  {} {} = {}", qid.path, string(name), string(data))
            }
        };
        text += &format!("{line}\n");
        bytes = &bytes[size..];
    }
    text
}

/// Returns files and directories, with numbers in the order of creation: `d` is 2.
fn small() -> World {
    let mut world = World::new();
    let d = world.dir(1, "d");
    world.plain(1, "x", b"one");
    let e = world.dir(d, "e");
    world.plain(d, "y", b"");
    world.plain(d, "z", &[b'z'; CONTENT_MAX + 1]);
    world.plain(e, "deep", b"two");
    world.dir(1, "f");
    world.add(Some(1), "link", Kind::Symlink, b"d");
    world
}

#[test]
fn directories_come_depth_first_with_their_entries_and_small_files() {
    let mut world = small();
    let whole = "\
1 :
  2 d 0
  3 x 3
  8 f 0
  9 link 1
  .
  3 x = one
2 d:
  4 e 0
  5 y 0
  6 z 65537
  .
4 d/e:
  7 deep 3
  .
  7 deep = two
8 f:
  .
";
    assert_eq!(world.shown("contents /"), whole);
    let attributes: String =
        whole.lines().filter(|line| !line.contains('=')).map(|line| format!("{line}\n")).collect();
    assert_eq!(world.shown("attributes /"), attributes);
    let below = "2 :\n  4 e 0\n  5 y 0\n  6 z 65537\n  .\n4 e:\n  7 deep 3\n  .\n";
    assert_eq!(world.shown("attributes /d"), below);
    world.lacks_batches = true;
    assert_eq!(world.shown("contents /"), attributes);
}

#[test]
fn a_stream_begins_at_the_given_path_and_goes_on_from_there() {
    let mut world = small();
    let later = "2 d:\n  4 e 0\n  5 y 0\n  6 z 65537\n  .\n";
    let root = "1 :\n  2 d 0\n  3 x 3\n  8 f 0\n  9 link 1\n  .\n";
    let deep = "4 d/e:\n  7 deep 3\n  .\n  7 deep = two\n";
    let last = "8 f:\n  .\n";
    // Of the directories on the way only entries are sent.
    assert_eq!(world.shown("contents /\0d/e"), format!("{root}{later}{deep}{last}"));
    assert_eq!(world.shown("contents /\0d"), format!("{root}{later}{deep}{last}"));
    assert_eq!(world.shown("contents /\0f"), format!("{root}{last}"));
    let below = [later, deep].map(|text| text.replacen("d/e", "e", 1).replacen("2 d:", "2 :", 1));
    assert_eq!(world.shown("contents /d\0e"), below.concat());
    // It is gone.
    assert_eq!(world.shown("contents /\0g/h"), format!("{root}{later}{deep}{last}"));
    assert_eq!(world.shown("contents /\0d/g"), format!("{root}{later}{deep}{last}"));
}

#[test]
fn a_directory_that_cannot_be_listed_has_failed() {
    let mut world = small();
    for path in ["missing", "x", "x/y", "link", "d/e/missing/more"] {
        let text = world.shown(&format!("attributes /{path}"));
        assert!(text.starts_with("0 :\n  failed 2"), "{path}: {text}");
        assert_eq!(text.lines().count(), 2, "{path}: {text}");
    }
    world.file(8).device = OTHER;
    assert_eq!(world.shown("contents /f"), "0 :\n  failed 18\n");
    // As the user who opened the stream.
    world.file(2).is_private = true;
    assert_eq!(world.shown("attributes /d"), "0 :\n  failed 13\n");
    assert!(world.shown("attributes /").contains("\n2 d:\n  failed 13\n"));
    let stream = world.open_as(0);
    world.subtrees.write(stream, b"attributes /d").expect("a valid request");
    let bytes = world.finish(stream);
    assert!(shown(&bytes).starts_with("2 :\n  4 e 0\n"));
    // A list that breaks off, with what is in its directory.
    let stream = world.open("contents /d/e");
    world.file(2).is_private = false;
    let stream_of_d = world.open("contents /d");
    world.close(stream);
    let mut lists = 0;
    while !world.is_over(stream_of_d) {
        world.turn();
        match world.requested.front() {
            Some((number, Request { ask: Ask::List { .. }, .. })) => {
                lists += 1;
                let (number, is_second) = (*number, lists == 2);
                if is_second {
                    world.requested.pop_front();
                    world.reply_with(number, Err(Error::Io));
                } else {
                    world.reply();
                }
            }
            Some(_) => drop(world.reply()),
            None => drop(world.read(stream_of_d, 1000)),
        }
    }
    let bytes = world.close(stream_of_d);
    assert_eq!(shown(&bytes), "2 :\n  4 e 0\n  5 y 0\n  6 z 65537\n  failed 5\n");
    world.check_nothing_held();
}

#[test]
fn other_trees_and_directories_that_were_replaced_are_not_entered() {
    let mut world = small();
    let listed = |text: &str, name: &str| text.contains(&format!(" {name} "));
    let entered = |text: &str, path: &str| text.contains(&format!(" {path}:\n"));
    // A directory of the host on another device: its number is another one for clients.
    world.file(8).device = OTHER;
    let text = world.shown("attributes /");
    assert!(listed(&text, "f") && !entered(&text, "f") && entered(&text, "d"), "{text}");
    // One where another one of the tree is bound, or of another tree is mounted.
    world.mounts.insert(2, 4);
    let text = world.shown("attributes /");
    assert!(listed(&text, "d") && !entered(&text, "d"), "{text}");
    // Attributes of what may be a mount point are not those that a client would get.
    assert!(text.contains("2 d 0\n"), "{text}");
    world.subtrees.set_points(BTreeSet::from([name("d"), name("x")]));
    let text = world.shown("contents /");
    assert!(text.contains("2 d ?\n") && text.contains("3 x ?\n") && !entered(&text, "d"), "{text}");
    assert!(!text.contains("= one"), "{text}");
    // The path that was requested may lead through a mount point.
    assert!(world.shown("attributes /d").starts_with("4 :\n  7 deep 3\n"));
}

#[test]
fn malformed_requests_and_second_ones_are_refused() {
    let mut world = small();
    let stream = world.open_as(1);
    let long = format!("attributes /{}", "x/".repeat(PATH_MAX / 2));
    for (request, error) in [
        ("", Error::Invalid),
        ("attributes", Error::Invalid),
        ("attributes ", Error::Invalid),
        ("attributes d", Error::Invalid),
        ("listing /d", Error::Invalid),
        ("contents  /d", Error::Invalid),
        ("attributes /d/", Error::Invalid),
        ("attributes //", Error::Invalid),
        ("attributes /d/../d", Error::Invalid),
        ("attributes /.", Error::Invalid),
        ("attributes /a\0", Error::Invalid),
        ("attributes /a\0/b", Error::Invalid),
        ("attributes /a\0b\0c", Error::Invalid),
        (&long, Error::NameTooLong),
        (&format!("contents /{}", "x".repeat(256)), Error::NameTooLong),
    ] {
        assert_eq!(world.subtrees.write(stream, request.as_bytes()), Err(error), "{request}");
    }
    world.plain(1, "line\n", b"");
    let inside = world.dir(1, "dir\n");
    world.subtrees.write(stream, b"attributes /dir\n").expect("a name may contain it");
    assert_eq!(world.subtrees.write(stream, b"attributes /"), Err(Error::Invalid));
    let bytes = world.finish(stream);
    assert_eq!(shown(&bytes), format!("{inside} :\n  .\n"));
    world.check_nothing_held();
}

#[test]
fn long_paths_are_walked_in_parts_up_to_a_limit() {
    let mut world = World::new();
    let (mut at, mut path) = (1, String::new());
    let long = "n".repeat(100);
    for _ in 0..50 {
        at = world.dir(at, &long);
        path = format!("{path}/{long}");
    }
    let text = world.shown("attributes /");
    // 40 names and the slashes between them.
    assert_eq!(text.matches(':').count(), 41, "the root, and as many as have short paths");
    let text = world.shown(&format!("attributes {}", &path[..35 * 101]));
    assert!(text.starts_with(&format!("{} :\n", 36)), "{text}");
    assert_eq!(text.matches(':').count(), 16);
}

#[test]
fn nothing_is_done_for_streams_that_are_not_read() {
    let mut world = World::new();
    for dir in 0..200 {
        let dir = world.dir(1, &format!("d{dir}"));
        for file in 0..20 {
            world.plain(dir, &format!("f{file}"), &[b'x'; 1000]);
        }
    }
    // A read may come before the request.
    let stream = world.open_as(1);
    world.read(stream, 100);
    world.settle();
    assert!(world.outputs[&stream].0.is_empty());
    world.subtrees.write(stream, b"contents /").expect("a valid request");
    world.settle();
    assert_eq!(world.outputs[&stream].0.len(), 100);
    let (_, held) = world.subtrees.counts();
    assert!((128 << 10..200 << 10).contains(&held), "{held} bytes");
    world.settle();
    assert_eq!(world.subtrees.counts().1, held);
    let bytes = world.finish(stream);
    let mut expected = String::new();
    world.expected(1, "", true, &mut expected);
    assert_eq!(shown(&bytes), expected);
    world.check_nothing_held();
}

#[test]
fn a_read_waits_for_many_records_but_not_for_long() {
    let mut world = small();
    let stream = world.open("contents /");
    world.read(stream, 100_000);
    world.settle();
    let (bytes, _) = &world.outputs[&stream];
    let mut expected = String::new();
    world.expected(1, "", true, &mut expected);
    assert_eq!(shown(bytes), expected, "all at once");
    world.close(stream);
    // A slow tree does not hold back what there is.
    let stream = world.open("contents /");
    world.read(stream, 100_000);
    for _ in 0..3 {
        world.turn();
        world.reply();
    }
    world.turn();
    assert!(world.outputs[&stream].0.is_empty(), "more may come soon");
    assert_eq!(world.subtrees.deadline(), world.subtrees.alarms.first().map(|(at, _)| *at));
    world.now = world.now + GATHERING_TIME;
    world.turn();
    assert_eq!(shown(&world.outputs[&stream].0), "1 :\n");
    assert_eq!(world.subtrees.deadline(), None, "it waits for the tree");
    world.close(stream);
    world.check_nothing_held();
}

#[test]
fn reads_wait_in_their_order_and_are_few() {
    let mut world = small();
    let stream = world.open("contents /");
    let reads: Vec<RequestId> = (0..READS_MAX).map(|_| world.read(stream, 10)).collect();
    let mut out = Vec::new();
    world.subtrees.read(world.now, stream, (RequestId(99), 10, 0), &mut out);
    assert!(matches!(out[..], [Output::Reply(RequestId(99), Err(Error::Busy))]), "{out:?}");
    out.clear();
    world.subtrees.read(world.now, stream, (RequestId(99), 0, 0), &mut out);
    assert!(matches!(&out[..], [Output::Reply(_, Ok(Reply::Data(data)))] if data.is_empty()));
    out.clear();
    assert!(world.subtrees.cancel(reads[3], &mut out));
    assert!(matches!(out[..], [Output::Reply(_, Err(Error::Cancelled))]), "{out:?}");
    world.take(out);
    assert!(!world.subtrees.cancel(reads[3], &mut Vec::new()), "it was cancelled");
    world.settle();
    assert_eq!(world.outputs[&stream].0.len(), 10 * (READS_MAX - 1));
    let bytes = world.finish(stream);
    let mut expected = String::new();
    world.expected(1, "", true, &mut expected);
    assert_eq!(shown(&bytes), expected);
    // The end is read again and again.
    let stream = world.open("attributes /f");
    for _ in 0..3 {
        world.read(stream, 1000);
        world.settle();
    }
    assert!(world.is_over(stream));
    world.close(stream);
    world.check_nothing_held();
}

#[test]
fn a_stream_can_be_closed_at_every_step() {
    for steps in 0..100 {
        for fails in [false, true] {
            let mut world = small();
            let stream = world.open("contents /");
            for _ in 0..steps {
                world.turn();
                world.read(stream, 30);
                world.reply();
            }
            world.turn();
            world.close(stream);
            if let Some((stream, _)) = world.requested.front().filter(|_| fails) {
                let stream = *stream;
                world.requested.clear();
                world.reply_with(stream, Err(Error::Cancelled));
            }
            world.check_nothing_held();
        }
    }
}

#[test]
fn streams_are_few_and_leave_places_to_other_clients() {
    let mut world = small();
    let open = |world: &mut World, client| world.subtrees.open(user(1), ClientKey(client));
    let mine: Vec<usize> = (0..STREAMS_OF_CLIENT_MAX).flat_map(|_| open(&mut world, 1)).collect();
    assert_eq!(mine.len(), STREAMS_OF_CLIENT_MAX);
    assert_eq!(open(&mut world, 1), Err(Error::TooManyOpen));
    let others = (2..99).flat_map(|client| (0..9).map(move |_| client));
    let opened = others.filter(|client| open(&mut world, *client).is_ok()).count();
    assert_eq!(opened, STREAMS_MAX - STREAMS_OF_CLIENT_MAX);
    world.subtrees.check();
    // A closed one counts until its request is answered.
    world.subtrees.write(mine[0], b"attributes /").expect("a valid request");
    world.turn();
    for stream in &mine {
        world.subtrees.close(*stream, &mut Vec::new());
    }
    assert_eq!(world.subtrees.counts().0, STREAMS_MAX - STREAMS_OF_CLIENT_MAX + 1);
    world.reply();
    assert_eq!(world.subtrees.counts().0, STREAMS_MAX - STREAMS_OF_CLIENT_MAX);
    assert!(open(&mut world, 1).is_ok());
    world.subtrees.check();
}

#[test]
fn memory_for_paths_and_names_is_limited() {
    let mut world = World::new();
    for number in 0..9000 {
        world.dir(1, &format!("directory-{number}"));
    }
    let text = world.shown("attributes /");
    let entered = text.lines().filter(|line| line.contains(" directory-") && line.ends_with(':'));
    let entered = entered.count();
    assert!((2000..5000).contains(&entered), "{entered}");
    assert_eq!(text.matches(" 0\n").count(), 9000, "all are listed");
    let mut world = World::new();
    for number in 0..9000 {
        world.plain(1, &format!("file-{number}"), b"x");
    }
    let text = world.shown("contents /");
    let read = text.matches("= x").count();
    assert!((2000..8000).contains(&read), "{read}");
}

#[test]
fn requests_of_all_streams_are_sent_in_turn() {
    let mut world = small();
    let streams: Vec<usize> = (0..5).map(|_| world.open("attributes /")).collect();
    let mut sent = BTreeMap::new();
    for _ in 0..25 {
        world.turn();
        assert!(world.requested.len() <= REQUESTS_MAX);
        for (stream, _) in &world.requested {
            *sent.entry(*stream).or_insert(0) += 1;
        }
        // Without another turn, nothing is sent.
        while world.reply() {
            let mut out = Vec::new();
            world.subtrees.tick(world.now, &mut out);
            assert!(out.is_empty(), "{out:?}");
        }
    }
    assert_eq!(sent.into_values().collect::<Vec<_>>(), [10; 5]);
    streams.into_iter().for_each(|stream| drop(world.close(stream)));
    world.check_nothing_held();
}

#[test]
fn a_shutdown_ends_all_streams() {
    let mut world = small();
    let (stream, other) = (world.open("contents /"), world.open("contents /d"));
    world.turn();
    world.read(stream, 100);
    let mut out = Vec::new();
    world.subtrees.end(&mut out);
    assert_eq!(out.len(), 1, "the read ends");
    world.take(out);
    world.settle();
    world.read(stream, 100);
    assert!(world.is_over(stream) && world.outputs[&stream].0.is_empty(), "the end of the file");
    world.close(stream);
    world.close(other);
    world.check_nothing_held();
}

/// Draws a tree, some of whose directories are large.
fn draw(rng: &mut Rng) -> World {
    let mut world = World::new();
    let mut dirs = vec![1];
    for number in 0..rng.usize(..80) {
        let dir = dirs[rng.usize(..dirs.len())];
        let text = format!("{}{number}", "n".repeat(rng.usize(1..30)));
        match rng.u8(..4) {
            0 => dirs.push(world.dir(dir, &text)),
            1 => _ = world.add(Some(dir), &text, Kind::ALL[rng.usize(2..7)], b""),
            _ => {
                let size = if rng.u8(..8) == 0 { CONTENT_MAX - 5 } else { 0 };
                let data = vec![b'x'; size + rng.usize(..9)];
                world.plain(dir, &text, &data);
            }
        }
    }
    world
}

#[test]
fn streams_are_what_lists_and_reads_say() {
    let first = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    for seed in first.map_or(0..500, |seed: u64| seed..seed + 1) {
        let mut rng = seeded(seed);
        let mut world = draw(&mut rng);
        let mut streams = Vec::new();
        for _ in 0..rng.usize(1..4) {
            let has_contents = rng.bool();
            let words = if has_contents { "contents /" } else { "attributes /" };
            streams.push((world.open(words), has_contents));
        }
        while streams.iter().any(|(stream, _)| !world.is_over(*stream)) {
            let (stream, _) = streams[rng.usize(..streams.len())];
            match rng.u8(..4) {
                0 => drop(world.read(stream, rng.u32(1..100_000))),
                1 => world.turn(),
                2 if rng.u8(..9) == 0 => {
                    let id = world.read(stream, 10);
                    let mut out = Vec::new();
                    world.subtrees.cancel(id, &mut out);
                    world.take(out);
                }
                _ => drop(world.reply()),
            }
        }
        for (stream, has_contents) in streams {
            let (bytes, mut expected) = (world.close(stream), String::new());
            world.expected(1, "", has_contents, &mut expected);
            assert_eq!(shown(&bytes), expected, "SEED={seed}");
        }
        world.check_nothing_held();
    }
}
