//! Memory and connections, shared out among the clients of a node.
//!
//! *Memory.* Every byte that a connection holds is counted: received, asked for, said and not yet
//! sent. A connection may hold as much as nobody holds ([`Room`]). A connection that wants more
//! waits in the order of its coming. Those that wait have their turns, one at a time, to go on
//! whatever is left, so that somebody always does; and every connection may have one small request
//! outstanding. Memory that a client keeps by not sending the rest of a message,
//! or by not taking what is sent, is taken back while others wait for it: such connections end,
//! the largest first.
//!
//! *Files.* Nodes and open files are shared out in the same way; each client may hold a few
//! whatever others hold.
//!
//! *Connections.* When there are as many as there may be, some of those end that lose nothing by it
//! and that nothing came on for a second. If there is none, nor may be in a second, and one client
//! (an address, a network of IPv6, this host, or a user of it) has at least a 16th of all, those of
//! its connections end that owe the rest of a request, then those without open files, and at last
//! any that nothing came on for a second. Some places are kept for local clients, so that the
//! operator always gets in.
//!
//! *Nodes and open files.* A connection may hold a multiple of what nobody holds, and a few
//! whatever is left, so that many connections can use up all. Then those of the client that has
//! most end, the largest first.

use base::Instant;
use front::{Room, SMALL_MAX};
use std::collections::BTreeMap;
use std::mem;
use std::time::Duration;

/// How long a client may owe bytes, or room for them, before its connection may be ended for
/// others, and how fast it must pay then, bytes a second.
const OWING_TIME: Duration = Duration::from_millis(500);
const OWING_RATE: u128 = 128 << 10;

/// How often connections are looked through while others wait.
pub(crate) const LOOK_TIME: Duration = Duration::from_millis(50);

/// How long a connection may have its turn while others wait for theirs.
const TURN_TIME: Duration = Duration::from_millis(500);

/// A connection that holds less is not ended for its memory, bytes.
const CUT_MIN: usize = 16 << 10;

/// Most connections that are told of memory in one turn.
const FED_MAX: usize = 64;

/// A connection that something came on more recently does not end for another one.
pub(crate) const IDLE_TIME: Duration = Duration::from_secs(1);

/// A connection that holds no more nodes and open files does not end for others.
pub(crate) const HANDLES_FEW: usize = 8;

/// Messages of clients that are begun in a turn, and of each client at least.
const MESSAGES_MAX: usize = 128;
const MESSAGES_MIN: usize = 2;

/// Messages that are begun before the time is looked at: each may take a millisecond or two.
const PART_MAX: usize = 8;

/// Bytes of files that all connections with large answers send at once: what the kernel copies
/// before anybody else's turn, about a millisecond for each 4 MiB.
const PIECES_BYTES: usize = 8 << 20;

/// Size of a piece however many connections have large answers, bytes: 1,000 of them share twice the
/// rate of pieces of 16 KiB, and wait no longer for each other.
const PIECE_MIN: usize = 128 << 10;

/// A connection that holds as much, or sends as much at once, has a large answer, bytes.
const LARGE: usize = 16 << 10;

/// Length of a period of [`Senders`].
const SENDERS_PERIOD: Duration = Duration::from_millis(200);

/// Places beyond the limit that are kept for clients on unix sockets.
pub(crate) const LOCAL_PLACES: usize = 16;

/// The books.
#[derive(Debug)]
pub(crate) struct Admission {
    bytes_max: usize,
    /// Held by all connections.
    bytes: usize,
    /// Nodes and open files that clients may hold, and do.
    handles_max: usize,
    handles: usize,
    /// Connections that wait for memory, in the order of their coming.
    waiting: BTreeMap<u64, usize>,
    numbers: BTreeMap<usize, u64>,
    next: u64,
    /// The connection whose turn it was last. No other one has its turn until this one holds
    /// little, or has had it for [`TURN_TIME`].
    turn: Option<usize>,
    /// The end of that turn.
    turn_until: Option<Instant>,
    /// Bytes held when connections were told of memory last.
    fed_at: usize,
    /// When to look for connections that keep memory from others.
    look_at: Option<Instant>,
    /// Search for connections that end for others.
    pub(crate) for_handles: Search,
    /// Connections ended for others since the start.
    ended: u64,
    /// Messages that a connection may begin in each part of its turn.
    messages: usize,
    /// Parts of a turn.
    parts: usize,
    senders: Senders,
}

