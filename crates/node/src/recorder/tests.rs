use super::books::{FILES_KEPT, PATH_MAX};
use super::*;
use base::{Access, Buf, Caller, Kind, Name, SetStat};
use expect_test::expect;
use tree::Request;

const ROOT: NodeId = NodeId(1);
const WRITE: Access = Access { write: true, ..Access::READ };

/// A recorder with numbered requests, and a clock that advances by 10 each turn.
struct Lab {
    recorder: Recorder,
    now: Instant,
    next: u64,
}

impl Lab {
    fn new() -> Lab {
        Lab { recorder: Recorder::new(ROOT, true), now: Instant(0), next: 3 << 32 }
    }

    fn ask(&mut self, ask: Ask) -> RequestId {
        let id = RequestId(self.next);
        self.next += 1;
        let request = Request { caller: Caller::Server, ask };
        self.recorder.see(self.now, &names::Input::Ask(id, request));
        id
    }

    fn turn(&mut self) {
        self.now = self.now + Duration::from_nanos(10);
        self.recorder.end_turn(self.now);
        self.recorder.check();
    }

    /// Makes a request in one turn, and answers it in the next.
    fn call(&mut self, ask: Ask, reply: Reply) {
        let id = self.ask(ask);
        self.turn();
        self.recorder.answered(id, &Ok(reply));
        self.turn();
    }

    fn walk(&mut self, path: &str, to: u64, stat: Stat) {
        let names: Vec<Name> = path.split('/').map(name).collect();
        let stats = vec![stat; names.len()];
        self.call(Ask::Walk { from: ROOT, names }, Reply::Walked(stats, Some(NodeId(to))));
    }

    /// Walks to a file of this size and opens it, with this number as node and open file.
    fn open(&mut self, path: &str, number: u64, size: u64, access: Access) {
        self.walk(path, number, file(size));
        let size = if access.truncate { 0 } else { size };
        let reply = Reply::Opened(OpenId(number), file(size));
        self.call(Ask::Open { node: NodeId(number), access }, reply);
    }

    fn read(&mut self, number: u64, offset: u64, count: u32, got: usize) {
        let ask = Ask::Read { open: OpenId(number), offset, count, headroom: 0 };
        self.call(ask, Reply::Data(Buf::from(vec![0; got])));
    }

    fn write(&mut self, number: u64, offset: u64, len: u32) {
        let data = Buf::from(vec![0; len as usize]);
        self.call(Ask::Write { open: OpenId(number), offset, data }, Reply::Written(len));
    }

    /// Takes the records, a line each.
    fn text(&mut self) -> String {
        let line = |it: Recorded| {
            let Recorded { at, until, act, file, path, offset, len, stream } = it;
            format!("{}-{} {act:?} {file}:{path} {offset}+{len} by {stream}\n", at.0, until.0)
        };
        self.recorder.take(true).into_iter().flatten().map(line).collect()
    }
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a plain name")
}

fn file(size: u64) -> Stat {
    Stat { kind: Kind::File, size, ..Stat::default() }
}

fn directory() -> Stat {
    Stat { kind: Kind::Directory, ..Stat::default() }
}

