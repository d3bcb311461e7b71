//! Textual forms of distributions: sizes, kinds, offsets, arrivals and think times.

use super::values::{Bytes, Time, bytes, io_size, seconds, time};
use crate::Kind;
use crate::workload::{Arrival, OffsetDistribution, Size, users::Think};
use serde::de::value::{MapAccessDeserializer, StrDeserializer};
use serde::de::{self, Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;
use std::time::Duration;

/// Maximum entries of a list or a table of choices.
const CHOICES_MAX: usize = 1000;

fn weight(weight: f64) -> Result<f64, String> {
    if weight.is_finite() && weight >= 0.0 {
        return Ok(weight);
    }
    Err("a weight is a number, 0 or more".to_string())
}

/// Checks that at least one weight is positive.
fn weighted<T>(among: Vec<(T, f64)>) -> Result<Vec<(T, f64)>, String> {
    if among.iter().all(|(_, weight)| *weight == 0.0) {
        return Err("there is nothing to choose from: one weight must be above 0".to_string());
    }
    Ok(among)
}

/// I/O sizes: one, a table of sizes with weights, or a range.
#[derive(Clone, Debug)]
pub(super) struct Sizes(pub(super) Size);

impl Sizes {
    fn range(mut ends: [Option<u64>; 3]) -> Result<Size, String> {
        let mut end = |number: usize, name: &str| {
            ends[number].take().ok_or(format!("a range has a `{name}`")).and_then(io_size)
        };
        let (min, max) = (end(0, "min")?, end(1, "max")?);
        if min > max {
            return Err("a range's `min` is at most its `max`".to_string());
        }
        let step = end(2, "step").unwrap_or(1);
        Ok(Size::Range { min, max, step })
    }
}

impl<'de> Deserialize<'de> for Sizes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Sizes, D::Error> {
        struct Reads;
        impl<'de> Visitor<'de> for Reads {
            type Value = Sizes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a size like \"4KiB\", { \"4KiB\" = 60, \"64KiB\" = 40 }, or \
                     { min = \"1KiB\", max = \"8KiB\", step = 512 }",
                )
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Sizes, E> {
                let size = u64::try_from(number).unwrap_or(0);
                io_size(size).map(|size| Sizes(Size::Fixed(size))).map_err(E::custom)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Sizes, E> {
                let size = bytes(text).and_then(io_size);
                size.map(|size| Sizes(Size::Fixed(size))).map_err(E::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Sizes, A::Error> {
                let (mut ends, mut among) = ([None; 3], Vec::new());
                while let Some(key) = map.next_key::<String>()? {
                    let end = ["min", "max", "step"].iter().position(|name| *name == key);
                    if let Some(end) = end {
                        ends[end] = Some(map.next_value::<Bytes>()?.0);
                        continue;
                    }
                    let size = bytes(&key).and_then(io_size).map_err(de::Error::custom)?;
                    let share = weight(map.next_value()?).map_err(de::Error::custom)?;
                    among.push((size, share));
                }
                let size = match (ends.iter().any(Option::is_some), among.is_empty()) {
                    (true, true) => Sizes::range(ends),
                    (true, false) => Err("it is a range or a choice, not both".to_string()),
                    (false, _) if among.len() > CHOICES_MAX => {
                        Err(format!("at most {CHOICES_MAX} sizes"))
                    }
                    (false, _) => weighted(among).map(Size::Choice),
                };
                size.map(Sizes).map_err(de::Error::custom)
            }
        }
        from.deserialize_any(Reads)
    }
}

/// Kinds of I/O: one, or a table with weights.
#[derive(Clone, Debug)]
pub(super) struct Kinds(pub(super) Vec<(Kind, f64)>);

const KINDS: [&str; 6] = ["read", "write", "sync", "trim", "create", "remove"];

fn kind<E: de::Error>(text: &str) -> Result<Kind, E> {
    let known = Kind::ALL.into_iter().find(|kind| kind.name() == text);
    known.ok_or_else(|| E::unknown_variant(text, &KINDS))
}

impl<'de> Deserialize<'de> for Kinds {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Kinds, D::Error> {
        struct Reads;
        impl<'de> Visitor<'de> for Reads {
            type Value = Kinds;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a kind like \"read\", or { read = 70, write = 30 }")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Kinds, E> {
                Ok(Kinds(vec![(kind(text)?, 1.0)]))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Kinds, A::Error> {
                let mut among = Vec::new();
                while let Some(key) = map.next_key::<String>()? {
                    let kind = kind(&key)?;
                    among.push((kind, weight(map.next_value()?).map_err(de::Error::custom)?));
                }
                weighted(among).map(Kinds).map_err(de::Error::custom)
            }
        }
        from.deserialize_any(Reads)
    }
}

/// Distribution of offsets, other than a mixture.
#[derive(serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum Single {
    Uniform,
    Sequential,
    Zipf(f64),
    Stride(Bytes),
}

impl Single {
    fn place(self) -> Result<OffsetDistribution, String> {
        match self {
            Single::Uniform => Ok(OffsetDistribution::Uniform),
            Single::Sequential => Ok(OffsetDistribution::Sequential),
            Single::Zipf(theta) if (0.0..=10.0).contains(&theta) => {
                Ok(OffsetDistribution::Zipf { theta })
            }
            Single::Zipf(_) => Err("the exponent `zipf` is between 0 and 10".to_string()),
            Single::Stride(Bytes(0)) => Err("a stride is above 0".to_string()),
            Single::Stride(Bytes(stride)) => Ok(OffsetDistribution::Strided { stride }),
        }
    }
}

/// Distribution of offsets, or a weighted mixture of them.
#[derive(Clone, Debug)]
pub(super) struct Places(pub(super) OffsetDistribution);

/// Entry of a mixture.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Listed {
    place: Single,
    weight: f64,
}

