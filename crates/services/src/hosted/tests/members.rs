//! Members come and go, as one server sees it.

use super::*;
use crate::journal::lab::{formatted_of, formatted_small};
use crate::{ADMINISTRATOR, Snapshot};
use replica::service::Wish;

const NEW: ReplicaId = ReplicaId(4);
const PLACE: &str = "192.0.2.4:5640";

/// Somebody who has come in, and writes one letter after the other.
struct Writer {
    open: OpenId,
    at: u64,
}

impl Lab {
    fn admit(&mut self, who: ReplicaId) -> Result<Writer, Error> {
        let open = self.open("peer");
        let Ok(Reply::Data(challenge)) = self.read(open) else { panic!("a challenge") };
        let key = Settings { me: who, ..settings() };
        self.write(open, 0, &door::proof(&key, settings().me, &challenge))?;
        Ok(Writer { open, at: 0 })
    }

    fn send(&mut self, writer: &mut Writer, letter: &Letter) -> Result<(), Error> {
        let bytes = letter.frame();
        self.write(writer.open, writer.at, &bytes)?;
        writer.at += bytes.len() as u64;
        Ok(())
    }

    fn bytes(&mut self, open: OpenId) -> Vec<u8> {
        let Ok(Reply::Data(data)) = self.read(open) else { panic!("it can be read") };
        data.to_vec()
    }

    /// The other one is lost.
    fn lose_other(&mut self) {
        let mut key = self.admit(ADMINISTRATOR).expect("who has the key");
        self.send(&mut key, &lose(true)).expect("taken");
        assert_eq!(self.text(key.open), "");
    }
}

fn lose(forced: bool) -> Letter {
    Letter::Wish(Wish { lost: [OTHER].into(), forced, ..Wish::default() })
}

fn join() -> Letter {
    Letter::Join(PLACE.to_string())
}

#[test]
fn who_has_the_key_is_told_what_a_wish_comes_to() {
    let mut lab = Lab::new();
    let mut other = lab.admit(OTHER).expect("a member");
    let mut key = lab.admit(ADMINISTRATOR).expect("who has the key");
    lab.send(&mut key, &lose(false)).expect("taken");
    assert!(lab.text(key.open).contains("say --force"));
    lab.send(&mut key, &lose(true)).expect("taken");
    assert_eq!(lab.text(key.open), "");
    assert!(lab.file("status").contains("one of 1, epoch 2"));
    // The door of who is none any more is shut, and no other is opened.
    let late = Letter::Gossip(message(vec![entry(1, "x")]));
    assert_eq!(lab.send(&mut other, &late).err(), Some(Error::Denied));
    assert_eq!(lab.admit(OTHER).err(), Some(Error::Stale));
    let news = std::iter::from_fn(|| lab.hosted.next_news()).collect::<Vec<_>>();
    assert!(news.iter().any(|line| line.contains("epoch 2: the members are replicas 1")));
}

#[test]
fn who_is_no_member_says_nothing_but_that_it_wants_to_be() {
    for (who, letter) in [
        (NEW, Letter::Gossip(message(vec![entry(1, "x")]))),
        (NEW, lose(true)),
        (NEW, Letter::Join("example.org:5640".to_string())),
        (OTHER, lose(true)),
        (OTHER, join()),
        (ADMINISTRATOR, join()),
        (ADMINISTRATOR, Letter::Gossip(message(Vec::new()))),
    ] {
        let mut lab = Lab::new();
        let mut writer = lab.admit(who).expect("it knows the secret");
        assert_eq!(lab.send(&mut writer, &letter).err(), Some(Error::Denied), "{letter:?}");
        assert!(lab.file("status").contains("one of 2, epoch 1"));
    }
}

