//! Recording: what the node's recorder sees, and to whom its notes go.

use super::recorder::{Kept, Recorded, Recorder, Tally};
use super::{Node, Phase};
use base::Instant;

impl Node {
    /// From now on, what clients ask of files is recorded. To be called before anybody is let in,
    /// of the node that has the name space.
    ///
    /// # Panics
    /// If somebody was let in before.
    pub fn start_recording(&mut self) {
        assert!(self.connections.is_empty() && self.is_home(), "it knows all paths");
        let recorder = Recorder::new(self.export.root, self.config.service);
        self.recorder = Some(Box::new(recorder));
    }

    /// Whether what clients ask of files is recorded.
    pub fn is_recording(&self) -> bool {
        self.recorder.is_some()
    }

    /// How many I/Os were recorded, and how many were lost, if any are to be.
    pub fn tally(&self) -> Option<Tally> {
        self.recorder.as_ref().map(|recorder| recorder.tally())
    }

    /// A turn ends: what was answered in it is answered now.
    pub fn end_turn(&mut self, now: Instant) {
        if let Some(recorder) = &mut self.recorder {
            recorder.end_turn(now);
        }
    }

    /// Hands out what is recorded, if it is time; when the node has ended, all of it.
    pub fn hand_out(&mut self, keep: &mut dyn FnMut(Vec<Recorded>) -> Kept) {
        let Some(recorder) = &mut self.recorder else { return };
        if let Some(batch) = recorder.take(self.phase == Phase::Over) {
            let count = batch.len();
            recorder.kept(count, keep(batch));
        }
    }
}
