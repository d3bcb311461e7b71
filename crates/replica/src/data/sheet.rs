//! Spreadsheet: cells with numbers, texts, and formulas over other cells.
//!
//! *Inputs are replicated, not results.* Updates never parse a formula, so states stay equal even
//! if replicas (perhaps two versions of this program) understand one differently. Formulas are
//! evaluated when a query needs displayed values, within [`STEPS_MAX`] steps.
//!
//! The syntax is that of common spreadsheets, parsed by the formualizer project. The evaluator is
//! our own: available engines have hundreds of functions, some of which do not terminate for large
//! numbers, and no step limit to stop them.

mod cell;
mod evaluation;
mod formula;
mod functions;
mod scalar;

pub use cell::{COLUMNS_MAX, Cell, NoCell, ROWS_MAX, Region};
pub use evaluation::{STEPS_MAX, TEXT_MAX};
pub use formula::FORMULA_MAX;
pub use functions::names as function_names;
pub use scalar::{Fault, Number, Scalar};

use super::words::{Spoken, Word};
use super::{ANSWER_MAX, DataType, Value, Wrong};
use crate::work::{self, Meter};
use evaluation::Evaluation;
use formula::Formula;
use rpds::RedBlackTreeMapSync;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::ops::Bound;
use std::sync::{Arc, OnceLock};

/// Maximum cells displayed in one result.
pub const CELLS_MAX: u64 = 10_000;

/// Maximum rectangle cleared by one operation, in cells.
pub const CLEAR_MAX: u64 = 100_000;

/// Maximum bytes of formulas in one operation that sets several cells: each formula is parsed.
pub const FORMULAS_MAX: usize = 128 << 10;

/// Maximum cells in one operation for which commutativity with others is computed.
const COMPARED_MAX: usize = 256;

/// Formats rows as comma-separated values.
pub fn csv_bytes(rows: &[Vec<Scalar>]) -> Vec<u8> {
    let mut writer = csv::WriterBuilder::new().flexible(true).from_writer(Vec::new());
    for row in rows {
        let written = writer.write_record(row.iter().map(Scalar::to_string));
        written.expect("a vector accepts rows of any length");
    }
    writer.into_inner().expect("and is flushed")
}

/// Spreadsheet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Sheet;

/// Operation on a sheet.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Operator {
    /// Sets the input of a cell: a formula if it begins with `=`, else a number, a boolean or a
    /// text. An empty text clears the cell.
    Set(Cell, String),
    /// Sets the inputs of several cells.
    Load(BTreeMap<Cell, String>),
    /// Clears cells.
    Clear(Region),
    /// Returns the displayed value of a cell.
    Get(Cell),
    /// Returns the input of a cell.
    Input(Cell),
    /// Returns the displayed values of cells, by rows.
    Range(Region),
    /// Returns the inputs of cells, by rows.
    Inputs(Region),
    /// Returns the smallest region that contains all nonempty cells, as text.
    Used,
    /// Returns the number of nonempty cells.
    Size,
}

/// Input of a cell.
#[derive(Debug)]
struct Input {
    text: String,
    /// Parsed meaning, computed at the first query.
    meaning: OnceLock<Meaning>,
}

#[derive(Debug)]
enum Meaning {
    Constant(Scalar),
    Formula(Formula),
}

impl Input {
    fn new(text: &str) -> Input {
        Input { text: text.to_owned(), meaning: OnceLock::new() }
    }

    fn meaning(&self) -> &Meaning {
        self.meaning.get_or_init(|| match self.text.starts_with('=') {
            true => match formula::parse(&self.text) {
                Ok(formula) => Meaning::Formula(formula),
                Err(unsound) => Meaning::Constant(Scalar::Error(unsound.fault)),
            },
            false => Meaning::Constant(Scalar::typed(&self.text)),
        })
    }
}

impl PartialEq for Input {
    fn eq(&self, other: &Input) -> bool {
        self.text == other.text
    }
}

impl Eq for Input {}

impl Hash for Input {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.text.hash(hasher);
    }
}

type Cells = RedBlackTreeMapSync<Cell, Arc<Input>>;

