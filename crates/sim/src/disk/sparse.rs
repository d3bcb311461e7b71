//! Contents of a file: allocated pages and holes.

use std::collections::BTreeMap;

const PAGE: u64 = 4096;

/// Bytes with holes, which read as zeros and use no memory.
#[derive(Clone, Debug, Default)]
pub struct Sparse {
    pages: BTreeMap<u64, Box<[u8]>>,
    size: u64,
}

impl Sparse {
    /// Returns the length, bytes.
    pub fn len(&self) -> u64 {
        self.size
    }

    /// Returns whether the length is zero.
    pub fn is_empty(&self) -> bool {
        self.size == 0
    }

    /// Returns the storage used, in blocks of 512 bytes.
    pub fn blocks(&self) -> u64 {
        self.pages.len() as u64 * (PAGE / 512)
    }

    /// Returns up to `count` bytes from `offset` on; fewer only at the end.
    pub fn read(&self, offset: u64, count: usize) -> Vec<u8> {
        let end = offset.saturating_add(count as u64).min(self.size);
        if offset >= end {
            return Vec::new();
        }
        let mut bytes = vec![0; (end - offset) as usize];
        for (number, page) in self.pages.range(offset / PAGE..=(end - 1) / PAGE) {
            let start = number * PAGE;
            let (from, to) = (start.max(offset), (start + PAGE).min(end));
            let part = &page[(from - start) as usize..(to - start) as usize];
            bytes[(from - offset) as usize..(to - offset) as usize].copy_from_slice(part);
        }
        bytes
    }

    /// Writes `data` at `offset`, growing if needed.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let within = (at % PAGE) as usize;
            let count = (data.len() - done).min(PAGE as usize - within);
            let empty = || vec![0; PAGE as usize].into_boxed_slice();
            let page = self.pages.entry(at / PAGE).or_insert_with(empty);
            page[within..within + count].copy_from_slice(&data[done..done + count]);
            done += count;
        }
        if !data.is_empty() {
            self.size = self.size.max(offset + data.len() as u64);
        }
    }

    /// Truncates or extends.
    pub fn resize(&mut self, size: u64) {
        if size < self.size {
            self.pages.split_off(&size.div_ceil(PAGE));
            if let Some(page) = self.pages.get_mut(&(size / PAGE)) {
                page[(size % PAGE) as usize..].fill(0);
            }
        }
        self.size = size;
    }
}

impl PartialEq for Sparse {
    fn eq(&self, other: &Sparse) -> bool {
        let half = |one: &Sparse, two: &Sparse| {
            one.pages.iter().all(|(number, page)| match two.pages.get(number) {
                Some(same) => page == same,
                None => page.iter().all(|byte| *byte == 0),
            })
        };
        self.size == other.size && half(self, other) && half(other, self)
    }
}
