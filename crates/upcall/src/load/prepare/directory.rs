//! Directories of numbered files.

use super::{Prepared, Wants, fill, random, refuse, require_create};
use crate::load::flags::Flags;
use load::driver::Directory;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

/// Opens a directory of numbered files. Missing ones are created, except those that the workload
/// creates.
pub(super) fn directory(flags: &Flags, path: &Path, wants: &Wants) -> Result<Prepared, String> {
    let failed = |error: io::Error| format!("{}: {error}", path.display());
    let fresh = !path.exists();
    if !fresh && wants.changes && !flags.destroy {
        return Err(refuse(&path.display().to_string()));
    }
    if fresh {
        require_create(flags, wants, &path.display().to_string(), "it with its files")?;
    }
    let target = Directory { path: path.to_path_buf(), io_max: wants.io_max as usize };
    let size = u32::try_from(flags.file_size).map_err(|_| {
        "files of a directory have less than 4 GiB; choose a smaller --file-size".to_string()
    })?;
    let plain = (0..wants.plain).map(|number| (number, size));
    let missing = |(number, _): &(u32, u32)| !target.file(*number).exists();
    let missing: Vec<_> = wants.sizes.iter().copied().chain(plain).filter(missing).collect();
    if let Some((number, size)) = missing.first() {
        let what = target.file(*number).display().to_string();
        let made = format!("{}, and other missing ones", random(u64::from(*size)));
        require_create(flags, wants, &what, &made)?;
    }
    target.make(wants.files).map_err(failed)?;
    let total = missing.iter().map(|(_, size)| u64::from(*size)).sum();
    let mut filling = Filling { target: &target, missing: missing.into_iter(), open: None };
    fill(path, total, |_, piece| filling.write(piece)).map_err(failed)?;
    let mut span = flags.file_size;
    for number in 0..wants.plain {
        span = span.min(std::fs::metadata(target.file(number)).map_err(failed)?.len());
    }
    Ok(Prepared { target: Box::new(target), span, notes: Vec::new() })
}

/// Files filled consecutively from one stream of bytes.
struct Filling<'a, M> {
    target: &'a Directory,
    /// Numbers and sizes, bytes.
    missing: M,
    /// The file being filled, and its missing bytes.
    open: Option<(File, u32)>,
}

impl<M: Iterator<Item = (u32, u32)>> Filling<'_, M> {
    fn write(&mut self, mut piece: &[u8]) -> io::Result<()> {
        while !piece.is_empty() {
            let Some((file, lacks)) = self.open.as_mut().filter(|(_, lacks)| *lacks > 0) else {
                let Some((number, size)) = self.missing.next() else { return Ok(()) };
                self.open = Some((File::create(self.target.file(number))?, size));
                continue;
            };
            let count = piece.len().min(*lacks as usize);
            file.write_all(&piece[..count])?;
            *lacks -= count as u32;
            piece = &piece[count..];
        }
        Ok(())
    }
}
