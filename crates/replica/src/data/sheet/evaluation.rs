//! Displayed values: formulas are evaluated on demand, and no result is cached across queries.
//!
//! A formula is evaluated after all its precedents. Tarjan's algorithm (SIAM J. Comput. 1:2, 1972)
//! determines the order from the formulas as written, whichever branches their `IF`s would take,
//! with an explicit stack: a chain of formulas may be as long as the sheet. All formulas of a
//! reference cycle are [`Fault::Circular`], independent of the queried one.
//!
//! Every lookup takes a step, also of an empty cell; after the last step, every value still unknown
//! is [`Fault::Limit`].

use super::cell::{Cell, Region};
use super::formula::{Expression, Formula, Operation};
use super::scalar::{Fault, Scalar};
use super::{Cells, Meaning, State};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// Maximum evaluation steps for one operation.
pub const STEPS_MAX: u64 = 250_000;

/// Maximum length of a text produced by a formula, in bytes.
pub const TEXT_MAX: usize = 32_767;

/// Number of cells outside a region that are skipped one by one before the next one inside is
/// looked up.
const SKIPPED_MAX: usize = 8;

/// Evaluation of one query.
pub(super) struct Evaluation<'a> {
    sheet: &'a State,
    steps: u64,
    /// Values of the formulas evaluated so far.
    known: BTreeMap<Cell, Scalar>,
}

/// Formula whose precedents are being visited.
struct Visit<'a> {
    cell: Cell,
    formula: &'a Formula,
    /// Formula cells that it reads.
    reads: Vec<Cell>,
    next: usize,
    number: usize,
    /// Smallest number reachable from here (Tarjan's lowlink).
    low: usize,
}

impl<'a> Evaluation<'a> {
    pub(super) fn new(sheet: &'a State) -> Evaluation<'a> {
        Evaluation { sheet, steps: STEPS_MAX, known: BTreeMap::new() }
    }

    /// Returns the steps taken.
    pub(super) fn spent(&self) -> u64 {
        STEPS_MAX - self.steps
    }

    /// Returns the displayed value of a cell.
    pub(super) fn value(&mut self, cell: Cell) -> Scalar {
        match self.settle(cell) {
            Ok(()) => self.shown(cell),
            Err(fault) => Scalar::Error(fault),
        }
    }

    /// Evaluates a formula and all its precedents.
    fn settle(&mut self, root: Cell) -> Result<(), Fault> {
        let mut numbers: BTreeMap<Cell, usize> = BTreeMap::new();
        // Formulas of incomplete strongly connected components, in the order of their numbers.
        let mut open = Vec::new();
        let mut visits: Vec<Visit> = Vec::new();
        let mut next = Some(root);
        loop {
            if let Some(cell) = next.take() {
                visits.extend(self.visit(cell, numbers.len())?.inspect(|_| {
                    numbers.insert(cell, numbers.len());
                    open.push(cell);
                }));
            }
            let Some(visit) = visits.last_mut() else { return Ok(()) };
            if let Some(read) = visit.reads.get(visit.next).copied() {
                visit.next += 1;
                match numbers.get(&read) {
                    _ if self.known.contains_key(&read) => {}
                    Some(number) => visit.low = visit.low.min(*number),
                    None => next = Some(read),
                }
                continue;
            }
            let done = visits.pop().expect("was the last");
            if let Some(before) = visits.last_mut() {
                before.low = before.low.min(done.low);
            }
            if done.low == done.number {
                let circle = open.split_off(numbers_from(&open, done.cell));
                self.close(&done, &circle)?;
            }
        }
    }

    /// Starts the visit of a formula, unless its value is known.
    fn visit(&mut self, cell: Cell, number: usize) -> Result<Option<Visit<'a>>, Fault> {
        let text = self.sheet.formula_text(cell).filter(|_| !self.known.contains_key(&cell));
        let Some(text) = text else { return Ok(None) };
        // Charged as if it were parsed now, which happens only the first time.
        self.step(text.len())?;
        let formula = match self.sheet.meaning(cell) {
            Some(Meaning::Formula(formula)) => formula,
            Some(Meaning::Constant(constant)) => {
                self.known.insert(cell, constant.clone());
                return Ok(None);
            }
            None => return Ok(None),
        };
        let mut reads = Vec::new();
        for region in &formula.reads {
            let filled = self.filled(*region)?.into_iter();
            reads.extend(filled.filter(|read| self.sheet.formula_text(*read).is_some()));
        }
        Ok(Some(Visit { cell, formula, reads, next: 0, number, low: number }))
    }

    /// Completes a strongly connected component; most often it is a single formula and not a cycle.
    fn close(&mut self, last: &Visit<'a>, circle: &[Cell]) -> Result<(), Fault> {
        if circle.len() == 1 && !last.reads.contains(&last.cell) {
            let value = match self.evaluate(&last.formula.tree) {
                Err(Fault::Limit) => return Err(Fault::Limit),
                // A formula that yields an empty cell displays zero.
                Ok(Scalar::Empty) => Scalar::number(0.0),
                result => result,
            };
            self.known.insert(last.cell, value.into());
        } else {
            let circular = |cell: &Cell| (*cell, Scalar::Error(Fault::Circular));
            self.known.extend(circle.iter().map(circular));
        }
        Ok(())
    }

