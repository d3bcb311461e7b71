#![allow(clippy::wildcard_enum_match_arm, reason = "a test expects one variant")]

use super::*;
use base::drawing::Drawing;
use expect_test::expect;

fn show(reaper: &Reaper) -> String {
    let queue: Vec<String> = reaper.queue.iter().map(|task| format!("{task:?}")).collect();
    format!("{} [{}]", reaper.name(), queue.join(", "))
}

/// Feeds inputs one after the other; returns each state and output.
fn script(reaper: &mut Reaper, inputs: Vec<Input>) -> String {
    let mut text = String::new();
    for input in inputs {
        let (label, mut out) = (format!("{input:?}"), Vec::new());
        let now = reaper.deadline().unwrap_or_default();
        reaper.step(now, input, &mut out);
        text += &format!("{label}: {}, {out:?}\n", show(reaper));
    }
    text
}

#[test]
fn orphans_of_a_previous_run_come_first_and_awaited_ones_before_all() {
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
            Input::Tick,
            Input::Done,
            Input::Done,
            Input::Done,
        ],
    );
    expect![[r#"
        Missing: look waits [], []
        Due(9): look waits [Cut(9, 0)], []
        Fetched: looking [Cut(9, 0)], []
        Found([4, 5], Some(6)): looking [Cut(9, 0), Cut(4, 0), Cut(5, 0)], []
        Found([7], None): cutting [Cut(4, 0), Cut(5, 0), Cut(7, 0)], []
        Missing: cut waits [Cut(4, 0), Cut(5, 0), Cut(7, 0)], []
        Fetched: cutting [Cut(4, 0), Cut(5, 0), Cut(7, 0)], []
        Freed(100): cutting [Cut(4, 0), Cut(5, 0), Cut(7, 0)], []
        Urgent(5): cutting [Cut(9, 0), Cut(4, 0), Cut(5, 0), Cut(7, 0)], []
        Done: cutting [Cut(4, 0), Cut(5, 0), Cut(7, 0)], [Over(5)]
        Done: cutting [Cut(5, 0), Cut(7, 0)], [Over(9)]
        Failed(Io): resting [Cut(5, 0), Cut(7, 0), Cut(4, 0)], [Failed(4, Io)]
        Tick: cutting [Cut(7, 0), Cut(4, 0)], []
        Done: cutting [Cut(4, 0)], [Over(5)]
        Done: cutting [], [Over(7)]
        Done: idle [], [Over(4)]
    "#]]
    .assert_eq(&text);
}

#[test]
fn a_failed_removal_is_retried_last_with_backoff() {
    let mut reaper = Reaper::new(false);
    let mut text = script(
        &mut reaper,
        vec![
            Input::Due(4),
            Input::Failed(Error::Io),
            Input::Tick,
            Input::Failed(Error::NoSpace),
            Input::Due(5),
            Input::Urgent(4),
            Input::Failed(Error::NoSpace),
            Input::Tick,
            Input::Found(vec![6], None),
        ],
    );
    for _ in 0..3 {
        text += &script(&mut reaper, vec![Input::Missing, Input::Failed(Error::Io), Input::Tick]);
    }
    text += &script(&mut reaper, vec![Input::Ended(Error::ReadOnly), Input::Urgent(9)]);
    expect![[r#"
        Due(4): looking [Cut(4, 0)], []
        Failed(Io): resting [Cut(4, 0), Look(0)], []
        Tick: cutting [Look(0)], []
        Failed(NoSpace): resting [Look(0), Cut(4, 0)], [Failed(4, NoSpace)]
        Due(5): resting [Look(0), Cut(4, 0), Cut(5, 0)], []
        Urgent(4): cutting [Look(0), Cut(4, 0), Cut(5, 0)], []
        Failed(NoSpace): resting [Look(0), Cut(4, 0), Cut(5, 0)], [Failed(4, NoSpace)]
        Tick: looking [Cut(4, 0), Cut(5, 0)], []
        Found([6], None): cutting [Cut(5, 0), Cut(6, 0)], []
        Missing: cut waits [Cut(5, 0), Cut(6, 0)], []
        Failed(Io): resting [Cut(5, 0), Cut(6, 0), Cut(4, 0)], [Failed(4, Io)]
        Tick: cutting [Cut(6, 0), Cut(4, 0)], []
        Missing: cut waits [Cut(6, 0), Cut(4, 0)], []
        Failed(Io): resting [Cut(6, 0), Cut(4, 0), Cut(5, 0)], [Failed(5, Io)]
        Tick: cutting [Cut(4, 0), Cut(5, 0)], []
        Missing: cut waits [Cut(4, 0), Cut(5, 0)], []
        Failed(Io): resting [Cut(4, 0), Cut(5, 0), Cut(6, 0)], [Failed(6, Io)]
        Tick: cutting [Cut(5, 0), Cut(6, 0)], []
        Ended(ReadOnly): over [], [Failed(4, ReadOnly), Failed(5, ReadOnly), Failed(6, ReadOnly)]
        Urgent(9): over [], [Failed(9, ReadOnly)]
    "#]]
    .assert_eq(&text);
}

#[test]
fn it_rests_longer_after_each_failure_but_not_too_long() {
    let (mut reaper, mut now, mut rests) = (Reaper::new(false), Instant(7), Vec::new());
    for _ in 0..20 {
        reaper.step(now, Input::Failed(Error::Io), &mut Vec::new());
        let until = reaper.deadline().unwrap();
        rests.push(until.0 - now.0);
        reaper.step(Instant(until.0 - 1), Input::Tick, &mut Vec::new());
        assert_eq!(reaper.task(), None);
        now = until;
        reaper.step(now, Input::Tick, &mut Vec::new());
        assert_eq!(reaper.task(), Some(Task::Look(0)));
    }
    assert!(rests.is_sorted());
    let most = u64::try_from(REST.1.as_nanos()).unwrap();
    assert_eq!((rests[0], rests[1], rests[19]), (100_000_000, 200_000_000, most));
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
        State::Working(Task::Look(0)),
        State::Waiting(Task::Look(0)),
        State::Idle,
        State::Working(Task::Cut(4, 0)),
        State::Waiting(Task::Cut(4, 0)),
        State::Resting(Instant(0)),
        State::Over(Error::ReadOnly),
    ];
    let inputs: [fn() -> Input; 11] = [
        || Input::Due(5),
        || Input::Urgent(5),
        || Input::Found(vec![4], None),
        || Input::Found(vec![4], Some(5)),
        || Input::Missing,
        || Input::Fetched,
        || Input::Freed(100),
        || Input::Done,
        || Input::Failed(Error::Io),
        || Input::Ended(Error::ReadOnly),
        || Input::Tick,
    ];
    let mut drawing = Drawing::default();
    for state in states {
        for input in inputs {
            let waits = matches!(state, State::Resting(_)).then_some(Task::Cut(4, 0));
            let (state, queue) = (state.clone(), waits.into_iter().collect());
            let machine = Reaper { state, queue, failures: 0 };
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

/// Every due inode gets a turn, whatever the order of inputs.
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
                (State::Working(Task::Look(_)), _) => {
                    Input::Found(vec![ino], (n < 10).then_some(n))
                }
                (State::Waiting(_), _) => Input::Fetched,
                (State::Working(Task::Cut(..)), 2) => Input::Missing,
                (State::Working(Task::Cut(ino, _)), _) if n % 5 == 0 => {
                    due.insert(*ino);
                    Input::Failed(Error::Io)
                }
                (State::Working(Task::Cut(_, at)), 3) => Input::Freed(at + 1),
                (State::Working(Task::Cut(ino, _)), _) => {
                    due.remove(ino);
                    Input::Done
                }
                (State::Resting(_), _) => Input::Tick,
                (State::Idle | State::Over(_), _) => continue,
            };
            match &input {
                Input::Due(ino) | Input::Urgent(ino) => _ = due.insert(*ino),
                Input::Found(found, _) => due.extend(found),
                Input::Missing | Input::Fetched | Input::Freed(_) => {}
                Input::Done | Input::Failed(_) | Input::Ended(_) | Input::Tick => {}
            }
            reaper.step(Instant(n << 30), input, &mut Vec::new());
        }
        for _ in 0..1000 {
            let input = match reaper.state {
                State::Working(Task::Look(_)) => Input::Found(Vec::new(), None),
                State::Waiting(_) => Input::Fetched,
                State::Working(Task::Cut(ino, _)) => {
                    due.remove(&ino);
                    Input::Done
                }
                State::Resting(_) => Input::Tick,
                State::Idle | State::Over(_) => break,
            };
            reaper.step(Instant(u64::MAX), input, &mut Vec::new());
        }
        assert!(due.is_empty() && reaper.state == State::Idle, "{seed}: {due:?}");
    }
}