impl Admission {
    pub(crate) fn new(bytes_max: usize) -> Admission {
        let (waiting, numbers) = (BTreeMap::new(), BTreeMap::new());
        Admission {
            bytes_max,
            bytes: 0,
            handles_max: usize::MAX,
            handles: 0,
            waiting,
            numbers,
            next: 0,
            turn: None,
            turn_until: None,
            fed_at: 0,
            look_at: None,
            for_handles: Search::default(),
            ended: 0,
            messages: PART_MAX,
            parts: 1,
            senders: Senders::default(),
        }
    }

    /// Bytes held by all connections.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Sets how many nodes and open files clients may hold together.
    pub(crate) fn set_handles_max(&mut self, most: usize) {
        self.handles_max = most;
    }

    /// Nodes and open files that clients hold.
    pub(crate) fn handles(&self) -> usize {
        self.handles
    }

    /// Whether only those nodes and open files are left that are kept for requests in progress.
    pub(crate) fn lacks_handles(&self) -> bool {
        self.handles >= self.handles_max
    }

    /// A connection holds so many nodes and open files now.
    pub(crate) fn count_handles(&mut self, before: usize, after: usize) {
        assert!(before <= self.handles, "what a connection holds is counted");
        self.handles = self.handles - before + after;
    }

    /// Connections that wait for memory.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Connections ended for others since the start.
    pub(crate) fn ended(&self) -> u64 {
        self.ended
    }

    /// Begins a turn in which so many connections wait to be served. One may fill a turn if it is
    /// alone; many have a few messages each, so that a newcomer waits for few.
    pub(crate) fn begin_turn(&mut self, connections: usize) {
        let messages = (MESSAGES_MAX / connections.max(1)).max(MESSAGES_MIN);
        self.parts = messages.div_ceil(PART_MAX);
        self.messages = messages.div_ceil(self.parts);
    }

    /// Messages that a part of a turn begins.
    pub(crate) fn messages(&self) -> usize {
        self.messages
    }

    /// Parts of a turn; the time is looked at between two of them.
    pub(crate) fn parts(&self) -> usize {
        self.parts
    }

    /// Memory left for a connection.
    pub(crate) fn room(&self, slot: usize) -> Room {
        let first = self.waiting.first_key_value().map(|(_, first)| *first);
        Room {
            spare: self.bytes_max.saturating_sub(self.bytes),
            reserve: self.bytes_max / 8,
            is_first: self.bytes == 0 || self.turn.or(first) == Some(slot),
            handles: self.handles_max.saturating_sub(self.handles),
            messages: self.messages,
            piece: (PIECES_BYTES / self.senders.count().max(1)).max(PIECE_MIN),
        }
    }

    /// A connection holds so many bytes now.
    pub(crate) fn count(&mut self, slot: usize, before: usize, after: usize) {
        assert!(before <= self.bytes, "what a connection holds is counted");
        self.bytes = self.bytes - before + after;
        if after <= SMALL_MAX && self.turn == Some(slot) {
            self.end_of_turn();
        }
    }

