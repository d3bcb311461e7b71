use super::*;
mod conditional;
mod crowds;
mod durability;
mod walks;

use crate::request::OpenId;
use base::drawing::{Drawing, variant};
use base::op::{Detail, Op, Socket};
use base::{Access, Buf, Name, User};
use expect_test::expect;
use std::collections::VecDeque;
use wire::ninep::{Data, NO_TAG, Qid, Rmessage, Tmessage};

const SOCKET: Socket = Socket(9);

/// The tree with a scripted peer; records the messages sent.
struct Lab {
    remote: Remote,
    text: String,
    /// Tags of unanswered messages, in order.
    tags: VecDeque<u16>,
}

fn qid(path: u64, kind: u8) -> Qid {
    Qid { kind, version: 1, path }
}

fn getattr() -> Rmessage<'static> {
    Rmessage::Getattr {
        valid: 0x7ff,
        qid: qid(5, Qid::FILE),
        mode: 0o100_644,
        uid: 0,
        gid: 0,
        nlink: 1,
        rdev: 0,
        size: 3,
        blksize: 4096,
        blocks: 1,
        atime_sec: 0,
        atime_nsec: 0,
        mtime_sec: 0,
        mtime_nsec: 0,
        ctime_sec: 0,
        ctime_nsec: 0,
        btime_sec: 0,
        btime_nsec: 0,
        generation: 0,
        data_version: 0,
    }
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

impl Lab {
    fn new(config: Config) -> Lab {
        let remote = Remote::new(3, vec![Address::Unix(b"/s".to_vec())], b"here".to_vec(), config);
        let mut lab = Lab { remote, text: String::new(), tags: VecDeque::new() };
        lab.tick();
        lab
    }

    /// Returns a connected and attached tree, with an empty record.
    fn up(dialect: &'static [u8]) -> Lab {
        Lab::up_as(Config::default(), dialect)
    }

    fn up_as(config: Config, dialect: &'static [u8]) -> Lab {
        let mut lab = Lab::new(config);
        lab.connect();
        lab.send(&Rmessage::Version { msize: 8192, version: dialect });
        lab.send(&Rmessage::Attach { qid: qid(1, Qid::DIR) });
        lab.text.clear();
        lab
    }

    fn connect(&mut self) {
        let id = OpId(NodeId::new(3, 0).0);
        self.step(Input::Done(id, Done::Connected(Ok(SOCKET))));
    }

    /// Ends the connection on the server's side, and waits for the next attempt.
    fn hang_up(&mut self) {
        let id = OpId(NodeId::new(3, 1).0);
        self.step(Input::Done(id, Done::Received(Ok(Buf::default()))));
        self.tags.clear();
        self.remote.now = self.remote.now + Duration::from_secs(1);
        self.tick();
    }

    fn step(&mut self, input: Input) {
        let mut out = Vec::new();
        self.remote.step(self.remote.now, input, &mut out);
        self.remote.check();
        self.show(out);
        self.tick();
    }

    fn tick(&mut self) {
        let mut out = Vec::new();
        self.remote.tick(self.remote.now, &mut out);
        self.remote.check();
        self.show(out);
    }

    fn show(&mut self, out: Vec<Output>) {
        for output in out {
            match output {
                Output::Reply(id, Ok(reply)) => {
                    self.text += &format!("  reply {} {}\n", id.0, variant(&reply));
                }
                Output::Reply(id, Err(error)) => {
                    self.text += &format!("  reply {} {error:?}\n", id.0);
                }
                Output::Do(Op::Send { id, data, .. }) => {
                    let bytes: Vec<u8> = data.iter().flat_map(|buf| buf.to_vec()).collect();
                    self.handle(&bytes);
                    self.step(Input::Done(id, Done::Sent(Ok(()))));
                }
                Output::Do(Op::Receive { .. }) => {}
                Output::Do(op) => self.text += &format!("  {}\n", variant(&op)),
                other => panic!("{other:?}"),
            }
        }
    }

