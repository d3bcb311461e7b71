//! Paths and names that clients send.

use super::*;

/// A client that has sent an attach with this path.
fn attaching(path: &[u8]) -> Lab {
    let mut lab = Lab::linux();
    lab.text.clear();
    let (afid, uname) = (NO_FID, &b"me"[..]);
    lab.send(1, Tmessage::Attach { fid: 1, afid, uname, aname: path, uid: Some(5) });
    lab
}

#[test]
fn names_of_an_attach_that_lead_nowhere_are_left_out() {
    let mut session = session(Identity::Fixed(Caller::Server));
    let mut out = Vec::new();
    let version = Tmessage::Version { msize: 8192, version: b"9P2000.L" };
    session.step(Instant(0), Input::Received(message(NO_TAG, version)), &mut out);
    let (afid, uname, aname) = (NO_FID, &b"me"[..], &b"/./a//././b/."[..]);
    let attach = Tmessage::Attach { fid: 1, afid, uname, aname, uid: Some(5) };
    session.step(Instant(0), Input::Received(message(1, attach)), &mut out);
    let names = out.iter().find_map(|output| match output {
        Output::Ask(_, Request { ask: Ask::Walk { names, .. }, .. }) => Some(names.clone()),
        _ => None,
    });
    let names = names.expect("it walks");
    let names: Vec<&[u8]> = names.iter().map(base::Name::as_bytes).collect();
    assert_eq!(names, [&b"."[..], b"a", b"b"]);
}

#[test]
fn a_path_to_attach_to_is_no_longer_than_linux_takes() {
    let long = [b'/'; 4097];
    assert_eq!(attaching(&long).text, "TAttach 1: Rlerror 1 (36)\n");
    assert_eq!(attaching(&long[1..]).text, "TAttach 1: ask 0 Walk\n");
    let deep = |names| attaching(&b"d/".repeat(names)).text;
    assert_eq!(deep(256), "TAttach 1: Rlerror 1 (36)\n");
    assert_eq!(deep(255), "TAttach 1: ask 0 Walk\n");
    // The path of the tree on the host does not count.
    let within = [b"/srv", &long[1..]].concat();
    assert_eq!(attaching(&within).text, "TAttach 1: ask 0 Walk\n");
}

#[test]
fn names_of_a_walk_that_waits_count() {
    let mut lab = Lab::linux();
    lab.attach();
    let before = lab.session.bytes();
    let long = [b'x'; 255];
    let names = Names::new(&[&long[..]; 16]).unwrap();
    lab.send(2, Tmessage::Walk { fid: 1, newfid: 2, names });
    assert!(lab.session.bytes() >= before + 16 * long.len());
    lab.answer(0, Err(Error::NotFound));
    assert_eq!(lab.session.bytes(), before + 11, "the answer is not sent yet");
}

#[test]
fn long_paths_use_up_a_turn() {
    let begun = |length: usize| {
        let mut lab = Lab::linux();
        lab.attach();
        lab.session.set_room(Room { messages: 7, ..Room::ALL });
        let name = vec![b'x'; length];
        let mut all = Vec::new();
        for tag in 2..9 {
            let names = Names::new(&[&name[..]; 16]).unwrap();
            all.extend(&*message(tag, Tmessage::Walk { fid: 1, newfid: 1, names }));
        }
        lab.text.clear();
        lab.step("walks".to_string(), Input::Received(Buf::from(all)));
        lab.text.matches("Walk").count()
    };
    assert_eq!((begun(2), begun(16), begun(255)), (7, 4, 1));
}
