#![allow(clippy::wildcard_enum_match_arm, reason = "a test names the variants it is about")]

mod listing;
mod permissions;
mod replays;

use super::*;
use crate::Nfs;
use base::drawing::{Drawing, variant};
use base::{FileHandle, Kind, Stat, Time, User};
use expect_test::expect;
use std::time::Duration;
use tree::{NodeId, OpenId};
use wire::nfs::{self, Call as WireCall, CreateHow, Handle, Results, SetAttributes, Stable, mount};
use wire::rpc::{Call as RpcCall, Credential, decode_reply};

const KEY: Key = [7; 32];

fn export(limits: Limits) -> Export {
    Export {
        root: NodeId(0),
        device: 1,
        path: b"/srv".to_vec(),
        wall: Time::from_secs(0),
        limits,
        web: crate::Web::default(),
        nfs: Nfs {
            key: KEY,
            verifier: [9; 8],
            squash: crate::Squash::None,
            is_async: true,
            allow: Vec::new(),
        },
        services: [].into(),
    }
}

fn limits() -> Limits {
    Limits { msize: 65_536, fids: 8, handles: 100, calls: 8, bytes: 1 << 20 }
}

fn stat(kind: Kind) -> Stat {
    Stat { kind, device: 1, inode: 7, size: 3, mode: 0o644, links: 1, ..Stat::default() }
}

fn tree_handle(number: u8) -> FileHandle {
    FileHandle::new(&[number]).expect("it is short")
}

/// Returns the handle of a file as clients know it.
fn handle(number: u8) -> Handle {
    secret::seal(&KEY, &tree_handle(number))
}

fn identified(number: u8) -> Result<Reply, Error> {
    Ok(Reply::FileHandle(tree_handle(number)))
}

fn walked(kind: Kind, node: u64) -> Result<Reply, Error> {
    Ok(Reply::Walked(vec![stat(kind)], Some(NodeId(node))))
}

/// Returns the record of a call.
fn record(xid: u32, program: u32, procedure: u32, arguments: &[u8]) -> Vec<u8> {
    record_as(Credential::None, xid, (program, procedure), arguments)
}

fn record_as(
    credential: Credential<'_>,
    xid: u32,
    (program, procedure): (u32, u32),
    arguments: &[u8],
) -> Vec<u8> {
    let mut body = Vec::new();
    RpcCall { xid, program, version: 3, procedure, credential }.put(&mut body);
    body.extend(arguments);
    [&rpc::mark(body.len())[..], &body].concat()
}

fn call(xid: u32, call: &WireCall<'_>) -> Vec<u8> {
    let mut arguments = Vec::new();
    call.put(&mut arguments);
    record(xid, nfs::PROGRAM, call.procedure(), &arguments)
}

/// A client and a tree in one: sends calls, replies to the session, and records the trace.
struct Lab {
    session: Session,
    now: Instant,
    /// Procedures of outstanding calls, by xid.
    sent: Vec<(u32, u32)>,
    text: String,
    /// Pieces of replies.
    output: Vec<u8>,
    replays: Replays<()>,
}

impl Lab {
    fn new() -> Lab {
        Lab::with(limits())
    }

    fn with(limits: Limits) -> Lab {
        let session = Session::new(export(limits), Identity::Fixed(Caller::Server));
        let (sent, text, output) = (Vec::new(), String::new(), Vec::new());
        Lab { session, now: Instant(1), sent, text, output, replays: Replays::new(4000) }
    }

    /// Performs a step, with the claims of its calls.
    fn step_session(&mut self, input: Input) -> Vec<Output> {
        let mut out = Vec::new();
        self.session.step(self.now, input, &mut out);
        self.session.check();
        let mut rest = Vec::new();
        for output in out {
            match output {
                Output::Claim(call, key) => {
                    let claim = self.replays.claim(&(), key);
                    rest.extend(self.step_session(Input::Claimed(call, claim)));
                }
                Output::Settle(key, reply) => self.replays.settle(&(), key, reply),
                other => rest.push(other),
            }
        }
        self.replays.check();
        rest
    }

