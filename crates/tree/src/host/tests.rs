use super::pending::Awaits;
use super::*;
use crate::request::{Ask, Lock, LockKind, Owner};
use base::drawing::{Drawing, variant};
use base::op::{ClientKey, PathDone};
use base::{Access, Buf, Caller, Kind, Name};
use expect_test::expect;

const ROOT: NodeId = NodeId(0);

fn stat(inode: u64) -> Stat {
    Stat { kind: Kind::File, device: 1, inode, ..Stat::default() }
}

fn host(read_only: bool) -> Host {
    Host::new(0, File(3), &Stat { kind: Kind::Directory, ..stat(2) }, read_only)
}

/// The tree with a scripted world; records outputs.
struct Lab {
    host: Host,
    text: String,
}

impl Lab {
    fn new() -> Lab {
        Lab { host: host(false), text: String::new() }
    }

    fn step(&mut self, label: &str, input: Input) {
        let mut out = Vec::new();
        self.host.step(Instant(0), input, &mut out);
        self.host.tick(&mut out);
        self.host.check();
        let out: Vec<String> = out.iter().map(show).collect();
        self.text += &format!("{label}: {}\n", out.join(", "));
    }

    fn ask(&mut self, id: u64, ask: Ask) {
        let label = format!("{id} {}", variant(&ask));
        self.step(&label, Input::Ask(RequestId(id), Request { caller: Caller::Server, ask }));
    }

    fn done(&mut self, op: u64, done: Done) {
        self.step(&format!("op {op} {}", variant(&done)), Input::Done(OpId(op), done));
    }
}

