//! The drawing of pending requests, and their handling of completions.

use super::super::pending::Pending;
use super::super::plan::Placing;
use super::*;
use base::drawing::Drawing;
use store::Ticket;

const PLACING: Placing = Placing { offset: 0, appends_to: None };

/// A completion for a pending request.
enum Back {
    Opened(Result<(), store::Error>),
    Fetched(Result<(), store::Error>),
    Placed(Result<Vec<store::Extent>, store::Error>),
    Committed(Result<(), store::Error>),
    Trimmed(Result<(), Error>),
    Identified(Result<PathDone, Error>),
    Released,
    Cancel,
}

/// Returns a volume with a pending request, and with a file that is open as number 0.
fn waiting(awaits: Awaits, ask: Ask, cancelled: bool) -> Lab {
    let mut lab = Lab::new();
    // The file of the samples is inode 2.
    lab.volume.first_number = 0;
    let (node, _open) = lab.create_with("/f", WRITE, true, 0o644).unwrap();
    lab.release(node);
    let request = Request { caller: root(), ask };
    let pending = Pending { awaits, cancelled, ..Pending::new(RequestId(1000), request) };
    pending.pins().for_each(|pin| lab.volume.pin(pin));
    assert_eq!(lab.volume.pending.insert(pending), 0);
    lab.volume.slots.insert(RequestId(1000), 0);
    if let Ask::Write { offset: BEHIND, .. } = &lab.volume.pending[0].ask {
        // Another request appends.
        lab.volume.appends.hold(2, 77);
    }
    if let Awaits::Trim(ino) = lab.volume.pending[0].awaits {
        lab.volume.trimming.insert((ino, 0));
    }
    if let Awaits::Append(ino, number) = lab.volume.pending[0].awaits {
        assert_eq!(lab.volume.appends.wait(ino, 0), number);
    }
    lab
}

fn come_back(lab: &mut Lab, back: Back) {
    let (now, mut out) = (lab.instant(), Vec::new());
    let ticket = Ticket(0);
    match back {
        Back::Opened(result) => lab.volume.handle(now, store::Output::Opened(result), &mut out),
        Back::Fetched(result) => {
            lab.volume.handle(now, store::Output::Fetched(ticket, result), &mut out);
        }
        Back::Placed(result) => {
            lab.volume.handle(now, store::Output::Placed(ticket, result), &mut out);
        }
        Back::Committed(result) => {
            lab.volume.handle(now, store::Output::Committed(ticket, result), &mut out);
        }
        Back::Trimmed(result) => lab.volume.trimmed(now, 2, result, &mut out),
        Back::Identified(result) => lab.volume.identified(0, result, &mut out),
        Back::Released => {
            lab.volume.appends.release(2, 77);
            lab.volume.resume_waiting(now, &mut out);
        }
        Back::Cancel => lab.volume.cancel(RequestId(1000), &mut out),
    }
    lab.perform(out);
}

/// An offset behind the end of the file.
const BEHIND: u64 = 1 << 20;

/// A write that moves the end of the file.
fn append() -> Ask {
    Ask::Write { open: OpenId::new(3, 0), offset: BEHIND, data: Buf::from(vec![1; 10]) }
}

fn write(count: usize) -> Ask {
    let (open, data) = (OpenId::new(3, 0), Buf::from(vec![1; count]));
    Ask::Write { open, offset: 0, data }
}

