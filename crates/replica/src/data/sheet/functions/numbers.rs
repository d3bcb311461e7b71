//! Numeric functions.

use super::{Evaluation, Expression, Fault, Function, MANY, Result, Scalar, each, function};
use std::f64::consts::PI;

/// Functions of one or two numbers.
pub(super) const ONE: &[Function] = &[
    function("ABS", (1, 1), "NUMBER", |ev, args| one(ev, args, f64::abs)),
    function("SIGN", (1, 1), "NUMBER", |ev, args| {
        one(ev, args, |x| if x == 0.0 { 0.0 } else { x.signum() })
    }),
    function("INT", (1, 1), "NUMBER", |ev, args| one(ev, args, f64::floor)),
    function("SQRT", (1, 1), "NUMBER", |ev, args| one(ev, args, f64::sqrt)),
    function("EXP", (1, 1), "NUMBER", |ev, args| one(ev, args, libm::exp)),
    function("LN", (1, 1), "NUMBER", |ev, args| one(ev, args, libm::log)),
    function("LOG10", (1, 1), "NUMBER", |ev, args| one(ev, args, libm::log10)),
    function("SIN", (1, 1), "ANGLE", |ev, args| one(ev, args, libm::sin)),
    function("COS", (1, 1), "ANGLE", |ev, args| one(ev, args, libm::cos)),
    function("TAN", (1, 1), "ANGLE", |ev, args| one(ev, args, libm::tan)),
    function("ATAN", (1, 1), "NUMBER", |ev, args| one(ev, args, libm::atan)),
    function("PI", (0, 0), "", |_, _| Scalar::number(PI)),
    function("LOG", (1, 2), "NUMBER, [BASE]", |ev, args| {
        let base = second(ev, args, 10.0)?;
        Scalar::number(libm::log(ev.number(&args[0])?) / libm::log(base))
    }),
    function("POWER", (2, 2), "NUMBER, EXPONENT", |ev, args| {
        Scalar::number(libm::pow(ev.number(&args[0])?, ev.number(&args[1])?))
    }),
    function("MOD", (2, 2), "NUMBER, DIVISOR", |ev, args| {
        let (number, divisor) = (ev.number(&args[0])?, ev.number(&args[1])?);
        if divisor == 0.0 {
            return Err(Fault::Division);
        }
        // The remainder has the sign of the divisor, and is exact even if the quotient is not.
        let rest = number % divisor;
        let other_side = rest != 0.0 && (rest < 0.0) != (divisor < 0.0);
        Scalar::number(if other_side { rest + divisor } else { rest })
    }),
    function("ROUND", (1, 2), "NUMBER, [DIGITS]", |ev, args| rounded(ev, args, f64::round)),
    function("ROUNDUP", (1, 2), "NUMBER, [DIGITS]", |ev, args| {
        rounded(ev, args, |x| if x < 0.0 { x.floor() } else { x.ceil() })
    }),
    function("ROUNDDOWN", (1, 2), "NUMBER, [DIGITS]", |ev, args| rounded(ev, args, f64::trunc)),
    function("TRUNC", (1, 2), "NUMBER, [DIGITS]", |ev, args| rounded(ev, args, f64::trunc)),
];

