//! Lookup functions.

use super::{Evaluation, Expression, Fault, Function, Result, Scalar, count, function};
use crate::data::sheet::cell::{Cell, Region};
use std::cmp::Ordering;

pub(super) const FUNCTIONS: &[Function] = &[
    function("INDEX", (2, 3), "CELLS, ROW, [COLUMN]", |ev, args| {
        let (region, mut row) = (region(&args[0])?, count(ev, &args[1])?);
        let mut column = args.get(2).map_or(Ok(1), |arg| count(ev, arg))?;
        // In a single row, a single index is a column number.
        if args.len() == 2 && region.rows() == 1 {
            (row, column) = (1, row);
        }
        look_at(ev, region, row, column)
    }),
    function("MATCH", (2, 3), "VALUE, CELLS, [0 IF EXACT]", |ev, args| {
        let (key, region) = (ev.evaluate(&args[0])?, region(&args[1])?);
        let exact = args.get(2).map_or(Ok(1.0), |arg| ev.number(arg))? == 0.0;
        if region.rows() > 1 && region.columns() > 1 {
            return Err(Fault::Missing);
        }
        let cell = find(ev, &key, region, exact)?;
        let (rows, columns) = distance(region, cell);
        Scalar::number(f64::from(rows + columns + 1))
    }),
    function("VLOOKUP", (3, 4), "VALUE, CELLS, COLUMN, [FALSE IF EXACT]", |ev, args| {
        let (key, region, column) =
            (ev.evaluate(&args[0])?, region(&args[1])?, count(ev, &args[2])?);
        let exact = !args.get(3).map_or(Ok(true), |arg| ev.bool(arg))?;
        let keys = Region::between(
            region.first(),
            region.within(region.rows() - 1, 0).ok_or(Fault::Reference)?,
        );
        let (rows, _) = distance(region, find(ev, &key, keys, exact)?);
        look_at(ev, region, rows as usize + 1, column)
    }),
    function("COUNTIF", (2, 2), "CELLS, CONDITION", |ev, args| {
        let (region, condition) = (region(&args[0])?, Condition::read(ev.evaluate(&args[1])?));
        Scalar::number(fitting(ev, region, &condition)?.len() as f64)
    }),
    function("SUMIF", (2, 3), "CELLS, CONDITION, [CELLS TO ADD]", |ev, args| {
        let (sum, _) = sum_if(ev, args)?;
        Scalar::number(sum)
    }),
    function("AVERAGEIF", (2, 3), "CELLS, CONDITION, [CELLS]", |ev, args| {
        match sum_if(ev, args)? {
            (_, 0.0) => Err(Fault::Division),
            (sum, count) => Scalar::number(sum / count),
        }
    }),
    function("SUMPRODUCT", (1, 8), "CELLS, CELLS", |ev, args| {
        let regions = args.iter().map(region).collect::<Result<Vec<_>>>()?;
        let shape = |region: &Region| (region.rows(), region.columns());
        if regions.iter().any(|region| shape(region) != shape(&regions[0])) {
            return Err(Fault::Value);
        }
        let mut sum = 0.0;
        for cell in ev.filled(regions[0])? {
            let (rows, columns) = distance(regions[0], cell);
            let mut product = 1.0;
            for region in &regions {
                let other = region.within(rows, columns).ok_or(Fault::Reference)?;
                product *= number_at(ev, other)?.unwrap_or(0.0);
            }
            sum += product;
        }
        Scalar::number(sum)
    }),
    function("CHOOSE", (2, super::MANY), "NUMBER, VALUES", |ev, args| {
        let chosen = count(ev, &args[0])?;
        let chosen = if chosen == 0 { None } else { args.get(chosen) };
        ev.evaluate(chosen.ok_or(Fault::Value)?)
    }),
    function("ROWS", (1, 1), "CELLS", |_, args| {
        region(&args[0]).and_then(|region| Scalar::number(region.rows().into()))
    }),
    function("COLUMNS", (1, 1), "CELLS", |_, args| {
        region(&args[0]).and_then(|region| Scalar::number(region.columns().into()))
    }),
];

fn region(arg: &Expression) -> Result<Region> {
    match arg {
        Expression::Region(region) => Ok(*region),
        Expression::Constant(_)
        | Expression::Negative(_)
        | Expression::Percent(_)
        | Expression::Binary(..)
        | Expression::Call(..) => Err(Fault::Value),
    }
}

