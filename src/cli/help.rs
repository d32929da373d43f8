//! The end of each `--help` text: examples, and the meaning of exit codes.

pub(super) const ROOT: &str = "\
Examples:
  # Three clusters in one process, to try kubefold
  kubefold demo

  # From a kubeconfig to a served fleet
  kubefold init --from-kubeconfig ~/.kube/config
  kubefold doctor --config clusters.yaml
  kubefold serve --config clusters.yaml --state-dir ./state

  # In another terminal
  kubefold kubeconfig --state-dir ./state > fleet.kubeconfig
  kubectl --kubeconfig fleet.kubeconfig get pods -A

Results go to standard output, everything else to standard error. Only terminals get colours; NO_COLOR or --color never turns them off.

Exit codes:
  0   success
  1   failure: one sentence on standard error says what failed, where, and what to do
  64  the flags or the configuration are invalid; nothing was done";

#[cfg(feature = "demo")]
pub(super) const DEMO: &str = "\
Examples:
  kubefold demo

  # In another terminal, in the same folder
  kubectl --kubeconfig kubefold-demo.kubeconfig get pods -A
  kubefold demo kill west
  kubefold demo fault east '{\"on\":{\"path\":\"/pods\"},\"fault\":{\"latency\":{\"millis\":500}},\"times\":10}'

  # For load
  kubefold demo --members 4 --pods 100000 --churn 50 --calm

The members are in this process's memory and end with it. The demo removes kubefold-demo.kubeconfig from the current folder at the end.";

pub(super) const BENCH: &str = "\
Examples:
  # Three members and a kubefold in this process, every scenario
  kubefold bench --html bench.html

  # One's own cluster, and a process on this machine
  kubefold bench list get watch --kubeconfig fleet.kubeconfig --duration 30s --pid kubefold=$(pgrep -x kubefold) --json new.json

  # In CI: fail where the new one is more than 10 % worse
  kubefold bench --compare old.json new.json --fail-above 1.1

Requests are sent at their rate, whatever the answers do, and latencies count from when a request should have been sent. All objects
are in one namespace, which is removed at the end, also after Ctrl-C. docs/benchmarking.md says what each scenario measures.";

#[cfg(feature = "apiserver")]
pub(super) const APISERVER: &str = "\
Examples:
  # On this machine, stored in ./state/objects.db
  kubefold apiserver --state-dir ./state

  # In another terminal
  kubefold kubeconfig --state-dir ./state > kubefold.kubeconfig
  kubectl --kubeconfig kubefold.kubeconfig create configmap hello --from-literal=to=world

  # For others, in a database, with tokens of a file
  kubefold apiserver --state-dir /var/lib/kubefold --listen 0.0.0.0:6443 --tls-san api.example.com \\
    --storage-url-file /etc/kubefold/storage-url --token-auth-file /etc/kubefold/tokens.csv

SIGTERM or Ctrl-C ends it in order. docs/run-apiserver.md says more.";

#[cfg(feature = "apiserver")]
pub(super) const MIGRATE: &str = "\
Examples:
  # From the file in a state directory to etcd
  kubefold apiserver migrate --from sqlite:./state --to etcd://127.0.0.1:2379

Stop the server first. It may be interrupted, and goes on when it is run again; no server serves the target before it is done. Revisions
go on above those of before, except in etcd, which counts them itself: start controllers and other clients of it anew. docs/run-apiserver.md says more.";

pub(super) const STATE_MOVE: &str = "\
Examples:
  # Before a second replica is added
  kubefold state move --state-dir /var/lib/kubefold --state-url-file /etc/kubefold/state-url
  kubefold serve --config clusters.yaml --state-dir /var/lib/kubefold --state-url-file /etc/kubefold/state-url

Stop kubefold first. The move may be interrupted, and goes on when it is run again. The mirror is not moved: kubefold lists all members anew
once. docs/operations.md says more.";

