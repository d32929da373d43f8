//! Promise 9: a member sees the caller's user and groups, never kubefold's own power.

use std::collections::BTreeSet;

use http::Method;
use kubefold_serving::caller::Caller;

use crate::{
    history::{Heard, History, Read, Write},
    kinds::KINDS,
};

/// Whom a member takes kubefold for, where it speaks for itself.
const OWN_USER: &str = "admin";

/// What breaks the promise.
pub(crate) fn check(history: &History) -> Vec<String> {
    let mut problems = Vec::new();
    for (member, heard) in history.members.iter().zip(&history.heard) {
        for one in heard {
            if let Err(why) = is_right(history, one) {
                let caller = one.caller.as_ref().map_or("nobody", |caller| &caller.user);
                problems.push(format!("{member} got {} {} at {:?} from {caller}: {why}", one.method, one.path, one.at));
            }
        }
    }
    for read in history.reads.iter().filter(|read| read.code == 200) {
        let asked = read.name.as_ref().and_then(|name| name.rsplit_once('@'));
        let member = asked.and_then(|(_, member)| history.members.iter().position(|name| *name == member));
        if let (Some((name, _)), Some(member)) = (asked, member)
            && !read.names(history.members[member])
            && !is_asked_by_client(history, read, &history.heard[member], name)
        {
            problems.push(format!(
                "the get of {name} at {:?} was answered, and its member not asked by {}",
                read.began, read.client
            ));
        }
    }
    problems
}

/// A get goes to the member as its client.
fn is_asked_by_client(history: &History, read: &Read, heard: &[Heard], name: &str) -> bool {
    let (path, user) = (read.kind.object_path(&read.namespace, name), &history.clients[read.client].user);
    heard.iter().any(|heard| {
        let is_then = heard.at >= read.began && heard.at <= read.ended;
        is_then && heard.path == path && heard.caller.as_ref().is_some_and(|caller| caller.user == *user)
    })
}

fn is_right(history: &History, heard: &Heard) -> Result<(), String> {
    let Some(caller) = &heard.caller else {
        return if heard.method == Method::GET { Ok(()) } else { Err("nobody writes".into()) };
    };
    if caller.user == OWN_USER {
        // kubefold itself follows kinds, asks how the member is, and what has become of a write; it never writes.
        let named = KINDS.iter().find_map(|kind| {
            let name = heard.path.strip_prefix(&format!("{}/", kind.path(&history.namespace)))?;
            Some((*kind, name))
        });
        let was_written = named.is_none_or(|(kind, name)| {
            let of_name = |write: &Write| write.name.split('@').next() == Some(name);
            history.writes.iter().any(|write| write.kind == kind && of_name(write) && write.began <= heard.at)
        });
        return match heard.method {
            Method::GET if was_written => Ok(()),
            _ => Err("that is kubefold's own power".into()),
        };
    }
    let known = history.clients.iter().find(|client| client.user == caller.user).ok_or("there is no such client")?;
    let groups = |caller: &Caller| caller.groups.iter().cloned().collect::<BTreeSet<_>>();
    if groups(known) != groups(caller) || known.uid != caller.uid || known.extra != caller.extra {
        return Err(format!("it comes as {caller:?}"));
    }
    // `own-1-0` is written by client 1 alone.
    let owner = heard.path.split_once("/own-").and_then(|(_, rest)| rest.split('-').next());
    match owner {
        Some(owner) if heard.method != Method::GET && caller.user != format!("client-{owner}") => {
            Err(format!("client-{owner} alone writes it"))
        }
        _ => Ok(()),
    }
}

#[test]
fn a_request_in_another_name_is_found() {
    use crate::sample;
    let mut history = sample::good();
    history.heard[0][1].caller.as_mut().unwrap().user = OWN_USER.into();
    sample::assert_found(check, &history, "that is kubefold's own power");
    let mut history = sample::good();
    history.heard[0][1].caller = None;
    sample::assert_found(check, &history, "nobody writes");
    let mut history = sample::good();
    history.heard[0][1].caller.as_mut().unwrap().groups.push("more".into());
    sample::assert_found(check, &history, "it comes as");
    let mut history = sample::good();
    history.heard[0][1].caller.as_mut().unwrap().groups.remove(0);
    sample::assert_found(check, &history, "it comes as");
    let mut history = sample::good();
    history.heard[0][1].caller = Some(history.clients[1].clone());
    sample::assert_found(check, &history, "client-0 alone writes it");
    let mut history = sample::good();
    history.heard[0][1].caller.as_mut().unwrap().user = "stranger".into();
    sample::assert_found(check, &history, "there is no such client");
    let mut history = sample::good();
    history.heard[0][0].path = "/api/v1/namespaces/s1/configmaps/app".into();
    sample::assert_found(check, &history, "that is kubefold's own power");
    // A get that kubefold answers by itself.
    let mut history = sample::good();
    history.reads[0].name = Some("app@east".into());
    sample::assert_found(check, &history, "its member not asked by 1");
}
