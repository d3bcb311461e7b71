//! Memory and connections, shared out among the clients of a node.
//!
//! *Memory.* Every byte that a connection holds is counted: received, requested, queued and not yet
//! sent; and [`HANDLE_BYTES`] for each node and open file. A connection may hold as much as is free
//! ([`Room`]). One that wants more is queued. Queued connections take turns to proceed although no
//! memory is left, one at a time, which guarantees progress; and every connection may have one
//! small request outstanding. Memory that a client occupies by not sending the rest of a message,
//! or by not receiving responses, is reclaimed while others wait for it: such connections are
//! closed, the largest first.
//!
//! *Files.* Nodes and open files are shared in the same way, among connections and among clients;
//! each client may hold a few in any case.
//!
//! *Connections.* At the maximum number of connections, some are closed that lose nothing by it and
//! that have received nothing for a second. If there is none, nor will be within a second, and one
//! client (an address, an IPv6 network, this host, or a user of it) has at least a 16th of all, its
//! connections are closed: first those that owe the rest of a request, then those without open
//! files, and finally any that has received nothing for a second. Some places are reserved for
//! local clients, so that the operator can always connect.
//!
//! *Nodes and open files.* A connection may hold a multiple of the free ones, and a few in any
//! case; all connections of a client together may hold a larger multiple, so that some are left to
//! other clients. When a client with little has its share, or all are in use, connections of the
//! client with the most are closed, the largest first.

use base::Instant;
use base::op::ClientKey;
use front::{HANDLES_MIN, Room, SMALL_MAX};
use std::collections::BTreeMap;
use std::mem;
use std::time::Duration;

/// Time that a client may owe bytes, or leave responses unreceived, before its connection may be
/// closed for others; and minimum rate of its transfer then, bytes per second.
const OWING_TIME: Duration = Duration::from_millis(500);
const OWING_RATE: u128 = 128 << 10;

/// Interval of searches for connections to close while others wait.
pub(crate) const LOOK_TIME: Duration = Duration::from_millis(50);

/// Maximum length of a connection's turn while others wait for theirs.
const TURN_TIME: Duration = Duration::from_millis(500);

/// Memory below which a connection is not closed to reclaim it, bytes.
const CUT_MIN: usize = 16 << 10;

/// Maximum number of connections notified of free memory in one turn.
const FED_MAX: usize = 64;

/// Minimum idle time of a connection that is closed for another one.
pub(crate) const IDLE_TIME: Duration = Duration::from_secs(1);

/// Memory of a node or open file with its fid or its place of an NFS file, and the longest name,
/// bytes.
pub(crate) const HANDLE_BYTES: usize = 640;

/// Number of nodes and open files up to which a connection is not closed for others.
pub(crate) const HANDLES_FEW: usize = 8;

/// Number of client messages started in a turn, and minimum for each client.
const MESSAGES_MAX: usize = 128;
const MESSAGES_MIN: usize = 2;

/// Number of messages started between two looks at the time: each may take a millisecond or two.
const PART_MAX: usize = 8;

/// Total size of the pieces that all connections with large responses send at once, bytes: the
/// kernel copies them before anything else runs, at about a millisecond for each 4 MiB.
const PIECES_BYTES: usize = 8 << 20;

/// Minimum size of a piece, however many connections have large responses, bytes: 1,000 of them
/// reach twice the total rate of pieces of 16 KiB, without longer waits for each other.
const PIECE_MIN: usize = 128 << 10;

/// Held or sent bytes from which a connection counts as having a large response.
const LARGE: usize = 16 << 10;

/// Length of a period of [`Senders`].
const SENDERS_PERIOD: Duration = Duration::from_millis(200);

/// Number of places beyond the limit that are reserved for clients on Unix sockets.
pub(crate) const LOCAL_PLACES: usize = 16;

