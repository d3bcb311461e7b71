//! Admission control: memory, guest slots, reserved processor time and reserved file requests are
//! shared among users and their clients in turn, not by demand.
//!
//! A storelet keeps its allocation until it ends, so only free resources can be shared. Next is the
//! first in the queue of the client with the least memory, of the user with the least memory.
//! Bounds keep a user or client from taking all:
//!
//! - A client has no more memory than its maximum, and beyond its first storelet no more than is
//!   left free (a dynamic threshold; Choudhury and Hahne, 1998), so N clients leave one part in
//!   N+1.
//! - A user has, beyond its first storelet, no more than three quarters of any resource except
//!   guest slots; with small storelets, of at most a sixteenth of all memory, it may use seven
//!   eighths of the memory. A client likewise has no more than half of the reservations.
//!
//! A storelet for which there is no room may be overtaken. After [`PASSED_MAX`] others have
//! started, further ones overtake it only if that does not delay it (EASY backfilling; Lifka,
//! 1995): every storelet has a latest end time, so the time at which there will be room is known.
//! So neither a storelet that sleeps for an hour nor one that waits for it to end blocks those that
//! need little or end soon.

use crate::account::Account;
use crate::crossing::DomainId;
use base::{Caller, Instant};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Number of storelets that may overtake one for which there is no room before they must not delay
/// it.
const PASSED_MAX: u32 = 100;

/// Divisor of all memory that gives the largest small storelet.
const SMALL: u64 = 16;

/// Resources of a storelet, or of a chain of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Need {
    /// Memory, bytes.
    pub(crate) memory: u64,
    /// Guest slots.
    pub(crate) places: usize,
    /// Reservation per second: processor time, ns, and file requests.
    pub(crate) processor: u64,
    pub(crate) requests: u64,
}

impl Need {
    /// Returns the sum of both.
    fn plus(self, other: Need) -> Need {
        Need {
            memory: self.memory.saturating_add(other.memory),
            places: self.places + other.places,
            processor: self.processor.saturating_add(other.processor),
            requests: self.requests.saturating_add(other.requests),
        }
    }

    /// Returns the remainder without `part`.
    fn without(self, part: Need) -> Need {
        Need {
            memory: self.memory - part.memory,
            places: self.places - part.places,
            processor: self.processor - part.processor,
            requests: self.requests - part.requests,
        }
    }

    fn is_certain(self) -> bool {
        self.processor > 0 || self.requests > 0
    }

    fn fits(self, room: Need) -> bool {
        self.memory <= room.memory
            && self.places <= room.places
            && self.processor <= room.processor
            && self.requests <= room.requests
    }
}

/// Returns the accounting number of a caller's user; the server counts as a user of its own.
pub(crate) fn user_of(caller: &Caller) -> u32 {
    match caller {
        Caller::Server => u32::MAX,
        Caller::User(user) => user.uid,
    }
}

/// Resources available for storelets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Total for all users.
    pub(crate) all: Need,
    /// Memory of one client, bytes.
    pub(crate) client_memory: u64,
}

/// Allocations: in total, of a user, of a client.
#[derive(Clone, Copy, Debug, Default)]
struct Given {
    all: Need,
    user: Need,
    client: Need,
}

/// Reason why a storelet cannot start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lack {
    /// The client holds its maximum, given the other clients.
    Client,
    /// Not enough memory or guest slots, for the user or in total.
    Room,
    /// There is room, but the reservation exceeds what is left.
    Certain,
}

impl Limits {
    /// Returns the resource that a storelet lacks with these allocations; `None` if it can start.
    fn lack(&self, need: Need, given: Given) -> Option<Lack> {
        let Given { all, user, client } = given;
        let free = Need { memory: self.all.memory - all.memory, ..Need::default() };
        let memory = user.memory.saturating_add(need.memory);
        let share = match need.memory <= self.all.memory / SMALL {
            true => self.all.memory / 8 * 7,
            false => self.all.memory / 4 * 3,
        };
        let places = all.places + need.places;
        let has_room = need.memory <= free.memory
            && places <= self.all.places
            && (memory <= share || user.memory == 0 || need.memory == 0);
        if client.memory.saturating_add(need.memory) > self.client_memory {
            return Some(Lack::Client);
        }
        if !has_room {
            return Some(Lack::Room);
        }
        let left = (free.memory - need.memory).min(share.saturating_sub(memory));
        let greedy = client.memory > 0 && client.memory + need.memory > left && need.memory > 0;
        let crowded = client.places > 0 && client.places + need.places > self.all.places - places;
        if greedy || crowded {
            return Some(Lack::Client);
        }
        let certain = |of: fn(&Need) -> u64| {
            let (need, all, limit) = (of(&need), of(&all), of(&self.all));
            let within = |given: u64, most: u64| given == 0 || given.saturating_add(need) <= most;
            let parts = within(of(&user), limit / 4 * 3) && within(of(&client), limit / 2);
            need == 0 || (need <= limit - all && parts)
        };
        let has_certain = certain(|need| need.processor) && certain(|need| need.requests);
        (!has_certain).then_some(Lack::Certain)
    }
}

