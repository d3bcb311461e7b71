//! Tests of the order in which connections are served.

use super::*;
use crate::{Clients, Config, Identity, Port, Protocol, Served};
use base::op::{Done, Listener, OpId, Peer, Socket};
use base::{Automaton as _, Caller};
use wire::ninep::{NO_TAG, Tmessage};

fn clear(queue: &mut Queue, slot: usize) {
    let flow = queue.flow(Client::of_slot(slot));
    (flow.received, flow.ticks) = (None, false);
    flow.done.clear();
}

fn synced() -> Completion {
    Completion::Operation(Event { id: OpId(0), done: Done::Synced(Ok(())) })
}

/// Serves all input of the next connection.
fn served(queue: &mut Queue, cost: u64) -> usize {
    let slot = queue.begin().expect("one waits").slot;
    clear(queue, slot);
    queue.end(Client::of_slot(slot), Duration::from_micros(cost), false);
    queue.check();
    slot
}

/// Serves a connection that has requests left over, as the node does: a tick follows.
fn served_in_part(queue: &mut Queue, cost: u64) -> usize {
    let slot = queue.begin().expect("one waits").slot;
    clear(queue, slot);
    queue.end(Client::of_slot(slot), Duration::from_micros(cost), true);
    queue.tick(Client::of_slot(slot));
    queue.check();
    slot
}

#[test]
fn a_connection_that_cost_little_is_served_before_those_that_always_wait() {
    let mut queue = Queue::default();
    (0..100).for_each(|slot| queue.tick(Client::of_slot(slot)));
    for _ in 0..250 {
        served_in_part(&mut queue, 20);
    }
    // A new one waits for those that were there before it.
    queue.receive(Client::of_slot(100), Ok(Buf::default()));
    let mut round = 0;
    while queue.waiting.first().is_some_and(|(_, client)| client.slot != 100) {
        served_in_part(&mut queue, 20);
        round += 1;
    }
    assert!(round <= 150);
    assert_eq!(served(&mut queue, 5), 100);
    // From then on it is next whenever it has input.
    for _ in 0..20 {
        for _ in 0..130 {
            served_in_part(&mut queue, 20);
        }
        queue.receive(Client::of_slot(100), Ok(Buf::default()));
        assert_eq!(served(&mut queue, 5), 100);
    }
}

#[test]
fn time_is_shared_whatever_a_turn_costs() {
    let mut queue = Queue::default();
    let mut spent = [0; 3];
    (0..3).for_each(|slot| queue.tick(Client::of_slot(slot)));
    for _ in 0..10_000 {
        let cost = |slot| [100, 300, 1000][slot];
        let slot = queue.waiting.first().expect("all wait").1.slot;
        spent[slot] += cost(slot);
        served_in_part(&mut queue, cost(slot));
    }
    let (least, most) = (spent.iter().min().unwrap(), spent.iter().max().unwrap());
    assert!(most - least <= 2 * 1000, "{spent:?}");
}

#[test]
fn of_those_that_were_idle_the_one_that_costs_less_is_first() {
    let mut queue = Queue::default();
    (0..100).for_each(|slot| queue.tick(Client::of_slot(slot)));
    (0..99).for_each(|_| _ = served(&mut queue, 300));
    assert_eq!(served(&mut queue, 20), 99);
    queue.tick(Client::of_slot(100));
    (0..20).for_each(|_| _ = served_in_part(&mut queue, 1000));
    (0..100).for_each(|slot| queue.tick(Client::of_slot(slot)));
    assert_eq!(served(&mut queue, 20), 99, "before those that came before it");
}

#[test]
fn turns_below_a_quantum_are_served_one_after_the_other() {
    let mut queue = Queue::default();
    (0..50).for_each(|slot| queue.tick(Client::of_slot(slot)));
    for turn in 0..500 {
        let cost = if turn % 50 == 7 { 90 } else { 10 };
        assert_eq!(served(&mut queue, cost), turn % 50, "in the order of their arrival");
        queue.tick(Client::of_slot(turn % 50));
    }
}

/// Serves a connection, whose request gets its reply in the same turn of the node.
fn answered(queue: &mut Queue, slot: usize) {
    queue.tick(Client::of_slot(slot));
    queue.note_request();
    assert_eq!(served(queue, 10), slot);
    queue.note_reply(Client::of_slot(slot));
}