    /// A connection that holds so many bytes waits for more, or does not (any more). One that goes
    /// on with little has not needed a turn.
    pub(crate) fn set_waiting(&mut self, slot: usize, waits: bool, bytes: usize) {
        match (self.numbers.get(&slot).copied(), waits) {
            (None, true) => {
                if self.waiting.is_empty() {
                    self.fed_at = usize::MAX;
                }
                self.numbers.insert(slot, self.next);
                self.waiting.insert(self.next, slot);
                self.next += 1;
            }
            (Some(number), false) => {
                self.numbers.remove(&slot);
                let known = self.waiting.remove(&number);
                assert_eq!(known, Some(slot), "who waits stands in line once");
                if bytes > SMALL_MAX {
                    self.turn.get_or_insert(slot);
                }
                self.fed_at = usize::MAX;
            }
            (Some(_), true) | (None, false) => {}
        }
    }

    /// A connection has begun to send so many bytes.
    pub(crate) fn note_send(&mut self, now: Instant, slot: usize, bytes: usize) {
        if bytes >= LARGE {
            self.senders.note(now, slot);
        }
    }

    fn end_of_turn(&mut self) {
        (self.turn, self.turn_until) = (None, None);
        self.fed_at = usize::MAX;
    }

    /// Connections to be told that there may be memory for them.
    pub(crate) fn feed(&mut self) -> Vec<usize> {
        if self.waiting.is_empty() || self.bytes >= self.fed_at {
            return Vec::new();
        }
        self.fed_at = self.bytes;
        self.waiting.values().take(FED_MAX).copied().collect()
    }

    /// Ends a turn of the node: any decrease of the bytes held counts from here.
    pub(crate) fn end_turn(&mut self, now: Instant) {
        if self.fed_at != usize::MAX {
            self.fed_at = self.fed_at.max(self.bytes);
        }
        let is_short = !self.waiting.is_empty() || self.bytes >= self.bytes_max;
        self.look_at = self.look_at.or(Some(now + LOOK_TIME)).filter(|_| is_short);
        if self.turn.is_some() && self.turn_until.is_none() {
            self.turn_until = Some(now + TURN_TIME);
        }
        if self.turn_until.is_some_and(|until| until <= now) {
            self.end_of_turn();
        }
    }

    /// When to look for connections that keep memory from others.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let fed = self.fed_at == usize::MAX && !self.waiting.is_empty();
        let turn = self.turn_until.filter(|_| !self.waiting.is_empty());
        if fed { Some(Instant(0)) } else { self.look_at.into_iter().chain(turn).min() }
    }

    /// When to look for connections that hold handles, if none are left.
    pub(crate) fn handles_at(&self) -> Option<Instant> {
        self.lacks_handles().then_some(self.for_handles.at)
    }

    /// Whether it is time to look for them.
    pub(crate) fn is_time(&mut self, now: Instant) -> bool {
        let due = self.look_at.is_some_and(|at| at <= now);
        if due {
            self.look_at = None;
        }
        due
    }

    /// Chooses who ends: of connections that owe, with what they hold, the largest, until as much
    /// would be free as is kept for small requests, and as much for others.
    pub(crate) fn choose(&mut self, mut owing: Vec<(usize, usize)>) -> Vec<usize> {
        owing.sort_unstable_by(|one, other| other.cmp(one));
        let mut missing = (self.bytes + self.bytes_max / 4).saturating_sub(self.bytes_max);
        let mut chosen = Vec::new();
        for (bytes, slot) in owing {
            if missing == 0 || bytes < CUT_MIN {
                break;
            }
            missing = missing.saturating_sub(bytes);
            chosen.push(slot);
        }
        self.ended += chosen.len() as u64;
        chosen
    }

    /// Connections end to make places for others.
    pub(crate) fn note_ended(&mut self, count: usize) {
        self.ended += count as u64;
    }

    pub(crate) fn check(&self) {
        assert_eq!(self.waiting.len(), self.numbers.len());
        for (number, slot) in &self.waiting {
            assert_eq!(self.numbers.get(slot), Some(number));
        }
        assert!(
            self.waiting.keys().all(|number| *number < self.next),
            "numbers are given in order"
        );
        assert!(self.turn.is_some() || self.turn_until.is_none(), "only a turn has an end");
        self.senders.check();
    }
}

