//! Who may begin: memory, places and what is certain of the processor and of file requests are
//! given to users and to their clients by turns, not to whoever asks most.
//!
//! A storelet keeps what it was given until it ends, so what is free is all that can be shared.
//! Next is the first in the queue of the client that holds the least memory, of the user that
//! holds the least. Bounds keep one of them from taking all:
//!
//! - A client has no more memory than its maximum, and beyond its first storelet no more than
//!   nobody holds (a dynamic threshold; Choudhury and Hahne, 1998), so N clients leave one part in
//!   N + 1.
//! - A user has no more than three quarters of anything but places; small storelets, of at most a
//!   sixteenth of all memory, may use seven eighths.
//!
//! If there is no room for a storelet, others may pass. Once [`PASSED_MAX`] have, they pass only if
//! that does not delay it (EASY backfilling; Lifka, 1995): every storelet has a time at which it
//! ends at the latest, so it is known when there will be room. So neither a storelet that sleeps
//! for an hour nor one that waits for it to end stops those that need little or end soon.

use crate::crossing::{Account, DomainId};
use base::{Caller, Instant};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// How many pass one for which there is no room, before they must not delay it.
const PASSED_MAX: u32 = 100;

/// The part of all memory, one in so many, up to which a storelet is small.
const SMALL: u64 = 16;

/// What a storelet, or a chain of them, needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Need {
    /// Memory, bytes.
    pub(crate) memory: u64,
    /// Guests.
    pub(crate) places: usize,
    /// What is certain of each second: processor time, ns, and file requests.
    pub(crate) processor: u64,
    pub(crate) requests: u64,
}

impl Need {
    /// Both together.
    fn plus(self, other: Need) -> Need {
        Need {
            memory: self.memory.saturating_add(other.memory),
            places: self.places + other.places,
            processor: self.processor.saturating_add(other.processor),
            requests: self.requests.saturating_add(other.requests),
        }
    }

    /// What is left without the other, which is a part of it.
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

/// The number of a user whose storelets share; the server's own are one of them.
pub(crate) fn user_of(caller: &Caller) -> u32 {
    match caller {
        Caller::Server => u32::MAX,
        Caller::User(user) => user.uid,
    }
}

/// All that can be given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// To all together.
    pub(crate) all: Need,
    /// Memory, to one client, bytes.
    pub(crate) client_memory: u64,
}

/// Amounts given: to all, to a user, to a client.
#[derive(Clone, Copy, Debug, Default)]
struct Given {
    all: Need,
    user: Need,
    client: Need,
}

/// Why a storelet cannot begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lack {
    /// Its client holds as much as it may beside others.
    Client,
    /// There is no memory or place, for its user or for anybody.
    Room,
    /// There is room, but not so much can be certain.
    Certain,
}

impl Limits {
    /// Resource that a storelet lacks where this was given; `None`: it can begin.
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

/// A storelet that waits.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    id: DomainId,
    need: Need,
    /// How long it takes at most.
    time: Duration,
}

/// A storelet that has begun.
#[derive(Debug)]
struct Held {
    account: Account,
    need: Need,
    /// When it ends at the latest.
    ends: Instant,
}

/// Holdings and requests of a client.
#[derive(Debug, Default)]
struct Client {
    queue: VecDeque<Waiting>,
    given: Need,
    /// How many were admitted that were asked for after the first in the queue, for which there
    /// was no room.
    passed: u32,
}

/// Entries of a client's queue that could begin, and the lack of those before them.
#[derive(Debug)]
struct Outlook {
    account: Account,
    /// Memory that its user and the client hold, and the first in the queue: who is next.
    rank: (u64, u64, DomainId),
    place: Option<usize>,
    /// There is no room for the next.
    lacks_room: bool,
    /// There is room, but not so much can be certain: who wants nothing certain may pass.
    lacks_certain: bool,
}

/// Memory and places, and who waits for them.
#[derive(Debug)]
pub(crate) struct Admission {
    /// All that there is.
    limits: Limits,
    clients: BTreeMap<Account, Client>,
    /// Amount given to each user that holds anything.
    users: BTreeMap<u32, Need>,
    held: BTreeMap<DomainId, Held>,
    given: Need,
}

impl Admission {
    /// Room for this.
    pub(crate) fn new(limits: Limits) -> Admission {
        let (clients, users, held) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Admission { limits, clients, users, held, given: Need::default() }
    }

    /// Memory that was given, bytes.
    pub(crate) fn memory(&self) -> u64 {
        self.given.memory
    }

    /// Whether this one was admitted and has not been released.
    pub(crate) fn holds(&self, id: DomainId) -> bool {
        self.held.contains_key(&id)
    }

    /// Whether nobody was given anything.
    pub(crate) fn is_idle(&self) -> bool {
        self.held.is_empty()
    }

    /// Whether somebody could be given this at all.
    pub(crate) fn could_fit(&self, need: Need) -> bool {
        need.fits(self.limits.all) && need.memory <= self.limits.client_memory
    }

    /// A storelet of an account waits, which takes so long at most.
    pub(crate) fn enqueue(&mut self, id: DomainId, account: Account, need: Need, time: Duration) {
        let client = self.clients.entry(account).or_default();
        client.queue.push_back(Waiting { id, need, time });
    }

    /// It does not wait any more.
    pub(crate) fn dequeue(&mut self, id: DomainId) {
        for client in self.clients.values_mut() {
            if client.queue.front().is_some_and(|first| first.id == id) {
                client.passed = 0;
            }
            client.queue.retain(|other| other.id != id);
        }
        self.tidy();
    }

    /// Amount given to an account.
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

    /// The next that may begin: it has what it needs until it is released.
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

    /// Amount that an account has once all have ended that end until then.
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

    /// When there will be room for the first in a client's queue, at the latest.
    fn room_at(&self, account: Account) -> Instant {
        let need = self.clients[&account].queue[0].need;
        let mut ends: Vec<Instant> = self.held.values().map(|held| held.ends).collect();
        ends.sort_unstable();
        let fits = |at: &Instant| self.limits.lack(need, self.given_at(account, *at)).is_none();
        let at = ends.partition_point(|at| !fits(at));
        ends.get(at).copied().unwrap_or(Instant(u64::MAX))
    }

    /// Whether one that can begin does not delay the first in a client's queue, for which there
    /// will be room at that time.
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

    /// It has ended, if it had begun.
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

    /// Checks that sums are right, and that no client has more than it may.
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

/// When one ends at the latest that begins now.
fn ends(now: Instant, time: Duration) -> Instant {
    let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    Instant(now.0.saturating_add(ns))
}

#[cfg(test)]
mod tests;
