use super::*;
use base::drawing::Drawing;
use base::{Buf, Stat};

const OPEN: OpenId = OpenId(7);
const NODE: NodeId = NodeId(5);

fn state(peer: &Peer) -> String {
    peer.name().to_string()
}

fn challenge() -> Result<Reply, Error> {
    Ok(Reply::Data(Buf::from(&[9; CHALLENGE][..])))
}

#[test]
fn states_md_is_fresh() {
    let states = [
        State::Down(Instant(0)),
        State::Finding,
        State::Opening(NODE),
        State::Reading(OPEN),
        State::Proving(OPEN),
        State::Introducing(OPEN),
        State::Idle(OPEN),
        State::Writing(OPEN),
        State::Asking(OPEN),
        State::Fetching(OPEN),
    ];
    let mut drawing = Drawing::default();
    for at in states {
        let inputs = [
            ("Tick", Input::Tick),
            ("Found", Input::Answered(Ok(Reply::Walked(Vec::new(), Some(NODE))))),
            ("Opened", Input::Answered(Ok(Reply::Opened(OPEN, Stat::default())))),
            ("Challenged", Input::Answered(challenge())),
            ("Proved", Input::Proved(b"proof".to_vec())),
            ("Written", Input::Answered(Ok(Reply::Written(1)))),
            ("Ended", Input::Answered(Ok(Reply::Data(Buf::default())))),
            ("Removed", Input::Answered(Err(Error::Stale))),
            ("Denied", Input::Answered(Err(Error::Denied))),
            ("Failed", Input::Answered(Err(Error::Disconnected))),
            ("Say", Input::Say(b"hello".to_vec())),
            ("Leave", Input::Leave),
        ];
        for (label, input) in inputs {
            let peer = Peer { state: at, ..Peer::new(None) };
            drawing.sample_as(label, peer, input, state);
        }
    }
    drawing.assert_fresh(concat!(env!("CARGO_MANIFEST_DIR"), "/src/peer/states.md"));
}

/// What it asks for, after this.
fn step(peer: &mut Peer, input: Input) -> Vec<Output> {
    let mut out = Vec::new();
    peer.step(Instant(0), input, &mut out);
    peer.check();
    out
}

fn written() -> Input {
    Input::Answered(Ok(Reply::Written(1)))
}

/// One that is up.
fn up() -> Peer {
    let mut peer = Peer::new(None);
    let found = Input::Answered(Ok(Reply::Walked(Vec::new(), Some(NODE))));
    let opened = Input::Answered(Ok(Reply::Opened(OPEN, Stat::default())));
    assert_eq!(step(&mut peer, Input::Tick), [Output::Find]);
    assert_eq!(step(&mut peer, found), [Output::Open(NODE)]);
    assert_eq!(step(&mut peer, opened), [Output::Release(NODE), Output::Read(OPEN)]);
    let asked = step(&mut peer, Input::Answered(challenge()));
    assert_eq!(asked, [Output::Prove(vec![9; CHALLENGE])]);
    let proof = step(&mut peer, Input::Proved(b"proof".to_vec()));
    assert_eq!(proof, [Output::Write(OPEN, 0, b"proof".to_vec())]);
    assert_eq!(step(&mut peer, written()), [Output::Connected]);
    peer
}

#[test]
fn what_is_said_during_a_write_leaves_with_the_next() {
    let mut peer = up();
    let say = |peer: &mut Peer, text: &str| step(peer, Input::Say(text.as_bytes().to_vec()));
    assert_eq!(say(&mut peer, "ab"), [Output::Write(OPEN, 0, b"ab".to_vec())]);
    assert_eq!(say(&mut peer, "c"), []);
    assert_eq!(say(&mut peer, "d"), []);
    assert_eq!(step(&mut peer, written()), [Output::Write(OPEN, 2, b"cd".to_vec())]);
    assert_eq!(step(&mut peer, written()), []);
    let failed = step(&mut peer, Input::Leave);
    assert_eq!(failed, [Output::Disconnected, Output::Close(OPEN)]);
    assert_eq!(say(&mut peer, "lost"), []);
}

#[test]
fn what_waits_has_an_end() {
    let mut peer = up();
    let piece = vec![0; 1 << 20];
    assert_eq!(step(&mut peer, Input::Say(piece.clone())).len(), 1);
    for _ in 0..20 {
        assert_eq!(step(&mut peer, Input::Say(piece.clone())), []);
    }
    let mut written_bytes = 0;
    while let [Output::Write(_, at, data)] = &step(&mut peer, written())[..] {
        written_bytes = usize::try_from(*at).expect("small") + data.len();
        assert!(data.len() <= WRITE_MAX);
    }
    // What is lost is whole messages.
    assert!(written_bytes <= WAITING_MAX + (1 << 20) && written_bytes % (1 << 20) == 0);
}
