//! Mounts that are not listed.

use super::*;
use base::Stat;

const HOST: NodeId = NodeId(0);

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

fn service() -> NodeId {
    NodeId::new(1, 0)
}

fn names() -> Names {
    let mount = Mount { at: HOST, name: name(".upcall"), root: service() };
    Names::new(HOST, Stat::default(), vec![mount], 0)
}

fn walk(names: &mut Names, from: NodeId, path: &[&str]) -> Vec<Output> {
    let ask = Ask::Walk { from, names: path.iter().map(|text| name(text)).collect() };
    let mut out = Vec::new();
    let request = Request { caller: Caller::Server, ask };
    names.step(Instant(0), Input::Ask(RequestId(1), request), &mut out);
    out
}

fn answer(names: &mut Names, count: usize, node: Option<NodeId>) -> String {
    let mut out = Vec::new();
    let reply = Ok(Reply::Walked(vec![Stat::default(); count], node));
    names.step(Instant(0), Input::Answered(RequestId(1), reply), &mut out);
    names.check();
    show(&out)
}

fn show(out: &[Output]) -> String {
    let line = |output: &Output| match output {
        Output::Tell(tree, TreeInput::Ask(_, Request { ask: Ask::Walk { from, names }, .. })) => {
            format!("tree {tree}: walk {:#x} {names:?}", from.0)
        }
        Output::Tell(tree, TreeInput::Release(node)) => {
            format!("tree {tree}: release {:#x}", node.0)
        }
        Output::Reply(_, Ok(Reply::Walked(stats, node))) => {
            format!("reply {} {:x?}", stats.len(), node.map(|node| node.0))
        }
        other => format!("{other:?}"),
    };
    out.iter().map(line).collect::<Vec<_>>().join("; ")
}

#[test]
fn a_walk_passes_down_into_a_mount_and_up_again() {
    let mut mux = names();
    let out = walk(&mut mux, HOST, &[".upcall", "stages", "..", "..", "src"]);
    let root = service().0;
    assert_eq!(show(&out), format!("tree 1: walk {root:#x} [\".\"]"));
    let next = answer(&mut mux, 1, Some(service()));
    assert_eq!(next, format!("tree 1: walk {root:#x} [\"stages\"]"));
    let next = answer(&mut mux, 1, Some(NodeId::new(1, 3)));
    let file = NodeId::new(1, 3).0;
    assert_eq!(next, format!("tree 1: release {root:#x}; tree 1: walk {file:#x} [\"..\"]"));
    let next = answer(&mut mux, 1, Some(service()));
    assert_eq!(next, format!("tree 1: release {file:#x}; tree 0: walk 0x0 [\".\"]"));
    let next = answer(&mut mux, 1, Some(HOST));
    assert_eq!(next, format!("tree 1: release {root:#x}; tree 0: walk 0x0 [\"src\"]"));
    let next = answer(&mut mux, 1, Some(NodeId(7)));
    assert_eq!(next, "tree 0: release 0x0; reply 5 Some(7)");
    assert_eq!(mux.tasks().count(), 0);
}

#[test]
fn a_walk_that_cannot_pass_goes_whole_to_its_tree() {
    let mut mux = names();
    let out = walk(&mut mux, NodeId(5), &["a", "..", "b"]);
    assert_eq!(show(&out), "tree 0: walk 0x5 [\"a\", \"..\", \"b\"]");
}

#[test]
fn the_mounted_name_means_nothing_elsewhere() {
    let mut mux = names();
    let out = walk(&mut mux, NodeId(5), &[".upcall", "x"]);
    assert_eq!(show(&out), "tree 0: walk 0x5 [\".upcall\", \"x\"]");
    assert_eq!(answer(&mut mux, 1, None), "reply 1 None");
}

#[test]
fn a_mounted_name_can_be_neither_made_nor_removed() {
    let mut mux = names();
    let ask = Ask::Remove { dir: HOST, name: name(".upcall"), directory: None };
    let mut out = Vec::new();
    let request = Request { caller: Caller::Server, ask };
    mux.step(Instant(0), Input::Ask(RequestId(1), request), &mut out);
    assert!(matches!(out[..], [Output::Reply(_, Err(Error::Busy))]), "{out:?}");
}
