use super::*;
use base::Kind;
use base::drawing::Drawing;
use std::sync::LazyLock;
use store::Geometry;
use store::drive::{Disk as _, Memory};

const SETTINGS: Settings = Settings { read_only: false, volume_cache: 1 << 20 };

/// Size of the volume that is opened, bytes.
const VOLUME: u64 = 64 << 20;

/// Beginning of the volume.
static HEAD: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut volume = Memory::formatted(&Geometry::for_bytes(VOLUME)).unwrap();
    volume.head().unwrap()
});

/// Changes, and their outputs since the last call.
struct Lab {
    changes: Changes,
    now: Instant,
    out: Vec<Output>,
}

impl Lab {
    fn new() -> Lab {
        Lab { changes: Changes::new(SETTINGS), now: Instant(0), out: Vec::new() }
    }

    fn step(&mut self, input: Input) {
        self.changes.step(self.now, input, &mut self.out);
    }

    fn command(&mut self, ticket: u64, text: &str) {
        self.step(Input::Command(ticket, 1, text.as_bytes().to_vec()));
    }

    fn begin(&mut self) {
        self.changes.begin(self.now, &mut self.out);
    }

    /// Advances the time to the deadline of the change in progress.
    fn wait(&mut self) {
        self.now = self.changes.deadline().expect("it waits");
        self.step(Input::Late);
    }

    fn complaint(&self) -> &str {
        self.changes.complaint().expect("something was wrong")
    }

    /// Takes the outputs, as text.
    fn requested(&mut self) -> String {
        let words: Vec<String> = self.out.drain(..).map(|output| show(&output)).collect();
        words.join(", ")
    }
}

fn show(output: &Output) -> String {
    match output {
        Output::Open(_, PathOp::OpenRoot { .. }) => "open root".into(),
        Output::Open(_, PathOp::OpenVolume { .. }) => "open volume".into(),
        Output::Open(_, PathOp::Resolve { .. }) => "resolve".into(),
        Output::Open(_, other) => unreachable!("{other:?}"),
        Output::CancelOpen(_) => "cancel open".into(),
        Output::Plant(_) => "plant".into(),
        Output::Make(_, NamespaceChange::Join { .. }) => "join".into(),
        Output::Make(_, NamespaceChange::Part { .. }) => "part".into(),
        Output::CancelMake(_) => "cancel make".into(),
        Output::Grow(file, bytes) => format!("grow {file} to {bytes}"),
        Output::Leave(_) => "leave".into(),
        Output::Close(_) => "close".into(),
        Output::Commanded(_, Ok(())) => "done".into(),
        Output::Commanded(_, Err(refusal)) => format!("failed: {}", refusal.error),
    }
}

fn root() -> (NodeId, Stat) {
    (NodeId::new(7, 0), Stat { kind: Kind::Directory, ..Stat::default() })
}

type Made = fn() -> Input;

/// Returns all possible inputs in a state, with labels.
fn inputs(state: &str, source: &str) -> Vec<(&'static str, Made)> {
    let open: Made = match source {
        "host" => || Input::Opened(1, Ok(PathDone::Root(File(3), root().1))),
        "9p" => {
            || Input::Opened(1, Ok(PathDone::Addresses(vec!["192.0.2.7:564".parse().unwrap()])))
        }
        "volume" => || Input::Opened(1, Ok(PathDone::Volume(File(3), VOLUME, HEAD.clone()))),
        _none => || Input::Opened(1, Ok(PathDone::Volume(File(3), 1 << 30, vec![0; 100_000]))),
    };
    let stops: [(&str, Made); 2] = [("Cancel", || Input::Cancel(1)), ("Drain", || Input::Drain)];
    let late: (&str, Made) = ("Late", || Input::Late);
    let recovered: [(&str, Made); 2] = [
        ("Recovered", || Input::Recovered(Ok(root()))),
        ("Damaged", || Input::Recovered(Err(Error::Io))),
    ];
    let changed: [(&str, Made); 2] = [
        ("Changed", || Input::Changed(Ok(()))),
        ("Failed", || Input::Changed(Err(Error::NotFound))),
    ];
    let grown: [(&str, Made); 2] = [
        ("Grown", || Input::Grown(Ok(()))),
        ("Too short", || {
            let (error, why) = (Error::Invalid, "it is too short".into());
            Input::Grown(Err(Refusal { error, why }))
        }),
    ];
    match state {
        "opening" => {
            let failed: (&str, Made) = ("Failed", || Input::Opened(1, Err(Error::NotFound)));
            [vec![("Opened", open), failed, late], stops.to_vec()].concat()
        }
        "planting" => {
            vec![("Planted", || Input::Planted(Some(7))), ("Too many", || Input::Planted(None))]
        }
        "recovering" | "leaving" => [recovered, stops].concat(),
        "making" => [&changed[..], &[late], &stops].concat(),
        "stopping" => [changed, stops].concat(),
        "growing" => [grown, stops].concat(),
        _idle => Vec::new(),
    }
}

