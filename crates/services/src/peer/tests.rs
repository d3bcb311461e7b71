use super::*;
use crate::Settings;
use crate::journal::lab::settings;
use base::drawing::Drawing;
use base::{Buf, Stat};
use replica::service::ReplicaId;

const OPEN: OpenId = OpenId(7);
const NODE: NodeId = NodeId(5);

fn state(peer: &Peer) -> String {
    peer.name().to_string()
}

fn introduction() -> Introduction {
    Introduction::new(&settings(), ReplicaId(2), &[9; CHALLENGE], [1; CHALLENGE])
}

/// Returns the seal for messages of the other end.
fn theirs() -> Seal {
    let theirs = Settings { me: ReplicaId(2), ..settings() };
    let seals = crate::proof::seals(&theirs, &[9; CHALLENGE], (settings().me, &[1; CHALLENGE]));
    seals.ours
}

/// Frames messages as they are written.
fn frames(messages: &[&[u8]]) -> Vec<Vec<u8>> {
    let mut seal = introduction().seals.ours;
    messages.iter().map(|message| seal.frame(message)).collect()
}

fn verdict_reply(verdict: ProofReply) -> Input {
    let theirs = Settings { me: ReplicaId(2), ..settings() };
    let to = (settings().me, &[1; CHALLENGE]);
    let bytes = crate::proof::verdict(&theirs, &[9; CHALLENGE], to, verdict);
    Input::Answered(Ok(Reply::Data(Buf::from(&bytes[..]))))
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
        State::Introducing(OPEN, introduction().verdicts),
        State::Meeting(OPEN, introduction().verdicts),
        State::Idle(OPEN),
        State::Writing(OPEN),
        State::Checking(OPEN),
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
            ("Introduced", Input::Introduce(introduction())),
            ("Welcome", verdict_reply(ProofReply::Welcome)),
            ("Farewell", verdict_reply(ProofReply::Farewell)),
            ("Written", Input::Answered(Ok(Reply::Written(1)))),
            ("Ended", Input::Answered(Ok(Reply::Data(Buf::default())))),
            ("Whole", Input::Answered(Ok(Reply::Data(Buf::from(&theirs().frame(&[0])[..]))))),
            ("Failed", Input::Answered(Err(Error::Disconnected))),
            ("Say", Input::Send(b"hello".to_vec())),
            ("Leave", Input::Leave),
        ];
        for (label, input) in inputs {
            let join_requests = matches!(at, State::Asking(_) | State::Fetching(_));
            let join_request = join_requests
                .then(|| JoinRequest { peer_message: b"join".to_vec(), room: u64::MAX });
            let is_down = matches!(at, State::Down(_));
            let seals = (!is_down).then(|| introduction().seals);
            let reader = (!is_down).then(|| (Reader::new(theirs()), 0));
            let Input::Answered(Ok(Reply::Data(verdict))) = verdict_reply(ProofReply::Welcome)
            else {
                unreachable!("a verdict is data")
            };
            let verdict = verdict.to_vec();
            let peer = Peer { state: at, seals, verdict, reader, ..Peer::new(join_request) };
            drawing.sample_as(label, peer, input, state);
        }
    }
    drawing.assert_fresh(concat!(env!("CARGO_MANIFEST_DIR"), "/src/peer/states.md"));
}

/// Returns the outputs after an input.
fn step(peer: &mut Peer, input: Input) -> Vec<Output> {
    let mut out = Vec::new();
    peer.step(Instant(0), input, &mut out);
    peer.check();
    out
}

fn written() -> Input {
    Input::Answered(Ok(Reply::Written(1)))
}

/// Returns a connected link.
pub(crate) fn up() -> Peer {
    let mut peer = introduced(None);
    assert_eq!(step(&mut peer, verdict_reply(ProofReply::Welcome)), [Output::Connected]);
    peer
}

/// Returns a link that has sent its proof.
fn introduced(join_request: Option<JoinRequest>) -> Peer {
    let mut peer = Peer::new(join_request);
    let found = Input::Answered(Ok(Reply::Walked(Vec::new(), Some(NODE))));
    let opened = Input::Answered(Ok(Reply::Opened(OPEN, Stat::default())));
    assert_eq!(step(&mut peer, Input::Tick), [Output::Find]);
    assert_eq!(step(&mut peer, found), [Output::Open(NODE)]);
    assert_eq!(step(&mut peer, opened), [Output::Release(NODE), Output::Read(OPEN, 0)]);
    let requested = step(&mut peer, Input::Answered(challenge()));
    assert_eq!(requested, [Output::Introduce(vec![9; CHALLENGE])]);
    let proof = step(&mut peer, Input::Introduce(introduction()));
    assert_eq!(proof, [Output::Write(OPEN, 0, introduction().proof)]);
    assert_eq!(step(&mut peer, written()), [Output::Read(OPEN, 0)]);
    peer
}

#[test]
fn messages_queued_during_a_write_go_with_the_next() {
    let mut peer = up();
    let send = |peer: &mut Peer, text: &str| step(peer, Input::Send(text.as_bytes().to_vec()));
    let all = frames(&[b"ab", b"c", b"d"]);
    let at = all[0].len() as u64;
    assert_eq!(send(&mut peer, "ab"), [Output::Write(OPEN, 0, all[0].clone())]);
    assert_eq!(send(&mut peer, "c"), []);
    assert_eq!(send(&mut peer, "d"), []);
    assert_eq!(step(&mut peer, written()), [Output::Write(OPEN, at, all[1..].concat())]);
    assert_eq!(step(&mut peer, written()), []);
    let failed = step(&mut peer, Input::Leave);
    assert_eq!(failed, [Output::Disconnected, Output::Close(OPEN)]);
    assert_eq!(send(&mut peer, "lost"), []);
}

