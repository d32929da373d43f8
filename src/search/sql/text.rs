//! A statement in the making: its text, and what is bound to it in the order of the text.

use crate::search::sql::dialect::{Dialect, Parameter};

/// A statement with its parameters, the first of which is number 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Statement {
    /// The text.
    pub text: String,
    /// What is bound to it.
    pub parameters: Vec<Parameter>,
}

/// Values that stand in a statement of MySQL one by one.
const LISTED_MAX: usize = 1000;

/// Appends to a statement.
pub(super) struct Writer {
    pub(super) dialect: Dialect,
    text: String,
    parameters: Vec<Parameter>,
}

impl Writer {
    pub(super) fn new(dialect: Dialect) -> Self {
        Self { dialect, text: String::new(), parameters: Vec::new() }
    }

    /// Appends text of the program itself.
    pub(super) fn push(&mut self, text: &str) -> &mut Self {
        self.text.push_str(text);
        self
    }

    /// Appends a place for a value.
    pub(super) fn bind(&mut self, parameter: Parameter) -> &mut Self {
        let place = self.dialect.place(self.parameters.len() + 1, &parameter);
        self.text.push_str(&place);
        self.parameters.push(parameter);
        self
    }

    /// The same for a text.
    pub(super) fn bind_text(&mut self, text: &str) -> &mut Self {
        self.bind(Parameter::Text(text.to_owned()))
    }

    /// Appends ` IN (...)`: what stands before it is one of the values.
    pub(super) fn among(&mut self, values: &[&str]) -> &mut Self {
        if let [one] = values {
            return self.push(" = ").bind_text(one);
        }
        if self.dialect == Dialect::Mysql && (2..=LISTED_MAX).contains(&values.len()) {
            // It looks up what stands in the statement itself.
            self.push(" IN (");
            for (at, value) in values.iter().enumerate() {
                self.push(if at == 0 { "" } else { ", " }).bind_text(value);
            }
            return self.push(")");
        }
        // One parameter, however many there are: a statement may have no more than some thousands.
        let [before, behind] = self.dialect.texts();
        let all = serde_json::Value::from(values.to_vec()).to_string();
        self.push(" IN (").push(before).bind(Parameter::Text(all)).push(behind).push(")")
    }

    pub(super) fn finish(self) -> Statement {
        Statement { text: self.text, parameters: self.parameters }
    }
}