#[test]
fn states_md_is_fresh() {
    let mut drawing = Drawing::default();
    let lines = [
        ("host", "mount /x host:/srv"),
        ("volume", "mount /x volume:v"),
        ("no volume", "mount /x volume:v"),
        ("9p", "mount /x 9p://far"),
        ("9p+unix", "mount /x 9p+unix:/run/far"),
        ("bind", "bind /x /y"),
        ("unmount", "unmount /x"),
        ("grow", "grow volume:v 8M"),
    ];
    for (source, line) in lines {
        // All sequences of five results.
        for course in 0..5_usize.pow(5) {
            let mut lab = Lab::new();
            lab.command(1, line);
            lab.begin();
            drawing.row("idle", source, lab.changes.name(), &lab.requested());
            for place in 0..5 {
                let state = lab.changes.name();
                let inputs = inputs(state, source);
                let Some((label, make)) = inputs.get(course / 5_usize.pow(place) % 5) else {
                    break;
                };
                lab.step(make());
                let label = format!("{label} ({source})");
                drawing.row(state, &label, lab.changes.name(), &lab.requested());
            }
        }
    }
    drawing.assert_fresh(concat!(env!("CARGO_MANIFEST_DIR"), "/src/changes/states.md"));
}

#[test]
fn a_server_that_does_not_answer_delays_the_next_change_and_no_more() {
    let mut lab = Lab::new();
    lab.command(1, "bind /far/sub /y\nbind /a /b\n");
    lab.command(2, "unmount /far\n");
    lab.begin();
    assert_eq!(lab.changes.deadline(), Some(Instant(0) + TIMEOUT));
    lab.wait();
    assert_eq!(lab.requested(), "join, cancel make");
    assert_eq!(lab.changes.deadline(), None);
    lab.step(Input::Changed(Err(Error::Cancelled)));
    assert_eq!(lab.requested(), "failed: timed out");
    let complaint = "line 1: timed out; the server at that place does not answer; check whether it \
                     hangs";
    assert_eq!(lab.complaint(), complaint);
    lab.begin();
    assert_eq!(lab.requested(), "part");
    assert_eq!(lab.changes.deadline(), Some(lab.now + TIMEOUT));
}

#[test]
fn a_change_completed_after_its_timeout_stays() {
    let mut lab = Lab::new();
    lab.command(1, "bind /far/sub /y\nbind /a /b\n");
    lab.begin();
    lab.wait();
    lab.step(Input::Changed(Ok(())));
    lab.begin();
    assert_eq!(lab.requested(), "join, cancel make, join");
    lab.step(Input::Cancel(1));
    lab.step(Input::Changed(Ok(())));
    assert_eq!(lab.requested(), "cancel make, failed: interrupted");
    assert!(lab.changes.is_empty());
}

#[test]
fn a_tree_opened_after_the_timeout_is_closed() {
    let opened: [fn(u32) -> Input; 2] = [
        |number| Input::Opened(number, Ok(PathDone::Root(File(3), root().1))),
        |number| Input::Opened(number, Ok(PathDone::Volume(File(4), VOLUME, HEAD.clone()))),
    ];
    let mut lab = Lab::new();
    lab.command(1, "mount /x host:/hangs\n");
    lab.command(2, "mount /x volume:hangs\n");
    lab.command(3, "mount /x 9p://hangs\n");
    for what in ["open root", "open volume", "resolve"] {
        lab.begin();
        lab.wait();
        assert_eq!(lab.requested(), format!("{what}, cancel open, failed: timed out"));
    }
    assert!(lab.changes.is_empty() && lab.changes.is_opening());
    // The next one is in progress when these opens end.
    lab.command(4, "mount /x host:/here\n");
    lab.begin();
    assert_eq!(lab.requested(), "open root");
    lab.step(opened[1](2));
    lab.step(opened[0](1));
    lab.step(Input::Opened(3, Err(Error::NotFound)));
    assert_eq!(lab.requested(), "close, close");
    lab.step(opened[0](4));
    assert_eq!((lab.requested().as_str(), lab.changes.is_opening()), ("plant", false));
}

