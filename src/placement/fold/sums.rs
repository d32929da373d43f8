//! What the parts of an object come to. It is kept as parts change: a new state of one part costs as much as that part.

use std::ops::Range;

use crate::placement::{
    companions::Limits,
    divided::Field,
    fold::{Divided, FoldKind, Numbers, Summand, Summands, integer, status, values},
};
use kubefold_wire::splice::{Edit, ObjectEdits};

/// The sums over all parts of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    generation: i128,
    divided: Vec<i128>,
    /// In how many parts a divided field is no whole number.
    no_numbers: Vec<i128>,
    counters: Vec<i128>,
    /// Of how many parts the spec, or the status, is no object: nothing is summed up then.
    no_specs: i128,
    no_statuses: i128,
    /// By part, a number that stands for what its conditions say.
    said: Vec<u64>,
}

impl Sums {
    /// Adds all up.
    pub fn of(all: &dyn Summands) -> Self {
        let mut this = Self { said: vec![0; all.count()], ..Self::default() };
        for at in 0..all.count() {
            this.put(at, None, all.get(at));
        }
        this
    }

    /// Puts a new state of one part in the place of an earlier one.
    pub fn put(&mut self, at: usize, before: Option<&Summand>, now: Option<&Summand>) {
        for (summand, sign) in [(before, -1), (now, 1)] {
            if let Some(summand) = summand {
                self.count(summand, sign);
            }
        }
        if let Some(said) = self.said.get_mut(at) {
            *said = now.and_then(|now| now.status.as_ref()).map_or(0, |status| status.said);
        }
    }

    fn count(&mut self, summand: &Summand, sign: i128) {
        self.generation += sign * i128::from(summand.generation);
        match &summand.spec {
            None => self.no_specs += sign,
            Some(fields) => {
                for (at, field) in fields.iter().enumerate() {
                    match field {
                        Divided::Absent => {}
                        Divided::Number(number) => add(&mut self.divided, at, sign * i128::from(*number)),
                        Divided::Other => add(&mut self.no_numbers, at, sign),
                    }
                }
            }
        }
        match &summand.status {
            None => self.no_statuses += sign,
            Some(status) => {
                let counters = status.counters.iter().enumerate();
                counters.for_each(|(at, counter)| add(&mut self.counters, at, sign * i128::from(*counter)));
            }
        }
    }

    /// The edits that put the sums into a document that has the home's values at `numbers`. Each of `behind` parts that an
    /// unfinished write has not reached counts one in `generation`, so that caught up is exactly equal.
    ///
    /// Shape: `parts` are those that were added up. Where their conditions say the same, few of them are looked at.
    pub fn edits(
        &self,
        body: &str,
        numbers: &Numbers,
        parts: &dyn Summands,
        kind: FoldKind,
        behind: usize,
    ) -> Vec<Edit<'static>> {
        let mut edits = Vec::new();
        // Of a companion what was written, which its only part need not say.
        let whole = parts.get(0).and_then(|home| home.whole.as_deref());
        let has_more = parts.get(0).is_some_and(|home| home.has_more);
        if parts.count() < 2 && behind == 0 && whole.is_none() && !has_more {
            return edits;
        }
        let value = |at: &Range<usize>| body.get(at.clone()).unwrap_or_default();
        if let Some(at) = &numbers.generation {
            let sum = clamped(self.generation.saturating_add(i128::try_from(behind).unwrap_or(i128::MAX))).to_string();
            if value(at) != sum {
                edits.push(Edit::new(at.clone(), sum.into_bytes()));
            }
        }
        let object = |at: &Range<usize>| ObjectEdits::new(value(at), at.start).ok();
        let is_divided = whole.is_some() || !kind.divided().is_empty();
        if let Some(mut spec) = numbers.spec.as_ref().filter(|_| self.no_specs == 0 && is_divided).and_then(object) {
            match whole {
                Some(whole) => written(&mut spec, kind, whole),
                None => self.spec(&mut spec, kind),
            }
            edits.extend(spec.finish());
        }
        if let Some(mut status) = numbers.status.as_ref().filter(|_| self.no_statuses == 0).and_then(object) {
            let sum = |at: usize| clamped(self.counters.get(at).copied().unwrap_or_default());
            status::fold(&mut status, sum, &self.firsts(parts), parts, kind);
            edits.extend(status.finish());
        }
        edits
    }

    /// The sums of the divided fields. One that is not a whole number everywhere (a percentage) is each part's own.
    fn spec(&self, spec: &mut ObjectEdits<'_>, kind: FoldKind) {
        let mut wanted: Vec<values::Wanted<'_>> = Vec::new();
        for (at, path) in kind.divided().iter().enumerate() {
            let Some(now) = values::at(spec.members(), path).and_then(integer) else { continue };
            let sum = clamped(self.divided.get(at).copied().unwrap_or_default());
            if self.no_numbers.get(at).is_none_or(|others| *others == 0) && sum != now {
                wanted.push((path, sum.to_string().into_bytes()));
            }
        }
        values::set(spec, wanted);
    }

    /// Of parts whose conditions say the same, the first. Most often all say the same.
    fn firsts<'a>(&self, parts: &'a dyn Summands) -> Vec<&'a status::Summand> {
        let mut firsts: Vec<usize> = Vec::new();
        for (at, said) in self.said.iter().enumerate() {
            if !firsts.iter().any(|first| self.said.get(*first) == Some(said)) {
                firsts.push(at);
            }
        }
        firsts.into_iter().filter_map(|at| parts.get(at)?.status.as_ref()).collect()
    }
}

/// The divided fields as they were written.
fn written(spec: &mut ObjectEdits<'_>, kind: FoldKind, whole: &Limits) {
    for key in kind.companion().iter().flat_map(|division| division.fields()).map(Field::name) {
        let limit = whole.named(key).map(|limit| limit.to_json().to_string());
        match (limit, spec.member(key).map(|now| now.raw)) {
            (Some(limit), now) if now != Some(limit.as_str()) => spec.set(key, limit.into_bytes()),
            (None, Some(_)) => spec.remove(|name| name == key),
            _ => {}
        }
    }
}

fn add(sums: &mut Vec<i128>, at: usize, number: i128) {
    if sums.len() <= at {
        sums.resize(at + 1, 0);
    }
    if let Some(sum) = sums.get_mut(at) {
        *sum += number;
    }
}

fn clamped(sum: i128) -> i64 {
    i64::try_from(sum).unwrap_or(if sum < 0 { i64::MIN } else { i64::MAX })
}
