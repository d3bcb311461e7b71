//! Import and export of sheets: CSV, and XLSX as written by common spreadsheets.
//!
//! An imported file becomes operations, so the client parses it, not a replica.

#[cfg(test)]
mod tests;

use calamine::{
    DataRef, ExcelDateTime, Reader, Xlsx, XlsxCellFormulaMetadataRecord, XlsxFormulaMetadata,
    expand_shared_formula,
};
use replica::data::sheet::{Cell, Operator, Region, Scalar, TEXT_MAX};
use rust_xlsxwriter::{Formula, Workbook, XlsxError};
use std::collections::BTreeMap;
use std::fmt;
use std::io::Cursor;

/// Maximum bytes of inputs in one load operation, unless it has a single cell.
const LOAD_MAX: usize = 256 << 10;

/// Reason why a file cannot be read or written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unusable(String);

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unusable {}

/// Contents of an imported file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Import {
    /// Inputs to set.
    pub cells: BTreeMap<Cell, String>,
    /// Cells whose imported content differs from the file, each with the reason.
    pub notes: Vec<(Cell, String)>,
}

impl Import {
    /// Adds a cell with this input; a formula that cannot be evaluated here is replaced by the
    /// value displayed in the file.
    fn take(&mut self, cell: Cell, input: String, shown: Option<String>) {
        let complaint = Operator::Set(cell, input.clone()).complaint();
        let Some(why) = complaint else {
            self.cells.insert(cell, input);
            return;
        };
        // The note stores the cell beside its cause.
        let why = why.strip_prefix(&format!("{cell}: ")).map_or(why.clone(), str::to_owned);
        self.notes.push((cell, why));
        self.cells.extend(shown.map(|mut shown| {
            // Truncate at character boundaries.
            while shown.len() > TEXT_MAX {
                shown.pop();
            }
            (cell, shown)
        }));
    }
}

fn cell(row: usize, column: usize) -> Result<Cell, Unusable> {
    let from_one = |number: usize| u32::try_from(number).ok()?.checked_add(1);
    let place = from_one(row).zip(from_one(column));
    let cell = place.and_then(|(row, column)| Cell::at(row, column));
    cell.ok_or_else(|| Unusable(format!("row {row}, column {column} is outside of a sheet")))
}

/// Splits inputs into load operations of bounded size.
pub fn loads(cells: BTreeMap<Cell, String>) -> Vec<Operator> {
    let mut loads = Vec::new();
    let (mut load, mut length) = (BTreeMap::new(), 0);
    for (cell, input) in cells {
        if length + input.len() > LOAD_MAX && !load.is_empty() {
            loads.push(Operator::Load(std::mem::take(&mut load)));
            length = 0;
        }
        // Overhead of a cell beside its input.
        length += input.len() + 16;
        load.insert(cell, input);
    }
    if !load.is_empty() {
        loads.push(Operator::Load(load));
    }
    loads
}

/// Reads comma-separated values. Fields that begin with `=` are formulas.
pub fn read_csv(bytes: &[u8]) -> Result<Import, Unusable> {
    if let Some(line) = unclosed_quote(bytes) {
        return Err(Unusable(format!(
            "the quote that begins in line {line} is never closed; close it, and double each quote \
             inside of a quoted field"
        )));
    }
    let unusable = |error: csv::Error| Unusable(error.to_string());
    let mut import = Import::default();
    let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(bytes);
    let (mut record, mut row) = (csv::StringRecord::new(), 0);
    loop {
        let start = usize::try_from(reader.position().byte()).unwrap_or(usize::MAX);
        if !reader.read_record(&mut record).map_err(unusable)? {
            return Ok(import);
        }
        row += empty_lines(bytes.split_at_checked(start).unwrap_or((bytes, &[])));
        for (column, field) in record.iter().enumerate() {
            if !field.is_empty() {
                let text = Scalar::from(field).input();
                import.take(cell(row, column)?, field.to_owned(), Some(text));
            }
        }
        row += 1;
    }
}