#[test]
fn an_io_is_recorded_with_times_file_and_connection() {
    let mut lab = Lab::new();
    lab.open("a/b", 5, 100, WRITE);
    lab.read(5, 0, 4096, 100);
    lab.read(5, 100, 4096, 0);
    lab.write(5, 60, 80);
    lab.call(Ask::Sync { open: OpenId(5), data_only: true }, Reply::Done);
    let set = SetStat { size: Some(30), ..SetStat::default() };
    lab.call(Ask::SetStat { node: NodeId(5), open: None, set }, Reply::Done);
    let pieces = vec![Buf::from(vec![0; 10]), Buf::from(vec![0; 20])];
    let ask = Ask::Read { open: OpenId(5), offset: 0, count: 30, headroom: 0 };
    lab.call(ask, Reply::Pieces(pieces));
    lab.call(Ask::RemoveNode { node: NodeId(5) }, Reply::Done);
    expect![[r#"
        40-60 Read 0:/a/b 0+100 by 3
        80-100 Write 0:/a/b 60+80 by 3
        100-120 Sync 0:/a/b 0+0 by 3
        120-140 Trim 0:/a/b 30+110 by 3
        140-160 Read 0:/a/b 0+30 by 3
        160-180 Remove 0:/a/b 0+0 by 3
    "#]]
    .assert_eq(&lab.text());
}

#[test]
fn files_that_are_made_opened_anew_appended_to_and_removed_by_name() {
    let mut lab = Lab::new();
    lab.walk("d", 9, directory());
    let (dir, name) = (NodeId(9), name("new"));
    let (exclusive, mode, gid) = (true, 0o644, None);
    let ask = Ask::Create { dir, name: name.clone(), access: WRITE, exclusive, mode, gid };
    lab.call(ask, Reply::Created(NodeId(10), OpenId(10), file(0)));
    lab.write(10, 0, 50);
    lab.open("d/new", 11, 50, Access { append: true, ..WRITE });
    lab.write(11, 0, 5);
    lab.open("d/new", 12, 55, Access { truncate: true, ..WRITE });
    lab.call(Ask::Remove { dir, name: name.clone(), directory: Some(true) }, Reply::Done);
    lab.call(Ask::Remove { dir, name: name.clone(), directory: None }, Reply::Done);
    lab.call(Ask::Remove { dir, name, directory: None }, Reply::Done);
    expect![[r#"
        20-40 Create 0:/d/new 0+0 by 3
        40-60 Write 0:/d/new 0+50 by 3
        100-120 Write 0:/d/new 50+5 by 3
        140-160 Trim 0:/d/new 0+55 by 3
        180-200 Remove 0:/d/new 0+0 by 3
    "#]]
    .assert_eq(&lab.text());
}

#[test]
fn a_fetch_is_the_read_of_what_it_brought() {
    let mut lab = Lab::new();
    let fetch = |path: &[&str], read_max| Ask::Fetch {
        root: None,
        path: path.iter().map(|part| name(part)).collect(),
        read_max,
        headroom: 0,
    };
    let fetched = |size, got: usize, open: Option<u64>| {
        Reply::Fetched(file(size), Buf::from(vec![0; got]), open.map(OpenId))
    };
    lab.call(fetch(&["small"], 100), fetched(3, 3, None));
    lab.call(fetch(&["large"], 100), fetched(300, 100, Some(7)));
    lab.read(7, 100, 200, 200);
    lab.call(fetch(&["unwanted"], 0), fetched(300, 0, Some(8)));
    let listed = Reply::Fetched(directory(), Buf::default(), Some(OpenId(9)));
    lab.call(fetch(&["d"], 100), listed);
    lab.call(fetch(&[".upcall", "queues"], 100), fetched(3, 3, None));
    lab.call(fetch(&[".upcall", "snapshots", "one", "f"], 100), fetched(3, 3, None));
    lab.call(fetch(&[".upcall-7"], 100), fetched(3, 3, None));
    expect![[r#"
        0-20 Read 0:/small 0+3 by 3
        20-40 Read 1:/large 0+100 by 3
        40-60 Read 1:/large 100+200 by 3
        120-140 Read 3:/.upcall/snapshots/one/f 0+3 by 3
        140-160 Read 4:/.upcall-7 0+3 by 3
    "#]]
    .assert_eq(&lab.text());
}

#[test]
fn paths_are_followed_up_and_down_and_the_too_long_are_numbers() {
    let mut lab = Lab::new();
    lab.open("a/../b/./c", 5, 1, Access::READ);
    lab.read(5, 0, 1, 1);
    lab.open("../../top", 6, 1, Access::READ);
    lab.read(6, 0, 1, 1);
    let long = vec!["x".repeat(250); 5].join("/");
    assert!(long.len() > PATH_MAX);
    lab.walk(&long, 255, directory());
    let ask = Ask::Walk { from: NodeId(255), names: vec![name("deep")] };
    lab.call(ask, Reply::Walked(vec![file(1)], Some(NodeId(7))));
    lab.call(
        Ask::Open { node: NodeId(7), access: Access::READ },
        Reply::Opened(OpenId(7), file(1)),
    );
    lab.read(7, 0, 1, 1);
    let paths: Vec<_> = lab.recorder.take(true).into_iter().flatten().map(|it| it.path).collect();
    let paths: Vec<&str> = paths.iter().map(|path| &**path).collect();
    assert_eq!(paths, ["/b/c", "/top", "/#ff/deep"]);
}

#[test]
fn failures_and_directories_are_not_noted() {
    let mut lab = Lab::new();
    lab.open("f", 5, 9, WRITE);
    let id = lab.ask(Ask::Read { open: OpenId(5), offset: 0, count: 9, headroom: 0 });
    lab.recorder.answered(id, &Err(Error::Io));
    lab.walk("d", 6, directory());
    let ask = Ask::Open { node: NodeId(6), access: Access::READ };
    lab.call(ask, Reply::Opened(OpenId(6), directory()));
    lab.call(Ask::Sync { open: OpenId(6), data_only: false }, Reply::Done);
    assert_eq!(lab.text(), "");
}

#[test]
fn released_files_keep_their_number() {
    let mut lab = Lab::new();
    for number in 5..8 {
        lab.open("f", number, 1, Access::READ);
        lab.read(number, 0, 1, 1);
        let again = Reply::Walked(Vec::new(), Some(NodeId(number)));
        lab.call(Ask::Walk { from: NodeId(number), names: Vec::new() }, again);
        assert!(!lab.recorder.is_idle());
        lab.recorder.see(lab.now, &names::Input::Close(OpenId(number)));
        lab.recorder.see(lab.now, &names::Input::Release(NodeId(number)));
        assert!(!lab.recorder.is_idle());
        lab.recorder.see(lab.now, &names::Input::Release(NodeId(number)));
        assert!(lab.recorder.is_idle());
    }
    let notes: Vec<_> = lab.recorder.take(true).into_iter().flatten().collect();
    assert_eq!(notes.iter().map(|it| it.file).collect::<Vec<_>>(), [0, 0, 0]);
}

#[test]
fn files_nobody_has_are_forgotten_when_there_are_many_and_those_in_use_are_not() {
    let mut lab = Lab::new();
    lab.open("used", 5, 1, Access::READ);
    lab.open("unused", 6, 1, Access::READ);
    lab.recorder.see(lab.now, &names::Input::Close(OpenId(6)));
    lab.recorder.see(lab.now, &names::Input::Release(NodeId(6)));
    for number in 0..FILES_KEPT + 10 {
        let fetched = Reply::Fetched(file(1), Buf::from(vec![0]), None);
        let path = vec![name(&number.to_string())];
        lab.call(Ask::Fetch { root: None, path, read_max: 1, headroom: 0 }, fetched);
    }
    lab.text();
    lab.read(5, 0, 1, 1);
    lab.open("used", 7, 1, Access::READ);
    lab.read(7, 0, 1, 1);
    lab.open("unused", 8, 1, Access::READ);
    lab.read(8, 0, 1, 1);
    let notes: Vec<_> = lab.recorder.take(true).into_iter().flatten().collect();
    let numbers: Vec<u32> = notes.iter().map(|it| it.file).collect();
    assert_eq!(numbers, [0, 0, FILES_KEPT as u32 + 12]);
}

#[test]
fn a_batch_is_handed_out_when_it_is_full_or_old_or_all_is_wanted() {
    let mut lab = Lab::new();
    assert_eq!(lab.recorder.deadline(), None);
    lab.open("f", 5, 1, Access::READ);
    lab.read(5, 0, 1, 1);
    assert_eq!(lab.recorder.take(false), None);
    let due = lab.recorder.deadline().expect("something waits");
    assert_eq!(due, lab.now + BATCH_TIME);
    lab.recorder.end_turn(due);
    assert_eq!(lab.recorder.take(false).map(|batch| batch.len()), Some(1));
    assert_eq!((lab.recorder.deadline(), lab.recorder.take(true)), (None, None));
    for _ in 0..BATCH {
        assert_eq!(lab.recorder.take(false), None);
        lab.read(5, 0, 1, 1);
    }
    assert_eq!(lab.recorder.take(false).map(|batch| batch.len()), Some(BATCH));
}

#[test]
fn lost_records_are_counted_and_none_follow_the_end() {
    let mut lab = Lab::new();
    lab.recorder.kept(7, Kept::Taken);
    lab.recorder.kept(5, Kept::Lost);
    assert_eq!(lab.recorder.tally(), Tally { taken: 7, lost: 5 });
    lab.open("f", 5, 1, Access::READ);
    let id = lab.ask(Ask::Read { open: OpenId(5), offset: 0, count: 1, headroom: 0 });
    lab.recorder.kept(1, Kept::Ended);
    lab.recorder.answered(id, &Ok(Reply::Data(Buf::from(vec![0]))));
    lab.read(5, 0, 1, 1);
    lab.recorder.see(lab.now, &names::Input::Release(NodeId(5)));
    assert_eq!((lab.text(), lab.recorder.state_name()), (String::new(), "Ended"));
}