/// Accounting of memory and handles.
#[derive(Debug)]
pub(crate) struct Admission {
    bytes_max: usize,
    /// Bytes held by all connections.
    bytes: usize,
    /// Maximum number of nodes and open files of clients, and present number.
    handles_max: usize,
    handles: usize,
    /// Number of nodes and open files of each client.
    client_handles: BTreeMap<ClientKey, usize>,
    /// Number of files of clients that are being closed, included above.
    closing: usize,
    /// Whether a connection with few lacks some, because its client has its share.
    any_lacks: bool,
    /// Connections waiting for memory, in order of arrival.
    waiting: BTreeMap<u64, usize>,
    numbers: BTreeMap<usize, u64>,
    next: u64,
    /// Connection that had the last turn. No other one gets a turn until this one holds little, or
    /// has had it for [`TURN_TIME`].
    turn: Option<usize>,
    /// The end of that turn.
    turn_until: Option<Instant>,
    /// Bytes held when connections were last notified of free memory.
    fed_at: usize,
    /// Time of the next search for connections that keep memory from others.
    look_at: Option<Instant>,
    /// Search for connections to close for their handles.
    pub(crate) for_handles: Search,
    /// Number of connections closed for others since the start.
    ended: u64,
    /// Number of messages that a connection may start in each part of its turn.
    messages: usize,
    /// Number of parts of a turn.
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
            client_handles: BTreeMap::new(),
            closing: 0,
            any_lacks: false,
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

    /// Returns the bytes held by all connections.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Sets the maximum number of nodes and open files of all clients.
    pub(crate) fn set_handles_max(&mut self, most: usize) {
        self.handles_max = most;
    }

    /// Returns the memory counted for all connections, bytes.
    pub(crate) fn used(&self) -> usize {
        self.bytes + self.handles * HANDLE_BYTES
    }

    /// Returns the memory that requests may have in addition, bytes. They leave an eighth to nodes
    /// and open files, so that few of these never lack memory.
    fn spare(&self) -> usize {
        self.bytes_max.saturating_sub(self.bytes + self.set_aside())
    }

    fn set_aside(&self) -> usize {
        (self.handles * HANDLE_BYTES).max(self.bytes_max / 8)
    }

    /// Returns the number of nodes and open files that clients may have in addition.
    fn free_handles(&self) -> usize {
        let fit = self.bytes_max.saturating_sub(self.used()) / HANDLE_BYTES;
        self.handles_max.saturating_sub(self.handles).min(fit)
    }

    /// Returns the number of nodes and open files held by clients.
    pub(crate) fn handles(&self) -> usize {
        self.handles
    }

    /// Returns whether the only free nodes and open files are those reserved for requests in
    /// progress.
    pub(crate) fn lacks_handles(&self) -> bool {
        self.handles >= self.handles_max
    }

    /// Updates the number of nodes and open files of a connection of a client.
    pub(crate) fn count_handles(&mut self, client: ClientKey, before: usize, after: usize) {
        if before != after {
            self.change_handles(client, before, after);
        }
        if after < HANDLES_MIN && self.client_handles(client) < HANDLES_FEW {
            self.any_lacks = true;
        }
    }

    /// Updates the number of files of a client that are being closed.
    pub(crate) fn count_closing(&mut self, client: ClientKey, before: usize, after: usize) {
        self.closing = self.closing - before + after;
        self.change_handles(client, before, after);
    }

    /// Returns the number of files of clients that are being closed.
    pub(crate) fn closing(&self) -> usize {
        self.closing
    }

    fn change_handles(&mut self, client: ClientKey, before: usize, after: usize) {
        assert!(before <= self.handles, "the memory of each connection is counted");
        self.handles = self.handles - before + after;
        let held = self.client_handles.entry(client).or_default();
        assert!(before <= *held, "the memory of each client is counted");
        *held = *held - before + after;
        if *held == 0 {
            self.client_handles.remove(&client);
        }
    }

    /// Returns the number of nodes and open files that a client may have in addition.
    fn client_handles(&self, client: ClientKey) -> usize {
        let held = self.client_handles.get(&client).copied().unwrap_or_default();
        Room::client_handles(self.free_handles(), held)
    }

    /// Returns the number of connections that wait for memory.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the number of connections closed for others since the start.
    pub(crate) fn ended(&self) -> u64 {
        self.ended
    }

    /// Begins a turn in which this many connections wait for service. A single one may fill the
    /// turn; many have a few messages each, so that a newcomer waits for few.
    pub(crate) fn begin_turn(&mut self, connections: usize) {
        let messages = (MESSAGES_MAX / connections.max(1)).max(MESSAGES_MIN);
        self.parts = messages.div_ceil(PART_MAX);
        self.messages = messages.div_ceil(self.parts);
    }

