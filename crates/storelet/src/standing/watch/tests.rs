//! Watches of a simulated directory.

use super::*;
use base::Stat;
use base::drawing::{Drawing, variant};

fn open() -> OpenId {
    OpenId::new(1, 7)
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

fn path(text: &str) -> Path {
    text.split('/').map(name).collect()
}

/// A watch of `in` since second 100, for a program that changes no files.
fn watch() -> Watch {
    let files = Files::new(&path("in"), 100_000_000_000);
    Watch::new(Instant(0), (path("in"), false), files)
}

fn entry(text: &str, size: u64, changed: i64) -> Entry {
    let date = Time::from_secs(changed);
    let stat = Stat { kind: Kind::File, inode: size, size, modified: date, changed: date, ..dir() };
    let (kind, name, stat) = (stat.kind, name(text), Some(stat));
    let (cookie, handle) = (size + 1, None);
    Entry { cookie, inode: size, device: None, kind, name, stat, handle }
}

fn dir() -> Stat {
    Stat { kind: Kind::Directory, ..Stat::default() }
}

fn fetched() -> Input {
    Input::Answered(Ok(Reply::Fetched(dir(), base::Buf::default(), Some(open()))))
}

fn entries(all: Vec<Entry>) -> Input {
    Input::Answered(Ok(Reply::Entries(all)))
}

/// A scan in its first directory.
fn look() -> Scan {
    Scan { dirs: 1, ..Scan::default() }
}

#[test]
fn states_md_is_fresh() {
    let mut drawing = Drawing::default();
    let states: [&dyn Fn() -> State; 6] = [
        &|| State::Waiting(Instant(0)),
        &|| State::Waiting(Instant(5)),
        &|| State::Opening(look(), path("in")),
        &|| State::Listing(look(), path("in"), open()),
        &|| State::Leaving(Some(open())),
        &|| State::Over,
    ];
    let inputs: [(&str, &dyn Fn() -> Input); 10] = [
        ("Tick", &|| Input::Tick),
        ("Answered(fetched)", &fetched),
        ("Answered(some)", &|| entries(vec![entry("a", 1, 200)])),
        ("Answered(end)", &|| entries(Vec::new())),
        ("Answered(Err)", &|| Input::Answered(Err(Error::NotFound))),
        ("Ran(well)", &|| Input::Ran(Some(true))),
        ("Ran(badly)", &|| Input::Ran(Some(false))),
        ("Ran(not)", &|| Input::Ran(None)),
        ("Kept", &|| Input::Kept),
        ("Leave", &|| Input::Leave),
    ];
    for (label, input) in inputs {
        for state in states {
            let mut watch = watch();
            watch.files.take_changed();
            watch.state = state();
            drawing.sample_as(label, watch, input(), |watch| variant(&watch.state));
        }
    }
    drawing.assert_fresh(concat!(env!("CARGO_MANIFEST_DIR"), "/src/standing/watch/states.md"));
}

/// A watch with a simulated directory.
struct Lab {
    watch: Watch,
    now: Instant,
    there: Vec<Entry>,
    kept: Vec<u8>,
    runs: Vec<String>,
}

impl Lab {
    fn new(watch: Watch) -> Lab {
        let (there, kept, runs) = (Vec::new(), Vec::new(), Vec::new());
        Lab { watch, now: Instant(0), there, kept, runs }
    }

    /// Steps the watch, and again for everything due at that time.
    fn step(&mut self, input: Input) -> Vec<Ask> {
        let mut asks = self.step_once(input);
        while self.watch.deadline().is_some_and(|at| at <= self.now) {
            asks.extend(self.step_once(Input::Tick));
        }
        asks
    }

    fn step_once(&mut self, input: Input) -> Vec<Ask> {
        let (mut out, mut asks) = (Vec::new(), Vec::new());
        self.watch.step(self.now, input, &mut out);
        self.watch.check();
        for output in out {
            match output {
                Output::Ask(ask) => asks.push(ask),
                Output::Run(path) => self.runs.push(String::from_utf8(shown(&path)).expect("text")),
                Output::Keep(bytes) => {
                    self.kept = bytes;
                    asks.extend(self.step_once(Input::Kept));
                }
                Output::Close(closed) => assert_eq!(closed, open()),
                Output::Cancel => panic!("nothing is cancelled here"),
            }
        }
        asks
    }

    /// Advances to the next scan and serves it; returns the files run.
    fn look(&mut self) -> Vec<String> {
        let mut asks = Vec::new();
        while asks.is_empty() {
            self.now = self.watch.deadline().expect("it waits").max(self.now);
            asks = self.step(Input::Tick);
            if asks.is_empty() && !self.runs.is_empty() {
                // The deadline was that of a file, not of a scan.
                return std::mem::take(&mut self.runs);
            }
        }
        while let Some(ask) = asks.pop() {
            #[allow(clippy::wildcard_enum_match_arm, reason = "the others are alike here")]
            let next = match ask {
                Ask::Fetch { path, .. } if path.len() == 1 => self.step(fetched()),
                Ask::Fetch { .. } => self.step(Input::Answered(Err(Error::NotFound))),
                Ask::List { cookie, .. } => {
                    let there = if cookie == 0 { self.there.clone() } else { Vec::new() };
                    self.step(entries(there))
                }
                other => panic!("{other:?} is no look"),
            };
            asks = next;
        }
        std::mem::take(&mut self.runs)
    }
}

#[test]
fn a_file_counts_once_it_has_not_changed_for_two_looks_and_then_once() {
    let mut lab = Lab::new(watch());
    lab.there = vec![entry("old", 1, 99), entry("new", 2, 100)];
    assert!(lab.look().is_empty());
    lab.there[1] = entry("new", 3, 101);
    assert!(lab.look().is_empty(), "it grows");
    assert_eq!(lab.look(), ["/in/new"]);
    lab.there.push(entry("next", 9, 102));
    assert!(lab.look().is_empty() && lab.look().is_empty(), "one after the other");
    lab.step(Input::Ran(Some(true)));
    assert_eq!(std::mem::take(&mut lab.runs), ["/in/next"]);
    lab.step(Input::Ran(Some(true)));
    assert!(lab.look().is_empty() && lab.look().is_empty());
    assert_eq!(lab.watch.counts(), ([3, 0, 0], None));
    // A file known from before is new again after its replacement.
    lab.there[0] = entry("old", 4, 103);
    assert!(lab.look().is_empty());
    assert_eq!(lab.look(), ["/in/old"]);
}

#[test]
fn processed_files_are_remembered_after_a_crash() {
    let mut lab = Lab::new(watch());
    lab.there = vec![entry("a", 1, 200), entry("b", 2, 200)];
    assert!(lab.look().is_empty());
    assert_eq!(lab.look(), ["/in/a"]);
    lab.step(Input::Ran(Some(true)));
    assert_eq!(std::mem::take(&mut lab.runs), ["/in/b"]);
    // After a crash before the end of the second run, that one is repeated, and nothing else.
    let files = Files::read(&path("in"), 900_000_000_000, &lab.kept);
    let mut after = Lab::new(Watch::new(Instant(0), (path("in"), false), files));
    after.there = lab.there.clone();
    assert!(after.look().is_empty());
    assert_eq!(after.look(), ["/in/b"]);
    // State of another directory and corrupted state are ignored.
    for bytes in [&lab.kept[..], b"{", b""] {
        let files = Files::read(&path("other"), 0, bytes);
        assert_eq!(files.counts(), [0, 0, 0]);
    }
}

#[test]
fn failing_runs_are_retried_and_abandoned() {
    let mut lab = Lab::new(watch());
    lab.there = vec![entry("a", 1, 200)];
    let mut tries = 0;
    for _ in 0..100 {
        for run in lab.look() {
            assert_eq!(run, "/in/a");
            tries += 1;
            lab.step(Input::Ran(Some(false)));
        }
    }
    assert_eq!(tries, TRIES_MAX);
    assert_eq!((lab.watch.counts(), lab.watch.failed()), (([0, 0, 1], None), vec!["/in/a".into()]));
    // Given-up files are stored, too.
    let files = Files::read(&path("in"), 0, &lab.kept);
    assert_eq!(files.counts(), [0, 0, 1]);
    // A run that could not start is no failure.
    lab.there = vec![entry("a", 2, 201)];
    lab.look();
    assert_eq!(lab.look(), ["/in/a"]);
    lab.step(Input::Ran(None));
    assert_eq!(lab.watch.counts().0, [0, 1, 0]);
}

#[test]
fn changes_by_the_triggered_program_do_not_trigger_it() {
    let files = Files::new(&path("in"), 0);
    let mut lab = Lab::new(Watch::new(Instant(0), (path("in"), true), files));
    lab.there = vec![entry("a", 1, 200)];
    assert!(lab.look().is_empty());
    assert_eq!(lab.look(), ["/in/a"]);
    lab.there = vec![entry("a", 2, 201)];
    assert!(lab.look().is_empty());
    lab.there = vec![entry("a", 3, 202)];
    lab.step(Input::Ran(Some(true)));
    for _ in 0..5 {
        assert!(lab.look().is_empty());
    }
    lab.there = vec![entry("a", 4, 303)];
    assert!(lab.look().is_empty());
    assert_eq!(lab.look(), ["/in/a"], "that was somebody else");
}

#[test]
fn a_directory_that_is_not_there_is_waited_for() {
    let mut lab = Lab::new(watch());
    lab.now = Instant(1);
    assert_eq!(lab.step(Input::Tick).len(), 1);
    lab.step(Input::Answered(Err(Error::NotFound)));
    assert!(lab.watch.counts().1.is_some_and(|why| !why.is_empty()));
    lab.there = vec![entry("a", 1, 200)];
    assert!(lab.look().is_empty());
    assert_eq!((lab.look(), lab.watch.counts().1), (vec!["/in/a".to_string()], None));
}
