//! The states of a reflector, and what leads from one to another. Pure: the driver is `reflector/mod.rs`.

use std::time::Duration;

use crate::member::metrics::ListReason;

/// Pause after a failure; it doubles up to the second one, and begins anew once a watch stands. A member that is ready
/// again ends it.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// What a session begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begin {
    /// With a full list: nothing is known, or what is known cannot be continued.
    List(ListReason),
    /// With a full list whose bytes decide, since revisions of before may belong to another history.
    ///
    /// A restored etcd is often past our position before we hear of it: kube-apiserver writes as it starts. Such a member
    /// resumes a watch without a word and never tells what the restoring undid. But nobody restores etcd under a
    /// kube-apiserver that stays ready.
    Afresh,
    /// With a watch from this member revision.
    Resume(u64),
}

/// Where a reflector is. A session goes through the states from `Identifying` to `Watching` in this order, and leaves out
/// `Listing` where it resumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// No session is open. The next one begins with this.
    Between(Begin),
    /// The member is asked which cluster it is: nothing that another cluster told can be continued.
    Identifying(Begin),
    /// A current revision of the member is compared with the position: a restored kube-apiserver says nothing and skips
    /// events for ever (docs/design/members.md).
    Comparing(Begin),
    /// The definition of the kind is asked for: by another one the same objects may read differently.
    Describing(Begin),
    /// Everything is listed, for this reason.
    Listing(ListReason),
    /// A watch tells what changes after this member revision.
    Watching(u64),
}

/// What the driver has found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Input {
    /// A session begins. The member has ceased to be ready so often until now.
    Began { outages: u64 },
    /// The member said which cluster it is: the one of this incarnation, counted from 1.
    Identified { incarnation: u64 },
    /// The member's revision was compared with the position: it is below it, or it is not.
    Compared { backwards: bool },
    /// The definition was asked for: it is another one than before, or it is not.
    Described { changed: bool },
    /// Everything was listed, at this member revision.
    Listed(u64),
    /// The watch told something; this is the position now.
    Progress(u64),
    /// The member ended the watch. The session lasted long enough to count, or it did not.
    Ended { lasted: bool },
    /// The session failed.
    Failed {
        /// The session lasted long enough to count.
        lasted: bool,
        /// The member is ready all the same.
        ready: bool,
        /// Why the next session has to list again, if it has to.
        again: Option<ListReason>,
        /// How long the member asked to be left alone.
        retry_after: Duration,
    },
}

/// What the driver is to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Ask the member which cluster it is.
    Identify,
    /// Forget what the store has of the member's history, if there is a reason to; then compare the member's revision with
    /// the position.
    Compare { forget: Option<ListReason> },
    /// Forget what the store has of the member's history, if there is a reason to; then ask for the kind's definition.
    Describe { forget: Option<ListReason> },
    /// List everything.
    List(ListReason),
    /// Watch from this member revision.
    Watch(u64),
    /// Read on in the watch.
    Read,
    /// Begin the next session after a pause, and no sooner than the member asked for.
    Pause { pause: Duration, at_least: Duration },
    /// Begin the next session.
    Begin,
}

/// A reflector's state, and what it remembers over sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Machine {
    state: State,
    /// The incarnation of the member whose objects the store has; 0 while it has been asked by no session.
    incarnation: u64,
    /// How often the member had ceased to be ready when the last session began.
    outages: u64,
    /// The next pause.
    pause: Duration,
}

impl Machine {
    /// A reflector that knows nothing, of a member that has ceased to be ready so often until now.
    pub(super) fn new(outages: u64) -> Self {
        Self { state: State::Between(Begin::List(ListReason::First)), incarnation: 0, outages, pause: PAUSE_MIN }
    }

    /// A reflector that begins with what an earlier process knew of the member's incarnation.
    pub(super) fn restored(outages: u64, incarnation: u64, begin: Begin) -> Self {
        Self { state: State::Between(begin), incarnation, outages, pause: PAUSE_MIN }
    }

    /// The objects that the store has are another cluster's than the one that answers.
    pub(super) fn distrust(&mut self) {
        if self.incarnation != 0 {
            self.incarnation = u64::MAX;
        }
    }