    fn step(&mut self, label: &str, input: Input) {
        let out = self.step_session(input);
        let mut shown = Vec::new();
        for output in out {
            match output {
                Output::Ask(call, request) => {
                    shown.push(format!("ask {} {}", call.0, variant(&request.ask)));
                }
                Output::Cancel(call) => shown.push(format!("cancel {}", call.0)),
                Output::Release(node) => shown.push(format!("release {}", node.0)),
                Output::Close(open) => shown.push(format!("close {}", open.0)),
                Output::Hangup(reason) => shown.push(format!("hang up: {reason}")),
                Output::Called(..) => {}
                Output::Send(bytes) => self.output.extend(&*bytes),
                other => unreachable!("{other:?} of NFS"),
            }
        }
        while let Some((size, true)) = rpc::fragment(&self.output)
            && let Some(record) = self.output.get(MARK_SIZE..MARK_SIZE + size)
        {
            let (xid, outcome, results) = decode_reply(record).expect("a reply");
            let index = self.sent.iter().position(|(sent, _)| *sent == xid).expect("of a call");
            let (_, procedure) = self.sent.remove(index);
            shown.push(match (outcome, procedure) {
                (Outcome::Success, 100) => format!("{xid} Mnt {}", shown_mount(results)),
                (Outcome::Success, _) => {
                    let results = Results::decode(procedure, results).expect("its results");
                    format!("{xid} {}", shown_results(&results))
                }
                (other, _) => format!("{xid} {other:?}"),
            });
            self.output.drain(..MARK_SIZE + size);
        }
        self.text += &format!("{label}: {}\n", shown.join(", "));
        if self.session.unsent() > 0 {
            let bytes = self.session.unsent();
            self.session.step(self.now, Input::Sent(bytes), &mut Vec::new());
        }
    }

    fn call(&mut self, xid: u32, sent: &WireCall<'_>) {
        self.sent.push((xid, sent.procedure()));
        self.step(&variant(sent), Input::Received(Buf::from(call(xid, sent))));
    }

    fn mount(&mut self, xid: u32, path: &[u8]) {
        self.sent.push((xid, 100));
        let mut arguments = Vec::new();
        mount::Call::Mount(path).put(&mut arguments);
        self.step("Mnt", Input::Received(Buf::from(record(xid, mount::PROGRAM, 1, &arguments))));
    }

    fn answer(&mut self, call: u32, reply: Result<Reply, Error>) {
        let label = match &reply {
            Ok(reply) => format!("<- {call} {}", variant(reply)),
            Err(error) => format!("<- {call} {error:?}"),
        };
        self.step(&label, Input::Answered(CallId(call), reply));
    }

    /// Makes the root known, as file 0 with node 1.
    fn mounted() -> Lab {
        let mut lab = Lab::new();
        lab.mount(1, b"/");
        lab.answer(0, Ok(Reply::Walked(Vec::new(), Some(NodeId(1)))));
        lab.answer(0, identified(0));
        lab.text.clear();
        lab
    }

    /// Makes a file of the root known.
    fn looked_up(name: &[u8], number: u8, node: u64) -> Lab {
        let mut lab = Lab::mounted();
        lab.call(2, &WireCall::Lookup { dir: handle(0), name });
        lab.answer(0, walked(Kind::File, node));
        lab.answer(0, identified(number));
        lab.text.clear();
        lab
    }

    fn wait(&mut self, seconds: u64) {
        self.now = self.now + Duration::from_secs(seconds);
        self.step("tick", Input::Tick);
    }
}

fn shown_mount(results: &[u8]) -> String {
    match mount::decode_mounted(results).expect("its results") {
        Ok((handle, flavours)) => format!("{} {flavours:?}", number_of(&handle)),
        Err(status) => format!("{status:?}"),
    }
}

fn number_of(sealed: &Handle) -> String {
    let number = (0..=255).find(|number| handle(*number) == *sealed);
    number.map_or_else(|| "foreign".to_owned(), |number| format!("handle {number}"))
}