/// A heartbeat reads the verdict, and the other replica replies in its next turn.
#[test]
fn a_heartbeat_follows_each_pause() {
    let mut peer = up();
    let tick = |peer: &mut Peer, at| {
        let mut out = Vec::new();
        peer.step(Instant(0) + at, Input::Tick, &mut out);
        out
    };
    assert_eq!(peer.deadline(), Some(Instant(0) + HEARTBEAT));
    assert_eq!(tick(&mut peer, HEARTBEAT - Duration::from_millis(1)), []);
    assert_eq!(tick(&mut peer, HEARTBEAT), [Output::Read(OPEN, 0)]);
    // One heartbeat at a time, and messages queued meanwhile are not lost.
    assert_eq!((peer.deadline(), tick(&mut peer, 9 * HEARTBEAT)), (None, Vec::new()));
    assert_eq!(step(&mut peer, Input::Send(b"ab".to_vec())), []);
    let next = step(&mut peer, verdict_reply(ProofReply::Welcome));
    assert_eq!(next, [Output::Write(OPEN, 0, frames(&[b"ab"]).concat())]);
    assert_eq!(step(&mut peer, written()), []);
    // A restarted server does not know the open file.
    assert_eq!(tick(&mut peer, HEARTBEAT), [Output::Read(OPEN, 0)]);
    let failed = step(&mut peer, Input::Answered(Err(Error::Disconnected)));
    assert_eq!(failed, [Output::Disconnected, Output::Close(OPEN)]);
    // A file reopened on a new connection returns a challenge.
    let mut peer = up();
    assert_eq!(tick(&mut peer, HEARTBEAT), [Output::Read(OPEN, 0)]);
    let failed = step(&mut peer, Input::Answered(challenge()));
    assert_eq!(failed, [Output::Disconnected, Output::Close(OPEN)]);
}

#[test]
fn the_send_queue_is_bounded() {
    let mut peer = up();
    let piece = vec![0; (1 << 20) - 36];
    assert_eq!(step(&mut peer, Input::Send(piece.clone())).len(), 1);
    for _ in 0..20 {
        assert_eq!(step(&mut peer, Input::Send(piece.clone())), []);
    }
    let mut written_bytes = 0;
    while let [Output::Write(_, at, data)] = &step(&mut peer, written())[..] {
        written_bytes = usize::try_from(*at).expect("small") + data.len();
        assert!(data.len() <= WRITE_MAX);
    }
    // Only whole messages are dropped.
    assert!(written_bytes <= WAITING_MAX + (1 << 20) && written_bytes % (1 << 20) == 0);
}

#[test]
fn a_peer_without_the_secret_receives_nothing() {
    let mut peer = introduced(None);
    let wrong = Input::Answered(Ok(Reply::Data(Buf::from(&[7; VERDICT][..]))));
    assert_eq!(step(&mut peer, wrong), [Output::Stranger, Output::Close(OPEN)]);
    let mut peer = introduced(None);
    let gone = step(&mut peer, verdict_reply(ProofReply::Farewell));
    assert_eq!(gone, [Output::Removed, Output::Close(OPEN)]);
}

#[test]
fn a_joining_replica_reads_the_whole_answer() {
    let part = |bytes: &[u8]| Input::Answered(Ok(Reply::Data(Buf::from(bytes))));
    let ask = |room| {
        let mut peer = introduced(Some(JoinRequest { peer_message: b"join".to_vec(), room }));
        let asks = step(&mut peer, verdict_reply(ProofReply::Welcome));
        assert_eq!(asks, [Output::Write(OPEN, 0, frames(&[b"join"]).concat())]);
        assert_eq!(step(&mut peer, written()), [Output::Read(OPEN, 32)]);
        peer
    };
    let mut seal = theirs();
    let answer = [seal.frame(b"\x01ye"), seal.frame(b"\x00s")].concat();
    let mut peer = ask(100);
    for (sent, byte) in answer.iter().enumerate().take(answer.len() - 1) {
        let next = step(&mut peer, part(&[*byte]));
        assert_eq!(next, [Output::Read(OPEN, 32 + sent as u64 + 1)]);
    }
    assert_eq!(
        step(&mut peer, part(&answer[answer.len() - 1..])),
        [Output::Answered(b"yes".to_vec()), Output::Close(OPEN)]
    );
    // A longer answer does not fit.
    let mut peer = ask(2);
    let next = step(&mut peer, part(&answer[..39]));
    assert_eq!(next, [Output::TooLong(39), Output::Close(OPEN)]);
    // A truncated or modified answer is rejected.
    let mut peer = ask(100);
    assert_eq!(step(&mut peer, part(&answer[..10])).len(), 1);
    assert_eq!(step(&mut peer, part(&[])), [Output::Close(OPEN)]);
    for wrong in [[&answer[39..], &[]].concat(), answer[..39].repeat(2)] {
        let mut peer = ask(100);
        let received = step(&mut peer, part(&wrong));
        assert_eq!(received, [Output::Stranger, Output::Close(OPEN)]);
    }
}
