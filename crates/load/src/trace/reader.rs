//! The iterator over a trace, whatever its format.

use super::lines::{Lines, Source};
use super::names::Names;
use super::order::Order;
use super::pair::Paired;
use super::{Error, Format, Traced, detect};
use super::{blkparse, blktrace, hfplayer, iolog, mqsim, msr, recording, run, spc, vscsi};
use std::fs::File;
use std::io::{BufReader, Cursor, Read};
use std::path::{Path, PathBuf};

/// How much of a file is looked at to know its format, bytes.
const HEAD: usize = 4096;

/// How much is read at a time, bytes.
const BUFFER: usize = 1 << 18;

/// Which event of a block device is the issue of an I/O.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Issue {
    /// When it was queued (`Q`), or when the driver got it if no `Q` is among the first events.
    #[default]
    Any,
    /// When it was queued (`Q`): what the application did.
    Queued,
    /// When the driver got it (`D`): after merging and scheduling.
    Driver,
}

/// What `wait` means in version 2 of fio's I/O log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wait {
    /// So many microseconds after the `wait` before: what fio's manual says.
    #[default]
    Micros,
    /// Until so many milliseconds after the start: what fio does (3.33, `read_iolog_get`).
    Millis,
}

/// How a trace is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Which event is the issue, where a format has several.
    pub issue: Issue,
    /// What `wait` means.
    pub wait: Wait,
    /// How many records are held to put them into order.
    pub window: usize,
    /// How many issues may wait for their completions; the oldest goes on without one then.
    pub pending: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options { issue: Issue::Any, wait: Wait::Micros, window: 8192, pending: 65_536 }
    }
}

/// What was not as it should be, and could be read nevertheless.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    /// Records older than what was given before; they have its time now.
    pub late: u64,
    /// Records that are no I/O: commands of other kinds, notes, summaries.
    pub skipped: u64,
    /// Completions of what was not seen to be issued.
    pub unmatched: u64,
    /// Records whose checksum is wrong.
    pub damaged: u64,
    /// Bytes of a last record that is not complete.
    pub cut_bytes: u64,
}

/// What a parser knows beside its place in the file.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) names: Names,
    pub(super) notes: Notes,
}

/// The parser of one format. Its times begin anywhere.
pub(super) trait Parse: Send {
    /// The next record in the order of the file.
    fn next(&mut self, known: &mut Known) -> Result<Option<Traced>, Error>;
}

/// A trace, record by record in the order of issue; the first one is at 0.
pub struct Reader {
    format: Format,
    parse: Box<dyn Parse>,
    known: Known,
    order: Order,
    /// The numbers of files in the order of issue, by those in the order of the file.
    numbers: Vec<Option<u32>>,
    names: Vec<String>,
    first_ns: Option<u64>,
    ended: bool,
    /// What is to be said after the records before it.
    failed: Option<Error>,
}

impl Reader {
    /// Opens a file; without a format, what it holds tells it. For blktrace, `path` is the name
    /// before `.blktrace.` or any of the files; all of them are read.
    pub fn open(path: &Path, format: Option<Format>, options: Options) -> Result<Reader, Error> {
        let parts = match format {
            Some(Format::BlktraceBinary) => blktrace::parts(path),
            None if !path.is_file() || blktrace::is_part(path) => blktrace::parts(path),
            Some(_) | None => Vec::new(),
        };
        if !parts.is_empty() {
            return Reader::open_parts(&parts, options);
        }
        let file = path.display().to_string();
        let source = File::open(path).map_err(|error| Error::system(&file, &error))?;
        Reader::from_read(&file, source, format, options)
    }

    /// Reads what comes from anywhere; `file` is what errors call it.
    pub fn from_read(
        file: &str,
        mut source: impl Read + Send + 'static,
        format: Option<Format>,
        options: Options,
    ) -> Result<Reader, Error> {
        let mut head = Vec::with_capacity(HEAD);
        let read = source.by_ref().take(HEAD as u64).read_to_end(&mut head);
        read.map_err(|error| Error::system(file, &error))?;
        let format = format.map_or_else(|| detect(&head, Path::new(file)), Ok)?;
        let whole = Cursor::new(head).chain(source);
        let source: Source = Box::new(BufReader::with_capacity(BUFFER, whole));
        Ok(Reader::new(format, options, parser(format, source, file, options)?))
    }

