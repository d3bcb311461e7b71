//! Which files there are, how large they are, and which of them somebody holds.

/// The books of a pool. Each number is in one of three states: free (no such file), held by
/// somebody, or idle (a file that may be chosen).
#[derive(Clone, Debug)]
pub(super) struct Books {
    /// By number; bytes that were made and written without error.
    sizes: Vec<u32>,
    idle: Vec<u32>,
    free: Vec<u32>,
}

impl Books {
    /// No files, and so many numbers for them.
    pub(super) fn new(numbers: u32) -> Books {
        Books {
            sizes: vec![0; numbers as usize],
            idle: Vec::new(),
            free: (0..numbers).rev().collect(),
        }
    }

    /// Holds a number for a new file.
    pub(super) fn number(&mut self) -> Option<u32> {
        self.free.pop()
    }

    /// A file was made, and is idle.
    pub(super) fn exists(&mut self, file: u32, size: u32) {
        self.sizes[file as usize] = size;
        self.idle.push(file);
    }

    /// Holds one of the idle files.
    pub(super) fn take(&mut self, random: &mut fastrand::Rng) -> Option<u32> {
        let count = self.idle.len();
        (count > 0).then(|| self.idle.swap_remove(random.usize(..count)))
    }

    /// Holds the idle file that came last.
    pub(super) fn take_last(&mut self) -> Option<u32> {
        self.idle.pop()
    }

    /// Bytes of a file.
    pub(super) fn size(&self, file: u32) -> u32 {
        self.sizes[file as usize]
    }

    /// A held file is idle again, with so many bytes more.
    pub(super) fn give_back(&mut self, file: u32, more: u32) {
        self.sizes[file as usize] += more;
        self.idle.push(file);
    }

    /// There is no such file any more (or it was never made).
    pub(super) fn gone(&mut self, file: u32) {
        self.free.push(file);
    }
}
