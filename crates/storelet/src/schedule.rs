//! Scheduler of processor time by reservation, weight and limit.
//!
//! Weights are hierarchical: first among users, then among the clients (connections) of each, then
//! among the storelets of each, by stride scheduling (Waldspurger and Weihl, 1995): the one that
//! has used least of its share is next. The tags of mClock (Gulati et al., OSDI 2010, §3) take
//! precedence: a storelet behind its reservation runs first, and one at its limit waits. Time is
//! charged afterwards, as measured: a storelet that overruns its slice waits longer for the next.

use crate::account::Account;
use slab::Slab;
use std::collections::BTreeMap;

/// A second, ns.
pub(crate) const SECOND: u64 = 1_000_000_000;

/// Maximum weight.
pub const WEIGHT_MAX: u32 = 10_000;

/// Weight of a client among those of its user.
const CLIENT_WEIGHT: u32 = 100;

/// Stride of weight 1 per nanosecond.
const UNIT: u128 = WEIGHT_MAX as u128;

/// Processor share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareSpec {
    /// Reserved time, ns of each second.
    pub reservation: u64,
    /// Weight relative to the others for the rest; 1 to [`WEIGHT_MAX`].
    pub weight: u32,
    /// Maximum time, ns of each second.
    pub limit: u64,
}

impl Default for ShareSpec {
    fn default() -> ShareSpec {
        ShareSpec { reservation: 0, weight: 100, limit: u64::MAX }
    }
}

/// Key of a storelet in the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key(usize);

/// Scheduling decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Run this storelet.
    Of(Key),
    /// None before this time, ns, because of limits.
    From(u64),
    /// None is ready.
    Nobody,
}

/// Weight and usage, as the pass value of stride scheduling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Share {
    weight: u32,
    pass: u128,
}

impl Share {
    fn charge(&mut self, ns: u64) {
        self.pass += u128::from(ns) * UNIT / u128::from(self.weight);
    }
}

/// A user, or one of a user's clients, with the usage of its members.
#[derive(Debug)]
struct Group {
    share: Share,
    /// Number of its ready storelets.
    ready: usize,
    /// Number of its storelets.
    all: usize,
    /// Pass of the ready member of this group that has used least.
    floor: u128,
}

impl Group {
    fn new(weight: u32, pass: u128) -> Group {
        Group { share: Share { weight, pass }, ready: 0, all: 0, floor: 0 }
    }

    /// Counts one more ready storelet; idle time earns a group no credit.
    fn add_ready(&mut self, floor: u128) {
        if self.ready == 0 {
            self.share.pass = self.share.pass.max(floor);
        }
        self.ready += 1;
    }
}

#[derive(Debug)]
struct Runnable {
    account: Account,
    share_spec: ShareSpec,
    share: Share,
    ready: bool,
    /// mClock's tags: times from which the reservation and the limit let it run, ns.
    reserved_at: u64,
    allowed_at: u64,
}

/// The scheduler.
#[derive(Debug, Default)]
pub struct Schedule {
    users: BTreeMap<u32, Group>,
    clients: BTreeMap<Account, Group>,
    places: Slab<Runnable>,
    /// Pass of the ready user that has used least.
    floor: u128,
    /// Whether the present turn is due to a reservation.
    reserved: bool,
}

const KNOWN: &str = "a storelet has a user and a client";

impl Schedule {
    /// Adds a storelet of an account, not ready. The weight of a user is the most recent one; the
    /// clients of a user have equal shares.
    ///
    /// # Panics
    /// If a weight is out of its range.
    pub fn add(&mut self, account: Account, user_weight: u32, share_spec: ShareSpec) -> Key {
        for weight in [user_weight, share_spec.weight] {
            assert!((1..=WEIGHT_MAX).contains(&weight), "a weight of {weight}");
        }
        let floor = self.floor;
        let user = self.users.entry(account.user).or_insert_with(|| Group::new(user_weight, floor));
        user.all += 1;
        user.share.weight = user_weight;
        let floor = user.floor;
        let client =
            self.clients.entry(account).or_insert_with(|| Group::new(CLIENT_WEIGHT, floor));
        client.all += 1;
        let share = Share { weight: share_spec.weight, pass: client.floor };
        let place =
            Runnable { account, share_spec, share, ready: false, reserved_at: 0, allowed_at: 0 };
        Key(self.places.insert(place))
    }

    /// Removes a storelet.
    ///
    /// # Panics
    /// If it is not there.
    pub fn remove(&mut self, key: Key) {
        self.set_ready(key, false, 0);
        let Runnable { account, .. } = self.places.remove(key.0);
        let client = self.clients.get_mut(&account).expect(KNOWN);
        assert!(client.all > 0, "storelets of a client are counted");
        client.all -= 1;
        if client.all == 0 {
            self.clients.remove(&account);
        }
        let user = self.users.get_mut(&account.user).expect(KNOWN);
        assert!(user.all > 0, "storelets of a user are counted");
        user.all -= 1;
        if user.all == 0 {
            self.users.remove(&account.user);
        }
    }

