use super::*;
use base::Caller;

fn ask(service: &mut Service, ask: Ask) -> Vec<Output> {
    let mut out = Vec::new();
    let request = Request { caller: Caller::Server, ask };
    service.step(Instant(0), Input::Ask(RequestId(1), request), &mut out);
    service.check();
    out
}

#[test]
fn a_reader_sees_the_moment_of_the_open() {
    let mut service = Service::new(1, Time::from_secs(1), 7, Vec::new());
    let names = vec![Name::new(b"stages").unwrap()];
    let out = ask(&mut service, Ask::Walk { from: NodeId::new(1, 0), names });
    let [Output::Reply(_, Ok(Reply::Walked(stats, Some(node))))] = &out[..] else {
        panic!("{out:?}")
    };
    assert_eq!((stats.len(), stats[0].mode), (1, 0o444));
    let out = ask(&mut service, Ask::Open { node: *node, access: base::Access::READ });
    let [Output::Render(ticket, Topic::Stages)] = out[..] else { panic!("{out:?}") };
    let mut out = Vec::new();
    service.step(Instant(0), Input::Rendered(ticket, b"now".to_vec()), &mut out);
    let [Output::Reply(_, Ok(Reply::Opened(open, stat)))] = &out[..] else { panic!("{out:?}") };
    assert_eq!(stat.size, 3);
    let out = ask(&mut service, Ask::Read { open: *open, offset: 1, count: 9, headroom: 0 });
    let [Output::Reply(_, Ok(Reply::Data(data)))] = &out[..] else { panic!("{out:?}") };
    assert_eq!(&**data, b"ow");
}

#[test]
fn nothing_in_it_can_be_changed() {
    let mut service = Service::new(1, Time::from_secs(1), 7, Vec::new());
    let name = Name::new(b"stages").unwrap();
    let out = ask(&mut service, Ask::Remove { dir: NodeId::new(1, 0), name, directory: None });
    assert!(matches!(out[..], [Output::Reply(_, Err(Error::NotPermitted))]));
}

fn as_user(uid: u32) -> Caller {
    caller(uid, true)
}

fn caller(uid: u32, commands: bool) -> Caller {
    let user = base::User { uid, gid: uid, groups: Vec::new(), commands };
    Caller::User(std::sync::Arc::new(user))
}

fn open_to_write(service: &mut Service, caller: Caller, name: &str) -> Result<Reply, Error> {
    let names = vec![Name::new(name.as_bytes()).unwrap()];
    let out = ask(service, Ask::Walk { from: NodeId::new(1, 0), names });
    let [Output::Reply(_, Ok(Reply::Walked(_, Some(node))))] = out[..] else { panic!("{out:?}") };
    let access = base::Access { write: true, ..base::Access::default() };
    let mut out = Vec::new();
    let request = Request { caller, ask: Ask::Open { node, access } };
    service.step(Instant(0), Input::Ask(RequestId(2), request), &mut out);
    match out.pop() {
        Some(Output::Reply(_, reply)) => reply,
        other => panic!("{other:?}"),
    }
}

#[test]
fn commands_are_taken_from_root_and_the_owner_only() {
    let mut service = Service::new(1, Time::from_secs(1), 7, Vec::new());
    for (who, may) in [
        (as_user(0), true),
        (as_user(7), true),
        (as_user(8), false),
        (Caller::Server, false),
        // Who did not ask for it, or is not known.
        (caller(0, false), false),
        (caller(7, false), false),
    ] {
        assert_eq!(open_to_write(&mut service, who, "names").is_ok(), may);
    }
    assert_eq!(open_to_write(&mut service, as_user(0), "stages").unwrap_err(), Error::Denied);
    let opened = open_to_write(&mut service, as_user(0), "names");
    let Ok(Reply::Opened(open, _)) = opened else { panic!("{opened:?}") };
    let data = Buf::from(b"unmount /x\n".to_vec());
    let out = ask(&mut service, Ask::Write { open, offset: 0, data: data.clone() });
    let [Output::Command(ticket, ref text)] = out[..] else { panic!("{out:?}") };
    assert_eq!(text, b"unmount /x\n");
    let mut out = Vec::new();
    service.step(Instant(0), Input::Commanded(ticket, Ok(())), &mut out);
    assert!(matches!(out[..], [Output::Reply(_, Ok(Reply::Written(11)))]), "{out:?}");
    let out = ask(&mut service, Ask::Write { open, offset: 0, data });
    let [Output::Command(ticket, _)] = out[..] else { panic!("{out:?}") };
    let mut out = Vec::new();
    service.step(Instant(0), Input::Commanded(ticket, Err(Error::Busy)), &mut out);
    assert!(matches!(out[..], [Output::Reply(_, Err(Error::Busy))]), "{out:?}");
}

#[test]
fn who_gives_a_command_up_is_heard() {
    let mut service = Service::new(1, Time::from_secs(1), 7, Vec::new());
    let opened = open_to_write(&mut service, as_user(7), "names");
    let Ok(Reply::Opened(open, _)) = opened else { panic!("{opened:?}") };
    let data = base::Buf::from(b"bind /a /b\n".to_vec());
    let out = ask(&mut service, Ask::Write { open, offset: 0, data });
    let [Output::Command(ticket, _)] = out[..] else { panic!("{out:?}") };
    let mut out = Vec::new();
    service.step(Instant(0), Input::Cancel(RequestId(9)), &mut out);
    assert!(out.is_empty(), "{out:?}");
    service.step(Instant(0), Input::Cancel(RequestId(1)), &mut out);
    assert!(matches!(out[..], [Output::CancelCommand(it)] if it == ticket), "{out:?}");
    out.clear();
    service.step(Instant(0), Input::Commanded(ticket, Err(Error::Cancelled)), &mut out);
    assert!(matches!(out[..], [Output::Reply(_, Err(Error::Cancelled))]), "{out:?}");
    service.step(Instant(0), Input::Cancel(RequestId(1)), &mut out);
    assert_eq!(out.len(), 1);
}
