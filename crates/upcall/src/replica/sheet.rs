//! `upcall replica import` and `export`: sheets from and to CSV and XLSX files.

use super::op_session::{OpSession, place};
use super::report::Report;
use crate::bounded;
use crate::remote::frame::{self, Frame};
use crate::remote::{At, Outcome, Trouble};
use clap::Args;
use replica::data::sheet::{CELLS_MAX, Cell, Region, Scalar, csv_bytes};
use replica::data::{Kind, Value as Answer};
use serde_json::json;
use spreadsheet::{Import as Cells, loads, read_csv, read_xlsx, xlsx_bytes};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Timeout of each operation, seconds.
const WAIT: f64 = 30.0;

/// Maximum number of notes about changed contents.
const NOTES_MAX: usize = 10;

/// Options of `upcall replica import`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Import {
    #[command(flatten)]
    at: At,

    /// Name of the service, of the type sheet
    #[arg(value_name = "SERVICE")]
    service: String,

    /// File to import: .csv or .xlsx
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Sheet of an .xlsx file [default: the first]
    #[arg(long, value_name = "NAME")]
    sheet: Option<String>,
}

/// Options of `upcall replica export`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Export {
    #[command(flatten)]
    at: At,

    /// Name of the service, of the type sheet
    #[arg(value_name = "SERVICE")]
    service: String,

    /// File to write: .csv (displayed values) or .xlsx (also formulas); an existing file is
    /// replaced
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Maximum size of an imported file, bytes.
const FILE_MAX: u64 = 256 << 20;

/// Enters the contents of a file into a sheet.
pub(crate) fn import(import: &Import) -> ExitCode {
    frame::run(&place(&import.at, &import.service, WAIT), false, |frame| {
        let path = &import.file;
        let bytes = bounded::read(path, FILE_MAX).map_err(|error| trouble("read", path, &error))?;
        let Cells { cells, notes } = match extension(path)? {
            Form::Csv => read_csv(&bytes),
            Form::Xlsx => read_xlsx(&bytes, import.sheet.as_deref()),
        }
        .map_err(|error| trouble("read", path, &error))?;
        require_sheet(frame, &import.service)?;
        let (count, mut typed) = (cells.len(), 0);
        let mut op_session = OpSession::open(frame)?;
        let loads = loads(cells);
        let all = loads.len();
        for load in loads {
            let op = serde_json::to_value(&load).expect("operations are JSON");
            op_session.value(&json!({ "op": op, "timeout": WAIT }))?;
            typed += 1;
            frame.if_interrupted(format!("{typed} of {all} parts of the file were typed"));
        }
        frame::emit(&format!("{count} cells of {} were typed\n", path.display()))?;
        for (cell, why) in notes.iter().take(NOTES_MAX) {
            frame::emit(&format!("{cell}: {why}; its value was entered instead\n"))?;
        }
        if let Some(more @ 1..) = notes.len().checked_sub(NOTES_MAX) {
            frame::emit(&format!("and {more} more\n"))?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Writes the contents of a sheet to a file.
pub(crate) fn export(export: &Export) -> ExitCode {
    frame::run(&place(&export.at, &export.service, WAIT), false, |frame| {
        let (path, form) = (&export.file, extension(&export.file)?);
        require_sheet(frame, &export.service)?;
        let (bytes, count) = whole(frame, &form).map_err(|error| match error {
            Trouble::Host(why) => Trouble::Host(format!("cannot export: {why}")),
            other @ (Trouble::Server(_) | Trouble::ReaderClosed) => other,
        })?;
        std::fs::write(path, bytes).map_err(|error| trouble("write", path, &error))?;
        frame::emit(&format!("{count} cells are in {}\n", path.display()))?;
        Ok(ExitCode::SUCCESS)
    })
}

/// Refuses services of other types, naming an operation that they support.
fn require_sheet(frame: &Frame, service: &str) -> Outcome<()> {
    let kind = Report::read(frame)?.kind;
    if kind == Kind::Sheet {
        return Ok(());
    }
    let words = kind.words();
    let line = words.trim_start().split("  ").next().unwrap_or_default();
    Err(Trouble::Host(format!(
        "'{service}' is a {kind}, and CSV and XLSX files are for sheets; send operations, each in \
         a line like '{line}', with 'upcall op {service} < FILE'"
    )))
}

/// Returns a file with the contents of a sheet, and the number of cells.
fn whole(frame: &Frame, form: &Form) -> Outcome<(Vec<u8>, u64)> {
    let mut op_session = OpSession::open(frame)?;
    let used = op_session.value(&json!({ "op": "used" }))?;
    let Some(used) = used.as_str() else {
        return match form {
            Form::Csv => Ok((csv_bytes(&[]), 0)),
            Form::Xlsx => Err(Trouble::Host("the sheet is empty; use .csv".to_string())),
        };
    };
    let region: Region = used.parse().map_err(|_| unknown(used))?;
    let shown = rows(&mut op_session, "range", region)?;
    let bytes = match form {
        Form::Csv => csv_bytes(&shown),
        Form::Xlsx => xlsx_bytes(region, &rows(&mut op_session, "inputs", region)?, &shown)
            .map_err(|error| Trouble::Host(error.to_string()))?,
    };
    Ok((bytes, region.area()))
}

/// Reads all rows of a region, as many at once as a reply holds.
fn rows(op_session: &mut OpSession, what: &str, region: Region) -> Outcome<Vec<Vec<Scalar>>> {
    let at_once = u32::try_from(CELLS_MAX).unwrap_or(u32::MAX) / region.columns().max(1);
    let (mut rows, mut row) = (Vec::new(), region.first().row());
    while row <= region.last().row() {
        let last = row.saturating_add(at_once.max(1) - 1).min(region.last().row());
        let corner = |row, column| Cell::at(row, column).expect("it is within the region");
        let part = Region::between(
            corner(row, region.first().column()),
            corner(last, region.last().column()),
        );
        let answer =
            op_session.value(&json!({ "op": { what: part.to_string() }, "timeout": WAIT }))?;
        match serde_json::from_value::<Answer>(answer.clone()) {
            Ok(Answer::Rows(some)) => rows.extend(some),
            Ok(_) | Err(_) => return Err(unknown(&answer.to_string())),
        }
        row = last + 1;
    }
    Ok(rows)
}

/// Format of a file, by its name.
enum Form {
    Csv,
    Xlsx,
}

fn extension(path: &Path) -> Outcome<Form> {
    let extension = path.extension().unwrap_or_default().to_ascii_lowercase();
    match extension.to_str() {
        Some("csv") => Ok(Form::Csv),
        Some("xlsx") => Ok(Form::Xlsx),
        Some(_) | None => {
            let shown = path.display();
            Err(Trouble::Host(format!("{shown}: name a file that ends in .csv or .xlsx")))
        }
    }
}

fn trouble(doing: &str, path: &Path, error: &dyn std::fmt::Display) -> Trouble {
    Trouble::Host(format!("cannot {doing} {}: {error}", path.display()))
}

fn unknown(reply: &str) -> Trouble {
    Trouble::Host(format!("the server answers {reply}; is the service a sheet?"))
}