/// Returns the number of the line with a quote that is not closed: the reader would take the rest
/// of the file for one field.
fn unclosed_quote(bytes: &[u8]) -> Option<usize> {
    #[derive(Clone, Copy)]
    enum State {
        /// At the start of a field.
        Start,
        Unquoted,
        /// In a field whose quote is in this line.
        Quoted(usize),
        /// After a quote in such a field: its end, or the first of two.
        Quote(usize),
    }
    let (mut state, mut line) = (State::Start, 1);
    for byte in bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes) {
        line += usize::from(*byte == b'\n');
        state = match (state, byte) {
            (State::Start, b'"') => State::Quoted(line),
            (State::Quoted(first), b'"') => State::Quote(first),
            (State::Quoted(first), _) | (State::Quote(first), b'"') => State::Quoted(first),
            (State::Start | State::Unquoted | State::Quote(_), b',' | b'\r' | b'\n') => {
                State::Start
            }
            (State::Start | State::Unquoted | State::Quote(_), _) => State::Unquoted,
        };
    }
    match state {
        State::Quoted(first) => Some(first),
        State::Start | State::Unquoted | State::Quote(_) => None,
    }
}

/// Counts the empty lines between two records, which the reader skips: they are empty rows.
fn empty_lines((before, after): (&[u8], &[u8])) -> usize {
    let ends = after.iter().take_while(|byte| matches!(byte, b'\r' | b'\n'));
    let feeds = ends.filter(|byte| **byte == b'\n').count();
    // The last record may have ended at the first half of a CRLF.
    feeds - usize::from(feeds > 0 && before.ends_with(b"\r"))
}

/// Reads a sheet of an XLSX file: the one with this name, or the first one.
pub fn read_xlsx(bytes: &[u8], name: Option<&str>) -> Result<Import, Unusable> {
    let unusable = |error: calamine::XlsxError| Unusable(error.to_string());
    let mut book = Xlsx::new(Cursor::new(bytes)).map_err(unusable)?;
    let names = book.sheet_names();
    let wanted = name.map_or(names.first(), |name| names.iter().find(|other| *other == name));
    let Some(wanted) = wanted.cloned() else {
        return Err(Unusable(format!("no such sheet; the file has {}", names.join(", "))));
    };
    // Cell by cell: a range would allocate every cell between the first and the last one.
    let mut cells = book.worksheet_cells_reader(&wanted).map_err(unusable)?;
    let (mut import, mut shared) = (Import::default(), Shared::default());
    while let Some(XlsxCellFormulaMetadataRecord { pos, value, formula }) =
        cells.next_cell_with_formula_metadata().map_err(unusable)?
    {
        let shown = shown(&value);
        let formula = match formula {
            Some(formula) => shared.formula(pos, formula).map_err(unusable)?,
            None => None,
        };
        if shown.is_none() && formula.is_none() {
            continue;
        }
        let cell = cell(pos.0 as usize, pos.1 as usize)?;
        match formula {
            // Files prefix newer functions with `_xlfn.`.
            Some(formula) => {
                import.take(cell, format!("={}", formula.replace("_xlfn.", "")), shown);
            }
            None => import.cells.extend(shown.map(|shown| (cell, shown))),
        }
    }
    Ok(import)
}

/// Shared formulas of a file by their numbers, each with the position and text of its master. (The
/// reader would allocate a table as long as the largest number, which the file chooses.)
#[derive(Debug, Default)]
struct Shared(BTreeMap<usize, ((u32, u32), String)>);

impl Shared {
    /// Returns the formula text of the cell at this position, if any.
    fn formula(
        &mut self,
        pos: (u32, u32),
        formula: XlsxFormulaMetadata,
    ) -> Result<Option<String>, calamine::XlsxError> {
        let text = match formula {
            XlsxFormulaMetadata::Normal { formula } => Some(formula),
            XlsxFormulaMetadata::Shared { shared_index, range, formula } => {
                let start = range.map_or(pos, |range| range.start);
                self.0.insert(shared_index, (start, formula.clone()));
                Some(formula)
            }
            XlsxFormulaMetadata::SharedDerived { shared_index } => {
                let known = self.0.get(&shared_index);
                let moved = |(start, text): &(_, String)| expand_shared_formula(text, *start, pos);
                known.map(moved).transpose()?
            }
            // Variants of later reader versions: the displayed value is imported.
            _later => None,
        };
        Ok(text.filter(|text| !text.is_empty()))
    }
}