fn shown_results(results: &Result<Results<'_>, (Status, nfs::After)>) -> String {
    match results {
        Err((status, _)) => format!("{status:?}"),
        Ok(Results::Lookup { object, .. }) => format!("Lookup {}", number_of(object)),
        Ok(Results::Create { object, .. }) => {
            format!("Create {}", object.as_ref().map_or_else(String::new, number_of))
        }
        Ok(Results::MkDir { object, .. }) => {
            format!("MkDir {}", object.as_ref().map_or_else(String::new, number_of))
        }
        Ok(Results::Read { count, eof, data, .. }) => {
            assert_eq!(*count as usize, data.len());
            format!("Read {:?}, eof {eof}", String::from_utf8_lossy(data))
        }
        Ok(Results::Write { count, committed, .. }) => format!("Write {count} {committed:?}"),
        Ok(other) => variant(other),
    }
}

fn read(offset: u64) -> WireCall<'static> {
    WireCall::Read { file: handle(5), offset, count: 100 }
}

fn data(bytes: &[u8]) -> Result<Reply, Error> {
    let mut buf = Buf::with_room(nfs::READ_HEADER_SIZE, bytes.len());
    buf.extend(bytes);
    Ok(Reply::Data(buf))
}

#[test]
fn a_file_is_mounted_found_and_read() {
    let mut lab = Lab::new();
    lab.mount(1, b"/srv/d");
    lab.answer(0, walked(Kind::Directory, 1));
    lab.answer(0, identified(0));
    lab.call(2, &WireCall::Lookup { dir: handle(0), name: b"f" });
    lab.answer(0, walked(Kind::File, 2));
    lab.answer(0, identified(5));
    lab.call(3, &read(0));
    lab.answer(0, Ok(Reply::Opened(OpenId(9), stat(Kind::File))));
    lab.answer(0, data(b"xyz"));
    lab.answer(0, Ok(Reply::Stat(stat(Kind::File))));
    lab.call(4, &read(3));
    lab.answer(0, Ok(Reply::Pieces(vec![Buf::from(&b"pieces"[..]), Buf::from(&b"!"[..])])));
    lab.answer(0, Err(Error::Io));
    lab.call(5, &WireCall::GetAttr { object: handle(5) });
    lab.answer(0, Ok(Reply::Stat(stat(Kind::File))));
    expect![[r#"
        Mnt: ask 0 Walk
        <- 0 Walked: ask 0 FileHandle
        <- 0 FileHandle: 1 Mnt handle 0 [1, 0]
        Lookup: ask 0 Walk
        <- 0 Walked: ask 0 FileHandle
        <- 0 FileHandle: 2 Lookup handle 5
        Read: ask 0 Open
        <- 0 Opened: ask 0 Read
        <- 0 Data: ask 0 Stat
        <- 0 Stat: 3 Read "xyz", eof true
        Read: ask 0 Read
        <- 0 Pieces: ask 0 Stat
        <- 0 Io: 4 Read "pieces!", eof false
        GetAttr: ask 0 Stat
        <- 0 Stat: 5 GetAttr
    "#]]
    .assert_eq(&lab.text);
}

#[test]
fn a_read_of_nothing_is_the_end_although_the_file_has_grown_since() {
    let mut lab = Lab::looked_up(b"f", 5, 2);
    lab.call(3, &read(3));
    lab.answer(0, Ok(Reply::Opened(OpenId(9), stat(Kind::File))));
    lab.answer(0, data(b""));
    lab.answer(0, Ok(Reply::Stat(Stat { size: 10, ..stat(Kind::File) })));
    assert!(lab.text.ends_with("3 Read \"\", eof true\n"), "{}", lab.text);
}

#[test]
fn opens_of_one_file_are_shared() {
    let mut lab = Lab::looked_up(b"f", 5, 2);
    lab.call(3, &read(0));
    lab.call(4, &read(0));
    lab.answer(0, Ok(Reply::Opened(OpenId(8), stat(Kind::File))));
    lab.answer(1, Ok(Reply::Opened(OpenId(9), stat(Kind::File))));
    assert!(lab.text.contains("close 9"), "{}", lab.text);
    let set = SetAttributes { size: Some(0), ..SetAttributes::default() };
    let how = CreateHow::Unchecked(set);
    for xid in [5, 6] {
        lab.text.clear();
        lab.call(xid, &WireCall::Create { dir: handle(0), name: b"f", how: how.clone() });
        lab.answer(2, Ok(Reply::Created(NodeId(3), OpenId(10), stat(Kind::File))));
        lab.answer(2, Ok(Reply::Done));
        lab.answer(2, Ok(Reply::Stat(stat(Kind::File))));
        lab.answer(2, identified(5));
        lab.answer(2, Ok(Reply::Stat(stat(Kind::Directory))));
    }
    assert!(lab.text.contains("close 10"), "{}", lab.text);
}

#[test]
fn unused_files_are_released_and_found_again_by_their_place() {
    let mut lab = Lab::looked_up(b"f", 5, 2);
    lab.call(3, &read(0));
    lab.answer(0, Ok(Reply::Opened(OpenId(9), stat(Kind::File))));
    lab.answer(0, data(b""));
    lab.answer(0, Ok(Reply::Stat(stat(Kind::File))));
    lab.text.clear();
    lab.wait(3);
    lab.wait(1);
    assert_eq!((lab.session.handles(), lab.session.bytes()), (0, files::PLACE_SIZE));
    // The root has no place.
    lab.call(4, &WireCall::GetAttr { object: handle(0) });
    lab.answer(0, walked(Kind::Directory, 1));
    lab.answer(0, Ok(Reply::Stat(stat(Kind::Directory))));
    lab.call(5, &WireCall::GetAttr { object: handle(5) });
    lab.answer(0, walked(Kind::File, 2));
    lab.answer(0, identified(5));
    lab.answer(0, Ok(Reply::Stat(stat(Kind::File))));
    lab.wait(4);
    lab.call(6, &WireCall::GetAttr { object: handle(0) });
    lab.answer(0, walked(Kind::Directory, 1));
    lab.answer(0, Ok(Reply::Stat(stat(Kind::Directory))));
    // Another file has the name by now.
    lab.call(7, &WireCall::GetAttr { object: handle(5) });
    lab.answer(0, walked(Kind::File, 3));
    lab.answer(0, identified(6));
    lab.answer(0, Err(Error::Stale));
    expect![[r#"
        tick: 
        tick: release 1, close 9, release 2
        GetAttr: ask 0 Resolve
        <- 0 Walked: ask 0 Stat
        <- 0 Stat: 4 GetAttr
        GetAttr: ask 0 Walk
        <- 0 Walked: ask 0 FileHandle
        <- 0 FileHandle: ask 0 Stat
        <- 0 Stat: 5 GetAttr
        tick: release 1, release 2
        GetAttr: ask 0 Resolve
        <- 0 Walked: ask 0 Stat
        <- 0 Stat: 6 GetAttr
        GetAttr: ask 0 Walk
        <- 0 Walked: ask 0 FileHandle
        <- 0 FileHandle: release 3, ask 0 Resolve
        <- 0 Stale: 7 Stale
    "#]]
    .assert_eq(&lab.text);
}

#[test]
fn places_are_kept_as_long_as_there_is_memory() {
    let mut lab = Lab::mounted();
    for number in 1..=200u8 {
        lab.now = lab.now + Duration::from_micros(1);
        lab.call(2, &WireCall::Lookup { dir: handle(0), name: format!("f{number}").as_bytes() });
        lab.answer(0, walked(Kind::File, number.into()));
        lab.answer(0, identified(number));
        assert!(lab.session.handles() <= 100, "within the limit");
    }
    lab.wait(4);
    assert_eq!(lab.session.handles(), 0);
    assert_eq!(lab.session.bytes(), 200 * files::PLACE_SIZE);
    assert!(lab.session.is_idle(), "nothing is lost with them");
    lab.wait(1 << 20);
    assert_eq!(lab.session.bytes(), 200 * files::PLACE_SIZE, "time is no limit");
    let (spare, reserve) = (40_000, 8_000);
    lab.session.set_room(Room { spare, reserve, ..Room::ALL });
    lab.wait(1);
    assert_eq!(lab.session.bytes(), 15 * files::PLACE_SIZE, "what is free beyond one half");
    // Those of the files used last are kept.
    lab.call(3, &WireCall::GetAttr { object: handle(0) });
    lab.answer(0, walked(Kind::Directory, 1));
    lab.answer(0, Ok(Reply::Stat(stat(Kind::Directory))));
    lab.text.clear();
    lab.call(4, &WireCall::GetAttr { object: handle(200) });
    lab.call(5, &WireCall::GetAttr { object: handle(1) });
    assert_eq!(lab.text, "GetAttr: ask 0 Walk\nGetAttr: ask 1 Resolve\n");
}

#[test]
fn removed_and_renamed_files_are_known_to_be() {
    let mut lab = Lab::looked_up(b"f", 5, 2);
    let rename = WireCall::Rename { from_dir: handle(0), from: b"f", to_dir: handle(0), to: b"g" };
    lab.call(3, &rename);
    for _ in 0..3 {
        lab.answer(0, Ok(Reply::Stat(stat(Kind::Directory))));
    }
    lab.call(4, &WireCall::Remove { dir: handle(0), name: b"f" });
    lab.answer(0, Err(Error::NotFound));
    lab.call(5, &WireCall::Remove { dir: handle(0), name: b"g" });
    lab.answer(0, Ok(Reply::Done));
    lab.answer(0, Ok(Reply::Stat(stat(Kind::Directory))));
    lab.call(6, &WireCall::GetAttr { object: handle(5) });
    lab.answer(0, walked(Kind::File, 3));
    let gone = Stat { links: 0, ..stat(Kind::File) };
    lab.answer(0, Ok(Reply::Stat(gone)));
    lab.call(7, &WireCall::GetAttr { object: handle(5) });
    lab.answer(0, Err(Error::Stale));
    expect![[r#"
        Rename: ask 0 Rename
        <- 0 Stat: ask 0 Stat
        <- 0 Stat: ask 0 Stat
        <- 0 Stat: 3 Rename
        Remove: ask 0 Remove
        <- 0 NotFound: 4 NoEnt
        Remove: ask 0 Remove
        <- 0 Done: release 2, ask 0 Stat
        <- 0 Stat: 5 Remove
        GetAttr: ask 0 Resolve
        <- 0 Walked: ask 0 Stat
        <- 0 Stat: release 3, 6 Stale
        GetAttr: ask 0 Resolve
        <- 0 Stale: 7 Stale
    "#]]
    .assert_eq(&lab.text);
}

#[test]
fn an_exclusive_creation_succeeds_again_with_its_verifier_only() {
    let mut lab = Lab::mounted();
    let verifier = [0x80, 0, 0, 1, 0, 0, 0, 2];
    let create = |verifier| {
        let how = CreateHow::Exclusive(verifier);
        WireCall::Create { dir: handle(0), name: b"f", how }
    };
    lab.call(2, &create(verifier));
    lab.answer(0, Ok(Reply::Created(NodeId(2), OpenId(9), stat(Kind::File))));
    lab.answer(0, Ok(Reply::Done));
    lab.answer(0, Ok(Reply::Stat(stat(Kind::File))));
    lab.answer(0, identified(5));
    lab.answer(0, Ok(Reply::Stat(stat(Kind::Directory))));
    let (accessed, modified) = (Time::from_secs(1), Time::from_secs(2));
    let made = Stat { accessed, modified, ..stat(Kind::File) };
    for (xid, last) in [(3, 2), (4, 3)] {
        lab.call(xid, &create([0x80, 0, 0, 1, 0, 0, 0, last]));
        lab.answer(0, Err(Error::Exists));
        lab.answer(0, Ok(Reply::Walked(vec![made.clone()], Some(NodeId(3)))));
        if last == 2 {
            lab.answer(0, identified(5));
            lab.answer(0, Ok(Reply::Stat(stat(Kind::Directory))));
        }
    }
    expect![[r#"
        Create: ask 0 Create
        <- 0 Created: ask 0 SetStat
        <- 0 Done: ask 0 Stat
        <- 0 Stat: ask 0 FileHandle
        <- 0 FileHandle: ask 0 Stat
        <- 0 Stat: 2 Create handle 5
        Create: ask 0 Create
        <- 0 Exists: ask 0 Walk
        <- 0 Walked: ask 0 FileHandle
        <- 0 FileHandle: release 3, ask 0 Stat
        <- 0 Stat: 3 Create handle 5
        Create: ask 0 Create
        <- 0 Exists: ask 0 Walk
        <- 0 Walked: release 3, 4 Exist
    "#]]
    .assert_eq(&lab.text);
}

#[test]
fn writes_are_durable_as_asked_for_and_by_commit() {
    let mut lab = Lab::looked_up(b"f", 5, 2);
    let write =
        |stable| WireCall::Write { file: handle(5), offset: 0, count: 3, stable, data: b"abc" };
    lab.call(3, &write(Stable::Unstable));
    lab.answer(0, Ok(Reply::Opened(OpenId(9), stat(Kind::File))));
    lab.answer(0, Ok(Reply::Written(3)));
    lab.answer(0, Ok(Reply::Stat(stat(Kind::File))));
    lab.call(4, &write(Stable::FileSync));
    lab.answer(0, Ok(Reply::Written(2)));
    lab.answer(0, Ok(Reply::Done));
    lab.answer(0, Ok(Reply::Stat(stat(Kind::File))));
    lab.call(5, &write(Stable::DataSync));
    lab.answer(0, Ok(Reply::Written(3)));
    lab.answer(0, Err(Error::Io));
    lab.call(6, &WireCall::Commit { file: handle(5), offset: 0, count: 0 });
    lab.answer(0, Ok(Reply::Done));
    lab.answer(0, Ok(Reply::Stat(stat(Kind::File))));
    expect![[r#"
        Write: ask 0 Open
        <- 0 Opened: ask 0 Write
        <- 0 Written: ask 0 Stat
        <- 0 Stat: 3 Write 3 Unstable
        Write: ask 0 Write
        <- 0 Written: ask 0 Sync
        <- 0 Done: ask 0 Stat
        <- 0 Stat: 4 Write 2 FileSync
        Write: ask 0 Write
        <- 0 Written: ask 0 Sync
        <- 0 Io: 5 Io
        Commit: ask 0 Sync
        <- 0 Done: ask 0 Stat
        <- 0 Stat: 6 Commit
    "#]]
    .assert_eq(&lab.text);
}

#[test]
fn changes_are_durable_before_their_replies() {
    let mut lab = Lab::mounted();
    lab.session.export.nfs.is_async = false;
    let done = || Ok(Reply::Stat(stat(Kind::Directory)));
    lab.call(2, &WireCall::RmDir { dir: handle(0), name: b"d" });
    lab.answer(0, Ok(Reply::Opened(OpenId(9), stat(Kind::Directory))));
    (0..3).for_each(|_| lab.answer(0, done()));
    let attributes = SetAttributes { mode: Some(0o700), ..SetAttributes::default() };
    lab.call(3, &WireCall::SetAttr { object: handle(0), attributes, guard: None });
    (0..3).for_each(|_| lab.answer(0, done()));
    let how = CreateHow::Guarded(SetAttributes::default());
    lab.call(4, &WireCall::Create { dir: handle(0), name: b"f", how });
    lab.answer(0, Ok(Reply::Created(NodeId(2), OpenId(8), stat(Kind::File))));
    lab.answer(0, identified(5));
    lab.answer(0, Err(Error::Io));
    expect![[r#"
        RmDir: ask 0 Open
        <- 0 Opened: ask 0 Remove
        <- 0 Stat: ask 0 Sync
        <- 0 Stat: ask 0 Stat
        <- 0 Stat: 2 RmDir
        SetAttr: ask 0 SetStat
        <- 0 Stat: ask 0 Sync
        <- 0 Stat: ask 0 Stat
        <- 0 Stat: 3 SetAttr
        Create: ask 0 Create
        <- 0 Created: ask 0 FileHandle
        <- 0 FileHandle: ask 0 Sync
        <- 0 Io: 4 Io
    "#]]
    .assert_eq(&lab.text);
}

#[test]
fn a_new_directory_is_found_before_the_reply() {
    let mut lab = Lab::mounted();
    let mtime = nfs::SetTime::Server;
    let attributes = SetAttributes { mode: Some(0o700), mtime, ..SetAttributes::default() };
    lab.call(2, &WireCall::MkDir { dir: handle(0), name: b"d", attributes });
    lab.answer(0, Ok(Reply::Stat(stat(Kind::Directory))));
    lab.answer(0, walked(Kind::Directory, 2));
    lab.answer(0, Ok(Reply::Done));
    lab.answer(0, Ok(Reply::Stat(stat(Kind::Directory))));
    lab.answer(0, identified(6));
    lab.answer(0, Ok(Reply::Stat(stat(Kind::Directory))));
    let attributes = SetAttributes::default();
    lab.call(3, &WireCall::MkDir { dir: handle(0), name: &[b'x'; 300], attributes });
    expect![[r#"
        MkDir: ask 0 MakeDir
        <- 0 Stat: ask 0 Walk
        <- 0 Walked: ask 0 SetStat
        <- 0 Done: ask 0 Stat
        <- 0 Stat: ask 0 FileHandle
        <- 0 FileHandle: ask 0 Stat
        <- 0 Stat: 2 MkDir handle 6
        MkDir: 3 NameTooLong
    "#]]
    .assert_eq(&lab.text);
}

#[test]
fn forged_handles_and_unknown_programs_are_refused() {
    let mut lab = Lab::mounted();
    let forged = secret::seal(&[8; 32], &tree_handle(5));
    lab.call(2, &WireCall::GetAttr { object: forged });
    lab.sent.extend([(3, 0), (4, 0), (5, 0), (6, 0)]);
    let calls = [
        record(3, 100_000, 0, b""),
        record(4, nfs::PROGRAM, 22, b""),
        record(5, nfs::PROGRAM, 1, b"\0\0\0\x01"),
        record(6, nfs::PROGRAM, 0, b""),
    ];
    lab.step("four calls", Input::Received(Buf::from(calls.concat())));
    lab.step("no call", Input::Received(Buf::from(&b"\x80\0\0\x04GET "[..])));
    expect![[r#"
        GetAttr: 2 BadHandle
        four calls: 3 NoProgram, 4 NoProcedure, 5 GarbageArguments, 6 Null
        no call: hang up: bytes that are no call
    "#]]
    .assert_eq(&lab.text);
}

#[test]
fn a_call_in_fragments_is_one_call() {
    let mut lab = Lab::mounted();
    let whole = call(2, &WireCall::GetAttr { object: handle(0) });
    let (first, second) = whole[MARK_SIZE..].split_at(10);
    let mark = |bytes: &[u8], last: u32| (last << 31 | bytes.len() as u32).to_be_bytes().to_vec();
    let stream = [mark(first, 0), first.to_vec(), mark(second, 1), second.to_vec()].concat();
    lab.sent.push((2, 1));
    for byte in stream {
        lab.step("byte", Input::Received(Buf::from(&[byte][..])));
    }
    let text = lab.text.replace("byte: \n", "");
    lab.text.clear();
    lab.answer(0, Ok(Reply::Stat(stat(Kind::Directory))));
    assert_eq!(text + &lab.text, "byte: ask 0 Stat\n<- 0 Stat: 2 GetAttr\n");
}

#[test]
fn the_data_of_a_large_write_is_not_copied() {
    let mut lab = Lab::looked_up(b"f", 5, 2);
    let content = vec![b'x'; 30_001];
    let write = WireCall::Write {
        file: handle(5),
        offset: 0,
        count: 30_001,
        stable: Stable::Unstable,
        data: &content,
    };
    let whole = Buf::from(call(3, &write));
    let memory = whole.as_ptr() as usize..whole.as_ptr() as usize + whole.len();
    let mut out = Vec::new();
    lab.session.step(lab.now, Input::Received(whole), &mut out);
    assert!(matches!(out[..], [Output::Ask(..)]), "{out:?}");
    out.clear();
    let opened = Ok(Reply::Opened(OpenId(9), stat(Kind::File)));
    lab.session.step(lab.now, Input::Answered(CallId(0), opened), &mut out);
    let [Output::Ask(_, Request { ask: Ask::Write { data, .. }, .. })] = &out[..] else {
        panic!("{out:?}");
    };
    assert_eq!(**data, content);
    assert!(memory.contains(&(data.as_ptr() as usize)));
}

#[test]
fn calls_beyond_the_limit_wait_and_are_answered_in_order() {
    let mut lab = Lab::with(Limits { calls: 1, ..limits() });
    lab.mount(1, b"/");
    lab.answer(0, Ok(Reply::Walked(Vec::new(), Some(NodeId(1)))));
    lab.answer(0, identified(0));
    lab.text.clear();
    let calls = [2, 3].map(|xid| call(xid, &WireCall::GetAttr { object: handle(0) }));
    lab.sent.extend([(2, 1), (3, 1)]);
    lab.step("two calls", Input::Received(Buf::from(calls.concat())));
    assert!(!lab.session.is_hungry());
    lab.answer(0, Ok(Reply::Stat(stat(Kind::Directory))));
    assert!(lab.session.is_hungry());
    lab.answer(0, Ok(Reply::Stat(stat(Kind::Directory))));
    expect![[r#"
        two calls: ask 0 Stat
        <- 0 Stat: ask 0 Stat, 2 GetAttr
        <- 0 Stat: 3 GetAttr
    "#]]
    .assert_eq(&lab.text);
}

#[test]
fn everything_is_released_when_the_client_leaves() {
    let mut lab = Lab::looked_up(b"f", 5, 2);
    lab.call(3, &read(0));
    lab.answer(0, Ok(Reply::Opened(OpenId(9), stat(Kind::File))));
    lab.call(4, &WireCall::Lookup { dir: handle(0), name: b"g" });
    lab.answer(1, walked(Kind::File, 3));
    lab.call(5, &WireCall::Lookup { dir: handle(0), name: b"h" });
    lab.step("lost", Input::Lost);
    assert!(!lab.session.is_over());
    lab.answer(0, data(b"x"));
    lab.answer(1, identified(6));
    lab.answer(2, walked(Kind::File, 4));
    lab.wait(0);
    assert!(lab.session.is_over());
    expect![[r#"
        Read: ask 0 Open
        <- 0 Opened: ask 0 Read
        Lookup: ask 1 Walk
        <- 1 Walked: ask 1 FileHandle
        Lookup: ask 2 Walk
        lost: cancel 0, cancel 1, cancel 2, hang up: the client left
        <- 0 Data: close 9, release 2
        <- 1 FileHandle: release 3
        <- 2 Walked: release 4, release 1
        tick: 
    "#]]
    .assert_eq(&lab.text);
}

#[test]
fn states_md_is_fresh() {
    let get_attr = || Buf::from(call(2, &WireCall::GetAttr { object: handle(0) }));
    type Sample = (&'static str, Box<dyn Fn() -> Input>);
    let samples: Vec<Sample> = vec![
        ("Call", Box::new(move || Input::Received(get_attr()))),
        ("Nonsense", Box::new(|| Input::Received(Buf::from(&b"\x80\0\0\x04GET "[..])))),
        ("Answered", Box::new(|| Input::Answered(CallId(0), Err(Error::Io)))),
        ("Sent", Box::new(|| Input::Sent(0))),
        ("Tick", Box::new(|| Input::Tick)),
        ("Ended", Box::new(|| Input::Ended)),
        ("Lost", Box::new(|| Input::Lost)),
        ("Drain", Box::new(|| Input::Drain)),
    ];
    let mut drawing = Drawing::default();
    for state in [State::Ready, State::Parting, State::Closing] {
        for (label, input) in &samples {
            for busy in [false, true] {
                if !busy && matches!(input(), Input::Answered(..)) {
                    continue;
                }
                let name = |s: &Session| format!("{:?}", s.state);
                drawing.sample_as(label, sample(state, busy), input(), name);
            }
        }
    }
    drawing.assert_fresh(concat!(env!("CARGO_MANIFEST_DIR"), "/src/nfs/states.md"));
}

/// A session in a state, with or without a call in flight.
fn sample(state: State, busy: bool) -> Session {
    let mut lab = Lab::mounted();
    if busy {
        lab.call(2, &WireCall::GetAttr { object: handle(0) });
    }
    match state {
        State::Ready => {}
        State::Parting => lab.session.state = State::Parting,
        State::Closing => lab.step("lost", Input::Lost),
    }
    lab.session
}
