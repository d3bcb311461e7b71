use super::*;

fn file(path: u64) -> Qid {
    Qid { kind: Qid::FILE, version: 0, path }
}

fn directory(path: u64) -> Qid {
    Qid { kind: Qid::DIR, version: 0, path }
}

fn table(held_max: usize) -> Nodes<u32> {
    Nodes::new(directory(1), held_max)
}

fn one_link() -> Attributes {
    Attributes { nlink: 1, ..Attributes::default() }
}

#[test]
fn hard_links_are_one_node() {
    let mut nodes = table(100);
    let a = nodes.enter(file(7), (ROOT, b"a"), Some((0, 10)));
    let b = nodes.enter(file(7), (ROOT, b"b"), Some((0, 11)));
    assert_eq!(a, b);
    assert_eq!(nodes.fid(a, 0), Some(11));
    nodes.forget(a, 1);
    nodes.check();
    assert_eq!(nodes.fid(a, 0), Some(11));
    nodes.forget(a, 1);
    nodes.check();
    assert_eq!(nodes.fid(a, 0), None);
}

#[test]
fn forgotten_files_leave_nothing_behind() {
    let mut nodes = table(100);
    let kept = nodes.enter(file(7), (ROOT, b"kept"), Some((0, 10)));
    for number in 8..10_000 {
        let id = nodes.enter(file(number), (ROOT, b"other"), Some((0, 11)));
        nodes.forget(id, 1);
        nodes.drop_fid(kept, 0);
        nodes.keep(kept, 0, 10);
        assert!(nodes.order.len() <= 2 * (nodes.held + 1) + ORDER_FREE, "{}", nodes.order.len());
    }
    nodes.check();
    assert_eq!(nodes.fid(kept, 0), Some(10));
    nodes.held_max = 0;
    nodes.keep(kept, 1, 12);
    assert_eq!(nodes.held, 0, "those held are still in the order");
}

#[test]
fn a_removed_file_keeps_its_fid_and_loses_its_number() {
    let mut nodes = table(100);
    let old = nodes.enter(file(7), (ROOT, b"a"), Some((0, 10)));
    nodes.show(old, &one_link());
    nodes.removed(ROOT, b"a");
    nodes.check();
    assert_eq!(nodes.route(old, 0), Err(errno::ESTALE));
    assert_eq!(nodes.fid(old, 0), Some(10));
    // The server uses the number again.
    let new = nodes.enter(file(7), (ROOT, b"a"), Some((0, 11)));
    assert_ne!(old, new);
    nodes.forget(old, 1);
    nodes.check();
    assert_eq!(nodes.fid(new, 0), Some(11));
}

#[test]
fn a_route_begins_at_the_nearest_fid_and_follows_renames() {
    let mut nodes = table(100);
    let dir = nodes.enter(directory(2), (ROOT, b"dir"), Some((0, 20)));
    let inner = nodes.enter(directory(3), (dir, b"inner"), None);
    let leaf = nodes.enter(file(4), (inner, b"leaf"), None);
    let names = |list: &[&[u8]]| list.iter().map(|name| name.to_vec()).collect::<Vec<_>>();
    let route = nodes.route(leaf, 0).unwrap();
    let wanted = Route { from: Some(20), names: names(&[b"inner", b"leaf"]), key: Some((4, 0)) };
    assert_eq!(route, wanted);
    // Another user has no fid on the way.
    let route = nodes.route(leaf, 1000).unwrap();
    assert_eq!((route.from, route.names), (None, names(&[b"dir", b"inner", b"leaf"])));
    nodes.renamed((dir, b"inner"), (ROOT, b"moved"));
    nodes.check();
    let route = nodes.route(leaf, 0).unwrap();
    assert_eq!((route.from, route.names), (None, names(&[b"moved", b"leaf"])));
}

#[test]
fn a_rename_removes_the_name_that_it_replaces() {
    let mut nodes = table(100);
    let a = nodes.enter(file(7), (ROOT, b"a"), None);
    let b = nodes.enter(file(8), (ROOT, b"b"), None);
    nodes.renamed((ROOT, b"a"), (ROOT, b"b"));
    nodes.check();
    assert_eq!(nodes.child(ROOT, b"b"), Some(a));
    assert_eq!(nodes.child(ROOT, b"a"), None);
    assert_eq!(nodes.route(b, 0), Err(errno::ESTALE));
}

#[test]
fn the_oldest_fids_with_names_are_dropped() {
    let mut nodes = table(2);
    let first = nodes.enter(file(7), (ROOT, b"a"), Some((0, 10)));
    nodes.removed(ROOT, b"a");
    let others: Vec<_> = (0..5_u64)
        .map(|n| nodes.enter(file(20 + n), (ROOT, &[b'f', n as u8]), Some((0, n as u32))))
        .collect();
    nodes.check();
    assert_eq!(nodes.fid(first, 0), Some(10));
    assert_eq!(others.iter().filter(|id| nodes.fid(**id, 0).is_some()).count(), 1);
    assert_eq!(nodes.fid(others[4], 0), Some(4));
}

