//! Text to a tree of [`Node`]s, from the YAML parser's events.
//!
//! Bounded in size, depth and number of values, aliases included: a few lines of nested aliases would otherwise unfold
//! to more values than there is memory. Duplicate keys are mistakes, merge keys (`<<`) are honoured.

use std::collections::HashMap;

use serde_saphyr::granit_parser::{self, Event, Parser, ScalarStyle, Span, Tag};

use super::mistake::{Mistake, Place};
use super::node::{Key, Node, Value, plain};
use super::source::{CONFIG, Kind};
use super::suggest::nearest;
use super::syntax;

/// Everything that walks the tree recurses; this keeps the stack small.
pub const DEPTH_MAX: usize = 64;

/// The file's only document (`None`: it is empty), and what is wrong with it as YAML.
pub fn parse(text: &str) -> (Option<Node>, Vec<Mistake>) {
    parse_as(&CONFIG, text)
}

/// Likewise, of a file of another kind.
pub fn parse_as(kind: &Kind, text: &str) -> (Option<Node>, Vec<Mistake>) {
    let mut builder = Builder { kind: *kind, ..Builder::default() };
    if text.len() > kind.bytes_max {
        builder.mistakes.push(Mistake::of_file(format!("is {} bytes long; at most {} are read", text.len(), kind.bytes_max)));
        return (None, builder.mistakes);
    }
    let options = granit_parser::options! {
        emit_comments: false,
        emit_anchor_events: true,
        emit_unresolved_aliases: true,
        flow_nesting_limit: DEPTH_MAX,
        block_nesting_limit: DEPTH_MAX,
    };
    for next in Parser::new_from_str_with_options(text, options) {
        let stop = match next {
            Ok((event, span)) => builder.take(event, span).err(),
            Err(error) => Some(Box::new(syntax::mistake(&error, text))),
        };
        if let Some(mistake) = stop {
            // What came before is incomplete: complaining about it would only distract from the cause.
            builder.mistakes.push(*mistake);
            return (None, builder.mistakes);
        }
    }
    (builder.root, builder.mistakes)
}

#[derive(Default)]
struct Builder {
    kind: Kind,
    root: Option<Node>,
    documents: usize,
    open: Vec<Open>,
    anchors: HashMap<usize, Node>,
    anchor_names: Vec<String>,
    nodes: usize,
    mistakes: Vec<Mistake>,
}

/// A list or map whose end has not come yet.
struct Open {
    place: Place,
    anchor: usize,
    inside: Inside,
}

enum Inside {
    List(Vec<Node>),
    Map(OpenMap),
}

#[derive(Default)]
struct OpenMap {
    entries: Vec<(Key, Node)>,
    /// Line of each key: looking through the entries would be quadratic.
    lines: HashMap<String, usize>,
    merged: Vec<Node>,
    key: Option<PendingKey>,
}

enum PendingKey {
    Key(Key),
    Merge,
    /// Already reported; its value is read and dropped.
    Bad,
}

impl Builder {
    /// The path of the value that comes next, as far as it is known.
    fn path(&self) -> String {
        let mut path = String::new();
        for open in &self.open {
            match &open.inside {
                Inside::List(items) => path.push_str(&format!("[{}]", items.len())),
                Inside::Map(OpenMap { key: Some(PendingKey::Key(key)), .. }) => {
                    path.push_str(if path.is_empty() { "" } else { "." });
                    path.push_str(&key.text);
                }
                Inside::Map(_) => {}
            }
        }
        path
    }

    fn wrong(&mut self, place: Place, message: impl Into<String>) {
        let mistake = Mistake::new(place, &self.path(), message);
        self.mistakes.push(mistake);
    }

    /// `Err`: reading on makes no sense.
    fn take(&mut self, event: Event<'_>, span: Span) -> Result<(), Box<Mistake>> {
        let place = place_of(&span);
        match event {
            Event::DocumentStart(..) => {
                self.documents += 1;
                if self.documents > 1 {
                    return Err(stop(place, format!("a second document (---) starts here; {} has one", self.kind.name)));
                }
            }
            Event::Scalar(text, style, anchor, tag) => {
                let tag = tag.as_deref().map(|tag| (tag, span.tag_span().map_or(place, |span| place_of(&span))));
                let node = self.scalar(place, &text, style, tag);
                self.complete(node, anchor, style == ScalarStyle::Plain)?;
            }
            Event::SequenceStart(_, anchor, tag) => self.start(place, anchor, tag.as_deref(), Inside::List(Vec::new()))?,
            Event::MappingStart(_, anchor, tag) => self.start(place, anchor, tag.as_deref(), Inside::Map(OpenMap::default()))?,
            Event::SequenceEnd | Event::MappingEnd => self.end()?,
            Event::Alias(id) => {
                let Some(node) = self.anchors.get(&id).cloned() else {
                    return Err(stop(place, "this alias stands inside the very value that it names"));
                };
                self.count(node.weight(), place)?;
                if self.open.len() + node.depth() > DEPTH_MAX {
                    return Err(Box::new(syntax::too_deep(place)));
                }
                self.complete(node, 0, false)?;
            }
            Event::UnresolvedAlias(name) => {
                let names = self.anchor_names.iter().map(String::as_str);
                let message = format!("no anchor &{name} was written above this alias; quote a text that begins with *");
                let mistake = Mistake::new(place, &self.path(), message);
                self.mistakes.push(mistake.suggest(nearest(&name, names).map(|n| format!("*{n}"))));
                self.complete(Node { place, value: Value::Wrong }, 0, false)?;
            }
            Event::Anchor(_, name) => self.anchor_names.push(name.into_owned()),
            _ => {}
        }
        Ok(())
    }

