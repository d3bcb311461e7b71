use super::*;
use crate::request::{Request, RequestId};
use base::op::Detail;
use base::{Access, Caller};

fn names(text: &str) -> Vec<Name> {
    let parts = text.split('/').filter(|part| !part.is_empty());
    parts.map(|part| Name::new(part.as_bytes()).unwrap()).collect()
}

fn skeleton() -> Skeleton {
    Skeleton::new(3, Time::default(), &[names("a/b"), names("a/c"), names("d")])
}

fn ask(skeleton: &mut Skeleton, ask: Ask) -> Result<Reply, Error> {
    let mut out = Vec::new();
    let request = Request { caller: Caller::Server, ask };
    skeleton.step(Instant(0), Input::Ask(RequestId(1), request), &mut out);
    skeleton.check();
    match out.pop() {
        Some(Output::Reply(_, reply)) if out.is_empty() => reply,
        other => panic!("{other:?}"),
    }
}

fn walk(skeleton: &mut Skeleton, path: &str) -> Result<(usize, Option<NodeId>), Error> {
    let from = skeleton.root();
    match ask(skeleton, Ask::Walk { from, names: names(path) })? {
        Reply::Walked(stats, node) => Ok((stats.len(), node)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn its_directories_are_those_it_was_made_with() {
    let mut skeleton = skeleton();
    let (_, a) = walk(&mut skeleton, "a").unwrap();
    assert_eq!(walk(&mut skeleton, "a/b/../c/..").unwrap(), (5, a));
    assert_eq!(walk(&mut skeleton, "d/x").unwrap(), (1, None));
    assert_eq!(walk(&mut skeleton, "x").unwrap_err(), Error::NotFound);
    let access = Access { read: true, ..Access::default() };
    let Ok(Reply::Opened(open, _)) = ask(&mut skeleton, Ask::Open { node: a.unwrap(), access })
    else {
        panic!("it opens")
    };
    let mut list = |cookie| match ask(
        &mut skeleton,
        Ask::List { open, cookie, bytes_max: 9, detail: Detail::Stat },
    ) {
        Ok(Reply::Entries(entries)) => {
            entries.iter().map(|entry| entry.name.to_string()).collect::<Vec<_>>()
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(list(0), ["b", "c"]);
    assert_eq!(list(1), ["c"]);
    assert!(list(2).is_empty());
    skeleton.step(Instant(0), Input::Close(open), &mut Vec::new());
    assert_eq!(skeleton.opens(), 0);
}

#[test]
fn nobody_can_change_it() {
    let mut skeleton = skeleton();
    let dir = skeleton.root();
    let name = Name::new(b"new").unwrap();
    let made = ask(&mut skeleton, Ask::MakeDir { dir, name, mode: 0o755, gid: None });
    assert_eq!(made.unwrap_err(), Error::ReadOnly);
}