/// A queued storelet.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    id: DomainId,
    need: Need,
    /// Maximum run time.
    time: Duration,
}

/// An admitted storelet.
#[derive(Debug)]
struct Held {
    account: Account,
    need: Need,
    /// Latest end time.
    ends: Instant,
}

/// Allocations and queue of a client.
#[derive(Debug, Default)]
struct Client {
    queue: VecDeque<Waiting>,
    given: Need,
    /// Number of storelets admitted before the first of the queue although they were enqueued
    /// later, because there was no room for it.
    passed: u32,
}

/// The startable entry of a client's queue, and the resources that those before it lack.
#[derive(Debug)]
struct Outlook {
    account: Account,
    /// Order of admission: memory of the user, memory of the client, id of the first in the
    /// queue.
    rank: (u64, u64, DomainId),
    place: Option<usize>,
    /// Whether there is no room for the next.
    lacks_room: bool,
    /// Whether there is room but not the reservation: entries without a reservation may overtake.
    lacks_certain: bool,
}

/// Allocations and queues.
#[derive(Debug)]
pub(crate) struct Admission {
    /// Total resources.
    limits: Limits,
    clients: BTreeMap<Account, Client>,
    /// Allocation of each user that holds any.
    users: BTreeMap<u32, Need>,
    held: BTreeMap<DomainId, Held>,
    given: Need,
}

impl Admission {
    /// Creates an admission controller for these resources.
    pub(crate) fn new(limits: Limits) -> Admission {
        let (clients, users, held) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Admission { limits, clients, users, held, given: Need::default() }
    }

    /// Returns the allocated memory, bytes.
    pub(crate) fn memory(&self) -> u64 {
        self.given.memory
    }

    /// Returns whether this storelet is admitted and not yet released.
    pub(crate) fn holds(&self, id: DomainId) -> bool {
        self.held.contains_key(&id)
    }

    /// Returns whether nothing is allocated.
    pub(crate) fn is_idle(&self) -> bool {
        self.held.is_empty()
    }

    /// Returns whether this could be allocated on an idle server.
    pub(crate) fn could_fit(&self, need: Need) -> bool {
        need.fits(self.limits.all) && need.memory <= self.limits.client_memory
    }

    /// Enqueues a storelet of an account, which runs for at most `time`.
    pub(crate) fn enqueue(&mut self, id: DomainId, account: Account, need: Need, time: Duration) {
        let client = self.clients.entry(account).or_default();
        client.queue.push_back(Waiting { id, need, time });
    }

    /// Removes a storelet from the queue.
    pub(crate) fn dequeue(&mut self, id: DomainId) {
        for client in self.clients.values_mut() {
            if client.queue.front().is_some_and(|first| first.id == id) {
                client.passed = 0;
            }
            client.queue.retain(|other| other.id != id);
        }
        self.tidy();
    }

    /// Returns the allocations that count for an account.
    fn given_to(&self, account: Account) -> Given {
        let user = self.users.get(&account.user).copied().unwrap_or_default();
        let client = self.clients.get(&account).map(|client| client.given).unwrap_or_default();
        Given { all: self.given, user, client }
    }

    fn outlook(&self, account: Account, client: &Client) -> Option<Outlook> {
        let first = client.queue.front()?.id;
        let given = self.given_to(account);
        let rank = (given.user.memory, client.given.memory, first);
        let (place, lacks_room, lacks_certain) = (None, false, false);
        let mut outlook = Outlook { account, rank, place, lacks_room, lacks_certain };
        for (place, Waiting { need, .. }) in client.queue.iter().enumerate() {
            match self.limits.lack(*need, given) {
                None if need.is_certain() && outlook.lacks_certain => {}
                None => {
                    outlook.place = Some(place);
                    break;
                }
                Some(Lack::Certain) => outlook.lacks_certain = true,
                Some(Lack::Room) => {
                    outlook.lacks_room = true;
                    break;
                }
                Some(Lack::Client) => break,
            }
        }
        Some(outlook)
    }

