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
    "#]].assert_eq(&lab.text);
}
