use super::*;
use crate::key::Key;
use crate::table::{HeldNode, Member};
use base::drawing::Drawing;
use base::{Kind, Name};

fn union() -> Union {
    let stat = |inode| Stat { kind: Kind::Directory, device: 1, inode, ..Stat::default() };
    let member = |inode: u64| Member {
        root: Arc::new(HeldNode { node: NodeId::new(1, inode as usize), owned: true }),
        key: Key::new(1, &stat(inode)),
        stat: stat(inode),
        create: true,
        what: None,
        line: None,
    };
    let (from, key) =
        (Arc::new(HeldNode { node: NodeId::new(1, 7), owned: true }), Key::new(1, &stat(7)));
    let point = MountPoint { from, key, path: Vec::new(), members: vec![member(20), member(21)] };
    Union::new(Arc::new(point), Caller::Server)
}

fn entries(names: &[&str]) -> Result<Reply, Error> {
    let entry = |name: &&str| Entry {
        cookie: 9,
        inode: 1,
        device: None,
        kind: Kind::File,
        name: Name::new(name.as_bytes()).unwrap(),
        stat: None,
        handle: None,
    };
    Ok(Reply::Entries(names.iter().map(entry).collect()))
}

fn opened() -> Result<Reply, Error> {
    Ok(Reply::Opened(OpenId::new(1, 5), Stat::default()))
}

type Answer<'a> = &'a dyn Fn() -> Result<Reply, Error>;

/// A file that is stale, or was opened while its server was wrong, does not spoil the directory.
#[test]
fn a_member_whose_list_failed_is_opened_again() {
    let mut union = union();
    drop(union.next());
    assert!(union.opened(opened()).is_some());
    union.list(0, 100, Detail::Name).unwrap();
    assert!(matches!(union.next(), Step::Ask(_, Ask::List { .. })));
    assert!(union.arrive(entries(&["a"])).is_some());
    for cookie in [1, 0] {
        union.list(cookie, 100, Detail::Name).unwrap();
        assert!(matches!(union.next(), Step::Ask(_, Ask::List { .. })));
        let end = union.arrive(Err(Error::Stale));
        assert_eq!(end.unwrap().unwrap_err(), Error::Stale);
        union.list(cookie, 100, Detail::Name).unwrap();
        assert!(matches!(union.next(), Step::Ask(_, Ask::Open { .. })));
        // The rest of a member is not left out.
        if cookie > 0 {
            assert_eq!(union.arrive(Err(Error::Io)).unwrap().unwrap_err(), Error::Io);
            union.list(cookie, 100, Detail::Name).unwrap();
            assert!(matches!(union.next(), Step::Ask(_, Ask::Open { .. })));
        }
        assert!(union.arrive(opened()).is_none());
        assert!(matches!(union.next(), Step::Ask(_, Ask::List { .. })));
        assert!(union.arrive(entries(&["b"])).is_some());
    }
}

#[test]
fn states_md_is_fresh() {
    let mut drawing = Drawing::default();
    let replies: [(&str, Answer<'_>); 5] = [
        ("Opened", &opened),
        ("Entries", &|| entries(&["a"])),
        ("Known", &|| entries(&["known"])),
        ("Nothing", &|| entries(&[])),
        ("Failed", &|| Err(Error::Disconnected)),
    ];
    // Every sequence of up to four replies.
    for course in 0..625_usize {
        let mut union = union();
        drop(union.next());
        assert!(union.opened(opened()).is_some());
        union.list(0, 100, Detail::Name).unwrap();
        union.names.insert(hash(b"known"), 0);
        drawing.row("idle", "list", union.name(), "");
        let mut rest = course;
        for _ in 0..4 {
            let before = union.name();
            let asks = match union.next() {
                Step::Ask(_, Ask::Open { .. }) => "Open",
                Step::Ask(..) => "List",
                Step::End(_) => "End",
            };
            drawing.row(before, "next", union.name(), asks);
            let (label, reply) = replies[rest % 5];
            rest /= 5;
            let fits = match union.state {
                State::Opening(..) => matches!(label, "Opened" | "Failed"),
                State::Listing(member) => label != "Opened" && (label != "Known" || member > 0),
                State::Idle | State::Next(..) | State::Ready(..) => false,
            };
            if !fits {
                break;
            }
            let before = union.name();
            let end = union.arrive(reply()).is_some();
            drawing.row(before, label, union.name(), if end { "End" } else { "" });
            if end {
                break;
            }
        }
    }
    drawing.assert_fresh(concat!(env!("CARGO_MANIFEST_DIR"), "/src/list/states.md"));
}
