//! The language of the shell: lists of pipelines of words.

use std::{collections::VecDeque, iter::Peekable, str::Chars};

/// When a pipeline runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    Always,
    /// The one before it succeeded.
    Succeeded,
    /// The one before it failed.
    Failed,
}

/// A part of a word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Text(String),
    Variable(String),
}

pub(super) type Word = Vec<Piece>;

/// One command, and what becomes of what it writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Command {
    pub(super) words: Vec<Word>,
    /// `>FILE`.
    pub(super) output: Option<Output>,
    /// `2>/dev/null`.
    pub(super) no_errors: bool,
    /// `2>&1`.
    pub(super) errors_to_output: bool,
}

/// The file that a command writes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Output {
    pub(super) path: Word,
    /// `>>`.
    pub(super) appends: bool,
}

/// Commands of which each reads what the one before it wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pipeline {
    pub(super) when: When,
    pub(super) commands: Vec<Command>,
}

/// Why a line is not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SyntaxError {
    #[error("syntax error: unterminated quoted string")]
    Quote,
    #[error("syntax error: unexpected \"{0}\"")]
    Unexpected(String),
    #[error("syntax error: the shell of the simulation has no {0}")]
    Unknown(&'static str),
}

const KEYWORDS: [&str; 12] =
    ["if", "then", "else", "fi", "for", "while", "until", "do", "done", "case", "esac", "function"];

