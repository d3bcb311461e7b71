//! Sizes as people write and read them.

/// The units, from bytes on, each 1024 times the one before, or with a B behind it 1000 times.
const UNITS: [&str; 6] = ["", "K", "M", "G", "T", "P"];

/// Reads a size: `4096`, `512M`, `8G` and `8GiB` in powers of 1024, `8GB` in powers of 1000.
///
/// # Errors
/// A sentence that says how a size is written.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let (unit, step) = match (unit.strip_suffix("iB"), unit.strip_suffix('B')) {
        (Some(unit), _) => (unit, 1024u64),
        (None, Some(unit)) => (unit, 1000),
        (None, None) => (unit, 1024),
    };
    let power = UNITS.iter().position(|known| *known == unit.to_ascii_uppercase());
    let number: Option<u64> = number.parse().ok();
    let scaled = power.zip(number).and_then(|(power, number)| {
        number.checked_mul(step.checked_pow(power as u32)?).filter(|bytes| *bytes < 1 << 62)
    });
    scaled.ok_or_else(|| "write a size like 8G, 512M, 8GB or 4096 (bytes)".to_string())
}

/// A size for people: `1.3 GiB`.
pub(crate) fn show(bytes: u64) -> String {
    let power = UNITS.iter().rposition(|unit| bytes >> (10 * power_of(unit)) > 0).unwrap_or(0);
    if power == 0 {
        return format!("{bytes} bytes");
    }
    let value = bytes as f64 / (1u64 << (10 * power)) as f64;
    let places = usize::from(value < 99.95 && !bytes.is_multiple_of(1 << (10 * power)));
    format!("{value:.places$} {}iB", UNITS[power])
}

fn power_of(unit: &str) -> u32 {
    UNITS.iter().position(|known| *known == unit).unwrap_or(0) as u32
}

/// A number with its thousands apart: `79,012`.
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

/// A number and what it counts: `1 file`, `2,000 files`.
pub(crate) fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_in_every_form() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("4096B", 4096),
            ("8G", 8 << 30),
            ("8GiB", 8 << 30),
            ("512m", 512 << 20),
            ("8GB", 8_000_000_000),
            ("1kB", 1000),
            ("1KB", 1000),
            ("2TB", 2_000_000_000_000),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
        for text in ["", "G", "8X", "8 G", "-1", "1.5G", "9999999P", "8gb", "8BB", "iBB"] {
            assert!(parse(text).unwrap_err().contains("8G, 512M"), "{text}");
        }
    }

    #[test]
    fn sizes_and_counts_are_shown_for_people() {
        let shown: Vec<_> = [0, 1023, 1024, 1536, 16 << 30, 1_395_864_371].map(show).into();
        assert_eq!(shown, ["0 bytes", "1023 bytes", "1 KiB", "1.5 KiB", "16 GiB", "1.3 GiB"]);
        let counts: Vec<_> = [0, 999, 1000, 1_234_567].map(count).into();
        assert_eq!(counts, ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(counted(1, "file", "files"), "1 file");
    }
}
