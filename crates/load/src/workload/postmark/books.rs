//! State of the files: existence, size, and whether they are held.

/// State of a pool. Each number is free (no such file), held by a user, or idle (available).
#[derive(Clone, Debug)]
pub(super) struct Books {
    /// Bytes created and written without error, by number.
    sizes: Vec<u32>,
    idle: Vec<u32>,
    free: Vec<u32>,
}

impl Books {
    /// Creates a state without files, for this many numbers.
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

    /// Adds a new, idle file.
    pub(super) fn exists(&mut self, file: u32, size: u32) {
        self.sizes[file as usize] = size;
        self.idle.push(file);
    }

    /// Holds a random idle file.
    pub(super) fn take(&mut self, random: &mut fastrand::Rng) -> Option<u32> {
        let count = self.idle.len();
        (count > 0).then(|| self.idle.swap_remove(random.usize(..count)))
    }

    /// Holds the last idle file.
    pub(super) fn take_last(&mut self) -> Option<u32> {
        self.idle.pop()
    }

    /// Size of a file, in bytes.
    pub(super) fn size(&self, file: u32) -> u32 {
        self.sizes[file as usize]
    }

    /// Releases a held file, which has grown by `more` bytes.
    pub(super) fn give_back(&mut self, file: u32, more: u32) {
        self.sizes[file as usize] += more;
        self.idle.push(file);
    }

    /// Frees the number of a file that was removed or not created.
    pub(super) fn gone(&mut self, file: u32) {
        self.free.push(file);
    }
}