/// Aggregates over numbers; of regions, over the numbers in them.
pub(super) const SEVERAL: &[Function] = &[
    function("SUM", (1, MANY), "NUMBERS", |ev, args| Scalar::number(sum(&numbers(ev, args)?))),
    function("PRODUCT", (1, MANY), "NUMBERS", |ev, args| {
        Scalar::number(numbers(ev, args)?.iter().product())
    }),
    function("AVERAGE", (1, MANY), "NUMBERS", |ev, args| mean(&numbers(ev, args)?)),
    function("MIN", (1, MANY), "NUMBERS", |ev, args| {
        Scalar::number(numbers(ev, args)?.into_iter().reduce(f64::min).unwrap_or(0.0))
    }),
    function("MAX", (1, MANY), "NUMBERS", |ev, args| {
        Scalar::number(numbers(ev, args)?.into_iter().reduce(f64::max).unwrap_or(0.0))
    }),
    function("MEDIAN", (1, MANY), "NUMBERS", |ev, args| {
        let mut all = numbers(ev, args)?;
        all.sort_by(f64::total_cmp);
        let middle = all.len() / 2;
        match all.len() {
            0 => Err(Fault::Number),
            even if even % 2 == 0 => Scalar::number(f64::midpoint(all[middle - 1], all[middle])),
            _ => Scalar::number(all[middle]),
        }
    }),
    function("STDEV", (1, MANY), "NUMBERS", |ev, args| {
        let all = numbers(ev, args)?;
        Scalar::number(variance(&all)?.sqrt())
    }),
    function("VAR", (1, MANY), "NUMBERS", |ev, args| {
        let all = numbers(ev, args)?;
        Scalar::number(variance(&all)?)
    }),
    function("COUNT", (1, MANY), "VALUES", |ev, args| {
        counted(ev, args, |value| matches!(value, Scalar::Number(_)))
    }),
    function("COUNTA", (1, MANY), "VALUES", |ev, args| {
        counted(ev, args, |value| *value != Scalar::Empty)
    }),
];

fn one(ev: &mut Evaluation<'_>, args: &[Expression], f: fn(f64) -> f64) -> Result {
    Scalar::number(f(ev.number(&args[0])?))
}

fn second(ev: &mut Evaluation<'_>, args: &[Expression], default: f64) -> Result<f64> {
    args.get(1).map_or(Ok(default), |arg| ev.number(arg))
}

fn rounded(ev: &mut Evaluation<'_>, args: &[Expression], f: fn(f64) -> f64) -> Result {
    let (number, digits) = (ev.number(&args[0])?, second(ev, args, 0.0)?.trunc());
    let scale = libm::pow(10.0, digits.abs());
    // Beyond the precision of any number: the result is the number itself, or zero.
    if !scale.is_finite() || digits > 0.0 && !(number * scale).is_finite() {
        return Scalar::number(if digits > 0.0 { number } else { 0.0 });
    }
    // 1.005 is stored slightly smaller but should round to 1.01, so the displayed value is rounded.
    let near = |x: f64| format!("{x:.14e}").parse().unwrap_or(x);
    Scalar::number(match digits < 0.0 {
        true => f(near(number / scale)) * scale,
        false => f(near(number * scale)) / scale,
    })
}

/// Returns the numbers of the arguments. Text arguments must be numeric; texts in regions are
/// skipped.
fn numbers(ev: &mut Evaluation<'_>, args: &[Expression]) -> Result<Vec<f64>> {
    let mut numbers = Vec::new();
    each(ev, args, |value, in_region| {
        if !in_region || matches!(value, Scalar::Number(_)) {
            numbers.push(value.to_number()?);
        }
        Ok(())
    })?;
    Ok(numbers)
}

fn counted(ev: &mut Evaluation<'_>, args: &[Expression], is: fn(&Scalar) -> bool) -> Result {
    let mut count = 0.0;
    each(ev, args, |value, _| {
        count += f64::from(u8::from(is(&value)));
        Ok(())
    })?;
    Scalar::number(count)
}

fn sum(numbers: &[f64]) -> f64 {
    numbers.iter().sum()
}

fn mean(numbers: &[f64]) -> Result {
    match numbers.len() {
        0 => Err(Fault::Division),
        count => Scalar::number(sum(numbers) / count as f64),
    }
}

/// Returns the sample variance.
fn variance(numbers: &[f64]) -> Result<f64> {
    if numbers.len() < 2 {
        return Err(Fault::Division);
    }
    let count = numbers.len() as f64;
    let mean = sum(numbers) / count;
    Ok(numbers.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / (count - 1.0))
}
