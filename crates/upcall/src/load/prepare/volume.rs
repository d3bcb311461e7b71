//! Volumes of Upcall.

use super::{Prepared, Wants, fill, refuse, require_create};
use crate::load::flags::Flags;
use crate::size;
use load::driver::Store;
use std::io;
use std::path::Path;

/// Opens or creates a volume, and fills the data to be read.
pub(super) fn volume(flags: &Flags, path: &Path, wants: &Wants) -> Result<Prepared, String> {
    let failed = |error: embed::Error| error.to_string();
    let fresh = !path.exists();
    if fresh {
        let made = format!("it, with files of {}", size::show(flags.file_size));
        require_create(flags, wants, &path.display().to_string(), &made)?;
        // The store needs room for replacements of existing data.
        let bytes = flags.file_size.checked_mul(2 * u64::from(wants.files.max(1)));
        let bytes = bytes.and_then(|bytes| bytes.checked_add(256 << 20));
        let bytes = bytes.ok_or("a volume cannot be so large; choose a smaller --file-size")?;
        err_line!("making the volume {}: {}", path.display(), size::show(bytes));
        drop(embed::Volume::create(path, bytes).map_err(failed)?);
    } else if !flags.destroy && wants.changes {
        return Err(refuse(&path.display().to_string()));
    }
    // The volume's threads block signals, which are for the run.
    reactor::hold_signals();
    let only_reads = !fresh && !flags.destroy && !wants.changes;
    let store = match only_reads {
        true => Store::open_to_read(path),
        false => Store::open(path, flags.durable).map(Some),
    };
    reactor::let_signals_through();
    let store = store.map_err(failed)?.ok_or_else(|| {
        format!(
            "no load ever wrote to the volume {}, and a run that only reads changes nothing: give \
             --destroy to fill it, or another target",
            path.display()
        )
    })?;
    let mut notes = Vec::new();
    for number in 0..wants.files.max(1) {
        if store.is_filled(number, flags.file_size).map_err(failed)? {
            continue;
        }
        if !fresh && !flags.destroy {
            notes.push(
                "the volume has no data in the range that is read, and unwritten ranges cost \
                 almost nothing to read; --destroy fills it"
                    .to_string(),
            );
            break;
        }
        let filled = fill(path, flags.file_size, |offset, piece| {
            store.put(number, offset, piece.to_vec()).map_err(io::Error::other)
        });
        filled.map_err(|error| format!("cannot fill {}: {error}", path.display()))?;
    }
    Ok(Prepared { target: Box::new(store), span: flags.file_size, notes })
}