    /// Sets whether a storelet is ready. Idle time earns no credit.
    ///
    /// # Panics
    /// If it is not there.
    pub fn set_ready(&mut self, key: Key, ready: bool, now: u64) {
        let place = &mut self.places[key.0];
        if place.ready == ready {
            return;
        }
        place.ready = ready;
        let user = self.users.get_mut(&place.account.user).expect(KNOWN);
        let client = self.clients.get_mut(&place.account).expect(KNOWN);
        if !ready {
            assert!(user.ready > 0 && client.ready > 0, "each ready entry is counted");
            user.ready -= 1;
            client.ready -= 1;
            return;
        }
        user.add_ready(self.floor);
        client.add_ready(user.floor);
        place.share.pass = place.share.pass.max(client.floor);
        place.reserved_at = place.reserved_at.max(now);
        place.allowed_at = place.allowed_at.max(now);
    }

    /// Selects the storelet to run.
    pub fn next(&mut self, now: u64) -> Turn {
        let ready = || self.places.iter().filter(|(_, place)| place.ready);
        let behind =
            |place: &Runnable| place.share_spec.reservation > 0 && place.reserved_at <= now;
        let reserved = ready().filter(|(_, place)| behind(place));
        if let Some((key, _)) = reserved.min_by_key(|(key, place)| (place.reserved_at, *key)) {
            self.reserved = true;
            return Turn::Of(Key(key));
        }
        self.reserved = false;
        let allowed = ready().filter(|(_, place)| place.allowed_at <= now);
        let used = |place: &Runnable| {
            let user = self.users[&place.account.user].share.pass;
            (user, self.clients[&place.account].share.pass, place.share.pass)
        };
        if let Some((key, place)) = allowed.min_by_key(|(key, place)| (used(place), *key)) {
            let ((of_user, of_client, own), account) = (used(place), place.account);
            self.floor = self.floor.max(of_user);
            let user = self.users.get_mut(&account.user).expect(KNOWN);
            user.floor = user.floor.max(of_client);
            let client = self.clients.get_mut(&account).expect(KNOWN);
            client.floor = client.floor.max(own);
            return Turn::Of(Key(key));
        }
        ready().map(|(_, place)| place.allowed_at).min().map_or(Turn::Nobody, Turn::From)
    }

    /// Returns the earliest time at which a storelet may run; a time in the past means now.
    pub fn peek(&self) -> Option<u64> {
        let ready = self.places.iter().filter(|(_, place)| place.ready);
        let when = |place: &Runnable| match place.share_spec.reservation {
            0 => place.allowed_at,
            _reserved => place.allowed_at.min(place.reserved_at),
        };
        ready.map(|(_, place)| when(place)).min()
    }

    /// Asserts that the counts of users and clients are right.
    pub fn check(&self) {
        let mut clients: BTreeMap<Account, (usize, usize)> = BTreeMap::new();
        let mut users: BTreeMap<u32, (usize, usize)> = BTreeMap::new();
        for (_, place) in &self.places {
            let counts = [
                clients.entry(place.account).or_default(),
                users.entry(place.account.user).or_default(),
            ];
            for (all, ready) in counts {
                *all += 1;
                *ready += usize::from(place.ready);
            }
        }
        let counted = |group: &Group| (group.all, group.ready);
        let known = self.clients.iter().map(|(account, group)| (*account, counted(group)));
        assert!(known.eq(clients), "storelets of clients are counted");
        let known = self.users.iter().map(|(user, group)| (*user, counted(group)));
        assert!(known.eq(users), "storelets of users are counted");
    }

    /// Charges a storelet for time used in its turn, ns, or spent on its behalf.
    ///
    /// # Panics
    /// If it is not there.
    pub fn charge(&mut self, key: Key, ns: u64, now: u64) {
        let place = &mut self.places[key.0];
        place.share.charge(ns);
        let account = place.account;
        let spaced = |rate: u64| {
            let spaced = u128::from(ns) * u128::from(SECOND) / u128::from(rate.max(1));
            u64::try_from(spaced).unwrap_or(u64::MAX)
        };
        if self.reserved && place.share_spec.reservation > 0 {
            // An unused reservation is made up for by at most one second.
            let from = place.reserved_at.max(now.saturating_sub(SECOND));
            place.reserved_at = from.saturating_add(spaced(place.share_spec.reservation));
        }
        if place.share_spec.limit < SECOND {
            let from = place.allowed_at.max(now.saturating_sub(ns));
            place.allowed_at = from.saturating_add(spaced(place.share_spec.limit));
        }
        self.charge_account(account, ns);
    }