#[test]
fn random_histories_keep_the_invariants() {
    // A small generator: the crate has no other use for random numbers.
    let mut seed = 42_u64;
    let mut draw = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    let mut nodes = table(8);
    for step in 0..20_000_u32 {
        let names: [&[u8]; 4] = [b"a", b"b", b"c", b"d"];
        let (name, other) = (names[draw(4) as usize], names[draw(4) as usize]);
        let (id, to) = (1 + draw(40), 1 + draw(40));
        match draw(7) {
            0 | 1 => {
                let fid = (draw(2) == 0).then(|| (draw(2) as u32, step));
                let qid = if draw(2) == 0 { file(draw(20)) } else { directory(draw(20)) };
                nodes.enter(qid, (id, name), fid);
            }
            2 => nodes.forget(id, draw(3)),
            3 => nodes.removed(id, name),
            4 => nodes.renamed((id, name), (to, other)),
            5 => drop(nodes.route(id, draw(2) as u32)),
            _ => nodes.keep(id, draw(2) as u32, step),
        }
        nodes.check();
    }
}

#[test]
fn half_of_the_fids_are_given_back_and_no_more_are_held() {
    let mut nodes = table(1000);
    for number in 0..400 {
        let name = number.to_string();
        nodes.enter(file(10 + number), (ROOT, name.as_bytes()), Some((0, number as u32)));
    }
    let shed = nodes.shed();
    assert_eq!(shed, (0..200).collect::<Vec<u32>>(), "the oldest");
    nodes.check();
    nodes.enter(file(1000), (ROOT, b"more"), Some((0, 1000)));
    assert_eq!((nodes.held, nodes.fid(3, 0)), (200, None));
    nodes.check();
    (0..9).for_each(|_| drop(nodes.shed()));
    assert_eq!(nodes.held, FIDS_MIN, "some are kept");
    assert!(nodes.shed().is_empty());
}

#[test]
fn a_new_file_with_the_number_of_a_removed_one_is_another_node() {
    let mut nodes = table(8);
    let qid = Qid { kind: 0, version: 0, path: 7 };
    let attr = |secs| {
        let created = Some(Timestamp { secs, nanos: 0 });
        Attr { qid, shown: Attributes { nlink: 1, ..Attributes::default() }, created }
    };
    let old = nodes.enter_with(&attr(1), (ROOT, b"old"), None);
    assert_eq!(nodes.enter_with(&attr(1), (ROOT, b"renamed"), None), old);
    assert!(nodes.is_moved_since(old, 0) && !nodes.is_moved_since(old, 1));
    let new = nodes.enter_with(&attr(2), (ROOT, b"new"), None);
    assert_ne!(new, old);
    assert_eq!((nodes.of_file(7), nodes.is_same(old, &attr(2))), (Some(new), false));
    let unknown = Attr { created: None, ..attr(2) };
    assert_eq!(nodes.enter_with(&unknown, (ROOT, b"new"), None), new);
    nodes.check();
    nodes.forget(old, 2);
    nodes.forget(new, 2);
    nodes.check();
}

#[test]
fn changes_of_forgotten_files_are_remembered() {
    let mut nodes = table(8);
    let attr = |path, secs| {
        let created = Some(Timestamp { secs, nanos: 0 });
        Attr { qid: directory(path), shown: one_link(), created }
    };
    let pending =
        |nodes: &mut Nodes<u32>, id| nodes.durability(id).is_some_and(|it| it.is_of_use());
    let id = nodes.enter_with(&attr(7, 1), (ROOT, b"d"), None);
    nodes.changed(id, Kind::Other, 1, 10);
    nodes.forget(id, 1);
    let other = nodes.enter_with(&attr(7, 2), (ROOT, b"d"), None);
    assert!(!pending(&mut nodes, other), "a new one with its number");
    nodes.changed(other, Kind::Other, 1, 10);
    nodes.forget(other, 1);
    let again = nodes.enter_with(&attr(7, 2), (ROOT, b"e"), None);
    assert!(pending(&mut nodes, again));
    assert!(nodes.forgotten.order.is_empty());
    for path in 100..100 + 2 * FORGOTTEN_MAX as u64 {
        let id = nodes.enter_with(&attr(path, 1), (ROOT, b"f"), None);
        nodes.changed(id, Kind::Other, 1, 10);
        nodes.forget(id, 1);
    }
    assert_eq!(nodes.forgotten.by_key.len(), FORGOTTEN_MAX);
    assert_eq!(nodes.forgotten.order.len(), FORGOTTEN_MAX);
    nodes.check();
}

#[test]
fn files_with_changes_that_may_be_lost_get_other_nodes() {
    let mut nodes = table(8);
    let attr = |path| Attr { qid: file(path), shown: one_link(), created: None };
    let [changed, open, kept] =
        [7, 8, 9].map(|path| nodes.enter_with(&attr(path), (ROOT, &[path as u8][..]), None));
    nodes.changed(changed, Kind::Data, 1, 10);
    nodes.changed(open, Kind::Data, 1, 10);
    nodes.connect(2);
    nodes.renew(|id| id == open);
    nodes.check();
    assert_eq!(nodes.enter_with(&attr(8), (ROOT, &[8]), None), open);
    assert_eq!(nodes.enter_with(&attr(9), (ROOT, &[9]), None), kept);
    let renewed = nodes.enter_with(&attr(7), (ROOT, &[7]), None);
    assert_ne!(renewed, changed);
    assert!(nodes.durability(renewed).is_some_and(|it| it.is_of_use()));
    nodes.check();
}
