//! Formatting of sizes and counts.

pub(crate) use base::size::parse;

use base::size::UNITS;

/// Formats a size: `1.3 GiB`.
pub(crate) fn show(bytes: u64) -> String {
    let power = UNITS.iter().rposition(|unit| bytes >> (10 * power_of(unit)) > 0).unwrap_or(0);
    if power == 0 {
        return exact(bytes);
    }
    let value = bytes as f64 / (1u64 << (10 * power)) as f64;
    let places = usize::from(value < 99.95 && !bytes.is_multiple_of(1 << (10 * power)));
    format!("{value:.places$} {}iB", UNITS[power])
}

/// Formats a size in bytes, without separators: `1023 bytes`.
pub(crate) fn exact(bytes: u64) -> String {
    format!("{bytes} {}", if bytes == 1 { "byte" } else { "bytes" })
}

fn power_of(unit: &str) -> u32 {
    UNITS.iter().position(|known| *known == unit).unwrap_or(0) as u32
}

/// Formats a number with thousands separators: `79,012`.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a number with its noun: `1 file`, `2,000 files`.
pub(crate) fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_counts_are_shown_for_people() {
        let shown: Vec<_> = [0, 1023, 1024, 1536, 16 << 30, 1_395_864_371].map(show).into();
        assert_eq!(shown, ["0 bytes", "1023 bytes", "1 KiB", "1.5 KiB", "16 GiB", "1.3 GiB"]);
        assert_eq!(show(1), "1 byte");
        let counts: Vec<_> = [0, 999, 1000, 1_234_567].map(count).into();
        assert_eq!(counts, ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(counted(1, "file", "files"), "1 file");
    }
}
