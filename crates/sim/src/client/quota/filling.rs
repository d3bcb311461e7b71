//! A file that takes all space of a volume after its growth, is read back, and is removed.

use super::connection::{ROOT, Reply, walk};
use wire::ninep::{Data, Tmessage};

/// Fid of the file.
const FID: u32 = 42;
const NAME: &[u8] = b"fill";
const READ_WRITE: u32 = 2;
/// Error numbers: a missing file, a full volume.
const NOT_FOUND: u32 = 2;
const NO_SPACE: u32 = 28;
/// Maximum size of a write, bytes.
const PIECE_MAX: usize = 200 << 10;
/// Blocks that the records of the file may take, besides a 64th of its blocks.
const RECORDS: u64 = 100;

/// State of the filling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Waiting for the new file.
    Creating,
    /// Waiting for a write.
    Writing,
    /// Waiting for a read from this offset on.
    Reading(usize),
    /// Waiting for the removal.
    Removing,
    /// Waiting for the removal after a lost connection or a power failure, if there is a file.
    Cleaning,
}

/// The file.
#[derive(Debug)]
pub(super) struct Filling {
    state: State,
    /// Bytes written.
    length: usize,
    /// Maximum size of a message's data, bytes.
    piece: usize,
    /// Blocks of the volume that are available.
    available: u64,
}

impl Filling {
    /// Begins a file in a volume with this number of available blocks; passes its first messages
    /// to `send`. `payload_max` is the maximum number of bytes of one message.
    pub(super) fn new(
        available: u64,
        payload_max: usize,
        send: impl FnOnce(&[Tmessage<'_>]),
    ) -> Filling {
        let (name, flags, mode, gid) = (NAME, READ_WRITE, 0o600, 0);
        send(&[walk(ROOT, FID, &[]), Tmessage::Lcreate { fid: FID, name, flags, mode, gid }]);
        let (state, piece) = (State::Creating, payload_max.min(PIECE_MAX));
        Filling { state, length: 0, piece, available }
    }

    /// Begins to remove the file, of which it is unknown whether it is there.
    pub(super) fn clean(&mut self, send: impl FnOnce(&[Tmessage<'_>])) {
        send(&[Tmessage::Unlinkat { dfid: ROOT, name: NAME, flags: 0 }]);
        self.state = State::Cleaning;
    }

    /// Returns whether as many blocks are available as before, except for some of records.
    pub(super) fn is_freed(&self, available: u64) -> bool {
        available + RECORDS >= self.available
    }

    fn bytes(&self, offset: usize) -> Vec<u8> {
        (offset..offset + self.piece).map(|at| super::pattern(at) | 1).collect()
    }

    /// Handles the last reply; passes the next messages to `send`. Returns whether it is complete.
    ///
    /// # Panics
    /// If the volume is full too early, or the file has other bytes.
    pub(super) fn step(&mut self, reply: &Reply, send: impl FnOnce(&[Tmessage<'_>])) -> bool {
        self.state = match (self.state, reply) {
            (State::Creating, Reply::Done) => self.write(send),
            (State::Writing, Reply::Written(count)) => {
                self.length += *count as usize;
                self.write(send)
            }
            (State::Writing, Reply::Error(NO_SPACE)) => {
                self.expect_full();
                self.read(0, send)
            }
            (State::Reading(offset), Reply::Data(data)) if data.is_empty() => {
                assert_eq!(offset, self.length, "bytes that were written are missing");
                let remove = Tmessage::Unlinkat { dfid: ROOT, name: NAME, flags: 0 };
                send(&[Tmessage::Clunk { fid: FID }, remove]);
                State::Removing
            }
            (State::Reading(offset), Reply::Data(data)) => {
                assert!(self.bytes(offset).starts_with(data), "other bytes from {offset} on");
                self.read(offset + data.len(), send)
            }
            (State::Removing | State::Cleaning, Reply::Done)
            | (State::Cleaning, Reply::Error(NOT_FOUND)) => return true,
            (state, reply) => panic!("{state:?} got {reply:?}"),
        };
        false
    }

    fn write(&self, send: impl FnOnce(&[Tmessage<'_>])) -> State {
        let (offset, data) = (self.length as u64, self.bytes(self.length));
        send(&[Tmessage::Write { fid: FID, offset, data: Data(&data) }]);
        State::Writing
    }

    fn read(&self, offset: usize, send: impl FnOnce(&[Tmessage<'_>])) -> State {
        send(&[Tmessage::Read { fid: FID, offset: offset as u64, count: self.piece as u32 }]);
        State::Reading(offset)
    }

    /// Checks that all available blocks are taken, but those of records and of the refused write. A
    /// checkpoint may have made more available.
    fn expect_full(&self) {
        let (taken, available) = ((self.length / 4096) as u64, self.available);
        let left = self.piece as u64 / 4096 + RECORDS + available / 64;
        assert!(taken + left >= available, "full with {taken} blocks of {available}");
    }
}
