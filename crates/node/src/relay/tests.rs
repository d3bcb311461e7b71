use super::*;
use base::drawing::{Drawing, variant};
use base::{Caller, Kind};
use std::collections::{BTreeSet, VecDeque};
use tree::Ask;

const ROOT: NodeId = NodeId(7 << 48);

fn request() -> Request {
    Request { caller: Caller::Server, ask: Ask::Stat { node: ROOT } }
}

fn relay(state: State) -> Relay {
    let root_stat = Stat { kind: Kind::Directory, ..Stat::default() };
    Relay { state, opens: 1, ..Relay::new(1, ROOT, root_stat) }
}

fn open(number: usize) -> OpenId {
    OpenId::new(7, number)
}

/// Steps the stand-in; returns one line for each output.
fn outputs(relay: &mut Relay, input: Input) -> Vec<String> {
    let mut out = Vec::new();
    relay.step(Instant(0), input, &mut out);
    let line = |output: &Output| match output {
        Output::Forward(TreeInput::Ask(id, _)) => format!("forward {}", id.0),
        Output::Forward(TreeInput::Cancel(id)) => format!("cancel {}", id.0),
        Output::Reply(id, Err(error)) => format!("{}: {error:?}", id.0),
        Output::Reply(id, Ok(reply)) => format!("{}: {}", id.0, variant(reply)),
        Output::Forward(input) => variant(input),
        output @ (Output::Drain | Output::Finish) => variant(output),
    };
    out.iter().map(line).collect()
}

#[test]
fn states_md_is_fresh() {
    let one = || Pending::from([(RequestId(1), false)]);
    let states = [State::Open(one()), State::Closing(one()), State::Closed];
    let inputs = [
        Input::Ask(RequestId(2), request()),
        Input::Cancel(RequestId(1)),
        Input::Close(open(0)),
        Input::Abandon(open(0)),
        Input::Replied(RequestId(1), Ok(Reply::Done)),
        Input::Drain,
        Input::Finish,
        Input::Finished,
    ];
    let mut drawing = Drawing::default();
    for state in states {
        for input in &inputs {
            drawing.sample(relay(state.clone()), input.clone(), |it| variant(&it.state));
        }
    }
    drawing.assert_fresh(concat!(env!("CARGO_MANIFEST_DIR"), "/src/relay/states.md"));
}

#[test]
fn a_request_is_answered_once_whatever_becomes_of_it() {
    let mut relay = Relay::new(1, ROOT, Stat::default());
    let ask = |id| Input::Ask(RequestId(id), request());
    assert_eq!(outputs(&mut relay, ask(1)), ["forward 1"]);
    assert_eq!(outputs(&mut relay, Input::Cancel(RequestId(1))), ["cancel 1"]);
    let reply = Input::Replied(RequestId(1), Ok(Reply::Done));
    assert_eq!(outputs(&mut relay, reply), ["1: Done"]);
    // The reply precedes the cancellation.
    assert!(outputs(&mut relay, Input::Cancel(RequestId(1))).is_empty());
    assert_eq!(outputs(&mut relay, ask(1)), ["forward 1"]);
    assert_eq!(outputs(&mut relay, Input::Finish), ["Finish"]);
    assert_eq!(outputs(&mut relay, ask(2)), ["forward 2"]);
    let opened = Reply::Opened(open(3), Stat::default());
    assert_eq!(outputs(&mut relay, Input::Replied(RequestId(2), Ok(opened))), ["2: Opened"]);
    assert_eq!((relay.opens(), relay.pending()), (1, 1));
    assert_eq!(outputs(&mut relay, Input::Finished), ["1: Disconnected"]);
    assert_eq!(outputs(&mut relay, ask(3)), ["3: Disconnected"]);
    assert!(outputs(&mut relay, Input::Close(open(3))).is_empty());
    assert!(relay.is_closed() && relay.opens() == 0);
}

/// The tree in the other node, and the messages in flight in both directions.
#[derive(Default)]
struct Other {
    there: VecDeque<TreeInput>,
    back: VecDeque<Input>,
    requested: Vec<RequestId>,
    opens: BTreeSet<OpenId>,
    next: usize,
}

impl Other {
    /// Receives a message, or answers a request.
    fn go_on(&mut self, rng: &mut base::rng::Rng) {
        match self.there.pop_front() {
            Some(TreeInput::Ask(id, _)) => self.requested.push(id),
            Some(TreeInput::Cancel(id)) => {
                if let Some(at) = self.requested.iter().position(|it| *it == id) {
                    self.requested.remove(at);
                    self.back.push_back(Input::Replied(id, Err(Error::Cancelled)));
                }
            }
            Some(TreeInput::Close(open) | TreeInput::Abandon(open)) => {
                assert!(self.opens.remove(&open), "{open:?} is not open");
            }
            Some(other) => panic!("no stand-in forwards {other:?}"),
            None if self.requested.is_empty() => {}
            None => {
                let id = self.requested.swap_remove(rng.usize(..self.requested.len()));
                self.next += 1;
                self.opens.insert(open(self.next));
                let opened = Reply::Opened(open(self.next), Stat::default());
                self.back.push_back(Input::Replied(id, Ok(opened)));
            }
        }
    }
}

/// Under any order of messages, every request is answered once, and open files are closed in the
/// node that knows them.
#[test]
fn books_agree_in_both_nodes() {
    for seed in 0..500 {
        let mut rng = base::rng::seeded(seed);
        let (mut relay, mut other) = (Relay::new(1, ROOT, Stat::default()), Other::default());
        let (mut requested, mut held): (BTreeSet<RequestId>, Vec<OpenId>) = Default::default();
        for turn in 0..400 {
            let input = match rng.u8(..8) {
                // Numbers are reused as soon as they are free.
                0..2 if turn < 300 => {
                    match (0..4).find(|it| !requested.contains(&RequestId(*it))) {
                        Some(id) => {
                            requested.insert(RequestId(id));
                            Input::Ask(RequestId(id), request())
                        }
                        None => continue,
                    }
                }
                2 => Input::Cancel(RequestId(rng.u64(..4))),
                3 if !held.is_empty() => {
                    let open = held.swap_remove(rng.usize(..held.len()));
                    if rng.bool() { Input::Close(open) } else { Input::Abandon(open) }
                }
                4..6 => match other.back.pop_front() {
                    Some(node_message) => node_message,
                    None => continue,
                },
                _otherwise => {
                    other.go_on(&mut rng);
                    continue;
                }
            };
            let mut out = Vec::new();
            relay.step(Instant(turn), input, &mut out);
            for output in out {
                match output {
                    Output::Forward(input) => other.there.push_back(input),
                    Output::Reply(id, reply) => {
                        assert!(requested.remove(&id), "seed {seed}: answered twice");
                        if let Ok(Reply::Opened(open, _)) = reply {
                            held.push(open);
                        }
                    }
                    output @ (Output::Drain | Output::Finish) => panic!("{output:?}"),
                }
            }
            assert_eq!((relay.pending(), relay.opens()), (requested.len(), held.len()));
            // Two generations of four numbers, each with a cancellation.
            let node_messages = other.there.len();
            assert!(
                node_messages <= 16 + other.opens.len(),
                "seed {seed}: {node_messages} messages"
            );
        }
    }
}