impl<'de> Deserialize<'de> for Places {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Places, D::Error> {
        struct Reads;
        impl<'de> Visitor<'de> for Reads {
            type Value = Places;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "\"uniform\", \"sequential\", { zipf = 0.99 }, { stride = \"1MiB\" }, or a \
                     list of { place = …, weight = … }",
                )
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Places, E> {
                let single = Single::deserialize(StrDeserializer::new(text))?;
                single.place().map(Places).map_err(E::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Places, A::Error> {
                let single = Single::deserialize(MapAccessDeserializer::new(map))?;
                single.place().map(Places).map_err(de::Error::custom)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Places, A::Error> {
                let mut among = Vec::new();
                while let Some(Listed { place, weight: share }) = list.next_element()? {
                    let place = place.place().map_err(de::Error::custom)?;
                    among.push((place, weight(share).map_err(de::Error::custom)?));
                    if among.len() > CHOICES_MAX {
                        let most = format!("at most {CHOICES_MAX} places");
                        return Err(de::Error::custom(most));
                    }
                }
                let among = weighted(among).map_err(de::Error::custom)?;
                Ok(Places(OffsetDistribution::Mixed(among)))
            }
        }
        from.deserialize_any(Reads)
    }
}

/// Arrival process without its rate.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Comes {
    /// Constant intervals.
    #[default]
    Uniform,
    /// Exponential intervals.
    Poisson,
    /// Short and long intervals.
    Hyperexponential {
        /// Share of short ones.
        share: f64,
        /// Ratio of long to short ones.
        factor: f64,
    },
    /// Alternating on- and off-periods.
    OnOff(Duration, Duration),
}

impl Comes {
    /// Returns the arrival process at this rate.
    pub(super) fn at(self, rate: f64) -> Arrival {
        match self {
            Comes::Uniform => Arrival::Uniform { rate },
            Comes::Poisson => Arrival::Poisson { rate },
            Comes::Hyperexponential { share, factor } => {
                Arrival::Hyperexponential { rate, share, factor }
            }
            Comes::OnOff(on, off) => Arrival::OnOff { rate, on, off },
        }
    }
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Hyperexponential {
    share: f64,
    factor: f64,
}

impl<'de> Deserialize<'de> for Comes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Comes, D::Error> {
        struct Reads;
        impl<'de> Visitor<'de> for Reads {
            type Value = Comes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "\"uniform\", \"poisson\", { hyper = { share = 0.9, factor = 20 } }, or \
                     { on = \"10ms\", off = \"40ms\" }",
                )
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Comes, E> {
                match text {
                    "uniform" => Ok(Comes::Uniform),
                    "poisson" => Ok(Comes::Poisson),
                    other => Err(E::unknown_variant(other, &["uniform", "poisson"])),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Comes, A::Error> {
                let (mut hyper, mut on, mut off) = (None, None, None);
                while let Some(key) = map.next_key::<String>()? {
                    match key.as_str() {
                        "hyper" => hyper = Some(map.next_value::<Hyperexponential>()?),
                        "on" => on = Some(map.next_value::<Time>()?.0),
                        "off" => off = Some(map.next_value::<Time>()?.0),
                        other => {
                            return Err(de::Error::unknown_field(other, &["hyper", "on", "off"]));
                        }
                    }
                }
                comes(hyper, on, off).map_err(de::Error::custom)
            }
        }
        from.deserialize_any(Reads)
    }
}

fn comes(
    hyper: Option<Hyperexponential>,
    on: Option<Duration>,
    off: Option<Duration>,
) -> Result<Comes, String> {
    match (hyper, on, off) {
        (Some(Hyperexponential { share, factor }), None, None) => {
            let good = (0.0..=1.0).contains(&share) && (1.0..=1e6).contains(&factor);
            let wrong = "`share` is between 0 and 1, and `factor` between 1 and 1000000";
            if good {
                Ok(Comes::Hyperexponential { share, factor })
            } else {
                Err(wrong.to_string())
            }
        }
        (None, Some(on), Some(off)) => {
            let least = Duration::from_micros(1);
            let wrong = "`on` and `off` are at least 1us";
            if on.min(off) >= least { Ok(Comes::OnOff(on, off)) } else { Err(wrong.to_string()) }
        }
        (Some(_) | None, _, _) => Err("it has either `hyper`, or `on` and `off`".to_string()),
    }
}

/// Think time: constant or exponential.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Thinks(pub(super) Think);

impl<'de> Deserialize<'de> for Thinks {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Thinks, D::Error> {
        struct Reads;
        impl<'de> Visitor<'de> for Reads {
            type Value = Thinks;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time like \"5ms\", or { exponential = \"5ms\" }")
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Thinks, E> {
                self.visit_f64(number as f64)
            }

            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Thinks, E> {
                seconds(number).map(|span| Thinks(Think::Fixed(span))).map_err(E::custom)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Thinks, E> {
                time(text).map(|span| Thinks(Think::Fixed(span))).map_err(E::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Thinks, A::Error> {
                let key = map.next_key::<String>()?.unwrap_or_default();
                if key != "exponential" {
                    return Err(de::Error::unknown_field(&key, &["exponential"]));
                }
                let Time(mean) = map.next_value()?;
                match map.next_entry::<String, IgnoredAny>()? {
                    None => Ok(Thinks(Think::Exponential(mean))),
                    Some((key, _)) => Err(de::Error::unknown_field(&key, &["exponential"])),
                }
            }
        }
        from.deserialize_any(Reads)
    }
}