    /// Admits the next storelet that can start; it keeps its allocation until it is released.
    pub(crate) fn next(&mut self, now: Instant) -> Option<DomainId> {
        let look = |(account, client): (&Account, &Client)| self.outlook(*account, client);
        let mut waiting: Vec<Outlook> = self.clients.iter().filter_map(look).collect();
        waiting.sort_by_key(|outlook| outlook.rank);
        let passed = |outlook: &&Outlook| {
            let lacks = outlook.lacks_room || outlook.lacks_certain;
            lacks && self.clients[&outlook.account].passed >= PASSED_MAX
        };
        let head = waiting.iter().filter(passed).min_by_key(|outlook| outlook.rank.2);
        let head = head.map(|head| (head, self.room_at(head.account)));
        for outlook in &waiting {
            let Some(place) = outlook.place else { continue };
            let candidate = self.clients[&outlook.account].queue[place];
            let stands_back = |(head, at): &(&Outlook, Instant)| {
                let other = head.account != outlook.account;
                let wants = head.lacks_room || candidate.need.is_certain();
                other && wants && !self.may_pass((head.account, *at), now, outlook, candidate)
            };
            if head.as_ref().is_some_and(stands_back) {
                continue;
            }
            for other in waiting.iter().filter(|other| other.account != outlook.account) {
                let lacks =
                    other.lacks_room || (other.lacks_certain && candidate.need.is_certain());
                if lacks && other.rank.2 < candidate.id {
                    self.clients.get_mut(&other.account).expect("it waits").passed += 1;
                }
            }
            let account = outlook.account;
            return Some(self.admit(now, account, place));
        }
        None
    }

    /// Returns the allocations of an account after the end of all storelets that end by then.
    fn given_at(&self, account: Account, at: Instant) -> Given {
        let mut given = self.given_to(account);
        for held in self.held.values().filter(|held| held.ends <= at) {
            given.all = given.all.without(held.need);
            if held.account.user == account.user {
                given.user = given.user.without(held.need);
            }
            if held.account == account {
                given.client = given.client.without(held.need);
            }
        }
        given
    }

    /// Returns the latest time at which there will be room for the first in a client's queue.
    fn room_at(&self, account: Account) -> Instant {
        let need = self.clients[&account].queue[0].need;
        let mut ends: Vec<Instant> = self.held.values().map(|held| held.ends).collect();
        ends.sort_unstable();
        let fits = |at: &Instant| self.limits.lack(need, self.given_at(account, *at)).is_none();
        let at = ends.partition_point(|at| !fits(at));
        ends.get(at).copied().unwrap_or(Instant(u64::MAX))
    }

    /// Returns whether a startable storelet does not delay the first in a client's queue, for which
    /// there will be room at that time.
    fn may_pass(
        &self,
        (head, at): (Account, Instant),
        now: Instant,
        outlook: &Outlook,
        candidate: Waiting,
    ) -> bool {
        if ends(now, candidate.time) <= at {
            return true;
        }
        let need = self.clients[&head].queue[0].need;
        let mut given = self.given_at(head, at);
        given.all = given.all.plus(candidate.need);
        if !given.all.fits(self.limits.all) {
            return false;
        }
        if outlook.account.user == head.user {
            given.user = given.user.plus(candidate.need);
        }
        self.limits.lack(need, given).is_none()
    }

    fn admit(&mut self, now: Instant, account: Account, place: usize) -> DomainId {
        let client = self.clients.get_mut(&account).expect("it waits");
        let Waiting { id, need, time } = client.queue.remove(place).expect("it waits");
        if place == 0 {
            client.passed = 0;
        }
        client.given = client.given.plus(need);
        let user = self.users.entry(account.user).or_default();
        *user = user.plus(need);
        self.held.insert(id, Held { account, need, ends: ends(now, time) });
        self.given = self.given.plus(need);
        id
    }

    /// Releases the allocation of a storelet, if it was admitted.
    pub(crate) fn release(&mut self, id: DomainId) {
        let Some(Held { account, need, .. }) = self.held.remove(&id) else { return };
        let client = self.clients.get_mut(&account).expect("it holds it");
        client.given = client.given.without(need);
        let user = self.users.get_mut(&account.user).expect("the user holds it");
        *user = user.without(need);
        self.given = self.given.without(need);
        self.tidy();
    }

    fn tidy(&mut self) {
        self.clients.retain(|_, client| client.given.places > 0 || !client.queue.is_empty());
        self.users.retain(|_, given| given.places > 0);
    }

    /// Checks the sums, and that no client exceeds its maximum.
    pub(crate) fn check(&self) {
        let all = |needs: &mut dyn Iterator<Item = Need>| needs.fold(Need::default(), Need::plus);
        assert_eq!(all(&mut self.held.values().map(|held| held.need)), self.given);
        assert_eq!(all(&mut self.clients.values().map(|client| client.given)), self.given);
        assert_eq!(all(&mut self.users.values().copied()), self.given);
        assert!(self.given.fits(self.limits.all));
        let most = self.limits.client_memory;
        assert!(self.clients.values().all(|client| client.given.memory <= most));
    }
}

/// Returns the latest end time of a storelet that starts now.
fn ends(now: Instant, time: Duration) -> Instant {
    let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    Instant(now.0.saturating_add(ns))
}

#[cfg(test)]
mod tests;
