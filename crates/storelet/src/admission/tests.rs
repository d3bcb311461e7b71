use super::*;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// Creates an admission controller in which a client may hold everything.
fn rooms(all: Need) -> Admission {
    Admission::new(Limits { all, client_memory: all.memory })
}

fn room(memory: u64) -> Admission {
    rooms(Need { memory, places: 100, ..Need::default() })
}

fn needs(memory: u64) -> Need {
    Need { memory, places: 1, ..Need::default() }
}

/// Enqueues a storelet of a client of its own.
fn ask(admission: &mut Admission, id: u64, user: u32, memory: u64) {
    ask_for(admission, id, (user, id as u32), memory, MINUTE);
}

/// Enqueues a storelet of this user and client.
fn ask_for(
    admission: &mut Admission,
    id: u64,
    (user, client): (u32, u32),
    memory: u64,
    time: Duration,
) {
    admission.enqueue(DomainId(id), Account { user, client }, needs(memory), time);
}

/// Returns all storelets admitted at this time.
fn admitted_at(admission: &mut Admission, now: Instant) -> Vec<u64> {
    let admitted = std::iter::from_fn(|| admission.next(now).map(|id| id.0)).collect();
    admission.check();
    admitted
}

fn admitted(admission: &mut Admission) -> Vec<u64> {
    admitted_at(admission, Instant(0))
}

#[test]
fn the_client_with_the_least_allocation_is_next() {
    let mut room = room(100);
    (1..=10).for_each(|id| ask(&mut room, id, 7, 25));
    assert_eq!(admitted(&mut room), [1, 2, 3], "three quarters for one user");
    ask(&mut room, 11, 8, 20);
    ask(&mut room, 12, 8, 20);
    assert_eq!(admitted(&mut room), [11]);
    room.release(DomainId(1));
    assert_eq!(admitted(&mut room), [12], "not the next of who holds more");
    room.release(DomainId(2));
    ask(&mut room, 13, 9, 60);
    assert_eq!(admitted(&mut room), [4], "there is no room for him, and for others there is");
    (5..=10).for_each(|id| room.dequeue(DomainId(id)));
    [3, 4, 11, 12].into_iter().for_each(|id| room.release(DomainId(id)));
    ask(&mut room, 14, 7, 1);
    assert_eq!(admitted(&mut room), [13, 14], "of those who hold nothing the first to ask");
}

/// A storelet that sleeps for an hour holds most of its user's memory, and one of another client
/// waits for it to end: small storelets of any user start nevertheless.
#[test]
fn one_that_sleeps_and_one_that_waits_stop_nobody_who_needs_little() {
    let all = Need { memory: 1024, places: 100_000, ..Need::default() };
    let mut room = Admission::new(Limits { all, client_memory: 512 });
    assert!(!room.could_fit(needs(750)), "no client has so much");
    ask_for(&mut room, 1, (7, 1), 512, HOUR);
    ask_for(&mut room, 2, (7, 2), 500, HOUR);
    assert_eq!(admitted(&mut room), [1]);
    // A long sequence of short storelets, of clients of their own.
    for id in 1000..5000 {
        ask(&mut room, id, 7, if id % 2 == 0 { 50 } else { 256 });
        assert_eq!(admitted_at(&mut room, Instant(id)), [id], "{id} is stopped");
        room.release(DomainId(id));
    }
    room.release(DomainId(1));
    assert_eq!(admitted_at(&mut room, Instant(6000)), [2]);
}

#[test]
fn large_storelets_are_overtaken_for_a_bounded_time() {
    let mut room = rooms(Need { memory: 100, places: 10_000, ..Need::default() });
    ask_for(&mut room, 1, (7, 1), 50, HOUR);
    assert_eq!(admitted(&mut room), [1]);
    ask(&mut room, 2, 9, 90);
    // Continuous overtaking would leave no room for the first one for ever.
    let mut now = Instant(0);
    let mut begun = Vec::new();
    for id in 1000..1200 {
        ask(&mut room, id, 8, 20);
        now = now + MINUTE / 2;
        let more = admitted_at(&mut room, now);
        begun.last().into_iter().for_each(|id| room.release(DomainId(*id)));
        begun.extend(more);
        if begun.contains(&2) {
            break;
        }
    }
    assert!(!begun.contains(&2) && begun.len() > PASSED_MAX as usize, "{begun:?}");
    (1000..1200).for_each(|id| room.dequeue(DomainId(id)));
    begun.into_iter().for_each(|id| room.release(DomainId(id)));
    // Storelets that end before there is room, or leave enough of it, keep overtaking.
    now = Instant(0) + (HOUR - MINUTE * 2);
    ask(&mut room, 2001, 8, 20);
    assert_eq!(admitted_at(&mut room, now), [2001]);
    room.release(DomainId(2001));
    now = Instant(0) + (HOUR - MINUTE / 2);
    ask(&mut room, 2002, 8, 5);
    assert_eq!(admitted_at(&mut room, now), [2002]);
    (3000..3003).for_each(|id| ask(&mut room, id, 8, 20));
    assert_eq!(admitted_at(&mut room, now), [0; 0], "they would end too late");
    room.release(DomainId(1));
    assert_eq!(admitted_at(&mut room, now)[0], 2);
}