    /// Returns the displayed value of a cell whose formula, if any, is evaluated.
    fn shown(&self, cell: Cell) -> Scalar {
        match (self.known.get(&cell), self.sheet.meaning(cell)) {
            (Some(known), _) => known.clone(),
            (None, Some(Meaning::Constant(constant))) => constant.clone(),
            (None, Some(Meaning::Formula(_)) | None) => Scalar::Empty,
        }
    }

    /// Takes `steps` steps.
    pub(super) fn step(&mut self, steps: usize) -> Result<(), Fault> {
        self.steps = self.steps.checked_sub(steps as u64).ok_or(Fault::Limit)?;
        Ok(())
    }

    /// Returns the nonempty cells of a region, in order.
    pub(super) fn filled(&mut self, region: Region) -> Result<Vec<Cell>, Fault> {
        let mut filled = Vec::new();
        let mut from = Some(region.first());
        while let Some(first) = from.take() {
            let cells: &'a Cells = &self.sheet.cells;
            let mut outside = 0;
            for (cell, _) in cells.range((Bound::Included(first), Bound::Unbounded)) {
                self.step(1)?;
                let next = region.onward(*cell);
                if next == Some(*cell) {
                    filled.push(*cell);
                    continue;
                }
                // Skipping a few cells outside the region is faster than a lookup of the next row.
                outside += 1;
                if next.is_none() || outside == SKIPPED_MAX {
                    from = next;
                    break;
                }
            }
        }
        Ok(filled)
    }

    /// Returns the displayed value of a precedent of the formula under evaluation.
    pub(super) fn look(&mut self, cell: Cell) -> Result<Scalar, Fault> {
        self.step(1)?;
        match self.shown(cell) {
            Scalar::Error(fault) => Err(fault),
            value @ (Scalar::Empty | Scalar::Number(_) | Scalar::Bool(_) | Scalar::Text(_)) => {
                Ok(value)
            }
        }
    }

    /// Evaluates an expression; a region must be a single cell.
    pub(super) fn evaluate(&mut self, expression: &Expression) -> Result<Scalar, Fault> {
        self.step(1)?;
        match expression {
            Expression::Constant(Scalar::Error(fault)) => Err(*fault),
            Expression::Constant(scalar) => Ok(scalar.clone()),
            Expression::Region(region) if region.area() == 1 => self.look(region.first()),
            Expression::Region(_) => Err(Fault::Value),
            Expression::Negative(inner) => Scalar::number(-self.number(inner)?),
            Expression::Percent(inner) => Scalar::number(self.number(inner)? / 100.0),
            Expression::Binary(operation, both) => {
                let (left, right) = (self.evaluate(&both.0)?, self.evaluate(&both.1)?);
                self.combine(*operation, &left, &right)
            }
            Expression::Call(function, arguments) => (function.call)(self, arguments),
        }
    }

    fn combine(&mut self, operation: Operation, a: &Scalar, b: &Scalar) -> Result<Scalar, Fault> {
        let numbers = || Ok((a.to_number()?, b.to_number()?));
        let ordered = |ev: &mut Self, is: fn(Ordering) -> bool| {
            ev.compare(a, b).map(|order| Scalar::Bool(is(order)))
        };
        match operation {
            Operation::Add => numbers().and_then(|(a, b)| Scalar::number(a + b)),
            Operation::Subtract => numbers().and_then(|(a, b)| Scalar::number(a - b)),
            Operation::Multiply => numbers().and_then(|(a, b)| Scalar::number(a * b)),
            Operation::Divide => match numbers()? {
                (_, 0.0) => Err(Fault::Division),
                (a, b) => Scalar::number(a / b),
            },
            Operation::Power => numbers().and_then(|(a, b)| Scalar::number(libm::pow(a, b))),
            Operation::Join => self.made([a.to_text()?, b.to_text()?].concat()),
            Operation::Equal => ordered(self, Ordering::is_eq),
            Operation::Unequal => ordered(self, Ordering::is_ne),
            Operation::Less => ordered(self, Ordering::is_lt),
            Operation::Greater => ordered(self, Ordering::is_gt),
            Operation::AtMost => ordered(self, Ordering::is_le),
            Operation::AtLeast => ordered(self, Ordering::is_ge),
        }
    }

    /// Compares two values; long texts take steps.
    pub(super) fn compare(&mut self, a: &Scalar, b: &Scalar) -> Result<Ordering, Fault> {
        self.step((a.length() + b.length()) / 64)?;
        Ok(a.compare(b))
    }

    /// Returns a computed text; long texts take steps.
    pub(super) fn made(&mut self, text: String) -> Result<Scalar, Fault> {
        self.step(text.len() / 64)?;
        if text.len() > TEXT_MAX { Err(Fault::Value) } else { Ok(Scalar::Text(text.into())) }
    }

    pub(super) fn number(&mut self, expression: &Expression) -> Result<f64, Fault> {
        self.evaluate(expression)?.to_number()
    }

    pub(super) fn bool(&mut self, expression: &Expression) -> Result<bool, Fault> {
        self.evaluate(expression)?.to_bool()
    }

    pub(super) fn text(&mut self, expression: &Expression) -> Result<Arc<str>, Fault> {
        let text = self.evaluate(expression)?.to_text()?;
        self.step(text.len() / 64).map(|()| text)
    }
}

/// Returns the index of a cell in the stack of open ones, found from the top.
fn numbers_from(open: &[Cell], cell: Cell) -> usize {
    open.iter().rposition(|other| *other == cell).expect("closed once")
}
