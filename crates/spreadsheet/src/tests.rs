use super::*;
use expect_test::expect;
use replica::data::kind;
use replica::data::sheet::{self, csv_bytes};
use replica::data::{DataType as _, Kind, Sheet, Value};

type State = sheet::State;

/// Returns a sheet with these inputs.
fn with(cells: impl IntoIterator<Item = (Cell, String)>) -> State {
    let mut state = Sheet.initial();
    let cells = cells.into_iter().collect();
    assert_eq!(Sheet.apply(&mut state, &Operator::Load(cells)), Value::Done);
    state
}

fn cell(name: &str) -> Cell {
    name.parse().expect("is a cell")
}

fn at(row: u32, column: u32) -> Cell {
    Cell::at(row, column).expect("is in the sheet")
}

fn region(name: &str) -> Region {
    name.parse().expect("is a region")
}

const CELLS: &[(&str, &str)] = &[
    ("A1", "1"),
    ("A2", "2.5"),
    ("A3", "four"),
    ("A4", "'7"),
    ("A5", "true"),
    ("A6", "=A1+A2"),
    ("B1", "apple"),
    ("B2", "Pear"),
    ("B3", "plum"),
    ("C1", "10"),
    ("C2", "20"),
    ("C3", "30"),
];

fn rows(state: &mut State, operator: &Operator) -> Vec<Vec<sheet::Scalar>> {
    let Value::Rows(rows) = Sheet.apply(state, operator) else {
        panic!("{operator:?} has rows");
    };
    rows
}

#[test]
fn files_return() {
    let cells = CELLS.iter().map(|(name, input)| (cell(name), (*input).to_owned()));
    let quoted = [("A8", "'=A1"), ("A9", "'007"), ("B8", "a,\"b\"\nc"), ("C9", "=CONCAT(B1:B3)")];
    let quoted = quoted.map(|(name, input)| (cell(name), input.to_owned()));
    let mut state = with(cells.chain(quoted));
    let all = region("A1:C9");
    assert_eq!(Sheet.apply(&mut state, &Operator::Used), Value::Bytes("A1:C9".into()));
    let (inputs, shown) = (Operator::Inputs(all), Operator::Range(all));
    let (inputs, shown) = (rows(&mut state, &inputs), rows(&mut state, &shown));
    // Round trip with formulas, through the file format of another program.
    let file = xlsx_bytes(all, &inputs, &shown).expect("can be written");
    let import = read_xlsx(&file, None).expect("can be read");
    assert_eq!(import.notes, []);
    let mut again = with(import.cells.clone());
    assert_eq!(rows(&mut again, &Operator::Range(all)), shown);
    assert_eq!(import.cells[&cell("A6")], "=A1+A2");
    assert!(read_xlsx(&file, Some("no such sheet")).is_err());
    // CSV has the displayed values or the inputs.
    let typed = read_csv(&csv_bytes(&inputs)).expect("can be read");
    assert_eq!(with(typed.cells), state);
    let csv = csv_bytes(&shown);
    expect![[r#"
        1,apple,10
        2.5,Pear,20
        four,plum,30
        7,,
        TRUE,,
        3.5,,
        ,,
        =A1,"a,""b""
        c",
        007,,applePearplum
    "#]]
    .assert_eq(&String::from_utf8(csv).expect("is text"));
}

#[test]
fn dates_of_files_are_iso_dates() {
    let mut book = rust_xlsxwriter::Workbook::new();
    let sheet = book.add_worksheet();
    let forms = [
        (46_024.0, "yyyy-mm-dd", "2026-01-02"),
        (46_024.0, "dd/mm/yy", "2026-01-02"),
        (46_024.127_835_648_15, "dd/mm/yyyy hh:mm:ss", "2026-01-02T03:04:05"),
        (0.75, "hh:mm", "18:00:00"),
        (1.5, "[hh]:mm", "1.5"),
        (46_024.0, "0.00", "46024"),
        (-1.0, "yyyy-mm-dd", "-1"),
    ];
    for (row, (number, form, _)) in (0..).zip(forms) {
        let form = rust_xlsxwriter::Format::new().set_num_format(form);
        sheet.write_number_with_format(row, 0, number, &form).expect("a cell");
    }
    let file = book.save_to_buffer().expect("a file");
    let import = read_xlsx(&file, None).expect("can be read");
    let expected = (1..).zip(forms).map(|(row, (_, _, text))| (at(row, 1), text.to_owned()));
    assert_eq!(import.cells, expected.collect());
    let mut state = with(import.cells);
    let shown = rows(&mut state, &Operator::Range(region("A1:A1")));
    assert_eq!(shown, [["2026-01-02".into()]]);
}

#[test]
fn a_quote_that_is_never_closed_is_refused_with_its_line() {
    for (file, line) in [
        ("a,b\n1,\"x\n2,y\n", 2),
        ("a\n\"b\"\"\nc\n\"\"d\n", 2),
        ("\u{feff}\"a", 1),
        ("a,\"b\nc\"\n\n\"d,\n", 4),
    ] {
        let error = read_csv(file.as_bytes()).expect_err(file).to_string();
        assert!(error.starts_with(&format!("the quote that begins in line {line} is")), "{error}");
    }
    for file in ["a\"b,c\n", "\"a\"\"b\",c", "\"a\nb\",\"\"", "\"a\"b\"\n", ""] {
        assert!(read_csv(file.as_bytes()).is_ok(), "{file}");
    }
}

#[test]
fn files_of_others() {
    let import = read_csv(b"a,=NOW(),3\n\n=1+,=A1\r\n\r\n\"x\n\",\n\n\ny").expect("can be read");
    let notes: Vec<_> = import.notes.iter().map(|(cell, why)| format!("{cell:?} {why}")).collect();
    expect![[r#"
        B1 NOW depends on more than cells: replicas would differ
        A3 Unexpected end of tokens"#]]
    .assert_eq(&notes.join("\n"));
    let typed = import.cells.iter().map(|(cell, input)| format!("{cell} {input}"));
    expect![[r#"
        A1 a
        B1 '=NOW()
        C1 3
        A3 '=1+
        B3 =A1
        A5 x

        A8 y"#]]
    .assert_eq(&typed.collect::<Vec<_>>().join("\n"));
    assert!(read_xlsx(b"no such file", None).is_err());
    let mut file = xlsx_bytes(region("A1"), &[vec!["=1".into()]], &[vec!["1".into()]])
        .expect("can be written");
    for seed in 0..300 {
        let mut rng = base::rng::seeded(seed);
        let at = rng.usize(..file.len());
        let before = std::mem::replace(&mut file[at], rng.u8(..));
        let _ = read_xlsx(&file, None);
        let _ = read_csv(&file);
        file[at] = before;
    }
    let cells: BTreeMap<_, _> = (1..=100).map(|row| (at(row, 1), "x".repeat(20_000))).collect();
    let loads = loads(cells.clone());
    assert_eq!(loads.len(), 8);
    let all = loads.into_iter().map(kind::Operator::Sheet);
    let mut state = Kind::Sheet.initial();
    for load in all {
        assert_eq!(Kind::Sheet.admits(&load), Ok(()));
        Kind::Sheet.apply(&mut state, &load);
    }
    assert_eq!(state, kind::State::Sheet(with(cells)));
}
