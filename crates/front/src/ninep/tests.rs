#![allow(clippy::wildcard_enum_match_arm, reason = "a test names the variants it is about")]

mod attrs;
mod counts;
mod paths;

use super::*;
use base::drawing::{Drawing, variant};
use base::op::Who;
use base::rng::{Rng, seeded};
use base::{Kind, Stat, User};
use expect_test::expect;
use std::sync::Arc;
use tree::{Ask, NodeId, OpenId};
use wire::ninep::{Data, NO_FID, Names, Stat as WireStat};

fn export() -> Export {
    Export {
        root: NodeId(0),
        device: 1,
        path: b"/srv".to_vec(),
        wall: base::Time::from_secs(0),
        limits: Limits { msize: 8192, fids: 8, handles: 100, calls: 8, bytes: 1 << 20 },
        web: crate::Web::default(),
        nfs: crate::Nfs::default(),
        services: [].into(),
    }
}

fn session(identity: Identity) -> Session {
    Session::new(export(), identity)
}

fn message(tag: u16, message: Tmessage<'_>) -> Buf {
    let mut bytes = Vec::new();
    message.encode(tag, &mut bytes);
    Buf::from(bytes)
}

fn stat(kind: Kind) -> Stat {
    Stat { kind, device: 1, inode: 7, size: 3, mode: 0o644, ..Stat::default() }
}

/// A client and a tree in one: sends messages, replies to the session, and records the trace.
struct Lab {
    session: Session,
    text: String,
}

impl Lab {
    fn new(identity: Identity) -> Lab {
        Lab { session: session(identity), text: String::new() }
    }

    fn linux() -> Lab {
        let mut lab = Lab::new(Identity::Fixed(Caller::Server));
        lab.send(NO_TAG, Tmessage::Version { msize: 1 << 20, version: b"9P2000.L" });
        lab
    }

    fn step(&mut self, label: String, input: Input) {
        let mut out = Vec::new();
        self.session.step(Instant(0), input, &mut out);
        self.session.check();
        // Types are part of the messages, too.
        let others = out.iter().filter(|output| !matches!(output, Output::Replied(_)));
        let out: Vec<String> = others.map(show).collect();
        self.text += &format!("{label}: {}\n", out.join(", "));
    }

    fn send(&mut self, tag: u16, what: Tmessage<'_>) {
        let label = format!("T{} {tag}", variant(&what));
        self.step(label, Input::Received(message(tag, what)));
    }

    fn answer(&mut self, call: u32, reply: Result<Reply, Error>) {
        let label = match &reply {
            Ok(reply) => format!("<- {call} {}", variant(reply)),
            Err(error) => format!("<- {call} {error:?}"),
        };
        self.step(label, Input::Answered(CallId(call), reply));
    }

    fn attach(&mut self) {
        let (uname, aname) = (&b"me"[..], &b""[..]);
        self.send(1, Tmessage::Attach { fid: 1, afid: NO_FID, uname, aname, uid: Some(5) });
        self.answer(0, walked(&[Kind::Directory], 0));
    }
}

fn walked(kinds: &[Kind], node: u64) -> Result<Reply, Error> {
    Ok(Reply::Walked(kinds.iter().map(|kind| stat(*kind)).collect(), Some(NodeId(node))))
}

fn show(output: &Output) -> String {
    match output {
        Output::Ask(call, request) => format!("ask {} {}", call.0, variant(&request.ask)),
        Output::Cancel(call) => format!("cancel {}", call.0),
        Output::Release(node) => format!("release {}", node.0),
        Output::Close(open) => format!("close {}", open.0),
        Output::Abandon(open) => format!("abandon {}", open.0),
        Output::Finish => "finish".to_string(),
        Output::Replied(kind) => format!("replied {kind}"),
        Output::Called(..) | Output::Claim(..) | Output::Settle(..) => unreachable!("of NFS"),
        Output::Locks(..) | Output::Account(_) => {
            unreachable!("{output:?} of 9P")
        }
        Output::Hangup(reason) => format!("hang up: {reason}"),
        Output::Send(bytes) => match wire::ninep::Rmessage::decode(bytes) {
            Ok((tag, Rmessage::Lerror { ecode })) => format!("Rlerror {tag} ({ecode})"),
            Ok((tag, Rmessage::Error { ename })) => {
                format!("Rerror {tag} ({})", String::from_utf8_lossy(ename))
            }
            Ok((tag, message)) => format!("R{} {tag}", variant(&message)),
            Err(error) => format!("nonsense: {error}"),
        },
    }
}

const NO_TAG: u16 = wire::ninep::NO_TAG;

