//! Permissions: of open files, and at creations.

use super::*;

fn user(uid: u32) -> Identity {
    Identity::Fixed(Caller::User(User { uid, gid: 5, groups: Vec::new(), commands: false }.into()))
}

#[test]
fn an_owner_writes_to_a_file_that_may_not_be_written_any_more() {
    let mut lab = Lab::looked_up(b"f", 5, 2);
    for uid in [0, 1] {
        lab.session.identity = user(uid);
        let (stable, data) = (Stable::Unstable, &b"x"[..]);
        lab.call(3, &WireCall::Write { file: handle(5), offset: 0, count: 1, stable, data });
        lab.answer(0, Err(Error::Denied));
        lab.answer(0, Ok(Reply::Stat(Stat { mode: 0o444, ..stat(Kind::File) })));
        if uid == 0 {
            lab.answer(0, Ok(Reply::Opened(OpenId(9), stat(Kind::File))));
            lab.answer(0, Ok(Reply::Written(1)));
            lab.answer(0, Ok(Reply::Stat(stat(Kind::File))));
        }
    }
    // It stays open for longer.
    lab.wait(59);
    lab.wait(1);
    expect![[r#"
        Write: ask 0 Open
        <- 0 Denied: ask 0 Stat
        <- 0 Stat: ask 0 Open
        <- 0 Opened: ask 0 Write
        <- 0 Written: ask 0 Stat
        <- 0 Stat: 3 Write 1 Unstable
        Write: ask 0 Open
        <- 0 Denied: ask 0 Stat
        <- 0 Stat: 3 Access
        tick: release 1
        tick: close 9, release 2
    "#]]
    .assert_eq(&lab.text);
}

#[test]
fn withdrawn_permissions_are_noticed_with_the_next_attributes() {
    let mut lab = Lab::looked_up(b"f", 5, 2);
    lab.session.identity = user(1);
    lab.call(3, &read(0));
    lab.answer(0, Ok(Reply::Opened(OpenId(9), stat(Kind::File))));
    lab.answer(0, data(b"abc"));
    // The owner withdraws it while the file is read.
    let secret = Stat { mode: 0o600, changed: Time::from_secs(7), ..stat(Kind::File) };
    lab.answer(0, Ok(Reply::Stat(secret.clone())));
    lab.answer(0, Err(Error::Denied));
    lab.answer(0, Ok(Reply::Stat(secret.clone())));
    // An access control list denies it.
    let mut seen = secret;
    for uid in [1, 0] {
        lab.text += &format!("user {uid}\n");
        lab.session.identity = user(uid);
        lab.call(4, &read(0));
        lab.answer(0, Ok(Reply::Opened(OpenId(10 + u64::from(uid)), seen.clone())));
        lab.answer(0, data(b"abc"));
        lab.answer(0, Ok(Reply::Stat(seen.clone())));
        // Contents change without the permissions.
        seen = Stat { modified: Time::from_secs(8), changed: Time::from_secs(8), ..seen };
        lab.call(5, &WireCall::GetAttr { object: handle(5) });
        lab.answer(0, Ok(Reply::Stat(seen.clone())));
        lab.call(6, &read(0));
        lab.answer(0, data(b"abc"));
        seen.changed = Time::from_secs(9);
        lab.answer(0, Ok(Reply::Stat(seen.clone())));
        if uid == 1 {
            lab.answer(0, Err(Error::Io));
        }
    }
    expect![[r#"
        Read: ask 0 Open
        <- 0 Opened: ask 0 Read
        <- 0 Data: ask 0 Stat
        <- 0 Stat: ask 0 Open
        <- 0 Denied: ask 0 Stat
        <- 0 Stat: close 9, 3 Access
        user 1
        Read: ask 0 Open
        <- 0 Opened: ask 0 Read
        <- 0 Data: ask 0 Stat
        <- 0 Stat: 4 Read "abc", eof true
        GetAttr: ask 0 Stat
        <- 0 Stat: 5 GetAttr
        Read: ask 0 Read
        <- 0 Data: ask 0 Stat
        <- 0 Stat: ask 0 Open
        <- 0 Io: close 11, 6 Io
        user 0
        Read: ask 0 Open
        <- 0 Opened: ask 0 Read
        <- 0 Data: ask 0 Stat
        <- 0 Stat: 4 Read "abc", eof true
        GetAttr: ask 0 Stat
        <- 0 Stat: 5 GetAttr
        Read: ask 0 Read
        <- 0 Data: ask 0 Stat
        <- 0 Stat: 6 Read "abc", eof true
    "#]]
    .assert_eq(&lab.text);
}

#[test]
fn what_was_written_is_committed_although_the_file_may_not_be_written_any_more() {
    let mut lab = Lab::looked_up(b"f", 5, 2);
    lab.session.identity = user(1);
    let commit = WireCall::Commit { file: handle(5), offset: 0, count: 0 };
    lab.call(3, &commit);
    lab.answer(0, Ok(Reply::Opened(OpenId(9), stat(Kind::File))));
    lab.answer(0, Ok(Reply::Done));
    lab.answer(0, Ok(Reply::Stat(stat(Kind::File))));
    lab.session = Lab::looked_up(b"f", 5, 2).session;
    lab.text += "a file that the server itself may only write\n";
    lab.call(4, &commit);
    lab.answer(0, Err(Error::Denied));
    lab.answer(0, Ok(Reply::Opened(OpenId(9), stat(Kind::File))));
    lab.answer(0, Ok(Reply::Done));
    lab.answer(0, Ok(Reply::Stat(stat(Kind::File))));
    expect![[r#"
        Commit: ask 0 Open
        <- 0 Opened: ask 0 Sync
        <- 0 Done: ask 0 Stat
        <- 0 Stat: 3 Commit
        a file that the server itself may only write
        Commit: ask 0 Open
        <- 0 Denied: ask 0 Open
        <- 0 Opened: ask 0 Sync
        <- 0 Done: ask 0 Stat
        <- 0 Stat: 4 Commit
    "#]]
    .assert_eq(&lab.text);
}

/// Returns a CREATE of `f` in the root.
fn create(size: Option<u64>) -> WireCall<'static> {
    let set = SetAttributes { mode: Some(0o644), size, ..SetAttributes::default() };
    WireCall::Create { dir: handle(0), name: b"f", how: CreateHow::Unchecked(set) }
}

#[test]
fn an_existing_file_that_may_not_be_written_is_created_unless_it_is_truncated() {
    let mut lab = Lab::mounted();
    for (xid, kind) in [(2, Kind::File), (3, Kind::Directory), (4, Kind::Fifo)] {
        lab.call(xid, &create(None));
        lab.answer(0, Err(Error::Denied));
        lab.answer(0, walked(kind, 2));
        if kind == Kind::File {
            lab.answer(0, identified(5));
            lab.answer(0, Ok(Reply::Stat(stat(Kind::Directory))));
        }
    }
    lab.text += "the directory may not be written\n";
    lab.call(5, &create(None));
    lab.answer(0, Err(Error::Denied));
    lab.answer(0, Err(Error::NotFound));
    lab.text += "truncation\n";
    for (xid, opened) in [(6, Err(Error::Denied)), (7, Ok(OpenId(9)))] {
        lab.call(xid, &create(Some(0)));
        lab.answer(0, Err(Error::Denied));
        lab.answer(0, walked(Kind::File, 2));
        lab.answer(0, opened.map(|open| Reply::Opened(open, stat(Kind::File))));
    }
    lab.answer(0, Ok(Reply::Done));
    lab.step("lost", Input::Lost);
    lab.answer(0, Ok(Reply::Stat(stat(Kind::File))));
    expect![[r#"
        Create: ask 0 Create
        <- 0 Denied: ask 0 Walk
        <- 0 Walked: ask 0 FileHandle
        <- 0 FileHandle: ask 0 Stat
        <- 0 Stat: 2 Create handle 5
        Create: ask 0 Create
        <- 0 Denied: ask 0 Walk
        <- 0 Walked: release 2, 3 IsDir
        Create: ask 0 Create
        <- 0 Denied: ask 0 Walk
        <- 0 Walked: release 2, 4 Exist
        the directory may not be written
        Create: ask 0 Create
        <- 0 Denied: ask 0 Walk
        <- 0 NotFound: 5 Access
        truncation
        Create: ask 0 Create
        <- 0 Denied: ask 0 Walk
        <- 0 Walked: ask 0 Open
        <- 0 Denied: release 2, 6 Access
        Create: ask 0 Create
        <- 0 Denied: ask 0 Walk
        <- 0 Walked: ask 0 Open
        <- 0 Opened: ask 0 SetStat
        <- 0 Done: ask 0 Stat
        lost: hang up: the client left, release 2
        <- 0 Stat: ask 0 FileHandle
    "#]]
    .assert_eq(&lab.text);
}

#[test]
fn attributes_set_at_a_creation_are_durable_before_its_reply() {
    let mut lab = Lab::mounted();
    lab.session.export.nfs.is_async = false;
    for (xid, size) in [(2, 3), (3, 0)] {
        lab.call(xid, &create(Some(0)));
        if xid == 2 {
            lab.answer(0, Ok(Reply::Opened(OpenId(8), stat(Kind::Directory))));
        }
        let made = Stat { size, ..stat(Kind::File) };
        lab.answer(0, Ok(Reply::Created(NodeId(2), OpenId(9), made)));
        // An empty file loses nothing.
        (0..if size > 0 { 2 } else { 1 }).for_each(|_| lab.answer(0, Ok(Reply::Done)));
        lab.answer(0, Ok(Reply::Stat(stat(Kind::File))));
        lab.answer(0, identified(5));
        lab.answer(0, Ok(Reply::Done));
        lab.answer(0, Ok(Reply::Stat(stat(Kind::Directory))));
    }
    expect![[r#"
        Create: ask 0 Open
        <- 0 Opened: ask 0 Create
        <- 0 Created: ask 0 SetStat
        <- 0 Done: ask 0 Sync
        <- 0 Done: ask 0 Stat
        <- 0 Stat: ask 0 FileHandle
        <- 0 FileHandle: ask 0 Sync
        <- 0 Done: ask 0 Stat
        <- 0 Stat: 2 Create handle 5
        Create: ask 0 Create
        <- 0 Created: ask 0 SetStat
        <- 0 Done: ask 0 Stat
        <- 0 Stat: ask 0 FileHandle
        <- 0 FileHandle: release 2, close 9, ask 0 Sync
        <- 0 Done: ask 0 Stat
        <- 0 Stat: 3 Create handle 5
    "#]]
    .assert_eq(&lab.text);
}

#[test]
fn only_root_chooses_the_owner_of_what_it_creates() {
    let mut lab = Lab::mounted();
    let sys = |uid| wire::rpc::Sys { stamp: 0, machine: b"m", uid, gid: 5, gids: Vec::new() };
    let owned = SetAttributes { uid: Some(7), gid: Some(8), ..SetAttributes::default() };
    for (xid, identity, uid) in
        [(2, user(0), 0), (3, Identity::Claimed(None), 7), (4, Identity::Claimed(None), 0)]
    {
        lab.session.identity = identity;
        let how = CreateHow::Guarded(owned.clone());
        let call = WireCall::Create { dir: handle(0), name: b"f", how };
        let mut arguments = Vec::new();
        call.put(&mut arguments);
        let number = call.procedure();
        lab.sent.push((xid, number));
        let what = (nfs::PROGRAM, number);
        let bytes = record_as(Credential::Sys(sys(uid)), xid, what, &arguments);
        lab.step("Create", Input::Received(Buf::from(bytes)));
        lab.answer(0, Ok(Reply::Created(NodeId(2), OpenId(9), stat(Kind::File))));
        lab.answer(0, Err(Error::Io));
    }
    expect![[r#"
        Create: ask 0 Create
        <- 0 Created: ask 0 FileHandle
        <- 0 Io: close 9, release 2, 2 Io
        Create: ask 0 Create
        <- 0 Created: ask 0 FileHandle
        <- 0 Io: close 9, release 2, 3 Io
        Create: ask 0 Create
        <- 0 Created: ask 0 SetStat
        <- 0 Io: close 9, release 2, 4 Io
    "#]]
    .assert_eq(&lab.text);
}
