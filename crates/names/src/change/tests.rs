use super::*;
use base::drawing::Drawing;
use tree::Reply;

fn stat(kind: Kind, inode: u64) -> Stat {
    Stat { kind, inode, ..Stat::default() }
}

fn path(text: &str) -> Vec<Name> {
    vec![Name::new(text.as_bytes()).unwrap()]
}

fn requests() -> Vec<(&'static str, NamespaceChange)> {
    let source_text: Arc<str> = "x".into();
    let join = |what| NamespaceChange::Join {
        at: path("at"),
        what,
        order: Order::Replace,
        create: false,
        source_text: Arc::clone(&source_text),
    };
    vec![
        ("mount", join(Source::Tree(NodeId::new(1, 0), stat(Kind::Directory, 0)))),
        ("bind", join(Source::Path(path("new")))),
        ("unmount", NamespaceChange::Part { at: path("at"), source_text: None }),
    ]
}

#[test]
fn states_md_is_fresh() {
    let mut drawing = Drawing::default();
    let found = |kind| Ok(Reply::Walked(vec![stat(kind, 5)], Some(NodeId::new(0, 5))));
    let replies = [
        ("Found", found(Kind::Directory)),
        ("FoundFile", found(Kind::File)),
        ("Failed", Err(Error::NotFound)),
    ];
    for (kind, requested) in requests() {
        // Every sequence of two replies.
        for course in 0..9_usize {
            let (mut table, mut gone) = (Table::default(), Vec::new());
            let root = Position::plain(NodeId::new(0, 0));
            let top = Top { node: NodeId::new(0, 0), stat: stat(Kind::Directory, 0) };
            let mut change = Change::new(root, top, requested.clone());
            drawing.row("begin", kind, change.name(), "Ask");
            let hidden = Hidden::default();
            let mut step = change.next(&mut table, &hidden, &mut gone);
            for position in 0..2 {
                if !matches!(step, Step::Ask(..)) {
                    break;
                }
                let (label, reply) = &replies[course / 3_usize.pow(position) % 3];
                let before = change.name();
                change.arrive(
                    reply.clone(),
                    Map { table: &table, hidden: &hidden, top: NodeId::new(9, 0), root: None },
                    &mut gone,
                );
                step = change.next(&mut table, &hidden, &mut gone);
                let asks = match step {
                    Step::Ask(..) => "Ask",
                    Step::End(Ok(())) => "End: done",
                    Step::End(Err(_)) => "End: failed",
                };
                drawing.row(before, &format!("{label} ({kind})"), change.name(), asks);
            }
        }
    }
    drawing.assert_fresh(concat!(env!("CARGO_MANIFEST_DIR"), "/src/change/states.md"));
}
