//! Conversion of traces to other formats, and anonymization.
//!
//! The source may be a whole trace or the result of a [`Plan`](super::Plan):
//! `convert(&mut plan.of(&mut reader), …)`.

use super::{Adapted, Error, Files, Format, Reader, Traced, iolog, msr, recording};
use std::collections::BTreeMap;
use std::io;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Size of the output buffer, in bytes.
const CHUNK: usize = 1 << 16;

/// Writer of one format.
pub trait Write {
    /// Appends a record of the file `name` to `out`. Returns false if the format cannot represent
    /// it.
    fn write(&mut self, record: &Traced, name: &str, out: &mut Vec<u8>) -> bool;

    /// Appends the trailer after the last record.
    fn finish(&mut self, out: &mut Vec<u8>) {
        let _ = out;
    }
}

impl<W: Write + ?Sized> Write for Box<W> {
    fn write(&mut self, record: &Traced, name: &str, out: &mut Vec<u8>) -> bool {
        (**self).write(record, name, out)
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        (**self).finish(out);
    }
}

/// Returns the writer of a format, if it is supported for output.
pub fn writer(format: Format) -> Result<Box<dyn Write>, Error> {
    match format {
        Format::Iolog3 => Ok(Box::new(iolog::Writer::new())),
        Format::Msr => Ok(Box::new(msr::Writer::new())),
        Format::Recording => Ok(Box::new(recording::Writer::new())),
        Format::BlktraceBinary
        | Format::BlkparseText
        | Format::Iolog2
        | Format::Spc
        | Format::Vscsi
        | Format::Mqsim
        | Format::Hfplayer
        | Format::Run => {
            let what = format!("{format} is read only; iolog3, msr and recording are written");
            Err(Error::Lacking { what })
        }
    }
}

/// Records with file names.
pub trait Records: Iterator<Item = Result<Traced, Error>> {
    /// Returns the name of a file of a returned record, if it has one.
    fn name(&self, file: u32) -> Option<&str>;
}

impl Records for Reader {
    fn name(&self, file: u32) -> Option<&str> {
        let name = self.names().get(usize::try_from(file).ok()?)?;
        Some(name)
    }
}

impl<R: Records + ?Sized> Records for &mut R {
    fn name(&self, file: u32) -> Option<&str> {
        (**self).name(file)
    }
}

impl<R: Records> Records for Adapted<R> {
    fn name(&self, file: u32) -> Option<&str> {
        match self.plan().files {
            Files::Keep => self.inner().name(file),
            Files::One { .. } => None,
        }
    }
}

/// Result of a conversion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Converted {
    /// Records written.
    pub written: u64,
    /// Records that the format cannot represent.
    pub left_out: u64,
}

/// Writes all records; a file without a name is called `file` and its number.
pub fn convert(
    records: &mut impl Records,
    writer: &mut (impl Write + ?Sized),
    out: &mut impl io::Write,
) -> Result<Converted, Error> {
    let mut converted = Converted::default();
    let mut chunk = Vec::with_capacity(2 * CHUNK);
    while let Some(record) = records.next() {
        let record = record?;
        let file = record.io.file;
        let written = match records.name(file) {
            Some(name) => writer.write(&record, name, &mut chunk),
            None => writer.write(&record, &format!("file{file}"), &mut chunk),
        };
        converted.written += u64::from(written);
        converted.left_out += u64::from(!written);
        if chunk.len() >= CHUNK {
            flush(out, &mut chunk)?;
        }
    }
    writer.finish(&mut chunk);
    flush(out, &mut chunk)?;
    Ok(converted)
}

fn flush(out: &mut impl io::Write, chunk: &mut Vec<u8>) -> Result<(), Error> {
    out.write_all(chunk).map_err(|error| Error::system("the output", &error))?;
    chunk.clear();
    Ok(())
}

/// Writes an anonymous recording of all records: see [`Anonymous`].
pub fn anonymize(
    records: &mut impl Records,
    out: &mut impl io::Write,
    seed: u64,
) -> Result<Converted, Error> {
    convert(records, &mut Anonymous::new(recording::Writer::new(), seed), out)
}

/// Anonymizing writer. Each component of a path is replaced by its hash with a seed, which
/// preserves directories; streams are renumbered in order of appearance; times, offsets and lengths
/// are kept. The hash (XXH3) protects nothing from a reader who knows the seed and guesses names:
/// draw a random seed and discard it.
#[derive(Debug)]
pub struct Anonymous<W> {
    inner: W,
    seed: u64,
    streams: BTreeMap<u32, u32>,
    names: BTreeMap<u32, String>,
}

impl<W: Write> Anonymous<W> {
    /// Creates a writer to `inner` that hashes names with `seed`.
    pub fn new(inner: W, seed: u64) -> Anonymous<W> {
        Anonymous { inner, seed, streams: BTreeMap::new(), names: BTreeMap::new() }
    }
}

impl<W: Write> Write for Anonymous<W> {
    fn write(&mut self, record: &Traced, name: &str, out: &mut Vec<u8>) -> bool {
        let next =
            u32::try_from(self.streams.len()).expect("there are no more numbers than streams");
        let stream = *self.streams.entry(record.stream).or_insert(next);
        let seed = self.seed;
        let name = self.names.entry(record.io.file).or_insert_with(|| hidden(name, seed));
        self.inner.write(&Traced { stream, ..*record }, name, out)
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        self.inner.finish(out);
    }
}

/// Returns a path with all components hashed.
fn hidden(path: &str, seed: u64) -> String {
    let part = |part: &str| match part {
        "" => String::new(),
        part => format!("{:016x}", xxh3_64_with_seed(part.as_bytes(), seed)),
    };
    path.split('/').map(part).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hidden_path_has_as_many_parts_and_the_same_directory() {
        let (one, two) = (hidden("/home/a/x", 7), hidden("/home/a/y", 7));
        let directory = |path: &str| path.rsplit_once('/').map(|(above, _)| above.to_string());
        assert_eq!(directory(&one), directory(&two));
        assert_ne!(one, two);
        assert_ne!(one, hidden("/home/a/x", 8));
        assert_eq!(one.matches('/').count(), 3);
    }
}