    fn handle(&mut self, mut bytes: &[u8]) {
        while let Some(size) = wire::ninep::frame_size(bytes) {
            let (tag, message) = Tmessage::decode(&bytes[..size]).unwrap();
            let text: String = format!("{message:?}").chars().take(80).collect();
            self.text += &format!("  hears {text}\n");
            self.tags.push_back(tag);
            bytes = &bytes[size..];
        }
    }

    fn last_news(&mut self) -> Option<LinkState> {
        std::iter::from_fn(|| self.remote.next_link_state()).last()
    }

    /// Replies to the oldest message.
    fn send(&mut self, message: &Rmessage<'_>) {
        let tag = self.tags.pop_front().unwrap_or(NO_TAG);
        self.say_to(tag, message);
    }

    fn say_to(&mut self, tag: u16, message: &Rmessage<'_>) {
        let mut bytes = Vec::new();
        message.encode(tag, &mut bytes);
        self.text += &format!("says {}\n", variant(message));
        self.receive(&bytes);
    }

    fn receive(&mut self, bytes: &[u8]) {
        let id = OpId(NodeId::new(3, 1).0);
        self.step(Input::Done(id, Done::Received(Ok(Buf::from(bytes)))));
    }

    fn ask(&mut self, id: u64, ask: Ask) {
        self.text += &format!("asks {}\n", variant(&ask));
        let request = Request { caller: Caller::Server, ask };
        self.step(Input::Ask(RequestId(id), request));
    }

    /// Opens a file, with an empty record.
    fn open(&mut self) -> (NodeId, OpenId) {
        let root = self.remote.root();
        let access = Access { read: true, write: true, ..Access::default() };
        self.ask(1, Ask::Walk { from: root, names: vec![name("f")] });
        let qids = [qid(5, Qid::FILE)].into_iter().collect();
        self.send(&Rmessage::Walk { qids });
        let node = NodeId::new(3, 1);
        self.ask(2, Ask::Open { node, access });
        self.send(&Rmessage::Walk { qids: [].into_iter().collect() });
        self.send(&Rmessage::Lopen { qid: qid(5, Qid::FILE), iounit: 0 });
        self.send(&getattr());
        self.text.clear();
        (node, OpenId::new(3, 0))
    }

    /// Creates the file `f` with qid 5; a walk to it follows.
    fn create(&mut self) {
        let (dir, gid) = (self.remote.root(), None);
        let access = Access { write: true, ..Access::default() };
        let ask = Ask::Create { dir, name: name("f"), access, exclusive: true, mode: 0o644, gid };
        self.ask(1, ask);
        self.send(&Rmessage::Walk { qids: [].into_iter().collect() });
        self.send(&Rmessage::Lcreate { qid: qid(5, Qid::FILE), iounit: 0 });
        self.send(&getattr());
    }
}

