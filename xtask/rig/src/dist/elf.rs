//! Static programs: no dynamic loader, no symbols.

use anyhow::{Context as _, Result, ensure};

/// Program header that names a dynamic loader (`PT_INTERP`, `elf(5)`).
const INTERPRETER: u32 = 3;
/// Section header of a symbol table (`SHT_SYMTAB`).
const SYMBOLS: u32 = 2;

/// Checks that a 64-bit ELF file runs without a dynamic loader, and is stripped.
///
/// # Errors
/// The violation.
pub(super) fn expect_static(file: &[u8]) -> Result<()> {
    ensure!(file.starts_with(b"\x7fELF\x02\x01"), "no 64-bit little-endian ELF file");
    let segments = types(file, 32, 54, 0).context("a damaged table of segments")?;
    ensure!(!segments.is_empty(), "no segments");
    ensure!(!segments.contains(&INTERPRETER), "it needs a dynamic loader");
    let sections = types(file, 40, 58, 4).context("a damaged table of sections")?;
    ensure!(!sections.contains(&SYMBOLS), "it has a symbol table");
    Ok(())
}

/// Returns the types of all headers of a table: its offset is at `offset`, the size and number of
/// its entries at `shape`, the type at `within` of each.
fn types(file: &[u8], offset: usize, shape: usize, within: usize) -> Option<Vec<u32>> {
    let at = u64::from_le_bytes(file.get(offset..offset + 8)?.try_into().ok()?);
    let half = |at: usize| Some(u16::from_le_bytes(file.get(at..at + 2)?.try_into().ok()?));
    let (size, count) = (usize::from(half(shape)?), usize::from(half(shape + 2)?));
    let first = usize::try_from(at).ok()?.checked_add(within)?;
    let kind = |number: usize| {
        let at = first.checked_add(number * size)?;
        Some(u32::from_le_bytes(file.get(at..at.checked_add(4)?)?.try_into().ok()?))
    };
    (0..count).map(kind).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dynamic_program_is_refused() {
        let own = std::fs::read("/proc/self/exe").expect("this program");
        let error = expect_static(&own).expect_err("it is dynamic");
        assert_eq!(error.to_string(), "it needs a dynamic loader");
        assert!(expect_static(b"#!/bin/sh\n").is_err());
        assert!(expect_static(&own[..60]).is_err());
    }
}