    /// Says whether nothing that the member told earlier is continued: whatever comes is compared byte by byte.
    pub(super) fn is_without_history(&self) -> bool {
        self.incarnation == 0 || self.begin() == Begin::Afresh
    }

    /// Takes one input in place.
    pub(super) fn apply(&mut self, input: Input) -> Action {
        let (after, action) = self.step(input);
        *self = after;
        action
    }

    /// The state after an input, and what is to be done then.
    pub(super) fn step(self, input: Input) -> (Self, Action) {
        match (self.state, input) {
            (State::Between(begin), Input::Began { outages }) => {
                // An outage may begin and end while this pauses.
                let outage = outages != self.outages && self.incarnation != 0;
                let begin = if outage { Begin::Afresh } else { begin };
                (Self { outages, ..self.at(State::Identifying(begin)) }, Action::Identify)
            }
            (State::Identifying(begin), Input::Identified { incarnation }) => self.identified(begin, incarnation),
            (State::Comparing(_), Input::Compared { backwards: true }) => {
                let reason = ListReason::RevisionsBackwards;
                (self.at(State::Describing(Begin::List(reason))), Action::Describe { forget: Some(reason) })
            }
            (State::Comparing(begin), Input::Compared { backwards: false }) => {
                (self.at(State::Describing(begin)), Action::Describe { forget: None })
            }
            (State::Describing(Begin::Resume(from)), Input::Described { changed: false })
            | (State::Listing(_), Input::Listed(from)) => (self.at(State::Watching(from)), Action::Watch(from)),
            (State::Describing(begin), Input::Described { .. }) => {
                let reason = match begin {
                    Begin::List(reason) => reason,
                    Begin::Afresh => ListReason::Outage,
                    Begin::Resume(_) => ListReason::Redefined,
                };
                (self.at(State::Listing(reason)), Action::List(reason))
            }
            (State::Watching(_), Input::Progress(position)) => (self.at(State::Watching(position)), Action::Read),
            (_, Input::Ended { lasted }) => self.ended(lasted),
            (_, Input::Failed { lasted, ready, again, retry_after }) => self.failed(lasted, ready, again, retry_after),
            // The driver gives a state its own inputs alone. Any other would begin the session anew.
            (_, _) => (self.at(State::Between(self.begin())), Action::Begin),
        }
    }

    fn at(self, state: State) -> Self {
        Self { state, ..self }
    }

    /// What a session begins with that follows this state.
    fn begin(self) -> Begin {
        match self.state {
            State::Between(begin) | State::Identifying(begin) | State::Comparing(begin) | State::Describing(begin) => {
                begin
            }
            State::Listing(reason) => Begin::List(reason),
            State::Watching(position) => Begin::Resume(position),
        }
    }

    fn identified(self, begin: Begin, incarnation: u64) -> (Self, Action) {
        let (begin, forget) = match begin {
            _ if self.incarnation == 0 => (Begin::List(ListReason::First), None),
            _ if self.incarnation != incarnation => {
                (Begin::List(ListReason::OtherCluster), Some(ListReason::OtherCluster))
            }
            Begin::Afresh => (Begin::List(ListReason::Outage), Some(ListReason::Outage)),
            begin => (begin, None),
        };
        (Self { incarnation, ..self.at(State::Comparing(begin)) }, Action::Compare { forget })
    }

    /// A watch that its member ended at its deadline is no trouble. Only a session that lasted begins the pauses anew: a
    /// member that says 410 to everything, or ends every watch at once, is not asked for full lists in a storm.
    fn ended(self, lasted: bool) -> (Self, Action) {
        let after = self.at(State::Between(self.begin()));
        if lasted { (Self { pause: PAUSE_MIN, ..after }, Action::Begin) } else { after.paused(Duration::ZERO) }
    }

    fn failed(self, lasted: bool, ready: bool, again: Option<ListReason>, retry_after: Duration) -> (Self, Action) {
        let begin = match (self.begin(), again) {
            _ if !ready => Begin::Afresh,
            (Begin::Afresh, _) | (_, None) => self.begin(),
            (_, Some(reason)) => Begin::List(reason),
        };
        let pause = if lasted { PAUSE_MIN } else { self.pause };
        Self { pause, ..self.at(State::Between(begin)) }.paused(retry_after)
    }