pub(super) const REWRITE: &str = "\
Examples:
  # After a custom resource definition got another storage version
  kubefold rewrite widgets.example.com --state-dir ./state

  # Everything, such as after an update of kubefold
  kubefold rewrite --kubeconfig kubefold.kubeconfig

It sends a patch that changes nothing for each object, with the rights of the login. Other clients may write meanwhile, and it
can be stopped and run again. Once all objects of a custom resource are rewritten, status.storedVersions of its definition has
the storage version alone, and the other versions can be taken out of the definition.";

pub(super) const SERVE: &str = "\
Examples:
  # On this machine alone
  kubefold serve --config clusters.yaml --state-dir ./state

  # For others, under a name
  kubefold serve --config clusters.yaml --state-dir /var/lib/kubefold --listen 0.0.0.0:6443 \\
    --external-url https://fleet.example.com:6443

SIGHUP makes kubefold read the configuration again, as a change of the file does. On SIGTERM or SIGINT it finishes the requests in
progress and exits; on a second signal it exits at once.";

pub(super) const JOIN: &str = "\
Examples:
  # What would be made, and the entry
  kubefold join --context east --dry-run

  # With an administrator's login for the cluster, which kubefold does not keep
  kubefold join --context east

  # For users of two groups alone
  kubefold join --context west --group oidc:dev --group oidc:ops
  kubefold doctor --config clusters.yaml --member east

In the cluster it makes the namespace kubefold with two ServiceAccounts: one may list and watch, the other one may impersonate. Their
tokens are in members/<name>/ beside clusters.yaml. kubefold serve renews them at half of their life. With --group kubefold can act
there for these groups only: an administrator of the fleet (system:masters) is refused in this member then.";

pub(super) const UNJOIN: &str = "\
Examples:
  kubefold unjoin east --context east --dry-run
  kubefold unjoin east --context east

Objects that kubefold placed stay in the cluster with their marker; `kubefold release --member east` before takes it off.";

pub(super) const KUBECONFIG: &str = "\
Examples:
  kubefold kubeconfig --state-dir ./state > fleet.kubeconfig

  # Into your own kubeconfig, and out again
  kubefold kubeconfig --state-dir ./state --merge --use
  kubefold kubeconfig --state-dir ./state --unmerge

  # Where kubefold is reached by another name
  kubefold kubeconfig --state-dir ./state --server https://fleet.example.com:6443

  # A login for a colleague, for a working day
  kubefold kubeconfig --state-dir ./state --user jane --group dev --expires 8h > jane.kubeconfig

  # One file without a secret for everybody, who then logs in at your issuer
  kubefold kubeconfig --state-dir ./state --oidc-issuer-url https://login.example.com --oidc-client-id kubefold > fleet.kubeconfig