/// Returns an input that displays the same as a file's cell.
fn shown(data: &DataRef<'_>) -> Option<String> {
    match data {
        DataRef::Empty => None,
        DataRef::Int(n) => Some(n.to_string()),
        DataRef::Float(x) => Some(x.to_string()),
        DataRef::Bool(is) => Some(Scalar::Bool(*is).input()),
        DataRef::DateTime(date) => Some(date_text(date).unwrap_or(date.as_f64().to_string())),
        DataRef::String(text) | DataRef::DateTimeIso(text) | DataRef::DurationIso(text) => {
            Some(Scalar::from(text.as_str()).input())
        }
        DataRef::SharedString(text) => Some(Scalar::from(*text).input()),
        DataRef::Error(error) => Some(Scalar::from(error.to_string().as_str()).input()),
    }
}

/// Formats a file's date or time as ISO 8601: `2026-01-02`, `2026-01-02T03:04:05`, `03:04:05`.
/// `None` for durations and serial numbers without a date, which stay numbers.
fn date_text(date: &ExcelDateTime) -> Option<String> {
    /// The first serial number after 9999-12-31.
    const END: f64 = 2_958_466.0;
    let serial = date.as_f64();
    if !date.is_datetime() || !(0.0..END).contains(&serial) {
        return None;
    }
    let (year, month, day, hour, minute, second, milli) = date.to_ymd_hms_milli();
    let days = format!("{year:04}-{month:02}-{day:02}");
    let milli = if milli == 0 { String::new() } else { format!(".{milli:03}") };
    let time = format!("{hour:02}:{minute:02}:{second:02}{milli}");
    Some(match (serial < 1.0, serial.fract() == 0.0) {
        (true, _) => time,
        (false, true) => days,
        (false, false) => format!("{days}T{time}"),
    })
}

/// Encodes a region as XLSX, from the inputs of its cells and their displayed values.
pub fn xlsx_bytes(
    region: Region,
    inputs: &[Vec<Scalar>],
    shown: &[Vec<Scalar>],
) -> Result<Vec<u8>, Unusable> {
    let mut book = Workbook::new();
    let sheet = book.add_worksheet();
    let mut put = |cell: Cell, input: &Scalar, shown: &Scalar| -> Result<(), XlsxError> {
        let (row, column) = (cell.row() - 1, (cell.column() - 1) as u16);
        let formula = input.to_string();
        if formula.starts_with('=') && Operator::Set(cell, formula.clone()).complaint().is_none() {
            let formula = Formula::new(formula).set_result(shown.to_string());
            return sheet.write_formula(row, column, formula).map(|_| ());
        }
        match shown {
            Scalar::Empty => Ok(()),
            Scalar::Number(number) => sheet.write_number(row, column, number.get()).map(|_| ()),
            Scalar::Bool(is) => sheet.write_boolean(row, column, *is).map(|_| ()),
            Scalar::Text(text) => sheet.write_string(row, column, &**text).map(|_| ()),
            Scalar::Error(fault) => sheet.write_string(row, column, fault.to_string()).map(|_| ()),
        }
    };
    for (row, (inputs, shown)) in (0..).zip(inputs.iter().zip(shown)) {
        for (column, (input, shown)) in (0..).zip(inputs.iter().zip(shown)) {
            let Some(cell) = region.within(row, column) else { continue };
            put(cell, input, shown).map_err(|error| Unusable(error.to_string()))?;
        }
    }
    book.save_to_buffer().map_err(|error| Unusable(error.to_string()))
}
