//! What goes wrong with a call, as tests have it.

/// What happens to one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::write::tests) enum Fault {
    /// The member refuses: 403.
    Refuse,
    /// It refuses the caller's delete, and would not refuse that of kubefold's own user.
    RefuseCaller,
    /// The member answers 500; it did nothing.
    Broken,
    /// The member answers 500; it did it all the same, as when etcd's answer is lost.
    BrokenLanded,
    /// Somebody deletes the object in the member just before.
    Vanished,
    /// Somebody changes the object in this member (empty: in the one that is asked) just before, at this place.
    Touched(&'static str, &'static str),
    /// No byte is sent.
    NotSent,
    /// The answer is lost; the member did it.
    LostLanded,
    /// The answer is lost; the member never got it.
    LostNothing,
    /// The answer is lost; the member does it 33 s later.
    LostLate,
    /// The answer is lost; the member does it two minutes later, as when a network kept it.
    LostLong,
    /// kubefold is killed before a byte is sent.
    CrashBefore,
    /// kubefold is killed when the member has done it.
    CrashAfter,
    /// kubefold is killed; the member does it 33 s later.
    CrashLate,
}

/// Whatever can become of one call.
pub(in crate::write::tests) const FAULTS: [Fault; 7] = [
    Fault::Refuse,
    Fault::Broken,
    Fault::BrokenLanded,
    Fault::NotSent,
    Fault::LostLanded,
    Fault::LostNothing,
    Fault::LostLate,
];
/// Kills at one call.
pub(in crate::write::tests) const CRASHES: [Fault; 3] = [Fault::CrashBefore, Fault::CrashAfter, Fault::CrashLate];
