use super::*;
use base::drawing::{self, Drawing};
use store::Table;

const TICKET: Ticket = Ticket(1);

fn call() -> Call {
    Call::Get { table: Table(300), key: b"k".to_vec() }
}

fn states() -> Vec<State> {
    vec![
        State::Active(Instant(0)),
        State::Calling(TICKET, call()),
        State::Waiting(TICKET, call()),
        State::Fetching(TICKET, call()),
        State::Applying(TICKET, Durability::Durable, Reply::Done),
        State::Applying(TICKET, Durability::Soon, Reply::Done),
        State::Committing(TICKET, Reply::Done),
        State::Over,
    ]
}

fn inputs() -> Vec<(&'static str, Input)> {
    vec![
        ("Call", Input::Requested(TICKET, TxnRequest::Call(call()))),
        ("Commit", Input::Requested(TICKET, TxnRequest::Commit(Durability::Durable))),
        ("Rollback", Input::Requested(TICKET, TxnRequest::Rollback)),
        ("Expire", Input::Expire),
        ("Answered", Input::Answered(Ok(Reply::Done))),
        ("Answered, refused", Input::Answered(Err(Failure::Busy))),
        ("Blocked", Input::Blocked),
        ("Missing", Input::Missing),
        ("Granted", Input::Granted),
        ("Fetched", Input::Fetched(Ok(()))),
        ("Fetched, failed", Input::Fetched(Err(Error::DiskFailed))),
        ("Applied", Input::Applied),
        ("Refused", Input::Refused(Error::NoSpace)),
        ("Committed", Input::Committed(Ok(()))),
    ]
}

#[test]
fn the_drawing_is_fresh() {
    let mut drawing = Drawing::default();
    for once in [None, Some(Durability::Durable)] {
        for index in 0..states().len() {
            for (label, input) in inputs() {
                let only = once.is_some() && label.starts_with("Answered");
                if once.is_some() && !only && label != "Fetched, failed" {
                    continue;
                }
                let label = if only { format!("{label}, the only call") } else { label.into() };
                let label = match (label.as_str(), &states()[index]) {
                    ("Applied", State::Applying(_, Durability::Durable, _)) => {
                        "Applied, durable later".to_string()
                    }
                    _ => label,
                };
                let txn = TxnState { state: states().swap_remove(index), once };
                let name = |txn: &TxnState| drawing::variant(&txn.state);
                drawing.sample_as(&label, txn, input, name);
            }
        }
    }
    drawing.assert_fresh(concat!(env!("CARGO_MANIFEST_DIR"), "/src/state/states.md"));
}

fn outputs(txn: &mut TxnState, input: Input) -> String {
    let mut out = Vec::new();
    txn.step(Instant(1), input, &mut out);
    let asks: Vec<String> = out.iter().map(drawing::variant).collect();
    format!("{}: {}", txn.state_name(), asks.join(", "))
}

#[test]
fn a_call_waits_for_its_lock_and_for_pages_and_is_then_done() {
    let mut txn = TxnState::new(Instant(0), None);
    let durable = TxnRequest::Commit(Durability::Durable);
    let trace: Vec<String> = [
        Input::Requested(TICKET, TxnRequest::Call(call())),
        Input::Blocked,
        Input::Granted,
        Input::Missing,
        Input::Fetched(Ok(())),
        Input::Answered(Ok(Reply::Done)),
        Input::Requested(TICKET, durable),
        Input::Applied,
        Input::Committed(Ok(())),
    ]
    .into_iter()
    .map(|input| outputs(&mut txn, input))
    .collect();
    let expected = [
        "calling: Perform",
        "waiting for a lock: ",
        "calling: Perform",
        "waiting for pages: ",
        "calling: Perform",
        "active: Reply",
        "applying: Apply",
        "committing: End",
        "over: Reply",
    ];
    assert_eq!(trace, expected);
}

/// For any sequence of inputs, each request is answered once, and the end is reported once.
#[test]
fn each_wish_is_answered_once() {
    for seed in 0..2000 {
        let mut rng = base::rng::seeded(seed);
        let once = (seed % 3 == 0).then_some(Durability::Durable);
        let mut txn = TxnState::new(Instant(0), once);
        let (mut out, mut requested, mut called) = (Vec::new(), 0, false);
        for _ in 0..40 {
            let input = next(&txn.state, &mut rng, once.is_some() && called);
            let Some(input) = input else { break };
            if let Input::Requested(ticket, _) = &input {
                assert_eq!(*ticket, TICKET);
                requested += 1;
                called = true;
            }
            txn.step(Instant(1), input, &mut out);
            let replies = out.iter().filter(|out| matches!(out, Output::Reply(..))).count();
            let ends = out.iter().filter(|out| matches!(out, Output::End)).count();
            let open = matches!(txn.state, State::Active(_) | State::Over);
            assert_eq!(requested - replies, usize::from(!open), "seed {seed}");
            let ended = matches!(txn.state, State::Committing(..) | State::Over);
            assert_eq!(ends, usize::from(ended), "seed {seed}");
        }
    }
}

/// Returns an input that is possible in a state; `None` if there is none.
fn next(state: &State, rng: &mut base::rng::Rng, only: bool) -> Option<Input> {
    let requests =
        [TxnRequest::Call(call()), TxnRequest::Commit(Durability::Soon), TxnRequest::Rollback];
    let request = Input::Requested(TICKET, rng.choice(&requests).unwrap().clone());
    let failed = Err(Error::DiskFailed);
    let choices = match state {
        State::Active(_) => {
            vec![Input::Requested(TICKET, TxnRequest::Call(call())), request, Input::Expire]
        }
        State::Calling(..) => vec![
            Input::Answered(Ok(Reply::Done)),
            Input::Answered(Err(Failure::Invalid)),
            Input::Blocked,
            Input::Missing,
        ],
        State::Waiting(..) if only => vec![Input::Granted, Input::Expire],
        State::Waiting(..) => vec![Input::Granted, Input::Refused(Error::WouldDeadlock), request],
        State::Fetching(..) => vec![Input::Fetched(Ok(())), Input::Fetched(failed), request],
        State::Applying(..) => vec![Input::Fetched(Ok(())), Input::Applied, request],
        State::Committing(..) => vec![Input::Committed(Ok(())), Input::Committed(failed), request],
        State::Over => return None,
    };
    choices.get(rng.usize(0..choices.len())).cloned()
}
