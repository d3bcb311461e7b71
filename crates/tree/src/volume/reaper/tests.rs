#![allow(clippy::wildcard_enum_match_arm, reason = "a test says what it expects")]

use super::*;
use base::drawing::Drawing;
use expect_test::expect;

fn show(reaper: &Reaper) -> String {
    format!("{} {:?}", reaper.name(), reaper.queue)
}

/// Feeds inputs one after the other; tells each state and what is said.
fn script(reaper: &mut Reaper, inputs: Vec<Input>) -> String {
    let mut text = String::new();
    for input in inputs {
        let (label, mut out) = (format!("{input:?}"), Vec::new());
        reaper.step(Instant(0), input, &mut out);
        text += &format!("{label}: {}, {out:?}\n", show(reaper));
    }
    text
}

#[test]
fn what_an_earlier_life_left_comes_first_and_who_is_waited_for_before_all() {
    let mut reaper = Reaper::new(false);
    let text = script(
        &mut reaper,
        vec![
            Input::Missing,
            Input::Due(9),
            Input::Fetched,
            Input::Found(vec![4, 5], Some(6)),
            Input::Found(vec![7], None),
            Input::Missing,
            Input::Fetched,
            Input::Freed(100),
            Input::Urgent(5),
            Input::Done,
            Input::Done,
            Input::Failed(Error::Io),
            Input::Done,
            Input::Done,
        ],
    );
    expect![[r#"
        Missing: look waits [], []
        Due(9): look waits [9], []
        Fetched: looking [9], []
        Found([4, 5], Some(6)): looking [9, 4, 5], []
        Found([7], None): cutting [4, 5, 7], []
        Missing: cut waits [4, 5, 7], []
        Fetched: cutting [4, 5, 7], []
        Freed(100): cutting [4, 5, 7], []
        Urgent(5): cutting [9, 4, 5, 7], []
        Done: cutting [4, 5, 7], [Over(5)]
        Done: cutting [5, 7], [Over(9)]
        Failed(Io): cutting [7], [Failed(4, Io)]
        Done: cutting [], [Over(5)]
        Done: idle [], [Over(7)]
    "#]]
    .assert_eq(&text);
}

#[test]
fn where_nothing_can_be_changed_nobody_waits() {
    let mut reaper = Reaper::new(true);
    let text = script(&mut reaper, vec![Input::Due(4), Input::Urgent(4)]);
    assert_eq!(reaper.task(), None);
    assert!(text.ends_with("Urgent(4): over [], [Failed(4, ReadOnly)]\n"), "{text}");
}

#[test]
fn states_md_is_fresh() {
    let states = [
        State::Looking(0),
        State::LookWaits(0),
        State::Idle,
        State::Cutting(4, 0),
        State::CutWaits(4, 0),
        State::Over,
    ];
    let inputs: [fn() -> Input; 9] = [
        || Input::Due(5),
        || Input::Urgent(5),
        || Input::Found(vec![4], None),
        || Input::Found(vec![4], Some(5)),
        || Input::Missing,
        || Input::Fetched,
        || Input::Freed(100),
        || Input::Done,
        || Input::Failed(Error::Io),
    ];
    let mut drawing = Drawing::default();
    for state in states {
        for input in inputs {
            let machine = Reaper { state: state.clone(), queue: VecDeque::new() };
            let label = match input() {
                Input::Found(_, Some(_)) => "Found, and more".to_string(),
                other => base::drawing::variant(&other),
            };
            let name = |reaper: &Reaper| reaper.name().to_string();
            drawing.sample_as(&label, machine, input(), name);
        }
    }
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/src/volume/reaper/states.md");
    drawing.assert_fresh(file);
}

/// Whatever comes in whatever order, everybody who was due gets a turn.
#[test]
fn everybody_gets_a_turn() {
    for seed in 0..200 {
        let mut rng = base::rng::seeded(seed);
        let (mut reaper, mut due) = (Reaper::new(false), std::collections::BTreeSet::new());
        for n in 0..100 {
            let ino = rng.u64(1..20);
            let input = match (&reaper.state, rng.u8(..4)) {
                (_, 0) => Input::Due(ino),
                (_, 1) if n % 3 == 0 => Input::Urgent(ino),
                (State::Looking(_), _) => Input::Found(vec![ino], (n < 10).then_some(n)),
                (State::LookWaits(_) | State::CutWaits(..), _) => Input::Fetched,
                (State::Cutting(..), 2) => Input::Missing,
                (State::Cutting(_, at), 3) => Input::Freed(at + 1),
                (State::Cutting(ino, _), _) => {
                    due.remove(ino);
                    Input::Done
                }
                (State::Idle | State::Over, _) => continue,
            };
            match &input {
                Input::Due(ino) | Input::Urgent(ino) => _ = due.insert(*ino),
                Input::Found(found, _) => due.extend(found),
                Input::Missing | Input::Fetched | Input::Freed(_) => {}
                Input::Done | Input::Failed(_) => {}
            }
            reaper.step(Instant(0), input, &mut Vec::new());
        }
        for _ in 0..1000 {
            let input = match reaper.state {
                State::Looking(_) => Input::Found(Vec::new(), None),
                State::LookWaits(_) | State::CutWaits(..) => Input::Fetched,
                State::Cutting(ino, _) => {
                    due.remove(&ino);
                    Input::Done
                }
                State::Idle | State::Over => break,
            };
            reaper.step(Instant(0), input, &mut Vec::new());
        }
        assert!(due.is_empty() && reaper.state == State::Idle, "{seed}: {due:?}");
    }
}