#[test]
fn a_file_is_made_written_and_given_back() {
    let mut lab = Lab::up(b"9P2000.L");
    lab.create();
    lab.send(&Rmessage::Walk { qids: [qid(5, Qid::FILE)].into_iter().collect() });
    let open = OpenId::new(3, 0);
    lab.ask(2, Ask::Write { open, offset: 7, data: Buf::from(&b"abc"[..]) });
    lab.send(&Rmessage::Write { count: 3 });
    lab.step(Input::Close(open));
    lab.step(Input::Release(NodeId::new(3, 1)));
    expect![[r#"
        asks Create
          hears Walk { fid: 0, newfid: 1, names: [] }
        says Walk
          hears Lcreate { fid: 1, name: [102], flags: 193, mode: 420, gid: 4294967295 }
        says Lcreate
          hears Getattr { fid: 1, mask: 2047 }
        says Getattr
          reply 1 Created
          hears Walk { fid: 0, newfid: 2, names: ["f"] }
        says Walk
        asks Write
          hears Write { fid: 1, offset: 7, data: Data([97, 98, 99]) }
        says Write
          reply 2 Written
          hears Clunk { fid: 1 }
          hears Clunk { fid: 2 }
    "#]]
    .assert_eq(&lab.text);
}

#[test]
fn a_directory_that_is_walked_from_keeps_its_fid_until_that_is_answered() {
    let mut lab = Lab::up(b"9P2000.L");
    lab.ask(1, Ask::Walk { from: lab.remote.root(), names: vec![name("d")] });
    lab.send(&Rmessage::Walk { qids: [qid(4, Qid::DIR)].into_iter().collect() });
    let (dir, gid) = (NodeId::new(3, 1), None);
    let access = Access { write: true, ..Access::default() };
    let ask = Ask::Create { dir, name: name("f"), access, exclusive: true, mode: 0o644, gid };
    lab.ask(2, ask);
    lab.send(&Rmessage::Walk { qids: [].into_iter().collect() });
    lab.send(&Rmessage::Lcreate { qid: qid(5, Qid::FILE), iounit: 0 });
    lab.text.clear();
    lab.send(&getattr());
    // Like a session that rebinds the fid of the directory to the new file.
    lab.step(Input::Release(dir));
    lab.send(&Rmessage::Walk { qids: [qid(5, Qid::FILE)].into_iter().collect() });
    expect![[r#"
        says Getattr
          reply 2 Created
          hears Walk { fid: 1, newfid: 3, names: ["f"] }
        says Walk
          hears Clunk { fid: 1 }
    "#]]
    .assert_eq(&lab.text);
}

#[test]
fn a_long_read_is_cut_into_pieces_and_ends_where_the_first_is_short() {
    let mut lab = Lab::up(b"9P2000.L");
    let (_, open) = lab.open();
    lab.ask(3, Ask::Read { open, offset: 100, count: 20_000, headroom: 4 });
    let tags: Vec<u16> = lab.tags.drain(..).collect();
    let data = vec![1; 8168];
    lab.say_to(tags[2], &Rmessage::Read { data: Data(&data[..3664]) });
    lab.say_to(tags[0], &Rmessage::Read { data: Data(&data) });
    lab.say_to(tags[1], &Rmessage::Read { data: Data(&data[..10]) });
    expect![[r#"
        asks Read
          hears Read { fid: 2, offset: 100, count: 8168 }
          hears Read { fid: 2, offset: 8268, count: 8168 }
          hears Read { fid: 2, offset: 16436, count: 3664 }
        says Read
        says Read
        says Read
          reply 3 Data
    "#]]
    .assert_eq(&lab.text);
}

#[test]
fn a_cancelled_request_waits_for_what_the_server_says() {
    let mut lab = Lab::up(b"9P2000.L");
    let (node, open) = lab.open();
    lab.ask(3, Ask::Read { open, offset: 0, count: 10, headroom: 0 });
    lab.step(Input::Cancel(RequestId(3)));
    lab.tags.pop_front();
    lab.send(&Rmessage::Flush {});
    lab.ask(4, Ask::Stat { node });
    lab.step(Input::Cancel(RequestId(4)));
    lab.send(&Rmessage::Lerror { ecode: 5 });
    lab.send(&Rmessage::Flush {});
    expect![[r#"
        asks Read
          hears Read { fid: 2, offset: 0, count: 10 }
          hears Flush { oldtag: 0 }
        says Flush
          reply 3 Cancelled
        asks Stat
          hears Getattr { fid: 1, mask: 2047 }
          hears Flush { oldtag: 0 }
        says Lerror
          reply 4 Io
        says Flush
    "#]]
    .assert_eq(&lab.text);
}

/// The rest is read through the open file, as after any read. A file of size zero with contents may
/// continue after any read.
#[test]
fn a_short_read_does_not_end_a_fetch() {
    let full = [(3, &b"a"[..], true), (3, b"abc", false), (3, b"abcd", false)];
    let empty = [(0, &b"a"[..], true), (0, b"", false)];
    for (claimed, data, is_open) in full.into_iter().chain(empty) {
        let mut attributes = getattr();
        if let Rmessage::Getattr { size, .. } = &mut attributes {
            *size = claimed;
        }
        let mut lab = Lab::up(b"9P2000.L");
        let ask = Ask::Fetch { root: None, path: vec![name("f")], read_max: 100, headroom: 0 };
        lab.ask(1, ask);
        lab.send(&Rmessage::Walk { qids: [qid(5, Qid::FILE)].into_iter().collect() });
        lab.send(&attributes);
        lab.send(&Rmessage::Walk { qids: [].into_iter().collect() });
        lab.send(&Rmessage::Lopen { qid: qid(5, Qid::FILE), iounit: 0 });
        lab.send(&Rmessage::Read { data: Data(data) });
        assert!(lab.text.contains("reply 1 Fetched"), "{}", lab.text);
        assert_eq!(lab.remote.opens.len(), usize::from(is_open), "{data:?} of {claimed}");
    }
}

#[test]
fn a_full_tree_serves_the_files_that_are_open() {
    let mut lab = Lab::up(b"9P2000.L");
    let (node, open) = lab.open();
    lab.remote.config.handles_max = 0;
    lab.ask(3, Ask::Walk { from: lab.remote.root(), names: vec![name("g")] });
    assert!(lab.text.contains("reply 3 TooManyOpen"), "{}", lab.text);
    lab.ask(4, Ask::Read { open, offset: 0, count: 3, headroom: 0 });
    lab.send(&Rmessage::Read { data: Data(b"abc") });
    lab.ask(5, Ask::Stat { node });
    lab.send(&getattr());
    let served = ["reply 4 Data", "reply 5 Stat"].iter().all(|reply| lab.text.contains(reply));
    assert!(served, "{}", lab.text);
}

/// The server replies to some of the pieces before it processes the flush, one of them at last.
#[test]
fn a_transfer_of_which_a_piece_was_flushed_is_cancelled() {
    let data = vec![1; 8168];
    let read = |open| Ask::Read { open, offset: 0, count: 16_336, headroom: 0 };
    let write = |open| Ask::Write { open, offset: 0, data: Buf::from(vec![1; 16_336]) };
    let cases: [(Ask, Rmessage<'_>); 2] = [
        (read(OpenId::new(3, 0)), Rmessage::Read { data: Data(&data) }),
        (write(OpenId::new(3, 0)), Rmessage::Write { count: 8168 }),
    ];
    for (ask, answer) in cases {
        for (flushed, answered) in [(0, 1), (1, 0)] {
            let mut lab = Lab::up(b"9P2000.L");
            lab.open();
            lab.ask(3, ask.clone());
            lab.step(Input::Cancel(RequestId(3)));
            let tags: Vec<u16> = lab.tags.drain(..).collect();
            lab.say_to(tags[2 + flushed], &Rmessage::Flush {});
            lab.say_to(tags[answered], &answer);
            assert!(lab.text.ends_with("reply 3 Cancelled\n"), "{}", lab.text);
        }
    }
}

/// The same for pieces that were queued.
#[test]
fn a_transfer_of_which_a_piece_was_never_sent_is_cancelled() {
    let data = vec![1; 8168];
    let mut lab = Lab::up_as(Config { calls_max: 1, ..Config::default() }, b"9P2000.L");
    let (_, open) = lab.open();
    lab.ask(3, Ask::Read { open, offset: 0, count: 16_336, headroom: 0 });
    lab.step(Input::Cancel(RequestId(3)));
    lab.send(&Rmessage::Read { data: Data(&data) });
    assert!(lab.text.ends_with("reply 3 Cancelled\n"), "{}", lab.text);
}

#[test]
fn a_server_of_9p2000_is_spoken_to_in_its_own_words() {
    let mut lab = Lab::new(Config::default());
    lab.connect();
    lab.send(&Rmessage::Version { msize: 8192, version: b"unknown" });
    lab.send(&Rmessage::Version { msize: 8192, version: b"9P2000" });
    lab.send(&Rmessage::Attach { qid: qid(1, Qid::DIR) });
    let root = lab.remote.root();
    lab.ask(1, Ask::Remove { dir: root, name: name("f"), directory: Some(false) });
    lab.send(&Rmessage::Walk { qids: [qid(5, Qid::FILE)].into_iter().collect() });
    lab.send(&Rmessage::Error { ename: b"permission denied" });
    lab.ask(2, Ask::ReadLink { node: root });
    expect![[r#"
          Connect
          hears Version { msize: 1048576, version: [57, 80, 50, 48, 48, 48, 46, 76] }
        says Version
          hears Version { msize: 1048576, version: [57, 80, 50, 48, 48, 48] }
        says Version
          hears Attach { fid: 0, afid: 4294967295, uname: [110, 111, 110, 101], aname: [104, 101
        says Attach
        asks Remove
          hears Walk { fid: 0, newfid: 1, names: ["f"] }
        says Walk
          hears Remove { fid: 1 }
        says Error
          reply 1 Denied
        asks ReadLink
          reply 2 Unsupported
    "#]]
    .assert_eq(&lab.text);
}

/// Two clients read one directory, one of them from the start: the other's entries keep their
/// numbers.
#[test]
fn a_rewind_waits_for_the_read_in_progress() {
    let mut lab = Lab::up(b"9P2000");
    let from = lab.remote.root();
    lab.ask(1, Ask::Walk { from, names: vec![name("d")] });
    lab.send(&Rmessage::Walk { qids: [qid(5, Qid::DIR)].into_iter().collect() });
    lab.ask(2, Ask::Open { node: NodeId::new(3, 1), access: Access::READ });
    lab.send(&Rmessage::Walk { qids: [].into_iter().collect() });
    lab.send(&Rmessage::Open { qid: qid(5, Qid::DIR), iounit: 0 });
    lab.send(&Rmessage::Stat { stat: directory(b"d") });
    let list = |cookie| {
        let open = OpenId::new(3, 0);
        Ask::List { open, cookie, bytes_max: 1000, detail: Detail::Name }
    };
    let entries = |name: &[u8]| {
        let mut data = Vec::new();
        directory(name).put_entry(&mut data);
        data
    };
    lab.ask(3, list(0));
    lab.send(&Rmessage::Read { data: Data(&entries(b"a")) });
    lab.text.clear();
    lab.ask(4, list(1));
    lab.ask(5, list(0));
    assert!(lab.remote.deadline().is_none_or(|at| at > lab.remote.now), "nobody polls");
    lab.send(&Rmessage::Read { data: Data(&entries(b"b")) });
    expect![[r#"
        asks List
          hears Read { fid: 2, offset: 50, count: 8168 }
        asks List
        says Read
          reply 4 Entries
          hears Read { fid: 2, offset: 0, count: 8168 }
    "#]]
    .assert_eq(&lab.text);
}

fn directory(name: &[u8]) -> wire::ninep::Stat<'_> {
    let (qid, mode) = (qid(5, Qid::DIR), wire::ninep::Stat::DIR | 0o755);
    wire::ninep::Stat { qid, mode, name, ..wire::ninep::Stat::default() }
}

#[test]
fn a_server_without_tremove_hears_the_name() {
    let mut lab = Lab::up(b"9P2000.L");
    let (node, _) = lab.open();
    lab.ask(3, Ask::RemoveNode { node });
    lab.send(&Rmessage::Walk { qids: [].into_iter().collect() });
    lab.send(&Rmessage::Lerror { ecode: 38 });
    lab.send(&Rmessage::Clunk {});
    lab.send(&Rmessage::Unlinkat {});
    expect![[r#"
        asks RemoveNode
          hears Walk { fid: 1, newfid: 3, names: [] }
        says Walk
          hears Remove { fid: 3 }
        says Lerror
          hears Clunk { fid: 3 }
          hears Unlinkat { dfid: 0, name: [102], flags: 0 }
        says Clunk
        says Unlinkat
          reply 3 Done
    "#]]
    .assert_eq(&lab.text);
}

#[test]
fn messages_that_are_no_answers_end_the_connection() {
    let answers: [(u16, Rmessage<'_>); 3] = [
        (77, Rmessage::Clunk {}),
        (0, Rmessage::Clunk {}),
        (0, Rmessage::Walk { qids: [qid(5, 0), qid(6, 0)].into_iter().collect() }),
    ];
    for (tag, message) in answers {
        let mut lab = Lab::up(b"9P2000.L");
        let root = lab.remote.root();
        lab.ask(1, Ask::Walk { from: root, names: vec![name("f")] });
        lab.say_to(tag, &message);
        assert!(lab.text.contains("Hangup"), "{}", lab.text);
    }
    for bytes in [&[3, 0, 0, 0][..], &[255, 255, 255, 255], &[8, 0, 0, 0, 200, 0, 0, 0]] {
        let mut lab = Lab::up(b"9P2000.L");
        lab.receive(bytes);
        assert!(lab.text.contains("Hangup"), "{}", lab.text);
        assert!(matches!(lab.last_news(), Some(LinkState::Down(_))));
    }
}

/// A walk along one name finds one file or fails.
#[test]
fn an_entry_that_is_none_or_two_ends_the_connection() {
    for dialect in [&b"9P2000.L"[..], b"9P2000"] {
        for qids in [&[][..], &[qid(5, Qid::FILE), qid(6, Qid::FILE)]] {
            let mut lab = Lab::up(dialect);
            let (from, new_name) = (lab.remote.root(), name("g"));
            let name = name("f");
            lab.ask(1, Ask::Rename { from, name, to: from, new_name, replace: false });
            lab.send(&Rmessage::Walk { qids: qids.iter().copied().collect() });
            assert!(lab.text.contains("reply 1 Io\n  Hangup"), "{}", lab.text);
        }
    }
}

/// A receive may complete with data after the connection was abandoned.
#[test]
fn bytes_after_the_end_of_a_connection_are_ignored() {
    let endings: [fn(&mut Lab); 2] = [
        |lab| {
            let mut out = Vec::new();
            lab.remote.close(lab.remote.now, &mut out);
            lab.show(out);
        },
        |lab| {
            lab.remote.connection.begin_send();
            let id = OpId(NodeId::new(3, 2).0);
            lab.step(Input::Done(id, Done::Sent(Err(Error::Io))));
        },
    ];
    for end in endings {
        for bytes in [&[3, 0, 0, 0][..], &[255, 255, 255, 255], &[7, 0, 0, 0, 109, 0, 0]] {
            let mut lab = Lab::up(b"9P2000.L");
            end(&mut lab);
            assert_eq!(lab.text, "  Hangup\n");
            lab.receive(bytes);
            assert_eq!(lab.text, "  Hangup\n  CloseSocket\n");
        }
    }
}

/// A missing user number never becomes the superuser.
#[test]
fn the_server_itself_is_nobody_without_a_user() {
    for (config, uid) in [
        (Config::default(), NO_UID),
        (Config { server_uid: 1000, ..Config::default() }, 1000),
        (Config { server_uid: 1000, user: Some((b"u".to_vec(), 7)), ..Config::default() }, 7),
    ] {
        let remote = Remote::new(3, vec![Address::Unix(b"/s".to_vec())], Vec::new(), config);
        assert_eq!(remote.user_of(&Caller::Server), uid);
    }
}

/// The root is never released, and has a fid for each user.
#[test]
fn fids_of_users_who_are_long_gone_are_given_back() {
    let mut lab = Lab::up(b"9P2000.L");
    let node = lab.remote.root();
    for uid in 1..200 {
        let user = User { uid, gid: uid, groups: Vec::new(), commands: false };
        let request = Request { caller: Caller::User(user.into()), ask: Ask::Stat { node } };
        lab.step(Input::Ask(RequestId(uid.into()), request));
        lab.send(&Rmessage::Attach { qid: qid(1, Qid::DIR) });
        if lab.tags.len() > 1 {
            lab.send(&Rmessage::Clunk {});
        }
        lab.send(&getattr());
        assert!(lab.tags.is_empty() && lab.text.ends_with("Stat\n"), "{}", lab.text);
    }
    assert!(lab.remote.calls.session().fids() < 100, "{}", lab.remote.calls.session().fids());
}

#[test]
fn requests_that_may_have_changed_something_are_not_repeated() {
    let mut lab = Lab::up(b"9P2000.L");
    let (node, open) = lab.open();
    lab.ask(3, Ask::Write { open, offset: 0, data: Buf::from(&b"abc"[..]) });
    lab.ask(4, Ask::Stat { node });
    let id = OpId(NodeId::new(3, 1).0);
    lab.step(Input::Done(id, Done::Received(Ok(Buf::default()))));
    expect![[r#"
        asks Write
          hears Write { fid: 2, offset: 0, data: Data([97, 98, 99]) }
        asks Stat
          hears Getattr { fid: 1, mask: 2047 }
          reply 3 Disconnected
          Hangup
          CloseSocket
    "#]]
    .assert_eq(&lab.text);
}

/// A name may resolve to several addresses, and the first may be unusable.
#[test]
fn all_addresses_of_a_server_are_tried_in_turn() {
    let to = vec![Address::Unix(b"/a".to_vec()), Address::Unix(b"/b".to_vec())];
    let mut remote = Remote::new(3, to, Vec::new(), Config::default());
    let (mut now, mut tried) = (Instant(0), Vec::new());
    while tried.len() < 4 {
        let mut out = Vec::new();
        remote.tick(now, &mut out);
        if let Some(Output::Do(Op::Connect { id, to: Address::Unix(path) })) = out.pop() {
            tried.push(path);
            let done = Done::Connected(Err(Error::Disconnected));
            remote.step(now, Input::Done(id, done), &mut out);
        }
        now = remote.deadline().expect("it tries again");
    }
    assert_eq!(tried, [b"/a", b"/b", b"/a", b"/b"]);
}

/// A connection that is established in spite of its cancellation is closed.
#[test]
fn a_connection_that_nobody_wants_any_more_is_closed() {
    let mut lab = Lab::new(Config::default());
    let mut out = Vec::new();
    lab.remote.close(lab.remote.now, &mut out);
    lab.text.clear();
    lab.connect();
    assert!(lab.remote.is_closed());
    assert_eq!(lab.text, "  CloseSocket\n");
}

/// Messages queued behind requests without a reply do not wait for ever.
#[test]
fn a_line_that_does_not_move_is_cleared() {
    let config = Config { calls_max: 2, ..Config::default() };
    let mut lab = Lab::up_as(config, b"9P2000.L");
    let (_, open) = lab.open();
    let read = |offset| Ask::Read { open, offset, count: 3, headroom: 0 };
    (3..7).for_each(|id| lab.ask(id, read(id)));
    lab.text.clear();
    let wait = |lab: &mut Lab, seconds| {
        lab.remote.now = lab.remote.now + Duration::from_secs(seconds);
        lab.tick();
    };
    wait(&mut lab, 9);
    // As long as some requests are answered, the others wait.
    lab.send(&Rmessage::Read { data: Data(b"abc") });
    wait(&mut lab, 9);
    assert!(!lab.text.contains("Busy"), "{}", lab.text);
    lab.tick();
    assert_eq!(lab.remote.deadline(), Some(lab.remote.now + Duration::from_secs(1)));
    wait(&mut lab, 1);
    lab.step(Input::Close(open));
    wait(&mut lab, 30);
    lab.send(&Rmessage::Read { data: Data(b"abc") });
    lab.send(&Rmessage::Read { data: Data(b"abc") });
    expect![[r#"
        says Read
          reply 3 Data
          hears Read { fid: 2, offset: 5, count: 3 }
          reply 6 Busy
        says Read
          reply 4 Data
        says Read
          reply 5 Data
          hears Clunk { fid: 2 }
    "#]]
    .assert_eq(&lab.text);
}

/// A transient error leaves an open file recoverable; an error of the file makes it stale.
#[test]
fn an_open_file_survives_a_server_that_cannot_just_now() {
    for (ecode, stale) in [(16, false), (104, false), (110, false), (116, true), (13, true)] {
        let mut lab = Lab::up(b"9P2000.L");
        let (_, open) = lab.open();
        lab.hang_up();
        lab.connect();
        lab.send(&Rmessage::Version { msize: 8192, version: b"9P2000.L" });
        lab.send(&Rmessage::Attach { qid: qid(1, Qid::DIR) });
        let read = || Ask::Read { open, offset: 0, count: 3, headroom: 0 };
        lab.ask(3, read());
        lab.send(&Rmessage::Lerror { ecode });
        lab.text.clear();
        lab.ask(4, read());
        assert_eq!(lab.text.contains("reply 4 Stale"), stale, "{ecode}: {}", lab.text);
    }
}

/// Draws the pending requests: the effect of each kind of reply.
#[test]
fn states_md_is_fresh() {
    let mut drawing = Drawing::default();
    for (ask, answers) in scripts() {
        for count in 0..answers.len() {
            let (mut lab, node, open) = prepared();
            lab.ask(9, ask(node, open));
            answers[..count].iter().for_each(|answer| lab.send(answer));
            for (label, message) in [("", answers[count].clone()), ("Failed", failed())] {
                let (mut lab, node, open) = prepared();
                lab.ask(9, ask(node, open));
                answers[..count].iter().for_each(|answer| lab.send(answer));
                let tag = lab.tags.pop_front().unwrap();
                let mut bytes = Vec::new();
                message.encode(tag, &mut bytes);
                let label = if label.is_empty() { variant(&message) } else { label.to_string() };
                let id = OpId(NodeId::new(3, 1).0);
                let input = Input::Done(id, Done::Received(Ok(Buf::from(bytes))));
                lab.remote.calls.take_unsent();
                drawing.sample_as(&label, lab.remote, input, |remote| {
                    let step = remote.pending.iter().next().map(|(_, slot)| slot.step.name());
                    step.unwrap_or("over").to_string()
                });
            }
        }
    }
    drawing.assert_fresh(concat!(env!("CARGO_MANIFEST_DIR"), "/src/remote/states.md"));
}

fn failed() -> Rmessage<'static> {
    Rmessage::Lerror { ecode: 5 }
}

fn prepared() -> (Lab, NodeId, OpenId) {
    let mut lab = Lab::up(b"9P2000.L");
    let (node, open) = lab.open();
    (lab, node, open)
}

type Script = (fn(NodeId, OpenId) -> Ask, Vec<Rmessage<'static>>);

/// Returns requests with the replies that they take.
fn scripts() -> Vec<Script> {
    let file = qid(5, Qid::FILE);
    let none = || Rmessage::Walk { qids: [].into_iter().collect() };
    let one = || Rmessage::Walk { qids: [qid(6, Qid::FILE)].into_iter().collect() };
    vec![
        (|node, _| Ask::Walk { from: up(node), names: vec![name("g")] }, vec![one()]),
        (
            |node, _| Ask::Open { node, access: Access::READ },
            vec![none(), Rmessage::Lopen { qid: file, iounit: 0 }, getattr()],
        ),
        (
            |_, open| Ask::Read { open, offset: 0, count: 3, headroom: 0 },
            vec![Rmessage::Read { data: Data(b"abc") }],
        ),
        (
            |_, open| Ask::Write { open, offset: 0, data: Buf::from(&b"abc"[..]) },
            vec![Rmessage::Write { count: 3 }],
        ),
        (|_, open| Ask::Sync { open, data_only: false }, vec![Rmessage::Fsync {}]),
        (
            |node, _| Ask::GetAttr { node, name: b"a".to_vec() },
            vec![Rmessage::Xattrwalk { size: 3 }, Rmessage::Read { data: Data(b"abc") }],
        ),
        (
            |node, _| Ask::SetAttr {
                node,
                name: b"a".to_vec(),
                value: b"abc".to_vec(),
                create: None,
            },
            vec![
                none(),
                Rmessage::Xattrcreate {},
                Rmessage::Write { count: 3 },
                Rmessage::Clunk {},
            ],
        ),
        (
            |node, _| Ask::Rename {
                from: up(node),
                name: name("f"),
                to: up(node),
                new_name: name("g"),
                replace: false,
            },
            vec![one()],
        ),
        (|node, _| Ask::RemoveNode { node }, vec![none(), Rmessage::Remove {}]),
    ]
}

fn up(node: NodeId) -> NodeId {
    NodeId::new(node.tree(), ROOT)
}
