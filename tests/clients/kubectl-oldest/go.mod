module kubefold.dev/kubectl-oldest

go 1.15

require (
	k8s.io/component-base v0.20.15
	k8s.io/kubectl v0.20.15
)
