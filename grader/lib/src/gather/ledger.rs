//! What an item may say, and what it must have said before the next one begins.

use std::collections::BTreeMap;

use super::gathered::Gathered;
use super::{Item, Message};
use crate::oracles;
use crate::scorecard::{Check, Guard, MOST_SAMPLES, Measurement};

/// Messages of one item: a timed case has a dozen, a compiled step a hundred.
const MOST_MESSAGES: usize = 2_000;

/// What was said of the item in progress. It counts when the item is done, not before.
pub(super) struct Ledger<'a> {
    challenge: &'a str,
    item: &'a Item,
    messages: usize,
    check: Option<Check>,
    guards: Vec<Guard>,
    measurements: BTreeMap<String, Measurement>,
    unmeasured: BTreeMap<String, String>,
    text: String,
}

impl<'a> Ledger<'a> {
    pub fn new(challenge: &'a str, item: &'a Item) -> Self {
        let (guards, measurements, unmeasured) = (vec![], BTreeMap::new(), BTreeMap::new());
        let text = String::new();
        Self { challenge, item, messages: 0, check: None, guards, measurements, unmeasured, text }
    }

    /// Takes down a message, or says why it is none of this item's.
    pub fn admit(&mut self, message: Message) -> Result<(), String> {
        self.messages += 1;
        if self.messages > MOST_MESSAGES {
            return Err(format!("reported more than {MOST_MESSAGES} results"));
        }
        match message {
            Message::Check(check) => self.check(check),
            Message::Guard(guard) => self.guard(guard),
            Message::Measured(name, value) => self.measured(&name, value),
            Message::Unmeasured(name, reason) => self.unmeasured(&name, reason),
            Message::Text(piece) => self.text(&piece),
            Message::Ready | Message::Done | Message::Recycle => Err("began twice".into()),
            Message::Failed(why) => Err(why),
        }
    }

    fn check(&mut self, check: Check) -> Result<(), String> {
        if !self.item.is_check() || check.name != self.item.name {
            return Err(self.foreign("check", &check.name));
        }
        if self.check.replace(check).is_some() {
            return Err(twice("check", &self.item.name));
        }
        Ok(())
    }

    fn guard(&mut self, mut guard: Guard) -> Result<(), String> {
        let is_own = match self.item.guard() {
            Some(own) => guard.name == own,
            None => self.item.guards.contains(&guard.name.as_str()),
        };
        let is_known = is_own || (guard.tripped && oracles::is_guard(&guard.name)); // it watches every item
        if !is_known || guard.challenge != self.challenge {
            return Err(self.foreign("guard", &guard.name));
        }
        if self.guards.iter().any(|known| known.name == guard.name) {
            return Err(twice("guard", &guard.name));
        }
        if !guard.ran && guard.detail.is_empty() {
            guard.detail = "did not run".into();
        }
        self.guards.push(guard);
        Ok(())
    }

    fn measured(&mut self, name: &str, value: Measurement) -> Result<(), String> {
        if !self.item.may_measure(name) {
            return Err(self.foreign("number", name));
        }
        if value.samples.len() > MOST_SAMPLES {
            return Err(format!(
                "reported {} samples of {name}, at most {MOST_SAMPLES} are kept",
                value.samples.len()
            ));
        }
        match self.measurements.insert(name.to_owned(), value) {
            None => Ok(()),
            Some(_) => Err(twice("number", name)),
        }
    }

    fn unmeasured(&mut self, name: &str, reason: String) -> Result<(), String> {
        let is_own = matches!(self.item.group(), "bench" | "watch") && name == self.item.name;
        if !is_own && !self.item.may_measure(name) {
            return Err(self.foreign("number", name));
        }
        match self.unmeasured.insert(name.to_owned(), reason) {
            None => Ok(()),
            Some(_) => Err(twice("reason", name)),
        }
    }

    fn text(&mut self, piece: &str) -> Result<(), String> {
        let (most, bytes) = (self.item.text_bytes, self.text.len() + piece.len());
        if bytes > most {
            return Err(format!("reported a text of {bytes} bytes, at most {most} are kept"));
        }
        self.text.push_str(piece);
        Ok(())
    }

    fn foreign(&self, kind: &str, name: &str) -> String {
        format!("reported the {kind} {name:?}, which is none of {}", self.item.name)
    }

    /// What the item lacks, if it says that it is done.
    pub fn lacks(&self) -> Option<String> {
        let lacks = |what: &str| Some(format!("ended {} without {what}", self.item.name));
        if self.item.is_check() {
            return if self.check.is_none() { lacks("its outcome") } else { None };
        }
        if self.item.guard().is_some() {
            let has_own = self.guards.iter().any(|guard| Some(guard.name.as_str()) == self.item.guard());
            return if has_own { None } else { lacks("its verdict") };
        }
        if self.measurements.is_empty() && self.unmeasured.is_empty() {
            return lacks("a number or a reason");
        }
        let looked = |name: &&str| self.guards.iter().any(|guard| guard.name == **name);
        let blind = self.item.guards.iter().find(|name| !looked(name));
        blind.filter(|_| !self.measurements.is_empty()).and_then(|name| lacks(&format!("the guard {name:?}")))
    }

