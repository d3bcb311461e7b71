use super::*;
use crate::hidden::Hidden;
use crate::table::Table;
use base::drawing::Drawing;

fn stat(kind: Kind) -> Stat {
    Stat { kind, size: 100, ..Stat::default() }
}

/// Answers of every kind to whatever can be asked.
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
    let root = Place::plain(NodeId::new(0, 0));
    let mut fetch = Fetch::new(Caller::Server, root, path, 100, 0);
    let Step::Ask(..) = fetch.begin(map, &mut Gone::default()) else { panic!("it walks") };
    let mut fresh = vec![(fetch, 0)];
    while let Some((fetch, depth)) = fresh.pop() {
        for (label, reply) in replies() {
            if !fits(&fetch, label) {
                continue;
            }
            let (mut next, before) = (fetch.clone(), fetch.name());
            let step = next.arrive(reply, map, &mut Gone::default());
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