    /// Returns the number of messages started in a part of a turn.
    pub(crate) fn messages(&self) -> usize {
        self.messages
    }

    /// Returns the number of parts of a turn; the time is checked between two of them.
    pub(crate) fn parts(&self) -> usize {
        self.parts
    }

    /// Returns the memory and handles left for a connection.
    pub(crate) fn room(&self, slot: usize, client: ClientKey) -> Room {
        let first = self.waiting.first_key_value().map(|(_, first)| *first);
        Room {
            spare: self.spare(),
            reserve: self.bytes_max / 8,
            is_first: self.bytes == 0 || self.turn.or(first) == Some(slot),
            handles: self.free_handles(),
            client_handles: self.client_handles(client),
            messages: self.messages,
            piece: (PIECES_BYTES / self.senders.count().max(1)).max(PIECE_MIN),
        }
    }

    /// Updates the number of bytes held by a connection.
    pub(crate) fn count(&mut self, slot: usize, before: usize, after: usize) {
        assert!(before <= self.bytes, "the memory of each connection is counted");
        self.bytes = self.bytes - before + after;
        if after <= SMALL_MAX && self.turn == Some(slot) {
            self.end_of_turn();
        }
    }

    /// Queues a connection that needs more memory, or removes it. One that proceeds with few bytes
    /// held has not needed a turn.
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
                assert_eq!(known, Some(slot), "a connection waits once");
                if bytes > SMALL_MAX {
                    self.turn.get_or_insert(slot);
                }
                self.fed_at = usize::MAX;
            }
            (Some(_), true) | (None, false) => {}
        }
    }

    /// Records that a connection has begun to send this many bytes.
    pub(crate) fn note_send(&mut self, now: Instant, slot: usize, bytes: usize) {
        if bytes >= LARGE {
            self.senders.note(now, slot);
        }
    }

    fn end_of_turn(&mut self) {
        (self.turn, self.turn_until) = (None, None);
        self.fed_at = usize::MAX;
    }

    /// Returns the connections to notify of free memory.
    pub(crate) fn feed(&mut self) -> Vec<usize> {
        if self.waiting.is_empty() || self.used() >= self.fed_at {
            return Vec::new();
        }
        self.fed_at = self.used();
        self.waiting.values().take(FED_MAX).copied().collect()
    }

    /// Ends a turn of the node: any decrease of the bytes held counts from here.
    pub(crate) fn end_turn(&mut self, now: Instant) {
        if self.fed_at != usize::MAX {
            self.fed_at = self.fed_at.max(self.used());
        }
        let is_short = !self.waiting.is_empty() || self.spare() == 0;
        self.look_at = self.look_at.or(Some(now + LOOK_TIME)).filter(|_| is_short);
        if self.turn.is_some() && self.turn_until.is_none() {
            self.turn_until = Some(now + TURN_TIME);
        }
        if self.turn_until.is_some_and(|until| until <= now) {
            self.end_of_turn();
        }
    }

    /// Returns the time of the next search for connections that keep memory from others, or of the
    /// next notification.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let fed = self.fed_at == usize::MAX && !self.waiting.is_empty();
        let turn = self.turn_until.filter(|_| !self.waiting.is_empty());
        if fed { Some(Instant(0)) } else { self.look_at.into_iter().chain(turn).min() }
    }

    /// Returns the time of the next search for connections that hold handles, if any are missing.
    pub(crate) fn handles_at(&self) -> Option<Instant> {
        (self.any_lacks || self.lacks_handles()).then_some(self.for_handles.at)
    }

    /// Returns whether the search for handles is due.
    pub(crate) fn is_time_for_handles(&mut self, now: Instant) -> bool {
        let wanted = self.any_lacks || self.lacks_handles();
        let due = wanted && self.for_handles.is_due(now);
        self.any_lacks &= !due;
        due
    }

    /// Returns whether the search for memory is due.
    pub(crate) fn is_time(&mut self, now: Instant) -> bool {
        let due = self.look_at.is_some_and(|at| at <= now);
        if due {
            self.look_at = None;
        }
        due
    }

    /// Selects the connections to close: the largest of those that owe, until as much memory would
    /// be free as is reserved for small requests, and as much again.
    pub(crate) fn choose(&mut self, mut owing: Vec<(usize, usize)>) -> Vec<usize> {
        owing.sort_unstable_by(|one, other| other.cmp(one));
        let wanted = self.bytes + self.set_aside() + self.bytes_max / 4;
        let mut missing = wanted.saturating_sub(self.bytes_max);
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

    /// Records that connections were closed for others.
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
        assert_eq!(self.handles, self.client_handles.values().sum::<usize>());
        self.senders.check();
    }
}