#[test]
fn a_file_is_read() {
    let mut lab = Lab::linux();
    lab.attach();
    let names = Names::new(&[b"a", b"b"]).unwrap();
    lab.send(2, Tmessage::Walk { fid: 1, newfid: 2, names });
    lab.answer(0, walked(&[Kind::Directory, Kind::File], 5));
    lab.send(3, Tmessage::Lopen { fid: 2, flags: 0 });
    lab.answer(0, Ok(Reply::Opened(OpenId(9), stat(Kind::File))));
    lab.send(4, Tmessage::Read { fid: 2, offset: 0, count: 100 });
    lab.send(5, Tmessage::Getattr { fid: 2, mask: !0 });
    lab.answer(1, Ok(Reply::Stat(stat(Kind::File))));
    lab.answer(0, Ok(Reply::Data(Buf::from(&b"xyz"[..]))));
    lab.send(6, Tmessage::Clunk { fid: 2 });
    lab.send(7, Tmessage::Clunk { fid: 2 });
    expect![[r#"
        TVersion 65535: RVersion 65535
        TAttach 1: ask 0 Walk
        <- 0 Walked: RAttach 1
        TWalk 2: ask 0 Walk
        <- 0 Walked: RWalk 2
        TLopen 3: ask 0 Open
        <- 0 Opened: RLopen 3
        TRead 4: ask 0 Read
        TGetattr 5: ask 1 Stat
        <- 1 Stat: RGetattr 5
        <- 0 Data: RRead 4
        TClunk 6: close 9, release 5, RClunk 6
        TClunk 7: Rlerror 7 (22)
    "#]]
    .assert_eq(&lab.text);
}

/// Returns all bytes sent when `reply` answers a read; and the bytes that count when it is sent.
fn read_on_the_wire(version: &[u8], reply: Reply) -> (Vec<u8>, usize) {
    let mut session = session(Identity::Fixed(Caller::Server));
    let (msize, uname, aname) = (8192, &b"me"[..], &b""[..]);
    let open = match version {
        b"9P2000" => Tmessage::Open { fid: 1, mode: 0 },
        _linux => Tmessage::Lopen { fid: 1, flags: 0 },
    };
    let inputs = [
        Input::Received(message(NO_TAG, Tmessage::Version { msize, version })),
        Input::Received(message(
            1,
            Tmessage::Attach { fid: 1, afid: NO_FID, uname, aname, uid: None },
        )),
        Input::Answered(CallId(0), walked(&[Kind::File], 0)),
        Input::Received(message(2, open)),
        Input::Answered(CallId(0), Ok(Reply::Opened(OpenId(9), stat(Kind::File)))),
        Input::Received(message(3, Tmessage::Read { fid: 1, offset: 0, count: 4000 })),
        Input::Answered(CallId(0), Ok(reply)),
    ];
    let mut out = Vec::new();
    inputs.into_iter().for_each(|input| session.step(Instant(0), input, &mut out));
    session.check();
    let mut wire = Vec::new();
    for output in out {
        if let Output::Send(bytes) = output {
            wire.extend_from_slice(&bytes);
        }
    }
    assert_eq!(session.bytes(), wire.len());
    let outputs = wire.len();
    session.step(Instant(0), Input::Sent(outputs), &mut Vec::new());
    (wire, session.bytes())
}

#[test]
fn data_in_pieces_is_the_same_on_the_wire() {
    let bytes: Vec<u8> = (0..1000u32).map(|at| at as u8).collect();
    let block = base::Block::from_bytes(&bytes, 1024);
    let pieces = [0..512, 512..512, 512..1000];
    let pieces = pieces.map(|range| Buf::shared(block.clone(), range)).to_vec();
    for version in [&b"9P2000"[..], b"9P2000.L"] {
        let whole = read_on_the_wire(version, Reply::Data(Buf::from(&bytes[..])));
        assert!(whole.0.ends_with(&bytes));
        assert_eq!(read_on_the_wire(version, Reply::Pieces(pieces.clone())), whole);
        let end = read_on_the_wire(version, Reply::Data(Buf::default()));
        assert_eq!(read_on_the_wire(version, Reply::Pieces(Vec::new())), end);
    }
}

#[test]
fn pieces_leave_behind_a_header_without_a_copy() {
    let mut lab = Lab::linux();
    lab.attach();
    lab.send(2, Tmessage::Lopen { fid: 1, flags: 0 });
    lab.answer(0, Ok(Reply::Opened(OpenId(9), stat(Kind::File))));
    lab.send(3, Tmessage::Read { fid: 1, offset: 0, count: 100 });
    let block = base::Block::from_bytes(b"shared", 512);
    let pieces = vec![Buf::shared(block.clone(), 0..3), Buf::shared(block.clone(), 3..6)];
    let mut out = Vec::new();
    let input = Input::Answered(CallId(0), Ok(Reply::Pieces(pieces)));
    lab.session.step(Instant(0), input, &mut out);
    let [Output::Replied(_), Output::Send(header), Output::Send(first), Output::Send(second)] =
        &out[..]
    else {
        panic!("{out:?}");
    };
    assert_eq!(**header, wire::ninep::read_header(3, 6));
    assert!(first.as_ptr() == block.as_ptr() && &**second == b"red");
}

#[test]
fn a_flushed_read_is_given_up_and_a_flushed_write_is_answered_first() {
    let mut lab = Lab::linux();
    lab.attach();
    lab.send(2, Tmessage::Lcreate { fid: 1, name: b"f", flags: 2, mode: 0o600, gid: 0 });
    lab.answer(0, Ok(Reply::Created(NodeId(3), OpenId(4), stat(Kind::File))));
    lab.text.clear();
    lab.send(10, Tmessage::Read { fid: 1, offset: 0, count: 1 });
    lab.send(11, Tmessage::Flush { oldtag: 10 });
    lab.send(10, Tmessage::Getattr { fid: 1, mask: 0 });
    lab.answer(0, Ok(Reply::Data(Buf::default())));
    lab.answer(1, Ok(Reply::Stat(stat(Kind::File))));
    lab.send(20, Tmessage::Write { fid: 1, offset: 0, data: Data(b"x") });
    lab.send(21, Tmessage::Flush { oldtag: 20 });
    lab.send(22, Tmessage::Flush { oldtag: 20 });
    lab.answer(1, Ok(Reply::Written(1)));
    lab.send(30, Tmessage::Write { fid: 1, offset: 0, data: Data(b"x") });
    lab.send(31, Tmessage::Flush { oldtag: 30 });
    lab.answer(1, Err(Error::Cancelled));
    lab.send(40, Tmessage::Flush { oldtag: 99 });
    expect![[r#"
        TRead 10: ask 0 Read
        TFlush 11: cancel 0, RFlush 11
        TGetattr 10: ask 1 Stat
        <- 0 Data: 
        <- 1 Stat: RGetattr 10
        TWrite 20: ask 1 Write
        TFlush 21: cancel 1
        TFlush 22: 
        <- 1 Written: RWrite 20, RFlush 21, RFlush 22
        TWrite 30: ask 1 Write
        TFlush 31: cancel 1
        <- 1 Cancelled: RFlush 31
        TFlush 40: RFlush 40
    "#]]
    .assert_eq(&lab.text);
}

#[test]
fn answers_do_not_let_more_messages_begin_than_the_turn_allows() {
    let mut lab = Lab::linux();
    lab.attach();
    lab.text.clear();
    lab.session.set_room(Room { messages: 2, ..Room::ALL });
    let mut all = Buf::default();
    (2..7).for_each(|tag| all.extend(&message(tag, Tmessage::Getattr { fid: 1, mask: !0 })));
    lab.step("five".into(), Input::Received(all));
    lab.answer(0, Ok(Reply::Stat(stat(Kind::Directory))));
    lab.answer(1, Ok(Reply::Stat(stat(Kind::Directory))));
    assert_eq!(lab.session.deadline(), Some(Instant(0)), "they go on in the next turn");
    lab.step("tick".into(), Input::Tick);
    lab.answer(0, Ok(Reply::Stat(stat(Kind::Directory))));
    lab.step("tick".into(), Input::Tick);
    assert_eq!(lab.session.deadline(), None, "all have begun");
    expect![[r#"
        five: ask 0 Stat, ask 1 Stat
        <- 0 Stat: RGetattr 2
        <- 1 Stat: RGetattr 3
        tick: ask 1 Stat, ask 0 Stat
        <- 0 Stat: RGetattr 5
        tick: ask 0 Stat
    "#]]
    .assert_eq(&lab.text);
}

#[test]
fn too_many_flushes_of_one_tag_end_the_connection() {
    let mut lab = Lab::linux();
    lab.attach();
    lab.send(2, Tmessage::Mkdir { dfid: 1, name: b"d", mode: 0, gid: 0 });
    for tag in 10..26 {
        lab.send(tag, Tmessage::Flush { oldtag: 2 });
    }
    assert_eq!(lab.text.matches("cancel").count(), 1);
    assert!(!lab.text.contains("hang up"));
    lab.send(26, Tmessage::Flush { oldtag: 2 });
    assert!(lab.text.ends_with("hang up: a tag was flushed too often\n"), "{}", lab.text);
}

#[test]
fn the_served_path_ends_where_a_name_ends() {
    for (aname, names) in [
        (&b"/srv"[..], &[&b"."[..]][..]),
        (b"/srv/", &[b"."]),
        (b"/srv/sub", &[b".", b"sub"]),
        (b"/srvsub", &[b".", b"srvsub"]),
        (b"sub", &[b".", b"sub"]),
    ] {
        let mut session = session(Identity::Fixed(Caller::Server));
        let mut out = Vec::new();
        for (tag, what) in [
            (NO_TAG, Tmessage::Version { msize: 8192, version: b"9P2000.L" }),
            (1, Tmessage::Attach { fid: 1, afid: NO_FID, uname: b"me", aname, uid: None }),
        ] {
            session.step(Instant(0), Input::Received(message(tag, what)), &mut out);
        }
        let Some(Output::Ask(_, Request { ask: Ask::Walk { names: sent, .. }, .. })) = out.pop()
        else {
            panic!("it walks");
        };
        assert!(sent.iter().map(base::Name::as_bytes).eq(names.iter().copied()), "{sent:?}");
    }
}

/// A session with a file open as fid 1, and the maximum number of calls, all of them hanging reads.
fn at_the_limit() -> Lab {
    let mut lab = Lab::linux();
    lab.attach();
    lab.send(2, Tmessage::Lcreate { fid: 1, name: b"f", flags: 2, mode: 0o600, gid: 0 });
    lab.answer(0, Ok(Reply::Created(NodeId(3), OpenId(4), stat(Kind::File))));
    for tag in 10..18 {
        lab.send(tag, Tmessage::Read { fid: 1, offset: 0, count: 1 });
    }
    lab.text.clear();
    lab
}

#[test]
fn at_the_limit_a_flush_is_answered_and_what_waits_is_answered_in_order() {
    let mut lab = at_the_limit();
    for tag in 20..24 {
        lab.send(tag, Tmessage::Getattr { fid: 1, mask: 0 });
    }
    assert!(lab.session.is_hungry() && lab.session.bytes() > lab.session.outstanding);
    lab.send(30, Tmessage::Flush { oldtag: 20 });
    lab.send(31, Tmessage::Flush { oldtag: 10 });
    lab.answer(2, Ok(Reply::Data(Buf::default())));
    lab.answer(0, Ok(Reply::Data(Buf::default())));
    lab.answer(3, Ok(Reply::Data(Buf::default())));
    lab.send(32, Tmessage::Clunk { fid: 1 });
    lab.send(33, Tmessage::Flush { oldtag: 32 });
    lab.send(24, Tmessage::Getattr { fid: 1, mask: 0 });
    expect![[r#"
        TGetattr 20: 
        TGetattr 21: 
        TGetattr 22: 
        TGetattr 23: 
        TFlush 30: RFlush 30
        TFlush 31: cancel 0, RFlush 31, ask 8 Stat
        <- 2 Data: RRead 12, ask 2 Stat
        <- 0 Data: 
        <- 3 Data: RRead 13, ask 3 Stat
        TClunk 32: 
        TFlush 33: close 4, release 3, RFlush 33
        TGetattr 24: 
    "#]]
    .assert_eq(&lab.text);
    lab.send(24, Tmessage::Getattr { fid: 1, mask: 0 });
    assert!(lab.text.ends_with("hang up: a tag was used twice\n"), "{}", lab.text);
}

#[test]
fn flushed_calls_stay_within_the_call_limit() {
    let mut lab = at_the_limit();
    for tag in 10..18 {
        lab.send(tag, Tmessage::Flush { oldtag: tag });
    }
    for tag in 20..29 {
        lab.send(tag, Tmessage::Getattr { fid: 1, mask: 0 });
    }
    assert_eq!(lab.session.calls.len(), 16);
    lab.send(20, Tmessage::Flush { oldtag: 20 });
    assert_eq!(lab.session.calls.len(), 16, "there may be twice as many in all");
    lab.answer(0, Ok(Reply::Data(Buf::default())));
    assert!(lab.text.ends_with("<- 0 Data: ask 0 Stat\n"), "{}", lab.text);
}

#[test]
fn only_when_no_more_can_be_parked_is_the_socket_not_read() {
    let mut lab = at_the_limit();
    for tag in 100..1124 {
        lab.send(tag, Tmessage::Getattr { fid: 1, mask: 0 });
        assert!(lab.session.is_hungry());
    }
    lab.send(2000, Tmessage::Getattr { fid: 1, mask: 0 });
    assert!(!lab.session.is_hungry());
    lab.answer(0, Ok(Reply::Data(Buf::default())));
    assert!(lab.session.is_hungry());
}

#[test]
fn a_message_is_given_room_as_it_comes_and_the_room_counts() {
    let limits = Limits { msize: 1 << 20, ..export().limits };
    let mut session = Session::new(Export { limits, ..export() }, Identity::Fixed(Caller::Server));
    let step = |session: &mut Session, bytes: Buf| {
        let mut out = Vec::new();
        session.step(Instant(0), Input::Received(bytes), &mut out);
        session.check();
        out
    };
    step(&mut session, message(NO_TAG, Tmessage::Version { msize: 1 << 20, version: b"9P2000.L" }));
    let data = vec![7; 500_000];
    let whole = message(5, Tmessage::Write { fid: 1, offset: 0, data: Data(&data) });
    let unsent = session.bytes();
    let (mut rest, mut bytes_max) = (&whole[..], 0);
    step(&mut session, Buf::from(&rest[..4]));
    rest = &rest[4..];
    while !rest.is_empty() {
        assert!(session.is_hungry());
        let before = session.bytes();
        let (mut into, _) = session.receive_into().into_buf(4096);
        assert!(into.tailroom() <= RECEIVE_FREE.max(2 * into.len()));
        assert!(session.bytes() - before <= RECEIVE_FREE.max(2 * into.len()));
        let count = rest.len().min(into.tailroom());
        into.spare()[..count].copy_from_slice(&rest[..count]);
        into.grow(count);
        rest = &rest[count..];
        let out = step(&mut session, into);
        assert_eq!(out.is_empty(), !rest.is_empty());
        bytes_max = bytes_max.max(session.bytes() - unsent);
    }
    assert!(bytes_max > 100_000, "{bytes_max}");
    assert!(session.bytes() < 100, "it was refused: {}", session.bytes());
    let mut new = Lab::new(Identity::Claimed(None));
    (new.session.msize, new.session.export.limits.msize) = (1 << 20, 1 << 20);
    new.step("8193".to_string(), Input::Received(Buf::from(&8193u32.to_le_bytes()[..])));
    assert!(new.text.contains("hang up"), "{}", new.text);
}

#[test]
fn extensions_that_nobody_knows_are_left_out_of_the_agreement() {
    let offers: [(&[u8], &[u8]); 7] = [
        (b"9P2000.L", b"9P2000.L"),
        (b"9P2000.L.Google.7", b"9P2000.L"),
        (b"9P2000.u", b"9P2000"),
        (b"9P2000.Lx", b"9P2000"),
        (b"9P2000", b"9P2000"),
        (b"9P2000L", b"unknown"),
        (b"9P", b"unknown"),
    ];
    for (offered, agreed) in offers {
        let mut session = session(Identity::Fixed(Caller::Server));
        let mut out = Vec::new();
        let offer = message(NO_TAG, Tmessage::Version { msize: 8192, version: offered });
        session.step(Instant(0), Input::Received(offer), &mut out);
        let [Output::Replied(_), Output::Send(outputs)] = out.as_slice() else { panic!("{out:?}") };
        let version = Rmessage::Version { msize: 8192, version: agreed };
        assert_eq!(Rmessage::decode(outputs).unwrap(), (NO_TAG, version));
    }
}

#[test]
fn a_walk_that_ends_early_binds_nothing() {
    let mut lab = Lab::linux();
    lab.attach();
    lab.text.clear();
    let names = Names::new(&[b"a", b"nul\0"]).unwrap();
    lab.send(2, Tmessage::Walk { fid: 1, newfid: 2, names });
    lab.answer(0, walked(&[Kind::Directory], 5));
    let long = [b'x'; 256];
    let names = Names::new(&[&long]).unwrap();
    lab.send(3, Tmessage::Walk { fid: 1, newfid: 2, names });
    lab.send(4, Tmessage::Clunk { fid: 2 });
    expect![[r#"
        TWalk 2: ask 0 Walk
        <- 0 Walked: release 5, RWalk 2
        TWalk 3: Rlerror 3 (36)
        TClunk 4: Rlerror 4 (22)
    "#]]
    .assert_eq(&lab.text);
}

#[test]
fn a_fid_clunked_while_it_is_opened_keeps_nothing_open() {
    let mut lab = Lab::linux();
    lab.attach();
    lab.text.clear();
    lab.send(2, Tmessage::Lopen { fid: 1, flags: 0 });
    lab.send(3, Tmessage::Clunk { fid: 1 });
    lab.answer(0, Ok(Reply::Opened(OpenId(9), stat(Kind::Directory))));
    expect![[r#"
        TLopen 2: ask 0 Open
        TClunk 3: release 0, RClunk 3
        <- 0 Opened: close 9, Rlerror 2 (22)
    "#]]
    .assert_eq(&lab.text);
}

/// Returns the outputs of a session for a message.
fn outputs(session: &mut Session, what: Tmessage<'_>) -> Vec<Output> {
    let mut out = Vec::new();
    session.step(Instant(0), Input::Received(message(1, what)), &mut out);
    out
}

#[test]
fn known_users_attached_to_the_service_tree_are_administrators() {
    let peer = User { uid: 0, gid: 0, groups: vec![], commands: false };
    let identity = Identity::Claimed(Some(Caller::User(Arc::new(peer))));
    let commands = |known: bool, aname: &[u8], uid: u32| {
        let mut session = session(identity.clone());
        if known {
            session.allow_admin();
        }
        outputs(&mut session, Tmessage::Version { msize: 8192, version: b"9P2000.L" });
        let uname = b"";
        let uid = Some(uid);
        let attach = Tmessage::Attach { fid: 1, afid: NO_FID, uname, aname, uid };
        let outputs = outputs(&mut session, attach);
        let outputs = match &outputs[..] {
            [Output::Ask(call, Request { ask: Ask::Identify { who: Who::Uid(uid) }, .. })] => {
                let user = User { uid: *uid, gid: 0, groups: vec![], commands: false };
                let mut out = Vec::new();
                let input = Input::Answered(*call, Ok(Reply::User(user)));
                session.step(Instant(0), input, &mut out);
                out
            }
            _ => outputs,
        };
        match &outputs[..] {
            [Output::Ask(_, Request { caller: Caller::User(user), .. })] => {
                (user.uid, user.commands)
            }
            other => panic!("{other:?}"),
        }
    };
    const NO_UID: u32 = wire::ninep::NO_UID;
    assert_eq!(commands(true, b"/.upcall", NO_UID), (0, true));
    assert_eq!(commands(true, b"//.upcall/names", 0), (0, true));
    assert_eq!(commands(true, b"/srv/.upcall", 5), (5, true));
    assert_eq!(commands(true, b"", NO_UID), (0, false));
    assert_eq!(commands(true, b"/a/.upcall", 5), (5, false));
    assert_eq!(commands(false, b"/.upcall", 0), (0, false));
}

#[test]
fn a_user_is_named_by_name_or_by_number() {
    let numbers = [("0", Some(0)), ("1000", Some(1000)), ("4294967295", None), ("+5", None)];
    for (uname, number) in [("me", None), ("5x", None)].into_iter().chain(numbers) {
        let mut session = session(Identity::Claimed(None));
        outputs(&mut session, Tmessage::Version { msize: 8192, version: b"9P2000" });
        let (uname, aname) = (uname.as_bytes(), &b""[..]);
        let attach = Tmessage::Attach { fid: 1, afid: NO_FID, uname, aname, uid: None };
        let outputs = outputs(&mut session, attach);
        let [Output::Ask(_, Request { ask: Ask::Identify { who }, .. })] = &outputs[..] else {
            panic!("{outputs:?}");
        };
        let wanted = number.map_or_else(|| Who::Name(uname.to_vec()), Who::Uid);
        assert_eq!(*who, wanted);
    }
}

#[test]
fn plan9_makes_a_directory_in_four_steps_and_its_mode_is_no_wider() {
    let mut lab = Lab::new(Identity::Claimed(None));
    lab.send(NO_TAG, Tmessage::Version { msize: 8192, version: b"9P2000.u" });
    lab.send(0, Tmessage::Auth { afid: 3, uname: b"me", aname: b"", uid: None });
    lab.send(1, Tmessage::Attach { fid: 1, afid: NO_FID, uname: b"me", aname: b"/srv", uid: None });
    lab.answer(0, Ok(Reply::User(User { uid: 5, gid: 5, groups: vec![], commands: false })));
    lab.answer(0, walked(&[Kind::Directory], 0));
    let perm = WireStat::DIR | 0o777;
    lab.send(2, Tmessage::Create { fid: 1, name: b"d", perm, mode: 0 });
    lab.answer(0, Ok(Reply::Stat(Stat { mode: 0o750, ..stat(Kind::Directory) })));
    lab.answer(0, Ok(Reply::Stat(stat(Kind::Directory))));
    lab.answer(0, walked(&[Kind::Directory], 8));
    lab.answer(0, Ok(Reply::Opened(OpenId(2), stat(Kind::Directory))));
    lab.send(3, Tmessage::Lopen { fid: 1, flags: 0 });
    expect![[r#"
        TVersion 65535: RVersion 65535
        TAuth 0: Rerror 0 (authentication not required)
        TAttach 1: ask 0 Identify
        <- 0 User: ask 0 Walk
        <- 0 Walked: RAttach 1
        TCreate 2: ask 0 Stat
        <- 0 Stat: ask 0 MakeDir
        <- 0 Stat: ask 0 Walk
        <- 0 Walked: ask 0 Open
        <- 0 Opened: release 0, RCreate 2
        TLopen 3: Rerror 3 (operation not supported)
    "#]]
    .assert_eq(&lab.text);
}

#[test]
fn protocol_violations_end_the_connection() {
    let mut lab = Lab::linux();
    lab.attach();
    lab.send(2, Tmessage::Getattr { fid: 1, mask: 0 });
    lab.send(2, Tmessage::Getattr { fid: 1, mask: 0 });
    assert!(lab.text.ends_with("cancel 0, release 0, hang up: a tag was used twice\n"));
    assert!(!lab.session.is_over());
    lab.answer(0, Ok(Reply::Stat(stat(Kind::File))));
    assert!(lab.session.is_over());
    for bytes in [&b"\x06\0\0\0\x64\0\0"[..], b"\xff\xff\xff\x7f\x64\0\0", b"\x07\0\0\0\x78\0\0"] {
        let mut lab = Lab::new(Identity::Claimed(None));
        lab.step("bytes".to_string(), Input::Received(Buf::from(bytes)));
        assert!(lab.text.contains("hang up"), "{}", lab.text);
    }
}

#[test]
fn states_md_is_fresh() {
    let (linux, plan9) = (State::Ready(Dialect::Linux), State::Ready(Dialect::Plan9));
    let states = [State::New, linux, plan9, State::Parting(Dialect::Linux), State::Closing];
    let version = |name| message(NO_TAG, Tmessage::Version { msize: 8192, version: name });
    type Sample = (&'static str, Box<dyn Fn() -> Input>);
    let samples: Vec<Sample> = vec![
        ("Version", Box::new(move || Input::Received(version(b"9P2000.L")))),
        ("OtherVersion", Box::new(move || Input::Received(version(b"8P")))),
        ("Message", Box::new(|| Input::Received(message(3, Tmessage::Stat { fid: 1 })))),
        ("Nonsense", Box::new(|| Input::Received(Buf::from(&[0u8; 7][..])))),
        ("Answered", Box::new(|| Input::Answered(CallId(0), Err(Error::Io)))),
        ("Sent", Box::new(|| Input::Sent(0))),
        ("Tick", Box::new(|| Input::Tick)),
        ("Ended", Box::new(|| Input::Ended)),
        ("Lost", Box::new(|| Input::Lost)),
        ("Drain", Box::new(|| Input::Drain)),
    ];
    let mut drawing = Drawing::default();
    for state in states {
        for (label, input) in &samples {
            for busy in [false, true] {
                let machine = sample(state, busy);
                let name = |s: &Session| format!("{:?}", s.state).replace(['(', ')'], "");
                drawing.sample_as(label, machine, input(), name);
            }
        }
    }
    drawing.assert_fresh(concat!(env!("CARGO_MANIFEST_DIR"), "/src/ninep/states.md"));
}

/// A session in a state, with or without a call in flight.
fn sample(state: State, busy: bool) -> Session {
    let mut session = session(Identity::Fixed(Caller::Server));
    session.state = state;
    if busy && state != State::New {
        let tag = (state != State::Closing).then_some(9);
        let (awaits, flushes) = (Await::Getattr, Vec::new());
        session.calls.insert(Call { tag, awaits, flushes, bytes: 0, has_node: false });
        session.tags.extend(tag.map(|tag| (tag, CallId(0))));
    }
    session
}

/// Under random clients and trees, every node and open file is released once, and every request is
/// completed.
#[test]
fn nothing_that_was_handed_out_is_kept() {
    let first = std::env::var("SEED").ok().and_then(|s| s.parse().ok());
    for seed in first.map_or(0..300, |s: u64| s..s + 1) {
        let result = std::panic::catch_unwind(|| schedule(seed));
        assert!(result.is_ok(), "replay with: SEED={seed} cargo test nothing_that_was_handed_out");
    }
}

/// Bookkeeping: outstanding requests, and resources handed out.
#[derive(Default)]
struct Books {
    requested: BTreeMap<u32, Ask>,
    held: Vec<u64>,
    made: u64,
}

impl Books {
    fn take(&mut self, out: Vec<Output>) {
        for output in out {
            match output {
                Output::Ask(call, request) => {
                    assert!(self.requested.insert(call.0, request.ask).is_none());
                }
                Output::Release(NodeId(id))
                | Output::Close(OpenId(id))
                | Output::Abandon(OpenId(id)) => {
                    let index = self.held.iter().position(|held| *held == id);
                    self.held.swap_remove(index.expect("given back once, and only what was given"));
                }
                Output::Cancel(call) => assert!(self.requested.contains_key(&call.0)),
                Output::Send(_) | Output::Finish | Output::Hangup(_) => {}
                Output::Replied(_) | Output::Called(..) | Output::Account(_) => {}
                Output::Claim(..) | Output::Settle(..) | Output::Locks(..) => unreachable!(),
            }
        }
    }

    fn new_id(&mut self) -> u64 {
        self.made += 1;
        self.held.push(self.made);
        self.made
    }

    fn reply(&mut self, ask: &Ask, rng: &mut Rng) -> Result<Reply, Error> {
        if rng.u8(0..4) == 0 {
            return Err(if rng.bool() { Error::Cancelled } else { Error::Io });
        }
        let kind = if rng.bool() { Kind::File } else { Kind::Directory };
        Ok(match ask {
            Ask::Walk { names, .. } if names.is_empty() || rng.u8(0..4) > 0 => {
                let stats = vec![stat(kind); names.len()];
                Reply::Walked(stats, Some(NodeId(self.new_id())))
            }
            Ask::Walk { names, .. } => Reply::Walked(vec![stat(kind); names.len() - 1], None),
            Ask::Open { .. } => Reply::Opened(OpenId(self.new_id()), stat(kind)),
            Ask::Create { .. } => {
                let (node, open) = (NodeId(self.new_id()), OpenId(self.new_id()));
                Reply::Created(node, open, stat(Kind::File))
            }
            Ask::Read { count, .. } => Reply::Data(Buf::from(vec![0; *count as usize])),
            Ask::Write { data, .. } => Reply::Written(data.len() as u32),
            Ask::List { .. } => Reply::Entries(Vec::new()),
            Ask::Stat { .. } | Ask::MakeDir { .. } => Reply::Stat(stat(kind)),
            Ask::GetAttr { .. } | Ask::ListAttrs { .. } => Reply::Bytes(vec![1, 2]),
            Ask::Lock { .. } => Reply::Locked,
            Ask::Identify { .. } => {
                Reply::User(User { uid: 1, gid: 1, groups: vec![], commands: false })
            }
            _change => Reply::Done,
        })
    }
}

fn schedule(seed: u64) {
    let mut rng = seeded(seed);
    let mut session = session(Identity::Claimed(None));
    let mut books = Books::default();
    let dialect: &[u8] = if rng.bool() { b"9P2000" } else { b"9P2000.L" };
    let mut inputs =
        vec![Input::Received(message(NO_TAG, Tmessage::Version { msize: 8192, version: dialect }))];
    for _ in 0..200 {
        let answer = rng.bool().then(|| books.requested.keys().next_back().copied()).flatten();
        let input = match (inputs.pop(), answer) {
            (Some(input), _) => input,
            (None, Some(call)) => {
                let ask = books.requested.remove(&call).unwrap();
                Input::Answered(CallId(call), books.reply(&ask, &mut rng))
            }
            (None, None) if session.unsent > 0 && rng.bool() => Input::Sent(session.unsent),
            (None, None) => Input::Received(random(&mut rng)),
        };
        let mut out = Vec::new();
        session.step(Instant(0), input, &mut out);
        session.check();
        books.take(out);
    }
    let mut out = Vec::new();
    session.step(Instant(0), Input::Lost, &mut out);
    books.take(out);
    while let Some((call, ask)) = books.requested.pop_first() {
        let (mut out, reply) = (Vec::new(), books.reply(&ask, &mut rng));
        session.step(Instant(0), Input::Answered(CallId(call), reply), &mut out);
        books.take(out);
    }
    assert!(session.is_over());
    assert_eq!(books.held, Vec::<u64>::new());
}

fn random(rng: &mut Rng) -> Buf {
    let (fid, newfid, tag) = (rng.u32(0..4), rng.u32(0..4), rng.u16(0..40));
    let (name, uid) = (&b"n"[..], Some(7));
    let names = Names::new(&[&b"a"[..], b".."][..rng.usize(0..3)]).unwrap();
    let (flags, mode, perm) =
        (rng.u32(0..3), *rng.choice(&[0, 1, 2, 0x40]).unwrap(), WireStat::DIR);
    let perm = if rng.bool() { perm | 0o777 } else { 0o644 };
    message(
        tag,
        match rng.u8(0..18) {
            0 | 1 => Tmessage::Attach { fid, afid: NO_FID, uname: name, aname: b"", uid },
            2..5 => Tmessage::Walk { fid, newfid, names },
            5 => Tmessage::Lopen { fid, flags },
            6 => Tmessage::Open { fid, mode },
            7 => Tmessage::Lcreate { fid, name, flags, mode: 0o600, gid: 1 },
            8 => Tmessage::Create { fid, name, perm, mode },
            9 => Tmessage::Read { fid, offset: 0, count: 100 },
            10 => Tmessage::Write { fid, offset: 0, data: Data(b"ab") },
            11 => Tmessage::Clunk { fid },
            12 => Tmessage::Remove { fid },
            13 => Tmessage::Xattrwalk { fid, newfid, name },
            14 => Tmessage::Xattrcreate { fid, name, size: rng.u64(0..3), flags: rng.u32(0..3) },
            15 => Tmessage::Flush { oldtag: rng.u16(0..40) },
            16 => Tmessage::Getattr { fid, mask: 0 },
            _rest => Tmessage::Readdir { fid, offset: 0, count: 100 },
        },
    )
}