/// Inputs of a sheet's cells.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct State {
    cells: Cells,
    /// Columns with nonempty cells, and the number of those in each.
    columns: RedBlackTreeMapSync<u32, u32>,
}

impl State {
    fn set(&mut self, cell: Cell, text: &str) {
        if text.is_empty() {
            return self.remove(cell);
        }
        if !self.cells.contains_key(&cell) {
            let count = self.columns.get(&cell.column()).map_or(1, |count| count + 1);
            self.columns.insert_mut(cell.column(), count);
        }
        self.cells.insert_mut(cell, Arc::new(Input::new(text)));
    }

    fn remove(&mut self, cell: Cell) {
        if !self.cells.remove_mut(&cell) {
            return;
        }
        match self.columns.get(&cell.column()) {
            Some(count) if *count > 1 => self.columns.insert_mut(cell.column(), count - 1),
            Some(_) | None => drop(self.columns.remove_mut(&cell.column())),
        }
    }

    /// Clears cells. Returns the number of lookups.
    fn clear(&mut self, region: Region) -> u64 {
        let (mut next, mut steps) = (Some(region.first()), 0);
        while let Some(from) = next {
            steps += 1;
            let found = self.cells.range((Bound::Included(from), Bound::Unbounded)).next();
            let Some(cell) = found.map(|(cell, _)| *cell) else { return steps };
            next = region.onward(cell);
            if next == Some(cell) {
                self.remove(cell);
            }
        }
        steps
    }

    /// Returns the formula text of a cell, which may be malformed.
    fn formula_text(&self, cell: Cell) -> Option<&str> {
        let text = &self.cells.get(&cell)?.text;
        text.starts_with('=').then_some(text)
    }

    fn meaning(&self, cell: Cell) -> Option<&Meaning> {
        self.cells.get(&cell).map(|input| input.meaning())
    }

    /// Returns the number of nonempty cells.
    pub(super) fn size(&self) -> usize {
        self.cells.size()
    }

    /// Returns the inputs of the cells after `behind`, in order.
    pub(super) fn typed(&self, behind: Option<Cell>) -> impl Iterator<Item = (Cell, &str)> {
        let from = behind.map_or(Bound::Unbounded, Bound::Excluded);
        let cells = self.cells.range((from, Bound::Unbounded));
        cells.map(|(cell, input)| (*cell, input.text.as_str()))
    }

    fn input(&self, cell: Cell) -> Scalar {
        self.cells.get(&cell).map_or(Scalar::Empty, |input| input.text.as_str().into())
    }

    /// Returns the smallest region that contains all nonempty cells.
    pub fn used(&self) -> Option<Region> {
        let rows = (self.cells.first()?.0.row(), self.cells.last()?.0.row());
        let columns = (self.columns.first()?.0, self.columns.last()?.0);
        let (first, last) = (Cell::at(rows.0, *columns.0)?, Cell::at(rows.1, *columns.1)?);
        Some(Region::between(first, last))
    }
}

/// Returns the cells of a region, by rows, if they fit a result.
fn rows(region: Region, mut show: impl FnMut(Cell) -> Scalar) -> Value {
    if region.area() > CELLS_MAX {
        return Value::Wrong(Wrong::TooLarge);
    }
    let mut room = ANSWER_MAX;
    let mut shown = Vec::new();
    for row in 0..region.rows() {
        let cells = (0..region.columns()).filter_map(|column| region.within(row, column));
        let cells: Vec<Scalar> = cells.map(&mut show).collect();
        let length = cells.iter().map(Scalar::length).sum();
        let Some(left) = room.checked_sub(length) else {
            return Value::Wrong(Wrong::TooLarge);
        };
        room = left;
        shown.push(cells);
    }
    Value::Rows(shown)
}