/// Counts connections that have recently begun large sends. One whose client receives nothing
/// begins no further send, so it does not reduce the pieces of others for long.
#[derive(Debug, Default)]
struct Senders {
    /// Number of the present period.
    period: u64,
    /// Number of connections that have begun a send in it.
    present: usize,
    /// The same for the previous period.
    past: usize,
    /// Period in which each connection was counted last, plus one.
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

/// A search for connections to close for others. It examines all of them, so it is rate-limited.
#[derive(Debug, Default)]
pub(crate) struct Search {
    /// Time of the next search.
    pub(crate) at: Instant,
}

impl Search {
    /// Returns whether the next search is due, and schedules the one after it.
    pub(crate) fn is_due(&mut self, now: Instant) -> bool {
        let due = self.at <= now;
        if due {
            self.at = now + LOOK_TIME;
        }
        due
    }

    /// Delays the next search, because this one found nothing.
    pub(crate) fn put_off(&mut self, now: Instant) {
        self.at = now + IDLE_TIME;
    }
}

/// Debt of a client: the rest of a message, or responses that it does not receive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Debt {
    /// Start of the debt, and number of bytes transferred since.
    since: Option<(Instant, usize)>,
}

impl Debt {
    /// Starts or ends the debt.
    pub(crate) fn set(&mut self, now: Instant, owes: bool) {
        self.since = match self.since {
            Some(since) if owes => Some(since),
            Some(_) | None => owes.then_some((now, 0)),
        };
    }

    /// Records a transfer.
    pub(crate) fn pay(&mut self, bytes: usize) {
        if let Some((_, moved)) = &mut self.since {
            *moved = moved.saturating_add(bytes);
        }
    }

