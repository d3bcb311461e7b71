//! Iterator over a trace of any format.

use super::lines::{Lines, Source};
use super::order::Order;
use super::pair::Paired;
use super::parse::{Known, Notes, Options, Parse};
use super::{Error, Format, Traced, detect};
use super::{blkparse, blktrace, hfplayer, iolog, mqsim, msr, recording, run, spc, vscsi};
use std::fs::File;
use std::io::{BufReader, Cursor, Read};
use std::path::{Path, PathBuf};

/// Bytes of a file examined for format detection.
const HEAD: usize = 4096;

/// Size of a read, in bytes.
const BUFFER: usize = 1 << 18;

/// Iterator over the records of a trace in issue order; the first one is at 0.
pub struct Reader {
    format: Format,
    parse: Box<dyn Parse>,
    known: Known,
    order: Order,
    /// File numbers by issue order, indexed by those of the parser.
    numbers: Vec<Option<u32>>,
    names: Vec<String>,
    first_ns: Option<u64>,
    ended: bool,
    /// Error to return after the preceding records.
    failed: Option<Error>,
}

impl Reader {
    /// Opens a trace file; without a format, it is detected. For blktrace, `path` is the name
    /// before `.blktrace.` or any of the files, and all of them are read.
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

    /// Reads from any source; `file` is its name in errors.
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

    /// Returns the format of the trace.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Returns the names of the files seen so far, by number.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns the irregularities so far.
    pub fn notes(&self) -> Notes {
        Notes { late: self.order.late(), ..self.known.notes }
    }

    /// Returns the number of a file with this number of the parser.
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
