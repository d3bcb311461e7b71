//! Growth of the volume while it is served.

use super::connection::{ROOT, walk};
use crate::client::Io;
use base::rng::Rng;
use store::Layout;
use wire::ninep::{Data, Tmessage};

/// Fid of `/.upcall/names`.
const NAMES: u32 = 41;
const PATH: [&[u8]; 2] = [b".upcall", b"names"];
const READ_WRITE: u32 = 2;
/// Maximum size of a message of an error, bytes.
const COMPLAINT_MAX: u32 = 2000;
/// Cause of the refusal while the file is too short.
const TOO_SHORT: &str = "make the file or device longer first";
/// Advice when the volume is not smaller.
const NOT_LARGER: &str = "choose a size that is larger";
/// Added blocks: fewer than the maps take, about a segment, several segments.
const MORE: [(u64, u64); 3] = [(1, 60), (900, 1100), (2000, 9000)];

/// The layout of the volume, and its growth.
#[derive(Debug)]
pub(super) struct Growth {
    layout: Layout,
    /// Layout of a growth without a reply.
    target: Option<Layout>,
    /// Whether its command was sent on a connection that ended before the reply.
    is_repeated: bool,
    /// Growths still to come.
    pub(super) left: u32,
    /// Whether it has grown since its space was used.
    pub(super) has_grown: bool,
}

impl Growth {
    /// Returns a volume of this layout, before this number of growths.
    pub(super) fn new(layout: Layout, left: u32) -> Growth {
        Growth { layout, target: None, is_repeated: false, left, has_grown: false }
    }

    /// Returns the expected number of blocks for pages and data.
    pub(super) fn data_blocks(&self) -> u64 {
        data_blocks(&self.layout)
    }

    /// Draws the next size; the command of this growth.
    pub(super) fn draw(&mut self, rng: &mut Rng) -> String {
        let (least, most) = MORE[rng.usize(..MORE.len())];
        let wanted = self.layout.blocks + rng.u64(least..=most);
        let blocks = self.layout.least_grown(wanted).expect("a small volume");
        let target = self.layout.grown(blocks).expect("it can grow to that size");
        self.target = Some(target);
        format!("grow volume:/srv.volume {}\n", bytes(&target))
    }

    /// Returns whether a growth has no reply yet.
    pub(super) fn is_pending(&self) -> bool {
        self.target.is_some()
    }

    /// Records that the connection of a growth ended: it may have taken effect, or may still do.
    pub(super) fn lose(&mut self) {
        self.is_repeated = self.is_pending();
    }

    /// Extends the volume's file to the size of the growth.
    pub(super) fn extend(&self, io: &mut Io<'_>) {
        let target = self.target.as_ref().expect("it grows");
        io.env.extend_volumes(bytes(target));
    }

    /// Returns the command of the present growth, once more.
    pub(super) fn command(&self) -> String {
        format!("grow volume:/srv.volume {}\n", bytes(&self.target.expect("it grows")))
    }

    /// Records that the growth is complete.
    pub(super) fn succeed(&mut self, io: &mut Io<'_>) {
        self.layout = self.target.take().expect("it grows");
        (self.is_repeated, self.has_grown) = (false, true);
        self.left = self.left.saturating_sub(1);
        io.env.totals.growths += 1;
        io.env.expected_blocks = Some(self.layout.blocks);
    }

    /// Returns whether a refusal has the cause that the file is too short, and not that the volume
    /// has its new size already.
    ///
    /// # Panics
    /// If it has another cause.
    pub(super) fn is_too_short(&self, text: &[u8]) -> bool {
        let text = String::from_utf8_lossy(text);
        let is_too_short = text.contains(TOO_SHORT);
        let is_grown = self.is_repeated && text.contains(NOT_LARGER);
        assert!(is_too_short || is_grown, "the volume does not grow: {text}");
        is_too_short
    }

    /// Handles the size that a volume has after a power failure, or after a lost connection.
    ///
    /// # Panics
    /// If it is not the acknowledged one, nor that of a growth without a reply.
    pub(super) fn recover(&mut self, io: &mut Io<'_>, blocks: u64) {
        let target = self.target.as_ref().map(data_blocks);
        if target == Some(blocks) {
            return self.succeed(io);
        }
        (self.target, self.is_repeated) = (None, false);
        let known = self.data_blocks();
        assert_eq!(blocks, known, "neither the acknowledged size nor that requested, {target:?}");
        io.env.expected_blocks = Some(self.layout.blocks);
    }
}

fn data_blocks(layout: &Layout) -> u64 {
    let maps = layout.maps_in_data();
    layout.blocks - layout.data_at - (maps.end - maps.start)
}

fn bytes(layout: &Layout) -> u64 {
    layout.blocks * layout.block as u64
}

/// Returns the messages that carry out a command, up to its reply.
pub(super) fn command(line: &str) -> [Tmessage<'_>; 3] {
    [
        walk(ROOT, NAMES, &PATH),
        Tmessage::Lopen { fid: NAMES, flags: READ_WRITE },
        Tmessage::Write { fid: NAMES, offset: 0, data: Data(line.as_bytes()) },
    ]
}

/// Returns the messages after a successful command.
pub(super) fn close() -> [Tmessage<'static>; 1] {
    [Tmessage::Clunk { fid: NAMES }]
}

/// Returns the messages that read the cause of a refusal.
pub(super) fn complaint() -> [Tmessage<'static>; 2] {
    let read = Tmessage::Read { fid: NAMES, offset: 0, count: COMPLAINT_MAX };
    [read, Tmessage::Clunk { fid: NAMES }]
}