#[test]
fn a_new_replica_begins_with_what_there_is() {
    let mut lab = Lab::new();
    lab.lose_other();
    let ops = lab.open("ops");
    lab.write(ops, 0, b"append a\nappend b\n").expect("taken");
    let mut new = lab.admit(NEW).expect("it knows the secret");
    assert_eq!(lab.bytes(new.open), b"", "it is no member");
    lab.send(&mut new, &join()).expect("taken");
    let gift = lab.bytes(new.open);
    let read: Snapshot = binary::read(&gift).expect("a snapshot");
    assert!(read.standing.membership.members.contains_key(&NEW));
    // Another one of the same number is somewhere else.
    let mut second = lab.admit(NEW).expect("it knows the secret");
    let elsewhere = Letter::Join("192.0.2.5:5640".to_string());
    assert_eq!(lab.send(&mut second, &elsewhere).err(), Some(Error::Denied));

    let settings = Settings { me: NEW, joins: true, ..settings() };
    let mut begun = Lab::on(formatted_of(&settings));
    let ops = begun.open("ops");
    begun.write(ops, 0, b"append c\n").expect("taken");
    assert!(begun.text(ops).contains("is no member"));
    let mut out = Vec::new();
    begun.hosted.receive(NOW, b"nonsense", &mut out);
    assert!(begun.file("status").contains("no member yet"));
    begun.hosted.receive(NOW, &gift, &mut out);
    assert_eq!(begun.file("value"), "\"a\"\n\"b\"\n");
    begun.write(ops, 9, b"append c\n").expect("taken");
    assert!(begun.text(ops).contains("\"value\":2"));
    // It is one after a crash.
    begun.disk.lose_power();
    let mut again = Lab::on(begun.disk);
    assert!(again.file("status").contains("replica  4, one of 2, epoch 3"));
    assert_eq!(again.file("value"), "\"a\"\n\"b\"\n\"c\"\n");
}

#[test]
fn what_finds_no_room_is_not_begun_with() {
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
    let mut gift = Vec::new();
    loop {
        let offset = gift.len() as u64;
        let ask = Ask::Read { open: new.open, offset, count: 1 << 20, headroom: 0 };
        let Ok(Reply::Data(data)) = lab.answer(ask) else { panic!("it can be read") };
        if data.is_empty() {
            break;
        }
        gift.extend_from_slice(&data);
    }
    assert!(gift.len() > 12 << 20);
    let settings = Settings { me: NEW, joins: true, ..settings() };
    let mut small = Lab::on(formatted_small(&settings));
    small.hosted.receive(NOW, &gift, &mut Vec::new());
    let is_full = |lab: &mut Lab| lab.file("status").contains("is full: ");
    assert!((0..100).any(|_| is_full(&mut small)));
    assert!(small.hosted.next_news().expect("said").contains("replica grow"));
    small.disk.lose_power();
    assert!(Lab::on(small.disk).file("status").contains("no member yet"));
}

/// What a server says that has not proved to be a member may be anything.
#[test]
fn nonsense_is_not_begun_with() {
    let mut lab = Lab::new();
    lab.lose_other();
    let ops = lab.open("ops");
    lab.write(ops, 0, b"append a\nappend b\n").expect("taken");
    let mut new = lab.admit(NEW).expect("it knows the secret");
    lab.send(&mut new, &join()).expect("taken");
    let right = lab.bytes(new.open);
    let settings = Settings { me: NEW, joins: true, ..settings() };
    let mut rng = seeded(7);
    let (mut begun, mut refused) = (0, 0);
    for _ in 0..300 {
        let mut gift = right.clone();
        let at = rng.usize(..gift.len());
        gift[at] = rng.u8(..);
        let mut lab = Lab::on(formatted_of(&settings));
        lab.hosted.receive(NOW, &gift, &mut Vec::new());
        lab.file("status");
        match lab.file("status").contains("no member yet") {
            true => refused += 1,
            false => begun += 1,
        }
        lab.disk.lose_power();
        Lab::on(lab.disk).file("value");
    }
    assert!(begun > 0 && refused > 100, "{begun} begun, {refused} refused");
}