/// Returns the row and column offsets of a cell in its region.
fn distance(region: Region, cell: Cell) -> (u32, u32) {
    (cell.row() - region.first().row(), cell.column() - region.first().column())
}

/// Returns the value at this row and column of a region, both counted from 1.
fn look_at(ev: &mut Evaluation<'_>, region: Region, row: usize, column: usize) -> Result {
    let behind = |number: usize| number.checked_sub(1).and_then(|n| u32::try_from(n).ok());
    let place = behind(row).zip(behind(column)).ok_or(Fault::Value)?;
    ev.look(region.within(place.0, place.1).ok_or(Fault::Reference)?)
}

/// Finds the first cell equal to `key`, or in a sorted region the last one not greater.
fn find(ev: &mut Evaluation<'_>, key: &Scalar, region: Region, exact: bool) -> Result<Cell> {
    let mut found = None;
    for cell in ev.filled(region)? {
        let value = ev.look(cell)?;
        match ev.compare(&value, key)? {
            Ordering::Equal if exact => return Ok(cell),
            Ordering::Equal | Ordering::Less if !exact => found = Some(cell),
            Ordering::Greater if !exact => break,
            Ordering::Equal | Ordering::Less | Ordering::Greater => {}
        }
    }
    found.ok_or(Fault::Missing)
}

fn number_at(ev: &mut Evaluation<'_>, cell: Cell) -> Result<Option<f64>> {
    match ev.look(cell)? {
        Scalar::Number(number) => Ok(Some(number.get())),
        Scalar::Empty | Scalar::Bool(_) | Scalar::Text(_) | Scalar::Error(_) => Ok(None),
    }
}

/// Returns the sum and the count of the numbers whose cells, or the cells parallel to them, match.
fn sum_if(ev: &mut Evaluation<'_>, args: &[Expression]) -> Result<(f64, f64)> {
    let (cells, condition) = (region(&args[0])?, Condition::read(ev.evaluate(&args[1])?));
    let added = args.get(2).map_or(Ok(cells), region)?;
    let (mut sum, mut count) = (0.0, 0.0);
    for cell in fitting(ev, cells, &condition)? {
        let (rows, columns) = distance(cells, cell);
        let other = added.within(rows, columns).ok_or(Fault::Value)?;
        if let Some(number) = number_at(ev, other)? {
            sum += number;
            count += 1.0;
        }
    }
    Ok((sum, count))
}

/// Prefix of a condition, the orderings that match, and whether only values of the same kind do.
type Sign = (&'static str, fn(Ordering) -> bool, bool);

/// Condition as written: `5`, `"text"`, `">=5"`, `"<>text"`.
struct Condition {
    fits: fn(Ordering) -> bool,
    value: Scalar,
    /// Whether only values of the same kind match: a text is not greater than 5.
    same_kind: bool,
}

impl Condition {
    fn read(written: Scalar) -> Condition {
        const SIGNS: [Sign; 6] = [
            ("<>", Ordering::is_ne, false),
            ("<=", Ordering::is_le, true),
            (">=", Ordering::is_ge, true),
            ("<", Ordering::is_lt, true),
            (">", Ordering::is_gt, true),
            ("=", Ordering::is_eq, true),
        ];
        let Scalar::Text(text) = &written else {
            return Condition { fits: Ordering::is_eq, value: written, same_kind: true };
        };
        let sign = SIGNS.iter().find_map(|(sign, fits, same_kind)| {
            text.strip_prefix(sign).map(|rest| (*fits, rest, *same_kind))
        });
        let (fits, rest, same_kind) = sign.unwrap_or((Ordering::is_eq, text, true));
        Condition { fits, value: Scalar::typed(rest), same_kind }
    }
}

/// Returns the nonempty cells of a region that match a condition.
fn fitting(ev: &mut Evaluation<'_>, region: Region, condition: &Condition) -> Result<Vec<Cell>> {
    let mut fitting = Vec::new();
    for cell in ev.filled(region)? {
        let value = ev.look(cell)?;
        let same_kind = std::mem::discriminant(&value) == std::mem::discriminant(&condition.value);
        let fits = (condition.fits)(ev.compare(&value, &condition.value)?);
        if fits && (same_kind || !condition.same_kind) {
            fitting.push(cell);
        }
    }
    Ok(fitting)
}
