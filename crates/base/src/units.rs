//! Times and counts as people write them; sizes are in [`crate::size`].

use std::time::Duration;

/// Units of a count, each with its factor.
const COUNTS: [(&str, u64); 5] =
    [("", 1), ("k", 1000), ("K", 1000), ("M", 1_000_000), ("G", 1_000_000_000)];

/// Reads a time: `10us`, `2.5ms`, `3s`, `1m`, `1h`, or seconds.
///
/// # Errors
/// A sentence that says how a time is written.
pub fn time(text: &str) -> Result<Duration, String> {
    let wrong = || "write a time like 10us, 500ms, 2.5s, 2m or 1h".to_string();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let second = match &text[digits.len()..] {
        "ns" => 1e-9,
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" | "" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(wrong()),
    };
    let number: f64 = digits.parse().map_err(|_| wrong())?;
    Duration::try_from_secs_f64(number * second).map_err(|_| wrong())
}

/// Reads a number with a decimal unit: `250`, `1k`, `2M`, `1.5G`.
pub fn number(text: &str) -> Option<f64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = COUNTS.iter().find(|(unit, _)| *unit == &text[digits.len()..])?.1;
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    digits.parse::<f64>().ok().filter(|_| plain).map(|number| number * factor as f64)
}

/// Reads a count: `250`, `1k`, `2M`, `1.5G`.
///
/// # Errors
/// A sentence that says how a count is written.
pub fn count(text: &str) -> Result<u64, String> {
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    let whole = number(text).filter(|number| number.fract() == 0.0 && *number < 2f64.powi(53));
    whole.map(|number| number as u64).ok_or_else(|| "write a number like 250, 1k or 2M".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_their_unit() {
        for (text, micros) in [
            ("10us", 10),
            ("2.5ms", 2500),
            ("500ms", 500_000),
            ("3", 3_000_000),
            ("5s", 5_000_000),
            ("2m", 120_000_000),
            ("1h", 3_600_000_000),
        ] {
            assert_eq!(time(text), Ok(Duration::from_micros(micros)), "{text}");
        }
        for text in ["", "us", "3d", "-1s", "1e999s", "5 s"] {
            assert!(time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn counts_have_decimal_units() {
        for (text, number) in [("0", 0), ("1k", 1000), ("1K", 1000), ("2M", 2_000_000)] {
            assert_eq!(count(text), Ok(number), "{text}");
        }
        assert_eq!(count("1.5G"), Ok(1_500_000_000));
        assert_eq!(count(&u64::MAX.to_string()), Ok(u64::MAX));
        for text in ["", "k", "1.5", "-1", "1m", "1kB", "1e3", "99999999999999999G"] {
            assert!(count(text).is_err(), "{text}");
        }
    }
}