#[test]
fn work_outside_of_turns_is_charged_with_the_replies() {
    let mut queue = Queue::default();
    for slot in 0..3 {
        queue.tick(Client::of_slot(slot));
        assert_eq!(served(&mut queue, 10), slot);
    }
    (0..4).for_each(|_| queue.note_request());
    // Its next request waits already when the time of the one before it is known.
    (0..3).for_each(|slot| queue.tick(Client::of_slot(slot)));
    queue.note_reply(Client::of_slot(0));
    queue.share(Duration::from_micros(400));
    queue.check();
    assert_eq!(queue.unpaid, Duration::from_micros(300), "a quarter each");
    queue.share(Duration::from_micros(300));
    assert_eq!(queue.unpaid, Duration::from_micros(600), "work for requests that still wait");
    queue.note_reply(Client::of_slot(1));
    queue.share(Duration::ZERO);
    queue.check();
    assert_eq!(queue.unpaid, Duration::from_micros(400));
    let order: Vec<usize> = (0..3).map(|_| served(&mut queue, 10)).collect();
    assert_eq!(order, [2, 0, 1], "the one without such work is first");
}

#[test]
fn work_outside_of_turns_has_limits() {
    let mut queue = Queue::default();
    answered(&mut queue, 0);
    queue.share(Duration::from_secs(9));
    assert_eq!(queue.unpaid, UNPAID_MAX - COST_MAX, "what one reply is charged for");
    let end = queue.flow(Client::of_slot(0)).end;
    assert_eq!(end, SMALL + COST_MAX.as_nanos() as u64);
    // A closed connection owes nothing to the next one in its slot.
    queue.note_request();
    queue.forget(Client::of_slot(0));
    queue.note_reply(Client::of_slot(0));
    queue.share(Duration::from_millis(1));
    assert_eq!(queue.flow(Client::of_slot(0)).end, 0);
    assert!(!queue.has_requests());
}

#[test]
fn a_request_waits_once_for_all_its_operations() {
    let mut queue = Queue::default();
    (0..100).for_each(|slot| queue.tick(Client::of_slot(slot)));
    assert_eq!(served(&mut queue, 20), 0);
    for _ in 0..4 {
        queue.complete(Client::of_slot(0), synced());
        assert_eq!(served(&mut queue, 20), 0, "the completion of its operation");
    }
    // Together they have cost as much as a turn of the others.
    queue.receive(Client::of_slot(0), Ok(Buf::default()));
    let order: Vec<usize> = (0..100).map(|_| served(&mut queue, 20)).collect();
    assert_eq!(order, (1..100).chain([0]).collect::<Vec<_>>());
}

#[test]
fn a_long_answer_does_not_come_before_other_requests() {
    let mut queue = Queue::default();
    (0..2).for_each(|slot| queue.tick(Client::of_slot(slot)));
    (0..2).for_each(|_| _ = served(&mut queue, 20));
    let mut turns = [0; 2];
    for _ in 0..200 {
        queue.complete(Client::of_slot(0), synced());
        queue.tick(Client::of_slot(1));
        turns[served(&mut queue, 50)] += 1;
    }
    assert!(turns[1] >= 100, "{turns:?}: a small request has at least as many turns");
}

#[test]
fn a_turn_that_was_interrupted_costs_no_more_than_the_most() {
    let mut queue = Queue::default();
    queue.tick(Client::of_slot(0));
    queue.tick(Client::of_slot(1));
    assert_eq!(served_in_part(&mut queue, 10_000_000), 0);
    let turns = (0..1000).take_while(|_| served_in_part(&mut queue, 100) == 1);
    assert_eq!(turns.count(), 19, "1 ms behind, and as much for the turn that it may take");
}

#[test]
fn turns_that_always_take_long_cost_what_they_take() {
    // The same with other turns between them.
    for others in [1, 2, 10] {
        let mut queue = Queue::default();
        let (mut spent, mut turns) = ([0; 2], [0; 2]);
        (0..2).for_each(|slot| queue.tick(Client::of_slot(slot)));
        for _ in 0..20_000 {
            let slot = queue.waiting.first().expect("both wait").1.slot;
            turns[slot] += 1;
            let is_long = slot == 1 && turns[1] % others == 0;
            let cost = if is_long { 40_000 } else { 100 };
            spent[slot] += cost;
            served_in_part(&mut queue, cost);
        }
        let [short, long] = spent;
        assert!(long < short + 1_000_000, "{spent:?}");
    }
}

