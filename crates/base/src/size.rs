//! Sizes in the notation of command lines.

/// Unit letters by power of 1024, or with a B appended, by power of 1000.
pub const UNITS: [&str; 6] = ["", "K", "M", "G", "T", "P"];

/// Parses a size: `4096`, `512M`, `8G` and `8GiB` in powers of 1024, `8GB` in powers of 1000.
///
/// # Errors
/// A sentence on the notation of sizes.
pub fn parse(text: &str) -> Result<u64, String> {
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
}
