//! Displayed values of sheets.

use super::*;
use crate::data::sheet::{Cell, Operator, Region, function_names};
use expect_test::{Expect, expect};

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

fn get(state: &mut State, name: &str) -> String {
    let value = Sheet.apply(state, &Operator::Get(cell(name)));
    serde_json::to_string(&value).expect("has a form")
}

/// Compares the displayed values of formulas beside these cells, one a line.
fn shows(formulas: &str, expected: &Expect) {
    let mut lines = String::new();
    for formula in formulas.trim_matches('\n').lines() {
        let typed = CELLS.iter().copied().chain([("Z9", formula)]);
        let mut state = with(typed.map(|(name, input)| (cell(name), input.to_owned())));
        lines.push_str(&format!("{formula}  {}\n", get(&mut state, "Z9")));
    }
    expected.assert_eq(&lines);
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

const OPERATORS: &str = r##"
5
'5
TRUE
 1e3
1,5
=A6*2
=A1&A2
="1"+1
=A4+1
=A3+1
=-2^2
=2^3^2
=50%
=1/3
=0.1+0.2=0.3
=0.1+0.2&""
=1e20&""
=1/0
=9^9^9^9
=(-8)^(1/3)
=D9
=D9&""
=D9=0
="a"="A"
=2<"1"
=A1:A3
=nothing
=Other!A1
=XFE1
=A1+
={1,2}
=#N/A
"##;

#[test]
fn operators_and_texts() {
    shows(
        OPERATORS,
        &expect![[r##"
            5  5.0
            '5  "5"
            TRUE  true
             1e3  1000.0
            1,5  "1,5"
            =A6*2  7.0
            =A1&A2  "12.5"
            ="1"+1  2.0
            =A4+1  8.0
            =A3+1  {"error":"#VALUE!"}
            =-2^2  4.0
            =2^3^2  64.0
            =50%  0.5
            =1/3  0.3333333333333333
            =0.1+0.2=0.3  false
            =0.1+0.2&""  "0.3"
            =1e20&""  "1E20"
            =1/0  {"error":"#DIV/0!"}
            =9^9^9^9  {"error":"#NUM!"}
            =(-8)^(1/3)  {"error":"#NUM!"}
            =D9  0.0
            =D9&""  ""
            =D9=0  true
            ="a"="A"  true
            =2<"1"  true
            =A1:A3  {"error":"#VALUE!"}
            =nothing  {"error":"#NAME?"}
            =Other!A1  {"error":"#REF!"}
            =XFE1  {"error":"#NAME?"}
            =A1+  {"error":"#ERROR!"}
            ={1,2}  {"error":"#VALUE!"}
            =#N/A  {"error":"#N/A"}
        "##]],
    );
}

const FUNCTIONS: &str = r##"
=SUM(A1:A6, 1)
=SUM("x")
=AVERAGE(C1:C3)
=AVERAGE(D1:D3)
=MIN(A1:C6)
=MAX(A:C)
=MEDIAN(C1:C3,1)
=STDEV(C1:C3)
=COUNT(A1:C6)
=COUNTA(A1:C6)
=ROUND(1.005, 2)
=ROUND(-1234.5, -2)
=ROUNDUP(1.01)
=INT(-1.5)
=MOD(-3, 2)
=MOD(3, 0)
=SQRT(-1)
=LN(EXP(1))
=LOG(8, 2)
=ABS(-3)
=IF(A1>0, "yes", 1/0)
=IF(A1<0, 1)
=IFERROR(1/0, "no")
=ISERROR(A3+1)
=AND(A1, A5)
=NOT(OR(A1>9, FALSE))
=LEN("grün")
=LEFT(B1, 2)&RIGHT(B1)
=MID(B1, 2, 3)
=MID(B1, 0, 3)
=UPPER(B1)
=TRIM("  a  b ")
=REPT("ab", 3)
=FIND("p", B1, 3)
=FIND("x", B1)
=SUBSTITUTE(B1, "p", "")
=CONCAT(B1:B3)
=INDEX(C1:C3, 2)
=INDEX(C1:C3, 4)
=MATCH("pear", B1:B3, 0)
=MATCH(25, C1:C3)
=VLOOKUP("plum", B1:C3, 2, FALSE)
=VLOOKUP("x", B1:C3, 2, FALSE)
=COUNTIF(C1:C3, ">=20")
=COUNTIF(B1:B3, "<>plum")
=SUMIF(B1:B3, "p*", C1:C3)
=SUMIF(B1:B3, "pear", C1:C3)
=AVERAGEIF(C1:C3, ">10")
=SUMPRODUCT(C1:C3, C1:C3)
=CHOOSE(2, "a", "b")
=ROWS(A1:C6)
=NOW()
=RAND()
=ABS()
=sum(c1:c3)
"##;

#[test]
fn functions() {
    shows(
        FUNCTIONS,
        &expect![[r##"
        =SUM(A1:A6, 1)  8.0
        =SUM("x")  {"error":"#VALUE!"}
        =AVERAGE(C1:C3)  20.0
        =AVERAGE(D1:D3)  {"error":"#DIV/0!"}
        =MIN(A1:C6)  1.0
        =MAX(A:C)  30.0
        =MEDIAN(C1:C3,1)  15.0
        =STDEV(C1:C3)  10.0
        =COUNT(A1:C6)  6.0
        =COUNTA(A1:C6)  12.0
        =ROUND(1.005, 2)  1.01
        =ROUND(-1234.5, -2)  -1200.0
        =ROUNDUP(1.01)  2.0
        =INT(-1.5)  -2.0
        =MOD(-3, 2)  1.0
        =MOD(3, 0)  {"error":"#DIV/0!"}
        =SQRT(-1)  {"error":"#NUM!"}
        =LN(EXP(1))  1.0
        =LOG(8, 2)  3.0
        =ABS(-3)  3.0
        =IF(A1>0, "yes", 1/0)  "yes"
        =IF(A1<0, 1)  false
        =IFERROR(1/0, "no")  "no"
        =ISERROR(A3+1)  true
        =AND(A1, A5)  true
        =NOT(OR(A1>9, FALSE))  true
        =LEN("grün")  4.0
        =LEFT(B1, 2)&RIGHT(B1)  "ape"
        =MID(B1, 2, 3)  "ppl"
        =MID(B1, 0, 3)  {"error":"#VALUE!"}
        =UPPER(B1)  "APPLE"
        =TRIM("  a  b ")  "a b"
        =REPT("ab", 3)  "ababab"
        =FIND("p", B1, 3)  3.0
        =FIND("x", B1)  {"error":"#VALUE!"}
        =SUBSTITUTE(B1, "p", "")  "ale"
        =CONCAT(B1:B3)  "applePearplum"
        =INDEX(C1:C3, 2)  20.0
        =INDEX(C1:C3, 4)  {"error":"#REF!"}
        =MATCH("pear", B1:B3, 0)  2.0
        =MATCH(25, C1:C3)  2.0
        =VLOOKUP("plum", B1:C3, 2, FALSE)  30.0
        =VLOOKUP("x", B1:C3, 2, FALSE)  {"error":"#N/A"}
        =COUNTIF(C1:C3, ">=20")  2.0
        =COUNTIF(B1:B3, "<>plum")  2.0
        =SUMIF(B1:B3, "p*", C1:C3)  0.0
        =SUMIF(B1:B3, "pear", C1:C3)  20.0
        =AVERAGEIF(C1:C3, ">10")  25.0
        =SUMPRODUCT(C1:C3, C1:C3)  1400.0
        =CHOOSE(2, "a", "b")  "b"
        =ROWS(A1:C6)  6.0
        =NOW()  {"error":"#NAME?"}
        =RAND()  {"error":"#NAME?"}
        =ABS()  {"error":"#ERROR!"}
        =sum(c1:c3)  60.0
    "##]],
    );
}

/// All cells of a cycle display that fault, whichever is queried first, and so do their dependents.
#[test]
fn circles_are_the_same_from_everywhere() {
    let cells = [
        ("A1", "=IFERROR(B1, 5)"),
        ("B1", "=A1+C1"),
        ("C1", "=IF(FALSE, A1, 1)"),
        ("D1", "=IFERROR(A1, 7)"),
        ("E1", "=E1"),
        ("F1", "=F2"),
    ];
    let cells = cells.map(|(name, input)| (cell(name), input.to_owned()));
    let names = ["A1", "B1", "C1", "D1", "E1", "F1"];
    let each = names.map(|name| get(&mut with(cells.clone()), name));
    let circle = "{\"error\":\"#CIRC!\"}";
    assert_eq!(each, [circle, circle, circle, "7.0", circle, "0.0"]);
    let mut state = with(cells);
    let Value::Rows(rows) = Sheet.apply(&mut state, &Operator::Range(region("A1:F1"))) else {
        panic!("a range has rows");
    };
    let together = rows[0].iter().map(|scalar| serde_json::to_string(scalar).expect("has a form"));
    assert_eq!(together.collect::<Vec<_>>(), each);
}

fn region(name: &str) -> Region {
    name.parse().expect("is a region")
}

/// None of these formulas crashes or stalls the evaluator.
#[test]
fn nasty_formulas() {
    let around = |before: &str, inner: &str, after: &str, times| {
        format!("={}{inner}{}", before.repeat(times), after.repeat(times))
    };
    let wide = "A1:XFD1048576";
    let alone = [
        around("(", "1", ")", 4000),
        around("-", "1", "", 8000),
        around("ABS(", "1", ")", 1600),
        around("1+", "1", "", 4000),
        around("1^", "1", "", 4000),
        around("", "1", "%", 8000),
        around("{", "1", "}", 4000),
        around("\"", "", "", 8001),
        format!("=SUM({}1)", "1,".repeat(300)),
        format!("=SUM({}1)", format!("{wide},").repeat(200)),
        "=REPT(\"x\", 1E300)".to_owned(),
        "=REPT(REPT(\"x\", 15000), 15000)".to_owned(),
        "=LEN(REPT(\"x\", 32767))".to_owned(),
        "=SUBSTITUTE(REPT(\"x\", 32767), \"x\", REPT(\"y\", 32767))".to_owned(),
        "=9E307*10".to_owned(),
        "=ROUND(1E300, 300)".to_owned(),
        "=ROUND(1, -1E9)".to_owned(),
        "=MOD(1E308, 1E-308)".to_owned(),
        "=LEFT(\"x\", 1E300)".to_owned(),
        "=CHOOSE(1E300, 1)".to_owned(),
        "=INDEX(B1:B2, 1E300, 1E300)".to_owned(),
        format!("=SUMPRODUCT({wide}, {wide})"),
        format!("={}", "\u{1F600}".repeat(2000)),
        "=".to_owned(),
        format!("={}", "x".repeat(100_000)),
    ];
    for formula in alone {
        let mut state = with([(cell("Z9"), formula.clone()), (cell("Y1"), "1".to_owned())]);
        let shown = get(&mut state, "Z9");
        assert!(shown.len() < 40_000);
    }
}

/// A chain that uses all steps is evaluated without growth of the stack.
#[test]
fn long_chains() {
    let chain = |length| {
        let links = (1..length).map(|row| (at(row, 1), format!("=A{}+1", row + 1)));
        with(links.chain([(at(length, 1), "1".to_owned())]))
    };
    assert_eq!(get(&mut chain(15_000), "A1"), "15000.0");
    assert_eq!(get(&mut chain(200_000), "A1"), "{\"error\":\"#LIMIT!\"}");
    let mut circle = chain(15_000);
    Sheet.apply(&mut circle, &Operator::Set(at(15_000, 1), "=A1".to_owned()));
    assert_eq!(get(&mut circle, "A9"), "{\"error\":\"#CIRC!\"}");
}

/// Sheets in which each cell is harmless by itself.
#[test]
fn nasty_sheets() {
    let long = "x".repeat(32_000);
    let doubling = (2..200).map(|row| (at(row, 1), format!("=A{0}&A{0}", row - 1)));
    let sums = (1..2000).map(|row| (at(row, 2), format!("=SUM(A1:A2000)+{row}")));
    let counts = (1..500).map(|row| (at(row, 2), "=COUNTIF(A1:A500, A1)".to_owned()));
    let texts = move || {
        (1..500).map({
            let long = long.clone();
            move |row| (at(row, 1), format!("{long}{row}"))
        })
    };
    let all = (1..400).map(|row| (at(row, 2), "=SUM(C:D)".to_owned()));
    let many = (1..15_000).map(|row| (at(row, 3), "1".to_owned()));
    let numbers = || (1..2000).map(|row| (at(row, 1), row.to_string()));
    let sheets = [
        with([(at(1, 1), "xxxxxxxx".to_owned())].into_iter().chain(doubling)),
        with(numbers().chain(sums)),
        with(texts().chain(counts)),
        with(many.chain(all)),
        // Every cell reads every other.
        with((1..400).map(|row| (at(row, 1), "=COUNT(B1:B9, A1:A400)".to_owned()))),
    ];
    let limits = sheets.map(|mut state| {
        let requested = Operator::Range(region("A1:B2000"));
        let Value::Rows(rows) = Sheet.apply(&mut state, &requested) else {
            return None;
        };
        let limit = sheet::Scalar::Error(sheet::Fault::Limit);
        Some(rows.iter().flatten().filter(|scalar| **scalar == limit).count())
    });
    expect!["[Some(0), Some(1975), None, Some(394), Some(0)]"].assert_eq(&format!("{limits:?}"));
}

/// Any input displays something.
#[test]
fn formulas_of_random_words() {
    const WORDS: &[&str] = &[
        "A1",
        "B2:C3",
        "$A$1",
        "A:A",
        "1:1",
        "(",
        ")",
        ",",
        ";",
        "+",
        "-",
        "*",
        "/",
        "^",
        "&",
        "=",
        "<>",
        ">=",
        "%",
        "1",
        "2.5",
        "1E9",
        "\"x\"",
        "\"",
        "{",
        "}",
        ":",
        " ",
        "!",
        "#REF!",
        "#",
        "@",
        "[",
        "]",
        "'",
        "TRUE",
        "Sheet1!A1",
        "IF(",
        "SUM(",
        "VLOOKUP(",
        "MID(",
        "ü",
        "\u{0}",
        "LET(",
        "LAMBDA(",
        "1E999",
        "_x",
        ".",
    ];
    let mut shown = 0;
    for seed in 0..20_000 {
        let mut rng = base::rng::seeded(seed);
        let mut formula = String::from("=");
        if rng.bool() {
            // Often well-formed.
            let names: Vec<_> = function_names().collect();
            let name = rng.choice(names).expect("there are some");
            let args: Vec<_> = (0..rng.usize(..5)).map(|_| draw::input(&mut rng)).collect();
            let args: Vec<_> = args.iter().map(|arg| arg.trim_start_matches('=')).collect();
            formula.push_str(&format!("{name}({})", args.join(",")));
        }
        for _ in 0..rng.usize(..8) * usize::from(rng.bool()) {
            formula.push_str(rng.choice(WORDS).expect("there are some"));
        }
        let cells = (0..6).map(|n| (at(1 + n / 3, 1 + n % 3), draw::input(&mut rng)));
        let mut state = with(cells.chain([(cell("Z9"), formula.clone())]));
        shown += u32::from(!get(&mut state, "Z9").contains("#ERROR!"));
    }
    assert!(shown > 1000, "{shown}");
}

#[test]
fn oversized_sheets_are_refused() {
    let state = &mut with([(cell("A1"), "1".to_owned())]);
    let wrong = Value::Wrong(Wrong::TooLarge);
    assert_eq!(Sheet.apply(state, &Operator::Range(region("A1:A10001"))), wrong);
    assert_eq!(Sheet.apply(state, &Operator::Clear(region("A1:B100000"))), wrong);
    assert_eq!(get(state, "A1"), "1.0");
    for name in ["", "A", "1", "A0", "XFE1", "A1048577", "A+1", "AAAA1", "A1:", "\u{c4}1", "A1:B"] {
        assert!(name.parse::<Region>().is_err(), "{name}");
    }
    for name in ["A1", "XFD1048576", "B2:C9", "AA10"] {
        assert_eq!(region(name).to_string(), name);
    }
}

#[test]
fn the_functions_are_those_of_the_docs() {
    let docs = include_str!("../../../../../docs/replica.md");
    for name in function_names() {
        assert!(docs.contains(&format!("`{name}`")), "docs/replica.md lacks {name}");
    }
}