#[test]
fn one_that_is_larger_than_a_users_part_runs_alone_of_his() {
    let mut room = room(100);
    ask(&mut room, 1, 7, 100);
    ask(&mut room, 2, 7, 1);
    assert!(room.could_fit(needs(100)));
    assert!(!room.could_fit(needs(101)));
    assert_eq!(admitted(&mut room), [1]);
    room.release(DomainId(1));
    assert_eq!(admitted(&mut room), [2]);
}

/// With N clients at their limits, one part in N+1 stays free.
#[test]
fn a_client_holds_no_more_than_nobody_holds() {
    let mut room = rooms(Need { memory: 1600, places: 10_000, ..Need::default() });
    let all = 1600 / 8 * 7;
    for client in 1..=4_u32 {
        for number in 0..1000 {
            let id = u64::from(client) * 10_000 + number;
            ask_for(&mut room, id, (7, client), 10, HOUR);
        }
    }
    admitted(&mut room);
    for client in 1..=4 {
        let given = room.clients[&Account { user: 7, client }].given.memory;
        assert!((all / 5 - 20..=all / 5).contains(&given), "{client}: {given}");
    }
    assert!(all - room.memory() >= all / 5, "{}", room.memory());
    ask_for(&mut room, 1, (7, 5), 90, HOUR);
    assert_eq!(admitted(&mut room), [1], "memory is left for later ones");
}

#[test]
fn places_are_given_like_memory_and_who_leaves_the_queue_is_not_admitted() {
    let mut room = rooms(Need { memory: 100, places: 3, ..Need::default() });
    let two = Need { memory: 1, places: 2, ..Need::default() };
    for id in [1, 2] {
        let account = Account { user: 7, client: id };
        room.enqueue(DomainId(id.into()), account, two, MINUTE);
    }
    ask(&mut room, 3, 7, 1);
    assert_eq!(admitted(&mut room), [1, 3]);
    room.dequeue(DomainId(2));
    assert_eq!(admitted(&mut room), [0; 0]);
    [1, 2, 3].into_iter().for_each(|id| room.release(DomainId(id)));
    assert!(room.clients.is_empty() && room.memory() == 0);
}

#[test]
fn guaranteed_memory_is_bounded_and_shared() {
    let mut room = rooms(Need { memory: 100, places: 10_000, processor: 500, requests: 2000 });
    let certain = Need { memory: 1, places: 1, processor: 100, requests: 0 };
    let wait = |room: &mut Admission, id: u64, user: u32, need: Need| {
        room.enqueue(DomainId(id), Account { user, client: id as u32 }, need, MINUTE);
    };
    (1..=5).for_each(|id| wait(&mut room, id, 7, certain));
    assert_eq!(admitted(&mut room), [1, 2, 3], "three quarters for one user");
    let many = Need { memory: 1, places: 1, processor: 0, requests: 1000 };
    (11..=13).for_each(|id| wait(&mut room, id, 8, many));
    assert_eq!(admitted(&mut room), [11]);
    ask(&mut room, 20, 9, 1);
    wait(&mut room, 21, 9, certain);
    assert_eq!(admitted(&mut room), [20, 21]);
    room.release(DomainId(1));
    assert_eq!(admitted(&mut room), [4]);
    assert!(!room.could_fit(Need { processor: 501, ..certain }));
    // Waiting for a reservation does not block storelets without one.
    wait(&mut room, 30, 10, Need { requests: 1500, ..many });
    assert_eq!(admitted(&mut room), [0; 0], "a thousand are left");
    (1000..1900).for_each(|id| ask(&mut room, id, 10 + id as u32 % 3, 0));
    assert_eq!(admitted(&mut room).len(), 900);
    [12, 13].into_iter().for_each(|id| room.dequeue(DomainId(id)));
    room.release(DomainId(11));
    assert_eq!(admitted(&mut room), [30]);
}

#[test]
fn a_client_has_half_of_what_is_certain() {
    let mut room = rooms(Need { memory: 100, places: 100, processor: 500, requests: 0 });
    let certain = Need { memory: 1, places: 1, processor: 100, requests: 0 };
    let account = Account { user: 7, client: 1 };
    (1..=4).for_each(|id| room.enqueue(DomainId(id), account, certain, MINUTE));
    room.enqueue(DomainId(5), account, needs(1), MINUTE);
    assert_eq!(admitted(&mut room), [1, 2, 5], "a request without conditions passes");
    room.enqueue(DomainId(6), Account { user: 7, client: 2 }, certain, MINUTE);
    assert_eq!(admitted(&mut room), [6]);
}
