//! Typed reading of the tree: each method gives the value, or reports what is wrong with it and gives `None`.
//!
//! Nothing here stops at the first mistake; the caller goes on with a default and the report decides at the end.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::mistake::{Mistake, Place};
use super::node::{Key, Node, Value};
use super::report::Report;
use super::suggest::nearest;
use super::units::{self, Unreadable};

/// How many fields are named where a map is missing.
const NAMED_MAX: usize = 5;

/// One value of the file, with the path that leads to it.
#[derive(Clone)]
pub struct Spot<'a> {
    pub node: &'a Node,
    pub path: String,
    pub report: &'a Report,
    /// Where its key stands (itself, if it has none): what is missing inside is missed there.
    pub named: Place,
}

impl<'a> Spot<'a> {
    pub fn top(node: &'a Node, report: &'a Report) -> Self {
        Self { node, path: String::new(), report, named: node.place }
    }

    /// A mistake at this place; the caller may add what is allowed before it is reported.
    pub fn mistake(&self, message: impl Into<String>) -> Mistake {
        Mistake::new(self.node.place, &self.path, message)
    }

    pub fn wrong(&self, message: impl Into<String>) {
        self.refuse(self.mistake(message));
    }

    /// Reports a mistake about this value, unless it was reported when the tree was built.
    fn refuse(&self, mistake: Mistake) {
        if self.node.value != Value::Wrong {
            self.report.add(mistake);
        }
    }

    /// A mistake about the whole of this value, such as something it lacks.
    pub fn wrong_whole(&self, message: impl Into<String>) {
        self.report.add(Mistake::new(self.named, &self.path, message));
    }

    fn expected(&self, what: &str) {
        self.wrong(format!("found {}; expected {what}", self.node.found()));
    }

    pub fn text(&self) -> Option<&'a str> {
        match &self.node.value {
            Value::String(text) => return Some(text),
            Value::Null | Value::List(_) | Value::Map(_) | Value::Wrong => self.expected("a text"),
            Value::Bool(_) | Value::Int(_) | Value::Float(_) => {
                let quoted = format!("{:?}", self.node.to_json().to_string());
                self.wrong(format!("found {}; expected a text: put it in quotes, {quoted}", self.node.found()));
            }
        }
        None
    }

    /// Text, or a number or boolean as it would be printed.
    pub fn printed(&self) -> Option<String> {
        match &self.node.value {
            Value::Bool(_) | Value::Int(_) | Value::Float(_) => Some(self.node.to_json().to_string()),
            _ => self.text().map(str::to_owned),
        }
    }

    pub fn bool(&self) -> Option<bool> {
        let meant = match &self.node.value {
            Value::Bool(b) => return Some(*b),
            Value::String(text) => match text.to_lowercase().as_str() {
                "yes" | "on" | "y" | "true" | "1" => Some("true"),
                "no" | "off" | "n" | "false" | "0" => Some("false"),
                _ => None,
            },
            _ => None,
        };
        let mistake = self.mistake(format!("found {}; expected true or false", self.node.found()));
        self.refuse(mistake.suggest(meant));
        None
    }

    pub fn int(&self, range: RangeInclusive<i64>) -> Option<i64> {
        match self.node.value {
            Value::Int(i) if range.contains(&i) => Some(i),
            _ => {
                self.expected(&format!("a whole number from {} to {}", range.start(), range.end()));
                None
            }
        }
    }

    /// A count from `least` up to what a `u32` holds.
    pub fn count(&self, least: u32) -> Option<u32> {
        match self.node.value {
            Value::Int(i) if i >= i64::from(least) => u32::try_from(i).ok().or_else(|| {
                self.wrong(format!("{i} is too large; at most {}", u32::MAX));
                None
            }),
            _ => {
                self.expected(&format!("a whole number, at least {least}"));
                None
            }
        }
    }

    pub fn number(&self) -> Option<f64> {
        match self.node.value {
            Value::Int(i) => Some(i as f64),
            Value::Float(f) => Some(f),
            _ => {
                self.expected("a number");
                None
            }
        }
    }

    /// A duration above zero.
    pub fn duration(&self) -> Option<Duration> {
        let duration = self.duration_or_zero()?;
        if duration.is_zero() {
            self.wrong("found 0; expected a duration above zero");
            return None;
        }
        Some(duration)
    }

    pub fn duration_or_zero(&self) -> Option<Duration> {
        self.unit(units::duration)
    }

    pub fn size(&self) -> Option<usize> {
        self.unit(units::size)
    }

    pub fn unit<T>(&self, parse: fn(&str) -> Result<T, Unreadable>) -> Option<T> {
        let text = match &self.node.value {
            Value::Int(i) => i.to_string(),
            Value::Float(f) => f.to_string(),
            Value::String(text) => text.clone(),
            _ => String::new(),
        };
        parse(&text)
            .map_err(|unreadable| {
                let why = if text.is_empty() { format!("found {}; {}", self.node.found(), unreadable.why) } else { unreadable.why };
                self.refuse(self.mistake(why).suggest(unreadable.suggestion));
            })
            .ok()
    }

    /// One of a few words. `false` is `off` where that is one of them: other YAML readers write it so.
    pub fn choice<T: Clone>(&self, choices: &[(&str, T)]) -> Option<T> {
        let word = match &self.node.value {
            Value::Bool(false) => "off",
            Value::String(text) => text,
            _ => "",
        };
        if let Some((_, chosen)) = choices.iter().find(|(name, _)| *name == word) {
            return Some(chosen.clone());
        }
        let names = || choices.iter().map(|(name, _)| *name);
        let mistake = self.mistake(format!("found {}; expected one of {}", self.node.found(), names().collect::<Vec<_>>().join(", ")));
        self.refuse(mistake.suggest(nearest(word, names())));
        None
    }

    /// Whether this is `off`.
    pub fn is_off(&self) -> bool {
        matches!(&self.node.value, Value::Bool(false)) || self.node.as_str() == Some("off")
    }

    pub fn list(&self) -> Option<Vec<Spot<'a>>> {
        let Value::List(items) = &self.node.value else {
            self.expected("a list, as in [a, b]");
            return None;
        };
        let item = |(i, node)| Spot { node, path: format!("{}[{i}]", self.path), report: self.report, named: node.place };
        Some(items.iter().enumerate().map(item).collect())
    }

    /// A map whose keys are the user's own.
    pub fn entries(&self) -> Option<Vec<(&'a Key, Spot<'a>)>> {
        let Value::Map(entries) = &self.node.value else {
            self.expected("a map, as in { name: value }");
            return None;
        };
        Some(entries.iter().map(|(key, node)| (key, self.below(key, node))).collect())
    }

    /// A map whose keys are ours: all others are reported now.
    pub fn fields(&self, known: &'static [&'static str]) -> Option<Fields<'a>> {
        self.fields_but(known, |_| Stranger::Unknown)
    }

    /// Likewise, but `stranger` has a say about the others.
    pub fn fields_but(&self, known: &'static [&'static str], stranger: fn(&str) -> Stranger) -> Option<Fields<'a>> {
        if !matches!(self.node.value, Value::Map(_)) {
            let some = known.iter().take(NAMED_MAX).copied().collect::<Vec<_>>().join(", ");
            let more = if known.len() > NAMED_MAX { ", …" } else { "" };
            self.expected(&format!("a map of {some}{more}"));
            return None;
        }
        for (key, spot) in self.entries()? {
            let name = key.text.as_str();
            let meant = match stranger(name) {
                _ if known.contains(&name) => continue,
                Stranger::Welcome => continue,
                Stranger::Belongs(place) => Some(format!("{place}.{name}")),
                Stranger::Unknown => nearest(name, known.iter().copied()).map(str::to_owned),
            };
            self.report.add(Mistake::new(key.place, &spot.path, "unknown field").allowed(known.iter().copied()).suggest(meant));
        }
        Some(Fields { spot: self.clone(), known })
    }

    fn below(&self, key: &Key, node: &'a Node) -> Spot<'a> {
        let path = if self.path.is_empty() { key.text.clone() } else { format!("{}.{}", self.path, key.text) };
        Spot { node, path, report: self.report, named: key.place }
    }
}

