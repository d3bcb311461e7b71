#![allow(clippy::wildcard_enum_match_arm, reason = "a test expects one variant")]

use super::*;
use base::drawing::Drawing;
use expect_test::expect;

const ONE: Holder = Holder::User(1);
const TWO: Holder = Holder::Project(2);

fn task(holder: Holder) -> Task {
    Task { holder, path: Vec::new() }
}

/// Feeds inputs one after the other; returns each state and output.
fn script(machine: &mut Counting, inputs: Vec<Input>) -> String {
    let task = |task: &Task| match task.holder {
        Holder::User(uid) => format!("u{uid}{:?}", task.path),
        Holder::Project(project) => format!("p{project}{:?}", task.path),
    };
    let mut text = String::new();
    for input in inputs {
        let (label, mut out) = (format!("{input:?}"), Vec::new());
        let now = machine.deadline().unwrap_or_default();
        machine.step(now, input, &mut out);
        machine.check();
        let current = match &machine.state {
            State::Working(current) | State::Waiting(current) => task(current),
            State::Resting(until) => format!("until {}", until.0),
            State::Idle | State::Over => String::new(),
        };
        let queue: Vec<String> = machine.queue.iter().map(task).collect();
        text += &format!("{label}: {} {current}; {queue:?}, {out:?}\n", machine.name());
    }
    text
}

#[test]
fn quotas_are_counted_one_after_the_other_and_each_once() {
    let mut machine = Counting::new(false);
    let text = script(
        &mut machine,
        vec![
            Input::Due(ONE, 0),
            Input::Due(TWO, 7),
            Input::Due(ONE, 0),
            Input::Missing,
            Input::Fetched,
            Input::Counted(Some(Vec::new())),
            Input::Due(TWO, 8),
            Input::Counted(None),
            Input::Counted(Some(vec![(7, 9)])),
            Input::Due(TWO, 5),
            Input::Counted(None),
        ],
    );
    expect![[r#"
        Due(User(1), 0): counting u1[]; [], []
        Due(Project(2), 7): counting u1[]; ["p2[(7, 0)]"], []
        Due(User(1), 0): counting u1[]; ["p2[(7, 0)]"], []
        Missing: count waits u1[]; ["p2[(7, 0)]"], []
        Fetched: counting u1[]; ["p2[(7, 0)]"], []
        Counted(Some([])): counting u1[]; ["p2[(7, 0)]"], []
        Due(Project(2), 8): counting u1[]; ["p2[(8, 0), (7, 0)]"], []
        Counted(None): counting p2[(8, 0), (7, 0)]; [], []
        Counted(Some([(7, 9)])): counting p2[(7, 9)]; [], []
        Due(Project(2), 5): counting p2[(5, 0), (7, 9)]; [], []
        Counted(None): idle ; [], []
    "#]]
    .assert_eq(&text);
}

#[test]
fn a_failed_count_is_retried_last_and_logged_once() {
    let mut machine = Counting::new(false);
    let text = script(
        &mut machine,
        vec![
            Input::Due(ONE, 0),
            Input::Due(TWO, 7),
            Input::Failed(Error::Io),
            Input::Tick,
            Input::Failed(Error::NoSpace),
            Input::Due(TWO, 8),
            Input::Tick,
            Input::Counted(None),
            Input::Failed(Error::Io),
        ],
    );
    expect![[r#"
        Due(User(1), 0): counting u1[]; [], []
        Due(Project(2), 7): counting u1[]; ["p2[(7, 0)]"], []
        Failed(Io): resting until 100000000; ["p2[(7, 0)]", "u1[]"], [Failed(User(1), Io)]
        Tick: counting p2[(7, 0)]; ["u1[]"], []
        Failed(NoSpace): resting until 200000000; ["u1[]", "p2[(7, 0)]"], []
        Due(Project(2), 8): resting until 200000000; ["u1[]", "p2[(8, 0), (7, 0)]"], []
        Tick: counting u1[]; ["p2[(8, 0), (7, 0)]"], []
        Counted(None): counting p2[(8, 0), (7, 0)]; [], []
        Failed(Io): resting until 100000000; ["p2[(8, 0), (7, 0)]"], [Failed(Project(2), Io)]
    "#]]
    .assert_eq(&text);
}

#[test]
fn where_nothing_can_be_changed_nothing_is_counted() {
    let mut machine = Counting::new(true);
    script(&mut machine, vec![Input::Due(ONE, 0), Input::Tick]);
    assert_eq!((machine.task(), machine.name()), (None, "over"));
    let mut machine = Counting::new(false);
    let inputs = vec![Input::Due(ONE, 0), Input::Due(TWO, 7), Input::Ended, Input::Due(ONE, 0)];
    script(&mut machine, inputs);
    assert_eq!((machine.task(), machine.name()), (None, "over"));
}

#[test]
fn states_md_is_fresh() {
    let states = [
        State::Idle,
        State::Working(task(ONE)),
        State::Waiting(task(ONE)),
        State::Resting(Instant(0)),
        State::Over,
    ];
    let inputs: [fn() -> Input; 8] = [
        || Input::Due(TWO, 7),
        || Input::Missing,
        || Input::Fetched,
        || Input::Counted(Some(Vec::new())),
        || Input::Counted(None),
        || Input::Failed(Error::Io),
        || Input::Ended,
        || Input::Tick,
    ];
    let mut drawing = Drawing::default();
    for state in states {
        for input in inputs {
            let waits = matches!(state, State::Resting(_)).then(|| task(ONE));
            let queue = waits.into_iter().collect();
            let machine = Counting { state: state.clone(), queue, failures: 0 };
            let label = match input() {
                Input::Counted(Some(_)) => "Counted, in part".to_string(),
                other => base::drawing::variant(&other),
            };
            let name = |machine: &Counting| machine.name().to_string();
            drawing.sample_as(&label, machine, input(), name);
        }
    }
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/src/volume/counting/states.md");
    drawing.assert_fresh(file);
}
