//! The programs that were used last, ready to be instantiated.

use storelet::Program;
use storelet::compile::{Code, Hash};

/// Most programs, and most code of all of them together, bytes.
const COUNT_MAX: usize = 64;
const BYTES_MAX: usize = 128 << 20;

/// Some programs; the one that was not used for longest goes first.
#[derive(Default)]
pub(super) struct Programs {
    /// What was used last stands last.
    all: Vec<Loaded>,
}

struct Loaded {
    name: (Hash, Code),
    program: Program,
}

impl Programs {
    /// A program, if it is there.
    pub(super) fn find(&mut self, name: (Hash, Code)) -> Option<Program> {
        let at = self.all.iter().position(|loaded| loaded.name == name)?;
        let loaded = self.all.remove(at);
        let program = loaded.program.clone();
        self.all.push(loaded);
        Some(program)
    }

    /// Keeps a program that was not there.
    pub(super) fn keep(&mut self, name: (Hash, Code), program: Program) {
        self.all.push(Loaded { name, program });
        while self.all.len() > COUNT_MAX || self.bytes() > BYTES_MAX {
            self.all.remove(0);
        }
    }

    fn bytes(&self) -> usize {
        self.all.iter().map(|loaded| loaded.program.bytes()).sum()
    }
}