    /// Returns whether the client is too slow for others to wait for it, given the bytes that may
    /// have been transferred without a completion.
    pub(crate) fn is_overdue(&self, now: Instant, undelivered: usize) -> bool {
        self.since.is_some_and(|(since, moved)| {
            let (time, moved) = (now.since(since), moved.saturating_add(undelivered));
            time >= OWING_TIME && (moved as u128) * 1000 < OWING_RATE * time.as_millis()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: usize = 1 << 20;
    const ONE: ClientKey = ClientKey(1);

    #[test]
    fn turns_are_given_one_at_a_time_and_end() {
        let at = |millis: u64| Instant(millis * 1_000_000);
        let mut books = Admission::new(ALL);
        assert!(books.room(1, ONE).is_first && books.room(1, ONE).spare == ALL / 8 * 7);
        books.count(9, 0, ALL);
        assert!(!books.room(1, ONE).is_first && books.room(1, ONE).spare == 0);
        books.set_waiting(2, true, 0);
        books.set_waiting(1, true, 0);
        assert_eq!(books.deadline(), Some(Instant(0)), "reported at once");
        assert!(books.room(2, ONE).is_first && !books.room(1, ONE).is_first);
        assert_eq!(books.feed(), [2, 1]);
        books.end_turn(at(0));
        assert!(books.feed().is_empty(), "nothing has changed since");
        books.count(2, 0, ALL / 4);
        books.set_waiting(2, false, ALL / 4);
        books.end_turn(at(0));
        assert!(!books.room(1, ONE).is_first, "one at a time");
        // Its turn ends although it keeps its memory.
        books.end_turn(at(600));
        assert!(books.room(1, ONE).is_first);
        assert_eq!(books.feed(), [1]);
        books.count(1, 0, ALL / 4);
        books.set_waiting(1, false, ALL / 4);
        books.set_waiting(3, true, 0);
        assert!(!books.room(3, ONE).is_first);
        books.count(1, ALL / 4, 10);
        assert!(books.room(3, ONE).is_first, "the one before holds little");
        books.set_waiting(3, false, 10);
        books.set_waiting(4, true, 0);
        assert!(books.room(4, ONE).is_first, "the one before took no turn");
        books.check();
    }

    #[test]
    fn connections_that_send_large_answers_share_the_bytes_of_pieces() {
        let at = |millis: u64| Instant(millis * 1_000_000);
        let mut books = Admission::new(64 << 20);
        let whole = books.room(0, ONE).piece;
        assert_eq!(whole, PIECES_BYTES);
        (0..40).for_each(|slot| books.note_send(at(0), slot, LARGE));
        assert_eq!(books.room(0, ONE).piece, whole / 40);
        // A connection that sends little or receives much does not count, and one that sends again
        // counts once.
        books.count(100, 0, 4 * LARGE);
        books.note_send(at(0), 0, 4 * LARGE);
        books.note_send(at(0), 101, LARGE - 1);
        assert_eq!(books.room(100, ONE).piece, whole / 40);
        // All hold as much as before, but only some clients receive it.
        (0..10).for_each(|slot| books.note_send(at(200), slot, LARGE));
        assert_eq!(books.room(0, ONE).piece, whole / 40);
        (0..10).for_each(|slot| books.note_send(at(400), slot, LARGE));
        assert_eq!(books.room(0, ONE).piece, whole / 10);
        books.note_send(at(1_000), 5, LARGE);
        assert_eq!(books.room(5, ONE).piece, whole);
        (0..1000).for_each(|slot| books.note_send(at(1_200), slot, LARGE));
        assert_eq!(books.room(0, ONE).piece, PIECE_MIN);
        books.check();
    }

    #[test]
    fn the_largest_that_owe_end_first_and_no_more_than_needed() {
        let mut books = Admission::new(4 * ALL);
        books.count(9, 0, 4 * ALL);
        let (half, most, some) = (ALL / 2, ALL * 9 / 10, ALL * 7 / 10);
        assert_eq!(books.choose(vec![(half, 1), (most, 2), (some, 3)]), [2, 3]);
        assert!(books.choose(vec![(100, 1)]).is_empty(), "that would free nothing");
        // When hardly more than the reserve is left, a large request of another connection still
        // waits.
        let little = 4 * ALL - ALL / 2 - ALL / 4;
        books.count(9, 4 * ALL, little);
        assert!(!books.room(1, ONE).fits(0, ALL / 2));
        assert_eq!(books.choose(vec![(half, 1)]), [1]);
        books.count(9, little, 2 * ALL + ALL / 2);
        assert!(books.room(1, ONE).fits(0, ALL / 2));
        assert!(books.choose(vec![(half, 1)]).is_empty(), "there is room");
        assert_eq!(books.ended(), 3);
    }

    #[test]
    fn nodes_and_open_files_are_counted_in_the_memory() {
        let mut books = Admission::new(800 * HANDLE_BYTES);
        books.set_handles_max(usize::MAX);
        let all = books.room(1, ONE);
        assert_eq!((all.spare, all.handles), (700 * HANDLE_BYTES, 800));
        // Few take nothing from requests, and have memory beside them.
        books.count_handles(ONE, 0, 100);
        assert_eq!(books.room(1, ONE).spare, all.spare);
        books.count(1, 0, 600 * HANDLE_BYTES);
        assert_eq!(
            (books.room(2, ONE).spare, books.room(2, ONE).handles),
            (100 * HANDLE_BYTES, 100)
        );
        books.count_handles(ONE, 100, 150);
        assert_eq!((books.room(2, ONE).spare, books.room(2, ONE).handles), (50 * HANDLE_BYTES, 50));
        assert_eq!(books.used(), 750 * HANDLE_BYTES);
        // They are given back with the handles.
        books.count_handles(ONE, 150, 0);
        books.count(1, 600 * HANDLE_BYTES, 0);
        assert_eq!((books.used(), books.room(1, ONE)), (0, all));
        books.check();
    }

    #[test]
    fn a_client_below_the_minimum_rate_is_overdue() {
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