fn show(output: &Output) -> String {
    match output {
        Output::Reply(id, Ok(reply)) => format!("reply {} {}", id.0, variant(reply)),
        Output::Reply(id, Err(error)) => format!("reply {} {error:?}", id.0),
        Output::Do(Op::Path { id, op, .. }) => format!("op {} {}", id.0, variant(op)),
        Output::Do(Op::CloseFile { file, .. }) => format!("close {}", file.0),
        Output::Do(other) => format!("do {}", variant(other)),
        Output::Render(ticket, topic) => format!("render {ticket} {topic:?}"),
        Output::Command { ticket, .. } => format!("command {ticket}"),
        Output::CancelCommand(ticket) => format!("cancel command {ticket}"),
        Output::AsClient(output) => format!("{output:?}"),
    }
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

fn walk(from: NodeId) -> Ask {
    Ask::Walk { from, names: vec![name("f")] }
}

fn read(open: OpenId) -> Ask {
    Ask::Read { open, offset: 0, count: 9, headroom: 0 }
}

#[test]
fn a_file_is_closed_when_the_last_read_of_it_has_come_back() {
    let mut lab = Lab::new();
    lab.ask(1, walk(ROOT));
    lab.done(0, Done::Path(Ok(PathDone::Walked(vec![stat(5)], Ok(File(7))))));
    let node = NodeId::new(0, 1);
    lab.ask(2, Ask::Open { node, access: Access::READ });
    lab.done(0, Done::Path(Ok(PathDone::Opened(File(8), stat(5)))));
    let open = OpenId::new(0, 0);
    lab.ask(3, read(open));
    lab.step("close", Input::Close(open));
    lab.step("release", Input::Release(node));
    lab.done(0, Done::Read(Ok(Buf::default())));
    expect![[r#"
        1 Walk: op 0 Walk
        op 0 Path: reply 1 Walked
        2 Open: op 0 Open
        op 0 Path: reply 2 Opened
        3 Read: do Read
        close: 
        release: close 7
        op 0 Read: reply 3 Data, close 8
    "#]]
    .assert_eq(&lab.text);
}

#[test]
fn a_full_tree_serves_the_files_that_are_open() {
    let mut lab = Lab::new();
    lab.ask(1, walk(ROOT));
    lab.done(0, Done::Path(Ok(PathDone::Walked(vec![stat(5)], Ok(File(7))))));
    let node = NodeId::new(0, 1);
    lab.ask(2, Ask::Open { node, access: Access::READ });
    lab.done(0, Done::Path(Ok(PathDone::Opened(File(8), stat(5)))));
    lab.host.set_handles_max(0);
    lab.text.clear();
    let open = OpenId::new(0, 0);
    lab.ask(3, walk(ROOT));
    lab.ask(4, read(open));
    lab.done(0, Done::Read(Ok(Buf::default())));
    lab.ask(5, Ask::Stat { node });
    lab.done(0, Done::Path(Ok(PathDone::Stat(stat(5)))));
    expect![[r#"
        3 Walk: reply 3 TooManyOpen
        4 Read: do Read
        op 0 Read: reply 4 Data
        5 Stat: op 0 Stat
        op 0 Path: reply 5 Stat
    "#]]
    .assert_eq(&lab.text);
}

#[test]
fn the_root_is_always_the_same_node_and_is_never_closed() {
    let mut lab = Lab::new();
    lab.ask(1, Ask::Walk { from: ROOT, names: vec![name(".")] });
    lab.done(0, Done::Path(Ok(PathDone::Walked(vec![stat(2)], Ok(File(9))))));
    lab.step("release", Input::Release(ROOT));
    expect![[r#"
        1 Walk: op 0 Walk
        op 0 Path: close 9, reply 1 Walked
        release: 
    "#]]
    .assert_eq(&lab.text);
}

/// A linear search for each cancellation would take minutes.
#[test]
fn many_requests_under_way_are_cancelled_one_by_one() {
    const MANY: u64 = 200_000;
    let (mut host, mut out) = (host(false), Vec::new());
    for id in 0..MANY {
        let request = Request { caller: Caller::Server, ask: Ask::Stat { node: ROOT } };
        host.step(Instant(0), Input::Ask(RequestId(id), request), &mut out);
    }
    let id = |output| if let Output::Do(Op::Path { id, .. }) = output { Some(id) } else { None };
    let requested: Vec<OpId> = out.drain(..).filter_map(id).collect();
    for (id, op) in requested.iter().enumerate().rev() {
        host.step(Instant(0), Input::Cancel(RequestId(id as u64)), &mut out);
        let cancelled = out.pop().expect("it is in flight");
        assert!(matches!(cancelled, Output::Do(Op::Cancel { id }) if id == *op), "{cancelled:?}");
    }
    assert!(out.is_empty() && requested.len() == MANY as usize);
    host.check();
}

#[test]
fn a_read_only_tree_refuses_every_change_and_dots_are_no_names() {
    let mut host = host(true);
    let mut refused = |ask: Ask| {
        let mut out = Vec::new();
        let request = Request { caller: Caller::Server, ask };
        host.step(Instant(0), Input::Ask(RequestId(1), request), &mut out);
        matches!(out[..], [Output::Reply(_, Err(Error::ReadOnly))])
    };
    assert!(refused(Ask::Remove { dir: ROOT, name: name("f"), directory: None }));
    let access = Access { write: true, ..Access::default() };
    assert!(refused(Ask::Open { node: ROOT, access }));
    assert!(!refused(Ask::Open { node: ROOT, access: Access::READ }));
    let mut lab = Lab::new();
    lab.ask(1, Ask::Remove { dir: ROOT, name: name(".."), directory: None });
    lab.ask(2, Ask::MakeDir { dir: ROOT, name: name("."), mode: 0, gid: None });
    assert_eq!(lab.text, "1 Remove: reply 1 Invalid\n2 MakeDir: reply 2 Exists\n");
}

#[test]
fn a_lock_is_granted_when_its_holder_closes_and_a_cancelled_one_is_not() {
    let mut lab = Lab::new();
    for file in [8, 9, 10] {
        lab.ask(1, Ask::Open { node: ROOT, access: Access::READ });
        lab.done(0, Done::Path(Ok(PathDone::Opened(File(file), stat(5)))));
    }
    lab.text.clear();
    let lock = |open: usize, wait| {
        let owner = Owner { client: b"c".to_vec(), process: open as u32 };
        let lock = Lock::new(LockKind::Exclusive, 0, 0, owner).unwrap();
        Ask::Lock { open: OpenId::new(0, open), lock, wait }
    };
    lab.ask(1, lock(0, true));
    lab.ask(2, lock(1, true));
    lab.ask(3, lock(2, true));
    lab.ask(4, lock(1, false));
    lab.step("cancel 2", Input::Cancel(RequestId(2)));
    lab.step("close", Input::Close(OpenId::new(0, 0)));
    expect![[r#"
        1 Lock: reply 1 Locked
        2 Lock: 
        3 Lock: 
        4 Lock: reply 4 Blocked
        cancel 2: reply 2 Cancelled
        close: close 8, reply 3 Locked
    "#]]
    .assert_eq(&lab.text);
}

#[test]
fn volume_attributes_are_not_set_on_host_files() {
    let mut lab = Lab::new();
    for (id, name) in [(1, "trusted.upcall.quota"), (2, "trusted.other")] {
        let (name, value) = (name.as_bytes().to_vec(), b"v".to_vec());
        lab.ask(id, Ask::SetAttr { node: ROOT, name, value, create: None });
    }
    expect![[r#"
        1 SetAttr: reply 1 Unsupported
        2 SetAttr: op 0 SetAttr
    "#]]
    .assert_eq(&lab.text);
}

/// Draws the pending requests: the result of each kind of completion.
#[test]
fn states_md_is_fresh() {
    let path = |done| Done::Path(Ok(done));
    let failed = || Done::Path(Err(Error::Io));
    let samples: Vec<(Awaits, &str, Done)> = vec![
        (Awaits::Walk, "Arrived", path(PathDone::Walked(vec![stat(5)], Ok(File(7))))),
        (Awaits::Walk, "Partial", path(PathDone::Walked(vec![stat(5)], Err(Error::NotFound)))),
        (Awaits::Walk, "Failed", failed()),
        (Awaits::Fetch, "Whole", path(PathDone::Fetched(stat(5), Buf::default(), None))),
        (Awaits::Fetch, "More", path(PathDone::Fetched(stat(5), Buf::default(), Some(File(7))))),
        (Awaits::Fetch, "Failed", failed()),
        (Awaits::Open, "Opened", path(PathDone::Opened(File(7), stat(5)))),
        (Awaits::Open, "Failed", failed()),
        (Awaits::Create, "Created", path(PathDone::Created(File(7), File(8), stat(5)))),
        (Awaits::Create, "Failed", failed()),
        (Awaits::Read, "Read", Done::Read(Ok(Buf::default()))),
        (Awaits::Read, "Failed", Done::Read(Err(Error::Io))),
        (Awaits::Write, "Written", Done::Written(Ok(1))),
        (Awaits::Write, "Failed", Done::Written(Err(Error::NoSpace))),
        (Awaits::Sync, "Synced", Done::Synced(Ok(()))),
        (Awaits::Sync, "Failed", Done::Synced(Err(Error::Io))),
        (Awaits::Remove, "Ok", path(PathDone::Ok)),
        (Awaits::Remove, "Failed", failed()),
        (Awaits::Path, "Stat", path(PathDone::Stat(stat(5)))),
        (Awaits::Path, "Failed", failed()),
    ];
    let mut drawing = Drawing::default();
    for (awaits, label, done) in samples {
        let mut host = host(false);
        let pins = [None, None];
        let (request, client) = (RequestId(1), ClientKey::NOBODY);
        let pending = Pending { request, client, awaits, pins, ticket: None };
        let slot = host.pending.insert(pending);
        host.slots.insert(RequestId(1), slot);
        let state = |host: &Host| match host.pending.get(0) {
            Some(pending) => pending.awaits.name().to_string(),
            None => "over".to_string(),
        };
        drawing.sample_as(label, host, Input::Done(OpId(0), done), state);
    }
    drawing.assert_fresh(concat!(env!("CARGO_MANIFEST_DIR"), "/src/host/states.md"));
}

#[test]
fn changes_of_one_entry_are_made_one_after_the_other() {
    use base::Expected;
    use base::op::Replacement;
    let replace = |text: &str| Ask::Replace {
        dir: ROOT,
        name: name(text),
        by: Replacement::Nothing,
        expected: Expected::PlainFile,
    };
    let done = || Done::Path(Ok(PathDone::Ok));
    let mut lab = Lab::new();
    lab.ask(1, replace("f"));
    lab.ask(2, replace("f"));
    lab.ask(3, replace("g"));
    lab.ask(4, Ask::Remove { dir: ROOT, name: name("f"), directory: None });
    lab.ask(5, replace("f"));
    lab.step("cancel 2", Input::Cancel(RequestId(2)));
    lab.done(0, done());
    lab.done(1, done());
    lab.done(0, Done::Path(Ok(PathDone::Unexpected(None))));
    lab.done(0, done());
    expect![[r#"
        1 Replace: op 0 Replace
        2 Replace: 
        3 Replace: op 1 Replace
        4 Remove: 
        5 Replace: 
        cancel 2: reply 2 Cancelled
        op 0 Path: reply 1 Done, op 0 Remove
        op 1 Path: reply 3 Done
        op 0 Path: reply 4 Unexpected, op 0 Replace
        op 0 Path: reply 5 Done
    "#]]
    .assert_eq(&lab.text);
    assert!(lab.host.changes.waiting() == 0 && lab.host.waiting.is_empty());
}
