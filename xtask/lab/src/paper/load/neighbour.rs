//! A busy neighbour: one spinning process for each processor.

use anyhow::Result;
use rig::sh;
use std::process::Child;

/// Spins as long as the process that started it exists.
const SPIN: &str = "while kill -0 \"$1\" 2>/dev/null; do \
                    i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; done";

/// The processes, which are killed on drop.
pub(super) struct Neighbour(Vec<Child>);

impl Neighbour {
    pub(super) fn start() -> Result<Neighbour> {
        let count = std::thread::available_parallelism()?.get();
        let id = std::process::id().to_string();
        let mut neighbour = Neighbour(Vec::new());
        for _ in 0..count {
            neighbour.0.push(sh::cmd("sh", &["-c", SPIN, "spin", &id]).spawn()?);
        }
        Ok(neighbour)
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // It may have exited by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