/// Number of connections that have begun large sends of late: one whose client takes nothing begins
/// no other, so that it does not make the pieces of others smaller for long.
#[derive(Debug, Default)]
struct Senders {
    /// Number of the present period.
    period: u64,
    /// Connections that have begun a send in it.
    present: usize,
    /// The same of the period before.
    past: usize,
    /// Period in which each connection counted last, plus one.
    counted: Vec<u64>,
}

impl Senders {
    fn note(&mut self, now: Instant, slot: usize) {
        let period = now.0 / SENDERS_PERIOD.as_nanos() as u64;
        if period != self.period {
            self.past = if period == self.period + 1 { self.present } else { 0 };
            (self.period, self.present) = (period, 0);
        }
        if self.counted.len() <= slot {
            self.counted.resize(slot + 1, 0);
        }
        let before = mem::replace(&mut self.counted[slot], period + 1);
        self.present += usize::from(before != period + 1);
    }

    fn count(&self) -> usize {
        self.present.max(self.past)
    }

    fn check(&self) {
        let counted = self.counted.iter().filter(|at| **at == self.period + 1).count();
        assert_eq!(counted, self.present, "each connection counts once in a period");
    }
}

/// A search for connections that end for others. It looks through all of them, so it is made from
/// time to time.
#[derive(Debug, Default)]
pub(crate) struct Search {
    /// Time of the next one.
    pub(crate) at: Instant,
}

impl Search {
    /// Whether it is time for the next one, which then is made.
    pub(crate) fn is_due(&mut self, now: Instant) -> bool {
        let due = self.at <= now;
        if due {
            self.at = now + LOOK_TIME;
        }
        due
    }

    /// Nothing was found: the next one is later.
    pub(crate) fn put_off(&mut self, now: Instant) {
        self.at = now + IDLE_TIME;
    }
}

/// The rest of a message that a client has begun, or bytes that it does not take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Debt {
    /// Since when, and how many bytes have moved since.
    since: Option<(Instant, usize)>,
}

impl Debt {
    /// The client owes something now, or nothing.
    pub(crate) fn set(&mut self, now: Instant, owes: bool) {
        self.since = match self.since {
            Some(since) if owes => Some(since),
            Some(_) | None => owes.then_some((now, 0)),
        };
    }

    /// Bytes have moved.
    pub(crate) fn pay(&mut self, bytes: usize) {
        if let Some((_, moved)) = &mut self.since {
            *moved = moved.saturating_add(bytes);
        }
    }

