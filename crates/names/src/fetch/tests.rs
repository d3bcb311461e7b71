use super::*;
use crate::hidden::Hidden;
use crate::table::Table;
use base::drawing::Drawing;

fn stat(kind: Kind) -> Stat {
    Stat { kind, size: 100, ..Stat::default() }
}

/// Returns replies of every kind to every possible request.
fn replies() -> Vec<(&'static str, Result<Reply, Error>)> {
    let (node, open) = (NodeId::new(0, 3), OpenId::new(0, 4));
    let walked = |kind, node| Ok(Reply::Walked(vec![stat(kind)], node));
    vec![
        ("Found", walked(Kind::File, Some(node))),
        ("FoundLink", walked(Kind::Symlink, Some(node))),
        ("FoundSome", walked(Kind::Directory, None)),
        ("Opened", Ok(Reply::Opened(open, stat(Kind::File)))),
        ("OpenedDirectory", Ok(Reply::Opened(open, stat(Kind::Directory)))),
        ("Target", Ok(Reply::Bytes(b"other".to_vec()))),
        ("Bytes", Ok(Reply::Data(Buf::from(vec![1; 10])))),
        ("Failed", Err(Error::Io)),
    ]
}

fn fits(fetch: &Fetch, label: &str) -> bool {
    let walks = label.starts_with("Found");
    label == "Failed"
        || match fetch.state {
            State::Walking(_) | State::ToLink(..) => walks,
            State::ReadingLink(..) => label == "Target",
            State::Opening(_) => label.starts_with("Opened"),
            State::Reading(..) => label == "Bytes",
            State::Over => false,
        }
}

#[test]
fn states_md_is_fresh() {
    let table = Table::default();
    let hidden = Hidden::default();
    let map = Map { table: &table, hidden: &hidden, top: NodeId::new(9, 0), root: None };
    let mut drawing = Drawing::default();
    let path = vec![Name::new(b"a").unwrap()];
    let root = Position::plain(NodeId::new(0, 0));
    let mut fetch = Fetch::new(Caller::Server, root, path, 100, 0);
    let Step::Ask(..) = fetch.begin(map, &mut Released::default()) else { panic!("it walks") };
    let mut fresh = vec![(fetch, 0)];
    while let Some((fetch, depth)) = fresh.pop() {
        for (label, reply) in replies() {
            if !fits(&fetch, label) {
                continue;
            }
            let (mut next, before) = (fetch.clone(), fetch.name());
            let step = next.arrive(reply, map, &mut Released::default());
            let (after, asks) = match &step {
                Step::Ask(..) => (next.name(), "Ask"),
                Step::OpenUnion(_) => ("over", "OpenUnion"),
                Step::End(Ok(_)) => ("over", "End: fetched"),
                Step::End(Err(_)) => ("over", "End: failed"),
            };
            drawing.row(before, label, after, asks);
            if matches!(step, Step::Ask(..)) && depth < 5 {
                fresh.push((next, depth + 1));
            }
        }
    }
    drawing.assert_fresh(concat!(env!("CARGO_MANIFEST_DIR"), "/src/fetch/states.md"));
}

/// Returns a fetch that has opened its file, whose stat has this size.
fn opened(size: u64) -> (Fetch, OpenId) {
    let (table, hidden) = (Table::default(), Hidden::default());
    let map = || Map { table: &table, hidden: &hidden, top: NodeId::new(9, 0), root: None };
    let root = Position::plain(NodeId::new(0, 0));
    let path = vec![Name::new(b"a").unwrap()];
    let (mut fetch, mut gone) =
        (Fetch::new(Caller::Server, root, path, 100, 0), Released::default());
    fetch.begin(map(), &mut gone);
    let (node, open) = (NodeId::new(0, 3), OpenId::new(0, 4));
    fetch.arrive(Ok(Reply::Walked(vec![stat(Kind::File)], Some(node))), map(), &mut gone);
    let stat = Stat { size, ..stat(Kind::File) };
    fetch.arrive(Ok(Reply::Opened(open, stat)), map(), &mut gone);
    (fetch, open)
}

#[test]
fn a_file_that_claims_to_be_empty_stays_open_until_a_read_finds_nothing() {
    let (table, hidden) = (Table::default(), Hidden::default());
    let map = || Map { table: &table, hidden: &hidden, top: NodeId::new(9, 0), root: None };
    for (size, count, all) in [(10, 10, true), (20, 10, false), (0, 10, false), (0, 0, true)] {
        let (mut fetch, open) = opened(size);
        let mut gone = Released::default();
        let data = Ok(Reply::Data(Buf::from(vec![1; count])));
        let Step::End(Ok(Reply::Fetched(_, _, rest))) = fetch.arrive(data, map(), &mut gone) else {
            panic!("the first bytes answer it");
        };
        let (kept, closed) = if all { (None, Some(open)) } else { (Some(open), None) };
        assert_eq!((rest, gone.open), (kept, closed), "{count} bytes of {size}");
    }
}

#[test]
fn a_fetch_that_has_ended_has_nothing_left_to_give_back() {
    let (table, hidden) = (Table::default(), Hidden::default());
    let map = || Map { table: &table, hidden: &hidden, top: NodeId::new(9, 0), root: None };
    let path = vec![Name::new(b"a").unwrap()];
    let root = Position::plain(NodeId::new(0, 0));
    let mut fetch = Fetch::new(Caller::Server, root, path, 100, 0);
    fetch.begin(map(), &mut Released::default());
    let (mut fresh, mut ended) = (vec![(fetch, 0)], 0);
    while let Some((fetch, depth)) = fresh.pop() {
        for (label, reply) in replies().into_iter().filter(|(label, _)| fits(&fetch, label)) {
            let mut next = fetch.clone();
            match next.arrive(reply, map(), &mut Released::default()) {
                Step::Ask(..) if depth < 5 => fresh.push((next, depth + 1)),
                Step::Ask(..) => {}
                Step::OpenUnion(_) | Step::End(_) => {
                    let mut again = Released::default();
                    next.abandon(&mut again);
                    let none = again.nodes.is_empty() && again.open.is_none();
                    assert!(none, "{label} in {}: {again:?}", fetch.name());
                    ended += 1;
                }
            }
        }
    }
    assert!(ended > 5, "{ended} ends were reached");
}
