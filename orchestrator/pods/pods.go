// Package pods decides which Kubernetes pods may join a cluster as workers. A pod proves who it is with a projected
// ServiceAccount token, which the kubelet writes and renews. Tokens are checked with the public keys of the cluster's
// API server, so that no token leaves this process.
package pods

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/oidc"
)

// ErrRefused means that a token does not admit its pod.
var ErrRefused = errors.New("this pod may not join")

// ErrTaken means that a name belongs to another worker that is alive.
var ErrTaken = errors.New("the name is taken")

// ErrAccounts means that a list of ServiceAccounts is empty or has an entry of another form.
var ErrAccounts = errors.New("want NAMESPACE/NAME of a ServiceAccount")

// Pod identifies a pod.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	// Account is the name of its ServiceAccount.
	Account string `json:"account"`
	// Node is the Kubernetes node that it runs on, or "" if the API server does not put it into tokens.
	Node string `json:"node,omitempty"`
	// Issued is when its token was issued.
	Issued time.Time `json:"issued"`
}

// String returns the pod's namespace and name.
func (p Pod) String() string { return p.Namespace + "/" + p.Name }

// Names returns the names that the pod's worker may have: the pod's and its Kubernetes node's, with hyphens for dots.
func (p Pod) Names() []string {
	names := []string{workerName(p.Name)}
	if p.Node != "" {
		names = append(names, workerName(p.Node))
	}
	return names
}

func workerName(kubernetes string) string { return strings.ReplaceAll(kubernetes, ".", "-") }

// ChooseName returns the name of the pod's worker: asked if that is one of Names, or by default the pod's name.
func (p Pod) ChooseName(asked string) (string, error) {
	names := p.Names()
	switch {
	case asked == "":
		return names[0], nil
	case slices.Contains(names, asked):
		return asked, nil
	}
	return "", fmt.Errorf("%w: name %q: must be the name of the pod or of its Kubernetes node (%s)", ErrRefused, asked, strings.Join(names, ", "))
}

// MayReplace returns nil if the pod may take the name of a worker that holder, another or the same pod, has joined with.
// alive reports whether that worker is connected. Kubernetes has at most one pod of a name, so a pod of the same name is
// the holder's successor.
func (p Pod) MayReplace(holder Pod, name string, alive bool) error {
	same := p.Namespace == holder.Namespace && p.Name == holder.Name
	switch {
	case p.UID == holder.UID:
		return nil
	case p.Issued.Before(holder.Issued):
		return fmt.Errorf("%w: its token is older than that of the pod %s, which has the name %s", ErrRefused, holder, name)
	case same:
		return nil
	case p.Namespace != holder.Namespace || p.Account != holder.Account:
		return fmt.Errorf("%w: worker %s belongs to pods of the ServiceAccount %s/%s; remove it with 'outbid worker remove %s'",
			ErrTaken, name, holder.Namespace, holder.Account, name)
	case alive:
		return fmt.Errorf("%w: worker %s runs in the pod %s, which is alive", ErrTaken, name, holder)
	}
	return nil
}

// Config says which tokens admit pods.
type Config struct {
	// Issuer is the claim iss of tokens.
	Issuer string
	// Audience must be among the audiences of tokens.
	Audience string
	// Keys verify tokens.
	Keys oidc.KeySet
	// Accounts are the ServiceAccounts whose pods may join, as NAMESPACE/NAME. Entries of another form admit no pod.
	Accounts []string
	// Now returns the time; nil means time.Now.
	Now func() time.Time
}

// Admission checks the tokens of pods.
type Admission struct {
	verifier *oidc.Verifier
	accounts []string
}

// New returns an Admission.
func New(cfg Config) (*Admission, error) {
	v, err := oidc.NewWithKeys(oidc.Config{Issuer: cfg.Issuer, ClientID: cfg.Audience, Now: cfg.Now}, cfg.Keys)
	if err != nil {
		return nil, err
	}
	return &Admission{verifier: v, accounts: cfg.Accounts}, nil
}

// checkAccounts returns ErrAccounts for a list that is empty or has an entry that is not NAMESPACE/NAME.
func checkAccounts(accounts []string) error {
	if len(accounts) == 0 {
		return fmt.Errorf("no pod may join: %w", ErrAccounts)
	}
	for _, account := range accounts {
		if namespace, name, ok := strings.Cut(account, "/"); !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
			return fmt.Errorf("%q: %w", account, ErrAccounts)
		}
	}
	return nil
}

// IsToken reports whether a text has the form of a ServiceAccount token.
func IsToken(text string) bool { return oidc.IsToken(text) }

// claims are those that Kubernetes adds to tokens.
type claims struct {
	Namespace      string `json:"namespace"`
	ServiceAccount named  `json:"serviceaccount"`
	Pod            *named `json:"pod"`
	Node           named  `json:"node"`
}

type named struct {
	Name string `json:"name"`
	UID  string `json:"uid"`
}

// Check returns the pod of a token. The error wraps ErrRefused, or oidc.ErrUnavailable if the keys cannot be read now.
func (a *Admission) Check(ctx context.Context, token string) (Pod, error) {
	who, err := a.verifier.Verify(ctx, token)
	if errors.Is(err, oidc.ErrUnavailable) {
		return Pod{}, err
	}
	if err != nil {
		return Pod{}, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	var k claims
	if has, err := who.Claim("kubernetes.io", &k); err != nil || !has {
		return Pod{}, fmt.Errorf("%w: the token is not of a Kubernetes ServiceAccount: it has no valid claim kubernetes.io", ErrRefused)
	}
	account := k.Namespace + "/" + k.ServiceAccount.Name
	switch {
	case who.Subject != "system:serviceaccount:"+k.Namespace+":"+k.ServiceAccount.Name:
		return Pod{}, fmt.Errorf("%w: the token's subject is %q, but its ServiceAccount is %s", ErrRefused, who.Subject, account)
	case !slices.Contains(a.accounts, account):
		return Pod{}, fmt.Errorf("%w: ServiceAccount %s: must be one of %s", ErrRefused, account, strings.Join(a.accounts, ", "))
	case k.Pod == nil || k.Pod.Name == "" || k.Pod.UID == "":
		return Pod{}, fmt.Errorf("%w: the token is not bound to a pod: use a projected volume with serviceAccountToken", ErrRefused)
	}
	var issued int64
	if has, err := who.Claim("iat", &issued); err != nil || !has {
		return Pod{}, fmt.Errorf("%w: the token does not say when it was issued (claim iat)", ErrRefused)
	}
	return Pod{
		Namespace: k.Namespace, Name: k.Pod.Name, UID: k.Pod.UID, Account: k.ServiceAccount.Name, Node: k.Node.Name,
		Issued: time.Unix(issued, 0).UTC(),
	}, nil
}
