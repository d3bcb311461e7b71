//! A fuzzer of XLSX files.

use super::operations::{perform, same_again};
use super::streams;
use base::rng::Rng;
use replica::data::kind::Operator;
use replica::data::{DataType as _, Kind};
use spreadsheet::{loads, read_xlsx};
use std::io::{Cursor, Write as _};
use zip::write::{SimpleFileOptions, ZipWriter};
use zip::{CompressionMethod, DateTime};

/// Parts of a file around its cells.
const PARTS: [(&str, &str); 4] = [
    (
        "_rels/.rels",
        "<Relationships><Relationship Id=\"r0\" Target=\"xl/workbook.xml\" \
         Type=\"http://schemas.openxmlformats.org/officeDocument/2006/relationships/\
         officeDocument\"/></Relationships>",
    ),
    ("[Content_Types].xml", "<Types/>"),
    (
        "xl/_rels/workbook.xml.rels",
        "<Relationships><Relationship Id=\"r1\" Target=\"worksheets/sheet1.xml\" \
         Type=\"http://schemas.openxmlformats.org/officeDocument/2006/relationships/worksheet\"/>\
         </Relationships>",
    ),
    (
        "xl/workbook.xml",
        "<workbook xmlns:r=\"http://schemas.openxmlformats.org/officeDocument/2006/\
         relationships\"><sheets><sheet name=\"S\" sheetId=\"1\" r:id=\"r1\"/></sheets></workbook>",
    ),
];

/// Tests files with corrupted XML: imported values are valid cell inputs.
pub(super) fn xlsx(rng: &mut Rng) {
    // Includes rows beyond any sheet, and references to missing strings.
    let (is_wild, is_spoilt) = (rng.bool(), rng.bool());
    let bytes = file(rng, is_wild, is_spoilt);
    let name = if rng.u8(..5) == 0 { Some("S") } else { None };
    let import = match read_xlsx(&bytes, name) {
        Ok(import) => import,
        Err(why) => return assert!(is_wild || is_spoilt, "{why}"),
    };
    let mut state = Kind::Sheet.initial();
    for load in loads(import.cells) {
        let json = Operator::Sheet(load).to_json();
        if let Ok(operator) = Kind::Sheet.read_json(json.as_bytes()) {
            perform(Kind::Sheet, &mut state, &operator);
        }
    }
    same_again(&state);
}

fn file(rng: &mut Rng, is_wild: bool, is_spoilt: bool) -> Vec<u8> {
    let (mut rows, mut strings) = (String::new(), String::new());
    for number in 1..rng.u32(1..6) {
        let row = if is_wild && rng.u8(..10) == 0 { 1 << rng.u32(..32) } else { number };
        rows += &format!("<row r=\"{row}\">");
        for column in ["A", "B", "XFD"].into_iter().take(rng.usize(..4)) {
            rows += &format!("<c r=\"{column}{row}\"{}", cell(rng, is_wild));
        }
        rows += "</row>";
        let text = ["a", "&lt;", "=1", "", "&#x41;"][rng.usize(..5)];
        strings += &format!("<si><t>{text}</t></si>");
    }
    let strings = format!("<sst>{strings}</sst>");
    let sheet = format!("<worksheet><sheetData>{rows}</sheetData></worksheet>");
    let cells = [("xl/sharedStrings.xml", &*strings), ("xl/worksheets/sheet1.xml", &*sheet)];
    let mut file = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default()
        .compression_method(CompressionMethod::Stored)
        .last_modified_time(DateTime::default());
    // Mostly the part with the cells.
    let spoilt = rng.usize(..18).min(5);
    for (index, (name, text)) in PARTS.into_iter().chain(cells).enumerate() {
        let mut bytes = text.as_bytes().to_vec();
        if is_spoilt && index == spoilt {
            streams::spoil(rng, &mut bytes);
        }
        file.start_file(name, options).expect("memory takes it");
        file.write_all(&bytes).expect("memory takes it");
    }
    let mut bytes = file.finish().expect("memory takes it").into_inner();
    if is_spoilt && rng.u8(..5) == 0 {
        streams::spoil(rng, &mut bytes);
    }
    bytes
}

/// Draws the rest of a cell after its position.
fn cell(rng: &mut Rng, is_wild: bool) -> String {
    let number = streams::number(rng);
    let shared = rng.u32(..) >> rng.u32(..32);
    match rng.u8(..if is_wild { 9 } else { 6 }) {
        0 => "/>".to_owned(),
        1 => format!("><v>{number}</v></c>"),
        2 if is_wild => format!(" t=\"s\"><v>{}</v></c>", rng.u32(..8)),
        2 => " t=\"s\"><v>0</v></c>".to_owned(),
        3 => " t=\"b\"><v>1</v></c>".to_owned(),
        4 => " t=\"e\"><v>#REF!</v></c>".to_owned(),
        5 => " t=\"inlineStr\"><is><t>x</t></is></c>".to_owned(),
        6 => format!("><f>A1*{number}</f><v>3</v></c>"),
        7 => format!("><f t=\"shared\" si=\"{shared}\" ref=\"A1:A9\">A1+1</f><v>1</v></c>"),
        _ => format!("><f t=\"shared\" si=\"{shared}\"/></c>"),
    }
}