    fn scalar(&mut self, place: Place, text: &str, style: ScalarStyle, tag: Option<(&Tag, Place)>) -> Node {
        let as_text = tag.is_some_and(|(tag, _)| tag.is_yaml_core_schema_tag("str"));
        let value = match tag {
            Some((tag, at)) if !as_text => {
                self.tag(at, tag);
                Value::Wrong
            }
            _ if as_text || style != ScalarStyle::Plain => Value::String(text.to_owned()),
            _ => plain(text).unwrap_or_else(|why| {
                self.wrong(place, why);
                Value::Wrong
            }),
        };
        Node { place, value }
    }

    fn tag(&mut self, place: Place, tag: &Tag) {
        let message = format!("the tag {} has no meaning here; quote a text or an expression that begins with !", tag.original());
        self.wrong(place, message);
    }

    fn start(&mut self, place: Place, anchor: usize, tag: Option<&Tag>, inside: Inside) -> Result<(), Box<Mistake>> {
        if let Some(tag) = tag.filter(|t| !t.is_yaml_core_schema_tag("map") && !t.is_yaml_core_schema_tag("seq")) {
            self.tag(place, tag);
        }
        if self.open.len() >= DEPTH_MAX {
            return Err(Box::new(syntax::too_deep(place)));
        }
        self.open.push(Open { place, anchor, inside });
        Ok(())
    }

    fn end(&mut self) -> Result<(), Box<Mistake>> {
        let Some(Open { place, anchor, inside }) = self.open.pop() else { return Ok(()) };
        let value = match inside {
            Inside::List(items) => Value::List(items),
            Inside::Map(mut map) => {
                for source in std::mem::take(&mut map.merged) {
                    self.merge(&mut map, source);
                }
                Value::Map(map.entries)
            }
        };
        self.complete(Node { place, value }, anchor, false)
    }

    /// Puts a finished value where it belongs: into the list or map around it, as a key, or at the top.
    fn complete(&mut self, node: Node, anchor: usize, plain: bool) -> Result<(), Box<Mistake>> {
        self.count(1, node.place)?;
        if anchor != 0 {
            self.count(node.weight(), node.place)?;
            self.anchors.insert(anchor, node.clone());
        }
        let Some(open) = self.open.last_mut() else {
            self.root.get_or_insert(node);
            return Ok(());
        };
        let map = match &mut open.inside {
            Inside::List(items) => {
                items.push(node);
                return Ok(());
            }
            Inside::Map(map) => map,
        };
        match map.key.take() {
            Some(PendingKey::Key(name)) => {
                // An absent value has no place of its own: the parser gives that of whatever follows.
                let place = if node.value == Value::Null { name.place } else { node.place };
                map.entries.push((name, Node { place, ..node }));
            }
            Some(PendingKey::Merge) => map.merged.push(node),
            Some(PendingKey::Bad) => {}
            None => {
                let place = node.place;
                let (key, wrong) = pending_key(node, plain, &mut map.lines);
                map.key = Some(key);
                if let Some((name, message)) = wrong {
                    let path = format!("{}.{name}", self.path());
                    self.mistakes.push(Mistake::new(place, path.trim_matches('.'), message));
                }
            }
        }
        Ok(())
    }

    /// `<<: *base`: entries of `base` that are not written here. What is written here, or merged earlier, wins.
    fn merge(&mut self, map: &mut OpenMap, source: Node) {
        match source.value {
            Value::Map(base) => {
                for (key, node) in base {
                    if !map.lines.contains_key(&key.text) {
                        map.lines.insert(key.text.clone(), key.place.line);
                        map.entries.push((key, node));
                    }
                }
            }
            Value::List(bases) => bases.into_iter().for_each(|base| self.merge(map, base)),
            _ => self.wrong(source.place, "<< takes a map, as in <<: *defaults"),
        }
    }

    fn count(&mut self, nodes: usize, place: Place) -> Result<(), Box<Mistake>> {
        self.nodes += nodes;
        let nodes_max = self.kind.nodes_max;
        if self.nodes > nodes_max {
            let message = format!("the file unfolds to more than {nodes_max} values here; aliases repeat what they name");
            return Err(stop(place, message));
        }
        Ok(())
    }
}

/// What a value in the place of a key is, and what is wrong with it: the name to report it by, and the message.
fn pending_key(node: Node, is_plain: bool, lines: &mut HashMap<String, usize>) -> (PendingKey, Option<(String, String)>) {
    let place = node.place;
    let text = match node.value {
        Value::String(text) if !text.is_empty() => text,
        Value::Bool(b) => b.to_string(),
        Value::Int(i) => i.to_string(),
        Value::Float(f) => f.to_string(),
        value => {
            let found = Node { place, value }.found();
            return (PendingKey::Bad, Some((String::new(), format!("a key is a word; found {found}"))));
        }
    };
    if text == "<<" && is_plain {
        return (PendingKey::Merge, None);
    }
    if let Some(first) = lines.get(&text) {
        let message = format!("duplicate key; it was first written in line {first}");
        return (PendingKey::Bad, Some((text, message)));
    }
    lines.insert(text.clone(), place.line);
    (PendingKey::Key(Key { text, place }), None)
}

fn place_of(span: &Span) -> Place {
    let (start, end) = (&span.start, &span.end);
    let width = if start.line() == end.line() { end.col().saturating_sub(start.col()).max(1) } else { 1 };
    Place { line: start.line().max(1), column: start.col() + 1, width }
}

fn stop(place: Place, message: impl Into<String>) -> Box<Mistake> {
    Box::new(Mistake::new(place, "", message))
}
