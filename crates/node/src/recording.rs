//! Recording: inputs of the recorder, and the delivery of its records.

use super::recorder::{Kept, Recorded, Recorder, Tally};
use super::{Node, Phase};
use base::Instant;

impl Node {
    /// Starts to record the file I/O of clients. Must be called before any client connects, on the
    /// node that has the namespace.
    ///
    /// # Panics
    /// If a client has connected.
    pub fn start_recording(&mut self) {
        assert!(self.connections.is_empty() && self.is_home(), "it knows all paths");
        let recorder = Recorder::new(self.export.root, self.config.service);
        self.recorder = Some(Box::new(recorder));
    }

    /// Returns whether file I/O is recorded.
    pub fn is_recording(&self) -> bool {
        self.recorder.is_some()
    }

    /// Returns the numbers of recorded and of dropped I/Os, if recording is enabled.
    pub fn tally(&self) -> Option<Tally> {
        self.recorder.as_ref().map(|recorder| recorder.tally())
    }

    /// Ends a turn, which is the time of its responses.
    pub fn end_turn(&mut self, now: Instant) {
        if let Some(recorder) = &mut self.recorder {
            recorder.end_turn(now);
        }
    }

    /// Hands out the batch that is due; after the end of the node, everything.
    pub fn hand_out(&mut self, keep: &mut dyn FnMut(Vec<Recorded>) -> Kept) {
        let Some(recorder) = &mut self.recorder else { return };
        if let Some(batch) = recorder.take(self.phase == Phase::Over) {
            let count = batch.len();
            recorder.kept(count, keep(batch));
        }
    }
}