    /// Pauses, and makes the next pause longer.
    fn paused(self, at_least: Duration) -> (Self, Action) {
        let pause = self.pause;
        (Self { pause: (pause * 2).min(PAUSE_MAX), ..self }, Action::Pause { pause, at_least })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reflector of the first incarnation, in this state.
    fn at(state: State) -> Machine {
        Machine { incarnation: 1, ..Machine::new(0).at(state) }
    }

    const FAILED: Input = Input::Failed { lasted: false, ready: true, again: None, retry_after: Duration::ZERO };

    fn failed(again: Option<ListReason>, ready: bool) -> Input {
        Input::Failed { lasted: false, ready, again, retry_after: Duration::ZERO }
    }

    fn first_pause() -> Action {
        Action::Pause { pause: PAUSE_MIN, at_least: Duration::ZERO }
    }

    #[test]
    fn the_first_session_identifies_compares_describes_lists_and_watches() {
        let mut machine = Machine::new(3);
        let first = ListReason::First;
        assert_eq!(machine.apply(Input::Began { outages: 3 }), Action::Identify);
        assert_eq!(machine.apply(Input::Identified { incarnation: 1 }), Action::Compare { forget: None });
        assert_eq!(machine.apply(Input::Compared { backwards: false }), Action::Describe { forget: None });
        assert_eq!(machine.apply(Input::Described { changed: false }), Action::List(first));
        assert_eq!(machine.apply(Input::Listed(7)), Action::Watch(7));
        assert_eq!(machine.apply(Input::Progress(9)), Action::Read);
        assert_eq!(machine.state, State::Watching(9));
    }

    #[test]
    fn an_outage_in_the_first_session_is_still_the_first_list() {
        let mut machine = Machine::new(0);
        machine.apply(Input::Began { outages: 1 });
        assert_eq!(machine.state, State::Identifying(Begin::List(ListReason::First)));
        machine.apply(failed(None, false));
        machine.apply(Input::Began { outages: 1 });
        assert_eq!(machine.state, State::Identifying(Begin::Afresh));
        machine.apply(Input::Identified { incarnation: 1 });
        assert_eq!(machine.state, State::Comparing(Begin::List(ListReason::First)));
    }

    #[test]
    fn a_session_resumes_where_the_watch_ended() {
        let (mut machine, action) = at(State::Watching(9)).step(Input::Ended { lasted: true });
        assert_eq!((machine.state, action), (State::Between(Begin::Resume(9)), Action::Begin));
        machine.apply(Input::Began { outages: 0 });
        assert_eq!(machine.apply(Input::Identified { incarnation: 1 }), Action::Compare { forget: None });
        machine.apply(Input::Compared { backwards: false });
        assert_eq!(machine.apply(Input::Described { changed: false }), Action::Watch(9));
    }

    #[test]
    fn an_outage_between_sessions_lists_afresh() {
        let (mut machine, _) = at(State::Between(Begin::Resume(9))).step(Input::Began { outages: 1 });
        assert_eq!(machine.state, State::Identifying(Begin::Afresh));
        let forget = Some(ListReason::Outage);
        assert_eq!(machine.apply(Input::Identified { incarnation: 1 }), Action::Compare { forget });
        machine.apply(Input::Compared { backwards: false });
        assert_eq!(machine.apply(Input::Described { changed: true }), Action::List(ListReason::Outage));
    }

    #[test]
    fn a_restored_reflector_resumes_in_the_cluster_that_it_knows_alone() {
        let restored = Machine::restored(3, 1, Begin::Resume(9));
        let mut machine = restored;
        assert_eq!(machine.apply(Input::Began { outages: 3 }), Action::Identify);
        assert_eq!(machine.apply(Input::Identified { incarnation: 1 }), Action::Compare { forget: None });
        assert_eq!(machine.state, State::Comparing(Begin::Resume(9)));
        let mut machine = restored;
        assert_eq!(machine.apply(Input::Began { outages: 3 }), Action::Identify);
        machine.distrust();
        let forget = Some(ListReason::OtherCluster);
        assert_eq!(machine.apply(Input::Identified { incarnation: 1 }), Action::Compare { forget });
        // It was down when kubefold started: it may have been restored from a backup.
        let mut machine = restored;
        machine.apply(Input::Began { outages: 4 });
        assert_eq!(machine.state, State::Identifying(Begin::Afresh));
        let mut cold = Machine::new(3);
        cold.distrust();
        assert!(cold.is_without_history());
    }

    #[test]
    fn another_cluster_is_forgotten_and_listed_whatever_was_to_come() {
        for begin in [Begin::Resume(9), Begin::Afresh, Begin::List(ListReason::Expired)] {
            let (machine, action) = at(State::Identifying(begin)).step(Input::Identified { incarnation: 2 });
            assert_eq!(action, Action::Compare { forget: Some(ListReason::OtherCluster) });
            assert_eq!(machine.state, State::Comparing(Begin::List(ListReason::OtherCluster)));
            assert_eq!(machine.incarnation, 2);
        }
    }

    #[test]
    fn revisions_that_went_backwards_are_forgotten_and_listed() {
        let (machine, action) = at(State::Comparing(Begin::Resume(9))).step(Input::Compared { backwards: true });
        let reason = ListReason::RevisionsBackwards;
        assert_eq!(action, Action::Describe { forget: Some(reason) });
        assert_eq!(machine.step(Input::Described { changed: false }).1, Action::List(reason));
    }

    #[test]
    fn another_definition_lists_what_would_have_been_resumed() {
        let described = |begin| at(State::Describing(begin)).step(Input::Described { changed: true }).1;
        assert_eq!(described(Begin::Resume(9)), Action::List(ListReason::Redefined));
        assert_eq!(described(Begin::List(ListReason::Expired)), Action::List(ListReason::Expired));
    }

    #[test]
    fn a_failed_session_goes_on_where_it_stopped_unless_its_cause_says_otherwise() {
        let begins = [
            (State::Identifying(Begin::Afresh), Begin::Afresh),
            (State::Comparing(Begin::Resume(9)), Begin::Resume(9)),
            (State::Describing(Begin::Resume(9)), Begin::Resume(9)),
            (State::Listing(ListReason::Outage), Begin::List(ListReason::Outage)),
            (State::Watching(9), Begin::Resume(9)),
        ];
        for (state, begin) in begins {
            let (machine, action) = at(state).step(FAILED);
            assert_eq!((machine.state, action), (State::Between(begin), first_pause()));
            let expired = at(state).step(failed(Some(ListReason::Expired), true)).0;
            let listed = if begin == Begin::Afresh { Begin::Afresh } else { Begin::List(ListReason::Expired) };
            assert_eq!(expired.state, State::Between(listed), "what is listed afresh stays so");
            let down = at(state).step(failed(Some(ListReason::Expired), false)).0;
            assert_eq!(down.state, State::Between(Begin::Afresh));
        }
    }

    #[test]
    fn pauses_double_until_a_session_lasts() {
        let mut machine = at(State::Watching(9));
        let mut pause = |input| match machine.apply(input) {
            Action::Pause { pause, .. } => pause,
            action => panic!("{action:?}"),
        };
        assert_eq!(pause(FAILED), PAUSE_MIN);
        assert_eq!(pause(Input::Ended { lasted: false }), PAUSE_MIN * 2);
        for _ in 0..10 {
            pause(FAILED);
        }
        assert_eq!(pause(FAILED), PAUSE_MAX);
        let lasted = Input::Failed { lasted: true, ready: true, again: None, retry_after: Duration::from_secs(9) };
        assert_eq!(pause(lasted), PAUSE_MIN);
        assert_eq!(pause(FAILED), PAUSE_MIN * 2);
        machine.apply(Input::Ended { lasted: true });
        assert_eq!(machine.apply(FAILED), first_pause());
    }

    #[test]
    fn a_member_that_asks_to_be_left_alone_is_left_alone() {
        let at_least = Duration::from_secs(9);
        let input = Input::Failed { lasted: false, ready: true, again: None, retry_after: at_least };
        assert_eq!(at(State::Watching(9)).step(input).1, Action::Pause { pause: PAUSE_MIN, at_least });
    }

    #[test]
    fn an_input_of_another_state_begins_the_session_anew() {
        let (machine, action) = at(State::Watching(9)).step(Input::Listed(7));
        assert_eq!((machine.state, action), (State::Between(Begin::Resume(9)), Action::Begin));
    }
}
