//! The functions of formulas. None depends on when or where it is evaluated, on chance, or on a
//! language; those that are not exact come from `libm`, which gives the same on every machine.

use super::evaluation::{Evaluation, TEXT_MAX};
use super::formula::Expression;
use super::scalar::{Fault, Scalar};

mod lookup;
mod numbers;
mod texts;

type Result<T = Scalar> = std::result::Result<T, Fault>;

/// A function. What it does not need is not evaluated.
pub(super) struct Function {
    pub(super) name: &'static str,
    /// How many arguments it takes at least, and at most.
    pub(super) least: usize,
    pub(super) most: usize,
    /// The same for people.
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

/// No function takes more.
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

/// What other programs have, and cannot be here.
const VOLATILE: &[&str] =
    &["NOW", "TODAY", "RAND", "RANDBETWEEN", "RANDARRAY", "INDIRECT", "OFFSET", "CELL", "INFO"];

/// All functions, by groups.
pub fn names() -> impl Iterator<Item = &'static str> {
    GROUPS.iter().flat_map(|group| group.iter().map(|function| function.name))
}

/// The function with this name; or why there is none.
pub(super) fn named(name: &str) -> std::result::Result<&'static Function, String> {
    // What other programs write into files before the names of younger functions.
    let name = name.strip_prefix("_xlfn.").unwrap_or(name);
    let mut all = GROUPS.iter().flat_map(|group| group.iter());
    let function = all.find(|function| function.name.eq_ignore_ascii_case(name));
    let volatile = VOLATILE.iter().any(|other| other.eq_ignore_ascii_case(name));
    function.ok_or_else(|| match volatile {
        true => format!("{name} depends on more than cells: replicas would differ"),
        false => format!("there is no function {name} here"),
    })
}

/// Regions give what their cells have, and nothing for those that have nothing; other arguments
/// give their value.
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

/// What is true of all: cells with texts are not looked at.
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

/// A number of a function that counts: letters, places, rows.
fn count(ev: &mut Evaluation<'_>, expression: &Expression) -> Result<usize> {
    let number = ev.number(expression)?;
    // What is larger than any text and any sheet is as good as this.
    if number < 0.0 { Err(Fault::Value) } else { Ok(number.min(1e9) as usize) }
}
