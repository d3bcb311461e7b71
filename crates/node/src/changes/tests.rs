use super::*;
use base::Kind;
use base::drawing::Drawing;

const SETTINGS: Settings = Settings { read_only: false, volume_cache: 1 << 20 };

/// Changes, and what they asked for since somebody looked.
struct Lab {
    changes: Changes,
    out: Vec<Output>,
}

impl Lab {
    fn new() -> Lab {
        Lab { changes: Changes::new(SETTINGS), out: Vec::new() }
    }

    fn step(&mut self, input: Input) {
        self.changes.step(input, &mut self.out);
    }

    fn command(&mut self, ticket: u64, text: &str) {
        self.step(Input::Command(ticket, text.as_bytes().to_vec()));
    }

    fn begin(&mut self) {
        self.changes.begin(&mut self.out);
    }

    /// What was asked for, in words.
    fn asked(&mut self) -> String {
        let words: Vec<String> = self.out.drain(..).map(|output| show(&output)).collect();
        words.join(", ")
    }
}

fn show(output: &Output) -> String {
    match output {
        Output::Open(PathOp::OpenRoot { .. }) => "open root".into(),
        Output::Open(PathOp::OpenVolume { .. }) => "open volume".into(),
        Output::Open(PathOp::Resolve { .. }) => "resolve".into(),
        Output::Open(other) => unreachable!("{other:?}"),
        Output::Plant(_) => "plant".into(),
        Output::Make(Wish::Join { .. }) => "join".into(),
        Output::Make(Wish::Part { .. }) => "part".into(),
        Output::Leave(_) => "leave".into(),
        Output::Close(_) => "close".into(),
        Output::Commanded(_, Ok(())) => "done".into(),
        Output::Commanded(_, Err(error)) => format!("failed: {error}"),
    }
}

fn root() -> (NodeId, Stat) {
    (NodeId::new(7, 0), Stat { kind: Kind::Directory, ..Stat::default() })
}

type Made = fn() -> Input;

/// Everything that may happen in each state, with a label.
fn inputs(state: &str, source: &str) -> Vec<(&'static str, Made)> {
    let open: (&str, Made) = match source {
        "host" => ("Opened", || Input::Opened(Ok(PathDone::Root(File(3), root().1)))),
        "9p" => ("Opened", || {
            Input::Opened(Ok(PathDone::Addresses(vec!["192.0.2.7:564".parse().unwrap()])))
        }),
        _volume => ("Opened, no volume", || {
            Input::Opened(Ok(PathDone::Volume(File(3), 1 << 30, vec![0; 100_000])))
        }),
    };
    match state {
        "opening" => vec![open, ("Failed", || Input::Opened(Err(Error::NotFound)))],
        "planting" => {
            vec![("Planted", || Input::Planted(Some(7))), ("Too many", || Input::Planted(None))]
        }
        "recovering" => vec![
            ("Recovered", || Input::Recovered(Ok(root()))),
            ("Damaged", || Input::Recovered(Err(Error::Io))),
        ],
        "making" => vec![
            ("Changed", || Input::Changed(Ok(()))),
            ("Failed", || Input::Changed(Err(Error::NotFound))),
        ],
        _idle => Vec::new(),
    }
}

#[test]
fn states_md_is_fresh() {
    let mut drawing = Drawing::default();
    let lines = [
        ("host", "mount /x host:/srv"),
        ("volume", "mount /x volume:v"),
        ("9p", "mount /x 9p://far"),
        ("9p+unix", "mount /x 9p+unix:/run/far"),
        ("bind", "bind /x /y"),
        ("unmount", "unmount /x"),
    ];
    for (source, line) in lines {
        // Every way to answer four times.
        for course in 0..16_u32 {
            let mut lab = Lab::new();
            lab.command(1, line);
            lab.begin();
            drawing.row("idle", source, lab.changes.name(), &lab.asked());
            for place in 0..4 {
                let state = lab.changes.name();
                let inputs = inputs(state, source);
                if inputs.is_empty() {
                    break;
                }
                let (label, make) = inputs[(course >> place & 1) as usize];
                lab.step(make());
                let label = format!("{label} ({source})");
                drawing.row(state, &label, lab.changes.name(), &lab.asked());
            }
            assert!(lab.changes.is_empty());
        }
    }
    drawing.assert_fresh(concat!(env!("CARGO_MANIFEST_DIR"), "/src/changes/states.md"));
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
    assert_eq!(lab.asked(), "join, join");
    lab.step(Input::Changed(Err(Error::NotFound)));
    assert_eq!(lab.asked(), "failed: file does not exist");
    let complaint = lab.changes.complaint().unwrap();
    assert!(complaint.starts_with("line 2: file does not exist; there is no"), "{complaint}");
    lab.begin();
    lab.step(Input::Changed(Ok(())));
    lab.begin();
    assert_eq!(lab.asked(), "part, done");
    assert!(lab.changes.is_empty());
}

#[test]
fn what_cannot_be_understood_changes_nothing() {
    for text in ["bind /a /b\nmont /c host:/\n", "mount /x nonsense", "\u{1}"] {
        let mut lab = Lab::new();
        lab.command(1, text);
        assert_eq!(lab.asked(), "failed: invalid argument", "{text:?}");
        assert!(lab.changes.is_empty() && lab.changes.complaint().is_some());
    }
    let mut lab = Lab::new();
    lab.step(Input::Command(1, vec![0xff]));
    assert_eq!(lab.asked(), "failed: invalid argument");
    lab.command(2, "\n# nothing\n");
    assert_eq!(lab.asked(), "done");
    assert_eq!(lab.changes.complaint(), None);
}

#[test]
fn so_many_changes_wait_and_no_more() {
    let mut lab = Lab::new();
    lab.command(1, &"bind /a /b\n".repeat(WAITING_MAX));
    lab.command(2, "bind /a /b\n");
    assert_eq!(lab.asked(), "failed: device or resource busy");
}