#[test]
fn states_md_is_fresh() {
    use store::Error::{Damaged, DiskFailed};
    let stat = || Ask::Stat { node: NodeId::new(3, 0) };
    let who = || Ask::Identify { who: Who::Uid(5) };
    let user = || Ok(PathDone::User(User { uid: 5, gid: 5, groups: Vec::new(), commands: false }));
    let snapshot = || {
        let dir = NodeId::new(3, 1);
        Ask::MakeDir { dir, name: name("s"), mode: 0o755, gid: None }
    };
    let durable = || Awaits::Durable(Reply::Done);
    let samples: Vec<(&str, Awaits, Ask, bool, Back)> = vec![
        ("Opened", Awaits::Plan, stat(), false, Back::Opened(Ok(()))),
        ("Opened, to be placed", Awaits::Plan, write(100_000), false, Back::Opened(Ok(()))),
        ("Opened, to be synced", Awaits::Plan, sync(), false, Back::Opened(Ok(()))),
        ("Opened, a snapshot", Awaits::Plan, snapshot(), false, Back::Opened(Ok(()))),
        ("NotOpened", Awaits::Plan, stat(), false, Back::Opened(Err(Damaged))),
        ("Fetched", Awaits::Blocks, stat(), false, Back::Fetched(Ok(()))),
        ("Fetched, cancelled", Awaits::Blocks, stat(), true, Back::Fetched(Ok(()))),
        ("Failed", Awaits::Blocks, stat(), false, Back::Fetched(Err(Damaged))),
        ("Placed", Awaits::Placement(PLACING), write(100), false, Back::Placed(Ok(Vec::new()))),
        (
            "Placed, cancelled",
            Awaits::Placement(PLACING),
            write(100),
            true,
            Back::Placed(Ok(Vec::new())),
        ),
        ("Failed", Awaits::Placement(PLACING), write(100), false, Back::Placed(Err(DiskFailed))),
        ("Trimmed", Awaits::Trim(2), write(100), false, Back::Trimmed(Ok(()))),
        ("Opened, behind an append", Awaits::Plan, append(), false, Back::Opened(Ok(()))),
        ("Released", Awaits::Append(2, 0), append(), false, Back::Released),
        ("Cancel", Awaits::Append(2, 0), append(), false, Back::Cancel),
        ("Failed", Awaits::Trim(2), write(100), false, Back::Trimmed(Err(Error::Io))),
        ("Cancel", Awaits::Trim(2), write(100), false, Back::Cancel),
        ("Committed", durable(), sync(), false, Back::Committed(Ok(()))),
        ("Failed", durable(), sync(), false, Back::Committed(Err(DiskFailed))),
        ("Committed", Awaits::Snapshot, snapshot(), false, Back::Committed(Ok(()))),
        ("Failed", Awaits::Snapshot, snapshot(), false, Back::Committed(Err(DiskFailed))),
        ("Identified", Awaits::User, who(), false, Back::Identified(user())),
        ("Failed", Awaits::User, who(), false, Back::Identified(Err(Error::NotFound))),
        ("Cancel", Awaits::User, who(), false, Back::Cancel),
        ("Cancel", Awaits::Blocks, stat(), false, Back::Cancel),
    ];
    let mut drawing = Drawing::default();
    for (label, awaits, ask, cancelled, back) in samples {
        let before = awaits.name();
        let mut lab = waiting(awaits, ask, cancelled);
        come_back(&mut lab, back);
        let next = lab.volume.pending.get(0).map_or("over", |pending| pending.awaits.name());
        let reply = if lab.replies.is_empty() { "" } else { "Reply" };
        drawing.row(before, label, next, reply);
    }
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/src/volume/states.md");
    drawing.assert_fresh(file);
}

fn sync() -> Ask {
    Ask::Sync { open: OpenId::new(3, 0), data_only: false }
}

#[test]
fn unused_placed_blocks_are_freed() {
    let mut lab = Lab::new();
    lab.create("/f", 0o644).unwrap();
    let open = lab.open("/f", WRITE).unwrap();
    let free = lab.volume.store.space().blocks_free;
    let data = Buf::from(vec![1; 400_000]);
    let id = lab.begin(Ask::Write { open, offset: 0, data });
    assert_eq!(lab.volume.counts().pending, [("place", 1)]);
    assert!(lab.volume.store.space().blocks_free < free);
    lab.input(Input::Cancel(id));
    while lab.replies.is_empty() {
        assert!(lab.operate() || lab.tick());
    }
    assert!(matches!(lab.answered(id), Some(Err(Error::Cancelled))));
    assert_eq!(lab.stat("/f").unwrap().size, 0);
    lab.close(open);
    lab.verify();
}

#[test]
fn requests_that_come_before_the_store_is_open_wait() {
    let lab = Lab::new();
    let mut world = lab.reopen().world;
    let (head, mut outputs) = (world.disk.head().unwrap(), Vec::new());
    let store = Store::open(&head, world.config, Instant(0), &mut outputs).unwrap();
    let mut lab = Lab::of(store, world, 0);
    lab.volume.opened = None;
    let id = lab.begin(Ask::Stat { node: lab.volume.root() });
    assert!(lab.answered(id).is_none() && lab.volume.is_open().is_none());
    let (now, mut out) = (lab.instant(), Vec::new());
    lab.volume.begin(now, outputs, &mut out);
    lab.perform(out);
    while lab.replies.is_empty() {
        assert!(lab.operate() || lab.tick());
    }
    assert!(matches!(lab.answered(id), Some(Ok(Reply::Stat(_)))));
    assert_eq!(lab.volume.is_open(), Some(Ok(())));
    lab.verify();
}

#[test]
fn a_volume_closes_when_all_is_on_the_disk() {
    let mut lab = Lab::new();
    lab.create("/f", 0o644).unwrap();
    lab.write("/f", 0, b"last words").unwrap();
    let mut lab = lab.check_disk();
    assert_eq!(lab.read("/f").unwrap(), b"last words");
    let (now, mut out) = (lab.instant(), Vec::new());
    lab.volume.close(now, &mut out);
    lab.perform(out);
    while lab.volume.is_closed().is_none() {
        assert!(lab.operate() || lab.tick());
    }
    assert_eq!(lab.create("/g", 0o644), Err(Error::ReadOnly));
    lab.verify();
}