/// What to make of a key that is not in the list.
pub enum Stranger {
    Unknown,
    /// The user's own.
    Welcome,
    /// Known, but a level deeper.
    Belongs(&'static str),
}

/// A map with known keys.
#[derive(Clone)]
pub struct Fields<'a> {
    pub spot: Spot<'a>,
    known: &'static [&'static str],
}

impl<'a> Fields<'a> {
    pub fn get(&self, name: &'static str) -> Option<Spot<'a>> {
        debug_assert!(self.known.contains(&name), "{name} is not in the list of known fields");
        let Value::Map(entries) = &self.spot.node.value else { return None };
        entries.iter().find(|(key, _)| key.text == name).map(|(key, node)| self.spot.below(key, node))
    }

    pub fn has(&self, name: &'static str) -> bool {
        self.get(name).is_some()
    }

    pub fn require(&self, name: &'static str) -> Option<Spot<'a>> {
        let field = self.get(name);
        if field.is_none() {
            self.spot.wrong_whole(format!("{name:?} is missing"));
        }
        field
    }

    /// Reads a field into `into`, which keeps its default when the field is absent or wrong.
    pub fn read<T>(&self, name: &'static str, read: impl FnOnce(&Spot<'a>) -> Option<T>, into: &mut T) {
        if let Some(value) = self.get(name).and_then(|spot| read(&spot)) {
            *into = value;
        }
    }

    /// A mistake about a field as a whole rather than about its value; about the map when the field is absent.
    pub fn wrong(&self, name: &'static str, message: impl Into<String>) {
        self.get(name).unwrap_or_else(|| self.spot.clone()).wrong_whole(message);
    }

    /// The one of `names` that is there; none or several are a mistake.
    pub fn exactly_one(&self, names: &[&'static str]) -> Option<(&'static str, Spot<'a>)> {
        let mut found = names.iter().filter_map(|name| self.get(name).map(|spot| (*name, spot)));
        let Some(first) = found.next() else {
            self.spot.wrong_whole(format!("one of {} is missing", names.join(", ")));
            return None;
        };
        for (name, _) in found {
            self.wrong(name, format!("{} is already written; exactly one of {} may be", first.0, names.join(", ")));
        }
        Some(first)
    }
}
