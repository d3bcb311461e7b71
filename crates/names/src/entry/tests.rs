use super::*;
use crate::key::Key;
use crate::table::{HeldNode, Member, MountPoint, MountStack};
use base::drawing::Drawing;
use base::{Caller, Kind, Stat};
use std::sync::Arc;

fn stat(inode: u64) -> Stat {
    Stat { kind: Kind::Directory, device: 1, inode, ..Stat::default() }
}

fn union() -> Position {
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
    let stack = MountStack::default().through(&Arc::new(point), 0).unwrap();
    Position { node: NodeId::new(1, 20), stack, at_point: true }
}

fn make_dir() -> Entry {
    let name = Name::new(b"new").unwrap();
    let dir = NodeId::new(crate::NAMES, 0);
    let ask = Ask::MakeDir { dir, name: name.clone(), mode: 0o755, gid: None };
    Entry::new(Request { caller: Caller::Server, ask }, vec![(union(), name)])
}

type Answer<'a> = &'a dyn Fn() -> Result<Reply, Error>;

#[test]
fn states_md_is_fresh() {
    let table = Table::default();
    let mut drawing = Drawing::default();
    let found = || Ok(Reply::Walked(vec![stat(3)], Some(NodeId::new(1, 3))));
    let replies: [(&str, Answer<'_>); 4] = [
        ("Found", &found),
        ("NotFound", &|| Err(Error::NotFound)),
        ("Failed", &|| Err(Error::ReadOnly)),
        ("Done", &|| Ok(Reply::Done)),
    ];
    // Every sequence of up to four replies.
    for course in 0..256_usize {
        let mut entry = make_dir();
        for position in 0..4 {
            let before = entry.name();
            let asks = match entry.next() {
                Step::Look(..) => "Look",
                Step::Ask(_) => "Ask",
                Step::Fail(_) => "Fail",
                Step::End(_) => "End",
            };
            drawing.row(before, "next", entry.name(), asks);
            let (label, reply) = replies[course >> (2 * position) & 3];
            let fits = match entry.state {
                State::Looking(..) => label != "Done",
                State::Requested(_) => matches!(label, "Done" | "Failed"),
                State::Next(..) | State::Ready(_) | State::Over(_) => false,
            };
            if !fits {
                break;
            }
            let before = entry.name();
            let end = entry.arrive(reply(), &table, &mut Vec::new()).is_some();
            drawing.row(before, label, entry.name(), if end { "End" } else { "" });
            if end {
                break;
            }
        }
    }
    drawing.assert_fresh(concat!(env!("CARGO_MANIFEST_DIR"), "/src/entry/states.md"));
}