enum Token {
    Word(Word),
    Operator(&'static str),
}

/// The pipelines of a script.
pub(super) fn parse(script: &str) -> Result<VecDeque<Pipeline>, SyntaxError> {
    let mut tokens = tokens(script)?.into_iter().peekable();
    let (mut done, mut when) = (VecDeque::new(), When::Always);
    let (mut commands, mut command) = (Vec::new(), Command::default());
    while let Some(token) = tokens.next() {
        match token {
            Token::Word(word) => {
                if let [Piece::Text(text)] = word.as_slice()
                    && command.words.is_empty()
                    && KEYWORDS.contains(&text.as_str())
                {
                    return Err(SyntaxError::Unknown("loops and conditions; it has && and ||"));
                }
                command.words.push(word);
            }
            Token::Operator("2>&1") => command.errors_to_output = true,
            Token::Operator(operator @ (">" | ">>" | "2>")) => {
                let Some(Token::Word(word)) = tokens.next() else {
                    return Err(SyntaxError::Unexpected(operator.into()));
                };
                match operator {
                    "2>" if word != [Piece::Text("/dev/null".to_owned())] => {
                        return Err(SyntaxError::Unknown("errors in files; it has 2>/dev/null and 2>&1"));
                    }
                    "2>" => command.no_errors = true,
                    operator => command.output = Some(Output { path: word, appends: operator == ">>" }),
                }
            }
            Token::Operator(operator) => {
                if command.words.is_empty() && operator != "\n" {
                    return Err(SyntaxError::Unexpected(operator.to_owned()));
                }
                if !command.words.is_empty() {
                    commands.push(std::mem::take(&mut command));
                }
                if operator == "|" || commands.is_empty() {
                    continue;
                }
                done.push_back(Pipeline { when, commands: std::mem::take(&mut commands) });
                when = match operator {
                    "&&" => When::Succeeded,
                    "||" => When::Failed,
                    _ => When::Always,
                };
            }
        }
    }
    match (command.words.is_empty(), commands.is_empty()) {
        (true, false) => return Err(SyntaxError::Unexpected("|".to_owned())),
        (false, _) => {
            commands.push(command);
            done.push_back(Pipeline { when, commands });
        }
        (true, true) if when != When::Always => return Err(SyntaxError::Unexpected("newline".to_owned())),
        (true, true) => {}
    }
    Ok(done)
}

fn tokens(script: &str) -> Result<Vec<Token>, SyntaxError> {
    let (mut tokens, mut chars) = (Vec::new(), script.chars().peekable());
    while let Some(&next) = chars.peek() {
        let operator = match next {
            ' ' | '\t' | '\r' => None,
            '#' => {
                while chars.peek().is_some_and(|next| *next != '\n') {
                    chars.next();
                }
                continue;
            }
            ';' => Some(";"),
            '\n' => Some("\n"),
            '|' => Some("|"),
            '&' => Some("&&"),
            '>' => Some(">"),
            '<' | '(' | ')' | '`' => return Err(SyntaxError::Unknown("subshells and no input from files")),
            _ => {
                match word(&mut chars)? {
                    // A number before `>` is a stream, where it stands alone.
                    word if word == [Piece::Text("2".into())] && chars.peek() == Some(&'>') => {
                        chars.next();
                        let rest: String = chars.clone().take(2).collect();
                        if rest == "&1" {
                            chars.nth(1);
                            tokens.push(Token::Operator("2>&1"));
                        } else {
                            tokens.push(Token::Operator("2>"));
                        }
                    }
                    word => tokens.push(Token::Word(word)),
                }
                continue;
            }
        };
        chars.next();
        match operator {
            Some("|") if chars.next_if_eq(&'|').is_some() => tokens.push(Token::Operator("||")),
            Some("&&") if chars.next_if_eq(&'&').is_none() => {
                return Err(SyntaxError::Unknown("jobs in the background"));
            }
            Some(">") if chars.next_if_eq(&'>').is_some() => tokens.push(Token::Operator(">>")),
            Some(operator) => tokens.push(Token::Operator(operator)),
            None => {}
        }
    }
    Ok(tokens)
}

fn word(chars: &mut Peekable<Chars<'_>>) -> Result<Word, SyntaxError> {
    let (mut word, mut text, mut quoted) = (Vec::new(), String::new(), false);
    while let Some(&next) = chars.peek() {
        match next {
            ' ' | '\t' | '\r' | '\n' | ';' | '|' | '&' | '>' | '<' | '(' | ')' | '`' if !quoted => break,
            '"' => {
                quoted = !quoted;
                chars.next();
                // An empty string is a word, too.
                word.push(Piece::Text(std::mem::take(&mut text)));
            }
            '\'' if !quoted => {
                chars.next();
                loop {
                    match chars.next() {
                        Some('\'') => break,
                        Some(next) => text.push(next),
                        None => return Err(SyntaxError::Quote),
                    }
                }
                word.push(Piece::Text(std::mem::take(&mut text)));
            }
            '\\' => {
                chars.next();
                text.extend(chars.next());
            }
            '$' => {
                chars.next();
                match variable(chars)? {
                    Some(name) => word.extend([Piece::Text(std::mem::take(&mut text)), Piece::Variable(name)]),
                    None => text.push('$'),
                }
            }
            next => {
                chars.next();
                text.push(next);
            }
        }
    }
    if quoted {
        return Err(SyntaxError::Quote);
    }
    if !text.is_empty() || word.is_empty() {
        word.push(Piece::Text(text));
    }
    Ok(word)
}

/// The name after a `$`.
fn variable(chars: &mut Peekable<Chars<'_>>) -> Result<Option<String>, SyntaxError> {
    let mut name = String::new();
    match chars.peek() {
        Some('(') => return Err(SyntaxError::Unknown("subshells and no input from files")),
        Some('{') => {
            chars.next();
            loop {
                match chars.next() {
                    Some('}') => break,
                    Some(next) if next.is_ascii_alphanumeric() || next == '_' => name.push(next),
                    _ => return Err(SyntaxError::Unexpected("${".to_owned())),
                }
            }
        }
        Some('?' | '$' | '#') => name.extend(chars.next()),
        _ => {
            while let Some(next) = chars.next_if(|next| next.is_ascii_alphanumeric() || *next == '_') {
                name.push(next);
            }
        }
    }
    Ok(Some(name).filter(|name| !name.is_empty()))
}
