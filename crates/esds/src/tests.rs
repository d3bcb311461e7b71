use super::*;
use crate::ioa::{Channelled, Discipline, IoAutomaton, Move, Part, RoundRobin, Scheduler};

/// List of words; each operation appends a word and returns the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Words;

impl DataType for Words {
    type State = String;
    type Operator = char;
    type Value = String;

    fn initial(&self) -> String {
        String::new()
    }

    fn apply(&self, state: &mut String, operator: &char) -> String {
        state.push(*operator);
        state.clone()
    }

    fn commute(&self, a: &char, b: &char) -> bool {
        a == b
    }

    fn oblivious(&self, a: &char, b: &char) -> bool {
        a == b
    }
}

fn service<R>(replicas: usize, make: impl Fn(usize) -> R) -> Channelled<Station<Words, R>>
where
    R: ReplicaPart<Words>,
{
    let front_end = FrontEnd::new(replicas, Submission::One, Rules::PAPER);
    let parts = (0..replicas).map(|me| Station::Replica(make(me)));
    Channelled::new(parts.chain([Station::FrontEnd(front_end)]).collect(), Discipline::default())
}

fn submit<R: ReplicaPart<Words>>(
    service: &mut Channelled<Station<Words, R>>,
    id: u64,
    operator: char,
    strict: bool,
    prev: &[u64],
) {
    let sender = service.parts().len() - 1;
    let prev = prev.iter().map(|id| Id(*id)).collect();
    let descriptor = Descriptor { id: Id(id), sender, prev, strict, operator };
    service.input((sender, Request::Submit(descriptor)));
}

/// Answers, and the number of [`News`] sent until quiescence.
type Outcome = (Vec<(u64, String)>, usize);

fn settle<R: ReplicaPart<Words>>(service: &mut Channelled<Station<Words, R>>) -> Outcome {
    let (mut answers, mut reported, mut scheduler) = (Vec::new(), 0, RoundRobin::default());
    while let Some(action) = scheduler.choose(service) {
        if let Move::Deliver { from, to, index } = action
            && let Message::Gossip(news) = &service.channel(from, to)[index]
        {
            reported += news.len();
        }
        answers.extend(service.transition(action).map(|(_, (id, value))| (id.0, value)));
    }
    (answers, reported)
}

/// Both give the same answers; the optimised one gossips each change once.
#[test]
fn gossip_grows_quadratically_or_linearly() {
    let reported = |operations: u64| {
        let mut plain = service(3, |me| Plain::new(Words, me, 3, Rules::PAPER));
        let mut optimised = service(3, |me| Optimised::new(Words, me, 3, Rules::PAPER));
        let mut sums = (0, 0);
        for id in 0..operations {
            submit(&mut plain, id, 'x', true, &[]);
            submit(&mut optimised, id, 'x', true, &[]);
            let (of_plain, of_optimised) = (settle(&mut plain), settle(&mut optimised));
            assert_eq!(of_plain.0, of_optimised.0);
            sums = (sums.0 + of_plain.1, sums.1 + of_optimised.1);
        }
        sums
    };
    let (few, many) = (reported(10), reported(40));
    assert_eq!(few.1 * 4, many.1);
    assert!(many.0 > 12 * few.0, "{few:?} {many:?}");
}

#[test]
fn prev_sets_are_respected() {
    let mut service = service(3, |me| Optimised::new(Words, me, 3, Rules::PAPER));
    // The second goes to another replica, and waits there for the first.
    submit(&mut service, 1, 'a', false, &[]);
    submit(&mut service, 2, 'b', false, &[1]);
    submit(&mut service, 3, 'c', true, &[2]);
    let (mut answers, _) = settle(&mut service);
    answers.sort();
    let expected = [(1, "a"), (2, "ab"), (3, "abc")].map(|(id, value)| (id, value.to_owned()));
    assert_eq!(answers, expected);
}

#[test]
fn one_replica_alone_is_final_at_once() {
    let mut service = service(1, |me| Optimised::new(Words, me, 1, Rules::PAPER));
    submit(&mut service, 1, 'a', true, &[]);
    assert_eq!(settle(&mut service), (vec![(1, "a".to_owned())], 0));
    let replica = service.parts()[0].replica().expect("the first part is a replica");
    assert_eq!(replica.finals(), [(Id(1), "a".to_owned())]);
    assert_eq!(
        service.parts()[1].participants(&Act::FrontEnd(super::front_end::Action::Send(Id(1), 0))),
        [0]
    );
}