impl Operator {
    /// Returns the reason to reject the operator while its client can still correct it: an input
    /// that is too long, or a formula that cannot be evaluated here. (If it is applied all the
    /// same, the cell displays the fault.)
    pub fn complaint(&self) -> Option<String> {
        let complaint = |cell: &Cell, text: &str| {
            if text.starts_with('=') {
                return formula::parse(text)
                    .err()
                    .map(|unsound| format!("{cell}: {}", unsound.what));
            }
            let is_long = text.len() > TEXT_MAX;
            is_long.then(|| format!("{cell}: a cell has at most {TEXT_MAX} bytes"))
        };
        match self {
            Operator::Set(cell, text) => complaint(cell, text),
            Operator::Load(cells) => {
                let formulas = cells.values().filter(|text| text.starts_with('='));
                if formulas.map(String::len).sum::<usize>() > FORMULAS_MAX {
                    let most = FORMULAS_MAX >> 10;
                    return Some(format!("more than {most} KiB of formulas at once; divide it"));
                }
                cells.iter().find_map(|(cell, text)| complaint(cell, text))
            }
            Operator::Clear(_)
            | Operator::Get(_)
            | Operator::Input(_)
            | Operator::Range(_)
            | Operator::Inputs(_)
            | Operator::Used
            | Operator::Size => None,
        }
    }

    fn changes(&self) -> bool {
        matches!(self, Operator::Set(..) | Operator::Load(_) | Operator::Clear(_))
    }

    /// Returns the number of cells set individually; a region counts as two.
    fn cells(&self) -> usize {
        match self {
            Operator::Load(cells) => cells.len(),
            Operator::Clear(_) => 2,
            Operator::Set(..)
            | Operator::Get(_)
            | Operator::Input(_)
            | Operator::Range(_)
            | Operator::Inputs(_)
            | Operator::Used
            | Operator::Size => 1,
        }
    }

    /// Reports whether it updates a cell of this region, or reads an input there.
    fn touches(&self, region: Region) -> bool {
        match self {
            Operator::Set(cell, _) | Operator::Input(cell) => region.contains(*cell),
            Operator::Clear(other) | Operator::Inputs(other) => region.meets(other),
            Operator::Load(cells) => {
                let rows = cells.range(region.first()..=region.last());
                rows.into_iter().any(|(cell, _)| region.contains(*cell))
            }
            Operator::Get(_) | Operator::Range(_) | Operator::Used | Operator::Size => false,
        }
    }

    /// Reports whether both concern a common cell; meaningful if both concern inputs.
    fn meets(&self, other: &Operator) -> bool {
        match (self, other) {
            (Operator::Set(cell, _) | Operator::Input(cell), other) => {
                other.touches(Region::from(*cell))
            }
            (Operator::Clear(region) | Operator::Inputs(region), other) => other.touches(*region),
            (Operator::Load(cells), Operator::Load(others)) => {
                let (few, many) =
                    if cells.len() < others.len() { (cells, others) } else { (others, cells) };
                few.keys().any(|cell| many.contains_key(cell))
            }
            (Operator::Load(_), other) => {
                matches!(
                    other,
                    Operator::Set(..)
                        | Operator::Clear(_)
                        | Operator::Input(_)
                        | Operator::Inputs(_)
                ) && other.meets(self)
            }
            (Operator::Get(_) | Operator::Range(_) | Operator::Used | Operator::Size, _) => false,
        }
    }
}

impl DataType for Sheet {
    type State = State;
    type Operator = Operator;
    type Value = Value;

    fn initial(&self) -> State {
        State::default()
    }

    fn apply(&self, state: &mut State, operator: &Operator) -> Value {
        self.apply_metered(state, operator, &mut Meter::unlimited())
    }

    fn apply_metered(&self, state: &mut State, operator: &Operator, meter: &mut Meter) -> Value {
        meter.spend(1);
        match operator {
            Operator::Set(cell, text) => {
                meter.spend(work::of_bytes(text.len()));
                state.set(*cell, text);
                Value::Done
            }
            Operator::Load(cells) => {
                for (cell, text) in cells {
                    meter.spend(1 + work::of_bytes(text.len()));
                    state.set(*cell, text);
                }
                Value::Done
            }
            Operator::Clear(region) if region.area() > CLEAR_MAX => Value::Wrong(Wrong::TooLarge),
            Operator::Clear(region) => {
                meter.spend(state.clear(*region));
                Value::Done
            }
            Operator::Get(cell) => {
                let mut evaluation = Evaluation::new(state);
                let value = evaluation.value(*cell);
                meter.spend(evaluation.spent());
                value.into()
            }
            Operator::Input(cell) => state.input(*cell).into(),
            Operator::Range(region) => {
                let mut evaluation = Evaluation::new(state);
                let shown = rows(*region, |cell| evaluation.value(cell));
                meter.spend(evaluation.spent() + region.area().min(CELLS_MAX));
                shown
            }
            Operator::Inputs(region) => {
                meter.spend(region.area().min(CELLS_MAX));
                rows(*region, |cell| state.input(cell))
            }
            Operator::Used => {
                let used = state.used().map(|all| all.to_string().as_str().into());
                Value::from(used)
            }
            Operator::Size => Value::Integer(state.cells.size() as i128),
        }
    }