    /// The item is done.
    pub fn close(self, into: &mut Gathered) {
        into.checks.extend(self.check);
        self.guards.into_iter().for_each(|guard| into.add(guard));
        into.measurements.extend(self.measurements);
        into.unmeasured.extend(self.unmeasured);
        if !self.text.is_empty() {
            into.texts.insert(self.item.name.clone(), self.text);
        }
    }

    /// The item ended otherwise: a guard that tripped has tripped.
    pub fn break_off(self, into: &mut Gathered) {
        self.guards.into_iter().filter(|guard| guard.tripped).for_each(|guard| into.add(guard));
    }
}

fn twice(kind: &str, name: &str) -> String {
    format!("reported the {kind} {name:?} twice")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scorecard::Outcome;

    fn check(name: &str) -> Message {
        let (detail, replay) = (String::new(), String::new());
        Message::Check(Check { name: name.into(), outcome: Outcome::Passed, detail, replay })
    }

    fn guard(name: &str) -> Message {
        let (challenge, detail) = ("nf4".into(), String::new());
        Message::Guard(Guard { challenge, name: name.into(), ran: true, tripped: false, detail })
    }

    fn number(name: &str) -> Message {
        let value = Measurement { value: 1.0, unit: "x".into(), interval: None, samples: vec![] };
        Message::Measured(name.into(), value)
    }

    /// What is said of messages of an item in turn, and of its end.
    fn describe(item: &Item, messages: Vec<Message>) -> Result<(), String> {
        let mut ledger = Ledger::new("nf4", item);
        messages.into_iter().try_for_each(|message| ledger.admit(message))?;
        ledger.lacks().map_or(Ok(()), Err)
    }

    fn bench() -> Item {
        Item::new("bench/2x2.f16", 1).measuring(&["nf4.*.2x2.f16"]).guarded(&["wrong answers"])
    }

    #[test]
    fn an_item_has_its_own_results_and_all_of_them() {
        let step = Item::new("A.1/one", 1);
        assert_eq!(describe(&step, vec![check("A.1/one")]), Ok(()));
        assert_eq!(describe(&Item::new("guard/late", 1), vec![guard("late")]), Ok(()));
        assert_eq!(describe(&bench(), vec![guard("wrong answers"), number("nf4.speedup.2x2.f16")]), Ok(()));
        let reason = || Message::Unmeasured("bench/2x2.f16".into(), "no time".into());
        assert_eq!(describe(&bench(), vec![reason()]), Ok(()), "a reason needs no guard");
        for (item, missing) in [(step, "its outcome"), (Item::new("guard/late", 1), "its verdict")] {
            assert_eq!(describe(&item, vec![]), Err(format!("ended {} without {missing}", item.name)));
        }
        assert_eq!(
            describe(&bench(), vec![]),
            Err("ended bench/2x2.f16 without a number or a reason".into())
        );
        let unguarded = describe(&bench(), vec![number("nf4.speedup.2x2.f16")]);
        assert_eq!(unguarded, Err("ended bench/2x2.f16 without the guard \"wrong answers\"".into()));
    }

    #[test]
    fn a_text_is_as_long_as_its_item_may_say() {
        let text = || Message::Text("12345".into());
        let item = || Item::new("level/O2", 1).texting(10);
        assert_eq!(describe(&item(), vec![check("level/O2"), text(), text()]), Ok(()));
        let most = |bytes: usize, most: usize| {
            Err(format!("reported a text of {bytes} bytes, at most {most} are kept"))
        };
        assert_eq!(describe(&item(), vec![text(), text(), text()]), most(15, 10));
        assert_eq!(describe(&Item::new("A.1/one", 1), vec![text()]), most(5, 0));
    }

    #[test]
    fn foreign_and_repeated_results_are_refused() {
        let step = || Item::new("A.1/one", 1);
        let foreign = |kind: &str, name: &str, item: &Item| {
            Err(format!("reported the {kind} {name:?}, which is none of {}", item.name))
        };
        assert_eq!(describe(&step(), vec![check("A.1/two")]), foreign("check", "A.1/two", &step()));
        assert_eq!(describe(&step(), vec![guard("late")]), foreign("guard", "late", &step()));
        assert_eq!(
            describe(&bench(), vec![check("bench/2x2.f16")]),
            foreign("check", "bench/2x2.f16", &bench())
        );
        for name in ["nf4.speedup.4x4.f16", "nf4.2x2.f16", "graph.speedup.2x2.f16"] {
            assert_eq!(describe(&bench(), vec![number(name)]), foreign("number", name, &bench()));
        }
        let two = vec![check("A.1/one"), check("A.1/one")];
        assert_eq!(describe(&step(), two), Err("reported the check \"A.1/one\" twice".into()));
        let two = vec![number("nf4.rate.2x2.f16"), number("nf4.rate.2x2.f16")];
        assert_eq!(describe(&bench(), two), Err("reported the number \"nf4.rate.2x2.f16\" twice".into()));
        let all = Item { numbers: vec!["nf4.*".into()], ..bench() };
        let many = (0..=MOST_MESSAGES).map(|i| number(&format!("nf4.{i}"))).collect();
        assert_eq!(describe(&all, many), Err("reported more than 2000 results".into()));
    }
}
