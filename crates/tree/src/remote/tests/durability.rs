//! Writes, and the result of an fsync.

use super::*;

fn write(open: OpenId, count: usize) -> Ask {
    Ask::Write { open, offset: 0, data: Buf::from(vec![7; count]) }
}

impl Lab {
    /// Loses the connection and reconnects, with an empty record.
    fn restart(&mut self) {
        self.hang_up();
        self.connect();
        self.send(&Rmessage::Version { msize: 8192, version: b"9P2000.L" });
        self.send(&Rmessage::Attach { qid: qid(1, Qid::DIR) });
        self.text.clear();
    }

    /// Returns whether an fsync after a loss of the connection reports lost writes. Supplies the
    /// replies to the reopening of the file.
    fn reports_loss(&mut self, id: u64, open: OpenId) -> bool {
        self.ask(id, Ask::Sync { open, data_only: false });
        let none = || Rmessage::Walk { qids: [].into_iter().collect() };
        let one = || Rmessage::Walk { qids: [qid(5, Qid::FILE)].into_iter().collect() };
        while !self.text.contains(&format!("reply {id} ")) {
            let message = self.text.rsplit("hears ").next().unwrap_or_default();
            let answer = match message.split_whitespace().next() {
                Some("Walk") if message.contains("names: []") => none(),
                Some("Walk") => one(),
                Some("Lopen") => Rmessage::Lopen { qid: qid(5, Qid::FILE), iounit: 0 },
                Some("Fsync") => Rmessage::Fsync {},
                Some("Clunk") => Rmessage::Clunk {},
                other => panic!("{other:?} in {}", self.text),
            };
            self.send(&answer);
        }
        self.text.contains(&format!("reply {id} Disconnected"))
    }
}

#[test]
fn an_fsync_covers_only_writes_that_were_answered_before_it_was_sent() {
    // A write that begins after the fsync, and one that is outstanding when it begins.
    for early in [false, true] {
        let mut lab = Lab::up(b"9P2000.L");
        let (_, open) = lab.open();
        if early {
            lab.ask(3, write(open, 3));
        }
        lab.ask(4, Ask::Sync { open, data_only: false });
        if !early {
            lab.ask(3, write(open, 3));
        }
        let (first, second) = (lab.tags[0], lab.tags[1]);
        let (written, synced) = if early { (first, second) } else { (second, first) };
        lab.say_to(synced, &Rmessage::Fsync {});
        lab.say_to(written, &Rmessage::Write { count: 3 });
        lab.restart();
        assert!(lab.reports_loss(5, open), "early {early}");
        assert!(!lab.reports_loss(6, open), "a loss is reported once");
    }
}

#[test]
fn an_fsync_that_covers_every_write_leaves_nothing_to_report() {
    let mut lab = Lab::up(b"9P2000.L");
    let (_, open) = lab.open();
    lab.ask(3, write(open, 3));
    lab.send(&Rmessage::Write { count: 3 });
    lab.ask(4, Ask::Sync { open, data_only: false });
    lab.send(&Rmessage::Fsync {});
    lab.restart();
    assert!(!lab.reports_loss(5, open));
}

#[test]
fn lost_changes_of_attributes_and_entries_are_reported_too() {
    let mut lab = Lab::up(b"9P2000.L");
    let (node, open) = lab.open();
    let set = base::SetStat { mode: Some(0o600), ..base::SetStat::default() };
    lab.ask(3, Ask::SetStat { node, open: None, set });
    lab.send(&Rmessage::Setattr {});
    assert!(lab.text.contains("reply 3"), "{}", lab.text);
    lab.restart();
    assert!(lab.reports_loss(5, open));
    let mut lab = Lab::up(b"9P2000.L");
    let root = lab.remote.root();
    let access = Access { read: true, ..Access::default() };
    lab.ask(1, Ask::Open { node: root, access });
    lab.send(&Rmessage::Walk { qids: [].into_iter().collect() });
    lab.send(&Rmessage::Lopen { qid: qid(1, Qid::DIR), iounit: 0 });
    lab.send(&getattr());
    lab.ask(2, Ask::Remove { dir: root, name: name("f"), directory: Some(false) });
    lab.send(&Rmessage::Unlinkat {});
    assert!(lab.text.contains("reply 2 Done"), "{}", lab.text);
    lab.restart();
    assert!(lab.reports_loss(3, OpenId::new(3, 0)));
    assert!(!lab.reports_loss(4, OpenId::new(3, 0)), "a loss is reported once");
}

#[test]
fn an_append_goes_in_one_message_or_is_short() {
    let mut lab = Lab::up(b"9P2000.L");
    let (node, _) = lab.open();
    let access = Access { append: true, ..Access::default() };
    lab.ask(3, Ask::Open { node, access });
    lab.send(&Rmessage::Walk { qids: [].into_iter().collect() });
    lab.send(&Rmessage::Lopen { qid: qid(5, Qid::FILE), iounit: 0 });
    lab.send(&getattr());
    lab.text.clear();
    lab.ask(4, write(OpenId::new(3, 1), 20_000));
    assert_eq!(lab.text.matches("hears Write").count(), 1, "{}", lab.text);
    lab.send(&Rmessage::Write { count: 8192 - wire::ninep::IO_HEADER_SIZE });
    assert!(lab.text.contains("reply 4 Written"), "{}", lab.text);
}