#[test]
fn an_interruption_is_forgiven() {
    let mut flow = Flow::default();
    let charge = |flow: &mut Flow, us| flow.charge(Duration::from_micros(us));
    assert_eq!(charge(&mut flow, 20_000), 1_000_000);
    assert_eq!(charge(&mut flow, 20_000), 2_000_000);
    for _ in 0..370 {
        assert_eq!(charge(&mut flow, 100), 100_000);
    }
    assert_eq!(charge(&mut flow, 20_000), 1_000_000, "the 37 ms were spent since");
}

#[test]
fn clients_that_connect_for_each_request_are_not_always_first() {
    let mut queue = Queue::default();
    (0..2).for_each(|slot| queue.tick(Client::of_slot(slot)));
    let mut kept = 0;
    for _ in 0..100 {
        let slot = served(&mut queue, 100);
        if slot == 0 {
            kept += 1;
        } else {
            queue.forget(Client::of_slot(slot));
        }
        queue.tick(Client::of_slot(slot));
    }
    assert!((45..=55).contains(&kept), "{kept} of 100 turns");
}

/// A node with two 9P connections; its output is dropped.
pub(crate) fn node_with_connections() -> Node {
    let port = Port {
        listener: Listener(1),
        protocol: Protocol::NineP,
        local: true,
        clients: Clients::All(Identity::Fixed(Caller::Server)),
    };
    let config = Config { ports: vec![port], ..Config::of_tests() };
    let mut node = Node::new(config, Served::Skeleton { paths: Vec::new() }, Vec::new());
    let ops = turn(&mut node, Vec::new());
    let accept = ops.iter().find_map(|op| {
        let Op::Accept { id, .. } = op else { return None };
        Some(*id)
    });
    let peers = (1..=2).map(|at| (Socket(at), Peer::Network(format!("127.0.0.1:{at}"))));
    let done = Done::Accepted(Ok(peers.collect()));
    turn(&mut node, vec![Event { id: accept.expect("it listens"), done }]);
    node
}

pub(crate) fn turn(node: &mut Node, events: Vec<Event>) -> Vec<Op> {
    turn_by(node, Duration::from_micros(1), events)
}

/// Runs a turn by a clock that advances by `step` each time it is read.
fn turn_by(node: &mut Node, step: Duration, mut events: Vec<Event>) -> Vec<Op> {
    let (mut ops, passed) = (Vec::new(), Cell::new(Duration::ZERO));
    let clock = || {
        passed.set(passed.get() + step);
        Instant(1) + passed.get()
    };
    node.turn(Instant(1), &clock, &mut events, &mut ops);
    node.check();
    ops
}

#[test]
fn a_connection_whose_requests_are_left_is_charged_a_quantum() {
    let mut node = node_with_connections();
    let version = Tmessage::Version { msize: 8192, version: b"9P2000.L" };
    let clunks = |count| (0..count).map(|tag| (tag, Tmessage::Clunk { fid: 9 }));
    for (slot, count) in [(0, 150), (1, 1)] {
        let mut bytes = Vec::new();
        version.encode(NO_TAG, &mut bytes);
        clunks(count).for_each(|(tag, clunk)| clunk.encode(tag, &mut bytes));
        assert!(bytes.len() <= SMALL_BYTES, "few bytes");
        node.queue.receive(Client::of_slot(slot), Ok(Buf::from(bytes)));
    }
    turn(&mut node, Vec::new());
    let charged: Vec<u64> = node.queue.flows[HOME].iter().map(|flow| flow.charged).collect();
    assert!(node.connections[0].has_requests_left(), "more than a turn of it");
    assert_eq!(charged, [QUANTUM, SMALL]);
}

#[test]
fn a_turn_whose_messages_take_long_begins_few_of_them() {
    let left = |count: u16, step: Duration| {
        let mut node = node_with_connections();
        let mut bytes = Vec::new();
        Tmessage::Version { msize: 8192, version: b"9P2000" }.encode(NO_TAG, &mut bytes);
        (0..count).for_each(|tag| Tmessage::Clunk { fid: 9 }.encode(tag, &mut bytes));
        node.queue.receive(Client::of_slot(0), Ok(Buf::from(bytes)));
        turn_by(&mut node, step, Vec::new());
        node.connections[0].has_requests_left()
    };
    let slow = Duration::from_millis(2);
    assert!(left(8, slow) && !left(7, slow));
    assert!(!left(126, Duration::from_micros(1)) && left(130, Duration::from_micros(1)));
}

