//! Changes of membership as seen by one server.

use super::*;
use crate::ADMINISTRATOR;
use crate::journal::lab::{formatted_of, formatted_small};
use crate::peer_message::Answer;
use crate::proof::{ProofReply, VERDICT};

const NEW: ReplicaId = ReplicaId(4);
const PLACE: &str = "192.0.2.4:5640";

/// Authenticated writer of peer messages.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) open: OpenId,
}

impl Lab {
    pub(super) fn admit(&mut self, who: ReplicaId) -> Result<Writer, ProofReply> {
        let open = self.open("peer");
        let Ok(Reply::Data(challenge)) = self.read(open) else { panic!("a challenge") };
        let key = Settings { me: who, ..settings() };
        let introduction = Introduction::new(&key, settings().me, &challenge, [1; CHALLENGE]);
        self.write(open, 0, &introduction.proof).expect("it knows the secret");
        let Ok(Reply::Data(outputs)) = self.read(open) else { panic!("a verdict") };
        match introduction.verdicts.judge(&outputs).expect("this one knows it too") {
            ProofReply::Welcome => {
                self.seals.insert(open, (introduction.seals, 0));
                Ok(Writer { open })
            }
            ProofReply::Farewell => Err(ProofReply::Farewell),
        }
    }

    pub(super) fn send(
        &mut self,
        writer: &mut Writer,
        peer_message: &PeerMessage,
    ) -> Result<(), Error> {
        self.write_bytes(writer.open, &peer_message.bytes()).map(drop)
    }

    /// Returns the answer after the verdict, if there is one.
    fn answer_after_verdict(&mut self, open: OpenId) -> Option<Vec<u8>> {
        let mut reader = crate::peer_message::Reader::new(self.seals[&open].0.theirs.clone());
        let mut read = 0;
        loop {
            let offset = (VERDICT + read) as u64;
            let ask = Ask::Read { open, offset, count: 1 << 20, headroom: 0 };
            let Ok(Reply::Data(data)) = self.answer(ask) else { panic!("it can be read") };
            read += data.len();
            match reader.take(&data).expect("nobody changes it") {
                None if data.is_empty() => return None,
                None => {}
                whole => return whole,
            }
        }
    }

    /// Returns the objection in the answer to a membership request, if there is one.
    fn objection(&mut self, writer: &Writer) -> Option<String> {
        match Answer::read(&self.answer_after_verdict(writer.open).expect("an answer")) {
            Ok(Answer::Yes) => None,
            Ok(Answer::No(why)) => Some(why),
            other => panic!("{other:?}"),
        }
    }

    /// Processes an answer to the join request.
    fn receive(&mut self, answer: &[u8]) {
        self.hosted.receive_answer(NOW, OTHER, answer, &mut Vec::new());
    }

    /// Removes the other replica as lost.
    fn lose_other(&mut self) {
        let mut key = self.admit(ADMINISTRATOR).expect("the key is right");
        self.send(&mut key, &lose(true)).expect("taken");
        assert_eq!(self.objection(&key), None);
    }
}

fn lose(forced: bool) -> PeerMessage {
    PeerMessage::ChangeRequest(ChangeRequest {
        lost: [OTHER].into(),
        forced,
        ..ChangeRequest::default()
    })
}

fn join() -> PeerMessage {
    PeerMessage::Join(PLACE.to_string())
}

#[test]
fn administrators_receive_the_result_of_a_change() {
    let mut lab = Lab::new();
    let mut other = lab.admit(OTHER).expect("a member");
    let mut key = lab.admit(ADMINISTRATOR).expect("the key is right");
    lab.send(&mut key, &lose(false)).expect("taken");
    assert!(lab.objection(&key).expect("half would go").contains("add --force"));
    // One membership request per open file.
    assert_eq!(lab.send(&mut key, &lose(true)).err(), Some(Error::Denied));
    lab.lose_other();
    assert!(lab.file("status").contains("one of 1, epoch 2"));
    // A request that is already satisfied succeeds.
    let mut again = lab.admit(ADMINISTRATOR).expect("the key is right");
    lab.send(&mut again, &lose(true)).expect("taken");
    assert_eq!(lab.objection(&again), None);
    // The file of a former member is closed, and another one rejects it.
    let late = PeerMessage::Gossip(message(vec![entry(1, "x")]));
    assert_eq!(lab.send(&mut other, &late).err(), Some(Error::Denied));
    assert_eq!(lab.admit(OTHER).err(), Some(ProofReply::Farewell));
    let news = std::iter::from_fn(|| lab.hosted.next_report()).collect::<Vec<_>>();
    assert!(news.iter().any(|line| line.contains("epoch 2: the members are replicas 1")));
}

