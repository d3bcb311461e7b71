//! Accelerated functions for guests: searching bytes, and hashing.
//!
//! The functions of the module `upcall`. They work on guest memory in place, with the processor's
//! widest vectors; an address outside of it traps, as in any instruction. They work in pieces and
//! yield between them; where fuel is metered, they consume as much as the equivalent instructions.

use super::Call;
use crate::host::{Exit, Host, Stop};
use crate::host_channel::Want;
use memchr::memmem::Finder;
use sha2::digest::generic_array::GenericArray;
use wasmtime::{Caller, Linker, Trap, bail};

/// Name of the import module.
const MODULE: &str = "upcall";

/// Cost of a function.
pub(super) struct Cost {
    /// Bytes between two yields: a fraction of a millisecond, also on processors without
    /// instructions for it.
    piece: u32,
    /// Bytes per unit of fuel: about the duration of one instruction of a guest.
    per_fuel: u32,
}

pub(super) const SCANNED: Cost = Cost { piece: 1 << 20, per_fuel: 16 };
const HASHED: Cost = Cost { piece: 64 << 10, per_fuel: 1 };

/// Maximum length of a search text, bytes.
const NEEDLE_MAX: u32 = 64 << 10;

/// Result for a text that is not found.
const NOWHERE: u32 = u32::MAX;

/// Size of a SHA-256 block, bytes; and maximum number of blocks hashed at once.
const BLOCK: usize = 64;
const BLOCKS: usize = 32;

type Outcome<T> = wasmtime::Result<T>;