#[test]
fn a_connection_that_is_gone_leaves_nothing_behind() {
    let mut queue = Queue::default();
    queue.tick(Client::of_slot(0));
    assert!(queue.has_tick(Client::of_slot(0)) && queue.len() == 1);
    served(&mut queue, 1000);
    queue.tick(Client::of_slot(0));
    queue.forget(Client::of_slot(0));
    queue.check();
    assert!(queue.is_empty() && !queue.has_tick(Client::of_slot(0)));
    queue.tick(Client::of_slot(0));
    queue.tick(Client::of_slot(1));
    assert_eq!(served(&mut queue, 1), 0, "the next one in its slot owes nothing");
}

#[test]
fn connections_that_arrive_with_credit_do_not_hold_up_one_with_less() {
    let mut queue = Queue::default();
    let (count, all) = (8, 1_000);
    for slot in 0..=all {
        queue.tick(Client::of_slot(slot));
        served(&mut queue, 20);
    }
    // Time passes, and the first connection has its part of it.
    for _ in 0..100 {
        queue.tick(Client::of_slot(0));
        served(&mut queue, 20);
    }
    (1..=count).chain([0]).for_each(|slot| queue.tick(Client::of_slot(slot)));
    // In each turn, another one arrives that was idle for long.
    let mut turns = 0;
    while served(&mut queue, 20) != 0 {
        turns += 1;
        assert!(count + turns <= all, "all others were before it");
        queue.tick(Client::of_slot(count + turns));
    }
    let credit = usize::try_from(CREDIT / SMALL).expect("small");
    assert!(turns <= (credit + 2) * (count + 1), "{turns} turns were before it");
}

#[test]
fn slow_submissions_make_turns_shorter_and_cost_nobody() {
    let mut queue = Queue::default();
    queue.note_submitted(0, Duration::from_secs(1));
    assert_eq!(queue.excess(), Duration::ZERO, "there was none");
    for (each, least, most) in [(5, 0, 0), (50, 35, 40), (10_000, 180, 190)] {
        for _ in 0..50 {
            queue.note_submitted(10, Duration::from_micros(10 * each));
        }
        let excess = queue.excess();
        assert!((least..=most).contains(&excess.as_micros()), "{excess:?} of {each} us");
    }
    let served_by_turn = |submission| {
        let mut node = node_with_connections();
        node.queue.submission = submission;
        let mut bytes = Vec::new();
        Tmessage::Version { msize: 8192, version: b"9P2000" }.encode(NO_TAG, &mut bytes);
        (0..2).for_each(|slot| {
            node.queue.receive(Client::of_slot(slot), Ok(Buf::from(bytes.clone())));
        });
        turn(&mut node, Vec::new());
        let charged = node.queue.flows[HOME].iter().map(|flow| flow.charged).max();
        (2 - node.queue.len(), charged)
    };
    assert_eq!(served_by_turn(Duration::ZERO), (2, Some(SMALL)));
    assert_eq!(served_by_turn(Duration::from_micros(200)), (1, Some(SMALL)));
}

#[test]
fn replies_sent_together_count_as_one_operation() {
    let cost = |has_tick| {
        let mut node = node_with_connections();
        let mut bytes = Vec::new();
        Tmessage::Version { msize: 8192, version: b"9P2000" }.encode(NO_TAG, &mut bytes);
        node.queue.receive(Client::of_slot(0), Ok(Buf::from(bytes)));
        if has_tick {
            node.queue.tick(Client::of_slot(0));
        }
        turn(&mut node, Vec::new());
        node.queue.flows[HOME][0].cost
    };
    assert_eq!(cost(false), cost(true), "both inputs lead to one send");
}

