use super::*;
use base::drawing::{Drawing, variant};

fn states() -> Vec<State> {
    let stat = || Ask::Stat { node: NodeId(1) };
    vec![
        State::New(Vec::new()),
        State::Finding(None, Vec::new()),
        State::Ready(None),
        State::Running,
        State::Queued(Box::new(stat())),
        State::Asking,
        State::Awaiting,
        State::Hungry,
        State::Saying,
        State::Sleeping(Instant(0)),
        State::Leaving(None),
        State::Over,
    ]
}

/// Name and constructor of an input.
type Sample = (&'static str, fn() -> Input);

fn inputs() -> Vec<Sample> {
    vec![
        ("Begin", || Input::Begin(NodeId(0))),
        ("Turn", || Input::Turn),
        ("Paused(Slice)", || Input::Paused(Pause::Slice)),
        ("Paused(File)", || Input::Paused(Pause::Wants(Want::File(Ask::Stat { node: NodeId(1) })))),
        ("Paused(Input)", || Input::Paused(Pause::Wants(Want::Input(1)))),
        ("Paused(Output)", || {
            Input::Paused(Pause::Wants(Want::Output(Stream::Output, Vec::new())))
        }),
        ("Paused(Sleep)", || Input::Paused(Pause::Wants(Want::Sleep(1)))),
        ("Paused(Ahead)", || Input::Paused(Pause::Wants(Want::Prefetch))),
        ("Paused(Ended)", || Input::Paused(Pause::Ended(Ended::Exit(0)))),
        ("Admitted", || Input::Admitted),
        ("Answered", || Input::Answered(Ok(Reply::Walked(Vec::new(), Some(NodeId(1)))))),
        ("Arrived", || Input::Arrived),
        ("Fed", || Input::Fed(Vec::new())),
        ("Received", || Input::Received),
        ("Tick", || Input::Tick),
        ("Kill", || Input::Kill(Reason::Time)),
    ]
}

#[test]
fn states_md_is_fresh() {
    let mut drawing = Drawing::default();
    for (label, input) in inputs() {
        for state in states() {
            drawing.sample_as(label, Execution { state }, input(), |execution| {
                variant(&execution.state)
            });
        }
    }
    drawing.assert_fresh(concat!(env!("CARGO_MANIFEST_DIR"), "/src/execution/states.md"));
}

/// A long path to the root is walked in pieces, and the intermediate nodes are released.
#[test]
fn a_deep_root_is_found_in_pieces() {
    let names = vec![Name::new(b"a").expect("a name"); 20];
    let (mut execution, mut out) = (Execution::new(names), Vec::new());
    execution.step(Instant(0), Input::Begin(NodeId(7)), &mut out);
    let walked = |node| Input::Answered(Ok(Reply::Walked(Vec::new(), Some(NodeId(node)))));
    execution.step(Instant(0), walked(8), &mut out);
    execution.step(Instant(0), walked(9), &mut out);
    let [
        Output::Ask(Ask::Walk { from: NodeId(7), names: first }),
        Output::Ask(Ask::Walk { from: NodeId(8), names: second }),
        Output::Release(NodeId(8)),
        Output::Make(NodeId(9)),
    ] = &out[..]
    else {
        panic!("{out:?}")
    };
    assert_eq!((first.len(), second.len()), (16, 4));
    assert!(execution.is_ready());
}

/// In random order, an execution ends once, and each reply is used or discarded once.
#[test]
fn it_ends_once_whenever_it_is_killed() {
    for seed in 0..2000 {
        let mut rng = base::rng::seeded(seed);
        let (mut execution, mut requested, mut ended) = (Execution::new(Vec::new()), 0, 0);
        let mut next = Input::Begin(NodeId(0));
        for tick in 0..60 {
            let mut out = Vec::new();
            execution.step(Instant(tick), next, &mut out);
            for output in out {
                requested += i32::from(matches!(output, Output::Ask(_)));
                ended += i32::from(matches!(output, Output::Ended(_)));
            }
            if rng.u8(0..20) == 0 && !matches!(execution.state, State::Running) {
                next = Input::Kill(Reason::Time);
                continue;
            }
            next = match &execution.state {
                State::New(_) => Input::Begin(NodeId(0)),
                State::Finding(..) | State::Asking | State::Leaving(_) => {
                    requested -= 1;
                    match rng.u8(0..8) {
                        0 => Input::Answered(Err(Error::NotFound)),
                        _otherwise => {
                            Input::Answered(Ok(Reply::Walked(Vec::new(), Some(NodeId(1)))))
                        }
                    }
                }
                State::Ready(_) => Input::Turn,
                State::Running => (inputs()[2 + rng.usize(0..7)].1)(),
                State::Queued(_) => Input::Admitted,
                State::Awaiting => Input::Arrived,
                State::Hungry => Input::Fed(Vec::new()),
                State::Saying => Input::Received,
                State::Sleeping(_) | State::Over => Input::Tick,
            };
        }
        assert!(ended <= 1 && requested <= 1, "seed {seed}: {ended} {requested}");
        assert_eq!(
            ended,
            i32::from(matches!(execution.state, State::Over | State::Leaving(_))),
            "{seed}"
        );
    }
}
