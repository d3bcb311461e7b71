use super::*;
use crate::table::{HeldNode, Member};
use base::Kind;
use base::drawing::Drawing;

fn stat(inode: u64) -> Stat {
    Stat { kind: Kind::Directory, device: 1, inode, ..Stat::default() }
}

fn node(local: usize) -> NodeId {
    NodeId::new(1, local)
}

fn member(inode: u64) -> Member {
    let (root, key) =
        (Arc::new(HeldNode { node: node(inode as usize), owned: true }), Key::new(1, &stat(inode)));
    Member { root, key, stat: stat(inode), create: false, what: None, line: None }
}

fn table() -> Table {
    let mut table = Table::default();
    let (from, key, path) =
        (Arc::new(HeldNode { node: node(7), owned: true }), Key::new(1, &stat(7)), Vec::new());
    table.set(MountPoint { from, key, path, members: vec![member(20), member(21)] }, 1);
    table
}

fn names(text: &str) -> Vec<Name> {
    text.split(' ').map(|name| Name::new(name.as_bytes()).unwrap()).collect()
}

/// Returns walks in every waiting state.
fn waiting(table: &Table) -> Vec<Walk> {
    let hidden = Hidden::default();
    let map = Map { table, hidden: &hidden, top: NodeId::new(9, 0), root: None };
    let point = table.at(Key::new(1, &stat(7))).unwrap();
    let stack = MountStack::default().through(point, 0).unwrap();
    let union = Position { node: node(20), stack, at_point: true };
    let begun = |position: &Position, names: Vec<Name>| {
        let mut walk = Walk::new(Caller::Server, position.clone(), names);
        drop(walk.next(map));
        walk
    };
    let plain = Position::plain(node(1));
    let mut second = begun(&union, names("a b"));
    second.arrive(Err(Error::NotFound), map, &mut Vec::new());
    drop(second.next(map));
    let mut arriving = begun(&plain, names("a"));
    arriving.arrive(Ok(Reply::Walked(vec![stat(7)], None)), map, &mut Vec::new());
    drop(arriving.next(map));
    vec![
        begun(&plain, names("a b")),
        begun(&union, names("a b")),
        second,
        begun(&plain, names("..")),
        arriving,
        begun(&plain, Vec::new()),
    ]
}

#[test]
fn states_md_is_fresh() {
    let table = table();
    let hidden = Hidden::default();
    let map = Map { table: &table, hidden: &hidden, top: NodeId::new(9, 0), root: None };
    let mut drawing = Drawing::default();
    let replies: [(&str, Result<Reply, Error>); 4] = [
        ("Found", Ok(Reply::Walked(vec![stat(3), stat(4)], Some(node(4))))),
        ("FoundPoint", Ok(Reply::Walked(vec![stat(7), stat(4)], Some(node(4))))),
        ("FoundSome", Ok(Reply::Walked(vec![stat(3)], None))),
        ("Failed", Err(Error::NotFound)),
    ];
    for walk in waiting(&table) {
        for (label, reply) in &replies {
            let (mut walk, before) = (walk.clone(), walk.name());
            // A part has one reply for each of its names.
            if matches!(walk.state, State::Aside(_) | State::Arriving(..) | State::Copying)
                && (label.ends_with("Some") || label.ends_with("Point"))
            {
                continue;
            }
            walk.arrive(reply.clone(), map, &mut Vec::new());
            let next = walk.name();
            let asks = match walk.next(map) {
                Step::Ask(..) => "Ask",
                Step::End(Ok((_, Some(_)))) => "End: found",
                Step::End(Ok((_, None))) => "End: some found",
                Step::End(Err(_)) => "End: failed",
            };
            drawing.row(before, label, next, asks);
        }
    }
    drawing.assert_fresh(concat!(env!("CARGO_MANIFEST_DIR"), "/src/walk/states.md"));
}