#[test]
fn a_connection_that_sends_its_request_in_parts_has_no_credit() {
    let mut node = node_with_connections();
    let mut bytes = Vec::new();
    Tmessage::Version { msize: 8192, version: b"9P2000" }.encode(NO_TAG, &mut bytes);
    let (first, rest) = bytes.split_at(5);
    for (part, is_partial) in [(first, true), (rest, false)] {
        node.queue.receive(Client::of_slot(0), Ok(Buf::from(part.to_vec())));
        turn(&mut node, Vec::new());
        let flow = &mut node.queue.flows[HOME][0];
        assert_eq!(flow.is_partial, is_partial);
        // Later.
        node.queue.time += 10 * CREDIT;
        let now = node.queue.time;
        node.queue.tick(Client::of_slot(0));
        let start = node.queue.flows[HOME][0].tag.map(|tag| tag.start);
        assert_eq!(start, Some(if is_partial { now } else { now - CREDIT }));
        turn(&mut node, Vec::new());
    }
}

/// A request of a front's connection.
fn request(call: u32) -> names::Input {
    let ask = tree::Ask::Stat { node: tree::NodeId(0) };
    names::Input::Ask(RequestId::new(3, call), tree::Request { caller: Caller::Server, ask })
}

/// Serves the next connection of a front, and takes one message.
fn served_front(queue: &mut Queue, cost: u64) -> Client {
    let client = queue.begin().expect("one waits");
    let flow = queue.flow(client);
    match flow.inbox.pop().expect("it has a message") {
        Entry::Closed => flow.has_closed = true,
        Entry::Input(_) => {}
    }
    queue.end(client, Duration::from_micros(cost), false);
    queue.check();
    client
}

#[test]
fn the_next_connection_in_a_slot_of_a_front_is_a_new_one() {
    let client = Client { node: 1, slot: 3 };
    for waits in [false, true] {
        let mut queue = Queue::default();
        assert!(queue.add(client, request(0)).is_none());
        if waits {
            queue.close(client);
        }
        assert_eq!(served_front(&mut queue, 500), client);
        let end = queue.end;
        match waits {
            // The close has a turn.
            true => assert_eq!(served_front(&mut queue, 1), client),
            false => queue.close(client),
        }
        assert!(queue.flow(client).end == 0 && queue.end >= end, "its cost is charged");
        // A connection of another front is as new.
        let other = Client { node: 2, slot: 0 };
        for it in [client, other] {
            assert!(queue.add(it, request(1)).is_none());
        }
        let start = |it| queue.known(it).and_then(|flow| flow.tag).map(|tag| tag.start);
        assert_eq!(start(client), start(other));
        assert!(start(client).is_some_and(|start| start > 0), "it comes behind the others");
    }
}

#[test]
fn releases_wait_for_requests_only() {
    let mut queue = Queue::default();
    let client = Client { node: 1, slot: 3 };
    let release = |id| names::Input::Release(tree::NodeId(id));
    assert!(queue.add(client, release(1)).is_some() && queue.is_empty());
    assert!(queue.add(client, request(1)).is_none() && queue.add(client, request(2)).is_none());
    assert!(queue.add(client, release(2)).is_none());
    let mut freed = Vec::new();
    assert!(!queue.withdraw(client, RequestId::new(3, 7), &mut freed));
    assert!(queue.withdraw(client, RequestId::new(3, 1), &mut freed) && freed.is_empty());
    queue.check();
    assert!(queue.withdraw(client, RequestId::new(3, 2), &mut freed));
    assert!(matches!(freed[..], [names::Input::Release(tree::NodeId(2))]));
    queue.check();
    assert!(queue.is_empty() && queue.flow(client).inbox.is_empty());
    // Requests of a front that has ended are not started.
    assert!(queue.add(client, request(3)).is_none() && queue.add(client, release(3)).is_none());
    queue.close(client);
    assert!(matches!(queue.forget_node(1)[..], [names::Input::Release(tree::NodeId(3))]));
    queue.check();
    assert!(queue.is_empty());
}

#[test]
fn a_large_write_of_a_front_is_no_small_turn() {
    let mut queue = Queue::default();
    let client = Client { node: 1, slot: 3 };
    for (size, charged) in [(100, SMALL), (1 << 20, QUANTUM)] {
        let (open, data) = (tree::OpenId(0), Buf::from(vec![0; size]));
        let ask = tree::Ask::Write { open, offset: 0, data };
        let request = tree::Request { caller: Caller::Server, ask };
        assert!(queue.add(client, names::Input::Ask(RequestId::new(3, 1), request)).is_none());
        served_front(&mut queue, 10);
        assert_eq!(queue.flow(client).charged, charged, "{size} bytes");
    }
}
