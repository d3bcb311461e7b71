//! Built-in functions. None depends on time, place, randomness or locale; inexact ones use `libm`,
//! which gives identical results on every machine.

use super::evaluation::{Evaluation, TEXT_MAX};
use super::formula::Expression;
use super::scalar::{Fault, Scalar};

mod lookup;
mod numbers;
mod texts;

type Result<T = Scalar> = std::result::Result<T, Fault>;

/// Built-in function. Arguments are evaluated lazily.
pub(super) struct Function {
    pub(super) name: &'static str,
    /// Minimum and maximum number of arguments.
    pub(super) least: usize,
    pub(super) most: usize,
    /// Argument syntax for help texts.
    pub(super) arguments: &'static str,
    pub(super) call: fn(&mut Evaluation<'_>, &[Expression]) -> Result,
}

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

const fn function(
    name: &'static str,
    (least, most): (usize, usize),
    arguments: &'static str,
    call: fn(&mut Evaluation<'_>, &[Expression]) -> Result,
) -> Function {
    Function { name, least, most, arguments, call }
}

/// Maximum number of arguments of any function.
const MANY: usize = 255;

const LOGIC: &[Function] = &[
    function("IF", (2, 3), "CONDITION, THEN, [ELSE]", |ev, args| match ev.bool(&args[0])? {
        true => ev.evaluate(&args[1]),
        false => args.get(2).map_or(Ok(Scalar::Bool(false)), |other| ev.evaluate(other)),
    }),
    function("IFERROR", (2, 2), "VALUE, OTHERWISE", |ev, args| match ev.evaluate(&args[0]) {
        Err(Fault::Limit) => Err(Fault::Limit),
        Err(_) => ev.evaluate(&args[1]),
        Ok(value) => Ok(value),
    }),
    function("ISERROR", (1, 1), "VALUE", |ev, args| match ev.evaluate(&args[0]) {
        Err(Fault::Limit) => Err(Fault::Limit),
        result => Ok(Scalar::Bool(result.is_err())),
    }),
    function("ISBLANK", (1, 1), "VALUE", |ev, args| {
        Ok(Scalar::Bool(ev.evaluate(&args[0])? == Scalar::Empty))
    }),
    function("ISNUMBER", (1, 1), "VALUE", |ev, args| {
        Ok(Scalar::Bool(matches!(ev.evaluate(&args[0])?, Scalar::Number(_))))
    }),
    function("ISTEXT", (1, 1), "VALUE", |ev, args| {
        Ok(Scalar::Bool(matches!(ev.evaluate(&args[0])?, Scalar::Text(_))))
    }),
    function("NOT", (1, 1), "VALUE", |ev, args| Ok(Scalar::Bool(!ev.bool(&args[0])?))),
    function("AND", (1, MANY), "VALUES", |ev, args| {
        Ok(Scalar::Bool(truths(ev, args)?.into_iter().all(|is| is)))
    }),
    function("OR", (1, MANY), "VALUES", |ev, args| {
        Ok(Scalar::Bool(truths(ev, args)?.into_iter().any(|is| is)))
    }),
    function("TRUE", (0, 0), "", |_, _| Ok(Scalar::Bool(true))),
    function("FALSE", (0, 0), "", |_, _| Ok(Scalar::Bool(false))),
    function("NA", (0, 0), "", |_, _| Err(Fault::Missing)),
];

const GROUPS: &[&[Function]] =
    &[LOGIC, numbers::ONE, numbers::SEVERAL, texts::FUNCTIONS, lookup::FUNCTIONS];

/// Volatile functions of common spreadsheets, which are not supported here.
const VOLATILE: &[&str] =
    &["NOW", "TODAY", "RAND", "RANDBETWEEN", "RANDARRAY", "INDIRECT", "OFFSET", "CELL", "INFO"];

/// Returns the names of all functions, by groups.
pub fn names() -> impl Iterator<Item = &'static str> {
    GROUPS.iter().flat_map(|group| group.iter().map(|function| function.name))
}

/// Returns the function with this name, or an explanation.
pub(super) fn named(name: &str) -> std::result::Result<&'static Function, String> {
    // Files prefix newer functions with this.
    let name = name.strip_prefix("_xlfn.").unwrap_or(name);
    let mut all = GROUPS.iter().flat_map(|group| group.iter());
    let function = all.find(|function| function.name.eq_ignore_ascii_case(name));
    let volatile = VOLATILE.iter().any(|other| other.eq_ignore_ascii_case(name));
    function.ok_or_else(|| match volatile {
        true => format!("{name} depends on more than cells: replicas would differ"),
        false => format!("unknown function {name}"),
    })
}

/// Calls back for each nonempty cell of region arguments, and for the value of each other argument.
fn each(
    ev: &mut Evaluation<'_>,
    args: &[Expression],
    mut take: impl FnMut(Scalar, bool) -> Result<()>,
) -> Result<()> {
    for arg in args {
        if let Expression::Region(region) = arg {
            for cell in ev.filled(*region)? {
                take(ev.look(cell)?, true)?;
            }
        } else {
            take(ev.evaluate(arg)?, false)?;
        }
    }
    Ok(())
}

/// Returns the truth values of the arguments; texts in regions are skipped.
fn truths(ev: &mut Evaluation<'_>, args: &[Expression]) -> Result<Vec<bool>> {
    let mut truths = Vec::new();
    each(ev, args, |value, in_region| {
        if !in_region || !matches!(value, Scalar::Text(_)) {
            truths.push(value.to_bool()?);
        }
        Ok(())
    })?;
    Ok(truths)
}

/// Evaluates a nonnegative count: characters, positions or rows.
fn count(ev: &mut Evaluation<'_>, expression: &Expression) -> Result<usize> {
    let number = ev.number(expression)?;
    // Larger than any text or sheet.
    if number < 0.0 { Err(Fault::Value) } else { Ok(number.min(1e9) as usize) }
}
