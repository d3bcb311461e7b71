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
    let mut service = Service::new(1, Time::from_secs(1), Vec::new());
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
    let mut service = Service::new(1, Time::from_secs(1), Vec::new());
    let name = Name::new(b"stages").unwrap();
    let out = ask(&mut service, Ask::Remove { dir: NodeId::new(1, 0), name, directory: None });
    assert!(matches!(out[..], [Output::Reply(_, Err(Error::NotPermitted))]));
}