#[test]
fn a_joining_replica_sends_only_join_requests() {
    for (who, peer_message) in [
        (NEW, PeerMessage::Gossip(message(vec![entry(1, "x")]))),
        (NEW, lose(true)),
        (OTHER, lose(true)),
        (ADMINISTRATOR, join()),
        (ADMINISTRATOR, PeerMessage::Gossip(message(Vec::new()))),
    ] {
        let mut lab = Lab::new();
        let mut writer = lab.admit(who).expect("it knows the secret");
        assert_eq!(
            lab.send(&mut writer, &peer_message).err(),
            Some(Error::Denied),
            "{peer_message:?}"
        );
        assert!(lab.file("status").contains("one of 2, epoch 1"));
    }
}

#[test]
fn a_refused_join_carries_its_reason() {
    let mut lab = Lab::new();
    let named = PeerMessage::Join("example.org:5640".to_string());
    for (who, peer_message, why) in
        [(NEW, named, "no address in numbers"), (OTHER, join(), "another number")]
    {
        let mut writer = lab.admit(who).expect("it knows the secret");
        lab.send(&mut writer, &peer_message).expect("taken");
        assert!(lab.objection(&writer).expect("no member").contains(why));
    }
    assert!(lab.file("status").contains("one of 2, epoch 1"));
    // The message is reported once, however often it is received.
    let mut new = Lab::on(formatted_of(&Settings { me: NEW, joins: true, ..settings() }));
    let no = replica::binary::write(&Answer::No("full".to_string()));
    new.receive(&no);
    new.receive(&no);
    let news: Vec<String> = std::iter::from_fn(|| new.hosted.next_report()).collect();
    assert!(
        matches!(&news[..], [one] if one.ends_with("replica 2 does not take this one in: full")),
        "{news:?}"
    );
}

#[test]
fn a_new_replica_begins_with_what_there_is() {
    let mut lab = Lab::new();
    lab.lose_other();
    let ops = lab.open("ops");
    lab.write(ops, 0, b"append a\nappend b\n").expect("taken");
    let mut new = lab.admit(NEW).expect("it knows the secret");
    assert_eq!(lab.answer_after_verdict(new.open), None, "it is no member");
    lab.send(&mut new, &join()).expect("taken");
    let join_snapshot = lab.answer_after_verdict(new.open).expect("a snapshot");
    let Ok(Answer::Begin(read)) = Answer::read(&join_snapshot) else { panic!("a snapshot") };
    assert!(read.member_state.membership.members.contains_key(&NEW));
    // The number is in use at another address.
    let mut second = lab.admit(NEW).expect("it knows the secret");
    let elsewhere = PeerMessage::Join("192.0.2.5:5640".to_string());
    lab.send(&mut second, &elsewhere).expect("taken");
    assert!(lab.objection(&second).expect("it is taken").contains("another number"));

    let settings = Settings { me: NEW, joins: true, ..settings() };
    let mut begun = Lab::on(formatted_of(&settings));
    let ops = begun.open("ops");
    begun.write(ops, 0, b"append c\n").expect("taken");
    assert!(begun.text(ops).contains("is no member"));
    begun.receive(b"nonsense");
    assert!(begun.file("status").contains("not a member yet"));
    begun.receive(&join_snapshot);
    assert_eq!(begun.file("value"), "\"a\"\n\"b\"\n");
    begun.write(ops, 9, b"append c\n").expect("taken");
    assert!(begun.text(ops).contains("\"value\":2"));
    // The replica is still a member after a crash.
    begun.disk.lose_power();
    let mut again = Lab::on(begun.disk);
    assert!(again.file("status").contains("replica  4, one of 2, epoch 3"));
    assert_eq!(again.file("value"), "\"a\"\n\"b\"\n\"c\"\n");
}