    /// Operators with many cells are not compared and count as not commuting.
    fn commute(&self, a: &Operator, b: &Operator) -> bool {
        let is_much = |a: &Operator, b: &Operator| a.cells() > COMPARED_MAX && b.cells() > 1;
        let is_apart = || !is_much(a, b) && !is_much(b, a) && !a.meets(b);
        !a.changes() || !b.changes() || is_apart()
    }

    /// The displayed value of a cell may depend on any other cell.
    fn oblivious(&self, a: &Operator, b: &Operator) -> bool {
        let typed = matches!(a, Operator::Input(_) | Operator::Inputs(_));
        a.changes() || !b.changes() || typed && !a.meets(b)
    }

    fn is_free(&self, operator: &Operator) -> bool {
        operator.changes()
    }

    fn is_read(&self, operator: &Operator) -> bool {
        !operator.changes()
    }
}

impl Serialize for State {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.cells.iter().map(|(cell, input)| (cell, &input.text)))
    }
}

impl<'de> Deserialize<'de> for State {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<State, D::Error> {
        let mut state = State::default();
        let typed: Vec<(Cell, String)> = Deserialize::deserialize(from)?;
        typed.iter().for_each(|(cell, text)| state.set(*cell, text));
        Ok(state)
    }
}

impl Spoken for Sheet {
    type Operator = Operator;

    const WORDS: &'static [Word<Operator>] = &[
        Word {
            name: "set",
            arguments: "CELL INPUT",
            json: r#"{"set": ["B1", "=A1*2"]}"#,
            help: "types a formula, a number, a boolean or a text into a cell",
            make: |words| Ok(Operator::Set(words.parsed()?, words.string()?)),
        },
        Word {
            name: "load",
            arguments: "CELL INPUT [CELL INPUT]...",
            json: r#"{"load": {"A1": "5", "B1": "=A1*2"}}"#,
            help: "types into several cells",
            make: |words| {
                let mut cells = BTreeMap::from([(words.parsed()?, words.string()?)]);
                while !words.is_empty() {
                    cells.insert(words.parsed()?, words.string()?);
                }
                Ok(Operator::Load(cells))
            },
        },
        Word {
            name: "clear",
            arguments: "CELLS",
            json: r#"{"clear": "A1:B9"}"#,
            help: "clears cells",
            make: |words| words.parsed().map(Operator::Clear),
        },
        Word {
            name: "get",
            arguments: "CELL",
            json: r#"{"get": "B1"}"#,
            help: "returns the value of a cell",
            make: |words| words.parsed().map(Operator::Get),
        },
        Word {
            name: "input",
            arguments: "CELL",
            json: r#"{"input": "B1"}"#,
            help: "returns the contents of a cell as entered",
            make: |words| words.parsed().map(Operator::Input),
        },
        Word {
            name: "range",
            arguments: "CELLS",
            json: r#"{"range": "A1:B9"}"#,
            help: "returns the values of cells, by rows",
            make: |words| words.parsed().map(Operator::Range),
        },
        Word {
            name: "inputs",
            arguments: "CELLS",
            json: r#"{"inputs": "A1:B9"}"#,
            help: "returns the contents of cells as entered, by rows",
            make: |words| words.parsed().map(Operator::Inputs),
        },
        Word {
            name: "used",
            arguments: "",
            json: r#""used""#,
            help: "returns the bounding rectangle of all non-empty cells",
            make: |_| Ok(Operator::Used),
        },
        Word {
            name: "size",
            arguments: "",
            json: r#""size""#,
            help: "returns the number of non-empty cells",
            make: |_| Ok(Operator::Size),
        },
    ];
}
