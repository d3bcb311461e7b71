//! Content negotiation by `Accept` (RFC 9110 §12.5.1).

use super::{Fields, trim};

/// Forms that a client prefers to text for people: by a larger weight, or by a more specific media
/// range of the same weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preference {
    /// Whether listings in JSON are preferred to HTML.
    pub json: bool,
    /// Whether problem details, or else JSON, are preferred as errors.
    pub problem: bool,
}

pub(super) fn preference(fields: &Fields<'_>) -> Preference {
    let ranges: Vec<(&str, u16)> = fields.list("accept").filter_map(range).collect();
    if ranges.is_empty() {
        return Preference::default();
    }
    let html = weight(&ranges, "text/html");
    let prefers = |media: &str| {
        let weight = weight(&ranges, media);
        weight.0 > 0 && weight > html
    };
    let json = prefers("application/json");
    Preference { json, problem: json || prefers("application/problem+json") }
}

/// Parses a media range with its weight in thousandths.
fn range(element: &str) -> Option<(&str, u16)> {
    let mut parts = element.split(';').map(trim);
    let range = parts.next().filter(|range| !range.is_empty())?;
    let weights = parts.filter_map(|part| part.split_once('='));
    let mut weights = weights.filter(|(name, _)| trim(name).eq_ignore_ascii_case("q"));
    let weight = weights.next().map_or(1.0, |(_, value)| trim(value).parse().unwrap_or(0.0_f32));
    Some((range, (weight.clamp(0.0, 1.0) * 1000.0) as u16))
}

/// Returns the weight of a media type and the specificity of the matching range; zero if no range
/// matches.
fn weight(ranges: &[(&str, u16)], media: &str) -> (u16, u8) {
    let whole = media.split_once('/').map_or(String::new(), |(kind, _)| format!("{kind}/*"));
    let find = |wanted: &str| ranges.iter().find(|(range, _)| range.eq_ignore_ascii_case(wanted));
    let levels = [(2, media), (1, &*whole), (0, "*/*")];
    let mut found = levels.into_iter().filter_map(|(level, it)| Some((find(it)?.1, level)));
    found.next().unwrap_or((0, 0))
}