#[test]
fn a_volume_recovers_as_long_as_it_takes() {
    let mut lab = Lab::new();
    lab.command(1, "mount /x volume:v\n");
    lab.begin();
    lab.step(Input::Opened(1, Ok(PathDone::Volume(File(4), VOLUME, HEAD.clone()))));
    lab.step(Input::Planted(Some(7)));
    assert_eq!(lab.changes.deadline(), None);
    lab.now = lab.now + 3 * TIMEOUT;
    lab.step(Input::Recovered(Ok(root())));
    assert_eq!(lab.changes.deadline(), Some(lab.now + TIMEOUT));
}

#[test]
fn sources_that_do_not_answer_are_not_opened_for_ever() {
    let mut lab = Lab::new();
    for ticket in 0..LATE_MAX as u64 {
        lab.command(ticket, "mount /x host:/hangs\n");
        lab.begin();
        lab.wait();
    }
    lab.requested();
    lab.command(100, "mount /x host:/hangs\n");
    lab.begin();
    assert_eq!(lab.requested(), "failed: device or resource busy");
    lab.step(Input::Opened(1, Err(Error::NotFound)));
    lab.command(101, "mount /x host:/hangs\n");
    lab.begin();
    assert_eq!(lab.requested(), "open root");
}

#[test]
fn a_cancelled_command_removes_its_queued_lines() {
    let mut lab = Lab::new();
    lab.command(1, "bind /a /b\nbind /c /d\n");
    lab.command(2, "bind /e /f\nbind /g /h\n");
    lab.command(3, "unmount /i\n");
    lab.begin();
    lab.step(Input::Cancel(2));
    lab.step(Input::Cancel(2));
    assert_eq!(lab.requested(), "join, failed: interrupted");
    lab.step(Input::Cancel(1));
    lab.step(Input::Changed(Err(Error::Cancelled)));
    lab.begin();
    assert_eq!(lab.requested(), "cancel make, failed: interrupted, part");
    lab.step(Input::Changed(Ok(())));
    assert!(lab.changes.is_empty());
}

#[test]
fn the_end_of_the_node_waits_for_no_change() {
    let mut lab = Lab::new();
    lab.command(1, &"bind /a /b\n".repeat(1800));
    lab.command(2, "unmount /c\nunmount /d\n");
    lab.begin();
    lab.step(Input::Drain);
    assert_eq!(lab.requested(), "join, cancel make, failed: interrupted");
    lab.step(Input::Changed(Err(Error::Cancelled)));
    assert_eq!(lab.requested(), "failed: interrupted");
    lab.command(3, "unmount /e\n");
    assert_eq!(lab.requested(), "failed: interrupted");
    assert!(lab.changes.is_empty());
}

#[test]
fn a_command_ends_with_its_first_line_that_fails() {
    let mut lab = Lab::new();
    lab.command(1, "bind /a /b\nbind /c /d\nbind /e /f\n");
    lab.command(2, "unmount /g\n");
    lab.begin();
    lab.step(Input::Changed(Ok(())));
    lab.begin();
    lab.begin();
    assert_eq!(lab.requested(), "join, join");
    lab.step(Input::Changed(Err(Error::NotFound)));
    assert_eq!(lab.requested(), "failed: file does not exist");
    let complaint = lab.changes.complaint().unwrap();
    assert!(complaint.starts_with("line 2: file does not exist; no such directory"), "{complaint}");
    lab.begin();
    lab.step(Input::Changed(Ok(())));
    lab.begin();
    assert_eq!(lab.requested(), "part, done");
    assert!(lab.changes.is_empty());
}

#[test]
fn an_invalid_command_changes_nothing() {
    for text in ["bind /a /b\nmont /c host:/\n", "mount /x nonsense", "\u{1}"] {
        let mut lab = Lab::new();
        lab.command(1, text);
        assert_eq!(lab.requested(), "failed: invalid argument", "{text:?}");
        assert!(lab.changes.is_empty() && lab.changes.complaint().is_some());
    }
    let mut lab = Lab::new();
    lab.step(Input::Command(1, 1, vec![0xff]));
    assert_eq!(lab.requested(), "failed: invalid argument");
    lab.command(2, "\n# nothing\n");
    assert_eq!(lab.requested(), "done");
    assert_eq!(lab.changes.complaint(), None);
}

#[test]
fn so_many_changes_wait_and_no_more() {
    let mut lab = Lab::new();
    lab.command(1, &"bind /a /b\n".repeat(WAITING_MAX));
    lab.command(2, "bind /a /b\n");
    assert_eq!(lab.requested(), "failed: device or resource busy");
}
