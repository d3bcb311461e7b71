//! Recently used programs, ready to be instantiated, and those still in use elsewhere: there is one
//! copy of a program at a time.

use wasi::{Code, Hash, Program, WeakProgram};

/// Maximum number of cached programs, and maximum total size of their code, bytes.
const COUNT_MAX: usize = 64;
const BYTES_MAX: usize = 128 << 20;

/// Maximum size of a cached program, bytes: none displaces all others.
const PROGRAM_MAX: usize = BYTES_MAX / 4;

/// A cache of programs with least-recently-used eviction.
#[derive(Default)]
pub(super) struct Programs {
    /// Cached programs, the most recently used one last.
    kept: Vec<(Name, Program)>,
    /// All loaded programs that may still be in use.
    loaded: Vec<(Name, WeakProgram)>,
}

type Name = (Hash, Code);

impl Programs {
    /// Returns a program, if present.
    pub(super) fn find(&mut self, name: Name) -> Option<Program> {
        if let Some(at) = self.kept.iter().position(|(known, _)| *known == name) {
            let found = self.kept.remove(at);
            let program = found.1.clone();
            self.kept.push(found);
            return Some(program);
        }
        let (_, weak) = self.loaded.iter().find(|(known, _)| *known == name)?;
        let program = weak.upgrade()?;
        self.keep(name, program.clone());
        Some(program)
    }

    /// Adds a loaded program.
    pub(super) fn add(&mut self, name: Name, program: Program) {
        self.loaded.retain(|(known, weak)| *known != name && weak.upgrade().is_some());
        self.loaded.push((name, program.downgrade()));
        self.keep(name, program);
    }

    fn keep(&mut self, name: Name, program: Program) {
        if program.bytes() > PROGRAM_MAX {
            return;
        }
        self.kept.push((name, program));
        while self.kept.len() > COUNT_MAX || self.bytes() > BYTES_MAX {
            self.kept.remove(0);
        }
    }

    fn bytes(&self) -> usize {
        self.kept.iter().map(|(_, program)| program.bytes()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wasi::Engines;

    /// Returns a program with this many bytes of initial data.
    fn program(engines: &Engines, bytes: usize) -> Program {
        let data = "a".repeat(bytes);
        let text = format!("(module (memory 2048) (data (i32.const 0) \"{data}\"))");
        let wasm = wat::parse_str(text).expect("a module");
        engines.of(Code::Plain).compile(&wasm).expect("it compiles")
    }

    #[test]
    fn there_is_one_copy_of_a_program_and_no_large_one_is_kept() {
        let engines = Engines::new().expect("engines");
        let mut programs = Programs::default();
        let name = |number| (Hash([number; 32]), Code::Plain);
        let (small, large) = (program(&engines, 100), program(&engines, PROGRAM_MAX + 1));
        programs.add(name(1), small);
        programs.add(name(2), large.clone());
        // The large one is known as long as it is in use.
        assert_eq!((programs.kept.len(), programs.loaded.len()), (1, 2));
        assert!(programs.find(name(2)).is_some());
        drop(large);
        assert!(programs.find(name(2)).is_none() && programs.find(name(1)).is_some());
        programs.add(name(3), program(&engines, 100));
        assert_eq!((programs.kept.len(), programs.loaded.len()), (2, 2));
    }
}
