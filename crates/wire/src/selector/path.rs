//! Paths into an object's JSON, as a field selector writes them, and a walk along them.
//!
//! `spec.nodeName`, `spec.ports[0].port`, `spec.containers[*].image`, `metadata.labels['app.kubernetes.io/name']`,
//! `metadata.labels.app\.kubernetes\.io/name`: what kubectl's JSONPath takes inside its braces, without the leading dot.

use crate::{
    jsonpath::{self, Dialect, Slice},
    scan::{Fault, Scanner},
};

/// Steps of one path.
const STEPS_MAX: usize = 64;

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Into the field of an object.
    Key(String),
    /// Into one element of an array, counted from 0.
    Index(usize),
    /// Into every element of an array: `[*]` or `[]`.
    Each,
}

/// One path into an object's JSON.
#[derive(Clone, Debug)]
pub struct FieldPath {
    steps: Vec<Step>,
    tree: Tree,
}

impl FieldPath {
    /// Reads a path, with or without a leading dot. `None`: it is not understood, or leads nowhere.
    pub fn parse(text: &str) -> Option<Self> {
        let steps = parse(text.strip_prefix('.').unwrap_or(text))?;
        if steps.is_empty() {
            return None;
        }
        let mut tree = Tree::default();
        tree.add_steps(&steps)?;
        Some(Self { steps, tree })
    }

    /// Its steps, from the object on.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Says whether it may lead to several values.
    pub fn is_of_many(&self) -> bool {
        self.tree.has_stars()
    }

    /// Gives each value that it leads to in a document that a JSON parser has accepted, as it is written there, until
    /// `visit` says that it is enough.
    pub fn walk<'a>(&self, json: &'a str, mut visit: impl FnMut(&'a str) -> bool) {
        self.tree.walk(json, |_, raw| visit(raw));
    }
}

impl PartialEq for FieldPath {
    fn eq(&self, other: &Self) -> bool {
        self.steps == other.steps
    }
}

impl Eq for FieldPath {}

/// Reads a path. `None` is one that is not understood.
fn parse(text: &str) -> Option<Vec<Step>> {
    // As it stands in braces.
    let nodes = jsonpath::parse(&format!(".{text}"), Dialect::Selector)?;
    let steps: Option<Vec<Step>> = nodes.into_iter().map(step).collect();
    steps.filter(|steps| steps.len() <= STEPS_MAX)
}

fn step(node: jsonpath::Node) -> Option<Step> {
    match node {
        jsonpath::Node::Field(key) if !key.is_empty() => Some(Step::Key(key)),
        jsonpath::Node::Array(Slice { from: Some(at), derived: true, .. }) => usize::try_from(at).ok().map(Step::Index),
        // `[]` is as `[*]`.
        jsonpath::Node::Array(slice) => {
            let is_empty = slice == Slice { to: Some(1), derived: true, ..Slice::default() };
            (is_empty || slice == Slice::default()).then_some(Step::Each)
        }
        _ => None,
    }
}

/// Several paths, merged to a tree that documents are walked along.
#[derive(Clone, Debug, Default)]
pub(super) struct Tree {
    nodes: Vec<Node>,
    /// Ends of paths: how many values a walk may find before it is over, if no path has a star.
    ends: Option<usize>,
}

#[derive(Clone, Debug, Default)]
struct Node {
    steps: Vec<(Step, usize)>,
    id: Option<usize>,
}

impl Tree {
    /// Adds a path and gives its number; the same path has the same number. `None`: it is not understood.
    pub(super) fn add(&mut self, text: &str) -> Option<usize> {
        self.add_steps(&parse(text)?)
    }

    fn add_steps(&mut self, steps: &[Step]) -> Option<usize> {
        if self.nodes.is_empty() {
            self.nodes.push(Node::default());
            self.ends = Some(0);
        }
        if steps.contains(&Step::Each) {
            self.ends = None;
        }
        let mut at = 0;
        for step in steps {
            let next = self.nodes.len();
            let node = self.nodes.get_mut(at)?;
            if let Some((_, known)) = node.steps.iter().find(|(known, _)| known == step) {
                at = *known;
                continue;
            }
            node.steps.push((step.clone(), next));
            self.nodes.push(Node::default());
            at = next;
        }
        let node = self.nodes.get_mut(at)?;
        if node.id.is_none() {
            node.id = Some(at);
            self.ends = self.ends.map(|ends| ends + 1);
        }
        node.id
    }

