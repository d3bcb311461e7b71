//! What the cells show: formulas are evaluated when somebody asks, and nothing of it is kept.
//!
//! A formula is evaluated after everything that it looks at. The order is found by Tarjan's
//! algorithm (SIAM J. Comput. 1:2, 1972) on the formulas as they are written, whatever their `IF`s
//! would choose, with a stack of its own: a chain of formulas may be as long as the sheet. Formulas
//! that look at each other in a circle are [`Fault::Circular`], all of them, no matter which one is
//! asked for.
//!
//! Everything takes steps, also what is looked at and is not there; when there are no more,
//! whatever is not known yet is [`Fault::Limit`].

use super::cell::{Cell, Region};
use super::formula::{Expression, Formula, Operation};
use super::scalar::{Fault, Scalar};
use super::{Cells, Meaning, State};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// How many steps it takes, at most, to answer one operation.
pub const STEPS_MAX: u64 = 250_000;

/// How long a text is that a formula makes, at most, in bytes.
pub const TEXT_MAX: usize = 32_767;

/// How many cells beside a rectangle are looked at before the next one within it is looked for.
const SKIPPED_MAX: usize = 8;

/// One evaluation of whatever is asked for.
pub(super) struct Evaluation<'a> {
    sheet: &'a State,
    steps: u64,
    /// What the formulas show that are evaluated.
    known: BTreeMap<Cell, Scalar>,
}

/// A formula whose cells are being looked at.
struct Visit<'a> {
    cell: Cell,
    formula: &'a Formula,
    /// The formulas that it looks at.
    reads: Vec<Cell>,
    next: usize,
    number: usize,
    /// The smallest number that is reached from here.
    low: usize,
}

impl<'a> Evaluation<'a> {
    pub(super) fn new(sheet: &'a State) -> Evaluation<'a> {
        Evaluation { sheet, steps: STEPS_MAX, known: BTreeMap::new() }
    }

    /// Steps that were taken.
    pub(super) fn spent(&self) -> u64 {
        STEPS_MAX - self.steps
    }

    /// What a cell shows.
    pub(super) fn value(&mut self, cell: Cell) -> Scalar {
        match self.settle(cell) {
            Ok(()) => self.shown(cell),
            Err(fault) => Scalar::Error(fault),
        }
    }

    /// Evaluates a formula and all that it needs.
    fn settle(&mut self, root: Cell) -> Result<(), Fault> {
        let mut numbers: BTreeMap<Cell, usize> = BTreeMap::new();
        // Formulas whose circles are not complete, in the order of their numbers.
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

    /// Begins with a formula, unless it is known what it shows.
    fn visit(&mut self, cell: Cell, number: usize) -> Result<Option<Visit<'a>>, Fault> {
        let text = self.sheet.formula_text(cell).filter(|_| !self.known.contains_key(&cell));
        let Some(text) = text else { return Ok(None) };
        // As if it were read now, which it is only the first time.
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

    /// A circle of formulas is complete: most often it is a single one, which is none.
    fn close(&mut self, last: &Visit<'a>, circle: &[Cell]) -> Result<(), Fault> {
        if circle.len() == 1 && !last.reads.contains(&last.cell) {
            let value = match self.evaluate(&last.formula.tree) {
                Err(Fault::Limit) => return Err(Fault::Limit),
                // Who looks at an empty cell through a formula sees a zero.
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

    /// What a cell shows whose formula is evaluated, if it has one.
    fn shown(&self, cell: Cell) -> Scalar {
        match (self.known.get(&cell), self.sheet.meaning(cell)) {
            (Some(known), _) => known.clone(),
            (None, Some(Meaning::Constant(constant))) => constant.clone(),
            (None, Some(Meaning::Formula(_)) | None) => Scalar::Empty,
        }
    }

    /// Takes so many steps.
    pub(super) fn step(&mut self, steps: usize) -> Result<(), Fault> {
        self.steps = self.steps.checked_sub(steps as u64).ok_or(Fault::Limit)?;
        Ok(())
    }

    /// The cells of a region that have something, in order.
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
                // A few cells beside the region are passed faster than the next row is found.
                outside += 1;
                if next.is_none() || outside == SKIPPED_MAX {
                    from = next;
                    break;
                }
            }
        }
        Ok(filled)
    }

    /// What a cell shows that the formula looks at which is evaluated just now.
    pub(super) fn look(&mut self, cell: Cell) -> Result<Scalar, Fault> {
        self.step(1)?;
        match self.shown(cell) {
            Scalar::Error(fault) => Err(fault),
            value @ (Scalar::Empty | Scalar::Number(_) | Scalar::Bool(_) | Scalar::Text(_)) => {
                Ok(value)
            }
        }
    }

    /// The value of an expression; a region is one only if it is a single cell.
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

    /// Long texts take steps.
    pub(super) fn compare(&mut self, a: &Scalar, b: &Scalar) -> Result<Ordering, Fault> {
        self.step((a.length() + b.length()) / 64)?;
        Ok(a.compare(b))
    }

    /// A text that was made: long ones take steps.
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

/// Where this cell is among those that are open, from the last one on.
fn numbers_from(open: &[Cell], cell: Cell) -> usize {
    open.iter().rposition(|other| *other == cell).expect("closed once")
}