    /// Whether the client pays too slowly for others to wait for it, if so many bytes more may
    /// have moved unheard.
    pub(crate) fn is_overdue(&self, now: Instant, unheard: usize) -> bool {
        self.since.is_some_and(|(since, moved)| {
            let (time, moved) = (now.since(since), moved.saturating_add(unheard));
            time >= OWING_TIME && (moved as u128) * 1000 < OWING_RATE * time.as_millis()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: usize = 1 << 20;

    #[test]
    fn turns_are_given_one_at_a_time_and_end() {
        let at = |millis: u64| Instant(millis * 1_000_000);
        let mut books = Admission::new(ALL);
        assert!(books.room(1).is_first && books.room(1).spare == ALL);
        books.count(9, 0, ALL);
        assert!(!books.room(1).is_first && books.room(1).spare == 0);
        books.set_waiting(2, true, 0);
        books.set_waiting(1, true, 0);
        assert_eq!(books.deadline(), Some(Instant(0)), "it is told");
        assert!(books.room(2).is_first && !books.room(1).is_first);
        assert_eq!(books.feed(), [2, 1]);
        books.end_turn(at(0));
        assert!(books.feed().is_empty(), "nothing has changed since");
        books.count(2, 0, ALL / 4);
        books.set_waiting(2, false, ALL / 4);
        books.end_turn(at(0));
        assert!(!books.room(1).is_first, "one at a time");
        // Whatever it goes on holding, its turn ends.
        books.end_turn(at(600));
        assert!(books.room(1).is_first);
        assert_eq!(books.feed(), [1]);
        books.count(1, 0, ALL / 4);
        books.set_waiting(1, false, ALL / 4);
        books.set_waiting(3, true, 0);
        assert!(!books.room(3).is_first);
        books.count(1, ALL / 4, 10);
        assert!(books.room(3).is_first, "the one before holds little");
        books.set_waiting(3, false, 10);
        books.set_waiting(4, true, 0);
        assert!(books.room(4).is_first, "the one before took no turn");
        books.check();
    }

    #[test]
    fn connections_that_send_large_answers_share_the_bytes_of_pieces() {
        let at = |millis: u64| Instant(millis * 1_000_000);
        let mut books = Admission::new(64 << 20);
        let whole = books.room(0).piece;
        assert_eq!(whole, PIECES_BYTES);
        (0..40).for_each(|slot| books.note_send(at(0), slot, LARGE));
        assert_eq!(books.room(0).piece, whole / 40);
        // One that sends little or receives much does not count, and one that sends again once.
        books.count(100, 0, 4 * LARGE);
        books.note_send(at(0), 0, 4 * LARGE);
        books.note_send(at(0), 101, LARGE - 1);
        assert_eq!(books.room(100).piece, whole / 40);
        // All hold as much as before, but only some take it.
        (0..10).for_each(|slot| books.note_send(at(200), slot, LARGE));
        assert_eq!(books.room(0).piece, whole / 40);
        (0..10).for_each(|slot| books.note_send(at(400), slot, LARGE));
        assert_eq!(books.room(0).piece, whole / 10);
        books.note_send(at(1_000), 5, LARGE);
        assert_eq!(books.room(5).piece, whole);
        (0..1000).for_each(|slot| books.note_send(at(1_200), slot, LARGE));
        assert_eq!(books.room(0).piece, PIECE_MIN);
        books.check();
    }

    #[test]
    fn the_largest_that_owe_end_first_and_no_more_than_needed() {
        let mut books = Admission::new(4 * ALL);
        books.count(9, 0, 4 * ALL);
        let (half, most, some) = (ALL / 2, ALL * 9 / 10, ALL * 6 / 10);
        assert_eq!(books.choose(vec![(half, 1), (most, 2), (some, 3)]), [2, 3]);
        assert!(books.choose(vec![(100, 1)]).is_empty(), "that would free nothing");
        // Where only the reserve is left, and a little, a large request of another one still waits.
        let little = 4 * ALL - ALL / 2 - ALL / 4;
        books.count(9, 4 * ALL, little);
        assert!(!books.room(1).fits(0, ALL / 2));
        assert_eq!(books.choose(vec![(half, 1)]), [1]);
        books.count(9, little, 3 * ALL);
        assert!(books.room(1).fits(0, ALL / 2));
        assert!(books.choose(vec![(half, 1)]).is_empty(), "there is room");
        assert_eq!(books.ended(), 3);
    }

    #[test]
    fn whoever_pays_slowly_is_overdue() {
        let at = |millis: u64| Instant(millis * 1_000_000);
        let mut debt = Debt::default();
        debt.set(at(0), true);
        assert!(!debt.is_overdue(at(400), 0) && debt.is_overdue(at(600), 0));
        assert!(!debt.is_overdue(at(600), 1 << 20) && debt.is_overdue(at(9000), 1 << 20));
        debt.pay(1 << 20);
        debt.set(at(600), true);
        assert!(!debt.is_overdue(at(1000), 0) && debt.is_overdue(at(20_000), 0));
        debt.set(at(20_000), false);
        assert!(!debt.is_overdue(at(30_000), 0));
    }
}