    fn open_parts(parts: &[PathBuf], options: Options) -> Result<Reader, Error> {
        let mut sources: Vec<(String, Source)> = Vec::new();
        for path in parts {
            let file = path.display().to_string();
            let source = File::open(path).map_err(|error| Error::system(&file, &error))?;
            sources.push((file, Box::new(BufReader::with_capacity(BUFFER, source))));
        }
        let events = blktrace::Events::new(sources);
        let parse = Box::new(Paired::new(events, options));
        Ok(Reader::new(Format::BlktraceBinary, options, parse))
    }

    fn new(format: Format, options: Options, parse: Box<dyn Parse>) -> Reader {
        let order = Order::new(options.window);
        let (known, first_ns, failed) = (Known::default(), None, None);
        let (numbers, names) = (Vec::new(), Vec::new());
        Reader { format, parse, known, order, numbers, names, first_ns, ended: false, failed }
    }

    /// How the trace is written down.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The names of the files seen so far, by their numbers.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// What was not as it should be so far.
    pub fn notes(&self) -> Notes {
        Notes { late: self.order.late(), ..self.known.notes }
    }

    /// The number of a file that has this number in the order of the file.
    fn number(&mut self, of_parser: u32) -> u32 {
        let index = usize::try_from(of_parser).expect("it is below FILES_MAX");
        if index >= self.numbers.len() {
            self.numbers.resize(index + 1, None);
        }
        if let Some(number) = self.numbers[index] {
            return number;
        }
        let number = u32::try_from(self.names.len()).expect("it is below FILES_MAX");
        self.names.push(self.known.names.list()[index].clone());
        self.numbers[index] = Some(number);
        number
    }

    fn advance(&mut self) -> Option<Traced> {
        while !self.ended {
            match self.parse.next(&mut self.known) {
                Ok(Some(record)) => {
                    let first = self.order.push(record);
                    if first.is_some() {
                        return first;
                    }
                }
                Ok(None) => self.ended = true,
                Err(error) => (self.ended, self.failed) = (true, Some(error)),
            }
        }
        self.order.pop()
    }
}

impl Iterator for Reader {
    type Item = Result<Traced, Error>;

    fn next(&mut self) -> Option<Result<Traced, Error>> {
        let Some(mut record) = self.advance() else {
            return self.failed.take().map(Err);
        };
        record.at_ns -= *self.first_ns.get_or_insert(record.at_ns);
        record.io.file = self.number(record.io.file);
        Some(Ok(record))
    }
}

fn parser(
    format: Format,
    source: Source,
    file: &str,
    options: Options,
) -> Result<Box<dyn Parse>, Error> {
    let lines = |source| Lines::new(source, file, format);
    Ok(match format {
        Format::BlktraceBinary => {
            let events = blktrace::Events::new(vec![(file.to_string(), source)]);
            Box::new(Paired::new(events, options))
        }
        Format::BlkparseText => {
            Box::new(Paired::new(blkparse::Events::new(lines(source)), options))
        }
        Format::Iolog2 => Box::new(iolog::Parser::version2(lines(source), options.wait)),
        Format::Iolog3 => Box::new(iolog::Parser::version3(lines(source))),
        Format::Msr => Box::new(msr::Parser::new(lines(source))),
        Format::Spc => Box::new(spc::Parser::new(lines(source))),
        Format::Vscsi => Box::new(vscsi::Parser::new(source, file)?),
        Format::Mqsim => Box::new(mqsim::Parser::new(lines(source))),
        Format::Hfplayer => Box::new(hfplayer::Parser::new(lines(source))?),
        Format::Recording => Box::new(recording::Parser::new(source, file)?),
        Format::Run => Box::new(run::Parser::new(source, file)?),
    })
}