impl Call<'_> {
    /// Returns a range of guest memory.
    fn span(&mut self, at: u32, len: u32) -> Outcome<&mut [u8]> {
        self.bytes(at, len).map_err(|_| Trap::MemoryOutOfBounds.into())
    }

    /// Yields before the next piece.
    async fn give_way(&mut self) -> Outcome<()> {
        match self.client().want(Want::Sleep(0)).await {
            Ok(_) => Ok(()),
            Err(Stop::Ended(reason)) => Err(Exit::Ended(reason).into()),
            Err(Stop::Errno(errno)) => unreachable!("waiting fails with {errno:?}"),
        }
    }

    /// Consumes fuel for this many bytes, if metered.
    pub(super) fn burn(&mut self, cost: &Cost, bytes: u32) -> Outcome<()> {
        let Ok(left) = self.0.get_fuel() else { return Ok(()) };
        let fuel = bytes.div_ceil(cost.per_fuel);
        self.0.set_fuel(left.saturating_sub(fuel.into()))?;
        if left < fuel.into() { Err(Trap::OutOfFuel.into()) } else { Ok(()) }
    }

    /// Scans memory in pieces, each with `more` bytes of the next one, until there is a match.
    /// Returns its offset.
    async fn through(
        &mut self,
        (at, len): (u32, u32),
        cost: Cost,
        more: u32,
        mut look: impl FnMut(&[u8]) -> Option<usize>,
    ) -> Outcome<Option<u32>> {
        self.span(at, len)?;
        let mut done = 0;
        while done < len {
            let end = done.saturating_add(cost.piece).min(len);
            let seen = end.saturating_add(more).min(len);
            let found = look(self.span(at + done, seen - done)?);
            let place = found.map(|place| done + place as u32);
            self.burn(&cost, place.map_or(end, |place| place + 1) - done)?;
            if place.is_some() {
                return Ok(place);
            }
            done = end;
            if done < len {
                self.give_way().await?;
            }
        }
        Ok(None)
    }

    async fn find_byte(&mut self, at: u32, len: u32, byte: u32) -> Outcome<u32> {
        let look = |bytes: &[u8]| memchr::memchr(byte as u8, bytes);
        Ok(self.through((at, len), SCANNED, 0, look).await?.unwrap_or(NOWHERE))
    }

    async fn find_byte_last(&mut self, at: u32, len: u32, byte: u32) -> Outcome<u32> {
        self.span(at, len)?;
        let mut end = len;
        while end > 0 {
            let from = end.saturating_sub(SCANNED.piece);
            let bytes = self.span(at + from, end - from)?;
            let place = memchr::memrchr(byte as u8, bytes).map(|place| from + place as u32);
            self.burn(&SCANNED, end - place.unwrap_or(from))?;
            if let Some(place) = place {
                return Ok(place);
            }
            end = from;
            if end > 0 {
                self.give_way().await?;
            }
        }
        Ok(NOWHERE)
    }

    async fn count_byte(&mut self, at: u32, len: u32, byte: u32) -> Outcome<u32> {
        let mut count = 0;
        let look = |bytes: &[u8]| {
            count += memchr::memchr_iter(byte as u8, bytes).count() as u32;
            None
        };
        self.through((at, len), SCANNED, 0, look).await?;
        Ok(count)
    }

    async fn find(&mut self, at: u32, len: u32, needle: u32, needle_len: u32) -> Outcome<u32> {
        if needle_len > NEEDLE_MAX {
            bail!("it looks for {needle_len} bytes at once, of at most {NEEDLE_MAX}");
        }
        let needle = self.span(needle, needle_len)?.to_vec();
        self.burn(&SCANNED, needle_len)?;
        if needle.is_empty() {
            return self.span(at, len).map(|_| 0);
        }
        let finder = Finder::new(&needle);
        let look = |bytes: &[u8]| finder.find(bytes);
        Ok(self.through((at, len), SCANNED, needle_len - 1, look).await?.unwrap_or(NOWHERE))
    }

    async fn crc32(&mut self, before: u32, at: u32, len: u32) -> Outcome<u32> {
        let mut hasher = crc32fast::Hasher::new_with_initial(before);
        let look = |bytes: &[u8]| {
            hasher.update(bytes);
            None
        };
        self.through((at, len), HASHED, 0, look).await?;
        Ok(hasher.finalize())
    }

    async fn sha256_blocks(&mut self, state: u32, at: u32, blocks: u32) -> Outcome<()> {
        let mut words = [0; 8];
        let text = self.span(state, 32)?;
        for (word, bytes) in words.iter_mut().zip(text.chunks_exact(4)) {
            *word = u32::from_le_bytes(bytes.try_into().expect("it has four"));
        }
        let Some(len) = blocks.checked_mul(BLOCK as u32) else {
            return Err(Trap::MemoryOutOfBounds.into());
        };
        let look = |bytes: &[u8]| {
            let mut memory = [GenericArray::default(); BLOCKS];
            for chunk in bytes.chunks(BLOCK * BLOCKS) {
                let blocks = chunk.chunks_exact(BLOCK).map(GenericArray::clone_from_slice);
                let count = memory.iter_mut().zip(blocks).map(|(to, block)| *to = block).count();
                sha2::compress256(&mut words, &memory[..count]);
            }
            None
        };
        self.through((at, len), HASHED, 0, look).await?;
        for (bytes, word) in self.span(state, 32)?.chunks_exact_mut(4).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        Ok(())
    }
}

macro_rules! link {
    ($linker:ident, $($name:ident($($arg:ident),*)),* $(,)?) => {$(
        $linker.func_wrap_async(
            MODULE,
            stringify!($name),
            |caller: Caller<'_, Host>, ($($arg,)*): ($(link!(@type $arg),)*)| {
                caller.data().channel.state().used.calls += 1;
                Box::new(async move {
                    let mut call = Call(caller);
                    let result = call.$name($($arg),*).await;
                    call.renew_slice();
                    result
                })
            },
        )?;
    )*};
    (@type $arg:ident) => { u32 };
}

/// Registers all functions with the linker.
pub(super) fn link(linker: &mut Linker<Host>) -> Outcome<()> {
    link!(
        linker,
        count_byte(at, len, byte),
        crc32(before, at, len),
        find(at, len, needle, needle_len),
        find_byte(at, len, byte),
        find_byte_last(at, len, byte),
        sha256_blocks(state, at, blocks),
    );
    Ok(())
}

#[cfg(test)]
mod tests;
