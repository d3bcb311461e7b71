//! Guests, driven by hand over a small tree in memory.

use super::*;
use base::op::Entry;
use base::{Buf, Error, Kind, Name, Stat};
use std::collections::{BTreeMap, BTreeSet};
use tree::{Ask, NodeId, OpenId, Reply};

/// A tree of files that can be walked, read and listed; it counts what it has handed out.
#[derive(Default)]
struct Ram {
    /// By path; the root is empty.
    files: BTreeMap<Vec<Name>, (Kind, Vec<u8>)>,
    nodes: BTreeMap<u64, Vec<Name>>,
    opens: BTreeMap<u64, Vec<Name>>,
    next: u64,
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

impl Ram {
    fn new(files: &[(&str, Kind, &str)]) -> Ram {
        let mut ram = Ram::default();
        ram.files.insert(Vec::new(), (Kind::Directory, Vec::new()));
        for (path, kind, contents) in files {
            let path: Vec<Name> = path.split('/').map(name).collect();
            ram.files.insert(path, (*kind, contents.as_bytes().to_vec()));
        }
        ram
    }

    fn hand_out(&mut self, path: Vec<Name>) -> NodeId {
        self.next += 1;
        self.nodes.insert(self.next, path);
        NodeId(self.next)
    }

    fn root(&mut self) -> NodeId {
        self.hand_out(Vec::new())
    }

    fn stat(&self, path: &[Name]) -> Result<Stat, Error> {
        let (kind, contents) = self.files.get(path).ok_or(Error::NotFound)?;
        let inode = self.files.keys().position(|other| other == path).unwrap_or(0) as u64;
        Ok(Stat { kind: *kind, size: contents.len() as u64, inode, ..Stat::default() })
    }

    fn answer(&mut self, ask: Ask) -> Result<Reply, Error> {
        #[allow(clippy::wildcard_enum_match_arm, reason = "these guests only read")]
        match ask {
            Ask::Walk { from, names } => {
                let (mut path, mut stats) = (self.nodes[&from.0].clone(), Vec::new());
                let count = names.len();
                for name in names {
                    path.push(name);
                    match self.stat(&path) {
                        Ok(stat) => stats.push(stat),
                        Err(error) if stats.is_empty() => return Err(error),
                        Err(_) => return Ok(Reply::Walked(stats, None)),
                    }
                }
                let node = (stats.len() == count).then(|| self.hand_out(path));
                Ok(Reply::Walked(stats, node))
            }
            Ask::Stat { node } => Ok(Reply::Stat(self.stat(&self.nodes[&node.0])?)),
            Ask::Open { node, .. } => {
                let path = self.nodes[&node.0].clone();
                let stat = self.stat(&path)?;
                self.next += 1;
                self.opens.insert(self.next, path);
                Ok(Reply::Opened(OpenId(self.next), stat))
            }
            Ask::Read { open, offset, count, .. } => {
                let contents = &self.files[&self.opens[&open.0]].1;
                let rest = contents.get(offset as usize..).unwrap_or_default();
                let mut data = Buf::with_room(0, count as usize);
                data.extend(&rest[..rest.len().min(count as usize)]);
                Ok(Reply::Data(data))
            }
            Ask::ReadLink { node } => Ok(Reply::Bytes(self.files[&self.nodes[&node.0]].1.clone())),
            Ask::List { open, cookie, .. } => {
                let dir = &self.opens[&open.0];
                let inside =
                    |path: &&Vec<Name>| path.len() == dir.len() + 1 && path.starts_with(dir);
                let entries = (1..).zip(self.files.keys().filter(inside));
                let entry = |(cookie, path): (u64, &Vec<Name>)| Entry {
                    cookie,
                    inode: cookie,
                    device: None,
                    kind: self.files[path].0,
                    name: path.last().expect("it is inside").clone(),
                    stat: None,
                };
                Ok(Reply::Entries(entries.skip(cookie as usize).take(2).map(entry).collect()))
            }
            Ask::Fetch { .. } | Ask::ListAll { .. } => Err(Error::Unsupported),
            other => panic!("{other:?}"),
        }
    }

