//! Memory and handles that a connection may use.

/// Maximum size of a small request, bytes.
pub const SMALL_MAX: usize = 64 << 10;

/// Number of nodes and open files that a client may hold in any case.
pub const HANDLES_MIN: usize = 64;

/// Number of nodes and open files that a connection of 9P or NFS may hold in any case: one of a
/// client whose others hold too much can attach.
pub(crate) const HANDLES_FEW: usize = 8;

/// Ratio of a connection's maximum number of handles to the free ones: a single one may have four
/// fifths, as needed by a kernel that caches every file it has seen.
const HANDLES_SHARE: usize = 4;

/// The same ratio for all connections of a client, so that some handles are left to other clients
/// however many connections it has.
const CLIENT_SHARE: usize = 16;

/// Memory and handles that the node has left, as of the last step. A connection may hold as much as
/// is free (a dynamic threshold; Choudhury and Hahne, 1998), so that some is left however many
/// connections want all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Free memory, bytes.
    pub spare: usize,
    /// The part of it that is reserved for small requests, bytes.
    pub reserve: usize,
    /// Whether this connection may continue its requests although no memory is left. One at a time
    /// may, which guarantees progress.
    pub is_first: bool,
    /// Free nodes and open files.
    pub handles: usize,
    /// Nodes and open files that all connections of the client may have in addition.
    pub client_handles: usize,
    /// Maximum number of messages started in a turn, which begins with received bytes or a tick:
    /// few while many connections have some.
    pub messages: usize,
    /// Maximum number of bytes of a file read and sent at once: fewer while many connections have
    /// large responses.
    pub piece: usize,
}

impl Room {
    /// Unlimited resources.
    pub const ALL: Room = Room {
        spare: usize::MAX,
        reserve: 0,
        is_first: true,
        handles: usize::MAX,
        client_handles: usize::MAX,
        messages: usize::MAX,
        piece: usize::MAX,
    };

    /// Returns the maximum number of nodes and open files of a connection that holds some.
    pub fn handles_max(self, held: usize) -> usize {
        let most = self.handles.saturating_mul(HANDLES_SHARE).max(HANDLES_MIN);
        most.min(held.saturating_add(self.client_handles))
    }

    /// Returns the number of nodes and open files that a client may have in addition, given the
    /// free ones and those that its connections hold.
    pub fn client_handles(free: usize, held: usize) -> usize {
        free.saturating_mul(CLIENT_SHARE).max(HANDLES_MIN).saturating_sub(held)
    }

    /// Returns whether a connection that holds some bytes may hold more.
    pub fn lets_grow(self, held: usize) -> bool {
        self.is_first || held < self.spare
    }

    /// Returns whether a connection may start a request that needs some bytes more. Its only
    /// request may exceed the available memory if it is small, or if this connection has the turn
    /// to proceed without memory.
    pub fn admits(self, held: usize, need: usize, is_only: bool) -> bool {
        is_only && (need <= SMALL_MAX || self.is_first) || self.fits(held, need)
    }

    /// Returns whether a connection with some unsent bytes, of at most `most`, may be sent more:
    /// its client takes its replies.
    pub fn lets_send(self, unsent: usize, most: usize) -> bool {
        unsent == 0 || unsent < most && self.lets_grow(unsent)
    }

    /// Returns whether a connection that holds some bytes may start a request that needs some more.
    pub fn fits(self, held: usize, need: usize) -> bool {
        let small = need <= SMALL_MAX;
        held < self.spare && (small || need.saturating_add(self.reserve) <= self.spare)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greedy_connections_leave_room_for_one_more() {
        let (max, mut held) = (64 << 20, [0; 100]);
        for step in 0..100_000 {
            let spare = max - held.iter().sum::<usize>();
            let room = Room { spare, reserve: max / 8, is_first: false, ..Room::ALL };
            let held = &mut held[step % 100];
            if room.fits(*held, 4096) {
                *held += 4096;
            }
        }
        let spare = max - held.iter().sum::<usize>();
        assert!(spare >= max / 101 - 4096, "{spare}");
        assert!(Room { spare, reserve: 0, is_first: false, ..Room::ALL }.fits(0, 4096));
    }

    #[test]
    fn clients_that_open_all_they_can_leave_files_to_others() {
        let (max, mut held) = (100_000, [0; 500]);
        for step in 0..1_000_000 {
            let handles = max - held.iter().sum::<usize>();
            let room = Room { handles, ..Room::ALL };
            let held = &mut held[step % 500];
            if *held < room.handles_max(*held) {
                *held += 1;
            }
        }
        let handles = max - held.iter().sum::<usize>();
        assert!(handles >= max / 2002, "{handles}");
        assert_eq!(Room { handles: 0, ..Room::ALL }.handles_max(0), HANDLES_MIN);
    }

    #[test]
    fn a_client_with_many_connections_leaves_files_to_others() {
        let (max, mut all, mut held) = (20_000, 0, [0; 10_000]);
        for step in 0..100_000 {
            let client_handles = Room::client_handles(max - all, all);
            let room = Room { handles: max - all, client_handles, ..Room::ALL };
            let held = &mut held[step % 10_000];
            if *held < room.handles_max(*held) {
                (*held, all) = (*held + 1, all + 1);
            }
        }
        assert_eq!(max - all, max / (CLIENT_SHARE + 1));
        let others = Room::client_handles(max - all, 0);
        assert!(others >= max / 2, "another client has files at once: {others}");
        assert_eq!(Room::client_handles(0, 60), 4, "a few in any case");
    }

    #[test]
    fn large_requests_leave_the_reserve_to_small_ones() {
        let room = Room { spare: 1 << 20, reserve: 1 << 19, is_first: false, ..Room::ALL };
        assert!(!room.fits(0, 1 << 20) && room.fits(0, SMALL_MAX) && room.fits(0, 1 << 19));
    }
}
