#![allow(clippy::wildcard_enum_match_arm, reason = "a test says what it expects")]

use super::*;
use base::drawing::Drawing;
use expect_test::expect;

const ONE: Holder = Holder::User(1);
const TWO: Holder = Holder::Project(2);

fn task(holder: Holder) -> Task {
    Task { holder, path: Vec::new() }
}

/// Feeds inputs one after the other; tells each state.
fn script(machine: &mut Counting, inputs: Vec<Input>) -> String {
    let mut text = String::new();
    for input in inputs {
        let label = format!("{input:?}");
        let now = machine.deadline().unwrap_or_default();
        machine.step(now, input, &mut Vec::new());
        machine.check();
        text += &format!("{label}: {:?}, {:?}\n", machine.state, machine.queue);
    }
    text
}

#[test]
fn quotas_are_counted_one_after_the_other_and_each_once() {
    let mut machine = Counting::new(false);
    let text = script(
        &mut machine,
        vec![
            Input::Due(ONE),
            Input::Due(TWO),
            Input::Due(ONE),
            Input::Missing,
            Input::Fetched,
            Input::Counted(Some(Vec::new())),
            Input::Due(TWO),
            Input::Counted(None),
            Input::Counted(Some(vec![(7, 9)])),
            Input::Failed,
            Input::Tick,
            Input::Due(TWO),
            Input::Counted(None),
        ],
    );
    expect![[r#"
        Due(User(1)): Working(Task { holder: User(1), path: [] }), []
        Due(Project(2)): Working(Task { holder: User(1), path: [] }), [Project(2)]
        Due(User(1)): Working(Task { holder: User(1), path: [] }), [Project(2)]
        Missing: Waiting(Task { holder: User(1), path: [] }), [Project(2)]
        Fetched: Working(Task { holder: User(1), path: [] }), [Project(2)]
        Counted(Some([])): Working(Task { holder: User(1), path: [] }), [Project(2)]
        Due(Project(2)): Working(Task { holder: User(1), path: [] }), [Project(2)]
        Counted(None): Working(Task { holder: Project(2), path: [] }), []
        Counted(Some([(7, 9)])): Working(Task { holder: Project(2), path: [(7, 9)] }), []
        Failed: Resting(Task { holder: Project(2), path: [(7, 9)] }, Instant(1000000000)), []
        Tick: Working(Task { holder: Project(2), path: [(7, 9)] }), []
        Due(Project(2)): Working(Task { holder: Project(2), path: [] }), []
        Counted(None): Idle, []
    "#]]
    .assert_eq(&text);
}

#[test]
fn where_nothing_can_be_changed_nothing_is_counted() {
    let mut machine = Counting::new(true);
    script(&mut machine, vec![Input::Due(ONE), Input::Tick]);
    assert_eq!((machine.task(), machine.name()), (None, "over"));
    let mut machine = Counting::new(false);
    script(&mut machine, vec![Input::Due(ONE), Input::Due(TWO), Input::Ended, Input::Due(ONE)]);
    assert_eq!((machine.task(), machine.name()), (None, "over"));
}

#[test]
fn states_md_is_fresh() {
    let states = [
        State::Idle,
        State::Working(task(ONE)),
        State::Waiting(task(ONE)),
        State::Resting(task(ONE), Instant(0)),
        State::Over,
    ];
    let inputs: [fn() -> Input; 8] = [
        || Input::Due(TWO),
        || Input::Missing,
        || Input::Fetched,
        || Input::Counted(Some(Vec::new())),
        || Input::Counted(None),
        || Input::Failed,
        || Input::Ended,
        || Input::Tick,
    ];
    let mut drawing = Drawing::default();
    for state in states {
        for input in inputs {
            let machine = Counting { state: state.clone(), queue: VecDeque::new() };
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