#[test]
fn a_join_without_space_is_refused_at_once() {
    let mut lab = Lab::new();
    lab.lose_other();
    let ops = lab.open("ops");
    let mut at = 0;
    for _ in 0..40 {
        let line = format!("append {}\n", "x".repeat(400_000));
        for part in line.as_bytes().chunks(100_000) {
            lab.write(ops, at, part).expect("taken");
            at += part.len() as u64;
        }
        lab.text(ops);
    }
    let mut new = lab.admit(NEW).expect("it knows the secret");
    lab.send(&mut new, &join()).expect("taken");
    let join_snapshot = lab.answer_after_verdict(new.open).expect("a snapshot");
    assert!(join_snapshot.len() > 12 << 20);
    let settings = Settings { me: NEW, joins: true, ..settings() };
    let mut small = Lab::on(formatted_small(&settings));
    small.receive(&join_snapshot);
    let is_full = |lab: &mut Lab| lab.file("status").contains("is full: ");
    assert!((0..100).any(|_| is_full(&mut small)));
    assert!(small.hosted.next_report().expect("a report").contains("replica grow"));
    small.disk.lose_power();
    assert!(Lab::on(small.disk).file("status").contains("not a member yet"));
}

/// Messages may be corrupt, or of another version.
#[test]
fn nonsense_is_not_begun_with() {
    let mut lab = Lab::new();
    lab.lose_other();
    let ops = lab.open("ops");
    lab.write(ops, 0, b"append a\nappend b\n").expect("taken");
    let mut new = lab.admit(NEW).expect("it knows the secret");
    lab.send(&mut new, &join()).expect("taken");
    let right = lab.answer_after_verdict(new.open).expect("a snapshot");
    let settings = Settings { me: NEW, joins: true, ..settings() };
    let mut rng = seeded(7);
    let (mut begun, mut refused) = (0, 0);
    for _ in 0..300 {
        let mut join_snapshot = right.clone();
        let at = rng.usize(..join_snapshot.len());
        join_snapshot[at] = rng.u8(..);
        let mut lab = Lab::on(formatted_of(&settings));
        lab.receive(&join_snapshot);
        lab.file("status");
        match lab.file("status").contains("not a member yet") {
            true => refused += 1,
            false => begun += 1,
        }
        lab.disk.lose_power();
        Lab::on(lab.disk).file("value");
    }
    assert!(begun > 0 && refused > 100, "{begun} begun, {refused} refused");
}

#[test]
fn a_hung_member_does_not_block_joins_at_others() {
    let settings = Settings { me: NEW, joins: true, ..settings() };
    let mut hosted = Lab::on(formatted_of(&settings)).hosted;
    hosted.add_link(ReplicaId(3), vec![Address::Unix(b"/nowhere".to_vec())]);
    let begin = |hosted: &mut Hosted, id: ReplicaId, now: Instant| {
        let link = hosted.links.get_mut(&id).expect("a link");
        link.peer.step(now, peer::Input::Tick, &mut Vec::new());
    };
    let attempts = |hosted: &Hosted| hosted.attempts().collect::<Vec<_>>();
    hosted.links.get_mut(&OTHER).expect("a link").peer = Peer::new(None);
    assert_eq!(attempts(&hosted), [(OTHER, Instant(0)), (ReplicaId(3), Instant(0))]);
    begin(&mut hosted, OTHER, NOW);
    let late = NOW + Duration::from_secs(10);
    assert_eq!(attempts(&hosted), [(ReplicaId(3), late)]);
    begin(&mut hosted, ReplicaId(3), late);
    assert_eq!(attempts(&hosted), []);
    // A member tries all at once.
    hosted.joining = None;
    hosted.links.get_mut(&OTHER).expect("a link").peer = Peer::new(None);
    assert_eq!(attempts(&hosted), [(OTHER, Instant(0))]);
}

/// It does not know the origins, and says that it is not a member.
#[test]
fn a_joining_replica_refers_clients_to_members() {
    let settings = Settings { me: NEW, joins: true, ..settings() };
    let mut lab = Lab::on(formatted_of(&settings));
    let token = op_session::show_token(settings.id, &[(ReplicaId(9), 4)].into_iter().collect());
    let in_line = format!("{{\"op\": \"size\", \"after\": \"{token}\"}}\n");
    for requested in ["size\n".to_string(), in_line, format!("after {token}\nstrict size\n")] {
        let ops = lab.open("ops");
        lab.write(ops, 0, requested.as_bytes()).expect("taken");
        let outputs = lab.text(ops);
        assert!(outputs.contains("\"reason\":\"outside\""), "{requested}: {outputs}");
    }
}