Contexts: fleet (all members as one API), fleet-lenient, fleet-strict, and fleet-MEMBER (that member's own API). --merge locks and
replaces the files as kubectl config does, and notes in an extension (kubefold.io) what it put in.";

pub(super) const REVOKE: &str = "\
Examples:
  kubefold revoke --state-dir ./state jane.kubeconfig
  kubefold revoke --state-dir ./state 1b4f0e9851971998e732078544c96b36c3d01cedf7caa332359d6f1d83567014

A running kubefold takes it within 10 s: it refuses the certificate's requests, and ends its watches and tunnels. If the administrator's
certificate in the state directory is revoked, kubefold makes a new one.";

pub(super) const LOGIN: &str = "\
Examples:
  # What a kubeconfig has that kubefold kubeconfig --oidc-issuer-url made; kubectl runs it
  kubefold login --issuer-url=https://login.example.com --client-id=kubefold

  # On a machine without a browser
  kubefold login --issuer-url=https://login.example.com --client-id=kubefold --flow=device

Tokens are kept in $XDG_CACHE_HOME/kubefold/login (~/.cache/kubefold/login), for the user alone. While the issuer renews them, nobody has to
log in again. A login waits for 5 minutes.";

pub(super) const LOGOUT: &str = "\
Examples:
  kubefold logout
  kubefold logout --issuer-url https://login.example.com

A token that a program holds already counts until it ends. To end the session at the issuer, log out there.";

pub(super) const STATUS: &str = "\
Examples:
  kubefold status --state-dir ./state

  # With a kubeconfig, for a program
  kubefold status --kubeconfig fleet.kubeconfig -o json

  # Until Ctrl-C or q, in place; in a file or a pipe a line for each change
  kubefold status --watch --state-dir ./state

A member's LAG is how long kubefold has not followed the kind that is furthest behind; 0s means current. If a member is down,
the exit code is still 0.";

pub(super) const TOP: &str = "\
Examples:
  kubefold top --state-dir ./state
  kubefold top --once --sort-by objects --kubeconfig fleet.kubeconfig

EVENTS/S is how many events of the members' watches kubefold took in, over the interval. Kinds are those that kubefold follows now. On a
terminal, q or Ctrl-C ends it.";

pub(super) const DOCTOR: &str = "\
Examples:
  kubefold doctor --config clusters.yaml
  kubefold doctor --config clusters.yaml --member east -o json

doctor asks the members itself. It needs no running kubefold, and changes nothing. The exit code is 1 if a check fails.";

pub(super) const PLAN: &str = "\
Examples:
  kubefold plan -f web.yaml --state-dir ./state
  kubectl create deployment web --image=nginx --dry-run=client -o yaml | kubefold plan -f - --kubeconfig fleet.kubeconfig";

pub(super) const SEARCH: &str = "\
Examples:
  kubefold search 'image=nginx:1.19' --kind pods --owner deployment/web --since 2h
  kubefold search web --kind deployments,statefulsets --order-by .spec.replicas:desc --limit 20
  kubefold search --deleted --since 2h -n shop
  kubefold search '.status.phase notin (Running,Succeeded)' -n shop --watch

A word without an operator is looked for in names; image, phase and node stand for the fields of the kind, and every other
field is a path, such as .spec.replicas. Names are the members' own: the CLUSTER column says whose.";

pub(super) const UI: &str = "\
Examples:
  # The fleet of the current context
  kubefold ui

  # On a machine without a screen: forward the port, and open the printed address here
  ssh -L 8001:127.0.0.1:8001 build-host kubefold ui --no-browser --listen 127.0.0.1:8001

The page reads, and drains and rebalances if you confirm it. Whoever has the printed address has these rights of yours, so keep it to yourself. docs/ui.md says more.";

pub(super) const DIFF: &str = "\
Examples:
  kubefold diff deployment/web -n shop --state-dir ./state
  kubefold diff configmap settings --kubeconfig fleet.kubeconfig -o yaml

  # What servers and controllers assign, too
  kubefold diff service/web --all

Each member is asked now. The home has what the fleet view shows. WANTED is what an edited part is to have, or what is divided in all.
Values of Secrets are shown as numbers.

Exit codes:
  0   every part is as it is to be; what is divided, overridden or assigned is no difference
  1   a part differs, is missing or is behind
  2   failure, such as a member that does not answer";

pub(super) const EVENTS: &str = "\
Examples:
  kubefold events -A --state-dir ./state
  kubefold events -w -n shop --types Warning --kubeconfig fleet.kubeconfig

  # About one object; without a member, of every member
  kubefold events --for pod/web-0@east -n shop
  kubefold events --for deployment/web -n shop --member east,west

A watch goes on when a member is down, when kubefold restarts and when the connection is lost. What it has printed is not printed again.";

pub(super) const CORDON: &str = "\
Examples:
  kubefold cordon east --state-dir ./state
  kubefold uncordon east --state-dir ./state

A cordoned member has the taint kubefold.io/unschedulable:NoSchedule: a policy may tolerate it.";

pub(super) const DRAIN: &str = "\
Examples:
  # What would move, where to, and what stays
  kubefold drain east --dry-run --state-dir ./state

  kubefold drain east --state-dir ./state
  kubefold uncordon east --state-dir ./state

Parts elsewhere are made and grow first. What they replace goes once they are available. A drain that is interrupted goes on;
`kubefold moves` shows it. Objects that every member has stay. If the member does not answer, its parts leave their objects now,
and are deleted once it answers again: until then both may run.";

pub(super) const REBALANCE: &str = "\
Examples:
  kubefold rebalance --dry-run --state-dir ./state
  kubefold rebalance --kubeconfig fleet.kubeconfig -o json --wait=false

The overrides of policies (`perMember`) are brought to the parts of all objects: those that changed are set, those that were removed are
taken back. One member at a time replaces its pods. `--dry-run` shows each value that changes.";

pub(super) const ADOPT: &str = "\
Examples:
  # The Deployment of one member, web@east until now, becomes web
  kubefold adopt deployment/web --member east -n shop --state-dir ./state

  # Those of two members become the parts of one
  kubefold adopt deployment/web --member east,west -n shop --state-dir ./state

No pod restarts. `kubefold rebalance` then spreads what is divided.";

pub(super) const FORGET: &str = "\
Examples:
  # What would be given up
  kubefold forget --member east --dry-run --state-dir ./state

What unfinished writes have still to do in the member is not done. Its parts that were replaced while it was lost stay there as
its own objects.";

pub(super) const EXTEND: &str = "\
Examples:
  # Secrets and RBAC too, which a member that joins does not get by itself
  kubefold extend north --state-dir ./state";

pub(super) const CAN_I: &str = "\
Examples:
  kubefold can-i list pods -n shop --as jane --as-group dev --state-dir ./state
  kubefold can-i create deployments.apps -A --kubeconfig fleet.kubeconfig";

pub(super) const EXPLAIN: &str = "\
Examples:
  kubefold auth explain create deployments -n shop --as jane --as-group dev --state-dir ./state

  # Of yourself
  kubefold auth explain list pods -n shop --kubeconfig fleet.kubeconfig

The commands to allow it are for an administrator of the member, with the kubeconfig that kubefold kubeconfig prints.";

pub(super) const RELEASE: &str = "\
Examples:
  # Only print what would be released
  kubefold release --config clusters.yaml --dry-run

  # After the last kubefold has stopped
  kubefold release --config clusters.yaml --state-dir ./state

  # For members that kubefold join added: kubefold's own logins cannot change objects
  kubefold init --from-kubeconfig ~/.kube/config --to administrators.yaml
  kubefold release --config administrators.yaml --state-dir ./state";

pub(super) const AGGREGATION: &str = "\
Examples:
  # kubefold runs outside of the host
  kubefold aggregation manifest --config clusters.yaml --state-dir ./state --address fleet.example.com:6443 \\
    --context host | kubectl --context host apply -f -

  # kubefold runs in the host, and deploy/kustomize made its Service; a group of the fleet is served, too
  kubefold aggregation manifest --config clusters.yaml --state-dir ./state --group apps.example.com/v1

A name becomes a Service of type ExternalName, an IP address one with Endpoints. A group that the host serves itself, built in, by a
custom resource definition or by another API server, is refused.";

pub(super) const INIT: &str = "\
Examples:
  kubefold init --from-kubeconfig ~/.kube/config

  # Two contexts, printed to standard output
  kubefold init --from-kubeconfig ~/.kube/config --context prod-east --context prod-west --to -";

pub(super) const COMPLETION: &str = "\
Examples:
  # In this shell
  source <(kubefold completion bash)

  # In every shell
  kubefold completion zsh > \"${fpath[1]}/_kubefold\"

Names of members, namespaces and kinds are completed, too: the script asks the kubefold that --kubeconfig or $KUBECONFIG names, for at
most 3 s.";

pub(super) const MAN: &str = "\
Example:
  mkdir -p ~/.local/share/man/man1
  kubefold man ~/.local/share/man/man1";