    fn take_back(&mut self, given: Given) {
        match given {
            Given::Node(node) => assert!(self.nodes.remove(&node.0).is_some(), "given once"),
            Given::Open(open) => assert!(self.opens.remove(&open.0).is_some(), "given once"),
        }
    }
}

/// What came of a run.
struct Run {
    ended: Ended,
    output: String,
    used: Used,
}

/// Runs a module to its end, or to so many slices.
fn run(ram: &mut Ram, wat: &str, budget: Budget, slices_max: u64) -> Run {
    let engine = Engine::new(Pace::Fuel(10_000)).expect("an engine");
    let program = engine.compile(&wat::parse_str(wat).expect("it is text")).expect("a program");
    let start = Start {
        args: vec![b"guest".to_vec()],
        env: Vec::new(),
        root: ram.root(),
        writes: false,
        seed: [1; 32],
        budget,
    };
    let mut guest = Guest::new(&program, &start);
    let (mut got, mut output) = (None, Vec::new());
    let ended = loop {
        let pause = guest.resume(got.take(), Times::default());
        guest.take_given().into_iter().for_each(|given| ram.take_back(given));
        match pause {
            Pause::Slice if guest.used().slices > slices_max => {
                break guest.kill(Reason::Cancelled);
            }
            Pause::Slice => {}
            Pause::Wants(Want::File(ask)) => got = Some(Got::File(ram.answer(ask))),
            Pause::Wants(Want::Output(_, bytes)) => {
                output.extend(bytes);
                got = Some(Got::Done);
            }
            Pause::Wants(Want::Input(_)) => got = Some(Got::Input(Vec::new())),
            Pause::Wants(Want::Sleep(_)) => got = Some(Got::Done),
            Pause::Ended(ended) => break ended,
        }
    };
    let used = guest.used();
    guest.take_given().into_iter().for_each(|given| ram.take_back(given));
    assert!(ram.nodes.is_empty() && ram.opens.is_empty(), "all is given back");
    Run { ended, output: String::from_utf8(output).expect("text"), used }
}

/// Imports that the modules below use.
const IMPORTS: &str = r#"
  (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_read" (func $fd_read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_readdir"
    (func $fd_readdir (param i32 i32 i32 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_open"
    (func $path_open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $proc_exit (param i32)))
  (memory (export "memory") 1)
"#;

/// A module that opens a path, and says what is in it; its exit code is the first errno.
fn cat(path: &str) -> String {
    format!(
        r#"(module {IMPORTS}
  (data (i32.const 1000) "{path}")
  (func $must (param i32) (if (local.get 0) (then (call $proc_exit (local.get 0)))))
  (func (export "_start")
    (call $must (call $path_open (i32.const 3) (i32.const 1) (i32.const 1000) (i32.const {len})
      (i32.const 0) (i64.const 2) (i64.const 0) (i32.const 0) (i32.const 0)))
    (i32.store (i32.const 8) (i32.const 4096))
    (loop $more
      (i32.store (i32.const 12) (i32.const 5))
      (call $must
        (call $fd_read (i32.load (i32.const 0)) (i32.const 8) (i32.const 1) (i32.const 4)))
      (i32.store (i32.const 12) (i32.load (i32.const 4)))
      (if (i32.load (i32.const 4)) (then
        (call $must (call $fd_write (i32.const 1) (i32.const 8) (i32.const 1) (i32.const 4)))
        (br $more))))))"#,
        len = path.len()
    )
}

fn files() -> Ram {
    Ram::new(&[
        ("a", Kind::Directory, ""),
        ("a/b", Kind::Directory, ""),
        ("a/b/text", Kind::File, "some words that are read"),
        ("a/up", Kind::Symlink, "../a/b/./text"),
        ("a/dir", Kind::Symlink, "b"),
        ("out", Kind::Symlink, "../../etc/passwd"),
        ("host", Kind::Symlink, "/etc/passwd"),
        ("round", Kind::Symlink, "round"),
    ])
}

#[test]
fn a_file_is_read_by_any_way_that_stays_beneath() {
    for path in ["a/b/text", "./a//b/text", "a/b/../b/text", "a/up", "a/dir/text", "a/dir/../up"] {
        let run = run(&mut files(), &cat(path), Budget::default(), u64::MAX);
        assert_eq!((run.ended, run.output.as_str()), (Ended::Exit(0), "some words that are read"));
        assert_eq!(run.used.read, 24, "{path}");
    }
}

#[test]
fn no_path_leads_out_and_mistakes_are_told() {
    let cases = [
        ("../x", abi::Errno::Notcapable),
        ("a/../../x", abi::Errno::Notcapable),
        ("out", abi::Errno::Notcapable),
        ("host", abi::Errno::Notcapable),
        ("/a", abi::Errno::Notcapable),
        ("round", abi::Errno::Loop),
        ("a/none", abi::Errno::Noent),
        ("none/../a/b/text", abi::Errno::Noent),
        ("a/b/text/x", abi::Errno::Notdir),
        ("a/b/text/", abi::Errno::Notdir),
    ];
    for (path, errno) in cases {
        let run = run(&mut files(), &cat(path), Budget::default(), u64::MAX);
        assert_eq!(run.ended, Ended::Exit(errno as u32), "{path}");
    }
}

#[test]
fn a_directory_is_listed_in_pieces() {
    let wat = format!(
        r#"(module {IMPORTS}
  (func (export "_start") (local $cookie i64)
    (loop $more
      (drop (call $fd_readdir (i32.const 3) (i32.const 4096) (i32.const 60)
        (local.get $cookie) (i32.const 4)))
      (if (i32.ge_u (i32.load (i32.const 4)) (i32.const 24)) (then
        (local.set $cookie (i64.load (i32.const 4096)))
        (i32.store (i32.const 8) (i32.const 4120))
        (i32.store (i32.const 12) (i32.load (i32.const 4112)))
        (drop (call $fd_write (i32.const 1) (i32.const 8) (i32.const 1) (i32.const 4)))
        (br $more))))))"#
    );
    let run = run(&mut files(), &wat, Budget::default(), u64::MAX);
    assert_eq!((run.ended, run.output.as_str()), (Ended::Exit(0), "ahostoutround"));
}

#[test]
fn who_never_ends_is_ended_and_gives_everything_back() {
    let wat = format!(r#"(module {IMPORTS} (func (export "_start") (loop $on (br $on))))"#);
    let run = run(&mut files(), &wat, Budget::default(), 100);
    assert_eq!((run.ended, run.used.slices), (Ended::Killed(Reason::Cancelled), 101));
}

#[test]
fn budgets_are_kept() {
    let tight = Budget { operations: 3, ..Budget::default() };
    let run_1 = run(&mut files(), &cat("a/b/text"), tight, u64::MAX);
    assert_eq!(run_1.ended, Ended::Killed(Reason::Operations));
    let quiet = Budget { output: 8, ..Budget::default() };
    let run_2 = run(&mut files(), &cat("a/b/text"), quiet, u64::MAX);
    assert_eq!((run_2.ended, run_2.output.as_str()), (Ended::Killed(Reason::Output), "some "));
    let grows = format!(
        r#"(module {IMPORTS} (func (export "_start")
          (loop $on (br_if $on (i32.ne (memory.grow (i32.const 16)) (i32.const -1))))))"#
    );
    let small = Budget { memory: 4 << 20, ..Budget::default() };
    let run_3 = run(&mut files(), &grows, small, u64::MAX);
    assert_eq!(run_3.ended, Ended::Exit(0), "growing fails, and the guest hears of it");
    assert!(run_3.used.memory <= 4 << 20 && run_3.used.memory > 3 << 20, "{}", run_3.used.memory);
}

#[test]
fn by_fuel_every_run_is_the_same() {
    let fuel: BTreeSet<u64> = (0..5)
        .map(|_| run(&mut files(), &cat("a/up"), Budget::default(), u64::MAX).used.fuel)
        .collect();
    assert_eq!(fuel.len(), 1, "{fuel:?}");
}

#[test]
fn mistakes_of_a_guest_end_only_the_guest() {
    for (body, says) in [
        ("(unreachable)", "unreachable"),
        ("(drop (i32.load (i32.const 2000000)))", "out of bounds"),
        ("(call $deep)", "stack"),
    ] {
        let wat = format!(
            r#"(module {IMPORTS} (func $deep (call $deep)) (func (export "_start") {body}))"#
        );
        let ended = run(&mut files(), &wat, Budget::default(), u64::MAX).ended;
        assert!(matches!(&ended, Ended::Trap(why) if why.contains(says)), "{body}: {ended:?}");
    }
}