    /// Says whether a path may lead to several values.
    pub(super) fn has_stars(&self) -> bool {
        self.ends.is_none()
    }

    /// Walks a document that a JSON parser has accepted, and gives each value that a path leads to with the path's number.
    /// A path that meets a value of another shape leads to nothing. `visit` says whether the walk may end.
    pub(super) fn walk<'a>(&self, json: &'a str, visit: impl FnMut(usize, &'a str) -> bool) {
        let mut walk = Walk { tree: self, json, scanner: Scanner::new(json), left: self.ends, visit };
        // What is no JSON has no fields.
        let _nothing_more: Result<bool, Fault> = walk.document();
    }
}

/// Recurses along the paths alone, never along the document, so the longest path bounds its depth.
struct Walk<'t, 'a, F> {
    tree: &'t Tree,
    json: &'a str,
    scanner: Scanner<'a>,
    left: Option<usize>,
    visit: F,
}

impl<'t, 'a, F: FnMut(usize, &'a str) -> bool> Walk<'t, 'a, F> {
    /// Goes over the object's own fields, and no further than to the last that a path begins with.
    fn document(&mut self) -> Result<bool, Fault> {
        let Some(root) = self.tree.nodes.first() else { return Ok(false) };
        let mut left = root.steps.len();
        self.scanner.eat(b'{');
        while self.scanner.peek() == Some(b'"') {
            let key = self.scanner.key()?;
            let child = root.key(key).and_then(|at| self.tree.nodes.get(at));
            left -= usize::from(child.is_some()).min(left);
            if !self.value(child)? || left == 0 || !self.scanner.goes_on(b'}')? {
                break;
            }
        }
        Ok(false)
    }

    /// Says whether the walk goes on.
    fn value(&mut self, node: Option<&'t Node>) -> Result<bool, Fault> {
        let Some(node) = node else { return self.scanner.value().map(|_| true) };
        if let Some(id) = node.id {
            let start = self.scanner.at();
            // The path may end here for one term and go on for another.
            if !node.steps.is_empty() && !self.inside(node)? {
                return Ok(false);
            }
            let range = if node.steps.is_empty() { self.scanner.value()? } else { start..self.scanner.at() };
            self.left = self.left.map(|left| left.saturating_sub(1));
            let over = (self.visit)(id, self.json.get(range).unwrap_or_default().trim());
            return Ok(!over && self.left != Some(0));
        }
        self.inside(node)
    }

    fn inside(&mut self, node: &'t Node) -> Result<bool, Fault> {
        match self.scanner.peek() {
            Some(b'{') => self.object(node),
            Some(b'[') => self.array(node),
            _ => self.scanner.value().map(|_| true),
        }
    }

    fn object(&mut self, node: &'t Node) -> Result<bool, Fault> {
        self.scanner.eat(b'{');
        if self.scanner.eat(b'}') {
            return Ok(true);
        }
        loop {
            let key = self.scanner.key()?;
            if !self.value(node.key(key).and_then(|at| self.tree.nodes.get(at)))? {
                return Ok(false);
            }
            if !self.scanner.goes_on(b'}')? {
                return Ok(true);
            }
        }
    }

    fn array(&mut self, node: &'t Node) -> Result<bool, Fault> {
        self.scanner.eat(b'[');
        if self.scanner.eat(b']') {
            return Ok(true);
        }
        for index in 0.. {
            let one = node.element(&Step::Index(index)).and_then(|at| self.tree.nodes.get(at));
            let each = node.element(&Step::Each).and_then(|at| self.tree.nodes.get(at));
            let start = self.scanner.at();
            if !self.value(one.or(each))? {
                return Ok(false);
            }
            if one.is_some() && each.is_some() {
                self.scanner.back_to(start);
                if !self.value(each)? {
                    return Ok(false);
                }
            }
            if !self.scanner.goes_on(b']')? {
                break;
            }
        }
        Ok(true)
    }
}

impl Node {
    /// Finds the child of a key as it is written. Only a key with an escape is decoded, which allocates.
    fn key(&self, raw: &str) -> Option<usize> {
        if self.steps.is_empty() {
            return None;
        }
        let key = super::text_of(raw)?;
        self.steps.iter().find(|(step, _)| matches!(step, Step::Key(name) if *name == key)).map(|(_, at)| *at)
    }

    fn element(&self, wanted: &Step) -> Option<usize> {
        self.steps.iter().find(|(step, _)| step == wanted).map(|(_, at)| *at)
    }
}