    /// Charges a user and a client, if present, for time spent on behalf of a storelet that has
    /// been removed, ns.
    pub fn charge_account(&mut self, account: Account, ns: u64) {
        let groups = [self.users.get_mut(&account.user), self.clients.get_mut(&account)];
        groups.into_iter().flatten().for_each(|group| group.share.charge(ns));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLICE: u64 = 1_000_000;

    /// Schedules storelets that are always ready for some seconds, for `slice` at a time; returns
    /// the share of each.
    fn shares(
        schedule: &mut Schedule,
        keys: &[Key],
        seconds: u64,
        slice: impl Fn(usize) -> u64,
    ) -> Vec<f64> {
        let (mut now, mut used) = (0, vec![0; keys.len()]);
        keys.iter().for_each(|key| schedule.set_ready(*key, true, 0));
        while now < seconds * SECOND {
            match schedule.next(now) {
                Turn::Of(key) => {
                    let which = keys.iter().position(|other| *other == key).expect("it is one");
                    let ns = slice(which);
                    now += ns;
                    used[which] += ns;
                    schedule.charge(key, ns, now);
                }
                Turn::From(then) => now = then,
                Turn::Nobody => unreachable!("all are ready"),
            }
        }
        used.iter().map(|ns| *ns as f64 / now as f64).collect()
    }

    fn near(share: f64, wanted: f64) {
        assert!((share - wanted).abs() < 0.02 * wanted, "{share} is not {wanted}");
    }

    /// Account of the only client of a user.
    fn of(user: u32) -> Account {
        Account { user, client: 1 }
    }

    fn weighing(weight: u32) -> ShareSpec {
        ShareSpec { weight, ..ShareSpec::default() }
    }

    #[test]
    fn weights_are_met_even_if_some_run_beyond_their_slices() {
        let mut schedule = Schedule::default();
        let keys: Vec<Key> =
            [1, 2, 5].map(|weight| schedule.add(of(7), 100, weighing(weight))).to_vec();
        let slice = |which| if which == 0 { 9 * SLICE } else { SLICE / 2 };
        let shares = shares(&mut schedule, &keys, 20, slice);
        [0.125, 0.25, 0.625].iter().zip(&shares).for_each(|(wanted, share)| near(*share, *wanted));
    }

    #[test]
    fn many_storelets_of_one_user_have_no_more_than_one_of_another() {
        let mut schedule = Schedule::default();
        let mut keys: Vec<Key> = (0..10).map(|_| schedule.add(of(1), 100, weighing(100))).collect();
        keys.push(schedule.add(of(2), 100, weighing(1)));
        let shares = shares(&mut schedule, &keys, 10, |_| SLICE);
        near(shares[10], 0.5);
        near(shares[3], 0.05);
    }

    #[test]
    fn many_storelets_of_one_client_have_no_more_than_one_of_another_of_that_user() {
        let mut schedule = Schedule::default();
        let mut keys: Vec<Key> = (0..10).map(|_| schedule.add(of(1), 100, weighing(100))).collect();
        keys.push(schedule.add(Account { user: 1, client: 2 }, 100, weighing(1)));
        keys.push(schedule.add(of(2), 100, weighing(1)));
        let shares = shares(&mut schedule, &keys, 10, |_| SLICE);
        near(shares[11], 0.5);
        near(shares[10], 0.25);
        near(shares[3], 0.025);
        keys.into_iter().for_each(|key| schedule.remove(key));
        assert!(schedule.users.is_empty() && schedule.clients.is_empty());
    }

    #[test]
    fn a_reservation_is_kept_against_any_weight() {
        let mut schedule = Schedule::default();
        let small = ShareSpec { reservation: SECOND * 3 / 10, weight: 1, ..ShareSpec::default() };
        let mut keys = vec![schedule.add(of(1), 1, small)];
        keys.extend((0..20).map(|_| schedule.add(of(2), 1000, weighing(1000))));
        let shares = shares(&mut schedule, &keys, 10, |_| SLICE);
        assert!(shares[0] > 0.3 * 0.98 && shares[0] < 0.31, "{}", shares[0]);
    }

    #[test]
    fn a_limit_is_kept_on_an_idle_processor() {
        let mut schedule = Schedule::default();
        let limited = ShareSpec { limit: SECOND / 10, ..ShareSpec::default() };
        let keys = [schedule.add(of(1), 100, limited)];
        near(shares(&mut schedule, &keys, 10, |_| SLICE)[0], 0.1);
    }

    #[test]
    fn idle_storelets_accumulate_no_credit() {
        let mut schedule = Schedule::default();
        let old = schedule.add(of(1), 100, weighing(100));
        let sleeper = schedule.add(of(2), 100, weighing(100));
        shares(&mut schedule, &[old], 5, |_| SLICE);
        let new = schedule.add(of(3), 100, weighing(100));
        let keys = [old, sleeper, new];
        let shares = shares(&mut schedule, &keys, 3, |_| SLICE);
        shares.iter().for_each(|share| near(*share, 1.0 / 3.0));
    }

    #[test]
    fn nobody_is_next_who_is_gone_or_not_ready() {
        let mut schedule = Schedule::default();
        let (one, two) = (
            schedule.add(of(1), 1, ShareSpec::default()),
            schedule.add(of(1), 1, ShareSpec::default()),
        );
        assert_eq!(schedule.next(0), Turn::Nobody);
        schedule.set_ready(one, true, 0);
        schedule.set_ready(two, true, 0);
        schedule.remove(one);
        assert_eq!(schedule.next(0), Turn::Of(two));
        schedule.set_ready(two, false, 0);
        assert_eq!(schedule.next(0), Turn::Nobody);
        schedule.remove(two);
        assert!(schedule.users.is_empty());
    }
}
