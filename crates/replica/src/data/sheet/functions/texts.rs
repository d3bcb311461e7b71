//! Text functions. Lengths and positions count characters, not bytes.

use super::{Expression, Fault, Function, MANY, Result, Scalar, TEXT_MAX, count, each, function};
use crate::data::sheet::evaluation::Evaluation;

pub(super) const FUNCTIONS: &[Function] = &[
    function("LEN", (1, 1), "TEXT", |ev, args| {
        Scalar::number(ev.text(&args[0])?.chars().count() as f64)
    }),
    function("LEFT", (1, 2), "TEXT, [COUNT]", |ev, args| {
        let (text, most) = (ev.text(&args[0])?, count_or_one(ev, args)?);
        ev.made(text.chars().take(most).collect())
    }),
    function("RIGHT", (1, 2), "TEXT, [COUNT]", |ev, args| {
        let (text, most) = (ev.text(&args[0])?, count_or_one(ev, args)?);
        let before = text.chars().count().saturating_sub(most);
        ev.made(text.chars().skip(before).collect())
    }),
    function("MID", (3, 3), "TEXT, FROM, COUNT", |ev, args| {
        let (text, from) = (ev.text(&args[0])?, count(ev, &args[1])?);
        let (from, most) = (from.checked_sub(1).ok_or(Fault::Value)?, count(ev, &args[2])?);
        ev.made(text.chars().skip(from).take(most).collect())
    }),
    function("UPPER", (1, 1), "TEXT", |ev, args| {
        let text = ev.text(&args[0])?;
        ev.made(text.to_uppercase())
    }),
    function("LOWER", (1, 1), "TEXT", |ev, args| {
        let text = ev.text(&args[0])?;
        ev.made(text.to_lowercase())
    }),
    function("TRIM", (1, 1), "TEXT", |ev, args| {
        let text = ev.text(&args[0])?;
        let words: Vec<_> = text.split(' ').filter(|word| !word.is_empty()).collect();
        ev.made(words.join(" "))
    }),
    function("REPT", (2, 2), "TEXT, TIMES", |ev, args| {
        let (text, times) = (ev.text(&args[0])?, count(ev, &args[1])?);
        match text.len().checked_mul(times) {
            Some(length) if length <= TEXT_MAX => ev.made(text.repeat(times)),
            Some(_) | None => Err(Fault::Value),
        }
    }),
    function("CONCATENATE", (1, MANY), "TEXTS", joined),
    function("CONCAT", (1, MANY), "TEXTS", joined),
    function("EXACT", (2, 2), "TEXT, TEXT", |ev, args| {
        Ok(Scalar::Bool(ev.text(&args[0])? == ev.text(&args[1])?))
    }),
    function("FIND", (2, 3), "WHAT, TEXT, [FROM]", |ev, args| {
        let (what, text) = (ev.text(&args[0])?, ev.text(&args[1])?);
        let from = args.get(2).map_or(Ok(1), |arg| count(ev, arg))?;
        let before = from.checked_sub(1).ok_or(Fault::Value)?;
        let start = text.char_indices().map(|(at, _)| at).chain([text.len()]).nth(before);
        let start = start.ok_or(Fault::Value)?;
        let at = text[start..].find(&*what).ok_or(Fault::Value)?;
        Scalar::number((before + text[start..start + at].chars().count() + 1) as f64)
    }),
    function("SUBSTITUTE", (3, 3), "TEXT, OLD, NEW", |ev, args| {
        let (text, old, new) = (ev.text(&args[0])?, ev.text(&args[1])?, ev.text(&args[2])?);
        if old.is_empty() {
            return Ok(Scalar::Text(text));
        }
        let longer = text.matches(&*old).count().saturating_mul(new.len());
        match longer <= TEXT_MAX {
            true => ev.made(text.replace(&*old, &new)),
            false => Err(Fault::Value),
        }
    }),
    function("VALUE", (1, 1), "TEXT", |ev, args| Scalar::number(ev.number(&args[0])?)),
];

fn count_or_one(ev: &mut Evaluation<'_>, args: &[Expression]) -> Result<usize> {
    args.get(1).map_or(Ok(1), |arg| count(ev, arg))
}

fn joined(ev: &mut Evaluation<'_>, args: &[Expression]) -> Result {
    let mut whole = String::new();
    each(ev, args, |value, _| {
        whole.push_str(&value.to_text()?);
        if whole.len() > TEXT_MAX { Err(Fault::Value) } else { Ok(()) }
    })?;
    ev.made(whole)
}
